//! What changes in a frame between home and a worker: places, times, paths and the environment are
//! those of this host. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use teamd_shared::control::{ToWorker, Welcome, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::inbox::LinePlace;
use teamd_shared::link::{HostedEnd, Whose, WorkerReport};

use super::state::Spawned;
use crate::core::event::Ended;
use crate::core::incarnation::Incarnation;

/// Names an incarnation as the link does.
pub(super) fn whose(incarnation: &Incarnation) -> Whose {
    Whose {
        name: incarnation.name.clone(),
        incarnation: incarnation.number,
    }
}

/// Names an incarnation as this daemon does.
pub(super) fn incarnation(of: &Whose) -> Incarnation {
    Incarnation {
        name: of.name.clone(),
        number: of.incarnation,
    }
}

/// Returns a welcome with what holds at this host.
pub(super) fn welcome(
    mut welcome: Welcome,
    spawned: &Spawned,
    environment: Environment,
    territory: Vec<String>,
    watch: bool,
) -> Welcome {
    let there = &mut welcome.terms;
    let here = &spawned.member.terms;
    there.workspace.clone_from(&here.workspace);
    there.program.clone_from(&here.program);
    there.mcp.clone_from(&here.mcp);
    there.sandbox.writable.clone_from(&here.sandbox.writable);
    welcome.begins_at = spawned.member.begins_at;
    welcome.environment = environment;
    welcome.territory = territory;
    welcome.watch = watch;
    welcome
}

/// Returns a frame for a worker. An age crosses a link, and no time of another machine's clock.
pub(super) fn to_worker(frame: ToWorker, since_boot: Duration) -> ToWorker {
    match frame {
        ToWorker::Interrupt { asked_at: age } => ToWorker::Interrupt {
            asked_at: since_boot.saturating_sub(age),
        },
        other => other,
    }
}

/// Returns a report for home. Waking is done here.
pub(super) fn report(mut state: WorkerState, read: Option<LinePlace>) -> WorkerReport {
    state.needs_waking = false;
    WorkerReport { state, read }
}

/// Returns an end for home.
pub(super) fn hosted_end(ended: Ended, inbox: Option<LinePlace>, left: bool) -> HostedEnd {
    HostedEnd {
        code: ended.code,
        signal: ended.signal,
        inbox,
        unread: ended.unread,
        mail: ended.mail.unwrap_or_default(),
        more_mail: ended.more_mail,
        emptied: ended.emptied,
        unworkable: ended.unworkable,
        left,
    }
}

/// Returns the path that is named, where the user of this host has that home directory.
///
/// # Errors
/// Why it names none. Fits behind "error: ".
pub(super) fn named_path(named: &str, login_dir: &Path) -> Result<PathBuf, String> {
    if named == "~" {
        return Ok(login_dir.to_owned());
    }
    if let Some(below) = named.strip_prefix("~/") {
        return Ok(login_dir.join(below));
    }
    let path = PathBuf::from(named);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("{named} is neither absolute nor below `~/`"))
    }
}

#[cfg(test)]
mod tests;
