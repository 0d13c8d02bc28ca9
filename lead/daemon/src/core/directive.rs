//! The daemon's directive to a worker, composed from the state. Pure.

use teamd_shared::control::{Directive, PendingShutdown, PlanVerdict, Welcome};
use teamd_shared::journal::Team;
use teamd_shared::member::Gate;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request};
use teamd_shared::terms::{Terms, ToolGroup};

use crate::core::incarnation::Incarnation;
use crate::core::runtime::Runtime;

/// Composes the directive for a member; none if the roster does not know it.
pub(crate) fn directive(team: &Team, runtime: &Runtime, name: &Name) -> Option<Directive> {
    let member = team.members.get(name)?;
    let pending = team.pending(name, Kind::Shutdown);
    let shutdown = pending.filter(|request| request.incarnation == member.record.incarnation);
    Some(Directive {
        seq: member.seq,
        gate: team.gate(name),
        checking: if member.record.gate == Gate::Open {
            team.checked_in_place(name)
        } else {
            None
        },
        shutdown: shutdown.and_then(pending_shutdown),
        release: team.release(name).is_some(),
        plan: team
            .pending(name, Kind::PlanApproval)
            .map(|request| request.request_id.clone()),
        verdict: verdict(team, runtime, name),
        permissions: member.record.terms.permissions,
        settles: runtime.member(name).map_or(0, |worker| worker.state.doubts),
    })
}

fn pending_shutdown(request: &Request) -> Option<PendingShutdown> {
    let Payload::Shutdown {
        reason,
        decide_within,
        ..
    } = &request.payload
    else {
        return None;
    };
    Some(PendingShutdown {
        request_id: request.request_id.clone(),
        reason: reason.clone(),
        decide_within: *decide_within,
    })
}

/// Returns the verdict on what the worker waits for by its own report, otherwise on its last plan.
fn verdict(team: &Team, runtime: &Runtime, name: &Name) -> Option<PlanVerdict> {
    let awaited = runtime
        .member(name)
        .and_then(|worker| worker.state.awaits.as_ref());
    let awaited = awaited
        .and_then(|id| team.requests.get(id))
        .filter(|request| request.member() == name.as_str());
    let request = awaited
        .or_else(|| team.plan_of(name))
        .filter(|request| !request.is_pending())?;
    Some(verdict_of(request))
}

/// Returns the verdict on a request that is not pending any more.
pub(crate) fn verdict_of(request: &Request) -> PlanVerdict {
    PlanVerdict {
        request_id: request.request_id.clone(),
        status: request.status,
        feedback: request.reason.clone().unwrap_or_default(),
    }
}

/// Returns what an incarnation is to know when it begins, or when it comes back; none if no member
/// has that name.
pub(crate) fn welcome(
    team: &Team,
    runtime: &Runtime,
    incarnation: &Incarnation,
) -> Option<Welcome> {
    let state = team.members.get(&incarnation.name)?;
    let directive = directive(team, runtime, &incarnation.name)?;
    let member = &state.record;
    let worker = runtime.of(incarnation);
    Some(Welcome {
        terms: member.terms.clone(),
        conversation: member.conversation,
        begins_at: member.begins_at,
        prompt: state.prompt.clone(),
        watch: worker.is_some_and(|worker| worker.watches),
        environment: worker
            .and_then(|worker| worker.environment.clone())
            .unwrap_or_default(),
        territory: team
            .territory()
            .map(|(path, _)| path.to_string_lossy().into_owned())
            .collect(),
        directive,
        memory: remembers(&member.terms).then(|| team.memory_text()),
    })
}

/// Tells whether a member knows what the team remembers, and may propose more.
pub(crate) fn remembers(terms: &Terms) -> bool {
    terms.groups.contains(&ToolGroup::Memory)
}
