//! `teamctl spawn`: starts a teammate, and returns when its worker is ready.

use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::control::{Command, Done, Refusal, RefusalCode, SpawnOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::member::{MemberStatus, SandboxMode, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::place::open_itself;
use teamd_shared::repository;
use teamd_shared::sandbox::{Layers, Namespaces};
use teamd_shared::spawn::{
    RecordedPaths, SpawnRequest, model_of_key, require_key, require_price, resolve, resolve_paths,
};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::team_file::is_built_in;
use teamd_shared::terms::Network;

use super::agents;
use crate::ctl::args::Spawn;
use crate::ctl::context::{Context, block_on};
use crate::ctl::render::count;
use crate::ctl::tail::Tail;
use crate::ctl::waiting::Caller;
use crate::ctl::{auto_start, clock, escape, journal, roster, text};
use teamd_client::connection::unexpected;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::programs;

/// How many lines of its log tell why a worker did not become ready.
const LOG_LINES: usize = 10;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Spawn) -> CommandResult {
    let name = args.name.clone();
    let ca = args.ca.as_deref().map(authorities).transpose()?;
    let resume = args.resume;
    let timeout = args.timeout;
    let no_start = args.no_start;
    let request = SpawnRequest {
        name: &name,
        flags: flags(args)?,
        ca,
        resume,
    };
    // For a teammate that cannot be spawned no daemon is started either.
    let is_new = auto_start::ensure_daemon(context, no_start, |dir| {
        check(context, dir, request.clone())
    })?;
    let dir = context.dir()?;
    let spawned = block_on(spawn(context, &dir, request, timeout, |value, text| {
        context.out.result(&value, text)
    }));
    auto_start::undo(context, is_new, spawned.map(|()| ExitCode::Done))
}

/// Checks whether a teammate could be spawned, in the team directory if there is one.
///
/// # Errors
/// As [`order`], but for paths.
pub(super) fn check(
    context: &Context,
    dir: Option<&TeamDir>,
    request: SpawnRequest<'_>,
) -> Result<(), CommandError> {
    let roster = dir.map(roster::load).transpose()?.unwrap_or_default();
    resolved(context, &roster, request).map(drop)
}

/// Spawns a teammate, and returns when its worker is ready. `report` tells that: to programs, and
/// to people.
///
/// # Errors
/// As [`order`], [`start`] and `report`.
pub(super) async fn spawn(
    context: &Context,
    dir: &TeamDir,
    request: SpawnRequest<'_>,
    timeout: Duration,
    report: impl FnOnce(Value, String) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let name = request.name;
    let resume = request.resume;
    let order = order(context, dir, request)?;
    let is_built_in = order.terms.model.is_none() && !resume;
    if let Some(prompt) = &order.terms.prompt {
        text::note_if_cut(context, prompt, "prompt");
    }
    let withheld = order.environment.withheld().len();
    let ReadyWorker {
        pid,
        incarnation,
        status,
    } = start(context, dir, order, timeout).await?;
    report(
        json!({"name": name, "pid": pid, "incarnation": incarnation, "status": status}),
        format!(
            "{name} is {} (pid {pid}, incarnation {incarnation})",
            status.as_str()
        ),
    )?;
    let told = print_notes(context, dir, name, is_built_in);
    // A later incarnation has been told.
    let told = told.and_then(|()| {
        if incarnation == 1 {
            note_withheld(context, dir, name, withheld)
        } else {
            Ok(())
        }
    });
    if let Err(error) = told {
        context.out.note(format_args!(
            "what else is to be said of {name} cannot be read: {error}"
        ));
        context
            .out
            .hint(format_args!("`teamctl status {name}` shows it"));
    }
    Ok(())
}

/// Says how many variables the commands of the first teammate do not get.
fn note_withheld(
    context: &Context,
    dir: &TeamDir,
    name: &Name,
    withheld: usize,
) -> Result<(), CommandError> {
    let is_first = roster::load(dir)?
        .members
        .iter()
        .all(|member| member.name == *name);
    if is_first && withheld > 0 {
        context.out.note(format_args!(
            "{} of this shell, which no toolchain is known to need, reach no command (`teamctl doctor -v` names them, `[sandbox] env` passes one on)",
            count(withheld, "variable")
        ));
    }
    Ok(())
}

/// A worker that is ready.
pub(in crate::ctl) struct ReadyWorker {
    pid: u32,
    incarnation: u32,
    status: MemberStatus,
}

/// Gives the order, and waits until the worker is ready.
///
/// # Errors
/// As the daemon refuses, or [`ExitCode::Failed`], [`ExitCode::TimedOut`] or
/// [`ExitCode::Interrupted`] if it is not ready.
pub(in crate::ctl) async fn start(
    context: &Context,
    dir: &TeamDir,
    order: SpawnOrder,
    timeout: Duration,
) -> Result<ReadyWorker, CommandError> {
    let name = order.name.clone();
    let resume = order.resume;
    let checkout = order.terms.checkout;
    let caller = Caller {
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
pub(in crate::ctl) fn order(
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
    let order = resolve(
        request,
        default_model,
        earlier,
        environment,
        context.trusted_file()?,
    )?;
    require_price(&order, recorded)?;
    if let Some(name) = &order.terms.agent
        && let Some(program) = &order.terms.program
    {
        for note in agents::check(name, program, &order.environment)?.iter() {
            context.out.note(note);
        }
    }
    let model = order.terms.model.clone();
    if let Some(model) = model.or_else(|| recorded.and_then(|member| member.model.parse().ok())) {
        require_key(&model, &|variable| order.environment.value(variable))?;
    }
    Ok(order)
}

/// Returns what the flags say, with absolute paths: the links on the way are followed when the
/// order is made.
fn flags(args: Spawn) -> Result<TermsPatch, CommandError> {
    let mut flags = args.terms;
    let from_file = args
        .prompt_file
        .as_deref()
        .map(text::from_file)
        .transpose()?;
    let prompt = flags.prompt.take().or(from_file);
    flags.prompt = prompt
        .map(|text| text::not_blank(text, "prompt"))
        .transpose()?;
    flags.plan = args.plan.then_some(true);
    flags.sandbox.network = args.no_network.then_some(Network::NONE);
    make_absolute(&mut flags)?;
    for path in &flags.sandbox.writable {
        Path::new(path).metadata().map_err(|error| {
            CommandError::new(
                ExitCode::Usage,
                format!("--writable {path} cannot be used: {error}"),
            )
            .hint("name a directory or a file that exists, outside the team directory")
        })?;
    }
    Ok(flags)
}

/// Makes the paths of flags absolute: the daemon has another current directory.
///
/// # Errors
/// If the current directory is gone, or a path begins with `~` and there is no home.
pub(in crate::ctl) fn make_absolute(flags: &mut TermsPatch) -> Result<(), CommandError> {
    let here = std::env::current_dir().map_err(|error| {
        CommandError::new(
            ExitCode::Failed,
            format!("cannot find the current directory: {error}"),
        )
    })?;
    Ok(flags.make_absolute(&here, &|name| std::env::var(name).ok())?)
}

/// Returns certificate authorities: two are built in, anything else is a file. (A file with one of
/// their names is `./platform`.)
fn authorities(named: &str) -> Result<String, CommandError> {
    if is_built_in(named) {
        return Ok(named.to_owned());
    }
    let bad = |why: String| {
        CommandError::new(ExitCode::Usage, format!("--ca {named} {why}"))
            .hint("it is `platform`, `embedded`, or a file of certificates in PEM")
    };
    // Its links are not followed: the file behind them may be renewed.
    let absolute =
        std::path::absolute(named).and_then(|absolute| Ok((absolute.metadata()?, absolute)));
    match absolute {
        Ok((metadata, absolute)) if metadata.is_file() => {
            Ok(absolute.to_string_lossy().into_owned())
        }
        Ok(_) => Err(bad("is not a file".to_owned())),
        Err(error) => Err(bad(format!("cannot be used: {error}"))),
    }
}

fn not_ready(dir: &TeamDir, name: &Name, refusal: Refusal) -> CommandError {
    let mut message = refusal.message;
    let log = end_of_log(dir, name);
    if !log.is_empty() {
        message.push_str(&format!("\nthe end of its log:\n  {}", log.join("\n  ")));
    }
    // Whatever kept it from becoming ready: to start it has failed.
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

/// Says what must not go unnoticed. A person who named no model and has no key gets the built-in
/// one: that is told once, with the first teammate.
fn print_notes(
    context: &Context,
    dir: &TeamDir,
    name: &Name,
    is_built_in: bool,
) -> Result<(), CommandError> {
    let roster = roster::load(dir)?;
    let (this, others): (Vec<_>, Vec<_>) = roster
        .members
        .iter()
        .partition(|member| member.name == *name);
    let scripted = |member: &&RosterMember| member.model == "script" && member.agent.is_none();
    if is_built_in && this.iter().any(scripted) && !others.iter().any(scripted) {
        context.out.note(format_args!(
            "no model is named and no key is set: {name} runs the built-in `script` model, which does what lines such as `/bash make` say"
        ));
    }
    let writes = |member: &&&RosterMember| member.sandbox.mode == SandboxMode::WorkspaceWrite;
    for path in this
        .iter()
        .filter(writes)
        .flat_map(|member| &member.sandbox.writable)
    {
        if open_itself(Path::new(path), OFlags::PATH).is_err_and(|errno| errno == Errno::LOOP) {
            let path = escape::line(path);
            context.out.note(format_args!(
                "the commands of {name} may not write {path} in this incarnation: a symbolic link stands on the way to it, and none did when it was named"
            ));
        }
    }
    for path in this.iter().flat_map(|member| &member.sandbox.hidden) {
        if open_itself(Path::new(path), OFlags::PATH).is_err_and(|errno| errno == Errno::NOENT) {
            let path = escape::line(path);
            context.out.note(format_args!(
                "nothing is at {path} yet: it is hidden from {name} when it appears"
            ));
        }
    }
    for member in this
        .iter()
        .filter(writes)
        .filter(|member| member.checkout.is_none())
    {
        if let Some(above) = repository::above(Path::new(&member.workspace)) {
            context.out.note(format_args!(
                "{name} cannot commit: the repository {} lies above its workspace (`--workspace` or `--checkout` changes that)",
                escape::line(&above.to_string_lossy())
            ));
        }
    }
    let with_agent = this.iter().find(|member| member.agent.is_some());
    let layers = roster
        .sandbox
        .as_ref()
        .and_then(|found| found.layers.parse::<Layers>().ok());
    if with_agent.is_some() && layers.is_none_or(|layers| layers.namespaces != Namespaces::Own) {
        context.out.note(format_args!(
            "here the gate of {name} does not change while its agent runs: when it closes, the agent is ended; and an agent that has a key reaches the \
             network of this machine behind a closed gate, too, since its model is there"
        ));
    }
    let where_it_writes = this
        .iter()
        .filter(writes)
        .flat_map(|member| member.where_it_writes());
    if let Some(program) = programs::with_another_name(where_it_writes) {
        context.out.note(format_args!(
            "{} has another name (a hard link) where commands of {name} may write: by that they could change it, and the next \
             `teamd` or `teamctl` that you run would be theirs",
            escape::line(&program.to_string_lossy())
        ));
        context.out.hint(programs::INSTALL_ELSEWHERE);
    }
    if this
        .iter()
        .any(|member| member.sandbox.mode == SandboxMode::Off)
    {
        context.out.note(format_args!(
            "the commands of {name} are not confined (sandbox off): they may do whatever you may"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::ctl::args;
    use crate::ctl::context::tests::context;
    use teamd_client::testing::{daemon, scratch};

    #[test]
    fn what_may_be_written_is_there() {
        let flags = |path: &str| {
            let cli = args::Cli::try_parse_from(["teamctl", "spawn", "alice", "--writable", path])
                .unwrap();
            let args::Command::Spawn(args) = cli.command else {
                panic!()
            };
            flags(*args).map(|terms| terms.sandbox.writable)
        };
        assert!(flags("./src").unwrap()[0].ends_with("/lead/src"));
        assert_eq!(flags("nowhere").unwrap_err().code(), ExitCode::Usage);
    }

    #[test]
    fn authorities_are_built_in_or_a_file() {
        assert_eq!(authorities("platform").as_deref(), Ok("platform"));
        assert!(
            authorities("Cargo.toml")
                .unwrap()
                .ends_with("/lead/Cargo.toml")
        );
        for bad in ["nowhere.pem", "src"] {
            assert_eq!(
                authorities(bad).unwrap_err().code(),
                ExitCode::Usage,
                "{bad}"
            );
        }
    }

    #[test]
    fn what_a_teammate_that_is_not_ready_in_time_waits_for_is_said() {
        for (flag, said) in [
            ("--checkout", "its checkout is still being made"),
            ("--plan", "it is still starting: "),
        ] {
            let (_scratch, dir) = scratch();
            let answering = daemon(&dir, |_| None);
            let (context, _, stderr) = context(&dir, false);
            let line = [
                "teamctl",
                "spawn",
                "alice",
                "--model",
                "script",
                "--no-start",
                "--timeout",
                "50ms",
                flag,
            ];
            let args::Command::Spawn(args) = args::Cli::try_parse_from(line).unwrap().command
            else {
                panic!()
            };
            let error = run(&context, *args).unwrap_err();
            answering.join().unwrap();
            assert_eq!(
                (error.code(), stderr.text().as_str()),
                (ExitCode::TimedOut, "")
            );
            assert!(
                error.next_step().iter().any(|hint| hint.starts_with(said)),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_teammate_that_is_ready_was_spawned_although_the_roster_cannot_be_read_any_more() {
        let (_scratch, dir) = scratch();
        let roster = dir.path(&TeamPath::config());
        let answering = daemon(&dir, move |command| {
            assert!(matches!(command, Command::Spawn { .. }));
            // No file, as none would be of which no descriptor is left.
            std::fs::create_dir(&roster).unwrap();
            Some(Ok(Done::Ready {
                pid: 7,
                incarnation: 1,
                status: MemberStatus::Idle,
                skipped: 0,
                notes: Vec::new(),
            }))
        });
        let (context, stdout, stderr) = context(&dir, false);
        let line = [
            "teamctl",
            "spawn",
            "alice",
            "--model",
            "script",
            "--no-start",
        ];
        let cli = args::Cli::try_parse_from(line).unwrap();
        let args::Command::Spawn(args) = cli.command else {
            panic!()
        };
        assert_eq!(run(&context, *args), Ok(ExitCode::Done));
        answering.join().unwrap();
        assert_eq!(stdout.text(), "alice is idle (pid 7, incarnation 1)\n");
        assert!(
            stderr
                .text()
                .contains("note: what else is to be said of alice cannot be read: "),
            "{}",
            stderr.text()
        );
    }
}
