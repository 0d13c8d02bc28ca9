//! `teamctl up`: starts the teammates that `team.toml` names. Every one is tried, whatever becomes of the others.

use std::time::Duration;

use serde_json::{Value, json};
use teamd_shared::name::Name;
use teamd_shared::suggest;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::TeamFile;
use teamd_shared::terms::TermsPatch;
use teamd_shared::terms::resolve::SpawnRequest;

use super::spawn;
use crate::ctl::args::Up;
use crate::ctl::context::{Context, block_on};
use crate::ctl::{auto_start, roster};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Up) -> CommandResult {
    let names = teammates(context.team_file()?, &args.names)?;
    // If not one of them can be spawned, no daemon is started either.
    auto_start::ensure_daemon(context, args.no_start, |dir| {
        let mut checked = names.iter().map(|name| spawn::check(context, dir, request(name)));
        let first = checked.next().unwrap_or(Ok(()));
        if checked.any(|other| other.is_ok()) { Ok(()) } else { first }
    })?;
    let dir = context.dir()?;
    let (mut results, mut codes) = (Vec::new(), Vec::new());
    for name in &names {
        let report = |value, text| {
            results.push(value);
            if context.out.is_json() { Ok(()) } else { context.out.text(text) }
        };
        let started = block_on(start(context, &dir, request(name), (args.timeout, report)));
        let Err(error) = started else { continue };
        context.out.error(&error);
        codes.push(error.code());
        results.push(json!({"name": name, "error": error.to_json()}));
        // These hold for the others, too.
        if matches!(error.code(), ExitCode::NotRunning | ExitCode::Interrupted) {
            break;
        }
    }
    if context.out.is_json() {
        context.out.json(&json!({"results": results}))?;
    }
    Ok(ExitCode::highest(codes))
}

/// Starts a teammate, unless it runs, and waits so long until it is ready. Returns whether it has started it.
///
/// # Errors
/// As [`spawn::spawn`].
pub(super) async fn start(
    context: &Context,
    dir: &TeamDir,
    request: SpawnRequest<'_>,
    (timeout, mut report): (Duration, impl FnMut(Value, String) -> Result<(), CommandError>),
) -> Result<bool, CommandError> {
    let name = request.name;
    let roster = roster::load_one(dir, name)?;
    if let Some(it) = roster.member(name).filter(|member| roster::runs(&roster, member)) {
        let value = json!({"name": name, "pid": it.pid, "incarnation": it.incarnation, "status": it.status, "already_running": true});
        let text = format!("{name} runs already: {} (incarnation {})", it.status.as_str(), it.incarnation);
        return report(value, text).map(|()| false);
    }
    let spawned = spawn::spawn(context, dir, request, timeout, |mut value, text| {
        value["already_running"] = false.into();
        report(value, text)
    });
    spawned.await.map(|()| true)
}

fn request(name: &Name) -> SpawnRequest<'_> {
    SpawnRequest { name, flags: TermsPatch::default(), ca: None, resume: false }
}

/// Returns the teammates that are meant, each once: those of these members, or of all.
///
/// # Errors
/// [`ExitCode::NotFound`] if `team.toml` names no member, or not one of these.
pub(super) fn teammates(file: &TeamFile, wanted: &[Name]) -> Result<Vec<Name>, CommandError> {
    let known: Vec<Name> = file.members.keys().cloned().collect();
    if known.is_empty() {
        let message = match file.path.as_os_str().is_empty() {
            true => "there is no team.toml here".to_owned(),
            false => format!("{} names no member", file.path.display()),
        };
        return Err(CommandError::new(ExitCode::NotFound, message).hint(
            "write `[members.NAME]` into team.toml beside the team directory; `teamctl spawn NAME` starts one without it",
        ));
    }
    let mut names = Vec::new();
    for member in if wanted.is_empty() { &known } else { wanted } {
        if file.member(member).is_none() {
            let message = format!("{} has no member {member}", file.path.display());
            return Err(CommandError::new(ExitCode::NotFound, message)
                .hint(suggest::among(member.as_str(), "its members are", known.iter().map(Name::as_str)))
                .hint(format!("`teamctl spawn {member}` starts one without it")));
        }
        for name in file.teammates(member) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}
