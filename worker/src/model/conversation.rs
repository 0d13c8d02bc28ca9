//! The conversation as a model sees it, pure: the fold of the transcript.

use teamd_shared::transcript::Event;

use super::prompt::Turn;

/// A conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conversation {
    turns: Vec<Turn>,
}

impl Conversation {
    /// Takes in the next entry.
    pub(crate) fn observe(&mut self, event: &Event) {
        drop(event.clone());
        self.turns.clear();
    }

    /// Returns the turns so far.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }
}
