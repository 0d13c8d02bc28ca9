//! `teamctl up`: starts the teammates that `team.toml` names. Every one is tried, whatever becomes
//! of the others.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use teamd_client::act::{self, auto_start};
use teamd_client::args::Up;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::roster;
use teamd_shared::config::Roster;
use teamd_shared::name::Name;
use teamd_shared::spawn::SpawnRequest;
use teamd_shared::suggest;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::TeamFile;
use teamd_shared::terms::TermsPatch;

use super::spawn;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Up) -> CommandResult {
    let roster = TeamDir::open(&context.path)
        .ok()
        .map(|dir| roster::load(&dir))
        .transpose()?
        .unwrap_or_default();
    let names = if args.resume {
        resumed(context, &roster, &args.names)?
    } else {
        teammates(context.team_file()?, &args.names)?
    };
    let request = |name| {
        let resume = args.resume && roster.member(name).is_some();
        SpawnRequest {
            name,
            flags: TermsPatch::default(),
            ca: None,
            resume,
        }
    };
    // If none of them can be spawned, no daemon is started either.
    auto_start::ensure_daemon(context, args.no_start, |dir| {
        let mut checked = names
            .iter()
            .map(|name| act::spawn::check(context, dir, request(name)));
        let first = checked.next().unwrap_or(Ok(()));
        if checked.any(|other| other.is_ok()) {
            Ok(())
        } else {
            first
        }
    })?;
    let dir = context.dir()?;
    let mut results = Vec::new();
    let mut codes = Vec::new();
    for name in &names {
        let report = |value, text| {
            results.push(value);
            if context.out.is_json() {
                Ok(())
            } else {
                context.out.text(text)
            }
        };
        let started = block_on(start(context, &dir, request(name), (args.timeout, report)));
        let Err(error) = started else { continue };
        context.out.error(&error);
        codes.push(error.code());
        results.push(json!({"name": name, "error": error.to_json()}));
        // These also hold for the others.
        if matches!(error.code(), ExitCode::NotRunning | ExitCode::Interrupted) {
            break;
        }
    }
    if context.out.is_json() {
        context.out.json(&json!({"results": results}))?;
    }
    Ok(ExitCode::highest(codes))
}

/// Starts a teammate, unless it runs, and waits until it is ready. Returns whether it has
/// started it.
///
/// # Errors
/// As [`spawn::spawn`].
pub(super) async fn start(
    context: &Context,
    dir: &TeamDir,
    request: SpawnRequest<'_>,
    (timeout, mut report): (
        Duration,
        impl FnMut(Value, String) -> Result<(), CommandError>,
    ),
) -> Result<bool, CommandError> {
    let name = request.name;
    // A teammate whose process is gone without a daemon will soon be recorded as ended.
    let roster = if request.resume {
        roster::load_after_end(dir, name)?
    } else {
        roster::load_one(dir, name)?
    };
    if let Some(member) = roster
        .member(name)
        .filter(|member| roster::runs(&roster, member))
    {
        let value = json!({"name": name, "pid": member.pid, "incarnation": member.incarnation, "status": member.status, "already_running": true});
        let text = format!("{name} runs already: {}", member.status.as_str());
        return report(value, text).map(|()| false);
    }
    let spawned = spawn::spawn(context, dir, request, timeout, |mut value, text| {
        value["already_running"] = false.into();
        report(value, text)
    });
    spawned.await.map(|()| true)
}

/// Returns the teammates of a team that continues: those that are named, else all of the roster and
/// of `team.toml`.
///
/// # Errors
/// [`ExitCode::NotFound`] if there are none, or none of these.
fn resumed(context: &Context, roster: &Roster, wanted: &[Name]) -> Result<Vec<Name>, CommandError> {
    let file = context.team_file()?;
    let mut names = Vec::new();
    for name in wanted {
        let is_known = roster.member(name).is_some() && file.member(name).is_none();
        names.extend(if is_known {
            vec![name.clone()]
        } else {
            teammates(file, std::slice::from_ref(name))?
        });
    }
    if wanted.is_empty() {
        names.extend(
            roster
                .members
                .iter()
                .map(|member| member.name.clone())
                .filter(|name| *name != Name::lead()),
        );
        names.extend(
            file.members
                .keys()
                .flat_map(|member| file.teammates(member)),
        );
        if roster
            .member(&Name::lead())
            .is_some_and(|lead| lead.status.is_ended())
        {
            context
                .out
                .hint("`teamctl chat` continues with the lead agent");
        }
    }
    if names.is_empty() {
        return Err(
            CommandError::new(ExitCode::NotFound, "there is no teammate to continue with")
                .hint("`teamctl spawn NAME` starts one"),
        );
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// Returns the teammates of these members, or of all, each once.
///
/// # Errors
/// [`ExitCode::NotFound`] if `team.toml` names no member, or none of these.
pub(super) fn teammates(file: &TeamFile, wanted: &[Name]) -> Result<Vec<Name>, CommandError> {
    let members: Vec<Name> = file.members.keys().cloned().collect();
    if members.is_empty() {
        let message = if file.path.as_os_str().is_empty() {
            "there is no team.toml here".to_owned()
        } else {
            format!("{} names no member", file.path.display())
        };
        return Err(CommandError::new(ExitCode::NotFound, message).hint(
            "write `[members.NAME]` into team.toml beside the team directory; `teamctl spawn NAME` starts one without it",
        ));
    }
    let mut names = Vec::new();
    for member in if wanted.is_empty() { &members } else { wanted } {
        if file.member(member).is_none() {
            let message = format!("{} has no member {member}", file.path.display());
            return Err(CommandError::new(ExitCode::NotFound, message)
                .hint(suggest::among(
                    member.as_str(),
                    "its members are",
                    members.iter().map(Name::as_str),
                ))
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
