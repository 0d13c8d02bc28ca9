//! The hosts of the team, and what a host reports of the processes there.

use teamd_shared::control::{Done, Refusal, RefusalCode, SpawnOrder};
use teamd_shared::host::{
    Host, HostStatus, HostWay, Hosts, LinkState, can_be_host, can_be_workspace, is_full,
};
use teamd_shared::id::Ids;
use teamd_shared::journal::{Record, TeamEvent, TeamRecord};
use teamd_shared::member::{Ending, Phase};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;

use super::{Decision, DecisionView, conflict};
use crate::core::caller::ReplyTo;
use crate::core::event::Action;
use crate::core::incarnation::Incarnation;
use crate::core::runtime::members_of;

impl DecisionView<'_> {
    /// Adds a host, or changes where one is.
    pub(super) fn add_host(
        &self,
        client: ReplyTo,
        host: &Host,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let usage = |why: String| Refusal::new(RefusalCode::Usage, why);
        can_be_host(&host.name).map_err(|why| usage(why).hint("take another name"))?;
        host.way
            .can_link()
            .map_err(|(why, hint)| usage(why).hint(hint))?;
        self.has_no_key_of_another(host)?;
        if let Some(workspace) = &host.terms.workspace {
            can_be_workspace(workspace, &host.name)
                .map_err(|why| usage(why).hint("name it absolute, or beginning with `~/`"))?;
        }
        let dial = Decision::default().act(Action::Dial(host.clone()));
        let wait = Action::WaitForLink(client, host.name.clone());
        let hosts = self.team.hosts.as_ref();
        if hosts.and_then(|hosts| hosts.get(&host.name)) == Some(host) {
            return Ok(dial.act(wait));
        }
        let is_elsewhere = |known: &Host| known.way.is_elsewhere(&host.way);
        let known = hosts.and_then(|hosts| hosts.get(&host.name));
        if known.is_some_and(is_elsewhere) {
            self.has_no_members(&host.name)?;
        }
        let mut list = hosts.map(|hosts| hosts.list.clone()).unwrap_or_default();
        list.retain(|other| other.name != host.name);
        list.push(host.clone());
        list.sort_by(|one, other| one.name.cmp(&other.name));
        let hosts = Hosts {
            home: hosts.map_or_else(|| ids.message(), |hosts| hosts.home),
            list,
        };
        let answer = match (&host.way, known) {
            // A person there must do something first.
            (way, None) if way.dials_home() => {
                Action::Reply(client, Ok(Done::Hosts(self.shown(&hosts))))
            }
            _ => wait,
        };
        let mut changed = self.changed_hosts(hosts);
        // A link to another place is another link, and so is one with other promises.
        let is_other = |known: &Host| {
            known.way != host.way || known.allow_weak_sandbox != host.allow_weak_sandbox
        };
        if known.is_some_and(is_other) {
            changed = changed.act(Action::HangUp(host.name.clone()));
        }
        Ok(changed.and(dial).act(answer))
    }

    /// Refuses a key that lets in another host: `sshd` takes the first line that has it.
    fn has_no_key_of_another(&self, host: &Host) -> Result<(), Refusal> {
        let hosts = self.team.hosts.iter().flat_map(|hosts| &hosts.list);
        let mut others = hosts.filter(|other| other.name != host.name);
        let key = host.way.invitation();
        let Some(other) = others.find(|other| key.is_some() && other.way.invitation() == key)
        else {
            return Ok(());
        };
        let message = format!("{} has that key already", other.name);
        Err(Refusal::new(RefusalCode::Usage, message).hint("each host needs a key of its own"))
    }

    /// Removes a host that has no members, ended ones included: their files are there.
    pub(super) fn remove_host(&self, client: ReplyTo, name: &Name) -> Result<Decision, Refusal> {
        self.known_host(name)?;
        self.has_no_members(name)?;
        let mut hosts = self.team.hosts.clone().unwrap_or_else(|| Hosts {
            home: uuid::Uuid::nil(),
            list: Vec::new(),
        });
        hosts.list.retain(|host| host.name != *name);
        let shown = self.shown(&hosts);
        Ok(self
            .changed_hosts(hosts)
            .act(Action::HangUp(name.clone()))
            .act(Action::Reply(client, Ok(Done::Hosts(shown)))))
    }

    /// Has a host obey this home with a new connection.
    pub(super) fn take_host(&self, client: ReplyTo, name: &Name) -> Result<Decision, Refusal> {
        let host = self.known_host(name)?;
        Ok(Decision::default()
            .act(Action::HangUp(name.clone()))
            .act(Action::TakeOver(name.clone()))
            .act(Action::Dial(host.clone()))
            .act(Action::WaitForLink(client, name.clone())))
    }

    fn has_no_members(&self, host: &Name) -> Result<(), Refusal> {
        let members = self.team.members.values().map(|state| &state.record);
        let left: Vec<&str> = members
            .filter(|member| member.terms.host.as_ref() == Some(host))
            .map(|member| member.name.as_str())
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        Err(conflict(
            format!("{host} has teammates: {}", left.join(", ")),
            "`teamctl shutdown` them, and then `teamctl forget` them",
        ))
    }

    /// Takes a member for lost, because a person says that its host is gone for good.
    pub(super) fn lose(
        &self,
        client: ReplyTo,
        name: &Name,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let member = self.running(name)?;
        let Some(host) = &member.terms.host else {
            return Err(conflict(
                format!("{name} is on this machine, and cannot be lost"),
                format!("`teamctl shutdown {name}` ends it"),
            ));
        };
        if self.runtime.unreachable_since(member).is_none() {
            return Err(conflict(
                format!("{host} can be reached, so {name} is not lost"),
                format!("`teamctl shutdown {name}` ends it"),
            ));
        }
        let done = Done::Recorded {
            incarnation: member.incarnation,
        };
        Ok(self.lost(member, ids).act(Action::Reply(client, Ok(done))))
    }

    /// Has the work kept that could not be while a host was not reached.
    pub(super) fn keep_what_waited(&self, host: &Name) -> Decision {
        let mut decision = Decision::default();
        for name in self.runtime.unkept(self.team, host) {
            if self.team.held_by(name).is_none() {
                decision = decision.act(Action::Keep(name.clone(), None));
            }
        }
        decision
    }

    /// Returns the hosts and their links.
    pub(crate) fn hosts(&self) -> Vec<HostStatus> {
        self.team
            .hosts
            .as_ref()
            .map(|hosts| self.shown(hosts))
            .unwrap_or_default()
    }

    fn shown(&self, hosts: &Hosts) -> Vec<HostStatus> {
        let show = |host: &Host| {
            let link = self.runtime.link_to(&host.name);
            HostStatus {
                host: host.clone(),
                link: link.map_or_else(
                    || LinkState::Unreachable {
                        why: match host.way {
                            HostWay::Ssh(_) => "it is being dialled".to_owned(),
                            HostWay::Invited(_) | HostWay::Nats(_) => {
                                "it has not dialled home".to_owned()
                            }
                        },
                    },
                    |link| link.state.clone(),
                ),
                since: link.map_or(self.now.wall, |link| link.since),
                version: link.and_then(|link| link.version.clone()),
                teammates: u32::try_from(members_of(self.team, &host.name).count())
                    .unwrap_or(u32::MAX),
                weakness: None,
                vitals: None,
            }
        };
        hosts.list.iter().map(show).collect()
    }

    fn changed_hosts(&self, hosts: Hosts) -> Decision {
        Decision::default().record(Record::Team(Box::new(TeamRecord {
            hosts: Some(hosts),
            ..self.team_record(TeamEvent::Hosts)
        })))
    }

    fn known_host(&self, name: &Name) -> Result<&Host, Refusal> {
        let hosts = self.team.hosts.as_ref();
        hosts.and_then(|hosts| hosts.get(name)).ok_or_else(|| {
            Refusal::new(RefusalCode::NotFound, format!("there is no host {name}"))
                .hint(format!("`teamctl host add {name}` adds it"))
        })
    }

    /// Makes sure that an order for a host can be carried out now: it is never stored.
    pub(super) fn may_begin_there(&self, order: &SpawnOrder) -> Result<(), Refusal> {
        let terms = self.terms_of(order);
        let before = self.team.members.get(&order.name);
        let name = &order.name;
        let earlier = before.map(|state| &state.record.terms.host);
        if let Some(earlier) = earlier
            && *earlier != terms.host
        {
            let place = |host: &Option<Name>| match host {
                Some(host) => format!("on {host}"),
                None => "at home".to_owned(),
            };
            return Err(conflict(
                format!(
                    "the conversation and the mail of {name} are {}",
                    place(earlier)
                ),
                format!("take another name, or `teamctl forget {name}` first"),
            ));
        }
        let Some(host) = &terms.host else {
            return Ok(());
        };
        let had_checkout = self
            .resumed(order)
            .is_some_and(|it| it.terms.checkout.is_some());
        if terms.auto && !order.terms.checkout.unwrap_or(had_checkout) {
            let message = format!(
                "without a checkout a teammate on {host} is given no tasks: they are checked at home"
            );
            return Err(Refusal::new(RefusalCode::Usage, message)
                .hint("add `--checkout`, or leave `--auto` out and give it work by messages"));
        }
        let there = members_of(self.team, host).count();
        let there = u32::try_from(there).unwrap_or(u32::MAX);
        if let Some(why) = is_full(self.known_host(host)?, there) {
            return Err(conflict(
                format!("{host} is full: {why}"),
                "`teamctl shutdown` one of them, or raise `max` in `[hosts]` of team.toml",
            ));
        }
        let link = self.runtime.link_to(host).map(|link| &link.state);
        match link {
            Some(LinkState::Up) => Ok(()),
            Some(LinkState::NeedsAttention { why, hint }) => {
                Err(Refusal::new(RefusalCode::Failed, format!("{host}: {why}")).hint(hint))
            }
            Some(LinkState::Unreachable { why }) => Err(unreachable(host, why)),
            None => Err(unreachable(host, "it is being dialled")),
        }
    }

    /// Decides when a host reports, on a new link, that an incarnation runs there.
    pub(super) fn reached(
        &self,
        incarnation: &Incarnation,
        process: &Identity,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some(member) = self.present(incarnation) else {
            return Decision::default();
        };
        if member.phase == Phase::Spawning {
            return self.started(incarnation, (&Ok(process.clone()), None), ids);
        }
        // A signal may not have got there.
        match member.ending {
            None => Decision::default(),
            Some(Ending::Hung) => Decision::default().act(Action::Kill(incarnation.clone())),
            Some(_) => Decision::default().act(Action::Terminate(incarnation.clone())),
        }
    }
}

fn unreachable(host: &Name, why: &str) -> Refusal {
    Refusal::new(
        RefusalCode::Failed,
        format!("{host} cannot be reached: {why}"),
    )
    .hint("`teamctl host list` shows the links")
}
