//! The host daemon: `teamd host`, one per home and machine. To its workers it is the daemon that
//! they know; to home, whose daemon has the journal, it reports. It decides nothing.
//!
//! ```text
//! home ◀──── frames of the link ────▶ host daemon ◀──── control frames ────▶ workers
//!            (ssh, relay)             host.jsonl, inbox/
//! ```
//!
//! A link remembers nothing, and neither does this process of a link: each begins with what holds
//! now. So that its workers say theirs anew, their connections are closed then, as if a daemon had
//! been replaced; they connect again at once.
//!
//! **Who writes** in its team directory: the host daemon alone `host.jsonl` (whom it obeys, where
//! a setup can write, the processes that it has started, their ends) and `config.json` (the text
//! that home says, for the workers); each worker its transcript; all of them, and what comes over
//! the link, the inboxes of those who live here. **Who reads**: the host daemon `host.jsonl`, and
//! the inboxes of those who live elsewhere, which are the outboxes to them.
//!
//! **When it dies**
//! - while a checkout is set up: where its commands can make links is in `host.jsonl` before they
//!   run, so that no later order follows one.
//! - before `spawned` is in `host.jsonl`: the worker was not welcomed, and ends with its
//!   connection. Home orders the start again.
//! - behind it, before home has heard: home orders it again, and hears of the same process; or of
//!   its end, if it was not welcomed.
//! - while a worker runs: the worker goes on. The next `teamd host` adopts it, or sees that it is
//!   gone and reports its end.
//! - between the end of a process and `exited`: the next one waits for that end again, and looks
//!   again at what was not read.
//! - behind a line of mail: the line is in the inbox, with its place at home. The
//!   next link goes on behind it.
//! - between the move of files into the archive and `forgotten`: the next
//!   [`teamd_shared::link::ToHost::Team`] does the rest.

pub(super) mod bulk;
mod copies;
mod daemon;
pub(super) mod dial;
mod frames;
mod hidden;
mod inputs;
mod job_orders;
mod jobs;
mod links;
mod logs;
mod mail;
mod orders;
mod outbound;
mod places;
mod programs;
mod record;
pub(super) mod relay;
mod roster;
pub(super) mod run;
mod state;
mod team;
mod vitals;
mod workers;
