//! What a review shows, from the files of the team and from the team repository: the task, its
//! check, what it cost, and what it changes. `git` only reads here, with no settings but its own.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::{Value, json};
use teamd_client::act::answer::{Meant, meant};
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::render::count;
use teamd_client::print::{clock, tokens};
use teamd_client::read::{money, roster, tasks};
use teamd_shared::checkout::repository_of;
use teamd_shared::clock::wall;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::journal::{Record, Team};
use teamd_shared::request::{Payload, Request};
use teamd_shared::state::StateDir;
use teamd_shared::task::{Task, TaskId};
use teamd_shared::team_dir::TeamDir;

use super::changes::Changes;
use crate::model::{CostAccount, Past, Stand, ledger};

/// The most of a diff that is shown, in bytes.
const LONGEST: u64 = 64 << 20;
/// How many of the last lines of a check are shown.
const OUTPUT: usize = 12;

/// Two commits in the team repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commits {
    /// The team repository.
    pub repository: String,
    /// Where the work left the integration branch.
    pub base: String,
    /// What was submitted.
    pub commit: String,
    /// What was submitted before, if anything was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// What a person judges.
#[derive(Debug, Clone)]
pub struct Reviewed {
    /// The task.
    pub task: Task,
    /// The review that waits for an answer, if one does.
    pub request: Option<Request>,
    /// The last lines of the output of the last check, and how many there are.
    pub output: Vec<String>,
    /// How many lines that output has.
    pub output_lines: usize,
    /// What the task cost so far, for people; empty: that is not known.
    pub cost: String,
    /// What it cost, for programs.
    spent: Value,
    /// The commits; none: the work is in no checkout.
    pub commits: Option<Commits>,
    /// What it changes.
    pub changes: Changes,
    /// What is new since the last submission; none: this is the first one.
    pub since: Option<Changes>,
}

impl Reviewed {
    /// Finds the work that an id of a task or of a review, or the name of its author, refers to.
    ///
    /// # Errors
    /// If there is none, or if a file or the team repository cannot be read.
    pub fn find(context: &Context, word: &str) -> Result<Self, CommandError> {
        let dir = context.dir()?;
        let mut past = Past::default();
        let mut submitted = Vec::new();
        let team = load(&dir, Since::Start, |_, line| {
            past.line(line);
            if let Record::Task(record) = &line.record
                && let Some(submission) = &record.task.submission
                && let Some(commit) = &submission.commit
            {
                submitted.push((record.task.id, submission.number, commit.clone()));
            }
        })?;
        let (task, request) = find(&dir, &team, word)?;
        submitted.retain(|(id, ..)| *id == task.id);
        let number = task.submission.as_ref().map_or(0, |it| it.number);
        let before = submitted.into_iter().rfind(|(_, it, _)| *it < number);
        let before = before.map(|(.., commit)| commit);
        let log = tasks::read_log(&dir, task.id)?.unwrap_or_default();
        let lines: Vec<&str> = log.trim_end().lines().collect();
        let output_lines = lines.len();
        let last = lines.iter().skip(output_lines.saturating_sub(OUTPUT));
        let output = last.map(|line| (*line).to_owned()).collect();
        let (cost, spent) = cost(context, &dir, &past, task.id)?;
        let mut reviewed = Self {
            task,
            request,
            output,
            output_lines,
            cost,
            spent,
            commits: None,
            changes: Changes::default(),
            since: None,
        };
        reviewed.read_changes(&dir, before)?;
        Ok(reviewed)
    }

    fn read_changes(&mut self, dir: &TeamDir, before: Option<String>) -> Result<(), CommandError> {
        let submission = self.task.submission.as_ref();
        let Some(commit) = submission.and_then(|it| it.commit.clone()) else {
            return Ok(());
        };
        let repository = repository(dir)?;
        let git = GitReader { repository };
        let base = git.base(&commit)?;
        let attributes = git.attributes(&base)?;
        self.changes = Changes::parse(&git.diff(&base, &commit)?, &attributes);
        let before = before.filter(|before| *before != commit);
        if let Some(before) = before.as_ref().filter(|it| git.has(it)) {
            let since = Changes::parse(&git.diff(before, &commit)?, &attributes);
            self.since = Some(since);
        }
        self.commits = Some(Commits {
            repository: git.repository.display().to_string(),
            base,
            commit,
            before,
        });
        Ok(())
    }

    /// Returns who did the work.
    pub fn author(&self) -> &str {
        let submission = self.task.submission.as_ref();
        submission.map_or("", |it| it.by.as_str())
    }

    /// Says what it is, in one line.
    pub fn title(&self) -> String {
        let number = self.task.submission.as_ref().map_or(0, |it| it.number);
        let id = self.task.id;
        let author = self.author();
        match &self.request {
            Some(request) => format!(
                "review {} of {author}, task {id}, submission {number}",
                request.request_id
            ),
            None => format!("task {id}, submission {number} of {author}"),
        }
    }

    /// Says how the last check ended.
    pub fn check(&self) -> String {
        let Some(result) = &self.task.result else {
            return "none has run".to_owned();
        };
        let verified = format!("verified: {}", result.verified());
        let Some(check) = &result.check else {
            return format!("none, {verified}");
        };
        let exit = check
            .exit
            .map_or("was ended".to_owned(), |exit| format!("exited with {exit}"));
        format!(
            "`{}` {exit} after {}, {verified}",
            check.check.command,
            clock::span(check.seconds)
        )
    }

    /// Sums the changes up, in one line.
    pub fn summary(&self) -> String {
        if self.commits.is_none() {
            return "the work has no commit: it is in the workspace, and no diff of it is known"
                .to_owned();
        }
        summary(&self.changes)
    }

    /// Returns it for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "task": self.task,
            "request": self.request,
            "author": self.author(),
            "check": {"text": self.check(), "output": self.output},
            "cost": self.spent,
            "commits": self.commits,
            "added": self.changes.added(),
            "removed": self.changes.removed(),
            "files": self.changes.files,
            "since": self.since.as_ref().map(|it| &it.files),
        })
    }
}

#[cfg(test)]
impl Reviewed {
    /// Makes one of a diff.
    pub(crate) fn of_diff(task: Task, request: Request, diff: &str, since: Option<&str>) -> Self {
        Self {
            task,
            request: Some(request),
            output: vec!["all is well".to_owned()],
            output_lines: 1,
            cost: String::new(),
            spent: json!(null),
            commits: Some(Commits {
                repository: String::new(),
                base: String::new(),
                commit: String::new(),
                before: None,
            }),
            changes: Changes::parse(diff, ""),
            since: since.map(|diff| Changes::parse(diff, "")),
        }
    }
}

/// Sums changes up, in one line.
pub(crate) fn summary(changes: &Changes) -> String {
    let generated = changes.files.iter().filter(|it| it.generated).count();
    let generated = match generated {
        0 => String::new(),
        some => format!(", {some} generated"),
    };
    format!(
        "{}, +{} -{}{generated}",
        count(changes.files.len(), "file"),
        changes.added(),
        changes.removed()
    )
}

fn find(dir: &TeamDir, team: &Team, word: &str) -> Result<(Task, Option<Request>), CommandError> {
    if let Ok(id) = word.parse::<TaskId>()
        && team.requests.keys().all(|it| it.as_str() != word)
    {
        let task = tasks::find(team, dir, id)?;
        if task.submission.is_none() {
            let message = format!("nothing was submitted for task {id}");
            return Err(CommandError::new(ExitCode::NotFound, message)
                .hint("`teamctl diff NAME` shows what a teammate with a checkout has so far"));
        }
        let request = task.review_id().and_then(|it| team.requests.get(it));
        let request = request.filter(|it| it.is_pending()).cloned();
        return Ok((task, request));
    }
    let request = match meant(dir, word)? {
        Meant::This(request) | Meant::OnlyOneOf(request) => request,
    };
    let Payload::Review(review) = &request.payload else {
        let noun = request.kind.noun();
        let message = format!("{} is a {noun}, not a review", request.request_id);
        return Err(CommandError::new(ExitCode::NotFound, message)
            .hint("`teamctl reviews` shows what waits for a review"));
    };
    let task = tasks::find(team, dir, review.task)?;
    let is_of_now = task.review_id() == Some(&request.request_id);
    if !is_of_now && request.is_pending() {
        let message = format!("{} is no longer what is to be reviewed", request.request_id);
        return Err(CommandError::new(ExitCode::Conflict, message)
            .hint("`teamctl reviews` shows what waits for a review"));
    }
    let request = Some(request).filter(Request::is_pending);
    Ok((task, request))
}

/// Returns what a task cost: the conversations of those that held it say it.
fn cost(
    context: &Context,
    dir: &TeamDir,
    past: &Past,
    id: TaskId,
) -> Result<(String, Value), CommandError> {
    let roster = roster::load(dir)?;
    let prices = money::prices(context);
    let mut account = CostAccount::new(past, wall());
    let spans = past.tasks.get(&id).map(|it| it.spans.as_slice());
    let spans = spans.unwrap_or_default();
    let held = |member: &teamd_shared::config::RosterMember| {
        let mut stands = spans.iter().map(|(stand, _)| stand);
        stands.any(|stand| matches!(stand, Stand::Held(name) if *name == member.name))
    };
    for member in roster.members.iter().filter(|member| held(member)) {
        let runs = roster::runs(&roster, member);
        let ledger = ledger(dir, &member.name)?;
        account.member((&member.name, &money::model(member), runs), &ledger);
    }
    let Some(share) = account.tasks.get(&id) else {
        return Ok((String::new(), json!(null)));
    };
    let spent = share.to_json(&prices, json!({}));
    let usage = share.usage();
    let tokens = match usage.is_nothing() {
        true => String::new(),
        false => format!(", {} tokens", tokens::all(&usage)),
    };
    let dollars = share.cost(&prices).filter(|_| !usage.is_nothing());
    let dollars = dollars.map(|it| format!(", {it}")).unwrap_or_default();
    let turns = count(share.turns as usize, "turn");
    let working = clock::span(share.working);
    Ok((format!("{working}, {turns}{tokens}{dollars}"), spent))
}

/// Finds the team repository: what a record says of it can be the word of another machine.
fn repository(dir: &TeamDir) -> Result<PathBuf, CommandError> {
    let state = StateDir::of_process()
        .map_err(|error| CommandError::refused("cannot find the state directory", &error))?;
    let found = repository_of(&state.real().of_git(dir));
    if found.exists() {
        return Ok(found);
    }
    Err(
        CommandError::new(ExitCode::NotFound, "no teammate has a checkout yet")
            .hint("`teamctl spawn NAME --checkout` makes the first one"),
    )
}

/// The team repository, to be read.
struct GitReader {
    repository: PathBuf,
}

impl GitReader {
    fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = git_command(&self.repository);
        command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("LC_ALL", "C")
            .args(args);
        command
    }

    fn has(&self, commit: &str) -> bool {
        let commit = format!("{commit}^{{commit}}");
        let mut command = self.command(["cat-file", "-e", &commit]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Returns where work left the integration branch; for what is integrated, its first parent.
    fn base(&self, commit: &str) -> Result<String, CommandError> {
        const TIP: &str = "refs/heads/integration";
        let mut is_integrated = self.command(["merge-base", "--is-ancestor", commit, TIP]);
        let is_integrated = is_integrated.status().map_err(no_git)?.success();
        let base = if is_integrated {
            self.text(["rev-parse", "--verify", &format!("{commit}^")])?
        } else {
            self.text(["merge-base", commit, TIP])?
        };
        Ok(base.trim().to_owned())
    }

    fn attributes(&self, commit: &str) -> Result<String, CommandError> {
        let name = ".gitattributes";
        let listed = self.text(["ls-tree", "--name-only", commit, name])?;
        if listed.trim().is_empty() {
            return Ok(String::new());
        }
        self.text(["cat-file", "blob", &format!("{commit}:{name}")])
    }

    fn diff(&self, from: &str, to: &str) -> Result<String, CommandError> {
        let args = [
            "-c",
            "core.quotePath=false",
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--find-renames",
            "--submodule=short",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--unified=3",
            from,
            to,
            "--",
        ];
        self.text(args)
    }

    fn text<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<String, CommandError> {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(no_git)?;
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout
                .take(LONGEST + 1)
                .read_to_end(&mut output)
                .map_err(no_git)?;
        }
        if output.len() as u64 > LONGEST {
            child.kill().map_err(no_git)?;
            child.wait().map_err(no_git)?;
            let message = "the diff is longer than 64 MiB";
            return Err(CommandError::new(ExitCode::Failed, message)
                .hint("`teamctl review ID --tool \"git diff --stat\"` sums it up"));
        }
        let ended = child.wait_with_output().map_err(no_git)?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            let message = format!("git cannot read the team repository: {}", said.trim());
            return Err(
                CommandError::new(ExitCode::Failed, message).hint("`teamctl doctor` checks it")
            );
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

fn no_git(error: std::io::Error) -> CommandError {
    CommandError::refused("cannot run git", &error)
}

/// Begins a command line of `git` in a repository, whatever the environment names.
fn git_command(repository: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    command
        .env("GIT_DIR", repository)
        .env("GIT_OPTIONAL_LOCKS", "0");
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Runs a program of the user with both commits behind its arguments; it is in the team
/// repository.
///
/// # Errors
/// If the work has no commits, or the program cannot run.
pub(super) fn run_tool(tool: &str, commits: &Commits) -> Result<(), CommandError> {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{tool} \"$@\""), "sh"])
        .args([&commits.base, &commits.commit])
        .env("GIT_DIR", &commits.repository);
    let status = command
        .status()
        .map_err(|error| CommandError::refused("cannot run sh", &error))?;
    if status.success() {
        return Ok(());
    }
    let message = format!("the program of --tool failed ({status})");
    Err(CommandError::new(ExitCode::Failed, message)
        .hint("it gets the two commits as its last arguments, and GIT_DIR is the team repository"))
}
