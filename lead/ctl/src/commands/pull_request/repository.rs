//! The user's repository, as a pull request needs it. No hook runs, and nothing in it changes but
//! what `git` itself notes of the remote: what is pushed is named by its commit, and goes to one
//! branch of one remote.

use std::path::PathBuf;
use std::time::Duration;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use tokio::process::Command;

use crate::github::UserProgram;

/// The variables by which another repository would be meant.
const ELSEWHERE: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// What no setting changes: no hook and no monitor of files runs.
const PLAIN: [&str; 5] = [
    "--no-pager",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
];

/// The user's repository.
pub(super) struct UserRepository {
    pub(super) workspace: PathBuf,
    /// How long a call of `git` may take.
    pub(super) limit: Duration,
}

impl UserRepository {
    /// Returns what `git` answers.
    ///
    /// # Errors
    /// What it says if it fails.
    pub(super) async fn ask(&self, args: &[&str]) -> Result<String, CommandError> {
        let (answer, said) = self.run(args).await?;
        answer.ok_or_else(|| failed(args, &said))
    }

    /// Returns what `git` answers; none if it says no.
    pub(super) async fn find(&self, args: &[&str]) -> Result<Option<String>, CommandError> {
        let (answer, _) = self.run(args).await?;
        Ok(answer)
    }

    async fn run(&self, args: &[&str]) -> Result<(Option<String>, String), CommandError> {
        let mut command = Command::new("git");
        command
            .args(PLAIN)
            .args(args)
            .current_dir(&self.workspace)
            .env("GIT_OPTIONAL_LOCKS", "0");
        for name in ELSEWHERE {
            command.env_remove(name);
        }
        let git = UserProgram {
            name: "git",
            limit: self.limit,
            may_ask: true,
            if_late: "try the same by hand; `--timeout` waits longer",
        };
        let ended = git.run(&mut command, "").await?;
        let said = ended.said();
        let answer = ended.status.success().then(|| {
            let answer = String::from_utf8_lossy(&ended.answer);
            answer.trim_end_matches('\n').to_owned()
        });
        Ok((answer, said))
    }

    /// Tells whether a commit is there.
    pub(super) async fn has(&self, commit: &str) -> Result<bool, CommandError> {
        let object = format!("{commit}^{{commit}}");
        Ok(self.find(&["cat-file", "-e", &object]).await?.is_some())
    }

    /// Returns the branch that is checked out.
    pub(super) async fn current_branch(&self) -> Result<String, CommandError> {
        let current = self.find(&["symbolic-ref", "--quiet", "--short", "HEAD"]);
        current.await?.ok_or_else(|| {
            CommandError::new(ExitCode::Usage, "HEAD is on no branch")
                .hint("name the branch that the work is for: `teamctl land --pr --into BRANCH`")
        })
    }

    /// Returns the URL that a remote is pushed to, if that is another one.
    pub(super) async fn push_url(&self, remote: &str) -> Result<Option<String>, CommandError> {
        let key = format!("remote.{remote}.pushurl");
        self.find(&["config", "--get", &key]).await
    }

    /// Returns the URL of a remote, as the user has written it.
    pub(super) async fn url(&self, remote: &str) -> Result<String, CommandError> {
        let key = format!("remote.{remote}.url");
        let url = self.find(&["config", "--get", &key]).await?;
        url.ok_or_else(|| {
            CommandError::new(ExitCode::NotFound, format!("there is no remote {remote:?}"))
                .hint("`git remote` lists them; `--remote NAME` names one")
        })
    }

    /// Checks the name of a branch.
    pub(super) async fn is_branch_name(&self, name: &str) -> Result<(), CommandError> {
        let at = format!("refs/heads/{name}");
        let is_name = self.find(&["check-ref-format", &at]).await?.is_some();
        if is_name && !name.starts_with('-') {
            return Ok(());
        }
        let message = format!("{name:?} is no name for a branch");
        Err(CommandError::new(ExitCode::Usage, message)
            .hint("`git help check-ref-format` has the rules"))
    }

    /// Returns where a branch of the remote is now, and brings that commit here. No name of the user
    /// moves.
    pub(super) async fn tip_of(&self, remote: &str, branch: &str) -> Result<String, CommandError> {
        let at = format!("refs/heads/{branch}");
        let listed = self.ask(&["ls-remote", remote, &at]).await?;
        let found = listed
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .find(|(_, name)| *name == at);
        let Some((commit, _)) = found else {
            let message = format!("{remote} has no branch {branch}");
            return Err(CommandError::new(ExitCode::NotFound, message)
                .hint("`--into BRANCH` names the branch that the work is for; push it first"));
        };
        if !self.has(commit).await? {
            let fetch = [
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-recurse-submodules",
                "--refmap=",
                remote,
                at.as_str(),
            ];
            self.ask(&fetch).await?;
        }
        Ok(commit.to_owned())
    }

    /// Pushes a commit to a branch of the remote, and nothing else; never by force.
    pub(super) async fn push(
        &self,
        remote: &str,
        commit: &str,
        branch: &str,
    ) -> Result<(), CommandError> {
        let refspec = format!("{commit}:refs/heads/{branch}");
        let push = [
            "push",
            "--quiet",
            "--no-verify",
            "--no-force",
            "--no-follow-tags",
            "--recurse-submodules=no",
            remote,
            refspec.as_str(),
        ];
        let (answer, said) = self.run(&push).await?;
        if answer.is_some() {
            return Ok(());
        }
        let message = format!("git cannot push to {branch} of {remote}: {said}");
        Err(CommandError::new(ExitCode::Failed, message)
            .hint("where that branch has other commits, `--head BRANCH` pushes to another one"))
    }
}

fn failed(args: &[&str], said: &str) -> CommandError {
    let command = args.first().copied().unwrap_or_default();
    let message = format!("`git {command}` failed: {said}");
    CommandError::new(ExitCode::Failed, message)
        .hint("try the same by hand in the directory of the team")
}
