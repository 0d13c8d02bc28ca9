//! What the daemon decides, and in which order what follows is done. Pure: no file, no clock, no runtime, no random source.

pub(crate) mod batch;
pub(crate) mod completion;
pub(crate) mod decide;
pub(crate) mod directive;
pub(crate) mod event;
pub(crate) mod live;
pub(crate) mod notices;
pub(crate) mod waiters;
mod watchdog;
