//! The prices that are built in: the day that they are of.

use teamd_shared::price;

use super::finding::Check;

/// Looks at the prices at a time, in seconds since 1970.
pub(super) fn look(check: &mut Check, now: f64) -> Option<String> {
    let date = price::date();
    if price::are_old(now) {
        check.note(
            format!("the prices of models are those of {date}"),
            "costs that are shown, and limits by `--max-cost`, may be wrong",
            "update teamd, or name the prices of today in ~/.config/teamd/prices.toml",
        );
    }
    Some(format!("those of {date}"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::run;
    use super::*;

    #[test]
    fn old_prices_are_a_note() {
        let said = |now: f64| {
            let found = run("prices", |check| look(check, now));
            found
                .iter()
                .map(|finding| finding.what.clone())
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert!(said(0.0).starts_with("those of 20"), "{}", said(0.0));
        assert!(
            said(4e9).starts_with("the prices of models are those of 20"),
            "{}",
            said(4e9)
        );
    }
}
