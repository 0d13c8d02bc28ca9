//! What the lead agent's tools read from the files of the team.

use std::fs::TryLockError;

use rustix::fs::OFlags;
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::request::Request;
use teamd_shared::team_dir::{TeamDir, TeamPath};

pub(crate) use teamd_shared::spawn::{roster, state};
pub(crate) use teamd_shared::tools::teammate;

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
}
