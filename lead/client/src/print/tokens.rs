//! Tokens as people read them. Pure.

use teamd_shared::transcript::Usage;

fn in_units(tokens: u64, unit: u64, sign: char) -> String {
    let tenths = tokens / (unit / 10);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}{sign}"),
        (whole, _) if whole >= 100 => format!("{whole}{sign}"),
        (whole, tenth) => format!("{whole}.{tenth}{sign}"),
    }
}

/// Shortens a number of tokens: `812`, `12.3k`, `1.2M`.
pub fn count(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 => in_units(tokens, 1_000, 'k'),
        1_000_000..1_000_000_000 => in_units(tokens, 1_000_000, 'M'),
        _ => in_units(tokens, 1_000_000_000, 'G'),
    }
}

/// Formats all that was read and written, as one number.
pub fn all(usage: &Usage) -> String {
    count(usage.all())
}

/// Formats what was read and written, and how much of what was read came from a cache.
pub fn cost(usage: &Usage) -> String {
    let cached = match cached(usage) {
        Some(share) if share > 0 => format!(" ({share}% cached)"),
        _ => String::new(),
    };
    format!(
        "{} in{cached} / {} out",
        count(usage.input()),
        count(usage.output_tokens)
    )
}

/// Returns the share of what was read that came from a cache, in percent; none if nothing was read.
fn cached(usage: &Usage) -> Option<u64> {
    let share = u128::from(usage.cache_read_input_tokens) * 100 / u128::from(usage.input()).max(1);
    if usage.input() > 0 {
        u64::try_from(share).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (tokens, shown) in [
            (0, "0"),
            (999, "999"),
            (1000, "1k"),
            (12_345, "12.3k"),
            (123_456, "123k"),
            (999_999, "999k"),
            (1_250_000, "1.2M"),
            (7_000_000_000, "7G"),
        ] {
            assert_eq!(count(tokens), shown);
        }
        assert!(count(u64::MAX).ends_with('G'));
    }

    #[test]
    fn the_share_of_the_cache_is_told() {
        let usage = Usage {
            input_tokens: 100,
            output_tokens: 1234,
            cache_read_input_tokens: 8_000,
            cache_creation_input_tokens: 1_900,
        };
        assert_eq!(cost(&usage), "10k in (80% cached) / 1.2k out");
        assert_eq!(cost(&Usage::default()), "0 in / 0 out");
        let all = Usage {
            cache_read_input_tokens: u64::MAX,
            ..usage
        };
        assert_eq!(cached(&all), Some(100));
    }
}
