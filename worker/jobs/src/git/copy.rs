//! The copy of the team repository that a host has, and the work that comes from there. Files cross:
//! [`teamd_shared::bundle`].

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::OFlags;
use rustix::io::Errno;
use teamd_shared::bundle::{
    self, BulkFile, Bundle, BundleOrder, Bundled, KnownCommits, MAX_BULK, Pack, Packed, SeenAtHome,
    is_commit_id,
};
use teamd_shared::job::JobReport;
use teamd_shared::place::open_itself;
use teamd_shared::task::TaskId;
use uuid::Uuid;

use super::script::{Git, GitFailure, ScriptValues};
use super::{PACK, PACKED, make, references, remove_pack, repository};

pub(super) const KNOW: &str = concat!(include_str!("bundles.sh"), include_str!("know.sh"));
pub(super) const BUNDLE: &str = concat!(include_str!("bundles.sh"), include_str!("bundle.sh"));
pub(super) const RECEIVE: &str = concat!(
    include_str!("bundles.sh"),
    include_str!("team.sh"),
    include_str!("check_file.sh"),
    include_str!("receive.sh")
);
pub(super) const TAKE_FILE: &str = concat!(
    include_str!("bundles.sh"),
    include_str!("lfs.sh"),
    include_str!("check_file.sh"),
    include_str!("take.sh")
);

/// Says what the copy on this host has.
pub(super) async fn know(git: &Git<'_>) -> Result<JobReport, GitFailure> {
    let at = make_bundles(git)?;
    let values = git.run(KNOW, &at, &[]).await?;
    Ok(JobReport::Known(KnownCommits {
        names: values.all("names").pop(),
        commits: values.all("commit"),
    }))
}

/// Writes what the copy of a host lacks. Before the first checkout of a team the team repository is
/// made.
pub(super) async fn bundle(git: &Git<'_>, order: &BundleOrder) -> Result<JobReport, GitFailure> {
    let mut seen = SeenAtHome::default();
    if let Some(source) = &order.source {
        let repository = make::team_repository(git, source).await?;
        seen.prefix = repository.prefix;
        seen.notes = repository.notes;
    }
    references::refresh(git).await;
    let at = make_bundles(git)?;
    let known = &order.known;
    let is_id = |id: &&String| is_commit_id(id);
    let commits: Vec<&str> = known
        .commits
        .iter()
        .filter(is_id)
        .map(String::as_str)
        .collect();
    let file = bundle::file(Path::new(&git.order.home), order.name);
    let file = file.to_string_lossy();
    let more = [
        ("NAMES", known.names.as_deref().unwrap_or_default()),
        ("KNOWN", &commits.join("\n")),
        ("FILE", &file),
        ("ALSO", order.also.as_deref().unwrap_or_default()),
    ];
    let values = git.run(BUNDLE, &at, &more).await?;
    let bundle = if values.all("sha256").is_empty() {
        None
    } else {
        Some(Bundle {
            file: small(BulkFile {
                name: order.name,
                sha256: values.one("sha256")?,
                length: values.one("length")?.parse()?,
            })?,
            object_format: values.one("format")?,
            also: order.also.clone(),
        })
    };
    Ok(JobReport::Bundled(Bundled { bundle, seen }))
}

/// Makes the copy on this host what a bundle says.
pub(super) async fn receive(git: &Git<'_>, order: &Bundle) -> Result<JobReport, GitFailure> {
    let home = Path::new(&git.order.home);
    let file = bundle::file(home, order.file.name);
    let team = repository(git.order);
    let writes = if team.exists() { team.as_path() } else { home };
    let file_text = file.to_string_lossy();
    let more = [
        ("FILE", file_text.as_ref()),
        ("SHA256", &order.file.sha256),
        ("FORMAT", &order.object_format),
        ("ALSO", order.also.as_deref().unwrap_or_default()),
    ];
    let received = seeing(git).run(RECEIVE, writes, &more).await;
    bundle::remove(&file)?;
    received.map(|_| JobReport::Received)
}

/// Writes what a teammate of this host has committed, for home.
pub(super) async fn pack(
    git: &Git<'_>,
    root: &str,
    task: Option<TaskId>,
    submit: bool,
    name: Uuid,
) -> Result<JobReport, GitFailure> {
    let root = Path::new(root);
    if open_itself(root, OFlags::PATH).is_err_and(|errno| errno == Errno::NOENT) && !submit {
        return Ok(JobReport::Removed);
    }
    let submit = if submit { "1" } else { "" };
    let task = task.map(|task| task.to_string()).unwrap_or_default();
    let more = [
        ("SUBMIT", submit),
        ("TASK", task.as_str()),
        ("ON_HOST", "1"),
    ];
    let packed = match git.run(PACK, root, &more).await {
        Ok(values) => copy_pack(git, root, &values, name),
        Err(failed) => Err(failed),
    };
    remove_pack(root);
    packed.map(JobReport::Packed)
}

fn copy_pack(
    git: &Git<'_>,
    root: &Path,
    values: &ScriptValues,
    name: Uuid,
) -> Result<Packed, GitFailure> {
    let commit = values.commit("commit")?;
    if values.one("adds")? == "0" {
        return Ok(Packed { commit, pack: None });
    }
    let task = values.one("task")?.parse::<TaskId>()?;
    make_bundles(git)?;
    // Bytes alone are copied, of a file: the teammate may have put anything else there.
    let from = open_itself(
        &root.join(".git").join(PACKED),
        OFlags::RDONLY | OFlags::NONBLOCK,
    )
    .map(File::from)
    .context("the pack is gone")?;
    if !from.metadata()?.is_file() {
        return Err(GitFailure::refused("the pack is no file", "submit again"));
    }
    let pack = Some(Pack {
        commit: commit.clone(),
        task,
        file: small(bundle::copy(from, Path::new(&git.order.home), name)?)?,
    });
    Ok(Packed { commit, pack })
}

/// Takes what a teammate on a host has committed into the team repository.
pub(super) async fn take(git: &Git<'_>, pack: &Pack) -> Result<JobReport, GitFailure> {
    let home = Path::new(&git.order.home);
    let file = bundle::file(home, pack.file.name);
    let file_text = file.to_string_lossy();
    let task = pack.task.to_string();
    let more = [
        ("FILE", file_text.as_ref()),
        ("PACK", file_text.as_ref()),
        ("SHA256", &pack.file.sha256),
        ("TASK", &task),
        ("COMMIT", &pack.commit),
    ];
    let at = repository(git.order);
    let taken = seeing(git).run(TAKE_FILE, &at, &more).await;
    bundle::remove(&file)?;
    Ok(JobReport::Kept {
        commit: pack.commit.clone(),
        reference: Some(taken?.one("kept")?),
    })
}

/// Makes the folder of the files that cross.
fn make_bundles(git: &Git<'_>) -> anyhow::Result<PathBuf> {
    let at = bundle::folder(Path::new(&git.order.home));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&at);
    made.with_context(|| format!("cannot make {}", at.display()))?;
    Ok(at)
}

/// Refuses a file that is too large to cross.
fn small(file: BulkFile) -> Result<BulkFile, GitFailure> {
    let length = file.length;
    if length > MAX_BULK {
        return Err(GitFailure::refused(
            format!("{length} bytes are too much to cross a link"),
            "commit less, or work at home",
        ));
    }
    Ok(file)
}

/// Returns what runs scripts that read such a file.
fn seeing<'a>(git: &Git<'a>) -> Git<'a> {
    Git {
        sees_bundles: true,
        ..*git
    }
}
