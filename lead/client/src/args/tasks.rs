//! The arguments of `teamctl task` and `teamctl run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use teamd_shared::amount::parse_tokens;
use teamd_shared::free_text::FreeText;
use teamd_shared::name::Name;
use teamd_shared::price::{Dollars, parse_dollars};
use teamd_shared::task::{TaskFields, TaskId};

use super::value::{duration, pace};
use crate::args::completers::names;

/// The heading of the options for a pull request.
const PULL_REQUEST: &str = "Pull request";

// (A doc comment would replace the help of the command.)
#[derive(Debug, Args)]
pub struct Tasks {
    /// What to do
    #[command(subcommand)]
    pub command: TaskCommand,
}

// What can be done with tasks. (A doc comment would replace the help of the command.)
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Create a task, and print its id
    Add(Box<TaskAdd>),
    /// List unfinished tasks
    #[command(alias = "ls")]
    List(TaskListArgs),
    /// Show a task in full
    Show(TaskRef),
    /// Change a task, unless it is submitted or completed
    Edit(Box<TaskEdit>),
    /// Assign a task to a teammate; another owner loses it
    Assign(TaskAssign),
    /// Take a task from its owner, for any teammate to claim, and stop its check
    Release(TaskRef),
    /// Submit a task on behalf of its owner; its check decides
    Submit(TaskSubmit),
    /// Cancel a task
    #[command(alias = "rm")]
    Cancel(TaskRef),
    /// Reopen a failed or cancelled task, with these changes
    Retry(Box<TaskEdit>),
    /// Show the output of a task's last check
    Log(TaskLog),
    /// Create tasks from a Markdown checklist, TOML or JSON
    ///
    /// In a checklist (`- [ ] subject`, `1. [ ] subject`), an item waits for the items nested below
    /// it; other text below it is its description, and what becomes no task is reported. In TOML
    /// each `[[task]]`, and in JSON each object of an array, has the fields of `teamctl task show
    /// ID --json`; `id` is the number that `blocked_by` refers to.
    ///
    /// `gh:OWNER/REPO#12` is an issue on GitHub, read by your own `gh`; `--label` takes all open
    /// ones with a label. Each is imported once. Strangers write issues, so its task asks for a plan
    /// (`--no-plan`), and its text is quoted.
    Import(TaskImport),
}

#[derive(Debug, Args)]
pub struct Diff {
    /// Teammate, or id of a task
    #[arg(value_name = "NAME|TASK", add = names())]
    pub of: String,
}

#[derive(Debug, Args)]
pub struct ReviewArgs {
    /// Review or its beginning, task, or teammate with one pending review
    #[arg(value_name = "ID", add = names())]
    pub id: String,
    /// Run a program with the two commits instead, in the team repository, then ask
    #[arg(long, value_name = "COMMAND")]
    pub tool: Option<String>,
}

// A branch of the user. (A doc comment would replace the help of the commands.)
#[derive(Debug, Args)]
pub struct Branch {
    /// Branch [default: the current one]
    #[arg(long, value_name = "BRANCH")]
    pub into: Option<String>,
    /// How long to wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Land {
    #[command(flatten)]
    pub branch: Branch,
    /// Push what is integrated and open a pull request, instead of moving your branch; --into is
    /// then the branch of the remote that it is for
    #[arg(long, help_heading = PULL_REQUEST)]
    pub pr: bool,
    /// Remote that is pushed to [default: origin]
    #[arg(long, value_name = "NAME", requires = "pr", help_heading = PULL_REQUEST)]
    pub remote: Option<String>,
    /// Branch of the remote that is pushed to [default: team/NAME-OF-THE-TEAM]
    #[arg(long, value_name = "BRANCH", requires = "pr", help_heading = PULL_REQUEST)]
    pub head: Option<String>,
    /// Repository of the pull request [default: that of the remote]
    #[arg(long, value_name = "OWNER/REPO", requires = "pr", help_heading = PULL_REQUEST)]
    pub repo: Option<String>,
    /// Title [default: the numbers of the tasks]
    #[arg(long, value_name = "TEXT", requires = "pr", help_heading = PULL_REQUEST)]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub title: Option<String>,
    /// Open it as a draft
    #[arg(long, requires = "pr", help_heading = PULL_REQUEST)]
    pub draft: bool,
    /// Also push changes of files that CI runs, or that `[work] protect` names
    #[arg(long, requires = "pr", help_heading = PULL_REQUEST)]
    pub with_ci: bool,
    /// Also show what each task cost
    #[arg(long, requires = "pr", help_heading = PULL_REQUEST)]
    pub with_cost: bool,
}

// (A doc comment would replace the help of the command.)
#[derive(Debug, Args)]
pub struct PullRequests {
    /// What to do
    #[command(subcommand)]
    pub command: PullRequestCommand,
}

// What can be done with pull requests. (A doc comment would replace the help of the command.)
#[derive(Debug, Subcommand)]
pub enum PullRequestCommand {
    /// Make follow-up tasks from failed checks and comments, until Ctrl-C or the end of the pull
    /// request
    ///
    /// Asks your own `gh`. Each failed head commit, comment and review becomes one task, also over a
    /// restart: "follow-up of" the last task in it, with a plan, its text quoted. Comments count of
    /// OWNER, MEMBER and COLLABORATOR only.
    Watch(PullRequestWatch),
}

#[derive(Debug, Args)]
pub struct PullRequestWatch {
    /// Pull request: gh:OWNER/REPO#12
    #[arg(value_name = "gh:OWNER/REPO#N")]
    pub pull_request: String,
    /// How often to look, at least 5s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = pace)]
    pub every: Duration,
    /// How long each call of `gh` may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct Run {
    /// What the team is to reach: the lead agent makes the tasks; - reads it from stdin
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub goal: Option<String>,
    /// Make the tasks of a file first, as `task import` does; - is stdin
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tasks: Option<PathBuf>,
    /// How long the run may take [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// How many tokens the run may cost, such as 200k or 2M; those from a cache do not count
    /// [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_tokens)]
    pub max_tokens: Option<u64>,
    /// How many dollars the run may cost, such as 2.50 [default: no limit]
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    pub max_cost: Option<Dollars>,
    /// Write what came of each task: FILE.json, or FILE.xml for JUnit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    /// Leave the team running, if no limit is reached
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct TaskRef {
    /// Task
    #[arg(value_name = "ID")]
    pub id: TaskId,
}

#[derive(Debug, Args)]
pub struct TaskLog {
    /// The task
    #[arg(value_name = "ID")]
    pub id: TaskId,
    /// Print the output while the check runs, until it ends
    #[arg(long, short)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct TaskAdd {
    /// Subject: what to do, in one line
    #[arg(value_name = "SUBJECT", allow_hyphen_values = true, value_parser = FreeText)]
    pub subject: String,
    /// Further comments
    #[command(flatten)]
    pub fields: TaskFields,
    /// Allow a --for that no teammate has yet
    #[arg(long)]
    pub later: bool,
}

#[derive(Debug, Args)]
pub struct TaskEdit {
    /// Task
    #[arg(value_name = "ID")]
    pub id: TaskId,
    /// Subject: what to do, in one line
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = FreeText)]
    pub subject: Option<String>,
    /// Further comments
    #[command(flatten)]
    pub fields: TaskFields,
    /// Allow a --for that no teammate has yet
    #[arg(long)]
    pub later: bool,
}

#[derive(Debug, Args)]
pub struct TaskListArgs {
    /// Also list finished tasks
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct TaskAssign {
    /// Task
    #[arg(value_name = "ID")]
    pub id: TaskId,
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
}

#[derive(Debug, Args)]
pub struct TaskSubmit {
    /// Task
    #[arg(value_name = "ID")]
    pub id: TaskId,
    /// What was done
    #[arg(long, value_name = "TEXT", default_value = "")]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub summary: String,
}

#[derive(Debug, Args)]
pub struct TaskImport {
    /// File, - for stdin, or an issue: gh:OWNER/REPO#12
    #[arg(value_name = "FILE|gh:…", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Allow tasks for names and roles that no teammate has yet
    #[arg(long)]
    pub later: bool,
    /// Import the open issues of gh:OWNER/REPO that have a label
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    /// Let the work on an issue begin without an approved plan
    #[arg(long)]
    pub no_plan: bool,
    /// How long each call of `gh` may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,
}
