//! Interrupts a teammate's current turn.

use std::time::Duration;

use teamd_shared::clock::since_boot;
use teamd_shared::control::Command;
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::connection::Client;
use crate::error::CommandError;
use crate::read::roster;

/// Asks the daemon for it. Returns whether there was work to interrupt.
///
/// # Errors
/// If no daemon runs, there is no such teammate, or as the daemon answers.
pub async fn ask(dir: &TeamDir, name: &Name) -> Result<bool, CommandError> {
    // Only work that began before this moment is interrupted.
    let asked_at = since_boot();
    let rests = rests(dir, name)?;
    ask_since(dir, name, asked_at).await?;
    Ok(!rests)
}

/// Asks the daemon to interrupt work that began before a moment ([`since_boot`]), and no other.
///
/// # Errors
/// If no daemon runs, there is no such teammate, or as the daemon answers.
pub async fn ask_since(dir: &TeamDir, name: &Name, asked_at: Duration) -> Result<(), CommandError> {
    let name = name.clone();
    let mut client = Client::connect(dir).await?;
    client.call(Command::Interrupt { name, asked_at }).await?;
    Ok(())
}

/// Tells whether it has nothing to do, or has ended.
pub fn rests(dir: &TeamDir, name: &Name) -> Result<bool, CommandError> {
    let roster = roster::load_one(dir, name)?;
    let Some(member) = roster.member(name) else {
        return Ok(false);
    };
    let is_idle = member.status == MemberStatus::Idle && roster::is_at_rest(dir, member)?;
    Ok(is_idle || member.status.is_ended())
}
