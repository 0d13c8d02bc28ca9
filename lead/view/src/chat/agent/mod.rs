//! The agent of a chat: how it is reached, and started.

mod compare_settings;
pub(super) mod presence;
mod target;

pub use target::{ChatTarget, LeadOptions};
