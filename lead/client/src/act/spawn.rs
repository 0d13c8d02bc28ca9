//! Spawns a teammate: makes the order, and waits until the worker is ready.

use std::path::Path;
use std::time::Duration;

use teamd_shared::config::Roster;
use teamd_shared::control::{Command, Done, Refusal, RefusalCode, SpawnOrder};
use teamd_shared::environment::Environment;
use teamd_shared::host::{ANY, HostWay};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::member::{MemberStatus, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::spawn::{
    RecordedPaths, SpawnRequest, model_of_key, require_key, require_price, resolve, resolve_login,
    resolve_paths, use_installed,
};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::act::hosts::record_hosts;
use crate::act::waiting::Requester;
use crate::connection::unexpected;
use crate::context::Context;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::{clock, escape};
use crate::read::tail::Tail;
use crate::read::{agents, journal, mcp, roster};

/// How many lines of its log are shown if a worker did not become ready.
const LOG_LINES: usize = 10;

/// Checks whether a teammate could be spawned, in the team directory if there is one.
///
/// # Errors
/// As [`order`], but for paths.
pub fn check(
    context: &Context,
    dir: Option<&TeamDir>,
    request: SpawnRequest<'_>,
) -> Result<(), CommandError> {
    let roster = dir.map(roster::load).transpose()?.unwrap_or_default();
    resolved(context, &roster, request).map(drop)
}

/// A worker that is ready.
pub struct ReadyWorker {
    /// Its process.
    pub pid: u32,
    /// Which incarnation of the teammate it is.
    pub incarnation: u32,
    /// What it does now.
    pub status: MemberStatus,
}

/// Gives the order, and waits until the worker is ready.
///
/// # Errors
/// As the daemon refuses, or [`ExitCode::Failed`], [`ExitCode::TimedOut`] or
/// [`ExitCode::Interrupted`] if it is not ready.
pub async fn start(
    context: &Context,
    dir: &TeamDir,
    order: SpawnOrder,
    timeout: Duration,
) -> Result<ReadyWorker, CommandError> {
    if let Some(host) = &order.terms.host {
        record_hosts(context, dir, host).await?;
    }
    let name = order.name.clone();
    let resume = order.resume;
    let checkout = order.terms.checkout;
    let caller = Requester {
        dir,
        out: &context.out,
        timeout: Some(timeout),
    };
    let spawn = Command::Spawn {
        id: RandomIds.request(),
        order: Box::new(order),
    };
    let (pid, incarnation, status, skipped, notes) = match caller.one(spawn).await? {
        Ok(Ok(Done::Ready {
            pid,
            incarnation,
            status,
            skipped,
            notes,
        })) => (pid, incarnation, status, skipped, notes),
        Ok(Err(refusal)) if refusal.code == RefusalCode::NotReady => {
            return Err(not_ready(dir, &name, refusal));
        }
        Ok(answer) => return Err(unexpected(&answer?)),
        Err(early) => {
            let late = format!(
                "{name} is not ready after {}",
                clock::span(timeout.as_secs_f64())
            );
            // What cannot be read hides neither that it is late nor the exit code.
            let roster = roster::load(dir).ok();
            let member = roster.as_ref().and_then(|roster| roster.member(&name));
            let recorded = member.is_some_and(|member| resume && member.checkout.is_some());
            let hint = match member.is_some_and(|member| !member.status.is_ended()) {
                false if checkout.unwrap_or(recorded) => format!(
                    "its checkout is still being made, and it starts after that: then `teamctl status {name}` shows it; \
                     `teamctl shutdown {name}` calls it off"
                ),
                _ => format!(
                    "it is still starting: `teamctl status {name}` and `teamctl log {name}` show its progress"
                ),
            };
            return Err(early.error(&name, late, hint));
        }
    };
    if skipped > 0 {
        let messages = if skipped == 1 {
            "1 message"
        } else {
            &format!("{skipped} messages")
        };
        context.out.note(format_args!(
            "{messages} to the earlier incarnation will not be read (`--resume` reads them)"
        ));
    }
    for note in notes.iter() {
        context.out.note(escape::line(note));
    }
    Ok(ReadyWorker {
        pid,
        incarnation,
        status,
    })
}

/// Makes the spawn order: from the flags, the environment and `team.toml`, with real paths.
///
/// # Errors
/// For a wrong value, a key of `team.toml` that is not trusted, and a path that cannot be used.
pub fn order(
    context: &Context,
    dir: &TeamDir,
    request: SpawnRequest<'_>,
) -> Result<SpawnOrder, CommandError> {
    let roster = roster::load(dir)?;
    let recorded = if request.resume {
        roster.member(request.name)
    } else {
        None
    };
    let mut order = resolved(context, &roster, request)?;
    let paths = recorded.map(|member| RecordedPaths {
        host: member.host.as_ref(),
        has_checkout: member.checkout.is_some(),
        workspace: &member.workspace,
        sandbox: &member.sandbox,
    });
    resolve_paths(&mut order, dir, paths, || journal::fold(dir))?;
    Ok(order)
}

/// Makes the spawn order with paths as they are named, and a model that has its key.
fn resolved(
    context: &Context,
    roster: &Roster,
    request: SpawnRequest<'_>,
) -> Result<SpawnOrder, CommandError> {
    let earlier = roster.member(request.name);
    let recorded = if request.resume { earlier } else { None };
    let environment = Environment::of_self();
    let default_model = model_of_key(&|name| environment.value(name));
    let written = request.flags.sandbox.writable.clone();
    let mut order = resolve(
        request,
        default_model,
        earlier,
        environment,
        context.trusted_file()?,
    )?;
    let login = resolve_login(&mut order, recorded, |name| std::env::var_os(name))?;
    require_price(&order, recorded)?;
    let recorded_host = recorded.and_then(|member| member.host.as_ref());
    // A host looks for paths and programs itself.
    if order.terms.host.is_none() && recorded_host.is_none() {
        must_be_there(&written)?;
        find_programs(context, &mut order)?;
    }
    // An agent with a token of its own needs no key, and a host to which none may cross has its own.
    let host = order.terms.host.as_ref().or(recorded_host);
    if login.is_token() || has_own_keys(context, host)? {
        return Ok(order);
    }
    let model = order.terms.model.clone();
    if let Some(model) = model.or_else(|| recorded.and_then(|member| member.model.parse().ok())) {
        require_key(&model, &|variable| order.environment.value(variable))?;
    }
    Ok(order)
}

/// Tells whether a host uses keys of its own alone.
fn has_own_keys(context: &Context, host: Option<&Name>) -> Result<bool, CommandError> {
    let Some(host) = host else {
        return Ok(false);
    };
    let team = journal::fold(&context.dir()?)?;
    let hosts = team.hosts.iter().flat_map(|hosts| &hosts.list);
    let mut candidates = hosts
        .filter(|it| host.as_str() == ANY || it.name == *host)
        .peekable();
    let is_any = candidates.peek().is_some();
    Ok(is_any && candidates.all(|it| matches!(it.way, HostWay::Nats(_))))
}

/// Makes sure that what a person lets a teammate write is there.
fn must_be_there(writable: &[String]) -> Result<(), CommandError> {
    for path in writable {
        Path::new(path).metadata().map_err(|error| {
            CommandError::new(
                ExitCode::Usage,
                format!("--writable {path} cannot be used: {error}"),
            )
            .hint("name a directory or a file that exists, outside the team directory")
        })?;
    }
    Ok(())
}

/// Makes sure that the agent and the MCP servers of an order can be started.
fn find_programs(context: &Context, order: &mut SpawnOrder) -> Result<(), CommandError> {
    use_installed(order)?;
    if let Some(name) = &order.terms.agent
        && let Some(program) = &order.terms.program
    {
        for note in agents::check(name, program, &order.environment)?.iter() {
            context.out.note(note);
        }
    }
    for server in &order.terms.servers {
        mcp::check(server, &order.environment)?;
    }
    Ok(())
}

/// Makes the paths of flags absolute: the daemon has another current directory.
///
/// # Errors
/// If the current directory is gone, or a path begins with `~` and there is no home.
pub fn make_absolute(flags: &mut TermsPatch) -> Result<(), CommandError> {
    let current_dir = std::env::current_dir().map_err(|error| {
        CommandError::new(
            ExitCode::Failed,
            format!("cannot find the current directory: {error}"),
        )
    })?;
    Ok(flags.make_absolute(&current_dir, &|name| std::env::var(name).ok())?)
}

fn not_ready(dir: &TeamDir, name: &Name, refusal: Refusal) -> CommandError {
    let mut message = refusal.message;
    let log = end_of_log(dir, name);
    if !log.is_empty() {
        message.push_str(&format!("\nthe end of its log:\n  {}", log.join("\n  ")));
    }
    // Whatever kept it from becoming ready: starting it has failed.
    let error = CommandError::new(ExitCode::Failed, message);
    let roster = roster::load_one(dir, name).ok();
    let member = roster.as_ref().and_then(|roster| roster.member(name));
    if member.is_some_and(|member| !member.status.is_ended()) {
        return error.hint(format!(
            "it is started again: `teamctl status {name}` shows how it goes"
        ));
    }
    let error = refusal.hint.into_iter().fold(error, CommandError::hint);
    error.hint(format!("`teamctl log {name}` shows its log"))
}

fn end_of_log(dir: &TeamDir, name: &Name) -> Vec<String> {
    let mut tail = Tail::new(dir, TeamPath::log(name.as_str()));
    let lines = tail
        .begin(Some(LOG_LINES), |_| true)
        .and_then(|_| tail.read())
        .unwrap_or_default();
    lines
        .iter()
        .map(|line| escape::line(&String::from_utf8_lossy(line)).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_written_is_there() {
        let checked = |path: &str| must_be_there(&[path.to_owned()]);
        assert_eq!(checked("src"), Ok(()));
        assert_eq!(checked("nowhere").unwrap_err().code(), ExitCode::Usage);
    }
}
