//! The links to the hosts, as they are reported. Nothing of that is journaled: a host that cannot
//! be reached has ended nothing.

use teamd_shared::host::AwaitedHost;
use teamd_shared::journal::Team;
use teamd_shared::member::{Gate, Member};
use teamd_shared::name::Name;

use super::member::WorkerLink;
use super::{MemberRuntime, Runtime};
use crate::core::host_link::HostLink;
use crate::core::incarnation::Incarnation;

impl Runtime {
    /// Records what became of a link. Without it no frame of a worker there counts, and its clocks
    /// stand still.
    pub(super) fn record_link(&mut self, team: &Team, host: &Name, link: &HostLink) {
        self.hosts.insert(host.clone(), link.clone());
        if link.is_up() {
            return;
        }
        for member in members_of(team, host) {
            if let Some(worker) = self.members.get_mut(&member.name) {
                worker.link = WorkerLink::Closed;
                worker.stop_clocks();
            }
        }
    }

    /// Records that the work of a member is to be kept when its host is reached again.
    pub(crate) fn keep_later(&mut self, name: Name) {
        self.unkept.insert(name);
    }

    /// Records that the work of a member is being kept.
    pub(crate) fn kept_now(&mut self, name: &Name) {
        self.unkept.remove(name);
    }

    /// Returns the members of a host whose work is to be kept now that it is reached.
    pub(crate) fn unkept<'a>(
        &'a self,
        team: &'a Team,
        host: &'a Name,
    ) -> impl Iterator<Item = &'a Name> {
        self.unkept.iter().filter(move |name| {
            let state = team.members.get(*name);
            state.is_some_and(|state| state.record.terms.host.as_ref() == Some(host))
        })
    }

    /// Forgets the link to a host that was removed.
    pub(crate) fn forget_link(&mut self, host: &Name) {
        self.hosts.remove(host);
    }

    /// Returns the link to a host; none: nothing was heard of it yet.
    pub(crate) fn link_to(&self, host: &Name) -> Option<&HostLink> {
        self.hosts.get(host)
    }

    /// Returns since when the host of a member cannot be reached, in seconds since 1970; none if it
    /// can, or if the member is at home.
    pub(crate) fn unreachable_since(&self, member: &Member) -> Option<f64> {
        let host = member.terms.host.as_ref()?;
        match self.hosts.get(host) {
            Some(link) if link.is_up() => None,
            Some(link) => Some(link.since),
            None => Some(member.updated_at),
        }
    }
}

impl Runtime {
    /// Returns the host that everything for a member waits for; none if it can be reached, or is
    /// being dialled for the first time.
    pub(crate) fn awaited_host(&self, member: &Member) -> Option<AwaitedHost> {
        let name = member.terms.host.as_ref()?;
        let link = self.hosts.get(name).filter(|link| !link.is_up())?;
        Some(AwaitedHost {
            name: name.clone(),
            unreachable_since: Some(link.since),
        })
    }

    /// Returns the gate of a member for people: that of a member on a host as its worker has
    /// confirmed it.
    pub(crate) fn shown_gate(&self, team: &Team, member: &Member) -> Gate {
        let is_hosted = member.terms.host.is_some();
        let worker = self.of(&Incarnation::of(member)).filter(|_| is_hosted);
        let confirmed = worker.and_then(|worker| worker.gate.confirmed());
        confirmed.unwrap_or_else(|| team.gate(&member.name))
    }
}

impl MemberRuntime {
    /// Drops all deadlines: they begin anew when its host is reached again.
    pub(super) fn stop_clocks(&mut self) {
        self.ladder = super::ladder::Ladder::default();
        self.watch = crate::core::watchdog::ResponseWatch::default();
    }
}

/// Returns the members of a host that have not ended.
pub(crate) fn members_of<'t>(team: &'t Team, host: &'t Name) -> impl Iterator<Item = &'t Member> {
    team.members
        .values()
        .map(|state| &state.record)
        .filter(move |member| member.terms.host.as_ref() == Some(host) && !member.phase.is_ended())
}
