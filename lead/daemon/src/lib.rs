//! The lead daemon: one per team directory.
//!
//! ```text
//! connections ──┐
//! workers ──────┤ Event              ┌▶ journal (append, one sync)
//! lead's inbox ─┼──────▶ dispatcher ─┼▶ effects: inbox lines, processes, directives
//! signals, time ┘    decide, apply   └▶ roster, then replies
//! ```
//!
//! `core` decides, and says in which order what follows is done; it is pure. `event_loop` gathers
//! events for its dispatcher, and the resources in `io` carry out what follows. `run`, `start`,
//! `reconcile`, `replace` and `hand_over` are the daemon's beginning and end.

mod confinement;
mod core;
mod event_loop;
mod hand_over;
mod host;
mod io;
mod link;
mod options;
mod reconcile;
mod replace;
mod run;
mod start;
mod workspace;

pub use confinement::TeamConfinement;
pub use host::bulk::{give_file, take_file};
pub use host::dial::{DialOptions, LinkNote, dial};
pub use host::relay::relay;
pub use link::serve_link;
pub use options::{DaemonRole, HostOptions, SetAside, StartOptions};
pub use start::{Started, serve, start, start_host};
