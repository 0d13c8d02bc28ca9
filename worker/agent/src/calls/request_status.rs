//! `shutdown_response` of the lead agent: shows the status of a request. With `approve` it is the
//! answer of a lead agent that has been asked to leave itself.

use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::request::{Kind, Request, Status};
use teamd_shared::team_dir::TeamDir;

use crate::team;

/// Describes the status of a request.
pub(super) fn show(dir: &TeamDir, request_id: &RequestId) -> Result<String, String> {
    let team = team::state(dir)?;
    team::request(&team, request_id).map(|request| describe(&team, request))
}

fn describe(team: &Team, request: &Request) -> String {
    let member = request.member();
    let status = request.status.as_str();
    let what = request.kind.noun();
    let mut text = format!("{what} {} of {member}: {status}", request.request_id);
    if let Some(reason) = request
        .reason
        .as_deref()
        .filter(|reason| !reason.trim().is_empty())
    {
        text.push_str(&format!(" ({reason})"));
    }
    if request.kind == Kind::Shutdown && request.status == Status::Approved {
        let record = team
            .members
            .iter()
            .find(|(name, _)| name.as_str() == member)
            .map(|(_, state)| &state.record);
        let leaves = record.is_some_and(|record| {
            record.incarnation == request.incarnation && !record.phase.is_ended()
        });
        text.push_str(if leaves {
            "; it is about to leave"
        } else {
            "; its process is gone"
        });
    }
    text
}
