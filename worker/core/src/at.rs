//! How far the work of a member is.

use teamd_shared::message::IdleReason;
use teamd_shared::request::Status;

use crate::submission::LeadQuestion;

/// How far the work is.
#[derive(Debug, Clone, PartialEq)]
pub enum At {
    /// There is none.
    Idle,
    /// The model is next; `results`: it is given some.
    Turn {
        /// Whether calls have ended since the model was asked last.
        results: bool,
    },
    /// A model call runs.
    Thinking {
        /// As before it.
        results: bool,
    },
    /// A call of the last answer is next.
    Call,
    /// That call runs, or its answer to a shutdown is on its way.
    Calling {
        /// In a few words.
        activity: String,
        /// Whether an open gate let it through.
        gated: bool,
        /// Whether it is the agent itself, which a shutdown waits for as for a model.
        is_mind: bool,
    },
    /// That call waits for memory: it has not begun.
    Held {
        /// How many are before it.
        before: u32,
        /// Whether an open gate lets it through.
        gated: bool,
    },
    /// That call waits for a person, who may take days.
    Asking,
    /// That call is a plan, or asks for a permission: it suspends the turn.
    Pending(Pending),
    /// The work has ended, and the lead is to be told.
    Done(IdleReason),
}

/// What was asked, without a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    pub(crate) submission: LeadQuestion,
    pub(crate) progress: SubmissionProgress,
    /// How often its line could not be read where it was written.
    pub(crate) lost: u32,
}

/// What the daemon knows of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SubmissionProgress {
    /// Nothing: before a plan, the background commands must end.
    Nothing,
    /// Its line was submitted.
    Submitted,
    /// It is recorded, and has this status.
    Recorded(Status),
    /// Its id belongs to another request.
    Taken,
    /// It will not be recorded.
    Refused(String),
}
