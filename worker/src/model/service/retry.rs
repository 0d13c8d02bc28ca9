//! Which failure is tried again, and when. Pure: times and chance come in as arguments.

use std::time::Duration;

use super::GIVE_UP;
use super::failure::{Complaint, Failure};

/// How often a prompt is sent at most.
const ATTEMPTS: u32 = 6;

/// The first pause, and the longest; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What is done about a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    /// Another attempt.
    Again {
        /// After this pause.
        wait: Duration,
        /// Nobody in the team is to ask for this long.
        leave_alone: Option<Duration>,
    },
    /// It would not help.
    Never,
}

/// The attempts for one prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts {
    made: u32,
}

impl Attempts {
    /// Begins; nothing was sent yet.
    pub(super) fn begin() -> Self {
        Self { made: 0 }
    }

    /// Returns how many attempts have failed.
    pub(super) fn made(&self) -> u32 {
        self.made
    }

    /// Decides after a failed attempt; `elapsed` counts from the beginning of the first, `random` is in 0..1.
    pub(super) fn next(&mut self, failure: &Failure, elapsed: Duration, random: f64) -> Next {
        self.made += 1;
        let asked = asked_to_wait(failure);
        if !is_passing(failure) || self.made >= ATTEMPTS {
            return Next::Never;
        }
        let pause = PAUSES.0.saturating_mul(1 << (self.made - 1).min(16)).min(PAUSES.1);
        let wait = match asked {
            Some(asked) => asked + spread(asked, random),
            None => pause.mul_f64(0.5 + random / 2.0),
        };
        if elapsed + wait > GIVE_UP {
            return Next::Never;
        }
        Next::Again { wait, leave_alone: is_overload(failure).then(|| asked.unwrap_or(wait)) }
    }

    /// Decides how long to wait for a service that the team leaves alone for a time; none: it is not worth it.
    pub(super) fn wait_out(&self, left: Duration, elapsed: Duration, random: f64) -> Option<Duration> {
        let wait = left + spread(left, random);
        (elapsed + wait <= GIVE_UP).then_some(wait)
    }
}

/// Those who wait for the same moment come back one after the other: in a quarter of the time that they waited.
fn spread(wait: Duration, random: f64) -> Duration {
    wait.div_f64(4.0).clamp(Duration::from_millis(100), Duration::from_secs(5)).mul_f64(random)
}

/// Tells whether the same prompt may be answered later.
fn is_passing(failure: &Failure) -> bool {
    match failure {
        Failure::Service(complaint) => may_pass(complaint),
        Failure::Unreachable { certificate, .. } => !certificate,
        Failure::Silent(_) | Failure::Cut | Failure::Broken { .. } => true,
        Failure::Stranger { passing, .. } => *passing,
        Failure::TooMuch(_) | Failure::Left(_) | Failure::Setting(_) => false,
    }
}

fn may_pass(complaint: &Complaint) -> bool {
    // The same prompt is as long the next time, whatever the status says.
    if complaint.is_out_of_credit() || complaint.is_too_long() {
        return false;
    }
    complaint.should_retry.unwrap_or(matches!(complaint.status, 408 | 409 | 429 | 500..=599))
}

/// Tells whether the whole team should leave the service alone.
fn is_overload(failure: &Failure) -> bool {
    failure.complaint().is_some_and(|complaint| {
        matches!(complaint.status, 429 | 503 | 529) || complaint.retry_after.is_some()
    })
}

fn asked_to_wait(failure: &Failure) -> Option<Duration> {
    failure.complaint().and_then(|complaint| complaint.retry_after)
}

/// Reads how long a service asks to wait, from the values of its headers `retry-after-ms` and `retry-after` (seconds, or
/// a date as in RFC 9110); `now` is in seconds since 1970.
pub(super) fn retry_after(milliseconds: Option<&str>, header: Option<&str>, now: f64) -> Option<Duration> {
    let seconds = |text: &str| text.trim().parse::<f64>().ok();
    let wanted = milliseconds
        .and_then(seconds)
        .map(|ms| ms / 1000.0)
        .or_else(|| header.and_then(|text| seconds(text).or_else(|| Some(date(text)? - now))))?;
    // A date that is over means now; what is no number means nothing. Far too long is as good as a year.
    wanted.is_finite().then(|| Duration::from_secs_f64(wanted.clamp(0.0, 31_536_000.0)))
}

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` as seconds since 1970.
fn date(text: &str) -> Option<f64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let rest = text.trim().split_once(", ")?.1.strip_suffix(" GMT")?;
    let [day, month, year, time] = rest.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>().try_into().ok()?;
    let number = |text: &str| text.parse::<u16>().ok().map(i64::from);
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
    let days = days(number(year)?, month, number(day)?);
    let seconds = ((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?;
    // Exact: far below 2^53.
    Some(f64::from(u32::try_from(seconds).ok()?))
}

/// The days from 1970-01-01 to a date of the Gregorian calendar, by counting years from March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(status: u16, kind: &str, message: &str) -> Failure {
        let (kind, message) = (kind.to_owned(), message.to_owned());
        Failure::Service(Complaint { status, kind, message, ..Complaint::default() })
    }

    fn first(failure: &Failure) -> Next {
        Attempts::begin().next(failure, Duration::ZERO, 0.5)
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let broke = Failure::Unreachable { why: "reset".to_owned(), certificate: false };
        let forged = Failure::Unreachable { why: "unknown issuer".to_owned(), certificate: true };
        let page = Failure::Stranger { why: "a page".to_owned(), passing: false };
        let noise = Failure::Stranger { why: "noise".to_owned(), passing: true };
        for failure in [broke, noise, Failure::Cut, Failure::Silent(Duration::from_secs(1))] {
            assert!(matches!(first(&failure), Next::Again { leave_alone: None, .. }), "{failure}");
        }
        for failure in [forged, page, Failure::TooMuch("long"), Failure::Left(Duration::ZERO)] {
            assert_eq!(first(&failure), Next::Never, "{failure}");
        }
        for status in [408, 409, 500, 502, 504, 520] {
            assert!(
                matches!(first(&says(status, "", "")), Next::Again { leave_alone: None, .. }),
                "{status}"
            );
        }
        for status in [429, 503, 529] {
            assert!(
                matches!(first(&says(status, "", "")), Next::Again { leave_alone: Some(_), .. }),
                "{status}"
            );
        }
        for status in [301, 400, 401, 402, 403, 404, 413, 422] {
            assert_eq!(first(&says(status, "", "")), Next::Never, "{status}");
        }
    }

    #[test]
    fn money_is_not_waited_for_and_the_service_has_the_last_word() {
        for failure in [
            says(429, "insufficient_quota", "You exceeded your current quota"),
            says(400, "invalid_request_error", "Your credit balance is too low to access the API"),
            Failure::Service(Complaint {
                status: 429,
                code: "enforced_spend_limit_reached".to_owned(),
                ..Complaint::default()
            }),
            Failure::Service(Complaint { status: 529, should_retry: Some(false), ..Complaint::default() }),
            says(500, "", "the request exceeds the available context size"),
        ] {
            assert_eq!(first(&failure), Next::Never, "{failure}");
        }
        let told =
            Failure::Service(Complaint { status: 400, should_retry: Some(true), ..Complaint::default() });
        assert!(matches!(first(&told), Next::Again { .. }));
    }

    #[test]
    fn pauses_grow_and_all_of_it_ends() {
        let mut attempts = Attempts::begin();
        let mut waits = Vec::new();
        while let Next::Again { wait, .. } = attempts.next(&Failure::Cut, Duration::ZERO, 1.0) {
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000]);
        assert_eq!(attempts.made(), ATTEMPTS);
        assert_eq!(Attempts::begin().next(&Failure::Cut, GIVE_UP, 0.0), Next::Never);
        let long = Duration::from_secs(100_000);
        let asks = Complaint { status: 429, retry_after: Some(long), ..Complaint::default() };
        assert_eq!(first(&Failure::Service(asks)), Next::Never);
        assert_eq!(Attempts::begin().wait_out(long, Duration::ZERO, 0.0), None);
    }

    #[test]
    fn a_service_is_never_asked_before_the_time_that_it_named() {
        let after = Duration::from_secs(2);
        let asks = Complaint { status: 500, retry_after: Some(after), ..Complaint::default() };
        for random in [0.0, 0.99] {
            let next = Attempts::begin().next(&Failure::Service(asks.clone()), Duration::ZERO, random);
            let Next::Again { wait, leave_alone } = next else { panic!("{next:?}") };
            assert!(wait >= after && wait < after * 2 && leave_alone == Some(after), "{wait:?}");
            let waits = Attempts::begin().wait_out(after, Duration::ZERO, random).unwrap();
            assert!(waits >= after && waits < after * 2);
        }
    }

    #[test]
    fn the_headers_are_read_in_all_their_forms() {
        let now = 784_111_770.0;
        let seconds = |s: f64| Some(Duration::from_secs_f64(s));
        assert_eq!(retry_after(None, Some("3"), now), seconds(3.0));
        assert_eq!(retry_after(Some("250"), Some("3"), now), seconds(0.25));
        assert_eq!(retry_after(None, Some("Sun, 06 Nov 1994 08:49:37 GMT"), now), seconds(7.0));
        assert_eq!(retry_after(None, Some("Sat, 01 Jan 1994 00:00:00 GMT"), now), seconds(0.0));
        assert_eq!(retry_after(None, Some("1e300"), now), seconds(31_536_000.0));
        for bad in ["", "soon", "NaN", "inf", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov"] {
            assert_eq!(retry_after(None, Some(bad), now), None, "{bad}");
        }
        assert_eq!(retry_after(None, None, now), None);
        assert_eq!(date("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800.0));
    }
}
