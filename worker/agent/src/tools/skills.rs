//! Skills: which there are when a conversation begins, and `load_skill`, which reads one.
//!
//! A skill is a folder with a `SKILL.md`. A link in it counts as long as it stays in the folder;
//! the kernel follows no other one. What lies in the workspace is also found as `read_file` finds
//! it, so no secret is read through a skill.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;
use teamd_shared::config::Roster;
use teamd_shared::member::SandboxMode;
use teamd_shared::name::Name;
use teamd_shared::place::open_itself;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::tool_set::Skill;
use teamd_worker_core::skill_file::SkillHeader;
use teamd_worker_core::tools::LoadSkill;
use teamd_worker_sandbox::SKILL_FOLDERS;

use super::workspace::{Workspace, not_text, size};

/// The file that makes a folder a skill.
const SKILL: &str = "SKILL.md";

/// How much of that file says what the skill is, in bytes.
const MAX_HEADER: u64 = 8 << 10;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// How many entries of a folder of skills are looked at.
const MAX_ENTRIES: usize = 500;

/// What all names and descriptions together may have, in bytes.
const MAX_TOLD: usize = 1000;

/// How a file of a skill is opened: never out of its folder.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Finds the skills of a user and of a workspace, for a model whose reader may use those in the
/// folders that `may_use` allows. The user's own come first: a repository cannot take the name of
/// one.
pub(super) fn find(
    workspace: &Workspace,
    home: Option<&Path>,
    may_use: impl Fn(&Path) -> bool,
) -> Vec<Skill> {
    let mut folders = Vec::new();
    for root in home.into_iter().flat_map(roots_in) {
        // The user may keep them elsewhere.
        let root = root.canonicalize().unwrap_or(root);
        folders.extend(folders_in(&root).filter_map(|folder| folder.canonicalize().ok()));
    }
    for root in roots_in(workspace.path()) {
        folders.extend(folders_in(&root));
    }
    let mut skills: Vec<Skill> = Vec::new();
    let mut told = 0;
    for folder in folders {
        if skills
            .iter()
            .any(|skill| Path::new(&skill.folder) == folder)
        {
            continue;
        }
        if !may_use(&folder) {
            tracing::warn!(
                "the skill {} is left out: a teammate may write there",
                folder.display()
            );
            continue;
        }
        let skill = match read_header(workspace, &folder) {
            Ok(Some(skill)) => skill,
            Ok(None) => continue,
            Err(why) => {
                tracing::warn!("{} is no skill: {why}", folder.display());
                continue;
            }
        };
        if skills.iter().any(|other| other.name == skill.name) {
            tracing::warn!(
                "the skill {} is left out: another one is called {}, too",
                folder.display(),
                skill.name
            );
            continue;
        }
        told += skill.name.len() + skill.description.len();
        if told > MAX_TOLD {
            tracing::warn!(
                "the skill {} and those behind it are left out: names and descriptions have at most {MAX_TOLD} bytes together",
                folder.display()
            );
            return skills;
        }
        skills.push(skill);
    }
    skills
}

fn roots_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    SKILL_FOLDERS.iter().map(|root| folder.join(root))
}

/// Tells whether a teammate may write in a folder, or once could, as the roster knows them. What
/// cannot be found out counts as yes.
pub(super) fn may_be_written(dir: &TeamDir, folder: &Path) -> bool {
    let members = match Roster::load(dir) {
        Ok(roster) => roster.map_or_else(Vec::new, |roster| roster.members),
        Err(error) => {
            tracing::warn!("no skill is used: {error}");
            return true;
        }
    };
    let mut teammates = members.iter().filter(|it| it.name != Name::lead());
    teammates.any(|teammate| match teammate.sandbox.mode {
        SandboxMode::ReadOnly => false,
        SandboxMode::Off => true,
        SandboxMode::WorkspaceWrite => {
            let writable = teammate.sandbox.writable.iter();
            let mut all = writable.chain([&teammate.workspace]);
            all.any(|place| folder.starts_with(place))
        }
    })
}

/// Returns what lies in a folder of skills, in order; nothing where it is missing, or a link is on
/// the way to it.
fn folders_in(root: &Path) -> impl Iterator<Item = PathBuf> {
    let names = names_in(root).into_iter();
    names.map(|name| root.join(name))
}

fn names_in(root: &Path) -> Vec<String> {
    let opened = open_itself(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK);
    let dir = match opened.and_then(Dir::new) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR) => return Vec::new(),
        Err(errno) => {
            tracing::warn!("the skills in {} are left out: {errno}", root.display());
            return Vec::new();
        }
    };
    let entries = dir.take(MAX_ENTRIES).filter_map(Result::ok);
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Reads what a skill says of itself; none where there is no skill.
fn read_header(workspace: &Workspace, folder: &Path) -> Result<Option<Skill>, String> {
    let file = match open(workspace, folder, SKILL) {
        Ok((file, _)) => file,
        Err(Unopened::Missing) => return Ok(None),
        Err(Unopened::Because(why)) => return Err(why),
    };
    let mut bytes = Vec::new();
    file.take(MAX_HEADER)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let SkillHeader { name, description } = SkillHeader::read(&text, &name)?;
    Ok(Some(Skill {
        name,
        description,
        folder: folder.to_string_lossy().into_owned(),
    }))
}

/// Reads a file of a skill, whole.
pub(super) fn load(
    workspace: &Workspace,
    skills: &[Skill],
    LoadSkill { name, file }: &LoadSkill,
    may_use: impl Fn(&Path) -> bool,
) -> Result<String, String> {
    let Some(skill) = skills.iter().find(|skill| skill.name == *name) else {
        let names: Vec<_> = skills.iter().map(|skill| skill.name.as_str()).collect();
        return Err(match names.as_slice() {
            [] => "there is no skill in this conversation".to_owned(),
            names => format!("there is no skill {name:?}; there are {}", names.join(", ")),
        });
    };
    let folder = Path::new(&skill.folder);
    if !may_use(folder) {
        return Err(format!(
            "the skill {name} is not read: a teammate may write in {}; ask the person to look at it",
            folder.display()
        ));
    }
    let file = file.as_deref().unwrap_or(SKILL);
    let shown = format!("{file} of the skill {name}");
    let (opened, stat) = open(workspace, folder, file).map_err(|refusal| match refusal {
        Unopened::Missing => format!("there is no {shown}"),
        Unopened::Because(why) => format!("{shown} is not read: {why}"),
    })?;
    let length = size(&stat);
    if length > MAX_FILE {
        return Err(format!(
            "{shown} has {length} bytes, and at most {MAX_FILE} are read: ask the person to split it"
        ));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    opened
        .take(MAX_FILE)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    match String::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => Ok("[the file is empty]".to_owned()),
        Ok(text) if !text.contains('\0') => Ok(match folder.strip_prefix(workspace.path()) {
            Ok(below) => format!("[folder {}]\n{text}", below.display()),
            Err(_) => text,
        }),
        _ => Err(not_text(&shown, &stat)),
    }
}

/// Why a file is not opened.
enum Unopened {
    /// It is not there.
    Missing,
    /// For this reason.
    Because(String),
}

/// Opens a regular file of a skill.
fn open(workspace: &Workspace, folder: &Path, file: &str) -> Result<(File, Stat), Unopened> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let folder_fd = open_itself(folder, flags).map_err(refused)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Without a wait: a pipe has no writer.
    let opened = openat2(&folder_fd, file, flags, Mode::empty(), RESOLVE).map_err(refused)?;
    let stat = fstat(&opened).map_err(refused)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Unopened::Because("it is not a regular file".to_owned()));
    }
    if !folder.starts_with(workspace.path()) {
        return Ok((File::from(opened), stat));
    }
    let at = path_of(&opened).map_err(|error| Unopened::Because(error.to_string()))?;
    workspace
        .open_file(&at.to_string_lossy())
        .map_err(Unopened::Because)
}

fn refused(errno: Errno) -> Unopened {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Unopened::Missing,
        Errno::XDEV => Unopened::Because("it leads out of its folder".to_owned()),
        Errno::LOOP => Unopened::Because("its folder is reached by a link".to_owned()),
        errno => Unopened::Because(errno.to_string()),
    }
}

fn path_of(file: &OwnedFd) -> std::io::Result<PathBuf> {
    let link = OsString::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    std::fs::read_link(link)
}

#[cfg(test)]
mod tests;
