//! What a command does: most ask the daemon and wait for it, a message is appended to an inbox. One
//! file for each thing that several commands or views do.

pub mod answer;
pub mod auto_start;
pub mod delivered;
pub mod hosts;
pub mod install;
pub mod integration;
pub mod interrupt;
pub mod lead_connection;
pub mod mcp_reports;
pub mod send;
pub mod spawn;
pub mod stop;
pub mod task;
pub mod unreachable;
pub mod waiting;

use crate::args::TeamctlCommand;
use crate::context::Context;
use crate::error::CommandResult;

/// Carries out a command of `teamctl`. The commands lie above the views, so a view is given this.
pub type Perform = fn(TeamctlCommand, &Context) -> CommandResult;
