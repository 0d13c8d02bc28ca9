//! `teamctl spawn`: starts a teammate, and returns when its worker is ready.

use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};
use teamd_client::act::auto_start;
use teamd_client::act::spawn::{ReadyWorker, check, make_absolute, order, start};
use teamd_client::args::Spawn;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::count;
use teamd_client::programs;
use teamd_client::read::{roster, text};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::member::{SandboxMode, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::place::open_itself;
use teamd_shared::repository;
use teamd_shared::sandbox::{Layers, Namespaces};
use teamd_shared::spawn::SpawnRequest;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::is_built_in;
use teamd_shared::terms::Network;

/// Runs the command.
pub(crate) fn run(context: &Context, args: Spawn) -> CommandResult {
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
    // If the teammate cannot be spawned, no daemon is started either.
    let is_new = auto_start::ensure_daemon(context, no_start, |dir| {
        check(context, dir, request.clone())
    })?;
    let dir = context.dir()?;
    let spawned = block_on(spawn(context, &dir, request, timeout, |value, text| {
        context.out.result(&value, text)
    }));
    auto_start::undo(context, is_new, spawned.map(|()| ExitCode::Done))
}

/// Spawns a teammate, and returns when its worker is ready. `report` prints that: to programs, and
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
        format!("{name} is {} (pid {pid})", status.as_str()),
    )?;
    let printed = print_notes(context, dir, name, is_built_in);
    // A person has seen it with an earlier incarnation.
    let printed = printed.and_then(|()| {
        if incarnation == 1 {
            note_withheld(context, dir, name, withheld)
        } else {
            Ok(())
        }
    });
    if let Err(error) = printed {
        context.out.note(format_args!(
            "further notes about {name} cannot be read: {error}"
        ));
        context
            .out
            .hint(format_args!("`teamctl status {name}` shows it"));
    }
    Ok(())
}

/// Notes how many variables the commands of the first teammate do not get.
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

/// Returns the terms of the flags, with absolute paths: the links on the way are followed when the
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
    Ok(flags)
}

/// Returns certificate authorities: two are built in, anything else is a file. (A file with one of
/// their names is `./platform`.)
fn authorities(named: &str) -> Result<String, CommandError> {
    if is_built_in(named) {
        return Ok(named.to_owned());
    }
    // Its links are not followed: the file behind them may be renewed.
    let absolute =
        std::path::absolute(named).and_then(|absolute| Ok((absolute.metadata()?, absolute)));
    match absolute {
        Ok((metadata, absolute)) if metadata.is_file() => {
            Ok(absolute.to_string_lossy().into_owned())
        }
        Ok(_) => Err(bad_ca(named, "is not a file")),
        Err(error) => Err(bad_ca(named, &format!("cannot be used: {error}"))),
    }
}

/// Notes what must not go unnoticed.
fn print_notes(
    context: &Context,
    dir: &TeamDir,
    name: &Name,
    is_built_in: bool,
) -> Result<(), CommandError> {
    let roster = roster::load(dir)?;
    if is_built_in {
        note_script_model(context, &roster, name);
    }
    let Some(member) = roster.member(name) else {
        return Ok(());
    };
    if let Some(costs) = member.agent.as_ref().and_then(|agent| agent.login.costs()) {
        context
            .out
            .note(format_args!("{name} has your token: {costs}"));
    }
    // What is at its paths is on the host.
    if member.host.is_some() {
        return Ok(());
    }
    note_paths(context, member);
    if member.sandbox.mode == SandboxMode::WorkspaceWrite {
        note_writes(context, member);
    }
    let layers = roster
        .sandbox
        .as_ref()
        .and_then(|sandbox| sandbox.layers.parse::<Layers>().ok());
    if member.agent.is_some() && layers.is_none_or(|layers| layers.namespaces != Namespaces::Own) {
        context.out.note(format_args!(
            "here the gate of {name} does not change while its agent runs: when it closes, the agent is ended; an agent that has a key also reaches the \
             network of this machine behind a closed gate, since its model is there"
        ));
    }
    if member.sandbox.mode == SandboxMode::Off {
        context.out.note(format_args!(
            "the commands of {name} are not confined (sandbox off): they may do whatever you may"
        ));
    }
    Ok(())
}

/// Notes that a person who named no model and has no key gets the built-in one: once, with the
/// first teammate.
fn note_script_model(context: &Context, roster: &Roster, name: &Name) {
    let is_first = roster
        .members
        .iter()
        .filter(|member| member.model == "script" && member.agent.is_none())
        .all(|member| member.name == *name);
    let is_scripted = roster
        .member(name)
        .is_some_and(|member| member.model == "script" && member.agent.is_none());
    if is_scripted && is_first {
        context.out.note(format_args!(
            "no model is named and no key is set: {name} runs the built-in `script` model, which carries out lines such as `/bash make`"
        ));
    }
}

fn note_paths(context: &Context, member: &RosterMember) {
    let name = &member.name;
    if member.sandbox.mode == SandboxMode::WorkspaceWrite {
        for path in &member.sandbox.writable {
            if open_itself(Path::new(path), OFlags::PATH).is_err_and(|errno| errno == Errno::LOOP) {
                let path = escape::line(path);
                context.out.note(format_args!(
                    "the commands of {name} may not write {path} in this incarnation: there is a symbolic link on the way to it, and there was none when it was named"
                ));
            }
        }
    }
    for path in &member.sandbox.hidden {
        if open_itself(Path::new(path), OFlags::PATH).is_err_and(|errno| errno == Errno::NOENT) {
            let path = escape::line(path);
            context.out.note(format_args!(
                "nothing is at {path} yet: it is hidden from {name} when it appears"
            ));
        }
    }
}

/// Notes what a teammate that may write cannot commit, and what it could change.
fn note_writes(context: &Context, member: &RosterMember) {
    let name = &member.name;
    if member.checkout.is_none()
        && let Some(above) = repository::above(Path::new(&member.workspace))
    {
        context.out.note(format_args!(
            "{name} cannot commit: the repository {} is above its workspace (`--workspace` or `--checkout` changes that)",
            escape::line(&above.to_string_lossy())
        ));
    }
    if let Some(program) = programs::with_another_name(member.where_it_writes()) {
        context.out.note(format_args!(
            "{} has another name (a hard link) where commands of {name} may write: they could change it by that name, and the next \
             `teamd` or `teamctl` that you run would be theirs",
            escape::line(&program.to_string_lossy())
        ));
        context.out.hint(programs::INSTALL_ELSEWHERE);
    }
}

fn bad_ca(named: &str, why: &str) -> CommandError {
    CommandError::new(ExitCode::Usage, format!("--ca {named} {why}"))
        .hint("it is `platform`, `embedded`, or a file of certificates in PEM")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use teamd_client::args;
    use teamd_client::testing::context;
    use teamd_client::testing::{daemon, scratch};
    use teamd_shared::control::{Command, Done};
    use teamd_shared::member::MemberStatus;
    use teamd_shared::team_dir::TeamPath;

    #[test]
    fn what_may_be_written_is_named_absolute_and_as_it_is_on_a_host() {
        let words = ["teamctl", "spawn", "alice", "--writable", "./src"];
        let cli = args::Cli::try_parse_from(words).unwrap();
        let args::TeamctlCommand::Spawn(args) = cli.command else {
            panic!()
        };
        let sandbox = flags(*args).unwrap().sandbox;
        assert!(sandbox.writable[0].ends_with("/lead/ctl/src"));
        assert_eq!(sandbox.named_writable, ["./src"]);
    }

    #[test]
    fn authorities_are_built_in_or_a_file() {
        assert_eq!(authorities("platform").as_deref(), Ok("platform"));
        assert!(
            authorities("Cargo.toml")
                .unwrap()
                .ends_with("/lead/ctl/Cargo.toml")
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
            let args::TeamctlCommand::Spawn(args) =
                args::Cli::try_parse_from(line).unwrap().command
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
        let args::TeamctlCommand::Spawn(args) = cli.command else {
            panic!()
        };
        assert_eq!(run(&context, *args), Ok(ExitCode::Done));
        answering.join().unwrap();
        assert_eq!(stdout.text(), "alice is idle (pid 7)\n");
        assert!(
            stderr
                .text()
                .contains("note: further notes about alice cannot be read: "),
            "{}",
            stderr.text()
        );
    }
}
