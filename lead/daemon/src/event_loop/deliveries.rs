//! Whether mail to a member of a host is there: what a sender may say.

use teamd_shared::control::Done;
use teamd_shared::host::AwaitedHost;
use teamd_shared::link::OwnerAt;
use teamd_shared::member::Member;
use teamd_shared::name::Name;

use super::EventLoop;
use crate::core::caller::ReplyTo;

impl EventLoop {
    /// Answers when a line of home's inbox of a member is where it lives, or when its host cannot
    /// be reached.
    pub(super) fn await_delivery(&mut self, client: ReplyTo, name: Name, offset: u64) {
        let state = self.dispatcher.team.members.get(&name);
        let host = state.and_then(|state| state.record.terms.host.clone());
        let Some(host) = host else {
            self.answer_delivery(client, None);
            return;
        };
        let link = self.dispatcher.runtime.link_to(&host);
        if !link.is_some_and(|link| link.is_up()) {
            let since = link.map(|link| link.since);
            self.answer_delivery(client, Some(awaited(&host, since)));
            return;
        }
        let links = &mut self.resources.links;
        links.deliveries.add(client, name.clone(), offset);
        links.pump(&host, &name);
    }

    /// Takes how far a host has taken an inbox.
    pub(super) fn taken_there(&mut self, host: &Name, taken: &OwnerAt) {
        if !self.owners_on(host).contains(&taken.owner) {
            tracing::warn!("{host} speaks for {}, who is not there", taken.owner);
            return;
        }
        let deliveries = &mut self.resources.links.deliveries;
        for client in deliveries.delivered(&taken.owner, taken.line) {
            self.answer_delivery(client, None);
        }
    }

    /// Answers what waits for a host that cannot be reached any more.
    pub(super) fn deliveries_cut_off(&mut self, host: &Name, since: f64) {
        let owners = self.owners_on(host);
        for client in self.resources.links.deliveries.cut_off(&owners) {
            self.answer_delivery(client, Some(awaited(host, Some(since))));
        }
    }

    /// Returns the members whose inboxes are on a host, ended ones included.
    pub(super) fn owners_on(&self, host: &Name) -> Vec<Name> {
        let members = self.dispatcher.team.members.values();
        let is_there = |member: &&Member| member.terms.host.as_ref() == Some(host);
        let there = members.map(|state| &state.record).filter(is_there);
        there.map(|member| member.name.clone()).collect()
    }

    fn answer_delivery(&mut self, client: ReplyTo, waits: Option<AwaitedHost>) {
        let answer = Ok(Done::Delivered(waits));
        self.resources.connections.reply(client, answer);
    }
}

fn awaited(host: &Name, unreachable_since: Option<f64>) -> AwaitedHost {
    AwaitedHost {
        name: host.clone(),
        unreachable_since,
    }
}
