//! The loop of the worker: the session performs the steps that the state decides, the dispatcher
//! serves what happens meanwhile, and the rest are the files and connections that they use.

pub(crate) mod begin;
pub(crate) mod connection;
pub(crate) mod dispatcher;
mod last_words;
mod live_file;
pub(crate) mod mailbox;
pub(crate) mod outbox;
mod persona;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod transcript;
mod turn;
