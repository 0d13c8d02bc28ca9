//! How the commands of the team are confined: found out once, before the daemon starts, and handed
//! to every worker.
//!
//! Where a promise cannot be kept, no daemon starts, unless a person allows that by name. Where
//! only namespaces could separate team directory and workspace, and there are none, a new team
//! directory is made elsewhere.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use teamd_shared::register::Register;
use teamd_shared::sandbox::{Layers, Namespaces, Promise};
use teamd_shared::team_dir::{TeamDir, WORKSPACE_LINK, place_apart};

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::{self, Program};

/// How the commands of the team are confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamConfinement {
    /// The layers that work here.
    pub layers: Layers,
    /// The promises that they do not keep; a person has allowed that.
    pub weakness: Option<String>,
}

/// Finds out which layers work. If that fails although a person has allowed a weak sandbox, it
/// warns and returns no layers: a layer that was not tried is not assumed.
///
/// # Errors
/// [`CommandError`] if it fails.
pub(super) fn layers(worker: &Program, allow_weak: bool) -> Result<Layers, CommandError> {
    match worker.probe() {
        Ok(probe) => {
            for why in &probe.missing {
                tracing::info!("the sandbox does without {why}");
            }
            Ok(probe.layers)
        }
        Err(why) if allow_weak => {
            tracing::warn!("the sandbox does without any layer: {why}");
            Ok(Layers::default())
        }
        Err(why) => {
            let install = "install team-worker beside teamd, from the same version, and see what `team-worker probe` says; or \
                           `teamd start --allow-weak-sandbox`";
            let hint = programs::place_for_probe(&why).unwrap_or(install);
            Err(CommandError::new(ExitCode::Failed, why).hint(hint))
        }
    }
}

/// Judges the layers for a team directory that is there.
///
/// # Errors
/// [`CommandError`] that names what cannot be kept, unless that is allowed.
pub(super) fn judge(
    layers: Layers,
    dir: &TeamDir,
    allow_weak: bool,
) -> Result<TeamConfinement, CommandError> {
    let apart = !dir.root().starts_with(dir.workspace());
    match layers.weakness(apart) {
        Some(why) if !allow_weak => {
            let message =
                format!("what teammates run cannot be confined as promised; not held: {why}");
            let error = CommandError::new(ExitCode::Failed, message);
            Err(match layers.weakness(true) {
                // Elsewhere it would be.
                None => error.hint(
                    "remove the team directory and start again: a new one is made in your state directory; or \
                     `teamd start --allow-weak-sandbox`",
                ),
                Some(_) => error.hint(
                    "`teamctl doctor` says what is missing; `teamd start --allow-weak-sandbox` starts nevertheless",
                ),
            })
        }
        weakness => Ok(TeamConfinement { layers, weakness }),
    }
}

/// Makes a team directory outside the workspace, and a link to it where it is looked for. Does
/// nothing where something is already, or where namespaces separate the two.
///
/// # Errors
/// [`CommandError`] if there is no state directory, or the system refuses.
pub(super) fn part(path: &Path, layers: Layers, register: &Register) -> Result<(), CommandError> {
    let is_there = path.symlink_metadata().is_ok();
    let helps = layers.namespaces == Namespaces::None
        && layers.enforcement(Promise::TeamDirectory, true).is_ok();
    if is_there || !helps {
        return Ok(());
    }
    let workspace = above(path).canonicalize().map_err(failed)?;
    let place = place_apart(&workspace).map_err(failed)?;
    if place.symlink_metadata().is_err() {
        register.state().make().map_err(failed)?;
        register.make(&place)?;
    }
    link_apart(path, &place, &workspace).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> CommandError {
    let message = format!("cannot make a team directory outside the workspace: {error}");
    CommandError::new(ExitCode::Failed, message)
        .hint("set XDG_STATE_HOME to a directory of yours; or `teamd start --allow-weak-sandbox`")
}

fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Links the two. A directory that is there already, because only the link was removed, is still
/// the team of this workspace.
fn link_apart(path: &Path, place: &Path, workspace: &Path) -> io::Result<()> {
    // Another start may make the same; where a link leads is looked at when the directory is
    // opened.
    for (target, link) in [
        (workspace, place.join(WORKSPACE_LINK)),
        (place, path.to_owned()),
    ] {
        match symlink(target, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: Layers = Layers {
        namespaces: Namespaces::None,
        landlock: 7,
        seccomp: true,
    };

    #[test]
    fn what_is_not_kept_is_named_and_a_person_may_allow_it() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let error = judge(BARE, &dir, false).unwrap_err();
        assert!(
            error
                .message()
                .contains("nothing in the team directory can be written ("),
            "{error:?}"
        );
        assert!(error.next_step().unwrap().contains("--allow-weak-sandbox"));
        assert!(judge(BARE, &dir, true).unwrap().weakness.is_some());
        let full = Layers {
            namespaces: Namespaces::Own,
            ..BARE
        };
        assert_eq!(
            judge(full, &dir, false),
            Ok(TeamConfinement {
                layers: full,
                weakness: None
            })
        );
    }
}
