//! The lead daemon: one per team directory.
//!
//! ```text
//! control_server ─┐
//! supervisor ─────┤ Event            ┌▶ journal (append, one sync)
//! lead_inbox ─────┼──────▶ dispatcher ┼▶ effects: inbox lines, words, processes
//! signals, timers ┘   decide, apply   └▶ roster, then replies
//! ```
//!
//! `batcher` is the only place that decides, with the pure functions of `decide`, and says in which order what follows is
//! done; `dispatcher` does it. Everybody else reports events and performs actions.

mod at_rest;
mod batcher;
mod cgroup;
mod confinement;
mod control_server;
mod decide;
mod dispatcher;
mod effects;
mod event;
mod gone;
mod hand_over;
mod intake;
mod journal;
mod later;
mod lead_inbox;
mod live;
mod lock;
mod mend;
mod named;
mod news;
mod peer;
mod perform;
mod reconcile;
mod replace;
mod roster;
mod run;
mod see_off;
mod signals;
mod socket;
mod start;
mod strays;
mod supervisor;
mod waiters;
mod watchdog;
mod word;

pub(crate) use at_rest::at_rest;
pub(crate) use confinement::Confinement;
pub(crate) use start::{StartOptions, Started, serve, start};
