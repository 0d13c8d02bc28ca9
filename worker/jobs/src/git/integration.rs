//! Integration: submitted work is merged with the integration branch, checked as it would be then,
//! and the branch is moved.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::fingerprint::{Patterns, followed, named, on_the_way};
use teamd_shared::job::{GitOrder, JobReport, MergedOrder, PrepareOrder};
use teamd_shared::merged::Landed;
use teamd_shared::merged::Merged;
use teamd_shared::repository::Elsewhere;
use teamd_shared::task::TaskId;
use teamd_shared::team_dir::TeamPath;

use super::script::{CUT, Git, GitFailure, ScriptValues};
use super::{cache, check_caches, references, repository, scratch, script};
use crate::check;
use teamd_worker_sandbox::run::{LiveLog, OutputReader, Runner};
use teamd_worker_sandbox::{Keeps, accept, remove};

pub(super) const MERGE: &str = concat!(include_str!("tree.sh"), include_str!("merge.sh"));
pub(super) const LINKS: &str = include_str!("links.sh");
pub(super) const SCRATCH: &str = concat!(
    include_str!("names.sh"),
    include_str!("tree.sh"),
    include_str!("lfs.sh"),
    include_str!("submodules.sh"),
    include_str!("scratch.sh")
);
pub(super) const INTEGRATE: &str = concat!(include_str!("tree.sh"), include_str!("integrate.sh"));
pub(super) const PUBLISH: &str = concat!(
    include_str!("names.sh"),
    include_str!("lfs.sh"),
    include_str!("publish.sh")
);
pub(super) const USERS_TREE: &str = concat!(
    include_str!("names.sh"),
    include_str!("tree.sh"),
    include_str!("users_tree.sh")
);
pub(super) const KEEP_CACHE: &str = include_str!("keep_cache.sh");
pub(super) const DIFF: &str = include_str!("diff.sh");
pub(super) const SYNC: &str = concat!(include_str!("names.sh"), include_str!("sync.sh"));
pub(super) const LAND: &str = concat!(
    include_str!("names.sh"),
    include_str!("changes.sh"),
    include_str!("lfs.sh"),
    include_str!("land.sh")
);

/// How many links in a row are followed, as the kernel does.
const MOST_LINKS: usize = 40;
/// How much of the log of a check on a host comes home, in bytes.
const MOST_LOG: usize = 256 << 10;

/// Merges a commit with the tip of the integration branch, and runs the check on the result in the
/// scratch clone.
pub(super) async fn prepare(
    git: &Git<'_>,
    prepare: &PrepareOrder,
) -> Result<CheckReport, GitFailure> {
    let Merge { report, prefix } = merge(git, prepare).await?;
    let Some(merged) = &report.merged else {
        return Ok(report);
    };
    if prepare.check.commands.is_empty() {
        return Ok(report);
    }
    let checked = in_scratch(git, prepare, (merged, &prefix)).await?;
    Ok(report.with(checked))
}

/// What came of a merge.
pub(super) struct Merge {
    /// What was found out without running a command.
    pub(super) report: CheckReport,
    /// The directory in the repository that the team works in.
    pub(super) prefix: String,
}

/// Merges a commit with the tip of the integration branch.
pub(super) async fn merge(git: &Git<'_>, prepare: &PrepareOrder) -> Result<Merge, GitFailure> {
    let more = [
        ("COMMIT", prepare.commit.as_str()),
        ("MESSAGE", &prepare.message),
    ];
    let values = git.run(MERGE, &repository(git.order), &more).await?;
    let prefix = values.one("prefix")?;
    let conflicts = values.all("conflict");
    if !conflicts.is_empty() {
        let report = CheckReport {
            conflicts,
            ..CheckReport::default()
        };
        return Ok(Merge { report, prefix });
    }
    let merged = Merged {
        commit: values.commit("merged")?,
        old: values.commit("tip")?,
    };
    let protect = through_links(
        git,
        &merged.old,
        (Path::new(&prefix), &prepare.check.protect),
    )
    .await?;
    let touched_protected = touched(&values, (Path::new(&prefix), &protect))?;
    let report = CheckReport {
        exit: Some(0),
        merged: Some(merged),
        touched_protected,
        ..CheckReport::default()
    };
    Ok(Merge { report, prefix })
}

/// Runs the commands of a check on this host, on what was merged at home.
pub(super) async fn check_merged(
    git: &Git<'_>,
    order: &MergedOrder,
) -> Result<JobReport, GitFailure> {
    let report = in_scratch(git, &order.prepare, (&order.merged, &order.prefix)).await?;
    let at = TeamPath::check_log(order.prepare.check.task);
    let log = match git.setting.dir.read(&at) {
        Ok(log) => log,
        // A conflict of the checkout: no command ran.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let end = log.len().saturating_sub(MOST_LOG);
    let log = String::from_utf8_lossy(&log[end..]).into_owned();
    Ok(JobReport::CheckedThere { report, log })
}

/// Keeps the output of a check that has run on a host.
pub(super) fn log(git: &Git<'_>, task: TaskId, text: &str) -> anyhow::Result<()> {
    let mut log = check::begin_log(&git.setting.dir, task)?;
    log.write_all(text.as_bytes())
        .context("cannot write the log of a check")
}

/// Says which protected files a merge changes, as `git` compares the two trees in the team
/// repository: nothing in a checkout has a say in that. The patterns count from the directory in
/// which the team lies: what lies outside of it is protected where anything is.
fn touched(
    values: &ScriptValues,
    (prefix, protect): (&Path, &[String]),
) -> Result<Option<String>, GitFailure> {
    if protect.is_empty() {
        return Ok(None);
    }
    let protected = Patterns::new(protect).map_err(anyhow::Error::msg)?;
    if !values.all(CUT).is_empty() {
        return Ok(Some(
            "it changes more files than can be looked at".to_owned(),
        ));
    }
    let changed = values.all("changed");
    let submodules = values.all("submodule");
    // Attributes say how git writes files, the protected ones, too; a submodule may hold some.
    let files = changed.iter().map(Path::new).filter(|file| {
        let special = [".gitattributes", ".gitmodules"].map(OsStr::new);
        let is_protected = file
            .strip_prefix(prefix)
            .map_or(true, |file| protected.has(file));
        is_protected || file.file_name().is_some_and(|it| special.contains(&it))
    });
    Ok(named(files.chain(submodules.iter().map(Path::new))))
}

/// Returns patterns, and what they are where links of a commit lead. A merge that changes such a
/// link has touched it.
async fn through_links(
    git: &Git<'_>,
    commit: &str,
    (prefix, protect): (&Path, &[String]),
) -> Result<Vec<String>, GitFailure> {
    let mut targets: BTreeMap<PathBuf, Option<PathBuf>> = BTreeMap::new();
    let mut all = protect.to_vec();
    for _ in 0..MOST_LINKS {
        let mut new = on_the_way(&all);
        new.retain(|at| !targets.contains_key(at));
        if new.is_empty() {
            break;
        }
        let paths: Vec<String> = new
            .iter()
            .map(|at| prefix.join(at).to_string_lossy().into_owned())
            .collect();
        let more = [("COMMIT", commit), ("PATHS", &paths.join("\n"))];
        let values = git.run(LINKS, &repository(git.order), &more).await?;
        targets.extend(new.into_iter().map(|at| (at, None)));
        for (link, target) in values.all("link").iter().zip(values.all("target")) {
            let link = Path::new(link)
                .strip_prefix(prefix)
                .unwrap_or(Path::new(link));
            targets.insert(link.to_owned(), Some(PathBuf::from(target)));
        }
        all = followed(protect, |at| Ok(targets.get(at).cloned().flatten()))
            .map_err(anyhow::Error::from)?;
    }
    Ok(all)
}

/// Runs the check in the scratch clone, in the directory in which the team lies.
async fn in_scratch(
    git: &Git<'_>,
    prepare: &PrepareOrder,
    (merged, prefix): (&Merged, &str),
) -> Result<CheckReport, GitFailure> {
    let filled = fill(git, prepare, (&merged.commit, prefix)).await?;
    let conflicts = filled.all("conflict");
    if !conflicts.is_empty() {
        return Ok(CheckReport {
            conflicts,
            ..CheckReport::default()
        });
    }
    let at = scratch(git.order);
    let order = &prepare.check;
    let log = check::begin_log(&git.setting.dir, order.task)?;
    let free = free_blocks(Path::new(&git.order.home));
    // The setup is the first that runs code of the submission.
    let workspace = at.join(prefix);
    let mut by_setup = None;
    if let Some(setup) = &prepare.settings.setup {
        let command = check::below(prefix, setup);
        let shown = LiveLog::begin(log.try_clone()?, setup);
        // It writes: what it installs may lie among what is protected.
        let watch = check::ProtectedWatch::begin(&workspace, &order.protect, false);
        let ran = scratch_runner(git, order, &merged.commit, Vec::new())?
            .run(
                command.clone(),
                order.timeout,
                OutputReader::Model(Some(shown)),
            )
            .await?;
        if let Some(how) = ran.failure {
            // Either the work has broken it, or it cannot be run here.
            fill(git, prepare, (&merged.old, prefix)).await?;
            let without = scratch_runner(git, order, &merged.commit, Vec::new())?
                .run(command, order.timeout, OutputReader::Model(None))
                .await?;
            if without.failure.is_none() {
                let how =
                    format!("was not run: the setup `{setup}` fails with this work only ({how})");
                return Ok(CheckReport {
                    how,
                    output: check::end_of(&ran.output),
                    ..CheckReport::default()
                });
            }
            let output = ran.output.trim_end();
            return Err(anyhow::anyhow!("the setup failed: `{setup}`: {how}\n{output}").into());
        }
        by_setup = watch.touched("changed by the setup", false);
    }
    let sealed = git.setting.confinement.seals(&order.sandbox);
    let watch = check::ProtectedWatch::begin(&workspace, &order.protect, sealed);
    let runner = scratch_runner(git, order, &merged.commit, watch.starts())?;
    let mut report = check::commands(runner, (order, prefix), &log).await?;
    // What only the check itself can add is gone before the next one.
    report.touched_protected = by_setup.or_else(|| watch.touched(check::BY_CHECK, false));
    if report.exit != Some(0) {
        had_space(git, prepare, (&merged.commit, prefix, free)).await?;
        let notes = filled
            .all("note")
            .into_iter()
            .map(|note| format!("note: {note}\n"));
        report.output.insert_str(0, &notes.collect::<String>());
    }
    Ok(report)
}

/// Makes what runs commands in the scratch clone. No check changes what the next one is taken from,
/// or what `decides`.
fn scratch_runner(
    git: &Git<'_>,
    order: &CheckOrder,
    commit: &str,
    decides: Vec<PathBuf>,
) -> anyhow::Result<Runner> {
    let at = scratch(git.order);
    let environment = order.environment.clone();
    let sealed = [vec![at.join(".git")], decides].concat();
    let keeps = Keeps::Checks {
        folder: check_caches(git.order),
        of: commit.to_owned(),
    };
    git.sealed_runner(
        &at,
        (environment, order.sandbox.clone(), order.bounds),
        (sealed, keeps),
    )
}

/// Fills the scratch clone with a commit. An earlier check may have left anything there: then it is
/// made again.
async fn fill(
    git: &Git<'_>,
    prepare: &PrepareOrder,
    (commit, prefix): (&str, &str),
) -> Result<ScriptValues, GitFailure> {
    let at = scratch(git.order);
    // The files are as those of the one who has submitted them.
    let environment = prepare.check.environment.clone();
    let visible = prepare.check.sandbox.visible.clone();
    let order = GitOrder {
        environment,
        visible,
        ..git.order.clone()
    };
    let variables = script::variables(git.setting, &order)?;
    let git = &Git {
        order: &order,
        variables: &variables,
        ..*git
    };
    let cache = cache(git.order).to_string_lossy().into_owned();
    let paths = prepare.cache.join("\n");
    let more = [
        ("COMMIT", commit),
        ("PREFIX", prefix),
        ("CACHE", &cache),
        ("PATHS", &paths),
    ];
    let failed = match fill_once(git, &at, &more).await {
        Ok(filled) => return Ok(filled),
        Err(failed) => failed,
    };
    tracing::warn!("the scratch clone is made again: {}", failed.text());
    remove(&at).context("cannot remove the scratch clone")?;
    let again = fill_once(git, &at, &more).await;
    if again.is_err() {
        // Half of it would only take room.
        remove(&at).context("cannot remove the scratch clone")?;
    }
    again
}

async fn fill_once(
    git: &Git<'_>,
    at: &Path,
    variables: &[(&str, &str)],
) -> Result<ScriptValues, GitFailure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(at)
        .context("cannot make the scratch clone")?;
    git.run(SCRATCH, at, variables).await
}

/// Makes sure that a check which failed had space, else it could not be run. One that has filled
/// the disk itself has failed: what was free before is free again when the scratch clone is as it
/// was.
async fn had_space(
    git: &Git<'_>,
    prepare: &PrepareOrder,
    (commit, prefix, free): (&str, &str, u64),
) -> Result<(), GitFailure> {
    let home = Path::new(&git.order.home);
    if free_blocks(home) > 0
        || fill(git, prepare, (commit, prefix)).await.is_ok() && free_blocks(home) > free / 2
    {
        return Ok(());
    }
    let why = format!(
        "the check found no space: No space left on device: {}",
        home.display()
    );
    Err(git
        .full_disk(&why, home)
        .map_or_else(|| anyhow::Error::msg(why).into(), GitFailure::Refused))
}

fn free_blocks(at: &Path) -> u64 {
    rustix::fs::statvfs(at).map_or(0, |disk| disk.f_bavail)
}

/// Moves the integration branch, shows that to the user, and keeps what the check has left. Done a
/// second time, it changes nothing.
pub(super) async fn integrate(
    git: &Git<'_>,
    merged: &Merged,
    keep: &[String],
) -> Result<JobReport, GitFailure> {
    let more = [("COMMIT", merged.commit.as_str()), ("OLD", &merged.old)];
    let values = git.run(INTEGRATE, &repository(git.order), &more).await?;
    let moved = values.one("moved")? == "1";
    if moved {
        accept(&check_caches(git.order), &merged.commit);
        let source = values.one("source")?;
        let tree = values.one("tree")?;
        let held = references::held(Path::new(&git.order.home));
        let more = [("TREE", tree.as_str()), ("HELD", &held)];
        let shown = match git.run(PUBLISH, Path::new(&source), &more).await {
            Ok(values) => references::note_shown(git, &values).await,
            Err(error) => Err(error),
        };
        if let Err(error) = shown {
            tracing::warn!(
                "{source} does not show the integration branch (shown with the next): {}",
                error.text()
            );
        }
        let at = scratch(git.order);
        let is_of_it =
            fs::read_to_string(at.join(".git/HEAD")).is_ok_and(|head| head.trim() == merged.commit);
        if !keep.is_empty() && is_of_it {
            let cache = cache(git.order);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&cache)
                .context("cannot make the cache")?;
            let paths = keep.join("\n");
            let from = at.join(values.one("prefix")?);
            let from = from.to_string_lossy();
            if let Err(error) = git
                .run(KEEP_CACHE, &cache, &[("SCRATCH", &from), ("PATHS", &paths)])
                .await
            {
                tracing::warn!(
                    "the next check begins with an older cache: {}",
                    error.text()
                );
            }
        }
    }
    Ok(JobReport::Integrated(moved))
}

/// Shows what a commit changes, or else a checkout.
pub(super) async fn diff(
    git: &Git<'_>,
    commit: Option<&str>,
    root: &str,
) -> Result<JobReport, GitFailure> {
    let at = if commit.is_some() {
        repository(git.order)
    } else {
        PathBuf::from(root)
    };
    let values = git
        .run(DIFF, &at, &[("COMMIT", commit.unwrap_or_default())])
        .await?;
    let untracked = values
        .all("untracked")
        .into_iter()
        .map(|file| format!("not in git: {file}"));
    Ok(JobReport::Text(
        values
            .lines(&["diff", CUT])
            .into_iter()
            .chain(untracked)
            .collect::<Vec<_>>()
            .join("\n"),
    ))
}

/// Takes the user's branch into the team repository.
pub(super) async fn sync(git: &Git<'_>, into: Option<&str>) -> Result<JobReport, GitFailure> {
    let UsersTree { tree, .. } = users_tree(git).await?;
    references::refresh(git).await;
    let more = [
        ("SOURCE", tree.as_str()),
        ("INTO", into.unwrap_or_default()),
    ];
    let values = git.run(SYNC, &repository(git.order), &more).await?;
    let commit = Some(values.one("commit")?).filter(|commit| !commit.is_empty());
    let shown = references::shown(git)?;
    Ok(JobReport::Synced {
        branch: values.one("branch")?,
        commit,
        shown,
    })
}

/// Fast-forwards a branch of the user.
pub(super) async fn land(git: &Git<'_>, into: Option<&str>) -> Result<JobReport, GitFailure> {
    let UsersTree { tree, source } = users_tree(git).await?;
    // It was noted when the team repository was made: no file that leads there since counts.
    let is_elsewhere =
        !Path::new(&source).starts_with(&tree) && Elsewhere::find(Path::new(&tree)).is_none();
    let repository = is_elsewhere.then_some(source.as_str());
    let held = references::held(Path::new(&git.order.home));
    let more = [
        ("SOURCE", tree.as_str()),
        ("INTO", into.unwrap_or_default()),
        ("HELD", &held),
    ];
    let values: ScriptValues = git
        .run_writing(LAND, Path::new(&tree), repository, &more)
        .await?;
    references::note_shown(git, &values).await?;
    let branch = values.one("branch")?;
    let before = values.one("before")?;
    let after = values.one("after")?;
    let tip = values.one("tip")?;
    Ok(JobReport::Landed(Landed {
        branch,
        before,
        after,
        tip,
        pointers: values.all("pointer"),
    }))
}

/// Where the user works: the top of the tree, and its repository.
struct UsersTree {
    tree: String,
    source: String,
}

/// Finds where the user works, or says that there is no team repository.
async fn users_tree(git: &Git<'_>) -> Result<UsersTree, GitFailure> {
    let at = repository(git.order);
    if !at.exists() {
        return Err(GitFailure::refused(
            "no teammate has a checkout yet, so nothing is integrated",
            "`teamctl spawn NAME --checkout` makes the first one",
        ));
    }
    let values = git.run(USERS_TREE, &at, &[]).await?;
    Ok(UsersTree {
        tree: values.one("tree")?,
        source: values.one("source")?,
    })
}
