//! Completes names from the roster, and ids of pending plans. It reads files, starts nothing, and
//! prints nothing: where something cannot be read there is nothing to complete.

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;

use crate::context::{self, Global};
use crate::print::output::Output;
use crate::read::requests;

/// Completes the names of teammates.
pub(super) fn names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let roster = dir()
            .and_then(|dir| Roster::load(&dir).ok().flatten())
            .unwrap_or_default();
        roster
            .members
            .iter()
            .map(|it| {
                CompletionCandidate::new(it.name.as_str())
                    .help(Some(it.status.as_str().to_owned().into()))
            })
            .collect()
    })
}

/// Completes the ids of pending plans and reviews.
pub(super) fn plans() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let all = dir()
            .and_then(|dir| requests::recent(&dir).ok())
            .unwrap_or_default();
        let plans = all
            .iter()
            .filter(|it| it.kind.is_judged() && it.is_pending());
        plans
            .map(|it| {
                CompletionCandidate::new(it.request_id.as_str()).help(Some(
                    format!("{} of {}", it.kind.noun(), it.from)
                        .to_owned()
                        .into(),
                ))
            })
            .collect()
    })
}

/// Opens the team directory that the command line names, or that is the nearest one, if it is
/// registered.
fn dir() -> Option<TeamDir> {
    let words: Vec<_> = std::env::args_os().collect();
    let after = words
        .iter()
        .position(|word| word == "--team-dir")
        .and_then(|at| words.get(at + 1));
    let named = after.cloned().or_else(|| std::env::var_os("TEAM_DIR"));
    let context = context::find(&Global {
        team_dir: named,
        json: false,
    })
    .ok()?(Output::new(false));
    context.dir().ok()
}
