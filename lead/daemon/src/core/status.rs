//! What a member does, from the journal and from what its worker said last. Pure.

use teamd_shared::journal::Team;
use teamd_shared::member::{Doing, Member, MemberStatus};
use teamd_shared::request::Kind;

use crate::core::incarnation::Incarnation;
use crate::core::runtime::Runtime;

/// Returns the status that people see, computed from the journal and from what the worker last
/// said.
pub(crate) fn status(team: &Team, runtime: &Runtime, member: &Member) -> MemberStatus {
    let name = &member.name;
    let leaving = team.release(name).is_some()
        || member.ending.is_some()
        || team.pending(name, Kind::Shutdown).is_some();
    let waits = team.awaited_by(name).is_some();
    MemberStatus::of(member.phase, leaving, waits, doing(team, runtime, member))
}

/// Returns what a worker does. If what it waits for has a verdict it is at work, even if it has not
/// said so yet.
pub(crate) fn doing(team: &Team, runtime: &Runtime, member: &Member) -> Doing {
    let incarnation = Incarnation::of(member);
    let Some(said) = runtime.of(&incarnation).map(|worker| &worker.state) else {
        return Doing::Starting;
    };
    // An id that is taken belongs to another member.
    let asked = said
        .awaits
        .as_ref()
        .and_then(|id| team.requests.get(id))
        .filter(|request| request.member() == member.name.as_str());
    if asked.is_some_and(|request| !request.is_pending()) {
        Doing::Working
    } else {
        said.doing
    }
}
