//! What the worker waits for at the service of its model, and until when: published for
//! `teamctl status` and the roster.
//!
//! The model gets none of it. A pause that is too short for a person to notice is not published.

use std::pin::pin;
use std::time::Duration;

use teamd_shared::amount::format_duration;
use teamd_shared::clock::wall;
use teamd_shared::member::Waiting;
use tokio::sync::watch;
use tokio::time::timeout;

use super::failure::{Failure, FailureKind};

/// The shortest pause that is published.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long a service may be silent before that is published; less if the limit of silence is
/// short.
const QUIET: Duration = Duration::from_secs(10);

/// The pauses of the worker, published at one place.
#[derive(Debug)]
pub(super) struct Waits {
    published: watch::Sender<Option<Waiting>>,
    /// How long the service may be silent.
    silence: Duration,
}

/// A pause that is published until this is dropped.
#[derive(Debug)]
pub(super) struct WaitGuard<'w>(&'w Waits);

impl Waits {
    /// Begins without a pause; `silence`: how long the service may be silent.
    pub(super) fn new(silence: Duration) -> Self {
        Self {
            published: watch::channel(None).0,
            silence,
        }
    }

    /// Begins without a pause, and publishes at the same place as these.
    pub(super) fn beside(&self) -> Self {
        Self {
            published: self.published.clone(),
            silence: self.silence,
        }
    }

    /// Returns the channel that publishes the present pause.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Waiting>> {
        self.published.subscribe()
    }

    /// Publishes a pause.
    pub(super) fn publish(&self, span: Duration, why: &str) -> WaitGuard<'_> {
        if span >= SHORTEST {
            let waiting = Waiting {
                until: wall() + span.as_secs_f64(),
                why: why.to_owned(),
            };
            self.published.send_replace(Some(waiting));
        }
        WaitGuard(self)
    }

    /// Sleeps; the pause is published meanwhile.
    pub(super) async fn sleep(&self, span: Duration, why: &str) {
        let _guard = self.publish(span, why);
        tokio::time::sleep(span).await;
    }

    /// Waits for the next data of a connection. A long silence is published.
    ///
    /// # Errors
    /// [`FailureKind::Silent`] if nothing comes in time.
    pub(super) async fn for_service<T>(&self, next: impl Future<Output = T>) -> Result<T, Failure> {
        let mut next = pin!(next);
        let quiet = QUIET.min(self.silence / 4);
        if let Ok(came) = timeout(quiet, &mut next).await {
            return Ok(came);
        }
        let _guard = self.publish(self.silence - quiet, Waiting::SILENT);
        let detail = format!("nothing came for {}", format_duration(self.silence));
        timeout(self.silence - quiet, next)
            .await
            .map_err(|_| Failure::new(FailureKind::Silent, &detail))
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0
            .published
            .send_if_modified(|waiting| waiting.take().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_published_as_long_as_it_lasts_and_a_short_one_not_at_all() {
        let waits = Waits::new(Duration::from_secs(2));
        let mut published = waits.subscribe();
        drop(waits.publish(Duration::from_millis(999), "short"));
        assert!(!published.has_changed().unwrap());
        let guard = waits.publish(Duration::from_secs(18), "overloaded (529)");
        let waiting = published.borrow_and_update().clone().unwrap();
        assert_eq!(waiting.why, "overloaded (529)");
        assert!(
            (17.0..=18.0).contains(&(waiting.until - wall())),
            "{waiting:?}"
        );
        drop(guard);
        assert_eq!(*published.borrow_and_update(), None);
    }

    #[tokio::test]
    async fn silence_is_published_after_a_while_and_ends_with_an_event_or_with_the_limit() {
        let short = Waits::new(Duration::from_millis(50));
        let published = short.subscribe();
        let silent = short.for_service(std::future::pending::<()>()).await;
        assert_eq!(silent.unwrap_err().kind, FailureKind::Silent);
        assert!(
            !published.has_changed().unwrap(),
            "too short to be published"
        );
        let waits = Waits::new(Duration::from_secs(2));
        let mut published = waits.subscribe();
        let event = async {
            published.changed().await.unwrap();
            let waiting = published.borrow_and_update().clone().unwrap();
            assert_eq!(waiting.why, Waiting::SILENT);
        };
        assert_eq!(waits.for_service(event).await, Ok(()));
        assert_eq!(*published.borrow_and_update(), None);
    }
}
