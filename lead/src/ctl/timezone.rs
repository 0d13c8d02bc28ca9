//! The user's time zone: how many seconds local time is ahead of UTC.
//!
//! `localtime_r` cannot be called without `unsafe`, so the zone file is read here: the compiled form of
//! RFC 9636, and the rule of POSIX `TZ` that stands at its end. Whatever cannot be read counts as UTC.

use std::path::{Path, PathBuf};

use super::calendar::{DAY, date_of, first_of_month};

/// The length of the header of a block, in bytes.
const HEADER: usize = 44;

/// A time zone. Seconds everywhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TimeZone {
    /// When another offset begins (UTC), and which.
    changes: Vec<(i64, i64)>,
    /// The offset before the first change.
    first: i64,
    /// What holds after the last change.
    rule: Option<Rule>,
}

/// A rule for every year: standard time, and summer time where there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rule {
    standard: i64,
    summer: Option<Summer>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Summer {
    offset: i64,
    begins: Date,
    ends: Date,
}

/// The `week`th `weekday` of a month (5: the last one), at a local time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Date {
    month: i64,
    week: i64,
    weekday: i64,
    time: i64,
}

impl TimeZone {
    /// Finds the zone of this process: `$TZ`, else that of the machine.
    pub(super) fn local() -> Self {
        let setting = std::env::var("TZ").ok();
        Self::named(setting.as_deref(), Path::new("/usr/share/zoneinfo")).unwrap_or_default()
    }

    fn named(setting: Option<&str>, database: &Path) -> Option<Self> {
        let Some(name) = setting.map(|name| name.trim_start_matches(':')) else {
            return Self::from_file(&std::fs::read("/etc/localtime").ok()?);
        };
        let path = database.join(name);
        let inside =
            PathBuf::from(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let file = if inside || name.starts_with('/') { std::fs::read(path).ok() } else { None };
        match file.and_then(|bytes| Self::from_file(&bytes)) {
            Some(zone) => Some(zone),
            None => Some(Self { rule: Some(Rule::parse(name)?), ..Self::default() }),
        }
    }

    /// Returns how far local time is ahead of UTC, at a time (seconds since 1970).
    pub(super) fn offset_at(&self, utc: i64) -> i64 {
        let passed = self.changes.partition_point(|(at, _)| *at <= utc);
        match (&self.rule, passed.checked_sub(1)) {
            (Some(rule), _) if passed == self.changes.len() => rule.offset_at(utc),
            (_, Some(last)) => self.changes[last].1,
            (_, None) => self.first,
        }
    }

    /// Reads a compiled zone: a first block of 32-bit times for old readers, then one of 64-bit times.
    fn from_file(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"TZif") || *bytes.get(4)? < b'2' {
            return None;
        }
        let old = Counts::read(bytes)?;
        let block = bytes.get(HEADER + old.size(4)..)?;
        let counts = Counts::read(block)?;
        let body = block.get(HEADER..)?;
        let (times, rest) = body.split_at_checked(counts.times * 8)?;
        let (kinds, rest) = rest.split_at_checked(counts.times)?;
        let offsets: Vec<i64> = rest.get(..counts.kinds * 6)?.chunks_exact(6).filter_map(signed32).collect();
        let changes = times.chunks_exact(8).zip(kinds);
        let changes = changes.map(|(at, kind)| {
            Some((i64::from_be_bytes(at.try_into().ok()?), *offsets.get(usize::from(*kind))?))
        });
        let footer = std::str::from_utf8(block.get(HEADER + counts.size(8)..)?).ok()?;
        let rule = Rule::parse(footer.trim_matches('\n'));
        Some(Self { changes: changes.collect::<Option<_>>()?, first: *offsets.first()?, rule })
    }
}

fn signed32(bytes: &[u8]) -> Option<i64> {
    Some(i64::from(i32::from_be_bytes(bytes.get(..4)?.try_into().ok()?)))
}

/// The counts in the header of a block.
struct Counts {
    flags: usize,
    leaps: usize,
    times: usize,
    kinds: usize,
    letters: usize,
}

impl Counts {
    fn read(block: &[u8]) -> Option<Self> {
        let count = |index: usize| -> Option<usize> {
            let at = 20 + index * 4;
            usize::try_from(u32::from_be_bytes(block.get(at..at + 4)?.try_into().ok()?)).ok()
        };
        let flags = count(0)? + count(1)?;
        Some(Self { flags, leaps: count(2)?, times: count(3)?, kinds: count(4)?, letters: count(5)? })
    }

    fn size(&self, time: usize) -> usize {
        self.times * (time + 1) + self.kinds * 6 + self.letters + self.leaps * (time + 4) + self.flags
    }
}

impl Rule {
    /// Reads a rule such as `CET-1CEST,M3.5.0,M10.5.0/3`. Only dates of the form `M` are known: no zone in
    /// use has another one.
    fn parse(text: &str) -> Option<Self> {
        let rest = skip_name(text)?;
        let (west, rest) = take_time(rest)?;
        let standard = -west;
        if rest.is_empty() {
            return Some(Self { standard, summer: None });
        }
        let (rest, dates) = skip_name(rest)?.split_once(',')?;
        let offset = if rest.is_empty() { standard + 3600 } else { -take_time(rest)?.0 };
        let (begins, ends) = dates.split_once(',')?;
        let summer = Summer { offset, begins: Date::parse(begins)?, ends: Date::parse(ends)? };
        Some(Self { standard, summer: Some(summer) })
    }

    fn offset_at(&self, utc: i64) -> i64 {
        let Some(summer) = self.summer else { return self.standard };
        let (year, ..) = date_of((utc + self.standard).div_euclid(DAY));
        let begins = summer.begins.in_year(year) - self.standard;
        let ends = summer.ends.in_year(year) - summer.offset;
        // South of the equator the summer of a year is what is not between its end and its beginning.
        let is_summer =
            if begins < ends { (begins..ends).contains(&utc) } else { !(ends..begins).contains(&utc) };
        if is_summer { summer.offset } else { self.standard }
    }
}

impl Date {
    fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once('/').map_or((text, None), |(date, time)| (date, Some(time)));
        let mut numbers = date.strip_prefix('M')?.split('.').map(|number| number.parse::<i64>().ok());
        let (month, week, weekday) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let known = (1..=12).contains(&month) && (1..=5).contains(&week) && (0..=6).contains(&weekday);
        let time = time.map_or(Some(7200), |time| take_time(time).map(|(time, _)| time))?;
        known.then_some(Self { month, week, weekday, time })
    }

    /// Returns the local time of the date in a year, in seconds since 1970.
    fn in_year(&self, year: i64) -> i64 {
        let first = first_of_month(year, self.month);
        let next = if self.month == 12 { first + 31 } else { first_of_month(year, self.month + 1) };
        // 1970 began on a Thursday.
        let weekday_of_first = (first + 4).rem_euclid(7);
        let mut day = first + (self.weekday - weekday_of_first).rem_euclid(7) + (self.week - 1) * 7;
        while day >= next {
            day -= 7;
        }
        day * DAY + self.time
    }
}

/// Skips the name of a zone: letters, or anything in angle brackets.
fn skip_name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>').map(|(_, rest)| rest);
    }
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    (end >= 3).then(|| &text[end..])
}

/// Takes `[+-]hh[:mm[:ss]]` from the start of a text; returns seconds, and the rest.
fn take_time(text: &str) -> Option<(i64, &str)> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == ':')).unwrap_or(unsigned.len());
    let mut seconds = 0;
    for (part, unit) in unsigned[..end].split(':').zip([3600, 60, 1]) {
        seconds += part.parse::<i64>().ok().filter(|&number| number < 200)? * unit;
    }
    Some((if text.starts_with('-') { -seconds } else { seconds }, &unsigned[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> TimeZone {
        TimeZone { rule: Some(Rule::parse(text).unwrap()), ..TimeZone::default() }
    }

    #[test]
    fn summer_time_begins_and_ends_to_the_second() {
        let berlin = rule("CET-1CEST,M3.5.0,M10.5.0/3");
        let (begins, ends) = (1_743_296_400, 1_761_440_400); // 2025-03-30 and 2025-10-26, 01:00 UTC
        assert_eq!(
            [begins - 1, begins, ends - 1, ends].map(|at| berlin.offset_at(at)),
            [3600, 7200, 7200, 3600]
        );
    }

    #[test]
    fn summer_is_over_new_year_in_the_south_and_offsets_need_not_be_hours() {
        let sydney = rule("AEST-10AEDT,M10.1.0,M4.1.0/3");
        assert_eq!(sydney.offset_at(1_735_689_600), 11 * 3600, "2025-01-01");
        assert_eq!(sydney.offset_at(1_751_328_000), 10 * 3600, "2025-07-01");
        assert_eq!(rule("<+0545>-5:45").offset_at(0), 5 * 3600 + 45 * 60);
        assert_eq!(rule("EST5").offset_at(0), -5 * 3600);
    }

    #[test]
    fn what_cannot_be_read_is_utc() {
        let database = Path::new("/usr/share/zoneinfo");
        for setting in
            ["../../etc/passwd", "No/Such/Zone", "", "x", "CET-1CEST,J60,J300", "A-999999999999999999B"]
        {
            assert_eq!(TimeZone::named(Some(setting), database), None, "{setting}");
        }
        for end in [0, 4, 5, 44, 100] {
            assert_eq!(TimeZone::from_file(&[b"TZif2", &[255; 200][..]].concat()[..end]), None);
        }
        assert_eq!(TimeZone::default().offset_at(1_763_726_585), 0);
    }

    #[test]
    fn a_compiled_zone_holds_its_changes_and_then_its_rule() {
        let header = |times: u32, kinds: u32, letters: u32| {
            let counts = [0, 0, 0, times, kinds, letters].map(u32::to_be_bytes).concat();
            [b"TZif2", &[0; 15][..], &counts].concat()
        };
        let kinds = [&3600_i32.to_be_bytes()[..], &[0, 0], &7200_i32.to_be_bytes(), &[1, 0]].concat();
        let times = [1000_i64, 2000].map(i64::to_be_bytes).concat();
        let file = [&header(0, 0, 0)[..], &header(2, 2, 4), &times, &[1, 0], &kinds, b"CET\0", b"\nCET-1\n"]
            .concat();
        let zone = TimeZone::from_file(&file).unwrap();
        assert_eq!(
            [999, 1000, 1999, 2000, 9999].map(|at| zone.offset_at(at)),
            [3600, 7200, 7200, 3600, 3600]
        );
    }
}
