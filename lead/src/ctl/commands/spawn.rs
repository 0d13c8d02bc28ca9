//! `teamctl spawn`: starts a teammate, and returns when its worker is ready.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Await, Command, Done, SpawnOrder};
use teamd_shared::environment::Environment;
use teamd_shared::member::Status;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::client::{Client, unexpected};
use crate::ctl::args::Spawn;
use crate::ctl::context::{Context, block_on};
use crate::ctl::tail::Tail;
use crate::ctl::waiting::{Interrupt, One, Waiting};
use crate::ctl::{clock, escape, roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How many lines of its log tell why a worker did not become ready.
const LOG_LINES: usize = 10;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Spawn) -> CommandResult {
    let dir = context.dir()?;
    let order = order(&args)?;
    block_on(async {
        let started = start(context, &dir, order, args.timeout).await?;
        tell_model(context, &dir, &args)?;
        report(context, &args.name, &started)
    })
}

/// A worker that is ready.
pub(in crate::ctl) struct Started {
    pid: u32,
    incarnation: u32,
    status: Status,
}

/// Gives the order, and waits until the worker is ready.
///
/// # Errors
/// As the daemon refuses, or [`ExitCode::Failed`], [`ExitCode::TimedOut`] or [`ExitCode::Interrupted`] if it is not ready.
pub(in crate::ctl) async fn start(
    context: &Context,
    dir: &TeamDir,
    order: SpawnOrder,
    timeout: Duration,
) -> Result<Started, CommandError> {
    let name = order.name.clone();
    let mut interrupt = Interrupt::catch()?;
    let asking = async {
        let mut client = Client::connect(dir).await?;
        let done = client.call(Command::Spawn(Box::new(order))).await?;
        Ok((client, done))
    };
    let (client, incarnation, skipped) = match interrupt.or(name.as_str(), asking).await? {
        (client, Done::Spawning { incarnation, skipped }) => (client, incarnation, skipped),
        (_, other) => return Err(unexpected(&other)),
    };
    let waiting = Waiting { dir, out: &context.out, timeout: Some(timeout) };
    let ready = Command::Await { name: name.clone(), incarnation, what: Await::Ready };
    let (pid, status) = match waiting.one((client, interrupt), ready).await {
        One::Done(Done::Ready { pid, status }) => (pid, status),
        other => return Err(not_ready(dir, &name, timeout, other)),
    };
    if skipped > 0 {
        let messages = if skipped == 1 { "1 message" } else { &format!("{skipped} messages") };
        context
            .out
            .note(format_args!("{messages} of the earlier life will not be read (`--resume` reads them)"));
    }
    Ok(Started { pid, incarnation, status })
}

fn order(args: &Spawn) -> Result<SpawnOrder, CommandError> {
    let prompt = match (&args.prompt, &args.prompt_file) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(path)) => Some(text::from_file(path)?),
        (None, None) => None,
    };
    Ok(SpawnOrder {
        name: args.name.clone(),
        role: args.role.clone(),
        prompt: prompt.map(|text| text::not_blank(text, "prompt")).transpose()?,
        model: args.model.clone(),
        workspace: args.workspace.as_deref().map(workspace).transpose()?,
        plan: args.plan,
        approve_by: args.approve_by,
        restart: args.restart,
        instructions: None,
        sandbox: None,
        limits: None,
        resume: args.resume,
        environment: Environment::of_self(),
    })
}

/// Makes the workspace absolute: the daemon has another current directory.
pub(in crate::ctl) fn workspace(path: &Path) -> Result<String, CommandError> {
    let bad = |why: String| {
        CommandError::new(ExitCode::Failed, format!("the workspace {} {why}", path.display()))
            .hint("name a directory that exists, or make it first")
    };
    let absolute = path.canonicalize().map_err(|error| bad(format!("cannot be used: {error}")))?;
    if !absolute.is_dir() {
        return Err(bad("is not a directory".to_owned()));
    }
    absolute.into_os_string().into_string().map_err(|_| bad("has a path that is not UTF-8".to_owned()))
}

fn not_ready(dir: &TeamDir, name: &Name, timeout: Duration, ended: One) -> CommandError {
    match ended {
        One::Done(other) => unexpected(&other),
        One::Refused(refusal) => {
            let mut message = refusal.message;
            let log = end_of_log(dir, name);
            if !log.is_empty() {
                message.push_str(&format!("\nthe end of its log:\n  {}", log.join("\n  ")));
            }
            // Whatever kept it from becoming ready: to start it has failed.
            let error = CommandError::new(ExitCode::Failed, message);
            refusal
                .hint
                .into_iter()
                .fold(error, CommandError::hint)
                .hint(format!("`teamctl log {name}` shows its log"))
        }
        One::TimedOut => {
            let time = clock::span(timeout.as_secs_f64());
            CommandError::new(ExitCode::TimedOut, format!("{name} is not ready after {time}")).hint(format!(
                "it goes on starting: `teamctl status {name}` and `teamctl log {name}` show how far it is"
            ))
        }
        One::Interrupted => {
            CommandError::new(ExitCode::Interrupted, format!("the waiting for {name} was ended"))
                .hint(format!("{name} goes on starting, `teamctl shutdown {name}` ends it"))
        }
    }
}

fn end_of_log(dir: &TeamDir, name: &Name) -> Vec<String> {
    let mut tail = Tail::new(dir, TeamPath::log(name.as_str()));
    let lines = tail.begin(Some(LOG_LINES), |_| true).and_then(|_| tail.read()).unwrap_or_default();
    lines.iter().map(|line| escape::line(&String::from_utf8_lossy(line)).into_owned()).collect()
}

/// A person who named no model and has no key gets the built-in one, and must know: once, with the first teammate.
fn tell_model(context: &Context, dir: &TeamDir, args: &Spawn) -> Result<(), CommandError> {
    let roster = roster::load(dir)?;
    let (this, others): (Vec<_>, Vec<_>) = roster.members.iter().partition(|member| member.name == args.name);
    let scripted = |member: &&RosterMember| member.model == "script";
    if args.model.is_none() && !args.resume && this.iter().any(scripted) && !others.iter().any(scripted) {
        context.out.note(format_args!(
            "no model is named and no key is set: {} runs the built-in `script` model, which does what lines such as `/bash make` say",
            args.name
        ));
    }
    Ok(())
}

fn report(context: &Context, name: &Name, started: &Started) -> CommandResult {
    let Started { pid, incarnation, status } = started;
    if context.out.is_json() {
        context.out.json(&json!({"name": name, "pid": pid, "incarnation": incarnation, "status": status}))?;
    } else {
        context
            .out
            .text(format_args!("{name} is {} (pid {pid}, incarnation {incarnation})", status.as_str()))?;
    }
    Ok(ExitCode::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_a_directory_and_absolute() {
        assert!(workspace(Path::new(".")).unwrap().starts_with('/'));
        let error = workspace(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.message(), "the workspace /dev/null is not a directory");
        assert!(workspace(Path::new("/no/such")).unwrap_err().message().contains("cannot be used"));
    }
}
