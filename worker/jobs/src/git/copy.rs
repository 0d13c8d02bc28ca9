//! The copy of the team repository that a host has, and the work that comes from there. Files cross:
//! [`teamd_shared::bundle`].

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::OFlags;
use rustix::io::Errno;
use teamd_shared::bundle::{
    self, BulkFile, BulkName, Bundle, BundleOrder, Bundled, KnownCommits, MAX_BULK, Pack, Packed,
};
use teamd_shared::job::JobReport;
use teamd_shared::place::open_itself;
use teamd_shared::task::TaskId;

use super::script::{Git, GitFailure, ScriptValues};
use super::{PACK, PACKED, bundles, make, references, remove_pack, repository};

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
    let mut bundled = Bundled {
        bundle: None,
        prefix: String::new(),
        notes: Vec::new(),
    };
    if let Some(source) = &order.source {
        let seen = make::team_repository(git, source).await?;
        bundled.prefix = seen.prefix;
        bundled.notes = seen.notes;
    }
    references::refresh(git).await;
    let at = make_bundles(git)?;
    let known = &order.known;
    let is_id = |id: &&String| id.len() <= 64 && id.bytes().all(|it| it.is_ascii_hexdigit());
    let commits: Vec<&str> = known
        .commits
        .iter()
        .filter(is_id)
        .map(String::as_str)
        .collect();
    let file = BulkName::Bundle(Some(order.host.clone()));
    let file = file.file(Path::new(&git.order.home));
    let file = file.to_string_lossy();
    let more = [
        ("NAMES", known.names.as_deref().unwrap_or_default()),
        ("KNOWN", &commits.join("\n")),
        ("FILE", &file),
        ("ALSO", order.also.as_deref().unwrap_or_default()),
    ];
    let values = git.run(BUNDLE, &at, &more).await?;
    if !values.all("sha256").is_empty() {
        bundled.bundle = Some(Bundle {
            file: bulk_file(&values)?,
            object_format: values.one("format")?,
            also: order.also.clone(),
        });
    }
    Ok(JobReport::Bundled(bundled))
}

/// Makes the copy on this host what a bundle says.
pub(super) async fn receive(git: &Git<'_>, bundle: &Bundle) -> Result<JobReport, GitFailure> {
    let home = Path::new(&git.order.home);
    let file = BulkName::Bundle(None).file(home);
    let team = repository(git.order);
    let writes = if team.exists() { team.as_path() } else { home };
    let file_text = file.to_string_lossy();
    let more = [
        ("FILE", file_text.as_ref()),
        ("SHA256", &bundle.file.sha256),
        ("FORMAT", &bundle.object_format),
        ("ALSO", bundle.also.as_deref().unwrap_or_default()),
    ];
    let received = git.run(RECEIVE, writes, &more).await;
    remove_file(&file)?;
    received.map(|_| JobReport::Received)
}

/// Writes what a teammate of this host has committed, for home.
pub(super) async fn pack(
    git: &Git<'_>,
    root: &str,
    task: Option<TaskId>,
    submit: bool,
) -> Result<JobReport, GitFailure> {
    let root = Path::new(root);
    if open_itself(root, OFlags::PATH).is_err_and(|errno| errno == Errno::NOENT) && !submit {
        return Ok(JobReport::Removed);
    }
    let submit = if submit { "1" } else { "" };
    let task = task.map(|task| task.to_string()).unwrap_or_default();
    let more = [("SUBMIT", submit), ("TASK", task.as_str())];
    let packed = match git.run(PACK, root, &more).await {
        Ok(values) => copy_pack(git, root, &values),
        Err(failed) => Err(failed),
    };
    remove_pack(root);
    packed.map(JobReport::Packed)
}

fn copy_pack(git: &Git<'_>, root: &Path, values: &ScriptValues) -> Result<Packed, GitFailure> {
    let commit = values.commit("commit")?;
    if values.one("adds")? == "0" {
        return Ok(Packed { commit, pack: None });
    }
    let task = values.one("task")?.parse::<TaskId>()?;
    make_bundles(git)?;
    let to = BulkName::Pack(git.order.name.clone()).file(Path::new(&git.order.home));
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
        file: small(bundle::copy(from, &to)?)?,
    });
    Ok(Packed { commit, pack })
}

/// Takes what a teammate on a host has committed into the team repository.
pub(super) async fn take(git: &Git<'_>, pack: &Pack) -> Result<JobReport, GitFailure> {
    let home = Path::new(&git.order.home);
    let file = BulkName::Pack(git.order.name.clone()).file(home);
    let file_text = file.to_string_lossy();
    let task = pack.task.to_string();
    let more = [
        ("FILE", file_text.as_ref()),
        ("PACK", file_text.as_ref()),
        ("SHA256", &pack.file.sha256),
        ("TASK", &task),
        ("COMMIT", &pack.commit),
    ];
    let taken = git.run(TAKE_FILE, &repository(git.order), &more).await;
    remove_file(&file)?;
    Ok(JobReport::Kept {
        commit: pack.commit.clone(),
        reference: Some(taken?.one("kept")?),
    })
}

/// Makes the folder of the files that cross.
fn make_bundles(git: &Git<'_>) -> anyhow::Result<PathBuf> {
    let at = bundles(git.order);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&at);
    made.with_context(|| format!("cannot make {}", at.display()))?;
    Ok(at)
}

fn bulk_file(values: &ScriptValues) -> Result<BulkFile, GitFailure> {
    small(BulkFile {
        sha256: values.one("sha256")?,
        length: values.one("length")?.parse()?,
    })
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

fn remove_file(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
