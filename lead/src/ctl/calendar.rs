//! Days and dates of the Gregorian calendar. Pure arithmetic.

/// The length of a day, in seconds.
pub(super) const DAY: i64 = 86_400;

/// Returns year, month and day of a number of days since 1970
/// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>).
pub(super) fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the days since 1970 of the first day of a month
/// (<https://howardhinnant.github.io/date_algorithms.html#days_from_civil>).
pub(super) fn first_of_month(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree_for_centuries() {
        let mut before = first_of_month(1889, 12);
        for year in 1890..2200 {
            for month in 1..=12 {
                let first = first_of_month(year, month);
                assert_eq!(date_of(first), (year, month, 1));
                assert!((28..=31).contains(&(first - before)));
                before = first;
            }
        }
        assert_eq!(date_of(0), (1970, 1, 1));
    }
}
