//! The paths that a spawn order names: where a teammate works, what else it may write, what its
//! tools may not read.
//!
//! The command that spawns resolves each path once, before it asks the daemon: the real path is
//! recorded and shown. No later incarnation resolves it again; it is opened without following any
//! link ([`open_itself`]). A link that a tool can have made is refused: its maker would decide what
//! others may write.

mod checks;

pub use checks::{folder_of_link, repository_of};

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::caches::caches;
use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::journal::Team;
use crate::name::Name;
use crate::place::{follow, open_itself};
use crate::team_dir::TeamDir;
use crate::terms::{Sandbox, SandboxMode, add};

use super::on_host::check_on_host;

/// The paths of the incarnation that is resumed, or whose paths are inherited.
#[derive(Debug, Clone, Copy)]
pub struct RecordedPaths<'a> {
    /// The host that it runs on.
    pub host: Option<&'a Name>,
    /// Whether it has a checkout.
    pub has_checkout: bool,
    /// Where it works.
    pub workspace: &'a str,
    /// What else it may write, and what it may not read.
    pub sandbox: &'a Sandbox,
}

/// Replaces the paths that an order names by real paths. Recorded paths stay as they are. The
/// caches that the order asks for are among its writable paths afterwards.
///
/// `team` reads the state of the team. It is called after the links were followed: a tool that made
/// one of them is recorded by then.
///
/// # Errors
/// Why a path cannot be used, or the error of reading the state.
pub fn resolve_paths<E: From<Refusal>>(
    order: &mut SpawnOrder,
    dir: &TeamDir,
    recorded: Option<RecordedPaths<'_>>,
    team: impl FnOnce() -> Result<Team, E>,
) -> Result<(), E> {
    let recorded_host = recorded.and_then(|paths| paths.host);
    if let Some(host) = order.terms.host.clone().or(recorded_host.cloned()) {
        return Ok(check_on_host(order, &host, recorded)?);
    }
    let terms = &mut order.terms;
    terms.sandbox.named_writable.clear();
    terms.sandbox.named_hidden.clear();
    if terms.sandbox.caches.take() == Some(true) {
        add(&mut terms.sandbox.writable, &caches(&order.environment)?);
    }
    let recorded_sandbox = recorded.map_or_else(Sandbox::default, |paths| paths.sandbox.clone());
    let mut search = PathSearch {
        name: &order.name,
        dir,
        links: Vec::new(),
    };
    let workspace = search.workspace(terms.workspace.take(), recorded)?;
    let sandbox = &mut terms.sandbox;
    let links_of_workspace = std::mem::take(&mut search.links);
    sandbox.writable = search.find_all("write", &sandbox.writable, &recorded_sandbox.writable)?;
    sandbox.visible = search.find_all("see", &sandbox.visible, &recorded_sandbox.visible)?;
    sandbox.hidden = search.find_all("be kept from", &sandbox.hidden, &recorded_sandbox.hidden)?;
    if !links_of_workspace.is_empty() || !search.links.is_empty() {
        let team = team()?;
        search.refuse_links_of_tools(&links_of_workspace, team.territory())?;
        search.refuse_links_of_tools(&search.links, team.territory())?;
        // A link in one of the paths that it is to write does not decide where another one leads,
        // either.
        let own = std::iter::once(&workspace).chain(&sandbox.writable);
        let own = own.map(|path| (Path::new(path), &order.name));
        search.refuse_links_of_tools(&search.links, own)?;
    }
    search.refuse_system_programs(&workspace, &sandbox.writable)?;
    search.refuse_repositories(&workspace, &sandbox.writable)?;
    if sandbox.mode != Some(SandboxMode::Off) {
        search.refuse_kernel_folders(&workspace)?;
    }
    let mut all = sandbox.clone();
    add(&mut all.writable, &recorded_sandbox.writable);
    add(&mut all.hidden, &recorded_sandbox.hidden);
    search.refuse_to_hide_what_is_needed(&workspace, &all.writable, &all.hidden)?;
    can_work(&order.name, Path::new(&workspace)).map_err(|why| {
        Refusal::new(RefusalCode::Failed, why)
            .hint("name a directory that exists, or make it first")
    })?;
    terms.workspace = Some(workspace);
    Ok(())
}

/// Tells whether the programs of the system are below a path.
pub fn holds_system_programs(path: &Path) -> bool {
    let shell = std::fs::canonicalize("/bin/sh");
    shell.is_ok_and(|shell| shell.starts_with(path))
}

/// Makes sure that a teammate can work in its recorded workspace. A shortage of the moment and a
/// failing disk are not reported: the worker notices them.
///
/// # Errors
/// Why not. Fits behind "error: ".
pub fn can_work(name: &Name, workspace: &Path) -> Result<(), String> {
    let at = workspace.display();
    match open_itself(workspace, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(_) | Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN) => {
            Ok(())
        }
        Err(Errno::NOSPC | Errno::DQUOT | Errno::IO) => Ok(()),
        Err(Errno::LOOP) => Err(format!(
            "there is a symbolic link on the way to the workspace {at}, and there was none when it was named, so a tool can have made \
             it: remove the link, or name the workspace again (`teamctl spawn {name} --resume --workspace DIR`)"
        )),
        Err(Errno::NOTDIR) => Err(format!("the workspace {at} is not a directory")),
        Err(errno) => Err(format!("the workspace {at} cannot be used: {errno}")),
    }
}

/// A link that was followed, and for which path.
struct FollowedLink {
    doing: &'static str,
    named: String,
    link: PathBuf,
}

/// Follows the paths of one order.
struct PathSearch<'a> {
    name: &'a Name,
    dir: &'a TeamDir,
    links: Vec<FollowedLink>,
}

impl PathSearch<'_> {
    /// Returns where the teammate works: the path that is named, else the recorded one, else the
    /// workspace of the team.
    fn workspace(
        &mut self,
        named: Option<String>,
        recorded: Option<RecordedPaths<'_>>,
    ) -> Result<String, Refusal> {
        let recorded = recorded.map(|paths| paths.workspace);
        match (named, recorded) {
            (Some(named), _) if Some(named.as_str()) != recorded => self.find("work in", &named),
            (_, Some(recorded)) => Ok(recorded.to_owned()),
            _ => Ok(self.dir.workspace().to_string_lossy().into_owned()),
        }
    }

    /// Follows every link. What is missing stays as it is named: it may be made later.
    fn find(&mut self, doing: &'static str, named: &str) -> Result<String, Refusal> {
        let links = &mut self.links;
        let path = follow::<io::Error>(Path::new(named), |link| {
            links.push(FollowedLink {
                doing,
                named: named.to_owned(),
                link: link.to_owned(),
            });
            Ok(())
        });
        let cannot = |why: &dyn std::fmt::Display, hint: &str| {
            usage(
                format!("{} cannot {doing} {named}: {why}", who(self.name)),
                hint,
            )
        };
        let path = path.map_err(|error| cannot(&error, "name a path that can be looked up"))?;
        if path.starts_with(self.dir.root()) {
            return Err(cannot(
                &"it lies in the team directory, which no tool touches",
                "name something outside of it, with --workspace, --writable or in team.toml",
            ));
        }
        path.into_os_string().into_string().map_err(|path| {
            let why = format!("it leads to {}, which is not UTF-8", path.display());
            cannot(&why, "rename that, or name something else")
        })
    }

    fn find_all(
        &mut self,
        doing: &'static str,
        named: &[String],
        recorded: &[String],
    ) -> Result<Vec<String>, Refusal> {
        let mut all = Vec::new();
        for named in named {
            let path = if recorded.contains(named) {
                named.clone()
            } else {
                self.find(doing, named)?
            };
            add(&mut all, &[path]);
        }
        Ok(all)
    }
}

fn usage(why: String, hint: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Usage, why).hint(hint)
}

fn who(name: &Name) -> &str {
    if *name == Name::lead() {
        "the lead agent"
    } else {
        name.as_str()
    }
}

#[cfg(test)]
mod tests;
