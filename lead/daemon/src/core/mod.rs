//! What the daemon decides, and in which order what follows is done. Pure: no file, no clock, no
//! runtime, no random source.

pub(crate) mod caller;
pub(crate) mod decide;
pub(crate) mod directive;
pub(crate) mod dispatcher;
pub(crate) mod effect_queues;
pub(crate) mod event;
pub(crate) mod host_link;
pub(crate) mod incarnation;
pub(crate) mod io;
pub(crate) mod job;
pub(crate) mod notices;
pub(crate) mod quiet;
pub(crate) mod runtime;
pub(crate) mod status;
pub(crate) mod waiters;
mod watchdog;
