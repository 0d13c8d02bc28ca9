//! The command line of `teamctl`, and what it shares with that of `teamd`.
//!
//! What can be checked without looking at the team is checked here: names, times, ids. A wrong one is exit
//! code 2 before anything happens.

mod value;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use teamd_shared::member::{ApproveBy, Restart, SandboxMode, Status};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::schema::Of;

pub(crate) use value::{LogName, Mailbox, duration};
use value::{
    approve_by, log_name, mailbox, memory, model, restart, sandbox, schema, seconds, status, teammate, tokens,
};

/// Where the help shows what every command takes.
const EVERYWHERE: &str = "Options of every command";

/// What every command of both programs takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Global {
    /// The team directory [default: the nearest .team here or above, else ./.team]
    #[arg(long, value_name = "DIR", global = true, env = "TEAM_DIR", hide_env_values = true)]
    #[arg(value_hint = ValueHint::DirPath, help_heading = EVERYWHERE)]
    pub(crate) team_dir: Option<OsString>,

    /// Print JSON: one object, or one a line with --follow; errors as JSON on stderr
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
}

/// Lead a team of agent processes.
///
/// Each teammate is a process of its own, which the daemon of the team (`teamd`) supervises. Everything that
/// they say and do stands in plain files under the team directory.
#[derive(Debug, Parser)]
#[command(name = "teamctl", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "First steps:\n  teamd start\n  teamctl spawn alice --prompt '/bash cargo test'\n  \
    teamctl inbox\n  teamctl shutdown alice\n\nExit codes:\n  0 done                1 failed       2 usage\n  \
    3 rejected            4 not found    5 timed out\n  6 daemon not running  7 conflict     130 interrupted")]
pub(crate) struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands, in the order in which a person meets them.
// What each says of itself stands here: its arguments are made only when it is the one that is called, since
// making those of all takes longer than most commands.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Start a teammate
    ///
    /// Returns when its worker is ready. It works in the environment of this command. What the command line does
    /// not say, the environment (TEAM_…) says, else team.toml, beside the team directory.
    Spawn(Box<Spawn>),
    /// Ask teammates to leave, and wait until their processes are gone
    ///
    /// An idle teammate leaves at once. A working one may reject; what it says is shown, and it goes on.
    Shutdown(Shutdown),
    /// Show who is on the roster, and what everybody does
    ///
    /// Reads files only: it works without a daemon too.
    #[command(visible_alias = "ls")]
    Status(StatusArgs),
    /// Send a message to a teammate
    Send(Send),
    /// Send a message to every teammate that runs
    Broadcast(Broadcast),
    /// End what a teammate is doing, but not the teammate
    Interrupt(Interrupt),
    /// Show the last messages of an inbox; nothing is consumed
    Inbox(Inbox),
    /// Show a teammate's conversation with its model
    Transcript(Transcript),
    /// Show the log of a worker, or of the daemon
    Log(Log),
    /// Show what the daemon has decided, from its journal
    Events(Events),
    /// Show requests, and where they stand
    Requests(Requests),
    /// Show the plans that wait for an answer
    Plans(Plans),
    /// Approve a plan: its teammate may change things until the next one
    Approve(Approve),
    /// Reject a plan: its teammate changes nothing, and may submit another one
    Reject(Reject),
    /// Ask a teammate for a plan: from now on it changes nothing until one is approved
    RequestPlan(RequestPlan),
    /// Wait until a teammate has a status
    Wait(Wait),
    /// Take a teammate that has ended off the roster; its files go into the archive
    Forget(Forget),
    /// Talk to the lead agent, which leads the team for you
    ///
    /// It is started if it does not run. Without a terminal it is told what stands on stdin, and its answers are
    /// printed until the work is done: `echo "fix the failing test" | teamctl chat`
    Chat(Chat),
    /// Watch a teammate's conversation, and talk to it
    ///
    /// What you type is sent as a message. Leaving ends nothing.
    Attach(Attach),
    /// Look for what is wrong with this machine and the team directory, and say what to do
    ///
    /// A confined child really tries to break out. Each finding is ok, a note or a problem. Ends with 1 if there is a
    /// problem, else with 0. It may be run beside a team that works.
    Doctor(Doctor),
    /// Say what our readers make of files that others write: inboxes, journal, roster, transcripts, team.toml
    ///
    /// One line for each place, FILE:LINE:COLUMN. Ends with 1 if something is not read as it stands, with 0 if all is, with
    /// warnings or without.
    Lint(Lint),
    /// Print the JSON Schema of what stands in the files
    ///
    /// Of one line, where a file has a record a line. Without a name all of them, as one object.
    Schema(Schema),
    /// Print a completion script for a shell
    ///
    /// For bash: `teamctl completions bash > ~/.local/share/bash-completion/completions/teamctl`
    Completions(Completions),
}

#[derive(Debug, Args)]
pub(crate) struct Spawn {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -
    #[arg(value_parser = teammate)]
    pub(crate) name: Name,
    /// What it is for, such as "reviewer"
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// What it shall do first
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file, or from stdin (-)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) prompt_file: Option<PathBuf>,
    /// The model: script, anthropic:MODEL or openai:MODEL, or the provider alone [default: by the key that is set, else script]
    #[arg(long, value_name = "MODEL", value_parser = model)]
    pub(crate) model: Option<ModelSpec>,
    /// The directory to work in [default: the one that holds the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// It must submit a plan, and change nothing before the plan is approved
    #[arg(long)]
    pub(crate) plan: bool,
    /// Who answers its plans [default: person]
    #[arg(long, value_name = "WHO", value_parser = approve_by())]
    pub(crate) approve_by: Option<ApproveBy>,
    /// What its commands may write [default: workspace-write]; off: whatever you may
    #[arg(long, value_name = "MODE", value_parser = sandbox())]
    pub(crate) sandbox: Option<SandboxMode>,
    /// Its commands reach no network
    #[arg(long)]
    pub(crate) no_network: bool,
    /// A directory or file outside the workspace that its commands may write; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) writable: Vec<PathBuf>,
    /// How many model calls one piece of its work may take [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How many tokens one piece of its work may cost, such as 200k or 2M [default: no limit]
    #[arg(long, value_name = "N", value_parser = tokens)]
    pub(crate) max_tokens: Option<u64>,
    /// How much memory it may use, such as 2G [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// How much CPU time it may use, such as 1h [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) cpu_time: Option<u64>,
    /// How many processes its commands may have [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_procs: Option<u32>,
    /// How long one life of it may last, such as 8h: then it is asked to leave, and ended [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) max_time: Option<u64>,
    /// Who is trusted to name its model's service: platform, embedded or a FILE of certificates
    #[arg(long, value_name = "CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// When it is started again after its worker ended [default: on-failure]
    #[arg(long, value_name = "POLICY", value_parser = restart())]
    pub(crate) restart: Option<Restart>,
    /// Go on with the conversation of its last life, and read all mail that it had not read
    #[arg(long)]
    pub(crate) resume: bool,
    /// How long to wait until it is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Whom to ask
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) names: Vec<Name>,
    /// Ask every teammate that runs; the lead agent stays
    #[arg(long)]
    pub(crate) all: bool,
    /// Why, for its model to weigh
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// How long to wait [default: 120s, with --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long its model has to decide, before its runtime says yes [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) decide_within: Option<Duration>,
    /// End it with signals after the timeout, whatever it says (0: at once)
    #[arg(long)]
    pub(crate) force: bool,
    /// Return when the request is recorded
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show everything about one teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Option<Name>,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// To whom: a teammate, lead or user
    #[arg(value_parser = mailbox)]
    pub(crate) name: Mailbox,
    /// The message; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Send it although the teammate does not run: its next life reads it
    #[arg(long)]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Broadcast {
    /// The message; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct Interrupt {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
}

// Which records of a file to show. (As documentation this would take the place of what the command says.)
#[derive(Debug, Clone, Args)]
pub(crate) struct Range {
    /// Show only the last N
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Go on with what is added, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Inbox {
    /// Whose inbox
    #[arg(default_value = "lead", value_parser = mailbox)]
    pub(crate) name: Mailbox,
    /// Show the last N
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// Go on with what arrives, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Transcript {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Which entries.
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// A teammate, or teamd
    #[arg(value_parser = log_name)]
    pub(crate) name: LogName,
    /// Which lines.
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Which events.
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Requests {
    /// Show everything about one: its id, or the beginning of it
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Plans {
    /// Show the whole of one: its id, or the beginning of it
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The plan: its id, or the beginning of it
    pub(crate) id: String,
    /// What to mind; - reads it from stdin
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) feedback: String,
}

#[derive(Debug, Args)]
pub(crate) struct Reject {
    /// The plan: its id, or the beginning of it
    pub(crate) id: String,
    /// What to change; - reads it from stdin
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) feedback: String,
}

#[derive(Debug, Args)]
pub(crate) struct RequestPlan {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// What the plan shall be about; - reads it from stdin
    #[arg(default_value = "Submit a plan before you change anything else.", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// How long to wait until nothing that began before runs any more
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Which one, or several with commas
    #[arg(long = "for", value_name = "STATUS", required = true, value_delimiter = ',', value_parser = status())]
    pub(crate) status: Vec<Status>,
    /// How long to wait [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// The model of a lead agent that is started, as PROVIDER or PROVIDER:MODEL
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The directory in which it works [default: the one that holds the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Begin a new conversation instead of resuming the last one; not beside a lead agent that runs
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Show the last N entries of the conversation at first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait until the work is done [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Show the last N entries of the conversation at first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait until the work is done [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Set right what can be set right without deleting anything, and tell each thing that was done
    ///
    /// Beside a daemon only what is not its own; without one also the journal's torn end, the roster, and what dead
    /// processes left.
    #[arg(long)]
    pub(crate) fix: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// The files; - is stdin
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<String>,
    /// What they are [default: as their names say, else messages]
    #[arg(long = "as", value_name = "WHAT")]
    pub(crate) kind: Option<LintAs>,
}

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LintAs {
    /// An inbox.
    Messages,
    /// The journal.
    Journal,
    /// config.json.
    Roster,
    /// A transcript.
    Transcript,
    /// team.toml.
    Settings,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Which one
    #[arg(value_name = "WHAT", value_parser = schema())]
    pub(crate) of: Option<Of>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does() {
        let (early, mut cli) = (Cli::command(), Cli::command());
        cli.build();
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let listed = early.find_subcommand(command.get_name()).unwrap();
            let said = |command: &clap::Command| command.get_about().map(ToString::to_string);
            assert_eq!(said(listed), said(command), "{}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn global_flags_stand_before_or_behind_the_command() {
        for line in ["teamctl --json --team-dir x ls", "teamctl ls --json --team-dir x"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.team_dir == Some("x".into()), "{line}");
        }
    }

    #[test]
    fn text_may_look_like_a_flag_and_flags_may_follow_it() {
        let Command::Send(send) = parse("teamctl send alice -").unwrap() else { panic!() };
        assert_eq!(send.text, "-");
        let line = ["teamctl", "send", "user", "--no, not that", "--queue"];
        let Command::Send(send) = Cli::try_parse_from(line).unwrap().command else { panic!() };
        assert_eq!((send.text.as_str(), send.queue), ("--no, not that", true));
        assert_eq!(send.name, Mailbox { to: "user".into(), owner: Name::lead() });
    }

    #[test]
    fn what_makes_no_sense_is_a_usage_error() {
        for line in [
            "teamctl",
            "teamctl spawn",
            "teamctl spawn Alice",
            "teamctl spawn lead",
            "teamctl spawn a --prompt x --prompt-file y",
            "teamctl spawn a --restart always",
            "teamctl spawn a --timeout soon",
            "teamctl spawn a --model gpt",
            "teamctl spawn a --sandbox none",
            "teamctl spawn a --max-turns 0",
            "teamctl spawn a --max-tokens 0",
            "teamctl spawn a --max-tokens many",
            "teamctl spawn a --memory 10M",
            "teamctl spawn a --cpu-time 0",
            "teamctl spawn a --max-procs 0",
            "teamctl spawn a --max-time soon",
            "teamctl shutdown",
            "teamctl shutdown a --all",
            "teamctl send ../x hi",
            "teamctl wait a",
            "teamctl wait a --for gone",
            "teamctl log all",
            "teamctl completions tcsh",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_lead_agent_is_named_where_a_member_is_and_only_chat_starts_it() {
        let error = parse("teamctl spawn lead").unwrap_err().to_string();
        assert!(error.contains("`teamctl chat` starts the lead agent"), "{error}");
        for line in [
            "teamctl shutdown lead",
            "teamctl status lead",
            "teamctl interrupt lead",
            "teamctl transcript lead",
            "teamctl log lead",
            "teamctl wait lead --for idle",
            "teamctl forget lead",
            "teamctl send lead hi",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        assert!(parse("teamctl shutdown user").is_err());
    }

    #[test]
    fn times_names_and_policies_are_read() {
        let line = "teamctl spawn a --timeout 2m --restart never --approve-by lead";
        let Command::Spawn(spawn) = parse(line).unwrap() else { panic!() };
        assert_eq!(spawn.timeout, Duration::from_secs(120));
        assert_eq!((spawn.restart, spawn.approve_by), (Some(Restart::Never), Some(ApproveBy::Lead)));
        let line = "teamctl spawn a --max-tokens 1.5M --max-turns 7 --sandbox off --model openai:q:8b";
        let Command::Spawn(spawn) = parse(line).unwrap() else { panic!() };
        assert_eq!((spawn.max_tokens, spawn.max_turns), (Some(1_500_000), Some(7)));
        assert_eq!(spawn.sandbox, Some(SandboxMode::Off));
        assert_eq!(spawn.model.unwrap().to_string(), "openai:q:8b");
        let Command::Shutdown(shutdown) = parse("teamctl shutdown a b").unwrap() else { panic!() };
        assert_eq!((shutdown.names.len(), shutdown.timeout), (2, None));
        assert_eq!(shutdown.decide_within, None);
        let Command::Wait(wait) = parse("teamctl wait a --for idle,shutdown").unwrap() else { panic!() };
        assert_eq!(wait.status, [Status::Idle, Status::Shutdown]);
    }
}
