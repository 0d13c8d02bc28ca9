//! What lies below the commands and the views of the lead: the connection to the daemon, the error
//! that ends a command with its exit code, and the programs of the package.
//!
//! The daemon uses those, too. Nothing here knows a command that prints, or a view.

pub mod connection;
pub mod error;
pub mod exit_code;
pub mod programs;
pub mod registered;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::unwrap_used,
    reason = "only tests are built with it, and they fail with it"
)]
pub mod testing;
