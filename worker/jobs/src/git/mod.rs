//! What is done with `git` for the team: the team repository, and the checkouts of teammates.
//!
//! A repository that a teammate can write is hostile data. So each `git` runs confined, in a
//! script, without hooks and network, with a time limit and a limit for the size of a file. It
//! writes either the team repository or one checkout, never both: no command that reads a checkout
//! can change what others build on.
//!
//! A `git` is of one of two kinds, and each command of a script is one of them ([`kind::GitKind`]):
//!
//! - `git …` **protects**: it keeps the team repository, packs, merges and what is shown of them.
//!   Configuration, attributes, filters and hooks of the user and of teammates do not count.
//! - `judge git …` is asked about a *working tree*: is it clean, what would a checkout write? The
//!   answer is that of the one whose tree it is, so it is asked with that one's configuration. What
//!   a teammate gets its own `git` to say decides about its own work alone.
//!
//! A file whose bytes are those of its blob is unchanged, whatever attributes make of it
//! (`changed` in `changes.sh`).

mod copy;
mod integration;
mod kind;
mod make;
mod references;
mod script;

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{AtFlags, OFlags, unlinkat};
use rustix::io::Errno;
use teamd_shared::checkout::{Checkout, repository_of};
use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::environment::Environment;
use teamd_shared::job::{GitOrder, GitStep, JobReport};
use teamd_shared::place::open_itself;
use teamd_shared::task::TaskId;

use crate::JobSetting;
use crate::locks::{self, Whose};
use integration::Merge;
use script::{Git, GitFailure, ScriptValues};
use teamd_worker_sandbox::remove;

const BRANCH: &str = concat!(
    include_str!("changes.sh"),
    include_str!("lfs.sh"),
    include_str!("branch.sh")
);
const PACK: &str = concat!(
    include_str!("changes.sh"),
    include_str!("lfs.sh"),
    include_str!("pack.sh")
);
const TAKE: &str = concat!(include_str!("lfs.sh"), include_str!("take.sh"));
const REMOVE: &str = concat!(
    include_str!("changes.sh"),
    include_str!("tree.sh"),
    include_str!("remove.sh")
);

/// The file in `.git` of a checkout that holds what is submitted, for as long as it takes.
const PACKED: &str = "teamd.pack";

/// Returns the team repository of a team.
fn repository(order: &GitOrder) -> PathBuf {
    repository_of(Path::new(&order.home))
}

/// Returns the clone in which merged work is checked.
fn scratch(order: &GitOrder) -> PathBuf {
    Path::new(&order.home).join("scratch")
}

/// Returns where lies what the last integrated check has left.
fn cache(order: &GitOrder) -> PathBuf {
    Path::new(&order.home).join("cache")
}

/// Returns where tools of a check keep their caches.
fn check_caches(order: &GitOrder) -> PathBuf {
    Path::new(&order.home).join("check")
}

/// Does what is ordered.
pub(crate) async fn run(
    setting: &JobSetting,
    order: &GitOrder,
    lock: &File,
) -> anyhow::Result<JobReport> {
    let done = perform(setting, order, lock).await;
    match done {
        Ok(report) => Ok(report),
        Err(GitFailure::Refused(refusal)) => Ok(JobReport::Refused(refusal)),
        Err(GitFailure::Other(error)) => match full_disk(&format!("{error:#}"), &[]) {
            Some(refusal) => Ok(JobReport::Refused(refusal)),
            None => Err(error),
        },
    }
}

async fn perform(
    setting: &JobSetting,
    order: &GitOrder,
    lock: &File,
) -> Result<JobReport, GitFailure> {
    let git = &Git {
        setting,
        order,
        lock,
        variables: &script::variables(setting, order)?,
        sees_bundles: false,
    };
    if let GitStep::Branch { root, .. }
    | GitStep::Keep { root, .. }
    | GitStep::Pack { root, .. }
    | GitStep::Remove { root, .. } = &order.step
    {
        locks::remove_stale(Path::new(root), Whose::Teammates);
    }
    match &order.step {
        GitStep::Make(make) => make::checkout(git, make).await,
        GitStep::Branch { root, task } => {
            if order.host.is_none() {
                references::refresh(git).await;
            }
            let values = git
                .run(BRANCH, Path::new(root), &[("TASK", &task.to_string())])
                .await;
            values.map(|values| JobReport::Branched(values.all("kept")))
        }
        GitStep::Keep { root, task, submit } => git.keep(root, *task, *submit).await,
        GitStep::Prepare(prepare) => integration::prepare(git, prepare)
            .await
            .map(JobReport::Checked),
        GitStep::Integrate { merged, cache, .. } => {
            integration::integrate(git, merged, cache).await
        }
        GitStep::Diff { commit, root } => integration::diff(git, commit.as_deref(), root).await,
        GitStep::Sync { into } => integration::sync(git, into.as_deref()).await,
        GitStep::Land { into } => integration::land(git, into.as_deref()).await,
        GitStep::Remove { root, discard } => git.remove(root, *discard).await,
        GitStep::Know => copy::know(git).await,
        GitStep::Bundle(bundle) => copy::bundle(git, bundle).await,
        GitStep::Receive(bundle) => copy::receive(git, bundle).await,
        GitStep::Pack {
            root,
            task,
            submit,
            name,
        } => copy::pack(git, root, *task, *submit, *name).await,
        GitStep::Take(pack) => copy::take(git, pack).await,
        GitStep::Merge(prepare) => {
            let Merge { report, prefix } = integration::merge(git, prepare).await?;
            Ok(JobReport::Merged { report, prefix })
        }
        GitStep::CheckMerged(merged) => integration::check_merged(git, merged).await,
        GitStep::Log { task, text } => {
            integration::log(git, *task, text)?;
            Ok(JobReport::Logged)
        }
        GitStep::CanMake(_) => {
            Err(anyhow::anyhow!("the daemon of a host answers this by itself").into())
        }
    }
}

impl Git<'_> {
    /// Puts what a teammate has committed into the team repository: first a pack of it is made
    /// where the teammate writes, and then that is taken in by a process that reads nothing else of
    /// there.
    async fn keep(
        &self,
        root: &str,
        task: Option<TaskId>,
        submit: bool,
    ) -> Result<JobReport, GitFailure> {
        let root = Path::new(root);
        let submit = if submit { "1" } else { "" };
        let task = task.map(|task| task.to_string()).unwrap_or_default();
        let packed = self
            .run(PACK, root, &[("SUBMIT", submit), ("TASK", &task)])
            .await;
        let kept = match packed {
            Ok(values) => self.take(root, &values).await,
            Err(failed) => Err(failed),
        };
        remove_pack(root);
        kept
    }

    /// Has the pack fetched into the team repository.
    async fn take(&self, root: &Path, values: &ScriptValues) -> Result<JobReport, GitFailure> {
        let commit = values.commit("commit")?;
        if values.one("adds")? == "0" {
            return Ok(JobReport::Kept {
                commit,
                reference: None,
            });
        }
        let pack = root.join(".git").join(PACKED);
        let pack = pack.to_string_lossy();
        let task = values.one("task")?.parse::<TaskId>()?.to_string();
        let more = [
            ("PACK", pack.as_ref()),
            ("TASK", task.as_str()),
            ("COMMIT", commit.as_str()),
        ];
        let taken = self.run(TAKE, &repository(self.order), &more).await?;
        Ok(JobReport::Kept {
            commit,
            reference: Some(taken.one("kept")?),
        })
    }

    /// Makes sure that a checkout has no work which is nowhere else. What is committed for a task
    /// is saved before.
    async fn nothing_is_lost(&self, root: &str) -> Result<(), GitFailure> {
        let hint = format!(
            "fix that, then try again; `teamctl forget {} --discard` removes it anyway",
            self.order.name
        );
        // What a host has was taken to home before.
        if self.order.host.is_none()
            && let Err(failed) = self.keep(root, None, false).await
        {
            return Err(GitFailure::refused(
                format!("the work in {root} cannot be saved: {}", failed.text()),
                hint,
            ));
        }
        self.run(REMOVE, Path::new(root), &[])
            .await
            .map(drop)
            .map_err(|failed| match failed {
                GitFailure::Other(error) => GitFailure::refused(
                    format!("whether {root} holds work cannot be seen: {error:#}"),
                    hint,
                ),
                refused @ GitFailure::Refused(_) => refused,
            })
    }

    async fn remove(&self, root: &str, discard: bool) -> Result<JobReport, GitFailure> {
        let path = Path::new(root);
        if !open_itself(path, OFlags::PATH).is_err_and(|errno| errno == Errno::NOENT) {
            if discard {
                drop(self.run("require_own", path, &[]).await?)
            } else {
                self.nothing_is_lost(root).await?
            }
            remove(path).with_context(|| format!("cannot remove the checkout {root}"))?;
        }
        make::remove_note(&Checkout::note(Path::new(&self.order.home), path))?;
        Ok(JobReport::Removed)
    }
}

/// Removes the pack of a checkout. No link on the way is followed: a teammate writes there.
fn remove_pack(root: &Path) {
    let removed = open_itself(&root.join(".git"), OFlags::PATH | OFlags::DIRECTORY)
        .and_then(|folder| unlinkat(folder, PACKED, AtFlags::empty()));
    if let Err(errno) = removed.or_else(|errno| {
        if errno == Errno::NOENT {
            Ok(())
        } else {
            Err(errno)
        }
    }) {
        tracing::warn!("cannot remove {PACKED} in {}: {errno}", root.display());
    }
}

/// Says what to do if a step has failed because a disk is full: what failed says so, or else one of
/// the places where it writes has no room. It does not say so where `git` does not, and where even
/// its messages have no room.
fn full_disk(why: &str, places: &[&Path]) -> Option<Refusal> {
    let texts = [
        "No space left on device",
        "Disk quota exceeded",
        "Out of diskspace",
    ];
    let message = match (
        texts.iter().any(|text| why.contains(text)),
        places
            .iter()
            .find(|place| rustix::fs::statvfs(**place).is_ok_and(|disk| disk.f_bavail == 0)),
    ) {
        (true, _) => why.to_owned(),
        (false, Some(place)) => format!("no space is left where {} lies: {why}", place.display()),
        (false, None) => return None,
    };
    Some(Refusal::new(RefusalCode::Failed, message).hint("free some space there, then try again"))
}

/// Returns what `git` ignores in checkouts so that what is copied there is not committed: a pattern
/// for each path.
fn ignored(copied: &[String]) -> String {
    let patterns: Vec<_> = copied.iter().map(|path| pattern_of(path)).collect();
    patterns.join("\n")
}

/// Returns the pattern of `git` that means one path and no other.
fn pattern_of(path: &str) -> String {
    let mut pattern = String::from("/");
    for character in path.trim_start_matches("./").chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | ' ') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// Removes from the environment of a teammate with a checkout what names another author: it commits
/// under its own name.
pub fn for_checkout(environment: &Environment, checkout: Option<&Checkout>) -> Environment {
    let mut environment = environment.clone();
    if checkout.is_some() {
        environment.variables.retain(|(name, _)| {
            !(name.starts_with(b"GIT_AUTHOR_") || name.starts_with(b"GIT_COMMITTER_"))
        });
    }
    environment
}

/// Returns a path as text, or says that it cannot be used.
fn text(path: &Path) -> Result<String, GitFailure> {
    let is_plain = !path.as_os_str().as_bytes().contains(&b'\n');
    let text = if is_plain {
        path.to_str().map(str::to_owned)
    } else {
        None
    };
    text.ok_or_else(|| {
        GitFailure::refused(
            format!(
                "{} cannot be used for checkouts: it is not UTF-8, or has a line break",
                path.display()
            ),
            "rename it",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::script::BEGIN;
    use super::*;

    /// Runs a script with the variables of one that takes in a pack; returns its exit code and
    /// output.
    fn bash(root: &Path, script: &str) -> (Option<i32>, String) {
        let mut bash = std::process::Command::new("bash");
        bash.arg("-c").arg(script).current_dir(root).env_clear();
        bash.env("PATH", std::env::var_os("PATH").unwrap());
        for (name, value) in &kind::GitKind::Protects
            .variables(&Environment::default(), &[])
            .variables
        {
            bash.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
        bash.env("T_SAFE", "");
        for (name, value) in [
            ("T_HOME_OF_TEAM", root),
            ("T_WRITES", &root.join("team.git")),
            ("T_PACK", &root.join("work/.git/teamd.pack")),
            ("TMPDIR", root),
            ("HOME", root),
        ] {
            bash.env(name, value);
        }
        let run = bash.env("T_TASK", "1").output().unwrap();
        (run.status.code(), String::from_utf8(run.stdout).unwrap())
    }

    /// The name of a file that leads out is that of a link or of a pipe, or a directory above it is
    /// a link.
    #[test]
    fn no_file_is_removed_or_read_by_way_of_what_a_teammate_puts_there() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let sh = |script: &str| bash(&root, script);
        let begin = "set -e; export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@x GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@x; git init -q --bare team.git; \
             git init -q work; git -C work commit -q --allow-empty -m 1; echo HEAD | git -C work pack-objects --quiet --revs --stdout >pack; git -C work rev-parse HEAD";
        let (code, commit) = sh(begin);
        assert_eq!(code, Some(0));
        let take = format!("export T_COMMIT={}\n{BEGIN}\n{TAKE}", commit.trim());
        for (planted, code) in [
            ("ln -s ../../pack work/.git/teamd.pack", Some(65)),
            ("mkfifo work/.git/teamd.pack", Some(65)),
            ("cp pack work/.git/teamd.pack", Some(0)),
        ] {
            assert_eq!(sh(planted).0, Some(0));
            assert_eq!(sh(&take).0, code, "{planted}");
            remove_pack(&root.join("work"));
            assert!(
                root.join("work/.git/teamd.pack")
                    .symlink_metadata()
                    .is_err()
                    && root.join("pack").exists()
            );
        }
        assert_eq!(
            sh("mkdir out; touch out/teamd.pack; mv work/.git .git; ln -s ../out work/.git").0,
            Some(0)
        );
        remove_pack(&root.join("work"));
        assert!(root.join("out/teamd.pack").exists());
    }

    /// Names what the commands of a script begin with.
    fn commands(script: &str) -> Vec<&str> {
        const BEFORE: [&str; 7] = ["if", "then", "do", "else", "elif", "while", "until"];
        let lines = script.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
        let pieces = lines.flat_map(|line| line.split(['|', '&', ';', '(', '{', '!']));
        pieces
            .filter_map(|piece| {
                let mut words = piece.split_whitespace();
                words.find(|word| !BEFORE.contains(word) && !word.contains('='))
            })
            .map(|word| word.trim_end_matches(')'))
            .collect()
    }

    #[test]
    fn each_script_has_the_functions_that_it_uses() {
        use copy::{BUNDLE, KNOW, RECEIVE, TAKE_FILE};
        use integration::{
            DIFF, INTEGRATE, KEEP_CACHE, LAND, LINKS, MERGE, PUBLISH, SCRATCH, SYNC, USERS_TREE,
        };
        use make::{CLONE, OPEN, REPOSITORY};
        use references::REFERENCES;
        let scripts = [
            BRANCH, PACK, TAKE, REMOVE, MERGE, LINKS, SCRATCH, INTEGRATE, PUBLISH, USERS_TREE,
            KEEP_CACHE, DIFF, SYNC, LAND, REPOSITORY, CLONE, OPEN, REFERENCES, KNOW, BUNDLE,
            RECEIVE, TAKE_FILE,
        ];
        let defined = |text: &str| -> Vec<String> {
            let names = text.lines().filter_map(|line| line.split_once("() "));
            names.map(|(name, _)| name.to_owned()).collect()
        };
        let all = defined(&scripts.concat());
        assert!(all.len() > 20, "{all:?}");
        for script in scripts {
            let whole = format!("{BEGIN}\n{script}");
            let own = defined(&whole);
            for command in commands(&whole) {
                let is_missing = all.iter().any(|name| name == command)
                    && !own.iter().any(|name| name == command);
                assert!(!is_missing, "{command} is not in:\n{script}");
            }
        }
    }

    #[test]
    fn a_setting_of_ours_is_read_as_git_has_written_it() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let read = format!("{BEGIN}\nsetting config source; say source \"$value\"");
        for source in [
            "/home/u/web/.git",
            "/a = b",
            "/a#b;c",
            "/a \"b\"\\n\\",
            " /a ",
            "/\tü",
        ] {
            let write = format!(
                "IFS= read -rd '' source <<'E'\n{source}\nE\ngit config --file config core.bare true; git config --file config teamd.source \"${{source%$'\\n'}}\""
            );
            assert_eq!(bash(&root, &write).0, Some(0));
            assert_eq!(bash(&root, &read), (Some(0), format!("source={source}\n")));
        }
        // One without quotes is read without `git`, also behind another.
        let write = "git config --file config teamd.source /w/.git; git config --file config teamd.shown refs/x";
        assert_eq!(bash(&root, write).0, Some(0));
        let plain = format!(
            "{BEGIN}\ngit() {{ exit 9; }}\nread_source; setting config shown; say read \"$source $value\""
        );
        std::os::unix::fs::symlink(&root, root.join("team.git")).unwrap();
        assert_eq!(
            bash(&root, &plain),
            (Some(0), "read=/w/.git refs/x\n".to_owned())
        );
        std::fs::remove_file(root.join("config")).unwrap();
        assert_ne!(bash(&root, &read).0, Some(0));
    }

    #[test]
    fn what_is_copied_is_ignored_by_its_name_alone() {
        let copied = [".env.test", "./data", "a [b]*"].map(str::to_owned);
        assert_eq!(ignored(&copied), "/.env.test\n/data\n/a\\ \\[b\\]\\*");
    }
}
