//! Until when the workers of a team leave a service alone.
//!
//! **Who writes** `run/overload-SERVICE`: any worker that the service has told to wait, and only
//! with a later time than the present one. **Who reads**: every worker before each attempt. It
//! holds the id of the boot and the seconds since that. It is only advice, written by rename: no
//! worker waits for a lost or unreadable file, or for one of another boot.

use std::sync::Arc;
use std::time::Duration;

use teamd_shared::clock::since_boot;
use teamd_shared::fs::replace;
use teamd_shared::process::boot_id;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::GIVE_UP;

/// Until when a service is left alone.
#[derive(Debug)]
pub(super) struct Overload {
    dir: Arc<TeamDir>,
    at: TeamPath,
}

impl Overload {
    /// Names a service, by the name that [`ServiceSettings::service`](super::settings::ServiceSettings::service)
    /// gives it.
    pub(super) fn new(dir: Arc<TeamDir>, service: &str) -> Self {
        Self {
            dir,
            at: TeamPath::overload(service),
        }
    }

    /// Returns how long the service is still to be left alone, if it is.
    pub(super) fn left(&self) -> Option<Duration> {
        let text = String::from_utf8(self.dir.read(&self.at).ok()?).ok()?;
        let (boot, seconds) = text.trim().split_once(' ')?;
        let until = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
        let left = until
            .checked_sub(since_boot())
            .filter(|left| !left.is_zero())?;
        // Written with fewer digits, it may have been rounded up.
        let is_sensible = left <= GIVE_UP + Duration::from_millis(1);
        (is_sensible && boot_id().ok()? == boot).then_some(left)
    }

    /// Makes the team leave the service alone from now on, unless it already does so for longer.
    pub(super) fn leave_alone_for(&self, span: Duration) {
        let span = span.min(GIVE_UP);
        if self.left().is_some_and(|left| left >= span) {
            return;
        }
        let until = (since_boot() + span).as_secs_f64();
        let written = boot_id()
            .map_err(|error| error.to_string())
            .and_then(|boot| {
                let line = format!("{boot} {until:.3}\n");
                replace(&self.dir, &self.at, line.as_bytes()).map_err(|error| error.to_string())
            });
        if let Err(error) = written {
            tracing::warn!("cannot tell the other workers to wait: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overload() -> (tempfile::TempDir, Overload) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        (scratch, Overload::new(dir, "anthropic-1"))
    }

    #[test]
    fn the_time_only_ever_grows_and_holds_for_all() {
        let (_scratch, overload) = overload();
        assert_eq!(overload.left(), None);
        overload.leave_alone_for(Duration::from_secs(60));
        overload.leave_alone_for(Duration::from_secs(5));
        let other = Overload::new(Arc::clone(&overload.dir), "anthropic-1");
        assert!(other.left().unwrap() > Duration::from_secs(50));
        overload.leave_alone_for(Duration::from_secs(86_400));
        assert!(other.left().unwrap() <= GIVE_UP + Duration::from_millis(1));
        assert_eq!(
            Overload::new(Arc::clone(&overload.dir), "anthropic-2").left(),
            None
        );
    }

    #[test]
    fn what_makes_no_sense_makes_no_worker_wait() {
        let (_scratch, overload) = overload();
        for text in [
            "",
            "soon",
            "-5",
            "NaN",
            "inf",
            "1e300",
            "99999999999",
            "12 34",
            "\u{0}",
        ] {
            replace(&overload.dir, &overload.at, text.as_bytes()).unwrap();
            assert_eq!(overload.left(), None, "{text}");
        }
        let soon = since_boot() + Duration::from_secs(30);
        for (boot, counts) in [("another-boot", false), (&boot_id().unwrap(), true)] {
            replace(
                &overload.dir,
                &overload.at,
                format!("{boot} {:.3}\n", soon.as_secs_f64()).as_bytes(),
            )
            .unwrap();
            assert_eq!(overload.left().is_some(), counts, "{boot}");
        }
        overload.leave_alone_for(Duration::from_secs(60));
        assert!(overload.left().is_some());
    }
}
