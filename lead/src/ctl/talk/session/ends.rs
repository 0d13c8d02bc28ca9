//! The ends of the commands that a person gave at the prompt: each has a number, so that none is taken for another one.
//! Never carries one out.

use std::time::Duration;

use teamd_shared::id::RequestId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// Its number.
    pub(super) number: u64,
    /// The plan of which it has said how it was answered, if it has.
    pub(super) told: Option<RequestId>,
}

/// Where the end of one command is reported.
pub(super) struct Reports {
    number: u64,
    told: Option<RequestId>,
    ends: UnboundedSender<End>,
}

impl Reports {
    /// Reports the end.
    pub(super) fn end(mut self, told: Option<RequestId>) {
        self.told = told;
    }
}

impl Drop for Reports {
    /// Also where the command has panicked: who waits for its end waits for no other.
    fn drop(&mut self) {
        // Nobody waits any more when the person has left.
        self.ends.send(End { number: self.number, told: self.told.take() }).ok();
    }
}

/// The ends that are not heard of yet.
pub(super) struct Ends {
    begun: u64,
    sender: UnboundedSender<End>,
    receiver: UnboundedReceiver<End>,
}

impl Ends {
    /// Begins with no command.
    pub(super) fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { begun: 0, sender, receiver }
    }

    /// Gives the next command its number.
    pub(super) fn begin(&mut self) -> (u64, Reports) {
        self.begun += 1;
        (self.begun, Reports { number: self.begun, told: None, ends: self.sender.clone() })
    }

    /// Waits for the next end. Dropping the future loses none.
    pub(super) async fn next(&mut self) -> Option<End> {
        self.receiver.recv().await
    }

    /// Returns the next end, if there is one already.
    pub(super) fn ready(&mut self) -> Option<End> {
        self.receiver.try_recv().ok()
    }

    /// Waits for the end of this command, but no longer than this. Returns all ends until then, it last.
    pub(super) async fn until(&mut self, number: u64, longest: Duration) -> Vec<End> {
        let last = Instant::now() + longest;
        let mut ends = Vec::new();
        while let Ok(Some(end)) = timeout_at(last, self.receiver.recv()).await {
            ends.push(end);
            if ends.last().is_some_and(|end| end.number == number) {
                break;
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(ends: &mut Ends, number: u64, longest: Duration) -> Vec<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ended = runtime.block_on(ends.until(number, longest));
        ended.into_iter().map(|end| end.number).collect()
    }

    #[test]
    fn the_end_of_a_slow_command_is_not_taken_for_that_of_the_next_one() {
        let mut ends = Ends::new();
        let (slow, of_slow) = ends.begin();
        let (next, of_next) = ends.begin();
        drop(of_slow);
        assert_eq!(until(&mut ends, next, Duration::from_millis(20)), [slow], "it was not waited for");
        of_next.end(None);
        assert_eq!(until(&mut ends, next, Duration::from_secs(60)), [next]);
        assert_eq!(ends.ready(), None);
    }
}
