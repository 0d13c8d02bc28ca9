//! What the worker decides, pure: the state and its next step, the fold of the transcript, the plan that is submitted.
//!
//! Nothing here imports a runtime, a file system, a clock or a random source: times and ids are arguments.

pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod state;
