//! One confined script of `git` commands. It prints lines `key=value`, and nothing that `git`
//! prints can pass for one.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use rustix::fs::{FlockOperation, flock};
use teamd_shared::bundle::{self, is_commit_id};
use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::environment::Environment;
use teamd_shared::job::GitOrder;
use teamd_shared::machine::MachineSettings;
use teamd_shared::member::{Bounds, Sandbox};
use teamd_shared::name::Name;
use teamd_shared::user_config::UserConfig;

use super::ignored;
use super::kind::{GitKind, hand_over};
use crate::JobSetting;
use teamd_worker_sandbox::Keeps;
use teamd_worker_sandbox::run::{OutputReader, Ran, Runner, RunnerConfig};

/// What precedes each script. What only some of them need precedes those: to read all of it, a shell
/// would take longer than to begin.
pub(super) const BEGIN: &str = include_str!("begin.sh");

/// The exit code of a script that has found something wrong: trying again does not help.
const REFUSED: i32 = 65;

/// What runs scripts for an order.
#[derive(Clone, Copy)]
pub(super) struct Git<'a> {
    pub(super) setting: &'a JobSetting,
    pub(super) order: &'a GitOrder,
    pub(super) lock: &'a File,
    /// What each script is given ([`variables`]).
    pub(super) variables: &'a Environment,
    /// Whether scripts see what has come from the other machine.
    pub(super) sees_bundles: bool,
}

/// Why nothing was done.
pub(super) enum GitFailure {
    /// It makes no sense, or not now.
    Refused(Refusal),
    /// It could not be tried.
    Other(anyhow::Error),
}

impl GitFailure {
    /// Returns why, for the log.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.message.clone(),
            Self::Other(error) => format!("{error:#}"),
        }
    }

    pub(super) fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused(Refusal::new(RefusalCode::Conflict, message).hint(hint))
    }
}

impl<E: Into<anyhow::Error>> From<E> for GitFailure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// The values that a script prints, each under a key.
pub(super) struct ScriptValues(Vec<(String, String)>);

/// The key of the line that says that the middle of a long output is missing.
pub(super) const CUT: &str = "";

impl ScriptValues {
    fn of(output: &str) -> Self {
        // No script prints a line without a key.
        Self(
            output
                .lines()
                .map(|line| {
                    let (key, value) = line.split_once('=').unwrap_or((CUT, line));
                    (key.to_owned(), value.to_owned())
                })
                .collect(),
        )
    }

    /// Returns the lines under one of these keys, in order.
    pub(super) fn lines(&self, keys: &[&str]) -> Vec<String> {
        self.0
            .iter()
            .filter(|(key, _)| keys.contains(&key.as_str()))
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// Returns each value of a key.
    pub(super) fn all(&self, key: &str) -> Vec<String> {
        self.lines(&[key])
    }

    /// Returns the value of a key that is the id of a commit.
    ///
    /// # Errors
    /// If it is none: what a teammate can change has printed it.
    pub(super) fn commit(&self, key: &'static str) -> Result<String, GitFailure> {
        let id = self.one(key)?;
        if is_commit_id(&id) {
            Ok(id)
        } else {
            Err(GitFailure::Other(anyhow!(
                "{id:?} is not the id of a commit"
            )))
        }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// If the script has not printed it.
    pub(super) fn one(&self, key: &'static str) -> Result<String, GitFailure> {
        let value = self
            .0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.clone());
        value.ok_or_else(|| GitFailure::Other(anyhow!("a script has not printed `{key}`")))
    }
}

/// Finds out once what all scripts of an order are given. What they may do is looked at before each:
/// those before it, and what a check has run, may have changed what lies where.
pub(super) fn variables(setting: &JobSetting, order: &GitOrder) -> Result<Environment, GitFailure> {
    let users = &order.environment;
    let mut variables = GitKind::Protects.variables(users, &order.territory);
    hand_over(
        &GitKind::Judges.variables(users, &order.territory),
        &mut variables,
    );
    let team = setting.dir.workspace();
    let team = super::text(&team.canonicalize().unwrap_or(team))?;
    let always = [
        ("T_NAME", order.name.as_str()),
        ("T_HOME_OF_TEAM", &order.home),
        ("T_IGNORED", &ignored(&order.copied)),
        ("T_TEAM", &team),
        ("T_SAFE", &safe_directories(users)),
    ];
    for (name, value) in always {
        variables.set(name, value);
    }
    // Where the user's settings lie, for those of them that count.
    for name in ["CONFIG_GLOBAL", "CONFIG_SYSTEM", "CONFIG_NOSYSTEM"] {
        if let Some(value) = users.value(&format!("GIT_{name}")) {
            variables.set(&format!("T_{name}"), &value);
        }
    }
    Ok(variables)
}

/// Returns the directories that variables say to be safe, one a line.
fn safe_directories(environment: &Environment) -> String {
    let all = environment.safe_directories().into_iter();
    let text = all.map(|directory| String::from_utf8_lossy(&directory).into_owned());
    text.collect::<Vec<_>>().join("\n")
}

/// Removes the locks that a git has left which was killed: no other works in the team repository
/// now.
fn remove_stale_locks(repository: &Path) -> io::Result<()> {
    let mut level = vec![repository.to_owned()];
    while let Some(at) = level.pop() {
        let entries = match std::fs::read_dir(&at) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() && path.starts_with(repository.join("refs")) {
                level.push(path);
            } else if kind.is_file()
                && path
                    .extension()
                    .is_some_and(|extension| extension == "lock")
            {
                tracing::warn!(
                    "removing {}, which a git has left that was killed",
                    path.display()
                );
                std::fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}

/// Says what to do if a filter of the user has failed: what it reads may be hidden.
fn failed_filter(why: &str) -> Option<Refusal> {
    let is_one = why
        .lines()
        .any(|line| line.contains(" filter ") && line.contains(" failed"));
    let hint = "what a filter reads below a dot folder of the home is hidden, unless `[sandbox] visible` of team.toml names it (`teamd trust`)";
    is_one.then(|| Refusal::new(RefusalCode::Failed, why).hint(hint))
}

impl Git<'_> {
    /// Runs a script that may write in this directory and nowhere else, has no network, and is
    /// given these variables.
    pub(super) async fn run(
        &self,
        script: &str,
        writes: &Path,
        more: &[(&str, &str)],
    ) -> Result<ScriptValues, GitFailure> {
        self.run_writing(script, writes, None, more).await
    }

    /// The same for one that may also write the repository of that directory, where that lies
    /// elsewhere.
    pub(super) async fn run_writing(
        &self,
        script: &str,
        writes: &Path,
        repository: Option<&str>,
        more: &[(&str, &str)],
    ) -> Result<ScriptValues, GitFailure> {
        let mut environment = self.variables.clone();
        for (name, value) in more {
            environment.set(&format!("T_{name}"), value);
        }
        environment.set("T_WRITES", &writes.to_string_lossy());
        let writable = repository.map(str::to_owned).into_iter().collect();
        let visible = self.order.visible.clone();
        let sandbox = Sandbox {
            no_network: true,
            writable,
            visible,
            ..Sandbox::default()
        };
        let lock = self.lock_of(writes)?;
        let git = Git {
            lock: &lock,
            ..*self
        };
        let bounds = Bounds::default();
        let mut runner = git.runner(writes, (environment, sandbox, bounds), Keeps::Nothing)?;
        let command = format!("{BEGIN}\n{script}");
        let Ran {
            exit,
            output,
            failure,
            ..
        } = runner
            .run(command, self.order.timeout, OutputReader::Program)
            .await?;
        let values = ScriptValues::of(&output);
        match exit {
            Some(0) => Ok(values),
            Some(REFUSED) => Err(GitFailure::refused(
                values.one("refused")?,
                values.one("hint")?,
            )),
            _ => {
                let why = values.all("failed").pop().unwrap_or(output);
                let at = writes.display();
                let how = failure.unwrap_or_default();
                let why = format!("git failed in {at} ({how}): {why}");
                let why = why.trim_end_matches(|end: char| end == ':' || end.is_whitespace());
                Err(
                    match self.full_disk(why, writes).or_else(|| failed_filter(why)) {
                        Some(refusal) => GitFailure::Refused(refusal),
                        None => GitFailure::Other(anyhow!(why.to_owned())),
                    },
                )
            }
        }
    }

    /// Says what to do if a command has failed because there is no space where it writes, or for
    /// temporary files.
    pub(super) fn full_disk(&self, why: &str, writes: &Path) -> Option<Refusal> {
        let temp = self
            .order
            .environment
            .path("TMPDIR")
            .unwrap_or_else(|| "/tmp".into());
        super::full_disk(why, &[writes, &temp])
    }

    /// Returns the lock that a script and its shim hold. No two scripts write the team repository
    /// at once, also not one of an earlier daemon and one of this.
    fn lock_of(&self, writes: &Path) -> anyhow::Result<File> {
        let home = Path::new(&self.order.home);
        if writes != home && writes != super::repository(self.order) {
            return Ok(self.lock.try_clone()?);
        }
        let lock = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(home.join("lock"))?;
        flock(&lock, FlockOperation::LockExclusive).context("cannot lock the team repository")?;
        remove_stale_locks(&super::repository(self.order))
            .context("cannot remove a lock of git")?;
        Ok(lock)
    }

    /// Makes what confines commands that work in a directory.
    pub(super) fn runner(
        &self,
        workspace: &Path,
        (environment, sandbox, bounds): (Environment, Sandbox, Bounds),
        keeps: Keeps,
    ) -> anyhow::Result<Runner> {
        self.sealed_runner(
            workspace,
            (environment, sandbox, bounds),
            (Vec::new(), keeps),
        )
    }

    /// The same for commands that may not write these paths there.
    pub(super) fn sealed_runner(
        &self,
        workspace: &Path,
        (environment, sandbox, bounds): (Environment, Sandbox, Bounds),
        (sealed, keeps): (Vec<PathBuf>, Keeps),
    ) -> anyhow::Result<Runner> {
        let mut shown = vec![super::repository(self.order)];
        // Only one of them is writable: what is above the other one is not shown.
        let others = [
            workspace.to_owned(),
            super::scratch(self.order),
            super::cache(self.order),
        ];
        shown.extend(
            others
                .into_iter()
                .filter(|it| it.starts_with(&self.order.home)),
        );
        if self.sees_bundles {
            shown.push(bundle::folder(Path::new(&self.order.home)));
        }
        shown.retain(|it| it == workspace || !it.starts_with(workspace));
        shown.dedup();
        let machine =
            UserConfig::machine_over(&environment, MachineSettings::of_variable(&environment));
        Runner::new(RunnerConfig {
            workspace: workspace.to_owned(),
            team_dir: self.setting.dir.clone(),
            name: Name::lead(),
            incarnation: 0,
            // No name of a teammate has a dot.
            temp_name: format!("{}.job", self.order.name),
            liveness_lock: self.lock.try_clone()?,
            environment,
            territory: self.order.territory.iter().map(PathBuf::from).collect(),
            sandbox,
            shown,
            sealed,
            bounds,
            cgroup: self.setting.cgroup.clone(),
            confinement: self.setting.confinement.clone(),
            keeps,
            machine,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_was_cut_says_so_and_keeps_its_order() {
        let values = ScriptValues::of(
            "merged=a=b\nchanged=x\n[9 characters cut]\nth\nchanged=y\nmerged=c\n",
        );
        assert_eq!(values.one("merged").ok().as_deref(), Some("a=b"));
        assert_eq!(values.all(CUT), ["[9 characters cut]", "th"]);
        assert_eq!(
            values.lines(&["changed", CUT]),
            ["x", "[9 characters cut]", "th", "y"]
        );
        assert!(ScriptValues::of("changed=x\n").all(CUT).is_empty());
    }

    #[test]
    fn only_an_id_is_taken_for_a_commit() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            ScriptValues::of(&format!("commit={id}"))
                .commit("commit")
                .ok()
                .as_deref(),
            Some(id)
        );
        for bad in [
            "",
            "--all",
            "HEAD",
            &id[1..],
            &format!("{}g", &id[1..]),
            &format!("{id} "),
        ] {
            assert!(
                ScriptValues::of(&format!("commit={bad}"))
                    .commit("commit")
                    .is_err(),
                "{bad}"
            );
        }
    }
}
