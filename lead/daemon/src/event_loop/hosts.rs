//! What the hosts have to give: for a list of them, and for a spawn on any of them. The hosts say so
//! when they are asked, so an idle link is silent.

use std::time::Instant;

use teamd_shared::control::{Command, Done, Refusal, RefusalCode};
use teamd_shared::host::{ANY, HostStatus, HostVitals, LinkState, MOST_CHECKOUTS, is_full};
use teamd_shared::name::Name;

use super::EventLoop;
use crate::core::event::Event;
use crate::io::jobs::hosted::is_path;
use crate::io::links::AwaitedVitals;

/// How much room the names of the checkouts of one host take at the most, in bytes: all hosts go into
/// one answer.
const MOST_OF_CHECKOUTS: usize = 64 << 10;

impl EventLoop {
    /// Does something once the hosts have said what they have to give.
    pub(super) fn measure_hosts(&mut self, what: AwaitedVitals) -> Option<Event> {
        let hosts = self.resources.links.ask_vitals();
        if hosts.is_empty() {
            return self.has_measured(what, Instant::now());
        }
        self.resources.links.measurements.add(what, hosts);
        None
    }

    /// Takes what a host has to give.
    pub(super) fn measured(&mut self, host: &Name, mut vitals: HostVitals) -> Vec<Event> {
        vitals.checkouts.truncate(MOST_CHECKOUTS);
        let mut room = MOST_OF_CHECKOUTS;
        vitals.checkouts.retain(|root| {
            room = room.saturating_sub(root.len());
            is_path(root) && room > 0
        });
        self.resources.links.has_vitals(host, vitals);
        self.measured_no_more(host)
    }

    /// Waits for a host no longer.
    pub(super) fn measured_no_more(&mut self, host: &Name) -> Vec<Event> {
        let over = self.resources.links.measurements.answered(host);
        self.have_measured(over)
    }

    /// Waits no longer for hosts that do not answer in time.
    pub(super) fn overdue_measurements(&mut self) -> Vec<Event> {
        let over = self.resources.links.measurements.overdue(Instant::now());
        self.have_measured(over)
    }

    /// Holds a spawn on any host back until it is known which one is the best.
    pub(super) fn place(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Command(client, by, command) if is_for_any_host(&command) => {
                self.measure_hosts(AwaitedVitals::Spawn(client, by, command))
            }
            Event::Command(client, by, mut command) => {
                if let Err(refusal) = self.complete(&mut command) {
                    self.resources.connections.reply(client, Err(refusal));
                    return None;
                }
                Some(Event::Command(client, by, command))
            }
            event => Some(event),
        }
    }

    /// Gives a spawn on a host the workspace of that host, if it names none.
    fn complete(&self, command: &mut Command) -> Result<(), Refusal> {
        let Command::Spawn { order, .. } = command else {
            return Ok(());
        };
        let team = &self.dispatcher.team;
        let before = team.members.get(&order.name).filter(|_| order.resume);
        let had_checkout = before.is_some_and(|it| it.record.terms.checkout.is_some());
        if order.terms.checkout.unwrap_or(had_checkout) {
            return Ok(());
        }
        let hosts = team.hosts.as_ref();
        let host = order.terms.host.as_ref().zip(hosts);
        let host = host.and_then(|(name, hosts)| hosts.get(name));
        let Some(host) = host.filter(|_| order.terms.workspace.is_none()) else {
            return Ok(());
        };
        order.terms.workspace.clone_from(&host.terms.workspace);
        if order.terms.workspace.is_some() {
            return Ok(());
        }
        let message = format!(
            "no directory on {} is named for {} to work in",
            host.name, order.name
        );
        Err(Refusal::new(RefusalCode::Usage, message)
            .hint("give it a checkout (`--checkout`), or name one that is there: `--workspace DIR`, absolute or beginning with `~/`"))
    }

    fn have_measured(&mut self, over: Vec<(AwaitedVitals, Instant)>) -> Vec<Event> {
        over.into_iter()
            .filter_map(|(what, asked)| self.has_measured(what, asked))
            .collect()
    }

    /// Does what has waited for what the hosts have to give, since they were asked.
    fn has_measured(&mut self, what: AwaitedVitals, asked: Instant) -> Option<Event> {
        let hosts = self.described_hosts(asked);
        match what {
            AwaitedVitals::List(client) => {
                let answer = Ok(Done::Hosts(hosts));
                self.resources.connections.reply(client, answer);
                None
            }
            AwaitedVitals::Spawn(client, by, mut command) => {
                let placed = self.choose_host(&mut command, &hosts);
                if let Err(refusal) = placed.and_then(|()| self.complete(&mut command)) {
                    self.resources.connections.reply(client, Err(refusal));
                    return None;
                }
                Some(Event::Command(client, by, command))
            }
        }
    }

    fn described_hosts(&self, asked: Instant) -> Vec<HostStatus> {
        let mut hosts = self.dispatcher.hosts(self.now());
        for status in &mut hosts {
            let (weakness, vitals) = self.resources.links.described(&status.host.name, asked);
            status.weakness = weakness;
            status.vitals = vitals;
        }
        hosts
    }

    /// Names a host in a spawn on any: the one where the teammate was before, else the one that has
    /// the most to give.
    fn choose_host(&self, command: &mut Command, hosts: &[HostStatus]) -> Result<(), Refusal> {
        let Command::Spawn { order, .. } = command else {
            return Ok(());
        };
        let before = self.dispatcher.team.members.get(&order.name);
        let before = before.and_then(|state| state.record.terms.host.clone());
        let chosen = match before {
            Some(before) => before,
            None => best(hosts)?,
        };
        order.terms.host = Some(chosen);
        Ok(())
    }
}

fn is_for_any_host(command: &Command) -> bool {
    let Command::Spawn { order, .. } = command else {
        return false;
    };
    let host = order.terms.host.as_ref();
    host.is_some_and(|host| host.as_str() == ANY)
}

/// Returns the host that has the most to give.
fn best(hosts: &[HostStatus]) -> Result<Name, Refusal> {
    if hosts.is_empty() {
        let refusal = Refusal::new(RefusalCode::NotFound, "the team has no hosts");
        return Err(refusal.hint("`teamctl host add NAME --ssh USER@HOST` adds one"));
    }
    let able = hosts.iter().filter(|status| why_not(status).is_none());
    let best = able.max_by_key(|status| status.vitals.as_ref().map(HostVitals::room));
    if let Some(best) = best {
        return Ok(best.host.name.clone());
    }
    let whys = hosts
        .iter()
        .filter_map(|status| Some(format!("{}: {}", status.host.name, why_not(status)?)));
    let whys: Vec<String> = whys.collect();
    let message = format!("no host can take a teammate now: {}", whys.join("; "));
    Err(Refusal::new(RefusalCode::Failed, message).hint("`teamctl host list` shows the links"))
}

/// Returns why no teammate can be started at a host now.
fn why_not(status: &HostStatus) -> Option<String> {
    match &status.link {
        LinkState::Unreachable { why } => Some(format!("it cannot be reached: {why}")),
        LinkState::NeedsAttention { why, hint } => Some(format!("{why} ({hint})")),
        LinkState::Up if status.vitals.is_none() => {
            Some("it does not say what it has to give".to_owned())
        }
        LinkState::Up => is_full(&status.host, status.teammates),
    }
}

#[cfg(test)]
mod tests;
