//! What the worker decides, pure: the work as the transcript tells it, the state and its next step,
//! what is submitted.
//!
//! Nothing here imports a runtime, a file system, a clock or a random source: times and ids are
//! arguments.

pub mod allowance;
pub mod at;
pub mod cut;
pub mod ledger;
pub mod mcp;
pub mod secret;
pub mod skill_file;
pub mod state;
pub mod submission;
pub mod tool_use;
pub mod tools;
pub mod work;
