//! `teamctl interrupt`: interrupts a teammate's current turn.

use serde_json::json;
use teamd_shared::clock::since_boot;
use teamd_shared::control::Command;
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::client::Client;
use crate::ctl::args::Teammate;
use crate::ctl::context::{Context, block_on};
use crate::ctl::roster;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Teammate) -> CommandResult {
    let name = &args.name;
    let done = match block_on(ask(&context.dir()?, name))? {
        true => format!("interrupted {name}"),
        false => format!("{name} is idle: nothing to interrupt"),
    };
    context.out.result(&json!({"name": name}), done)?;
    Ok(ExitCode::Done)
}

/// Asks the daemon for it. Returns whether there was work to interrupt.
///
/// # Errors
/// [`ExitCode::NotRunning`], [`ExitCode::NotFound`], or as the daemon answers.
pub(in crate::ctl) async fn ask(dir: &TeamDir, name: &Name) -> Result<bool, CommandError> {
    // Only work that began before this moment is interrupted.
    let asked_at = since_boot();
    let roster = roster::load_one(dir, name)?;
    let member = roster.member(name).filter(|it| it.status == MemberStatus::Idle);
    let rests = member.map(|member| roster::is_at_rest(dir, member)).transpose()?.unwrap_or(false);
    Client::connect(dir).await?.call(Command::Interrupt { name: name.clone(), asked_at }).await?;
    Ok(!rests)
}
