//! `teamd trust`: which keys of team.toml count although they widen what the team may do.

use clap::Args;
use serde_json::json;

use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;

/// Trust the current values of those keys of team.toml that give the team more rights
///
/// Such a key has no effect until it is trusted: sandbox.mode = "off", sandbox.writable,
/// sandbox.visible, sandbox.env, sandbox.caches, a network or a mode that the level above forbids,
/// each host of sandbox.network and port of sandbox.ports, approve_by = "lead", the command of an
/// agent, a workspace elsewhere, a file of certificate authorities, a limit above the usual one,
/// what checks work. `--show` lists those of the file. Read the file before you trust it. A changed
/// value must be trusted again. Keys that give the team fewer rights need no trust; what has gone
/// of them since the trust was given is named at the next start.
#[derive(Debug, Args)]
pub(super) struct Trust {
    /// Only show which keys are trusted
    #[arg(long, conflicts_with = "revoke")]
    show: bool,
    /// Withdraw the trust in all keys of this file
    #[arg(long)]
    revoke: bool,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &Trust) -> CommandResult {
    context.set_signals();
    context.note_passed_over();
    let state = context.register.state();
    let widening = context.widening()?;
    match args {
        Trust { show: true, .. } => {}
        Trust { revoke: true, .. } => drop(widening.revoke(state)?),
        // At a terminal what is about to be trusted is shown first: a command could have changed
        // the file since it was read.
        _ if context.out.can_ask() => {
            context.ask_for_trust()?;
            // What narrows is also recorded, and what has gone only if the person agrees.
            let has_gone = !widening.gone(state)?.is_empty();
            if !has_gone || context.out.ask("Take the file as it is now?")? {
                widening.trust(state)?;
            }
        }
        _ => widening.trust(state)?,
    }
    let trusted = widening.trusted(state)?;
    if context.out.is_json() {
        let keys: Vec<_> = widening
            .keys()
            .iter()
            .map(|key| json!({"key": key, "trusted": trusted.contains(key)}))
            .collect();
        let gone = widening.gone(state)?;
        context
            .out
            .json(&json!({"path": widening.path(), "keys": keys, "gone": gone}))?;
        return Ok(ExitCode::Done);
    }
    match widening.path() {
        Some(path) if !widening.keys().is_empty() => {
            context.out.text(escape::line(&path.to_string_lossy()))?;
        }
        _ => context.out.note("no key of team.toml needs trust"),
    }
    for key in widening.keys() {
        let is = if trusted.contains(key) {
            "trusted    "
        } else {
            "not trusted"
        };
        context
            .out
            .text(format_args!("  {is}  {}", escape::line(key)))?;
    }
    for key in widening.gone(state)? {
        context.out.text(format_args!(
            "  narrowed the team, and no longer does  {}",
            escape::line(&key)
        ))?;
    }
    for key in trusted.difference(widening.keys()) {
        context.out.text(format_args!(
            "  was trusted, and is not in the file  {}",
            escape::line(key)
        ))?;
    }
    Ok(ExitCode::Done)
}
