//! What the worker waits for at the service of its model, and until when: published for `teamctl status` and the roster.
//!
//! Nothing of it reaches the model. A pause that is over before a person could read of it is not published.

use std::pin::pin;
use std::time::Duration;

use teamd_shared::amount::told;
use teamd_shared::clock::wall;
use teamd_shared::member::Waiting;
use tokio::sync::watch;
use tokio::time::timeout;

use super::failure::{Failure, FailureKind};

/// The shortest pause that is published.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long a service may be silent before that is published; less if the limit of silence is short.
const QUIET: Duration = Duration::from_secs(10);

/// Where the pause of the moment is published.
#[derive(Debug)]
pub(super) struct Waits(watch::Sender<Option<Waiting>>);

/// A pause that is published until this is dropped.
#[derive(Debug)]
pub(super) struct WaitGuard<'w>(&'w Waits);

/// How long a service may be silent, and where a silence is published.
#[derive(Debug, Clone, Copy)]
pub(super) struct SilenceLimit<'w> {
    /// How long.
    pub(super) limit: Duration,
    /// Where.
    pub(super) waits: &'w Waits,
}

impl Waits {
    /// Begins without a pause.
    pub(super) fn new() -> Self {
        Self(watch::channel(None).0)
    }

    /// Returns where the pause of the moment stands.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Waiting>> {
        self.0.subscribe()
    }

    /// Publishes a pause.
    pub(super) fn publish(&self, span: Duration, why: &str) -> WaitGuard<'_> {
        if span >= SHORTEST {
            self.0.send_replace(Some(Waiting { until: wall() + span.as_secs_f64(), why: why.to_owned() }));
        }
        WaitGuard(self)
    }

    /// Sleeps; the pause is published meanwhile.
    pub(super) async fn sleep(&self, span: Duration, why: &str) {
        let _guard = self.publish(span, why);
        tokio::time::sleep(span).await;
    }
}

impl SilenceLimit<'_> {
    /// Waits for the next thing of a connection.
    ///
    /// # Errors
    /// [`FailureKind::Silent`] if nothing comes in time.
    pub(super) async fn wait<T>(self, next: impl Future<Output = T>) -> Result<T, Failure> {
        let mut next = pin!(next);
        let quiet = QUIET.min(self.limit / 4);
        if let Ok(came) = timeout(quiet, &mut next).await {
            return Ok(came);
        }
        let _guard = self.waits.publish(self.limit - quiet, "the service is silent");
        let detail = format!("nothing came for {}", told(self.limit));
        timeout(self.limit - quiet, next).await.map_err(|_| Failure::new(FailureKind::Silent, &detail))
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.0.send_if_modified(|waiting| waiting.take().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_published_as_long_as_it_lasts_and_a_short_one_not_at_all() {
        let waits = Waits::new();
        let mut published = waits.subscribe();
        drop(waits.publish(Duration::from_millis(999), "short"));
        assert!(!published.has_changed().unwrap());
        let guard = waits.publish(Duration::from_secs(18), "overloaded (529)");
        let waiting = published.borrow_and_update().clone().unwrap();
        assert_eq!(waiting.why, "overloaded (529)");
        assert!((17.0..=18.0).contains(&(waiting.until - wall())), "{waiting:?}");
        drop(guard);
        assert_eq!(*published.borrow_and_update(), None);
    }

    #[tokio::test]
    async fn silence_is_published_after_a_while_and_ends_with_an_event_or_with_the_limit() {
        let waits = Waits::new();
        let mut published = waits.subscribe();
        let limited = |limit: Duration| SilenceLimit { limit, waits: &waits };
        let silent = limited(Duration::from_millis(50)).wait(std::future::pending::<()>()).await;
        assert_eq!(silent.unwrap_err().kind, FailureKind::Silent);
        assert!(!published.has_changed().unwrap(), "too short to be published");
        let event = async {
            published.changed().await.unwrap();
            let waiting = published.borrow_and_update().clone().unwrap();
            assert_eq!(waiting.why, "the service is silent");
        };
        assert_eq!(limited(Duration::from_secs(2)).wait(event).await, Ok(()));
        assert_eq!(*published.borrow_and_update(), None);
    }
}
