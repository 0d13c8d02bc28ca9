//! `teamctl interrupt`: interrupts a teammate's current turn.

use serde_json::json;
use teamd_shared::clock::since_boot;
use teamd_shared::control::Command;
use teamd_shared::member::MemberStatus;

use crate::client::Client;
use crate::ctl::args::Teammate;
use crate::ctl::context::{Context, block_on};
use crate::ctl::roster;
use crate::error::CommandResult;
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Teammate) -> CommandResult {
    let dir = context.dir()?;
    block_on(async {
        // Only work that began before this moment is interrupted.
        let asked_at = since_boot();
        let roster = roster::load_one(&dir, &args.name)?;
        let member = roster.member(&args.name).filter(|it| it.status == MemberStatus::Idle);
        let rests = member.map(|member| roster::is_at_rest(&dir, member)).transpose()?.unwrap_or(false);
        let mut client = Client::connect(&dir).await?;
        client.call(Command::Interrupt { name: args.name.clone(), asked_at }).await?;
        let name = &args.name;
        let done = if rests {
            format!("{name} is idle: nothing to interrupt")
        } else {
            format!("interrupted {name}")
        };
        context.out.result(&json!({"name": name}), done)?;
        Ok(ExitCode::Done)
    })
}
