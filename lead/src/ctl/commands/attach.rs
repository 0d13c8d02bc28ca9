//! `teamctl attach`: shows a teammate's conversation as it goes on, and sends what is typed.

use crate::ctl::args::Attach;
use crate::ctl::context::Context;
use crate::ctl::talk::{self, Party, Talk};
use crate::error::CommandResult;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Attach) -> CommandResult {
    let party = Party { name: args.name.clone(), begin: None };
    talk::run(context, &Talk { party, last: args.last, timeout: args.timeout })
}
