//! The loop of the worker: the session performs the steps that the state decides, the dispatcher
//! serves what happens meanwhile, and the rest are the files and connections that they use.

mod announcement;
mod begin;
mod calls;
mod connection;
mod dispatcher;
mod last_words;
mod live_file;
mod mailbox;
mod outbox;
mod persona;
mod run;
mod session;
#[cfg(test)]
mod sim;
mod team;
mod tools;
mod transcript;
mod turn;

pub use run::{RunArgs, run};
pub use tools::search::{SUBCOMMAND as SEARCH, search_main};
