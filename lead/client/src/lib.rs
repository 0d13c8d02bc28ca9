//! What lies below the commands and the views of the lead.
//!
//! ```text
//! args   the command lines, with what a shell completes
//! act    what a command does: it asks the daemon, or appends to an inbox
//! read   what the files of the team directory and `/proc` show
//! print  what a person or a program reads of it
//! ```
//!
//! Each room uses those below it: `act` and `args` use `read`, and that uses `print`. The daemon
//! uses the connection, the errors with their exit codes, and the programs, and nothing else of
//! this crate.

pub mod act;
pub mod args;
pub mod connection;
pub mod context;
pub mod daemon_lock;
mod daemon_wait;
pub mod error;
pub mod exit_code;
pub mod hidden_file;
pub mod nats_link;
pub mod over_ssh;
pub mod print;
pub mod programs;
pub mod read;
pub mod registered;
pub mod run_by;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::unwrap_used,
    reason = "only tests are built with it, and they fail with it"
)]
pub mod testing;
