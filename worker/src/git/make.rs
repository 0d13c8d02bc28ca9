//! A checkout is made: the team repository before, if there is none, and then what prepares it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::OFlags;
use teamd_shared::checkout::{Checkout, CheckoutSettings};
use teamd_shared::fingerprint::fingerprint;
use teamd_shared::fs::replace;
use teamd_shared::job::{GitReport, MakeOrder};
use teamd_shared::place::open_itself;
use teamd_shared::team_dir::TeamPath;

use super::script::{Failed, Git};
use super::{for_checkout, repository, text};

const REPOSITORY: &str = include_str!("repository.sh");
const CLONE: &str = include_str!("clone.sh");
const COPY: &str = include_str!("copy.sh");

/// What tells tools, in a directory above a checkout, that what lies below belongs to them.
const MANIFESTS: [&str; 5] =
    ["Cargo.toml", "package.json", "pnpm-workspace.yaml", "go.work", "pyproject.toml"];

/// What a checkout has that is not whole.
const MARKS: [&str; 2] = [".new", ".git/teamd.new"];

/// Makes a checkout, or finds it, and prepares it.
pub(super) async fn checkout(git: &Git<'_>, make: &MakeOrder) -> Result<GitReport, Failed> {
    let home = Path::new(&git.order.home);
    DirBuilder::new().recursive(true).mode(0o700).create(home).with_context(|| git.order.home.clone())?;
    let seen = git.run(REPOSITORY, home, &[("SOURCE", &make.source)]).await?;
    let (top, prefix) = (seen.one("top")?, seen.one("prefix")?);
    let (root, mut notes) = place(git, make, Path::new(&top))?;
    let root_text = text(&root)?;
    let made = git.run(CLONE, &root, &[("TOP", &top)]).await?;
    let is_new = !made.one("made")?.is_empty();
    notes.extend([seen.all("note"), made.all("note")].concat());
    // Once is enough.
    notes.retain(|_| is_new);
    if !make.settings.copy.is_empty() {
        let files = make.settings.copy.join("\n");
        git.run(COPY, &root, &[("TOP", &top), ("COPY", &files)]).await?;
    }
    let workspace = root.join(&prefix);
    fs::create_dir_all(&workspace).with_context(|| format!("cannot make {}", workspace.display()))?;
    let repository = text(&repository(git.order))?;
    let checkout = Checkout { root: root_text, source: make.source.clone(), repository, notes };
    let workspace = text(&workspace.components().collect::<PathBuf>())?;
    set_up(git, make, (&checkout, is_new), &workspace).await?;
    Ok(GitReport::Made { checkout, workspace })
}

/// Finds where the checkout lies, and makes that directory: where it is said, else beside the repository, else where the user
/// may write. Returns what is to be said of the place.
fn place(git: &Git<'_>, make: &MakeOrder, top: &Path) -> Result<(PathBuf, Vec<String>), Failed> {
    let mut beside = top.file_name().unwrap_or_default().to_owned();
    beside.push(".team");
    let named = make.at.as_ref().map(PathBuf::from);
    let base = named.unwrap_or_else(|| top.with_file_name(beside));
    let name = git.order.name.as_str();
    let root = match in_base(&base, name) {
        Err(error) if is_closed(error.kind()) && make.at.is_none() => {
            in_base(Path::new(&make.otherwise), name).with_context(|| make.otherwise.clone())?
        }
        Err(error) => {
            return Err(Failed::refused(
                format!("a checkout cannot be made in {}: {error}", base.display()),
                "set `checkouts = \"PATH\"` in team.toml to another directory",
            ));
        }
        Ok(root) => root,
    };
    if root.starts_with(top) {
        return Err(Failed::refused(
            format!("a checkout cannot lie in the repository {} itself", top.display()),
            "set `checkouts = \"PATH\"` in team.toml to a directory outside of it",
        ));
    }
    let above = root.ancestors().skip(1).flat_map(|above| MANIFESTS.map(|file| above.join(file)));
    let adopting = above.filter(|file| file.exists()).map(|file| {
        format!(
            "tools may take the checkout for a part of {}: `checkouts = \"PATH\"` in team.toml moves it",
            file.display()
        )
    });
    let notes = adopting.take(1).collect();
    Ok((root, notes))
}

/// Makes the directory of a checkout. No link on the way to it is followed below the base.
fn in_base(base: &Path, name: &str) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let root = base.canonicalize()?.join(name);
    match DirBuilder::new().mode(0o700).create(&root) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    open_itself(&root, OFlags::PATH | OFlags::DIRECTORY)?;
    // A job was killed before it was whole.
    if MARKS.iter().any(|mark| root.join(mark).symlink_metadata().is_ok()) {
        super::remove(&root)?;
        DirBuilder::new().mode(0o700).create(&root)?;
    }
    Ok(root)
}

fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Runs the setup, unless it has run with these inputs.
async fn set_up(
    git: &Git<'_>,
    make: &MakeOrder,
    (checkout, is_new): (&Checkout, bool),
    workspace: &str,
) -> Result<(), Failed> {
    let CheckoutSettings { setup: Some(setup), .. } = &make.settings else { return Ok(()) };
    let inputs = fingerprint(Path::new(&checkout.root), &make.settings.inputs());
    let inputs = inputs.context("cannot read what the setup rests on")?;
    let stamp = format!("{inputs}\n{}\n{setup}", checkout.root);
    let (dir, known) = (&git.setting.dir, TeamPath::setup(&git.order.name));
    if !is_new && dir.read(&known).is_ok_and(|done| done == stamp.as_bytes()) {
        return Ok(());
    }
    let environment = for_checkout(&git.order.environment, Some(checkout));
    let mut toolbox = git.toolbox(Path::new(workspace), (environment, make.sandbox.clone(), make.bounds))?;
    let mut running = toolbox.start_check(setup.clone(), git.order.timeout).map_err(anyhow::Error::msg)?;
    let (_, output, failure) = running.finish_check().await;
    if let Some(how) = failure {
        return Err(Failed::refused(
            format!("the setup of {} failed: `{setup}`: {how}\n{}", git.order.name, output.trim_end()),
            "mend `[checkout] setup` in team.toml, or what it needs",
        ));
    }
    replace(dir, &known, stamp.as_bytes()).context("cannot note that the setup has run")?;
    Ok(())
}
