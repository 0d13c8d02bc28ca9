//! What the service of a model is waited for, and until when: told to whoever wants to know, as it is now.
//!
//! Nothing of it reaches the model, and a pause that is over before anybody could read of it is not told.

use std::pin::pin;
use std::time::Duration;

use teamd_shared::clock::wall;
use teamd_shared::member::Waiting;
use tokio::sync::watch;
use tokio::time::timeout;

use super::failure::Failure;

/// The shortest pause that is told.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// How long a service may be silent before that is told. With little patience it is told earlier.
const SILENT: Duration = Duration::from_secs(10);

/// Where pauses are told.
#[derive(Debug)]
pub(super) struct Pauses(watch::Sender<Option<Waiting>>);

/// How long a service may be silent, and where that is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'p> {
    /// How long.
    pub(super) limit: Duration,
    /// Where.
    pub(super) pauses: &'p Pauses,
}

/// A pause that is told until this is dropped.
#[derive(Debug)]
pub(super) struct Told<'p>(&'p Pauses);

impl Pauses {
    /// Begins without one.
    pub(super) fn new() -> Self {
        Self(watch::channel(None).0)
    }

    /// Returns where the pause of the moment stands.
    pub(super) fn listen(&self) -> watch::Receiver<Option<Waiting>> {
        self.0.subscribe()
    }

    /// Tells a pause.
    pub(super) fn tell(&self, span: Duration, why: &str) -> Told<'_> {
        if span >= WORTH_TELLING {
            self.0.send_replace(Some(Waiting { until: wall() + span.as_secs_f64(), why: why.to_owned() }));
        }
        Told(self)
    }
}

impl Patience<'_> {
    /// Waits for the next thing of a connection, at most this long; that nothing comes is told after a while.
    ///
    /// # Errors
    /// [`Failure::Silent`] if nothing comes in time.
    pub(super) async fn wait<T>(self, limit: Duration, next: impl Future<Output = T>) -> Result<T, Failure> {
        let mut next = pin!(next);
        let quiet = SILENT.min(self.limit / 4).min(limit);
        if let Ok(came) = timeout(quiet, &mut next).await {
            return Ok(came);
        }
        let _told = self.pauses.tell(limit - quiet, "the service is silent");
        timeout(limit - quiet, next).await.map_err(|_| Failure::Silent(limit))
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.0.send_if_modified(|told| told.take().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_told_as_long_as_it_lasts_and_a_short_one_not_at_all() {
        let pauses = Pauses::new();
        let mut heard = pauses.listen();
        drop(pauses.tell(Duration::from_millis(999), "short"));
        assert!(!heard.has_changed().unwrap());
        let told = pauses.tell(Duration::from_secs(18), "overloaded (529)");
        let waiting = heard.borrow_and_update().clone().unwrap();
        assert_eq!(waiting.why, "overloaded (529)");
        assert!((17.0..=18.0).contains(&(waiting.until - wall())), "{waiting:?}");
        drop(told);
        assert_eq!(*heard.borrow_and_update(), None);
    }

    #[tokio::test]
    async fn silence_is_told_after_a_while_and_ends_with_a_word_or_with_the_patience() {
        let pauses = Pauses::new();
        let mut heard = pauses.listen();
        let (two, short) = (Duration::from_secs(2), Duration::from_millis(50));
        let patience = |limit: Duration| Patience { limit, pauses: &pauses };
        let silent = patience(short).wait(short, std::future::pending::<()>()).await;
        assert_eq!(silent, Err(Failure::Silent(short)));
        assert!(!heard.has_changed().unwrap(), "too short to be told");
        let told = async {
            heard.changed().await.unwrap();
            let waiting = heard.borrow_and_update().clone().unwrap();
            assert_eq!(waiting.why, "the service is silent");
        };
        assert_eq!(patience(two).wait(two, told).await, Ok(()));
        assert_eq!(*heard.borrow_and_update(), None);
    }
}
