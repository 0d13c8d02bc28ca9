//! The prices that are built in: from which day they are.

use teamd_shared::price;

use super::finding::DoctorCheck;

/// Judges the prices at a time, in seconds since 1970.
pub(super) fn examine(check: &mut DoctorCheck, now: f64) -> Option<String> {
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
    use super::super::finding::tests::summaries;
    use super::*;

    #[test]
    fn old_prices_are_a_note() {
        for (now, beginning) in [
            (0.0, "those of 20"),
            (4e9, "the prices of models are those of 20"),
        ] {
            let (_, what) = summaries(|check| examine(check, now)).remove(0);
            assert!(what.starts_with(beginning), "{what}");
        }
    }
}
