//! The agent of a chat: how it is reached, and started.

mod compare_settings;
mod options;
pub(super) mod presence;
mod target;

pub use options::LeadOptions;
pub use target::ChatTarget;
