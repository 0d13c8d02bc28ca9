//! Completes names from the roster and `team.toml`, and ids of pending plans. It reads files, starts
//! nothing, and prints nothing: where something cannot be read there is nothing to complete.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::TeamFile;
use teamd_shared::terms::{BUILT_IN, KNOWN};

use crate::context::{self, Context, Global};
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

/// Completes the agents that are known or that `team.toml` defines.
pub(super) fn agents() -> ArgValueCandidates {
    ArgValueCandidates::new(|| named_agents().map(CompletionCandidate::new).collect())
}

/// Likewise, and the built-in agent.
fn all_agents() -> ArgValueCandidates {
    let builtin = || std::iter::once(BUILT_IN.to_owned());
    ArgValueCandidates::new(move || {
        let all = builtin().chain(named_agents());
        all.map(CompletionCandidate::new).collect()
    })
}

fn named_agents() -> impl Iterator<Item = String> {
    let known = KNOWN.iter().map(|known| known.name.to_owned());
    let defined = file().map(|file| file.agents.into_keys());
    let all: BTreeSet<String> = known.chain(defined.into_iter().flatten()).collect();
    all.into_iter()
}

/// Completes the MCP servers of `team.toml`.
pub(super) fn servers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let servers = file().map(|file| file.mcp.into_keys());
        let servers = servers.into_iter().flatten();
        servers
            .map(|name| CompletionCandidate::new(name.to_string()))
            .collect()
    })
}

/// Completes the roles of `team.toml`.
fn roles() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let roles = file().map(|file| file.roles.into_keys());
        let roles = roles.into_iter().flatten();
        roles.map(CompletionCandidate::new).collect()
    })
}

/// Adds what completes the terms of a teammate: their definition has no files to look into.
pub(super) fn complete_terms(spawn: clap::Command) -> clap::Command {
    spawn
        .mut_arg("agent", |arg| arg.add(all_agents()))
        .mut_arg("mcp", |arg| arg.add(servers()))
        .mut_arg("role", |arg| arg.add(roles()))
}

fn file() -> Option<TeamFile> {
    context()?.file.ok()
}

/// Opens the team directory that the command line names, or that is the nearest one, if it is
/// registered.
fn dir() -> Option<TeamDir> {
    context()?.dir().ok()
}

fn context() -> Option<Context> {
    let words: Vec<_> = std::env::args_os().collect();
    // The names of another machine's team are not looked up: that would run ssh at each Tab.
    if words.iter().any(|word| is_elsewhere(word)) {
        return None;
    }
    let after = words
        .iter()
        .position(|word| word == "--team-dir")
        .and_then(|at| words.get(at + 1));
    let named = after.cloned().or_else(|| std::env::var_os("TEAM_DIR"));
    let found = context::find(&Global {
        team_dir: named,
        json: false,
    });
    Some(found.ok()?(Output::new(false)))
}

/// Tells whether a word names another machine (`-H`).
fn is_elsewhere(word: &OsStr) -> bool {
    let word = word.as_encoded_bytes();
    word == b"--at" || word.starts_with(b"--at=") || word.starts_with(b"-H")
}
