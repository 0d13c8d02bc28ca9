//! What an order names by paths: where a teammate works, and what it may write besides.
//!
//! Each is looked up once, here, when it is first named, and recorded as it lies on the machine: absolute and without
//! links. No later life looks it up again, and none is led elsewhere by a link that was made since. Never follows a link
//! that a tool of any member can have made: such a link would say what others may write.
//! Never called by the dispatcher itself: a path of a network that has gone keeps whoever looks.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use teamd_shared::control::{Refusal, RefusalCode, SpawnOrder};
use teamd_shared::journal::Team;
use teamd_shared::member::Sandbox;
use teamd_shared::name::Name;
use teamd_shared::place::{self, open_itself};
use teamd_shared::team_dir::TeamDir;
use tokio::sync::oneshot;

use super::event::Client;
use super::signals;

/// What is recorded that a look-up rests on. Nobody's tools can have made a link that it followed if this is the same at
/// its end: where they write is recorded before they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ground {
    /// Where tools write, and whose they are.
    territory: Vec<(PathBuf, Name)>,
    /// Where the life before that is resumed worked, and how it was confined.
    before: Option<(String, Sandbox)>,
}

impl Ground {
    /// Returns what is recorded now for an order.
    pub(super) fn of(order: &SpawnOrder, team: &Team) -> Self {
        let before = team.members.get(&order.name).map(|state| &state.record).filter(|_| order.resume);
        Self {
            territory: team.territory().map(|(path, name)| (path.to_owned(), name.clone())).collect(),
            before: before.map(|it| (it.workspace.clone(), it.sandbox.clone())),
        }
    }
}

/// Puts what lies on the machine in the place of what an order names. What the life before has already stays as it was
/// recorded.
///
/// # Errors
/// What cannot be looked up, leads through a link that a tool can have made, or lies in the team directory; what is to be
/// hidden although it is needed.
fn settle(order: &mut SpawnOrder, ground: &Ground, dir: &TeamDir) -> Result<(), Refusal> {
    let before = ground.before.as_ref();
    let search = Search { name: order.name.clone(), team_dir: dir.root() };
    let mut guarded = Guarded::default();
    ground.territory.iter().for_each(|(path, name)| guarded.add(path.clone(), name));
    if let Some(named) = order.workspace.take_if(|named| before.is_none_or(|(recorded, _)| recorded != named))
    {
        order.workspace = Some(search.find("work in", &named, &guarded)?);
    }
    let workspace = workspace(order.workspace.as_deref(), ground, dir);
    if let Some(repository) = repository_of(&workspace) {
        return Err(search.in_a_repository("work in", &workspace.to_string_lossy(), &repository));
    }
    guarded.add(workspace.clone(), &order.name);
    let Some(sandbox) = &mut order.sandbox else {
        return before.map_or(Ok(()), |(_, sandbox)| search.is_not_needed(&workspace, sandbox));
    };
    let is_recorded = |path: &String| before.is_some_and(|(_, sandbox)| sandbox.writable.contains(path));
    let find = |guarded: &Guarded| -> Result<Vec<String>, Refusal> {
        let found = sandbox.writable.iter().map(|path| match is_recorded(path) {
            true => Ok(path.clone()),
            false => search.find("write", path, guarded),
        });
        found.collect()
    };
    // A link in what is named by one path says nothing of where another one leads, either.
    for path in find(&guarded)? {
        guarded.add(path.into(), &order.name);
    }
    let mut found = find(&guarded)?;
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    if let Some((path, repository)) =
        found.iter().find_map(|path| Some((path, repository_of(Path::new(path))?)))
    {
        return Err(search.in_a_repository("write", path, &repository));
    }
    sandbox.writable = found;
    let is_recorded = |path: &String| before.is_some_and(|(_, sandbox)| sandbox.hidden.contains(path));
    for path in sandbox.hidden.iter_mut().filter(|path| !is_recorded(path)) {
        *path = search.find("be kept from", path, &guarded)?;
    }
    search.is_not_needed(&workspace, sandbox)
}

/// What `git` keeps in a repository. A working tree can lie in a bare one, beside these.
const OF_GIT: [&str; 9] =
    ["hooks", "objects", "refs", "logs", "info", "worktrees", "modules", "branches", "rr-cache"];

/// Returns the repository of `git` (the directory that holds its settings) that a path is, or belongs to.
fn repository_of(path: &Path) -> Option<PathBuf> {
    let belongs = |folder: &&Path| {
        let inside = path.strip_prefix(folder).ok().and_then(|inside| inside.components().next());
        let is_its_own = inside.is_none_or(|first| OF_GIT.iter().any(|name| first.as_os_str() == *name));
        let is_bare = || ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists());
        folder.ends_with(".git") || is_its_own && is_bare()
    };
    path.ancestors().find(belongs).map(Path::to_owned)
}

/// Returns where a member works by an order.
fn workspace(named: Option<&str>, ground: &Ground, dir: &TeamDir) -> PathBuf {
    let recorded = ground.before.as_ref().map(|(recorded, _)| recorded.as_str());
    named.or(recorded).map_or_else(|| dir.workspace(), PathBuf::from)
}

/// An order, and what became of the paths that it names.
#[derive(Debug)]
pub(super) struct LookedUp {
    /// Who gave it.
    pub(super) client: Client,
    /// The order as it was given.
    pub(super) order: Box<SpawnOrder>,
    /// What the look-up rests on.
    pub(super) ground: Ground,
    /// The order as it is recorded, or why it is refused.
    pub(super) found: Result<Box<SpawnOrder>, Refusal>,
}

impl LookedUp {
    /// Looks what an order names up, however long that takes.
    pub(super) fn look(client: Client, order: Box<SpawnOrder>, ground: Ground, dir: &TeamDir) -> Self {
        let mut found = order.clone();
        let found = settle(&mut found, &ground, dir).and_then(|()| {
            let workspace = workspace(found.workspace.as_deref(), &ground, dir);
            can_work(&found.name, &workspace).map_err(|why| {
                let hint = "mend that, or name another directory with --workspace";
                Refusal::new(RefusalCode::Failed, why).hint(hint)
            })?;
            Ok(found)
        });
        Self { client, order, ground, found }
    }
}

/// Looks at paths in a thread of its own, which they may keep for as long as they like: even the end of the daemon does not
/// wait for it.
///
/// # Errors
/// The system's error if there can be no such thread.
pub(super) fn look_apart(look: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let looking = move || {
        signals::hold_back();
        look();
    };
    std::thread::Builder::new().name("paths".to_owned()).spawn(looking).map(drop)
}

/// How long the end of a life waits for a look at where the next one would work.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks, in a thread of its own, whether another life can work where one has worked that has ended. Returns why not.
pub(super) async fn unworkable(name: Name, workspace: PathBuf) -> Option<String> {
    let (says, hears) = oneshot::channel();
    let unanswered = format!("cannot work in {}: it does not answer", workspace.display());
    // Nobody hears it that comes too late.
    let look = move || drop(says.send(can_work(&name, &workspace)));
    if let Err(error) = look_apart(look) {
        tracing::warn!("cannot look at a workspace before a life begins there: {error}");
        return None;
    }
    match tokio::time::timeout(PATIENCE, hears).await {
        Ok(looked) => looked.ok()?.err(),
        Err(_) => Some(unanswered),
    }
}

/// Makes sure that a member can begin where it is recorded to work. That something is short just now, or a disk fails, says nothing
/// of that: whoever begins there all the same finds it out.
///
/// # Errors
/// Why not. Fits behind "error: ".
fn can_work(name: &Name, workspace: &Path) -> Result<(), String> {
    let at = workspace.display();
    match open_itself(workspace, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(_) => Ok(()),
        Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT | Errno::IO) => Ok(()),
        Err(Errno::LOOP) => Err(format!(
            "a symbolic link stands on the way to the workspace {at}, and none did when it was named, so a tool can have made \
             it: remove the link, or name the workspace anew (`teamctl spawn {name} --resume --workspace DIR`)"
        )),
        Err(errno) => Err(format!("cannot work in {at}: {errno}")),
    }
}

/// Where tools write, and whose they are.
#[derive(Default)]
struct Guarded(Vec<Folder>);

struct Folder {
    path: PathBuf,
    whose: Name,
}

impl Guarded {
    fn add(&mut self, path: PathBuf, name: &Name) {
        self.0.push(Folder { whose: name.clone(), path });
    }

    /// Returns where tools can have made what stands there. What is named itself they cannot replace: that takes the
    /// right to write in what lies above.
    fn around(&self, link: &Path) -> Option<&Folder> {
        // What the kernel knows each by that is there: a bind mount shows it by another path, too.
        let ids: Vec<_> = self.0.iter().map(|folder| id(&folder.path)).collect();
        link.ancestors().skip(1).find_map(|above| {
            let known = id(above);
            let is_here = |folder: &Folder, id| folder.path == above || (known.is_some() && id == known);
            self.0.iter().zip(&ids).find_map(|(folder, id)| is_here(folder, *id).then_some(folder))
        })
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Why a path leads nowhere that may be used.
#[derive(Debug)]
enum Lost {
    Relative,
    /// A link on its way that a tool can have made.
    Made {
        link: PathBuf,
        folder: PathBuf,
        whose: Name,
    },
    Io(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Search<'a> {
    name: Name,
    team_dir: &'a Path,
}

impl Search<'_> {
    /// Refuses to make a repository writable.
    fn in_a_repository(&self, doing: &str, path: &str, repository: &Path) -> Refusal {
        let (who, repository) = (who(&self.name), repository.display());
        let why = format!(
            "{who} cannot {doing} {path}: it belongs to the repository {repository}, and a command that writes there also writes \
             hooks and settings that your own git runs and believes"
        );
        Refusal::new(RefusalCode::Usage, why).hint(
            "a linked working tree (`git worktree add`) as the workspace needs no --writable: commits work there, and hooks and \
             settings stay as they are",
        )
    }

    fn find(&self, doing: &str, named: &str, guarded: &Guarded) -> Result<String, Refusal> {
        let who = who(&self.name);
        let refuse = |why: String, hint: String| {
            Refusal::new(RefusalCode::Usage, format!("{who} cannot {doing} {named}: {why}")).hint(hint)
        };
        let found = follow(Path::new(named), guarded).map_err(|lost| match lost {
            Lost::Relative => refuse("it is not absolute".to_owned(), "name an absolute path".to_owned()),
            Lost::Made { link, folder, whose } => refuse(
                format!(
                    "{} is a symbolic link in {}, where the tools of {} may write or once could, so one of them can have made it",
                    link.display(),
                    folder.display(),
                    self::who(&whose)
                ),
                format!(
                    "see where it leads (`readlink -f {}`), and name that instead, if it is what you mean",
                    link.display()
                ),
            ),
            Lost::Io(error) => refuse(error.to_string(), "name what can be looked up, or mend it first".to_owned()),
        })?;
        if found.starts_with(self.team_dir) {
            let hint = "name something outside of it, with --workspace, --writable or in team.toml";
            return Err(refuse(
                "it lies in the team directory, which no tool touches".to_owned(),
                hint.to_owned(),
            ));
        }
        found.into_os_string().into_string().map_err(|found| {
            let why = format!("it leads to {}, which is not UTF-8", found.display());
            refuse(why, "rename that, or name something else".to_owned())
        })
    }

    /// Makes sure that nothing is hidden that holds the workspace, or what may be written besides.
    fn is_not_needed(&self, workspace: &Path, sandbox: &Sandbox) -> Result<(), Refusal> {
        let real = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let works = [(real.as_path(), "works in")].into_iter();
        let needed =
            || works.clone().chain(sandbox.writable.iter().map(|path| (Path::new(path), "may write")));
        for hidden in &sandbox.hidden {
            if let Some((path, does)) = needed().find(|(path, _)| path.starts_with(hidden)) {
                let (who, path) = (who(&self.name), path.display());
                let why = format!("{who} cannot be kept from {hidden}: it {does} {path}");
                return Err(Refusal::new(RefusalCode::Usage, why)
                    .hint("hide what lies beside or below that, with --hidden or in team.toml"));
            }
        }
        Ok(())
    }
}

fn who(name: &Name) -> &str {
    if *name == Name::lead() { "the lead agent" } else { name.as_str() }
}

/// Follows every link but those that tools can have made. What is missing stays as it is named: it may be made later.
fn follow(path: &Path, guarded: &Guarded) -> Result<PathBuf, Lost> {
    if !path.is_absolute() {
        return Err(Lost::Relative);
    }
    place::follow(path, |link| match guarded.around(link) {
        Some(Folder { path, whose, .. }) => {
            Err(Lost::Made { folder: path.clone(), whose: whose.clone(), link: link.to_owned() })
        }
        None => Ok(()),
    })
}

#[cfg(test)]
mod tests;
