//! The command line of `teamctl`, and what it shares with that of `teamd`.
//!
//! Names, times and ids are checked here: a wrong one is exit code 2 before anything happens.

#![expect(
    missing_docs,
    reason = "clap takes a doc line of the arguments for the help of their command"
)]

mod acting;
mod at;
mod completers;
mod groups;
mod hosts;
mod looking;
mod tasks;
mod value;

use clap::{Parser, Subcommand, ValueHint};

use crate::context::Global;

pub use acting::{
    AcpArgs, Approve, Attach, BroadcastArgs, Chat, CompactArgs, Down, Forget, Mcp, McpCommand,
    McpInstall, MemoryArgs, MemoryCommand, RequestPlanArgs, Send, Shutdown, Spawn, Teammate, Up,
    VerdictArgs, Wait,
};
pub use at::At;
pub use groups::lay_out;
pub use hosts::{HostArgs, HostCommand, NatsArgs};
pub use looking::{
    Agents, AgentsCommand, Column, Completions, Diagram, DiagramFormat, Doctor, EventsArgs,
    InboxArgs, InstallArgs, InstallFlags, Lint, LintAs, Logs, PortArgs, Range, RequestsArgs,
    Schema, StatusArgs, TranscriptArgs, Web,
};
pub use tasks::{
    Branch, Diff, Land, PullRequestCommand, PullRequestWatch, PullRequests, ReviewArgs, Run,
    TaskCommand, TaskEdit, TaskImport, TaskListArgs, Tasks,
};
pub use value::MailboxName;

/// Lead a team of agent processes
///
/// Each teammate is a process, supervised by the team's daemon (`teamd`). Messages and
/// conversations are plain files in the team directory.
#[derive(Debug, Parser)]
#[command(
    name = "teamctl",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "First steps:\n  teamd start\n  teamctl spawn alice --prompt '/bash cargo test'\n  \
    teamctl inbox\n  teamctl shutdown alice\n\nExit codes:\n  0 done                1 failed       2 usage\n  \
    3 rejected            4 not found    5 timed out\n  6 daemon not running  7 conflict     130 interrupted\n\n\
    Requests that wait for you: teamctl plans, teamctl reviews\nManual pages: man teamctl, man teamctl-spawn …"
)]
pub struct Cli {
    /// Run the command on another machine, by ssh, in DIR there [default: your home there]
    ///
    /// It stands before the command. The rest of the line is meant for `teamctl` there: its paths
    /// are paths there, and - is stdin here.
    #[arg(short = 'H', long, value_name = "USER@HOST:DIR", value_parser = at::at(), value_hint = ValueHint::Hostname)]
    pub at: Option<At>,
    /// The options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: TeamctlCommand,
}

/// The commands, in the order in which a person needs them.
// The help of each is here, and not at its arguments: those are built only for the command that is
// called, since to build all of them takes longer than most commands.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum TeamctlCommand {
    /// Start a teammate
    ///
    /// Returns when the worker is ready. The worker inherits the environment of this command.
    /// Options that are not given come from the environment (TEAM_…), then from team.toml beside
    /// the team directory. A name that was used before keeps its role unless --role is given; with
    /// --resume it also keeps its other options.
    Spawn(Box<Spawn>),
    /// Start the teammates defined in team.toml
    ///
    /// `[members.coder]` defines the teammate coder; with `count = 3`, coder-1 to coder-3.
    /// Teammates that are already running are left alone. Starts the daemon if it is not running.
    Up(Up),
    /// Shut down every teammate, then stop the daemon
    Down(Down),
    /// Shut teammates down, and wait until their processes have exited
    ///
    /// An idle teammate exits at once. A working one may reject the request: its reason is shown,
    /// and it keeps working.
    Shutdown(Shutdown),
    /// Show the teammates and what they are doing
    ///
    /// Only reads files, so it also works without a daemon. At a terminal, --watch is `top`.
    #[command(visible_alias = "ls", aliases = ["ps", "list"])]
    Status(StatusArgs),
    /// Watch and control the team in a full-screen view
    ///
    /// Five panes: team, requests, tasks, feed and conversation. Keys approve plans, send messages,
    /// interrupt, spawn and shut down; `?` lists them. Quitting stops nothing but the view.
    Top,
    /// Show the team on a web page, and steer it there
    ///
    /// Serves the page on 127.0.0.1 and prints its address, until Ctrl-C. The part behind # is a
    /// key: only a browser that has it is answered.
    Web(Web),
    /// Open a port of a teammate in your browser
    ///
    /// Prints an address on this machine, and serves there what the teammate serves on a localhost
    /// of its own, until Ctrl-C. Only a browser that was given the printed address is answered.
    Port(PortArgs),
    /// Send a message to a teammate
    #[command(alias = "tell")]
    Send(Send),
    /// Send a message to every running teammate
    Broadcast(BroadcastArgs),
    /// Interrupt a teammate's current turn
    Interrupt(Teammate),
    /// Put the conversation of a built-in agent into a summary
    Compact(CompactArgs),
    /// Show the last messages of an inbox, without consuming them
    Inbox(InboxArgs),
    /// Show a teammate's conversation with its model
    Transcript(TranscriptArgs),
    /// Show the logs of teammates and of the daemon (`teamd`), merged by time
    #[command(visible_alias = "log")]
    Logs(Logs),
    /// Show the daemon's decisions from the journal
    Events(EventsArgs),
    /// Draw the team's history as a sequence diagram
    ///
    /// Messages are arrows, incarnations are bars, and the steps of a request share a colour. In
    /// Markdown, put the output between
    /// ```mermaid and ```.
    Diagram(Diagram),
    /// Show turns, tokens, cost and time per teammate and task
    ///
    /// WORKING is the time from a message to the final answer, minus WAITING: the time in which a
    /// plan of the teammate was unanswered. For a task, WAITING is the time that its checks ran or
    /// were queued.
    Stats,
    /// List requests and their states
    Requests(RequestsArgs),
    /// List the plans that are waiting for approval (of `requests`)
    #[command(hide = true)]
    Plans(RequestsArgs),
    /// List the submitted work that is waiting for review (of `requests`)
    #[command(hide = true)]
    Reviews(RequestsArgs),
    /// Look at submitted work, comment on its lines, and approve or reject it
    ///
    /// Shows the task, its check, its cost and the whole diff. Work is approved once all of it was
    /// on the screen; comments go to the author with file and line. In a pipe, prints it.
    Review(ReviewArgs),
    /// Approve a plan, so that its author may make changes, or submitted work
    Approve(Approve),
    /// Reject a plan, so that its author stays read-only, or send submitted work back
    Reject(VerdictArgs),
    /// Ask a teammate for a plan, and make it read-only until a plan is approved
    RequestPlan(RequestPlanArgs),
    /// Create and manage tasks
    ///
    /// A teammate claims a task and submits it; the task is completed when its check exits with 0.
    Task(Tasks),
    /// List unfinished tasks (same as `task list`)
    #[command(name = "tasks")]
    TaskList(TaskListArgs),
    /// List the orders of team.toml: tasks that are made by themselves
    ///
    /// Shows when each makes its next task, and which it made last. Only reads files, so it also
    /// works without a daemon; without one, none is made.
    Orders,
    /// Show what the team remembers, or take some of it back
    ///
    /// Teammates propose it with their tool `remember`, and you accept it with `approve`. A teammate
    /// reads it when its conversation begins. `groups = ["memory"]` in `[tools]` of team.toml switches it
    /// on.
    Memory(MemoryArgs),
    /// Add other machines that run teammates, over ssh
    ///
    /// A host needs an `ssh` login without a question, and teamd on the PATH of that login. Its
    /// owner can read the keys and the work of the teammates there.
    Host(HostArgs),
    /// Show the changes in a teammate's checkout, or those submitted for a task
    Diff(Diff),
    /// Merge your branch into the integration branch, after a check of the result
    Sync(Branch),
    /// Fast-forward your branch to the integration branch, after `sync` if it has moved
    ///
    /// With --pr, your branch stays: what is integrated is pushed to a branch of its own, and your
    /// `gh` opens a pull request, or renews its text. That has, for each task, the check with its
    /// exit code and time, the tree that was checked, and who approved it.
    Land(Land),
    /// Watch a pull request
    Pr(PullRequests),
    /// Run the team until its tasks or a goal are done
    ///
    /// Starts the daemon and the members of team.toml, each of which is given the next task while
    /// it is idle. A GOAL goes to the lead agent, which makes the tasks. Shows each change, shuts
    /// down what it has started, and reports the outcome of each task. Exits 0 if every task is
    /// completed, 3 if one is not, 5 if a limit was reached. If it was killed, run the same command
    /// again to continue.
    Run(Run),
    /// List the agents that a teammate can run, and install one
    ///
    /// `builtin` is the agent loop that calls a model (`spawn --model`). team.toml adds other
    /// programs (`[agents.NAME]`).
    Agents(Agents),
    /// Wait until teammates reach a status, or tasks are completed
    Wait(Wait),
    /// Remove ended teammates from the team, and archive their files
    #[command(alias = "rm")]
    Forget(Forget),
    /// Chat with the lead agent, which runs the team for you
    ///
    /// Starts the lead agent if it is not running. In a pipe, stdin is the message, and the answers
    /// are printed until the work is done: `echo "fix the failing test" | teamctl chat`
    Chat(Chat),
    /// Serve the team to another agent by MCP, on stdin and stdout; list and install MCP servers
    ///
    /// That agent then leads the team: `claude mcp add team -- teamctl mcp`. Starts the daemon if it
    /// is not running. It consumes no messages. Where a person must decide, the answer of that agent
    /// does not count.
    Mcp(Mcp),
    /// Serve a teammate to an editor by ACP, on stdin and stdout
    ///
    /// For Zed, JetBrains, acpx and other clients of the Agent Client Protocol: the command of an
    /// agent there is `teamctl acp NAME`. A prompt is a message from `user`. Starts the daemon if it
    /// is not running; when the editor quits, the teammate continues.
    Acp(AcpArgs),
    /// Follow a teammate's conversation, and talk to it
    ///
    /// Each line that you type is sent as a message. Quitting does not stop the teammate.
    Attach(Attach),
    /// Check this machine and the team directory, and explain how to fix each problem
    ///
    /// The sandbox is tested by a child process that tries to break out. Each finding is ok, a note
    /// or a problem. Exits 1 if there is a problem, else 0. Safe to run while the team works.
    Doctor(Doctor),
    /// Check hand-written or generated files: inboxes, journal, roster, transcripts, team.toml
    ///
    /// Prints FILE:LINE:COLUMN for each problem. Exits 1 if any line is rejected, and 0 if there
    /// are at most warnings.
    Lint(Lint),
    /// Print the JSON Schemas of the team's files and of command output
    ///
    /// The schema of a JSONL file describes one line. Without a name, prints all schemas as one
    /// object.
    Schema(Schema),
    /// Print a shell completion script
    ///
    /// It completes commands, options, names and ids. Save it for bash as
    /// ~/.local/share/bash-completion/completions/teamctl, for zsh as _teamctl in a directory of
    /// $fpath, and for fish as ~/.config/fish/completions/teamctl.fish.
    Completions(Completions),
}

/// Adds to the command line what a shell completes from files and its own definition does not name.
pub fn completed(mut teamctl: clap::Command) -> clap::Command {
    // The arguments of a command are added when it is built.
    teamctl.build();
    teamctl.mut_subcommand("spawn", completers::complete_terms)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use teamd_shared::member::{ApproveBy, MemberStatus, Restart, SandboxMode};
    use teamd_shared::name::Name;

    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<TeamctlCommand, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does() {
        let early = Cli::command();
        let mut cli = Cli::command();
        cli.build();
        for command in cli
            .get_subcommands()
            .filter(|command| command.get_name() != "help")
        {
            let listed = early.find_subcommand(command.get_name()).unwrap();
            let said = |command: &clap::Command| command.get_about().map(ToString::to_string);
            assert_eq!(said(listed), said(command), "{}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
    }

    #[test]
    fn global_flags_stand_before_or_behind_the_command() {
        for line in [
            "teamctl --json --team-dir x ls",
            "teamctl ls --json --team-dir x",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(
                cli.global.json && cli.global.team_dir == Some("x".into()),
                "{line}"
            );
        }
    }

    #[test]
    fn text_may_look_like_a_flag_and_flags_may_follow_it() {
        let TeamctlCommand::Send(send) = parse("teamctl send alice -").unwrap() else {
            panic!()
        };
        assert_eq!(send.text, "-");
        let line = ["teamctl", "send", "user", "--no, not that", "--queue"];
        let TeamctlCommand::Send(send) = Cli::try_parse_from(line).unwrap().command else {
            panic!()
        };
        assert_eq!((send.text.as_str(), send.queue), ("--no, not that", true));
        assert_eq!(
            send.name,
            MailboxName {
                to: "user".into(),
                owner: Name::lead()
            }
        );
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
            "teamctl send ../x hi",
            "teamctl wait",
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
        assert!(
            error.contains("`teamctl chat` starts the lead agent"),
            "{error}"
        );
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
        let TeamctlCommand::Spawn(spawn) = parse(line).unwrap() else {
            panic!()
        };
        assert_eq!(spawn.timeout, Duration::from_secs(120));
        assert_eq!(
            (spawn.terms.restart, spawn.terms.approve_by),
            (Some(Restart::Never), Some(ApproveBy::Lead))
        );
        let line =
            "teamctl spawn a --max-tokens 1.5M --max-turns 7 --sandbox off --model openai:q:8b";
        let TeamctlCommand::Spawn(spawn) = parse(line).unwrap() else {
            panic!()
        };
        assert_eq!(
            (spawn.terms.max_tokens, spawn.terms.max_turns),
            (Some(1_500_000), Some(7))
        );
        assert_eq!(spawn.terms.sandbox.mode, Some(SandboxMode::Off));
        assert_eq!(spawn.terms.model.unwrap().to_string(), "openai:q:8b");
        let TeamctlCommand::Shutdown(shutdown) = parse("teamctl shutdown a b").unwrap() else {
            panic!()
        };
        assert_eq!((shutdown.names.len(), shutdown.timeout), (2, None));
        assert_eq!(shutdown.decide_within, None);
        let TeamctlCommand::Wait(wait) = parse("teamctl wait a --for idle,shutdown").unwrap()
        else {
            panic!()
        };
        assert_eq!(wait.status, [MemberStatus::Idle, MemberStatus::Shutdown]);
    }
}
