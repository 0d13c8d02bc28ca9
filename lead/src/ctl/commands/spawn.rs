//! `teamctl spawn`: starts a teammate, and returns when its worker is ready.

use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::json;
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Command, Done, RefusalCode, SpawnOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::member::{Bounds, Limits, SandboxMode, Status};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::place::open_itself;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::team_file::resolve::{Asked, Flags, ModelFrom, Resolved, missing_key, resolve};

use crate::client::unexpected;
use crate::ctl::args::Spawn;
use crate::ctl::context::{Context, block_on};
use crate::ctl::tail::Tail;
use crate::ctl::waiting::{One, Waiting};
use crate::ctl::{clock, escape, roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;
use crate::programs;

/// How many lines of its log tell why a worker did not become ready.
const LOG_LINES: usize = 10;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Spawn) -> CommandResult {
    let dir = context.dir()?;
    let environment = Environment::of_self();
    let resolved = settle(context, &dir, (&args.name, &flags(&args)?), &environment)?;
    let built_in = resolved.model_from == ModelFrom::Default;
    if let Some(prompt) = &resolved.prompt {
        text::note_if_cut(context, prompt, "prompt");
    }
    let order = resolved.order(args.name.clone(), environment);
    block_on(async {
        let started = start(context, &dir, order, args.timeout).await?;
        report(context, &args.name, &started)?;
        if let Err(error) = tell(context, &dir, &args.name, built_in) {
            context
                .out
                .note(format_args!("what else is to be said of {} cannot be read: {error}", args.name));
            context.out.hint(format_args!("`teamctl status {}` shows it", args.name));
        }
        Ok(ExitCode::Done)
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
    let waiting = Waiting { dir, out: &context.out, timeout: Some(timeout) };
    let spawn = Command::Spawn { id: RandomIds.request(), order: Box::new(order) };
    let (pid, incarnation, status, skipped) = match waiting.one(spawn).await? {
        One::Done(Done::Ready { pid, incarnation, status, skipped }) => (pid, incarnation, status, skipped),
        One::Refused(refusal) if refusal.code != RefusalCode::NotReady => return Err(refusal.into()),
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

/// Works out what holds for a teammate (or the lead agent): the command line, the environment, `team.toml`.
///
/// # Errors
/// For what makes no sense, and a workspace that is none.
pub(in crate::ctl) fn settle(
    context: &Context,
    dir: &TeamDir,
    (name, flags): (&Name, &Flags),
    environment: &Environment,
) -> Result<Resolved, CommandError> {
    let roster = roster::load(dir)?;
    let asked = Asked { name, flags, earlier: roster.member(name) };
    let lookup = |variable: &str| environment.value(variable);
    let mut resolved = resolve(asked, &lookup, context.trusted_file()?)?;
    // What stands in the file was not looked at yet.
    if let Some(named) = &mut resolved.workspace {
        *named = workspace(Path::new(named))?;
    }
    let recorded = || roster.member(name).and_then(|member| member.model.parse().ok());
    if let Some(model) = resolved.model.clone().or_else(recorded) {
        warn_of_missing_key(context, name, &model, environment);
    }
    Ok(resolved)
}

fn flags(args: &Spawn) -> Result<Flags, CommandError> {
    let prompt = match (&args.prompt, &args.prompt_file) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(path)) => Some(text::from_file(path)?),
        (None, None) => None,
    };
    Ok(Flags {
        role: args.role.clone(),
        prompt: prompt.map(|text| text::not_blank(text, "prompt")).transpose()?,
        model: args.model.clone(),
        workspace: args.workspace.as_deref().map(workspace).transpose()?,
        plan: args.plan,
        approve_by: args.approve_by,
        restart: args.restart,
        sandbox: args.sandbox,
        no_network: args.no_network,
        writable: args.writable.iter().map(|path| writable(path)).collect::<Result<_, _>>()?,
        hidden: args.hidden.iter().map(|path| hidden(path)).collect::<Result<_, _>>()?,
        limits: Limits { max_turns: args.max_turns, max_tokens: args.max_tokens },
        bounds: Bounds {
            memory: args.memory,
            cpu_time: args.cpu_time,
            max_procs: args.max_procs,
            max_time: args.max_time,
        },
        ca: args.ca.as_deref().map(authorities).transpose()?,
        resume: args.resume,
    })
}

/// Makes a path absolute that commands may write. Its links are for the daemon to follow: it knows which ones a tool
/// can have made.
fn writable(path: &Path) -> Result<String, CommandError> {
    let bad = |why: String| {
        CommandError::new(ExitCode::Usage, format!("--writable {} {why}", path.display()))
            .hint("name a directory or a file that exists, outside the team directory")
    };
    let absolute = std::path::absolute(path).and_then(|absolute| absolute.metadata().map(|_| absolute));
    let absolute = absolute.map_err(|error| bad(format!("cannot be used: {error}")))?;
    absolute.into_os_string().into_string().map_err(|_| bad("has a path that is not UTF-8".to_owned()))
}

/// Makes a path absolute that tools may not read. It may be missing: then it is hidden when it appears.
fn hidden(path: &Path) -> Result<String, CommandError> {
    let bad = |why: String| CommandError::new(ExitCode::Usage, format!("--hidden {} {why}", path.display()));
    let absolute = std::path::absolute(path).map_err(|error| bad(format!("cannot be used: {error}")))?;
    absolute.into_os_string().into_string().map_err(|_| bad("has a path that is not UTF-8".to_owned()))
}

/// Reads whose word counts for a service's name: two are built in, anything else is a file. (One that is called like
/// them is `./platform`.)
fn authorities(named: &Path) -> Result<String, CommandError> {
    if let Some(built_in) = named.to_str().filter(|name| matches!(*name, "platform" | "embedded")) {
        return Ok(built_in.to_owned());
    }
    let bad = |why: String| {
        CommandError::new(ExitCode::Usage, format!("--ca {} {why}", named.display()))
            .hint("it is `platform`, `embedded`, or a file of certificates in PEM")
    };
    // Not resolved any further: what a link names may be renewed.
    let absolute = std::path::absolute(named).map_err(|error| bad(format!("cannot be used: {error}")))?;
    match absolute.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(bad("is not a file".to_owned())),
        Err(error) => return Err(bad(format!("cannot be used: {error}"))),
    }
    absolute.into_os_string().into_string().map_err(|_| bad("has a path that is not UTF-8".to_owned()))
}

/// Makes the workspace absolute: the daemon has another current directory. Its links are for the daemon to follow: it
/// knows which ones a tool can have made.
pub(in crate::ctl) fn workspace(path: &Path) -> Result<String, CommandError> {
    let bad = |why: String| {
        CommandError::new(ExitCode::Failed, format!("the workspace {} {why}", path.display()))
            .hint("name a directory that exists, or make it first")
    };
    let absolute = std::path::absolute(path);
    let found = absolute.and_then(|absolute| absolute.metadata().map(|found| (absolute, found)));
    let (absolute, found) = found.map_err(|error| bad(format!("cannot be used: {error}")))?;
    if !found.is_dir() {
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
            let roster = roster::load_one(dir, name).ok();
            let member = roster.as_ref().and_then(|roster| roster.member(name));
            if member.is_some_and(|member| !member.status.is_ended()) {
                return error.hint(format!("it is started again: `teamctl status {name}` shows how it goes"));
            }
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

/// Whoever names a service and has no key for it will see every piece of work fail.
fn warn_of_missing_key(context: &Context, name: &Name, model: &ModelSpec, environment: &Environment) {
    if let Some(missing) = missing_key(model, &|variable| environment.value(variable)) {
        let model = model.to_string();
        context.out.note(format_args!("{name} is to use {}, and no key for it is set", escape::line(&model)));
        context.out.hint(format_args!(
            "set {missing}, then `teamctl shutdown {name}` and `teamctl spawn {name} --resume`"
        ));
    }
}

/// Says what must not go unnoticed. A person who named no model and has no key gets the built-in one: that is told
/// once, with the first teammate.
fn tell(context: &Context, dir: &TeamDir, name: &Name, built_in: bool) -> Result<(), CommandError> {
    let roster = roster::load(dir)?;
    let (this, others): (Vec<_>, Vec<_>) = roster.members.iter().partition(|member| member.name == *name);
    let scripted = |member: &&RosterMember| member.model == "script";
    if built_in && this.iter().any(scripted) && !others.iter().any(scripted) {
        context.out.note(format_args!(
            "no model is named and no key is set: {name} runs the built-in `script` model, which does what lines such as `/bash make` say"
        ));
    }
    let writes = |member: &&&RosterMember| member.sandbox.mode == SandboxMode::WorkspaceWrite;
    for path in this.iter().filter(writes).flat_map(|member| &member.sandbox.writable) {
        if open_itself(Path::new(path), OFlags::PATH).is_err_and(|errno| errno == Errno::LOOP) {
            let path = escape::line(path);
            context.out.note(format_args!(
                "the commands of {name} may not write {path} in this life: a symbolic link stands on the way to it, and none did when it was named"
            ));
        }
    }
    for path in this.iter().flat_map(|member| &member.sandbox.hidden) {
        if open_itself(Path::new(path), OFlags::PATH).is_err_and(|errno| errno == Errno::NOENT) {
            let path = escape::line(path);
            context
                .out
                .note(format_args!("nothing is at {path} yet: it is hidden from {name} when it appears"));
        }
    }
    let where_it_writes = this.iter().filter(writes).flat_map(|member| member.where_it_writes());
    if let Some(program) = programs::with_another_name(where_it_writes) {
        context.out.note(format_args!(
            "{} has another name (a hard link) where commands of {name} may write: by that they could change it, and the next \
             `teamd` or `teamctl` that you run would be theirs",
            escape::line(&program.to_string_lossy())
        ));
        context.out.hint(programs::INSTALL_ELSEWHERE);
    }
    if this.iter().any(|member| member.sandbox.mode == SandboxMode::Off) {
        context.out.note(format_args!(
            "the commands of {name} are not confined (sandbox off): they may do whatever you may"
        ));
    }
    Ok(())
}

fn report(context: &Context, name: &Name, started: &Started) -> Result<(), CommandError> {
    let Started { pid, incarnation, status } = started;
    if context.out.is_json() {
        context.out.json(&json!({"name": name, "pid": pid, "incarnation": incarnation, "status": status}))?;
    } else {
        context
            .out
            .text(format_args!("{name} is {} (pid {pid}, incarnation {incarnation})", status.as_str()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::client::tests::{daemon, scratch};
    use crate::ctl::args;
    use crate::ctl::context::tests::context;

    #[test]
    fn a_workspace_is_a_directory_and_absolute() {
        assert!(workspace(Path::new(".")).unwrap().starts_with('/'));
        let error = workspace(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.message(), "the workspace /dev/null is not a directory");
        assert!(workspace(Path::new("/no/such")).unwrap_err().message().contains("cannot be used"));
    }

    #[test]
    fn what_may_be_written_is_there_and_its_links_are_not_followed_here() {
        let scratch = tempfile::tempdir().unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert_eq!(writable(&link).as_deref(), Ok(link.to_str().unwrap()));
        assert_eq!(workspace(&link).as_deref(), Ok(link.to_str().unwrap()));
        let error = writable(&scratch.path().join("nowhere")).unwrap_err();
        assert_eq!(error.code(), ExitCode::Usage);
    }

    #[test]
    fn authorities_are_built_in_or_a_file() {
        assert_eq!(authorities(Path::new("platform")).as_deref(), Ok("platform"));
        assert!(authorities(Path::new("Cargo.toml")).unwrap().ends_with("/lead/Cargo.toml"));
        for bad in ["nowhere.pem", "src"] {
            assert_eq!(authorities(Path::new(bad)).unwrap_err().code(), ExitCode::Usage, "{bad}");
        }
    }

    #[test]
    fn whoever_is_ready_was_spawned_although_the_roster_cannot_be_read_any_more() {
        let (_scratch, dir) = scratch();
        let roster = dir.path(&TeamPath::config());
        let answering = daemon(&dir, move |command| {
            assert!(matches!(command, Command::Spawn { .. }));
            // No file, as none would be of which no descriptor is left.
            std::fs::create_dir(&roster).unwrap();
            Some(Ok(Done::Ready { pid: 7, incarnation: 1, status: Status::Idle, skipped: 0 }))
        });
        let (context, stdout, stderr) = context(&dir, false);
        let cli = args::Cli::try_parse_from(["teamctl", "spawn", "alice", "--model", "script"]).unwrap();
        let args::Command::Spawn(args) = cli.command else { panic!() };
        assert_eq!(run(&context, *args), Ok(ExitCode::Done));
        answering.join().unwrap();
        assert_eq!(stdout.text(), "alice is idle (pid 7, incarnation 1)\n");
        assert!(
            stderr.text().contains("note: what else is to be said of alice cannot be read: "),
            "{}",
            stderr.text()
        );
    }
}
