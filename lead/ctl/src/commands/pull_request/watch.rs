//! `teamctl pr watch`: looks at a pull request from time to time, and makes tasks of what failed and
//! of what maintainers say. What a task was made of is in the journal, so a watch that begins again
//! makes none twice.

use std::time::Duration;

use teamd_client::act::task;
use teamd_client::act::waiting::within;
use teamd_client::args::PullRequestWatch;
use teamd_client::connection::not_running;
use teamd_client::context::Context;
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{clock, escape};
use teamd_client::read::{journal, tasks};
use teamd_shared::control::ImportedTask;
use teamd_shared::journal::Team;
use teamd_shared::task::{Task, TaskId};
use teamd_shared::team_dir::TeamDir;

use super::feedback::{Feedback, PullRequest, PullRequestReview, ReviewLine, feedback};
use super::work::merged;
use crate::github::{Gh, Reference, Repository, source_of};

/// How many follow-ups of one pull request may be open.
const MOST_OPEN: usize = 20;

/// The longest time between two looks, while `gh` fails.
const LONGEST: Duration = Duration::from_secs(900);

/// What of a pull request is read.
const FIELDS: &str = "state,headRefOid,commits,comments,statusCheckRollup";

/// A pull request that is watched.
struct Watched<'a> {
    context: &'a Context,
    args: &'a PullRequestWatch,
    repository: Repository,
    number: u32,
}

/// Watches until the pull request or the daemon ends, or Ctrl-C is pressed.
pub(super) fn run(context: &Context, args: &PullRequestWatch) -> CommandResult {
    let reference = Reference::parse(&args.pull_request)?;
    let Some(number) = reference.number else {
        let message = format!("{} names no pull request", args.pull_request);
        return Err(CommandError::new(ExitCode::Usage, message).hint("write gh:OWNER/REPO#12"));
    };
    let watched = Watched {
        context,
        args,
        repository: reference.repository,
        number,
    };
    let ended = context.block_on(within(None, watched.follow()))?;
    match ended {
        Ok(()) => Ok(ExitCode::Done),
        Err(_) => Ok(ExitCode::Interrupted),
    }
}

impl Watched<'_> {
    async fn follow(&self) -> Result<(), CommandError> {
        let out = &self.context.out;
        let mut pause = self.args.every;
        let mut is_first = true;
        loop {
            match self.look().await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    if is_first {
                        let every = clock::span(self.args.every.as_secs_f64());
                        let source = source_of(&self.repository, self.number);
                        out.note(format_args!(
                            "{source} is looked at every {every}; Ctrl-C ends that"
                        ));
                    }
                    pause = self.args.every;
                }
                // What is wrong at once is wrong with the command.
                Err(error) if is_first || !is_passing(&error) => return Err(error),
                Err(error) => {
                    pause = (pause * 2).min(LONGEST);
                    let again = clock::span(pause.as_secs_f64());
                    out.note(format_args!(
                        "{}; looking again in {again}",
                        escape::line(error.message())
                    ));
                }
            }
            is_first = false;
            if out.closed() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Looks once. Returns whether the pull request has ended.
    async fn look(&self) -> Result<bool, CommandError> {
        let dir = self.context.dir()?;
        if !is_locked(&dir) {
            return Err(not_running(&dir));
        }
        let team = journal::fold(&dir)?;
        let gh = Gh::find(&team, self.args.timeout)?;
        let pull_request = self.read(&gh).await?;
        let source = source_of(&self.repository, self.number);
        if !pull_request.is_open() {
            let state = pull_request.state.to_ascii_lowercase();
            self.context
                .out
                .note(format_args!("{source} is {}", escape::line(&state)));
            return Ok(true);
        }
        let last = last_task(&dir, &team, &pull_request)?.ok_or_else(|| {
            let message = format!("no task of this team is in {source}");
            CommandError::new(ExitCode::Conflict, message)
                .hint("`teamctl land --pr` opens a pull request of this team")
        })?;
        let api = format!("repos/{}/pulls/{}", self.repository, self.number);
        let reviews = format!("{api}/reviews?per_page=100");
        let comments = format!("{api}/comments?per_page=100");
        let reviews: Vec<PullRequestReview> = gh.pages(&["api", "--paginate", &reviews]).await?;
        let comments: Vec<ReviewLine> = gh.pages(&["api", "--paginate", &comments]).await?;
        let all = feedback(&source, &pull_request, &reviews, &comments);
        self.make(&team, (&source, last), all).await?;
        Ok(false)
    }

    async fn read(&self, gh: &Gh) -> Result<PullRequest, CommandError> {
        let number = self.number.to_string();
        let repo = format!("--repo={}", self.repository);
        gh.json(&["pr", "view", &number, &repo, "--json", FIELDS])
            .await
    }

    /// Makes a task of each that is new, as long as not too many are open.
    async fn make(
        &self,
        team: &Team,
        (source, last): (&str, TaskId),
        all: Vec<Feedback>,
    ) -> Result<(), CommandError> {
        let out = &self.context.out;
        let new: Vec<Feedback> = all
            .into_iter()
            .filter(|it| !team.sources.contains_key(&it.source))
            .collect();
        let beneath = format!("{source}/");
        let is_open = |task: &&Task| {
            let is_of_it = |of: &String| of.starts_with(&beneath);
            !task.status.is_finished() && task.source.as_ref().is_some_and(is_of_it)
        };
        let open = team.tasks.values().filter(is_open).count();
        let room = MOST_OPEN.saturating_sub(open);
        if new.len() > room {
            out.note(format_args!(
                "{} more wait until fewer than {MOST_OPEN} follow-ups are open",
                new.len() - room
            ));
        }
        let tasks: Vec<ImportedTask> = new
            .iter()
            .take(room)
            .map(|feedback| feedback.task(last))
            .collect();
        if tasks.is_empty() {
            return Ok(());
        }
        for task in task::import(self.context, tasks).await? {
            out.result(&task, escape::line(&task.title()))?;
        }
        Ok(())
    }
}

/// Tells whether it may work the next time.
fn is_passing(error: &CommandError) -> bool {
    matches!(
        error.code(),
        ExitCode::Failed | ExitCode::TimedOut | ExitCode::NotFound | ExitCode::Conflict
    )
}

/// Returns the task of the team that the pull request has brought in last.
fn last_task(
    dir: &TeamDir,
    team: &Team,
    pull_request: &PullRequest,
) -> Result<Option<TaskId>, CommandError> {
    let mut all = tasks::all(dir, team)?;
    all.sort_by(|one, other| one.updated_at.total_cmp(&other.updated_at));
    let last = all
        .iter()
        .rev()
        .find(|task| merged(task).is_some_and(|commit| pull_request.has(commit)));
    Ok(last.map(|task| task.id))
}
