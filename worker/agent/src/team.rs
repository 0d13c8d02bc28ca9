//! What the lead agent's tools read from the files of the team.

use std::fs::TryLockError;

use rustix::fs::OFlags;
use teamd_shared::config::{ConfigError, Roster};
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::name::Name;
use teamd_shared::request::Request;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// Reads the name of a teammate that a call is about.
///
/// # Errors
/// A text for the model, like the errors of all functions here.
pub(crate) fn teammate(name: &str) -> Result<Name, String> {
    match Name::new(name) {
        Ok(name) => Ok(name),
        Err(_) if name == Name::lead().as_str() => Err("that is you: name a teammate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the roster as it was read.
pub(crate) fn roster(read: Result<Option<Roster>, ConfigError>) -> Result<Roster, String> {
    let roster = read.map_err(|error| format!("cannot read the roster: {error}"))?;
    roster.ok_or_else(|| "cannot read the roster: there is none".to_owned())
}

/// Folds the journal from its last snapshot on.
pub(crate) fn state(dir: &TeamDir) -> Result<Team, String> {
    load(dir, Since::Snapshot, |_, _| {})
        .map_err(|error| format!("cannot read the journal: {error}"))
}

/// Returns a request.
pub(crate) fn request<'t>(team: &'t Team, request_id: &RequestId) -> Result<&'t Request, String> {
    team.requests
        .get(request_id)
        .ok_or_else(|| format!("no such request: {request_id}"))
}

/// Returns whether the lead agent, and not only a person, made a request. If that cannot be read,
/// the answer is yes, because a superfluous notice does less harm than a missing one.
pub(crate) fn lead_agent_asked(dir: &TeamDir, request_id: &RequestId) -> bool {
    match state(dir) {
        Ok(team) => team
            .requests
            .get(request_id)
            .is_some_and(|request| request.agent),
        Err(why) => {
            tracing::warn!("cannot see who has asked for {request_id}: {why}");
            true
        }
    }
}

/// Returns whether a person has `teamctl chat` open, which holds a shared lock meanwhile.
pub(crate) fn has_chat(dir: &TeamDir) -> bool {
    match dir.open_file(&TeamPath::chat(), OFlags::RDONLY) {
        // The lock ends with the descriptor.
        Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(error) if error.is_not_found() => false,
        Err(error) => {
            tracing::warn!("cannot see whether a person sits at the chat: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_chats_as_long_as_a_shared_lock_is_held() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        assert!(!has_chat(&dir));
        let chat = dir
            .open_file(&TeamPath::chat(), OFlags::RDWR | OFlags::CREATE)
            .unwrap();
        assert!(!has_chat(&dir));
        chat.lock_shared().unwrap();
        assert!(has_chat(&dir) && has_chat(&dir));
        // What another test starts has all descriptors of this process for a moment: to close it is
        // not enough.
        chat.unlock().unwrap();
        assert!(!has_chat(&dir));
    }

    #[test]
    fn the_lead_agent_is_no_teammate() {
        assert_eq!(
            teammate("lead"),
            Err("that is you: name a teammate".to_owned())
        );
    }
}
