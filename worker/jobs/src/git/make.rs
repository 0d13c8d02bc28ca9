//! A checkout is made: the team repository before, if there is none, and then what prepares it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{Access, OFlags};
use teamd_shared::bundle::SeenAtHome;
use teamd_shared::checkout::{Checkout, CheckoutSettings};
use teamd_shared::fingerprint::fingerprint;
use teamd_shared::fs::replace;
use teamd_shared::job::{JobReport, MakeOrder};
use teamd_shared::place::open_itself;
use teamd_shared::team_dir::TeamPath;

use super::script::{Git, GitFailure};
use super::{for_checkout, references, repository, text};
use crate::check::below;
use teamd_worker_sandbox::run::OutputReader;
use teamd_worker_sandbox::{Keeps, remove};

pub(super) const REPOSITORY: &str = concat!(
    include_str!("names.sh"),
    include_str!("tree.sh"),
    include_str!("changes.sh"),
    include_str!("team.sh"),
    include_str!("repository.sh")
);
pub(super) const CLONE: &str = concat!(
    include_str!("names.sh"),
    include_str!("changes.sh"),
    include_str!("lfs.sh"),
    include_str!("submodules.sh"),
    include_str!("clone.sh")
);
pub(super) const OPEN: &str = include_str!("open.sh");

/// What tells tools, in a directory above a checkout, that what lies below belongs to them.
const MANIFESTS: [&str; 5] = [
    "Cargo.toml",
    "package.json",
    "pnpm-workspace.yaml",
    "go.work",
    "pyproject.toml",
];

/// Makes a checkout, or finds it, and prepares it.
pub(super) async fn checkout(git: &Git<'_>, make: &MakeOrder) -> Result<JobReport, GitFailure> {
    let mut seen = match &make.seen {
        Some(seen) => copy_of_home(git, make, seen)?,
        None => team_repository(git, &make.source).await?,
    };
    let top = &seen.top;
    if git.order.host.is_none() {
        references::refresh(git).await;
    }
    let (root, mut notes) = place(git, make, Path::new(top))?;
    let root_text = text(&root)?;
    notes.append(&mut seen.notes);
    match cloned(git, &root, top).await? {
        Some(more) => notes.extend(more),
        // Once is enough.
        None => notes.clear(),
    }
    let files = git.order.copied.join("\n");
    git.run(
        OPEN,
        &root,
        &[("TOP", top), ("COPY", &files), ("PREFIX", &seen.prefix)],
    )
    .await?;
    let repository = text(&repository(git.order))?;
    let checkout = Checkout {
        root: root_text,
        source: make.source.clone(),
        repository,
        notes,
    };
    let workspace = text(&root.join(&seen.prefix).components().collect::<PathBuf>())?;
    set_up(git, make, (&checkout, &seen.prefix)).await?;
    Ok(JobReport::Made {
        checkout,
        workspace,
    })
}

/// What checkouts are made from.
pub(super) struct SeenRepository {
    /// Where the user's tree is; on a host the copy of the team repository.
    pub(super) top: String,
    /// The directory in it that the team works in.
    pub(super) prefix: String,
    pub(super) notes: Vec<String>,
}

/// Makes the team repository of the user's, unless it is there.
pub(super) async fn team_repository(
    git: &Git<'_>,
    source: &str,
) -> Result<SeenRepository, GitFailure> {
    let home = Path::new(&git.order.home);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home)
        .with_context(|| git.order.home.clone())?;
    let held = references::held(home);
    let more = [("SOURCE", source), ("HELD", &held)];
    let seen = git.run(REPOSITORY, home, &more).await?;
    let mut notes = seen.all("note");
    let source = seen.one("source")?;
    if !["objects", "refs"]
        .iter()
        .all(|name| may_write(&Path::new(&source).join(name)))
    {
        notes.push(format!(
            "nothing can be shown in {source}, or landed: confined commands may not write there as this user (`chown` or `chmod` lets them)"
        ));
    }
    Ok(SeenRepository {
        top: seen.one("top")?,
        prefix: seen.one("prefix")?,
        notes,
    })
}

/// Returns the copy of the team repository that this host has.
fn copy_of_home(
    git: &Git<'_>,
    make: &MakeOrder,
    seen: &SeenAtHome,
) -> Result<SeenRepository, GitFailure> {
    let mut notes = seen.notes.clone();
    if !make.settings.copy.is_empty() {
        notes
            .push("what `[checkout] copy` names is at home: it is not copied to a host".to_owned());
    }
    Ok(SeenRepository {
        top: text(&repository(git.order))?,
        prefix: seen.prefix.clone(),
        notes,
    })
}

/// Makes the clone, unless something is there; returns notes about it. It gets its name
/// when it is whole: nothing that is already there is ever removed.
async fn cloned(git: &Git<'_>, root: &Path, top: &str) -> Result<Option<Vec<String>>, GitFailure> {
    if open_itself(&root.join(".git"), OFlags::PATH | OFlags::NOFOLLOW).is_ok() {
        return Ok(None);
    }
    if root
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
    {
        return Err(not_empty(root));
    }
    let home = Path::new(&git.order.home);
    put_note(&Checkout::note(home, root), root)?;
    let unfinished = Unfinished::begin(git, root)?;
    let from = match git.order.host {
        Some(_) => "what crosses a link",
        None => "",
    };
    // With an earlier checkout of that name it has run.
    git.setting.dir.remove(&TeamPath::setup(&git.order.name))?;
    let made = match git
        .run(CLONE, &unfinished.at, &[("TOP", top), ("FROM", from)])
        .await
    {
        Ok(values) => fs::rename(&unfinished.at, root)
            .map(|()| values.all("note"))
            .map_err(|_| not_empty(root)),
        Err(failed) => Err(failed),
    };
    let ended = unfinished.end();
    let notes = made?;
    ended?;
    Ok(Some(notes))
}

fn not_empty(root: &Path) -> GitFailure {
    GitFailure::refused(
        format!("{} is not empty, and is not a checkout", root.display()),
        "move it away, or set `checkouts = \"PATH\"` in team.toml",
    )
}

/// A clone that is being made, beside where it belongs. A note in the directory of the team
/// repository, a link to nothing, says which directory that is: what a killed job leaves is removed
/// by the next one, and nothing else that has the name.
struct Unfinished {
    at: PathBuf,
    note: PathBuf,
}

impl Unfinished {
    fn begin(git: &Git<'_>, root: &Path) -> Result<Self, GitFailure> {
        let at = Checkout::unfinished(root);
        let note = Path::new(&git.order.home).join(format!("{}.new", git.order.name));
        let unfinished = Self { at, note };
        unfinished.end()?;
        match DirBuilder::new().mode(0o700).create(&unfinished.at) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(not_empty(&unfinished.at))
            }
            other => {
                other.with_context(|| format!("cannot make {}", unfinished.at.display()))?;
                put_note(&unfinished.note, &identity(&unfinished.at)?)?;
                Ok(unfinished)
            }
        }
    }

    /// Removes what is left of it. Without a note only an empty directory can be.
    fn end(&self) -> anyhow::Result<()> {
        let current = match identity(&self.at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        let noted = fs::read_link(&self.note).ok();
        let removed = match current {
            None => Ok(()),
            Some(_) if current == noted => remove(&self.at),
            Some(_) => fs::remove_dir(&self.at),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(()),
            other => other.with_context(|| format!("cannot remove {}", self.at.display()))?,
        }
        remove_note(&self.note)
    }
}

/// Notes what is made: a link, which may lead to nothing.
fn put_note(at: &Path, what: &Path) -> anyhow::Result<()> {
    remove_note(at)?;
    symlink(what, at).context("cannot note what is made")
}

pub(super) fn remove_note(note: &Path) -> anyhow::Result<()> {
    match fs::remove_file(note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context("cannot remove a note")
        }
        _ => Ok(()),
    }
}

/// Returns what tells the directory that is there from any other.
fn identity(at: &Path) -> io::Result<PathBuf> {
    let metadata = at.symlink_metadata()?;
    Ok(format!("{}:{}", metadata.dev(), metadata.ino()).into())
}

/// Finds where the checkout lies, and makes that directory: where the settings say, else beside the
/// repository, else where the user may write. Returns notes about the place.
fn place(
    git: &Git<'_>,
    make: &MakeOrder,
    top: &Path,
) -> Result<(PathBuf, Vec<String>), GitFailure> {
    let mut beside = top.file_name().unwrap_or_default().to_owned();
    beside.push(".team");
    let named = make.at.as_ref().map(PathBuf::from);
    let base = named.unwrap_or_else(|| top.with_file_name(beside));
    let name = git.order.name.as_str();
    if make.at.is_none() && base.is_symlink() {
        return Err(taken(&base, "is a link"));
    }
    let root = match in_base(&base, name) {
        Err(error) if is_closed(error.kind()) && make.at.is_none() => {
            in_base(Path::new(&make.otherwise), name).with_context(|| make.otherwise.clone())?
        }
        Err(error) => {
            return Err(GitFailure::refused(
                format!("a checkout cannot be made in {}: {error}", base.display()),
                "set `checkouts = \"PATH\"` in team.toml to another directory",
            ));
        }
        Ok(root) => root,
    };
    // Root may do anything anyway.
    let user = rustix::process::geteuid().as_raw();
    if let Some(above) = root.parent()
        && let Ok(metadata) = above.symlink_metadata()
        && ![user, 0].contains(&metadata.uid())
    {
        return Err(taken(above, "belongs to another user"));
    }
    if root
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.uid() != user)
    {
        return Err(taken(&root, "belongs to another user"));
    }
    if root.starts_with(top) {
        return Err(GitFailure::refused(
            format!(
                "a checkout cannot lie in the repository {} itself",
                top.display()
            ),
            "set `checkouts = \"PATH\"` in team.toml to a directory outside of it",
        ));
    }
    let above = root
        .ancestors()
        .skip(1)
        .flat_map(|above| MANIFESTS.map(|file| above.join(file)));
    let adopting = above.filter(|file| file.exists()).map(|file| {
        format!(
            "tools may take the checkout for a part of {}: `checkouts = \"PATH\"` in team.toml moves it",
            file.display()
        )
    });
    let notes = adopting.take(1).collect();
    Ok((root, notes))
}

/// Makes the directory in which checkouts lie, and returns where a checkout belongs: no link is
/// there.
fn in_base(base: &Path, name: &str) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let root = base.canonicalize()?.join(name);
    match open_itself(&root, OFlags::PATH | OFlags::DIRECTORY) {
        Err(rustix::io::Errno::NOENT) => rustix::fs::access(base, Access::WRITE_OK)?,
        other => drop(other?),
    }
    Ok(root)
}

/// Says that another could lead a checkout elsewhere, or replace it.
fn taken(at: &Path, why: &str) -> GitFailure {
    GitFailure::refused(
        format!("a checkout cannot be made at {}: that {why}", at.display()),
        "remove it if you may, or set `checkouts = \"PATH\"` in team.toml to a directory of yours",
    )
}

/// Tells whether this user may write a directory, without the rights of root over what others own:
/// a confined command has none.
fn may_write(at: &Path) -> bool {
    let Ok(metadata) = at.metadata() else {
        return true;
    };
    if metadata.uid() == rustix::process::geteuid().as_raw() {
        return metadata.mode() & 0o200 != 0;
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    let own = rustix::process::getegid();
    let is_member = groups
        .iter()
        .chain([&own])
        .any(|group| group.as_raw() == metadata.gid());
    let bit = if is_member { 0o020 } else { 0o002 };
    metadata.mode() & bit != 0
}

fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Runs the setup, unless it has run with these inputs.
async fn set_up(
    git: &Git<'_>,
    make: &MakeOrder,
    (checkout, folder): (&Checkout, &str),
) -> Result<(), GitFailure> {
    let CheckoutSettings {
        setup: Some(setup), ..
    } = &make.settings
    else {
        return Ok(());
    };
    let dir = &git.setting.dir;
    let noted = TeamPath::setup(&git.order.name);
    if let Ok(before) = dir.read(&noted)
        && stamp_of_setup(make, checkout, setup).is_ok_and(|stamp| before == stamp.as_bytes())
    {
        return Ok(());
    }
    dir.remove(&noted)?;
    let environment = for_checkout(&git.order.environment, Some(checkout));
    let root = Path::new(&checkout.root);
    let keeps = Keeps::Member(git.order.name.clone());
    let mut runner = git.runner(
        root,
        (environment, make.sandbox.clone(), make.bounds),
        keeps,
    )?;
    let command = below(folder, setup);
    let ran = runner
        .run(command, git.order.timeout, OutputReader::Model(None))
        .await?;
    if let Some(how) = ran.failure {
        return Err(GitFailure::refused(
            format!(
                "the setup of {} failed: `{setup}`: {how}\n{}",
                git.order.name,
                ran.output.trim_end()
            ),
            "fix `[checkout] setup` in team.toml, or what it needs",
        ));
    }
    // It may have written its inputs, such as a lock file.
    match stamp_of_setup(make, checkout, setup) {
        Ok(stamp) => {
            replace(dir, &noted, stamp.as_bytes()).context("cannot note that the setup has run")?
        }
        Err(error) => tracing::warn!("the setup runs again with the next spawn: {error:#}"),
    }
    Ok(())
}

/// Returns what changes when the setup has to run again.
fn stamp_of_setup(make: &MakeOrder, checkout: &Checkout, setup: &str) -> anyhow::Result<String> {
    let inputs = fingerprint(Path::new(&checkout.root), &make.settings.inputs());
    let inputs = inputs.context("cannot read what the setup depends on")?;
    Ok(format!("{inputs}\n{}\n{setup}", checkout.root))
}
