//! `teamd`: starts, stops and shows the daemon of a team. The only module that knows both sides of
//! the crate.

mod trust;

use std::convert;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory, Parser, Subcommand};
use serde_json::json;
use teamd_client::args::{Completions, Down};
use teamd_client::connection::{Client, unexpected};
use teamd_client::context::{Context, Global, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::hidden_file::{HiddenPlace, hidden_file};
use teamd_client::nats_link::nats_link;
use teamd_client::print::escape;
use teamd_client::read::{journal, roster};
use teamd_client::{context, registered};
use teamd_ctl::commands::{down, orders};
use teamd_ctl::completion;
use teamd_daemon::{DaemonRole, LinkNote};
use teamd_shared::cgroup;
use teamd_shared::control::{Command as Order, DialledHome, Done};
use teamd_shared::host::can_be_dialled;
use teamd_shared::name::Name;
use teamd_shared::sandbox::Layers;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::user_dirs::host_team_dir;
use uuid::Uuid;

/// The daemon of a team of agent processes: it supervises the teammates and tracks their requests
#[derive(Debug, Parser)]
#[command(
    name = "teamd",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "`teamctl` leads the team: see `teamctl --help`.")]
pub(crate) struct TeamdCli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: TeamdCommand,
}

#[derive(Debug, Subcommand)]
enum TeamdCommand {
    Start(Start),
    /// Shut down every teammate, then stop the daemon
    Stop(Down),
    /// Show whether the daemon is running
    Status,
    Trust(trust::Trust),
    /// Print a shell completion script
    ///
    /// Save it for bash as ~/.local/share/bash-completion/completions/teamd, for zsh as _teamd in a
    /// directory of $fpath, and for fish as ~/.config/fish/completions/teamd.fish.
    Completions(Completions),
    /// Run as the daemon: `start` runs this
    #[command(hide = true)]
    Serve(Serve),
    Host(ServeHost),
    /// Serve a connection that a host has made: the only command of its key
    #[command(hide = true)]
    Link {
        /// What the team calls the host
        #[arg(value_parser = Name::from_str)]
        host: Name,
        /// Which key has let it in
        #[arg(long)]
        key: String,
    },
}

/// The sandbox of the team's commands, as `start` has probed it.
#[derive(Debug, Args)]
struct Serve {
    #[arg(long)]
    sandbox_layers: Layers,
    #[arg(long)]
    weakness: Option<String>,
    /// The number of the descriptor of the worker's program.
    #[arg(long)]
    worker: i32,
    /// Whether the previous daemon became this program.
    #[arg(long)]
    handed_over: bool,
    /// The home that the host daemon serves, if it is one.
    #[arg(long)]
    host_of: Option<Uuid>,
}

/// Serve the teammates of a team whose daemon runs on another machine
///
/// With `--dial` this machine dials home, and dials again when the link breaks, until this command
/// ends. `teamctl host invite` at home prints the command line. Teammates work on without a link.
#[derive(Debug, Args)]
#[command(override_usage = "teamd host --dial [USER@]HOST [OPTIONS]")]
struct ServeHost {
    /// The id of the home: a link that home has dialled runs this
    #[arg(hide = true, conflicts_with_all = ["dial", "key"])]
    home: Option<Uuid>,
    /// Where ssh finds home, or a server of a NATS cluster as tls://HOST
    #[arg(long, value_name = "[USER@]HOST")]
    dial: Option<String>,
    #[command(flatten)]
    dials: DialArgs,
    /// Start even if this machine cannot sandbox the teammates' commands as promised
    #[arg(long)]
    allow_weak_sandbox: bool,
    /// Take a file of this name from standard input instead
    #[arg(
        long,
        hide = true,
        value_name = "NAME",
        conflicts_with_all = ["give", "dial"],
        requires = "length"
    )]
    take: Option<Uuid>,
    /// How long it is
    #[arg(long, hide = true, value_name = "BYTES", requires = "take")]
    length: Option<u64>,
    /// Write the file of this name to standard output instead
    #[arg(long, hide = true, value_name = "NAME", conflicts_with = "dial")]
    give: Option<Uuid>,
    /// Replace a host daemon that runs with this program; one of another version is in any case
    #[arg(long, hide = true, conflicts_with = "dial")]
    replace: bool,
}

/// What lets this machine in at home.
#[derive(Debug, Args)]
struct DialArgs {
    /// The file of the key that lets this machine in [default: as ssh is configured]
    #[arg(long, value_name = "FILE", requires = "dial", value_hint = clap::ValueHint::FilePath)]
    key: Option<PathBuf>,
    /// The link on a NATS cluster
    #[arg(
        long,
        value_name = "SUBJECT",
        requires = "dial",
        requires = "credentials",
        conflicts_with = "key"
    )]
    link: Option<String>,
    /// The credentials of this machine there: a .creds file, or one with the seed of an nkey
    #[arg(long, value_name = "FILE", requires = "link", value_hint = clap::ValueHint::FilePath)]
    credentials: Option<PathBuf>,
    /// The certificate authority of that server [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "link", value_hint = clap::ValueHint::FilePath)]
    ca: Option<PathBuf>,
}

/// Start the daemon, and return when it is ready
///
/// The daemon detaches from the terminal and logs to log/teamd.log in the team directory, which is
/// created if it does not exist. Teammates that are still running are adopted.
#[derive(Debug, Args)]
struct Start {
    /// Stay in the foreground, for systemd and containers; log to stderr
    #[arg(long)]
    foreground: bool,
    /// Replace a running daemon with this program, for example after an update, without stopping a
    /// teammate
    ///
    /// The process keeps its pid, its teammates and its place in a service manager. Waiting
    /// commands keep waiting.
    #[arg(long, conflicts_with = "foreground")]
    replace: bool,
    /// Use a team directory that you did not create with `teamd start`, such as a copy or one that
    /// was moved
    ///
    /// Its roster, inboxes and transcripts are trusted from then on: be sure where they come from.
    #[arg(long, value_name = "DIR")]
    adopt: Option<PathBuf>,
    /// Start even if this machine cannot sandbox the teammates' commands as promised
    ///
    /// `teamctl doctor` shows which promises do not hold, and why; `teamctl status` reports it
    /// while the daemon runs.
    #[arg(long)]
    allow_weak_sandbox: bool,
    /// Whether to put each incarnation into its own cgroup (version 2): auto (where possible) or
    /// off
    ///
    /// With a cgroup, a teammate and its child processes are killed in one step, and limits apply
    /// to their total where the controllers are delegated. Without one, shims end the processes,
    /// and limits apply to each process. `teamctl doctor` shows which of the two applies. [default:
    /// `TEAM_CGROUP`, then `cgroup` in team.toml]
    #[arg(long, value_name = "auto|off", hide_possible_values = true)]
    cgroup: Option<cgroup::Use>,
}

/// Runs the program.
pub(crate) fn run(version: &'static str) -> std::process::ExitCode {
    if completion::answer(TeamdCli::command) {
        return std::process::ExitCode::SUCCESS;
    }
    context::run(
        version,
        convert::identity,
        global,
        |_, _| None,
        |cli, context| dispatch(cli.command, context),
    )
}

/// `--adopt DIR` also names the team directory.
fn global(cli: &TeamdCli) -> Global {
    match &cli.command {
        TeamdCommand::Start(Start {
            adopt: Some(dir), ..
        }) => Global {
            team_dir: Some(dir.clone().into()),
            ..cli.global.clone()
        },
        // No team that is found here has anything to say to it.
        TeamdCommand::Host(ServeHost { home, .. }) => Global {
            team_dir: host_team_dir(|name| std::env::var_os(name), home.unwrap_or_default())
                .ok()
                .map(PathBuf::into_os_string),
            ..cli.global.clone()
        },
        _ => cli.global.clone(),
    }
}

fn dispatch(command: TeamdCommand, context: &Context) -> CommandResult {
    match command {
        TeamdCommand::Start(args) => start(context, &args),
        TeamdCommand::Stop(args) => {
            begin(context);
            down::run(context, &args)
        }
        TeamdCommand::Status => status(context),
        TeamdCommand::Trust(args) => trust::run(context, &args),
        TeamdCommand::Completions(args) => completion::run(context, &args, "teamd"),
        TeamdCommand::Serve(Serve {
            sandbox_layers,
            weakness,
            worker,
            handed_over,
            host_of,
        }) => {
            let confinement = teamd_daemon::TeamConfinement {
                layers: sandbox_layers,
                weakness,
            };
            Ok(teamd_daemon::serve(
                &context.path,
                (&confinement, worker),
                host_of.map_or(DaemonRole::Home { handed_over }, DaemonRole::Host),
            ))
        }
        TeamdCommand::Host(args) => host(context, args),
        TeamdCommand::Link { host, key } => {
            let Some(asked) = std::env::var_os("SSH_ORIGINAL_COMMAND") else {
                let text = format!("this key works: `teamd host --dial` on {host} uses it");
                context.out.text(text)?;
                return Ok(ExitCode::Done);
            };
            teamd_daemon::serve_link(&context.dir()?, host, key, &asked)?;
            Ok(ExitCode::Done)
        }
    }
}

/// Prepares a command that continues without a `team.toml` that can be read.
fn begin(context: &Context) {
    context.set_signals();
    context.note_passed_over();
    context.warn_of_team_file();
}

fn start(context: &Context, args: &Start) -> CommandResult {
    context.set_signals();
    context.note_passed_over();
    if args.adopt.is_none()
        && let Ok(dir) = TeamDir::open(&context.path)
    {
        registered::check(&context.register, &dir, ExitCode::Rejected)?;
    }
    context.ask_for_trust()?;
    let options = teamd_daemon::StartOptions {
        dir: context.path.clone(),
        foreground: args.foreground,
        replace: args.replace,
        settings: Settings {
            cgroup: args.cgroup.unwrap_or(context.settings.cgroup),
            ..context.settings.clone()
        },
        allow_weak_sandbox: args.allow_weak_sandbox,
        adopt: args.adopt.is_some(),
        register: context.register.clone(),
    };
    let started = teamd_daemon::start(options)?;
    // In the foreground it has run and ended by now: there is nothing to report.
    if args.foreground && !started.already_running {
        return Ok(ExitCode::Done);
    }
    report(context, &started)
}

/// Dials home, or serves a link that home has dialled.
fn host(context: &Context, args: ServeHost) -> CommandResult {
    context.set_signals();
    let Some(home) = args.home else {
        return dial(context, args);
    };
    serve_home(context, home, &args)
}

/// Dials home until a person must do something.
fn dial(context: &Context, args: ServeHost) -> CommandResult {
    let usage = |why: String, hint: &str| CommandError::new(ExitCode::Usage, why).hint(hint);
    let Some(place) = args.dial else {
        let why = "it is not said where home is".to_owned();
        return Err(usage(
            why,
            "name it as for ssh: `teamd host --dial USER@HOST`",
        ));
    };
    let home = dialled_home(place, args.dials)?;
    let options = teamd_daemon::DialOptions {
        home,
        allow_weak_sandbox: args.allow_weak_sandbox,
        register: context.register.clone(),
        settings: context.settings.clone(),
    };
    let place = options.home.to_string();
    let note = |news: LinkNote<'_>| {
        if context.out.is_json() {
            let why = match news {
                LinkNote::Linked => None,
                LinkNote::Broken(why) => Some(why),
            };
            let line = json!({"home": &place, "linked": why.is_none(), "why": why});
            // It works on where its output is not read.
            context.out.json(&line).ok();
            return;
        }
        let text = match news {
            LinkNote::Linked => format!("linked to {place}"),
            LinkNote::Broken(why) => format!("no link to {place}: {why}; it is dialled again"),
        };
        context.out.note(escape::line(&text));
    };
    match teamd_daemon::dial(&options, note)? {}
}

/// Returns how home is dialled: over a NATS cluster if its link is named, else over `ssh`.
fn dialled_home(place: String, args: DialArgs) -> Result<DialledHome, CommandError> {
    let usage = |why: String, hint: &str| CommandError::new(ExitCode::Usage, why).hint(hint);
    let (Some(subject), Some(credentials)) = (args.link, args.credentials) else {
        if place.starts_with("tls://") {
            let why = format!("{place} is a server of a NATS cluster, and no link there is named");
            return Err(usage(
                why,
                "`teamctl host invite` at home prints the command",
            ));
        }
        can_be_dialled(&place)
            .map_err(|why| usage(why, "name home as for ssh: `--dial USER@HOST`"))?;
        let key = args.key.as_deref();
        let key = key.map(|key| hidden_file(key, "key", HiddenPlace::Ssh));
        return Ok(DialledHome::Ssh {
            place,
            key: key.transpose()?,
        });
    };
    let link = nats_link(subject, place, &credentials, args.ca)?;
    Ok(DialledHome::Nats(link))
}

/// Starts the host daemon or finds it, and passes frames until either side ends.
fn serve_home(context: &Context, home: Uuid, args: &ServeHost) -> CommandResult {
    let dir = host_team_dir(|name| std::env::var_os(name), home).map_err(|error| {
        CommandError::refused("cannot find a place for the host daemon", &error)
    })?;
    if let (Some(name), Some(length)) = (args.take, args.length) {
        teamd_daemon::take_file(&TeamDir::open(&dir)?, name, length)?;
        return Ok(ExitCode::Done);
    }
    if let Some(name) = args.give {
        teamd_daemon::give_file(&TeamDir::open(&dir)?, name)?;
        return Ok(ExitCode::Done);
    }
    let options = teamd_daemon::HostOptions {
        dir: dir.clone(),
        home,
        replace: args.replace,
        allow_weak_sandbox: args.allow_weak_sandbox,
        register: context.register.clone(),
        settings: context.settings.clone(),
    };
    teamd_daemon::start_host(&options)?;
    let dir = TeamDir::open(&dir)?;
    block_on(teamd_daemon::relay(&dir))?;
    Ok(ExitCode::Done)
}

/// Reports that the daemon is running, and what it found. It is running even where that cannot be
/// read.
fn report(context: &Context, started: &teamd_daemon::Started) -> CommandResult {
    let pid = started.pid;
    let path = context.path.display();
    let takeover = if started.already_running {
        Ok(journal::TakenOver::default())
    } else {
        taken_over(context)
    };
    if context.out.is_json() {
        let takeover = takeover.ok();
        context.out.json(&json!({
            "pid": pid, "already_running": started.already_running, "replaced": started.replaced,
            "team_dir": context.path, "adopted": takeover.as_ref().map(|it| &it.adopted),
            "ended": takeover.as_ref().map(|it| &it.ended), "expired": takeover.as_ref().map(|it| &it.expired),
            "pending": takeover.as_ref().map(|it| &it.pending), "torn": started.aside.torn, "roster": started.aside.roster,
        }))?;
        return Ok(ExitCode::Done);
    }
    let how = match (started.already_running, started.replaced) {
        (true, _) => "is already running",
        (false, true) => "has replaced the running daemon",
        (false, false) => "is running",
    };
    context
        .out
        .text(format_args!("teamd {how} for {path} (pid {pid})"))?;
    let takeover = takeover.unwrap_or_else(|error| {
        context
            .out
            .note(format_args!("what it found cannot be read: {error}"));
        context
            .out
            .hint("`teamctl status` and `teamctl requests` show it");
        journal::TakenOver::default()
    });
    let teamd_daemon::SetAside { torn, roster } = started.aside.clone();
    let takeover = journal::TakenOver {
        torn,
        roster,
        ..takeover
    };
    if takeover != journal::TakenOver::default() {
        context.out.text(takeover)?;
    }
    note_unclaimed(context);
    Ok(ExitCode::Done)
}

/// Notes of which orders no running teammate may claim the tasks. What cannot be read now was
/// reported before.
fn note_unclaimed(context: &Context) {
    let team = context.dir().and_then(|dir| journal::fold(&dir));
    let Ok(team) = team else {
        return;
    };
    for order in team.orders_in_force() {
        if let Some(why) = team.no_claimer(order) {
            orders::note_unclaimed(context, order, &why);
        }
    }
}

/// Reads what the daemon found, once it has recorded the ended teammates and their expired
/// requests, and the roster shows them.
fn taken_over(context: &Context) -> Result<journal::TakenOver, CommandError> {
    let dir = context.dir()?;
    let mut takeover = journal::taken_over(&dir)?;
    if !takeover.unrecorded.is_empty() {
        roster::until_ended(&dir, &takeover.unrecorded)?;
        takeover = journal::taken_over(&dir)?;
    }
    roster::until_shown(&dir, takeover.seq)?;
    Ok(takeover)
}

fn status(context: &Context) -> CommandResult {
    begin(context);
    let answered = match context.dir().and_then(|dir| block_on(ping(&dir))) {
        Ok(answered) => Some(answered),
        // For a question after the status this is the answer, and no error.
        Err(error) if error.code() == ExitCode::NotRunning => None,
        Err(error) => return Err(error),
    };
    let path = context.path.display();
    let text = match &answered {
        Some(Pong { pid, version, .. }) => {
            format!("teamd is running for {path} (pid {pid}, version {version})")
        }
        None => format!("teamd is not running for {path}"),
    };
    let running = answered.is_some();
    let pid = answered.as_ref().map(|pong| pong.pid);
    let version = answered.as_ref().map(|pong| pong.version.as_str());
    let team_name = answered.as_ref().map(|pong| pong.team_name.as_str());
    let trouble = answered.as_ref().and_then(|pong| pong.trouble.as_deref());
    let daemon = json!({"running": running, "pid": pid, "version": version, "trouble": trouble});
    context.out.result(
        &json!({"team_name": team_name, "team_dir": context.path, "daemon": daemon}),
        text,
    )?;
    if let Some(why) = trouble {
        context
            .out
            .note(format_args!("the daemon {}", escape::line(why)));
    }
    if running {
        return Ok(ExitCode::Done);
    }
    context.out.hint("`teamd start` starts it");
    Ok(ExitCode::NotRunning)
}

/// What a daemon reports of itself.
struct Pong {
    pid: u32,
    team_name: String,
    version: String,
    trouble: Option<String>,
}

async fn ping(dir: &TeamDir) -> Result<Pong, CommandError> {
    match Client::connect(dir).await?.call(Order::Ping).await? {
        Done::Pong {
            pid,
            team_name,
            version,
            trouble,
            ..
        } => Ok(Pong {
            pid,
            team_name,
            version,
            trouble,
        }),
        other => Err(unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use teamd_client::testing::context;
    use teamd_shared::team_dir::TeamPath;

    /// A team directory whose journal is no file, as none would be of which no descriptor is left.
    fn unreadable() -> (tempfile::TempDir, TeamDir) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        std::fs::create_dir(dir.path(&TeamPath::journal())).unwrap();
        (scratch, dir)
    }

    #[test]
    fn the_command_line_is_consistent() {
        TeamdCli::command().debug_assert();
    }

    #[test]
    fn a_daemon_runs_although_it_cannot_be_read_what_it_has_found() {
        let (_scratch, dir) = unreadable();
        let aside = teamd_daemon::SetAside {
            torn: Some(3),
            roster: None,
        };
        let started = teamd_daemon::Started {
            pid: 7,
            already_running: false,
            replaced: false,
            aside,
        };
        let (of_people, stdout, stderr) = context(&dir, false);
        assert_eq!(report(&of_people, &started), Ok(ExitCode::Done));
        let said = stdout.text();
        assert!(
            said.starts_with("teamd is running for ") && said.contains("(3 bytes)"),
            "{said}"
        );
        assert!(
            stderr
                .text()
                .starts_with("note: what it found cannot be read: "),
            "{}",
            stderr.text()
        );
        let (of_programs, stdout, _) = context(&dir, true);
        assert_eq!(report(&of_programs, &started), Ok(ExitCode::Done));
        let said: serde_json::Value = serde_json::from_str(&stdout.text()).unwrap();
        assert_eq!(
            (&said["pid"], &said["adopted"], &said["torn"]),
            (&json!(7), &json!(null), &json!(3))
        );
    }
}
