//! The summary of the conversation that a person asks for: at rest, or between two steps of the
//! work. A worker that dies before its entry is there has not begun it, and the command that waits
//! for it is refused.

use teamd_shared::transcript::Event;

use crate::session::Session;
use crate::tools::Tools;
use crate::transcript::TranscriptError;

/// Why there is no summary of a conversation without answers.
const NOTHING: &str =
    "its model has said nothing since its conversation began, or was last put into a summary";

impl<T: Tools> Session<T> {
    /// Asks the model for a summary, and says what came of it.
    pub(crate) async fn compact(&mut self) -> Result<(), TranscriptError> {
        if !self.model.can_compact() {
            self.compacted(&Err(format!("there is nothing to compact: {NOTHING}")));
            return Ok(());
        }
        let (budget, is_at_rest) = self.dispatcher.state.compacting();
        let Self {
            dispatcher, model, ..
        } = self;
        let asked = dispatcher
            .run_until(model.compact(budget, is_at_rest))
            .await;
        if !is_at_rest {
            // At rest no entry may follow: what it has cost is recorded with the next work.
            self.charge()?;
        }
        let outcome = match asked {
            Ok(Ok(Event::Fallback { reason, .. })) if is_at_rest => Err(reason),
            Ok(Ok(fallback @ Event::Fallback { .. })) => {
                // It is asked for again, and the other model writes it.
                return self.record(fallback);
            }
            Ok(Ok(summary)) => {
                self.record(summary)?;
                self.transcript.sync()?;
                Ok(())
            }
            Ok(Err(error)) => Err(format!("{error} (hint: {})", error.hint())),
            Err(why) => Err(format!("no summary is written: {}", self.broken_off(&why))),
        };
        self.compacted(&outcome);
        Ok(())
    }

    /// Answers all who have asked for it.
    fn compacted(&mut self, outcome: &Result<(), String>) {
        if let Err(why) = outcome {
            tracing::warn!("the conversation is not put into a summary: {why}");
        }
        for id in self.dispatcher.state.compacted() {
            self.dispatcher.link.report_compacted(id, outcome.clone());
        }
    }
}
