//! When a request is tried again. Pure: times and chance come in as arguments.

use std::time::{Duration, SystemTime};

use super::GIVE_UP;
use super::failure::Failure;

/// The maximum number of attempts.
pub(super) const ATTEMPTS: u32 = 6;

/// The first pause, without jitter. Each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest wait that is considered, in seconds.
const YEAR: f64 = 31_536_000.0;

/// Returns how long to wait after an attempt; none if there is no further attempt. `made`: the
/// number of failed attempts; `elapsed`: the time since the beginning of the first; `random`: in
/// 0..1.
pub(super) fn pause(
    failure: &Failure,
    made: u32,
    elapsed: Duration,
    random: f64,
) -> Option<Duration> {
    if !failure.is_temporary() || made >= ATTEMPTS {
        return None;
    }
    match failure.retry_after {
        Some(wanted) => wait_for(wanted, elapsed, random),
        None => {
            let pause = FIRST_PAUSE * (1 << made.saturating_sub(1));
            in_time(pause.mul_f64(0.5 + random / 2.0), elapsed)
        }
    }
}

/// Returns how long to wait for a service that asked to be left alone; none if that is too long.
///
/// Workers that wait for the same moment come back one after the other, within a quarter of their
/// waiting time.
pub(super) fn wait_for(left: Duration, elapsed: Duration, random: f64) -> Option<Duration> {
    let spread = left
        .div_f64(4.0)
        .clamp(Duration::from_millis(100), Duration::from_secs(5));
    in_time(left + spread.mul_f64(random), elapsed)
}

fn in_time(wait: Duration, elapsed: Duration) -> Option<Duration> {
    (elapsed + wait <= GIVE_UP).then_some(wait)
}

/// Reads how long a service asks to wait, from the values of its headers `retry-after-ms` and
/// `retry-after` (seconds, or a date as in RFC 9110). A date in the past means now. Any other value
/// is ignored.
pub(super) fn retry_after(milliseconds: &str, header: &str, now: SystemTime) -> Option<Duration> {
    let seconds = match milliseconds.trim().parse::<f64>() {
        Ok(milliseconds) => Some(milliseconds / 1000.0),
        Err(_) => header.trim().parse().ok(),
    };
    let Some(seconds) = seconds else {
        let date = httpdate::parse_http_date(header).ok()?;
        return Some(date.duration_since(now).unwrap_or_default());
    };
    if !seconds.is_finite() {
        return None;
    }
    // A longer wait makes no difference.
    Some(Duration::from_secs_f64(seconds.clamp(0.0, YEAR)))
}

#[cfg(test)]
mod tests {
    use super::super::failure::FailureKind;
    use super::*;

    fn says(status: u16, code: &str, detail: &str) -> Failure {
        Failure {
            code: code.to_owned(),
            ..Failure::new(FailureKind::Status(status), detail)
        }
    }

    fn first(failure: &Failure) -> Option<Duration> {
        pause(failure, 1, Duration::ZERO, 0.5)
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        for kind in [
            FailureKind::Unreachable,
            FailureKind::Silent,
            FailureKind::Incomplete,
        ] {
            let failure = Failure::new(kind, "");
            assert!(
                first(&failure).is_some() && !failure.is_overload(),
                "{kind:?}"
            );
        }
        for kind in [
            FailureKind::Certificate,
            FailureKind::WrongService,
            FailureKind::TooLarge,
        ] {
            assert_eq!(first(&Failure::new(kind, "")), None, "{kind:?}");
        }
        for (status, is_overload) in [
            (408, false),
            (409, false),
            (500, false),
            (502, false),
            (504, false),
            (520, false),
        ]
        .into_iter()
        .chain([(429, true), (503, true), (529, true)])
        {
            let failure = says(status, "", "");
            assert_eq!(
                (first(&failure).is_some(), failure.is_overload()),
                (true, is_overload),
                "{status}"
            );
        }
        for status in [301, 400, 401, 402, 403, 404, 413, 422] {
            assert_eq!(first(&says(status, "", "")), None, "{status}");
        }
    }

    #[test]
    fn money_is_not_waited_for_and_the_service_has_the_last_word() {
        for failure in [
            says(429, "insufficient_quota", "You exceeded your current quota"),
            says(
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the API",
            ),
            says(429, "enforced_spend_limit_reached", ""),
            Failure {
                should_retry: Some(false),
                ..says(529, "", "")
            },
            says(500, "", "the request exceeds the available context size"),
        ] {
            assert_eq!(first(&failure), None, "{failure}");
        }
        assert!(
            first(&Failure {
                should_retry: Some(true),
                ..says(400, "", "")
            })
            .is_some()
        );
    }

    #[test]
    fn pauses_grow_and_all_of_it_ends() {
        let cut = Failure::new(FailureKind::Incomplete, "");
        let waits: Vec<_> = (1..=6)
            .map(|made| pause(&cut, made, Duration::ZERO, 1.0).map(|wait| wait.as_millis()))
            .collect();
        assert_eq!(
            waits,
            [
                Some(500),
                Some(1000),
                Some(2000),
                Some(4000),
                Some(8000),
                None
            ]
        );
        assert_eq!(pause(&cut, 1, GIVE_UP, 0.0), None);
        let long = Duration::from_secs(100_000);
        assert_eq!(
            first(&Failure {
                retry_after: Some(long),
                ..says(429, "", "")
            }),
            None
        );
        assert_eq!(wait_for(long, Duration::ZERO, 0.0), None);
    }

    #[test]
    fn a_service_is_never_asked_before_the_time_that_it_named() {
        let after = Duration::from_secs(2);
        let failure = Failure {
            retry_after: Some(after),
            ..says(500, "", "")
        };
        assert!(failure.is_overload());
        for random in [0.0, 0.99] {
            for wait in [
                pause(&failure, 1, Duration::ZERO, random),
                wait_for(after, Duration::ZERO, random),
            ] {
                assert!(
                    wait.is_some_and(|wait| wait >= after && wait < after * 2),
                    "{wait:?}"
                );
            }
        }
    }

    #[test]
    fn the_headers_are_read_in_all_their_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let seconds = |s: f64| Some(Duration::from_secs_f64(s));
        assert_eq!(retry_after("", "3", now), seconds(3.0));
        assert_eq!(retry_after("250", "3", now), seconds(0.25));
        assert_eq!(
            retry_after("", "Sun, 06 Nov 1994 08:49:37 GMT", now),
            seconds(7.0)
        );
        assert_eq!(
            retry_after("", "Sat, 01 Jan 1994 00:00:00 GMT", now),
            seconds(0.0)
        );
        assert_eq!(retry_after("", "1e300", now), seconds(YEAR));
        for bad in [
            "",
            "soon",
            "NaN",
            "inf",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov",
        ] {
            assert_eq!(retry_after("", bad, now), None, "{bad}");
        }
        assert_eq!(retry_after("", "", now), None);
    }
}
