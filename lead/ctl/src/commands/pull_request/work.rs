//! What is pushed: the commit that was checked and integrated last, and what it brings in.

use std::collections::BTreeSet;
use std::path::Path;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::tasks;
use teamd_shared::journal::Team;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::team_dir::TeamDir;

use super::ci;
use super::repository::UserRepository;
use super::target::Target;

/// What is pushed.
pub(super) struct PullRequestWork {
    pub(super) commit: String,
    /// The tasks that it brings in, with their trees.
    pub(super) tasks: Vec<Integrated>,
    /// The changed files that CI runs, or that are protected.
    pub(super) touched: Vec<String>,
}

/// A task that is integrated.
pub(super) struct Integrated {
    pub(super) task: Task,
    pub(super) tree: String,
}

impl PullRequestWork {
    /// Returns the numbers of the tasks.
    pub(super) fn ids(&self) -> Vec<TaskId> {
        self.tasks.iter().map(|it| it.task.id).collect()
    }
}

/// Finds what is pushed: the commit that was checked and integrated last, as the journal has it, and
/// what it brings into the branch of the remote. None if that has it already.
pub(super) async fn work(
    git: &UserRepository,
    (dir, team): (&TeamDir, &Team),
    target: &Target,
) -> Result<Option<PullRequestWork>, CommandError> {
    let mut integrated: Vec<Task> = tasks::all(dir, team)?
        .into_iter()
        .filter(|task| task.status == TaskStatus::Completed && merged(task).is_some())
        .collect();
    integrated.sort_by(|one, other| one.updated_at.total_cmp(&other.updated_at));
    let Some(commit) = integrated.last().and_then(merged).map(str::to_owned) else {
        return Err(
            CommandError::new(ExitCode::Conflict, "nothing is integrated yet")
                .hint("work of a teammate with a checkout is: `teamctl spawn NAME --checkout`; `teamctl tasks` shows the tasks"),
        );
    };
    if !git.has(&commit).await? {
        let message = format!("the commit {commit} is not in your repository");
        return Err(CommandError::new(ExitCode::Conflict, message)
            .hint("`git branch -r` shows team/integration; `teamctl doctor` says what is wrong"));
    }
    let base = git.tip_of(&target.remote, &target.base).await?;
    let fork_point = git.find(&["merge-base", &base, &commit]).await?;
    let Some(fork_point) = fork_point else {
        let message = format!(
            "{} of {} has no commit in common with what is integrated",
            target.base, target.remote
        );
        return Err(CommandError::new(ExitCode::Conflict, message)
            .hint("`--into BRANCH` names the branch that the work is for"));
    };
    if fork_point == commit {
        return Ok(None);
    }
    let new = git.ask(&["rev-list", &commit, &format!("^{base}")]).await?;
    let new: BTreeSet<&str> = new.lines().collect();
    let mut tasks = Vec::new();
    for task in integrated {
        let Some(merged) = merged(&task).filter(|commit| new.contains(commit)) else {
            continue;
        };
        let tree = format!("{merged}^{{tree}}");
        let tree = git.ask(&["rev-parse", "--verify", &tree]).await?;
        tasks.push(Integrated { task, tree });
    }
    let changed = [
        "diff-tree",
        "-r",
        "-z",
        "--no-renames",
        "--name-only",
        &fork_point,
        &commit,
    ];
    let changed = git.ask(&changed).await?;
    let changed: Vec<String> = changed
        .split('\0')
        .filter(|file| !file.is_empty())
        .map(str::to_owned)
        .collect();
    let prefix = git.ask(&["rev-parse", "--show-prefix"]).await?;
    let prefix = Path::new(prefix.trim_end_matches('/'));
    let touched = ci::touched(&changed, (prefix, &team.work.protect))?;
    Ok(Some(PullRequestWork {
        commit,
        tasks,
        touched,
    }))
}

/// Returns the commit that brought a task in.
pub(super) fn merged(task: &Task) -> Option<&str> {
    task.result.as_ref()?.merged.as_deref()
}
