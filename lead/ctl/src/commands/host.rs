//! `teamctl host`: other machines that run teammates of the team.

mod install;
mod invite;
mod invite_nats;
mod table;

use std::io::IsTerminal;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use serde_json::json;
use teamd_client::act::auto_start::ensure_daemon;
use teamd_client::act::waiting::Requester;
use teamd_client::args::{HostArgs, HostCommand};
use teamd_client::connection::unexpected;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::read::journal;
use teamd_shared::control::{Command, Done};
use teamd_shared::host::{Host, HostStatus, HostWay, LinkState, line_there};
use teamd_shared::name::Name;

use self::invite::Invitation;
use super::doctor::hosts::weaknesses;

/// How long a host may take until its link is up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The options of `ssh` for the look at a host: nothing of the configuration but the login counts.
const OPTIONS: [&str; 5] = [
    "ConnectTimeout=10",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "PermitLocalCommand=no",
];

/// Runs the command.
pub(crate) fn run(context: &Context, args: HostArgs) -> CommandResult {
    match args.command {
        HostCommand::Add {
            name,
            ssh,
            allow_weak_sandbox,
            install,
            programs,
        } => {
            let recorded = recorded(context, &name)?;
            let of_file = of_file(context, &name, None)?;
            let before = of_file.or(recorded);
            let known = before.as_ref().and_then(|host| place(host).ok());
            let ssh = ssh.or_else(|| known.map(str::to_owned));
            let host = Host {
                way: HostWay::Ssh(ssh.unwrap_or_else(|| name.to_string())),
                name,
                allow_weak_sandbox,
                terms: before.map(|host| host.terms).unwrap_or_default(),
            };
            can_link(&host)?;
            if install {
                install::install(context, &host, programs.as_deref())?;
            }
            add(context, host)
        }
        HostCommand::Invite {
            name,
            public_key,
            nats,
            allow_weak_sandbox,
        } => {
            let invitation = Invitation {
                name,
                public_key,
                nats,
                allow_weak_sandbox,
            };
            invite::run(context, invitation)
        }
        HostCommand::Login { name } => {
            let host = recorded(context, &name)?.ok_or_else(|| unknown(&name))?;
            let of_file = of_file(context, &name, Some(&host))?;
            add(context, of_file.unwrap_or(host))
        }
        HostCommand::Take { name } => {
            let hosts = ask(context, Command::TakeHost { name: name.clone() })?;
            report(context, hosts, &name)
        }
        HostCommand::List => list(context),
        HostCommand::Remove { name } => {
            let before = recorded(context, &name)?;
            let hosts = ask(context, Command::RemoveHost { name: name.clone() })?;
            if let Some(host) = &before {
                invite::note_what_is_left(context, host);
            }
            show(context, &hosts)
        }
    }
}

/// Adds a host, and waits until its link is up. One that says nothing of itself is looked at in
/// this terminal, where ssh may ask something, and dialled again; one that cannot be looked at is
/// not added, or stays where it was.
fn add(context: &Context, host: Host) -> CommandResult {
    can_link(&host)?;
    place(&host)?;
    let recorded = recorded(context, &host.name)?;
    let is_new = recorded.is_none();
    let moves = recorded.is_some_and(|recorded| recorded.way != host.way);
    if moves {
        look(&host)?;
    }
    ensure_daemon(context, false, |_| Ok(()))?;
    let name = host.name.clone();
    let hosts = ask(context, Command::AddHost(host.clone()))?;
    if moves || has_answered(&hosts, &name) {
        return report(context, hosts, &name);
    }
    if is_new {
        ask(context, Command::RemoveHost { name: name.clone() })?;
    }
    look(&host)?;
    let hosts = ask(context, Command::AddHost(host))?;
    report(context, hosts, &name)
}

/// Tells whether a host has said of itself what it is, or was removed meanwhile.
fn has_answered(hosts: &[HostStatus], name: &Name) -> bool {
    let status = hosts.iter().find(|status| status.host.name == *name);
    status.is_none_or(|status| status.version.is_some())
}

/// Reports what became of the link to a host that a person has just dialled.
fn report(context: &Context, hosts: Vec<HostStatus>, name: &Name) -> CommandResult {
    let status = hosts.into_iter().find(|status| status.host.name == *name);
    let Some(status) = status else {
        return Err(CommandError::new(
            ExitCode::Failed,
            format!("{name} was removed meanwhile"),
        ));
    };
    match &status.link {
        LinkState::Up => {
            let version = status.version.as_deref().unwrap_or("?");
            let text = format!("{name} is linked (teamd {version}, {})", status.host.way);
            context
                .out
                .result(&json!(status), escape::line(&text).into_owned())?;
            context.out.note(format_args!(
                "the owner of {name} can read the keys, the mail and the work of the teammates there"
            ));
            note_what_is_weak(context, name)?;
            Ok(ExitCode::Done)
        }
        LinkState::Unreachable { why } => {
            let message = format!("{name} is added, and cannot be reached: {why}");
            Err(CommandError::new(ExitCode::Failed, message).hint(
                "the link is made by itself once it can be: `teamctl host list` shows the links",
            ))
        }
        LinkState::NeedsAttention { why, hint } => {
            let message = format!("{name} is added, and is not linked: {why}");
            Err(CommandError::new(ExitCode::Failed, message).hint(hint))
        }
    }
}

/// Notes what a host does not promise: what `teamctl doctor` says of it, too.
fn note_what_is_weak(context: &Context, name: &Name) -> Result<(), CommandError> {
    let hosts = ask(context, Command::Hosts)?;
    let status = hosts.iter().find(|status| status.host.name == *name);
    for weakness in status.map(weaknesses).unwrap_or_default() {
        context
            .out
            .note(format_args!("{}: {}", weakness.what, weakness.means));
        context.out.hint(weakness.next);
    }
    Ok(())
}

/// Makes sure that a link can be made.
fn can_link(host: &Host) -> Result<(), CommandError> {
    let possible = host.way.can_link();
    possible.map_err(|(why, hint)| CommandError::new(ExitCode::Usage, why).hint(hint))
}

/// Returns where `ssh` finds a host.
fn place(host: &Host) -> Result<&str, CommandError> {
    match &host.way {
        HostWay::Ssh(place) => Ok(place),
        HostWay::Invited(_) | HostWay::Nats(_) => {
            let name = &host.name;
            let message = format!("{name} dials home, and cannot be dialled");
            Err(CommandError::new(ExitCode::Rejected, message).hint(format!(
                "`teamctl host invite {name}` prints the command for that machine"
            )))
        }
    }
}

/// Returns the command that runs a line on a host, in this terminal: ssh may ask something.
fn ssh_to(place: &str, line: &str) -> Process {
    let mut ssh = Process::new("ssh");
    ssh.args(["-T", "-S", "none"]);
    for option in OPTIONS {
        ssh.args(["-o", option]);
    }
    if !std::io::stdin().is_terminal() {
        ssh.args(["-o", "BatchMode=yes"]);
    }
    ssh.args(["--", place, line]).stderr(Stdio::inherit());
    ssh
}

/// Makes the error of an `ssh` that could not connect.
fn not_connected(place: &str) -> CommandError {
    let message = format!("ssh could not connect to {place}");
    CommandError::new(ExitCode::Failed, message).hint(format!("try `ssh {place} true` first"))
}

/// Makes sure that the host has a `teamd`, in this terminal: ssh may ask something.
fn look(host: &Host) -> Result<(), CommandError> {
    let place = place(host)?;
    let asked = ssh_to(place, &line_there("--version"))
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .output()
        .map_err(|error| CommandError::refused("cannot run ssh", &error))?;
    let place = escape::line(place).into_owned();
    match asked.status.code() {
        Some(0) => {}
        Some(127) => {
            return Err(CommandError::new(
                ExitCode::Failed,
                format!("there is no teamd on the PATH of {place}"),
            )
            .hint("`--install` installs teamd, teamctl and team-worker of this version there"));
        }
        Some(255) => return Err(not_connected(&place)),
        _ => {
            return Err(CommandError::new(
                ExitCode::Failed,
                format!("`teamd --version` failed at {place} ({})", asked.status),
            ));
        }
    }
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    if said.lines().any(|line| line.starts_with("teamd ")) {
        return Ok(());
    }
    let message = format!("{place} does not say which version of teamd it has");
    Err(CommandError::new(ExitCode::Failed, message)
        .hint(format!("try `ssh {place} teamd --version`")))
}

/// Returns a host as `team.toml` says that it is to be, if it does.
fn of_file(
    context: &Context,
    name: &Name,
    recorded: Option<&Host>,
) -> Result<Option<Host>, CommandError> {
    if !context.team_file()?.hosts.contains_key(name) {
        return Ok(None);
    }
    let table = context.trusted_file()?.hosts.get(name);
    Ok(table.map(|table| table.host(name, recorded)))
}

/// Returns a host as it is recorded; none if it is not, or there is no team yet.
fn recorded(context: &Context, name: &Name) -> Result<Option<Host>, CommandError> {
    if context.is_missing() {
        return Ok(None);
    }
    let team = journal::fold(&context.dir()?)?;
    let hosts = team.hosts.as_ref();
    Ok(hosts.and_then(|hosts| hosts.get(name)).cloned())
}

fn unknown(name: &Name) -> CommandError {
    CommandError::new(ExitCode::NotFound, format!("there is no host {name}"))
        .hint(format!("`teamctl host add {name}` adds it"))
}

fn list(context: &Context) -> CommandResult {
    let hosts = ask(context, Command::Hosts)?;
    show(context, &hosts)
}

fn show(context: &Context, hosts: &[HostStatus]) -> CommandResult {
    if context.out.is_json() {
        return context.out.json(&hosts).map(|()| ExitCode::Done);
    }
    if hosts.is_empty() {
        context.out.note("the team has no hosts");
        context
            .out
            .hint("`teamctl host add NAME --ssh USER@HOST` adds one");
        return Ok(ExitCode::Done);
    }
    let terminal = context.out.width();
    let table = table::fitting(hosts, terminal);
    context.out.text(table.render(terminal))?;
    Ok(ExitCode::Done)
}

fn ask(context: &Context, command: Command) -> Result<Vec<HostStatus>, CommandError> {
    let dir = context.dir()?;
    let requester = Requester {
        dir: &dir,
        out: &context.out,
        timeout: Some(PATIENCE),
    };
    match block_on(requester.one(command))? {
        Ok(Ok(Done::Hosts(hosts))) => Ok(hosts),
        Ok(Ok(other)) => Err(unexpected(&other)),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(early) => Err(early.error(
            "the daemon",
            "it is not known yet whether the host can be reached".to_owned(),
            "`teamctl host list` shows the links",
        )),
    }
}
