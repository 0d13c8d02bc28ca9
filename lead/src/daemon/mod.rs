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
mod confinement;
mod core;
mod dispatcher;
mod gone;
mod hand_over;
mod intake;
mod io;
mod later;
mod mend;
mod named;
mod reconcile;
mod replace;
mod run;
mod start;

// `named` looks for them here.
use self::core::event;
use io::signals;

pub(crate) use at_rest::at_rest;
pub(crate) use confinement::Confinement;
pub(crate) use start::{StartOptions, Started, serve, start};
