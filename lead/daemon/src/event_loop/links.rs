//! What the hosts report becomes events. A host speaks for its own members alone: what it says
//! about others is refused and logged.

use teamd_shared::clock;
use teamd_shared::control::{FromWorker, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::host::{HostWay, LinkState};
use teamd_shared::inbox::{self, MAX_RETURNED, UnreadMail, position_after};
use teamd_shared::journal::Team;
use teamd_shared::link::{
    CopyAt, FromHost, HomeHello, HomeIdentity, HostNow, HostedEnd, LINK_PROTOCOL, MailLine,
    OwnerAt, TeamNow, ToHost, Whose, WorkerReport, with_variables,
};
use teamd_shared::member::Phase;
use teamd_shared::message::{MAX_RETURNED_TEXT, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use super::EventLoop;
use crate::core::event::{Ended, Event};
use crate::core::host_link::HostLink;
use crate::core::incarnation::Incarnation;
use crate::core::runtime::{first_line, members_of};
use crate::io::copies;
use crate::io::input::LinkNews;
use crate::io::links::whose;
use crate::io::mail_relay::IntakeError;

impl EventLoop {
    /// Turns what a link reports into events.
    pub(super) fn link_news(&mut self, host: &Name, number: u64, news: LinkNews) -> Vec<Event> {
        match news {
            LinkNews::Up {
                version,
                weakness,
                frames,
                cut,
            } => {
                if let Some(why) = &weakness {
                    tracing::warn!("commands on {host} are not confined as promised: {why}");
                }
                self.resources.jobs.hosted.link_broke(host);
                let links = &mut self.resources.links;
                links.connected(host, number, (version, weakness), (frames, cut));
                self.greet_host(host);
                Vec::new()
            }
            LinkNews::Says(frame, room) if self.resources.links.is_present(host, number) => {
                let events = self.host_says(host, *frame);
                drop(room);
                events
            }
            LinkNews::HasRoom if self.resources.links.is_present(host, number) => {
                self.resources.links.pump_all(host);
                Vec::new()
            }
            LinkNews::Down { state, version }
                if self.resources.links.disconnected(host, number) =>
            {
                // Of a host that is refused, it is one of the reasons that there can be.
                let version = version.filter(|_| is_refusal(&state));
                self.lost_link(host, state, version)
            }
            // An older connection says it.
            LinkNews::Says(..) | LinkNews::HasRoom | LinkNews::Down { .. } => Vec::new(),
        }
    }

    /// Says what a host must know at the beginning of a connection.
    fn greet_host(&mut self, host: &Name) {
        let Some(hosts) = &self.dispatcher.team.hosts else {
            return;
        };
        let hello = HomeHello {
            protocol: LINK_PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            home: HomeIdentity {
                home: hosts.home,
                machine: machine_id(),
                starts: self.resources.links.starts,
            },
            host: host.clone(),
            team_name: self.dispatcher.team.team_name.clone(),
        };
        self.resources.links.say_hello(host, hello);
        self.tell_team(host);
        self.tell_roster(host);
        let owners = self.dispatcher.team.members.values().map(|it| &it.record);
        let others: Vec<Name> = owners
            .filter(|member| member.terms.host.as_ref() != Some(host))
            .map(|member| member.name.clone())
            .chain([Name::lead()])
            .collect();
        let mut taken = Vec::new();
        for owner in others {
            let line = self.resources.links.taken(host, &owner);
            taken.push(OwnerAt { owner, line });
        }
        let there = self.dispatcher.team.members.values().map(|it| &it.record);
        let there = there.filter(|member| member.terms.host.as_ref() == Some(host));
        let mut copies = Vec::new();
        for member in there {
            let length = copies::length(&self.resources.dir, &member.name);
            let name = member.name.clone();
            copies.push(CopyAt { name, length });
        }
        let outboxes = ToHost::Outboxes { taken, copies };
        self.resources.links.say(host, outboxes);
    }

    /// Tells all hosts what the team is now, where that has changed.
    pub(super) fn tell_hosts(&mut self) {
        if !std::mem::take(&mut self.resources.links.roster_is_new) {
            return;
        }
        for host in self.resources.links.up() {
            self.tell_team(&host);
            self.tell_roster(&host);
        }
    }

    fn tell_team(&mut self, host: &Name) {
        let team = &self.dispatcher.team;
        let told = self.resources.links.told_team(host);
        if told.is_some_and(|told| is_as_told(team, host, told)) {
            return;
        }
        let hosted = members_of(team, host).map(|member| whose(&Incarnation::of(member)));
        let lead = Name::lead();
        let now = TeamNow {
            hosted: hosted.collect(),
            owners: owners(team, host).cloned().collect(),
            others: others(team, host, &lead).cloned().collect(),
        };
        self.resources.links.tell_team(host, now);
    }

    fn tell_roster(&mut self, host: &Name) {
        let resources = &mut self.resources;
        let head = resources.roster.head(&self.dispatcher.team);
        resources.links.tell_roster(host, &head, &resources.roster);
    }

    fn lost_link(&mut self, host: &Name, state: LinkState, version: Option<String>) -> Vec<Event> {
        self.resources.jobs.hosted.link_broke(host);
        let there: Vec<Incarnation> = members_of(&self.dispatcher.team, host)
            .map(Incarnation::of)
            .collect();
        for incarnation in &there {
            self.forget_linked(incarnation);
        }
        let since = self.since_of(host, &state);
        self.deliveries_cut_off(host, since);
        self.logs_cut_off(host);
        let link = HostLink {
            since,
            state,
            version,
        };
        let mut events = vec![Event::Link {
            host: host.clone(),
            link,
        }];
        events.extend(self.measured_no_more(host));
        events
    }

    /// Returns since when the link is as it is now: an attempt that fails again changes nothing.
    fn since_of(&self, host: &Name, state: &LinkState) -> f64 {
        let before = self.dispatcher.runtime.link_to(host);
        let is_up = *state == LinkState::Up;
        before
            .filter(|before| before.is_up() == is_up)
            .map_or_else(clock::wall, |before| before.since)
    }

    fn host_says(&mut self, host: &Name, frame: FromHost) -> Vec<Event> {
        let is_early = matches!(
            frame,
            FromHost::Refused { .. }
                | FromHost::Present(_)
                | FromHost::Warning { .. }
                | FromHost::Pong { .. }
        );
        if !is_early && !self.resources.links.has_said(host) {
            tracing::warn!("{host} says something before it says what it has");
            return Vec::new();
        }
        match frame {
            FromHost::Hello(_) => Vec::new(),
            FromHost::Refused { why, hint } => {
                let state = LinkState::NeedsAttention {
                    why: first_line(&why),
                    hint: match hint {
                        Some(hint) => format!("{host} says: {}", first_line(&hint)),
                        None => "`teamctl host list` shows the links".to_owned(),
                    },
                };
                self.refuse_host(host, state)
            }
            FromHost::Present(_) if self.resources.links.has_said(host) => Vec::new(),
            FromHost::Present(now) => self.host_present(host, now),
            FromHost::Warning { text } => {
                tracing::warn!("{host}: {}", first_line(&text));
                Vec::new()
            }
            FromHost::Mail(mail) => {
                self.mail_from_host(host, &mail);
                Vec::new()
            }
            // The dialler has seen it.
            FromHost::Pong { .. } => Vec::new(),
            FromHost::Transcript { name, offset, text } => {
                self.copy_transcript(host, &name, offset, &text);
                Vec::new()
            }
            FromHost::Started { of, process } => {
                let Some(incarnation) = self.hosted(host, &of) else {
                    return Vec::new();
                };
                vec![Event::Started {
                    incarnation,
                    process: process.map_err(|why| first_line(&why)),
                    cgroup: None,
                }]
            }
            FromHost::Greeted(of) => {
                let Some(incarnation) = self.hosted(host, &of) else {
                    return Vec::new();
                };
                // On a link that is newer than its start, it has no connection yet.
                if self.resources.connections.number_of(&incarnation).is_none() {
                    self.add_linked(host, &incarnation);
                }
                vec![Event::Greeted { incarnation }]
            }
            FromHost::Connected {
                of,
                state,
                variables,
            } => {
                let Some(incarnation) = self.hosted(host, &of) else {
                    return Vec::new();
                };
                let state = self.read_report(host, &of.name, *state);
                self.add_linked(host, &incarnation);
                vec![Event::Connected {
                    incarnation,
                    environment: Some(with_variables(Environment::default(), variables)),
                    state,
                }]
            }
            FromHost::State { of, state } => {
                let state = self.read_report(host, &of.name, *state);
                self.linked_says(host, &of, FromWorker::State(state))
            }
            FromHost::Says { of, frame } => match *frame {
                // Their places are those of the host: they have frames of their own.
                FromWorker::State(_) | FromWorker::Submitted { .. } => {
                    tracing::warn!(
                        "{host} says a frame of {} that does not cross a link",
                        of.name
                    );
                    Vec::new()
                }
                frame => self.linked_says(host, &of, frame),
            },
            FromHost::Submitted {
                of,
                request_id,
                line,
            } => {
                let Some(incarnation) = self.hosted(host, &of) else {
                    return Vec::new();
                };
                let line = match line {
                    Some(line) => self.resources.links.taken_message(host, line),
                    None => Err("there is no such line".to_owned()),
                };
                vec![Event::Submitted {
                    incarnation,
                    request_id,
                    line,
                }]
            }
            FromHost::Disconnected(of) => {
                let Some(incarnation) = self.hosted(host, &of) else {
                    return Vec::new();
                };
                self.forget_linked(&incarnation);
                vec![Event::Disconnected { incarnation }]
            }
            FromHost::Ended { of, end } => self.host_ended(host, &of, *end),
            answer => self.host_answers(host, answer),
        }
    }

    /// Takes what a host says because it was asked.
    fn host_answers(&mut self, host: &Name, answer: FromHost) -> Vec<Event> {
        match answer {
            FromHost::JobEnded { number, ended } => {
                self.resources.jobs.hosted.ended_there(host, number, *ended);
                Vec::new()
            }
            FromHost::Log { number, piece } => {
                self.log_read(host, number, piece);
                Vec::new()
            }
            FromHost::Vitals(vitals) => self.measured(host, vitals),
            FromHost::NoFile { name, why } => {
                let links = &self.resources.links;
                links.no_file(host, name, first_line(&why));
                Vec::new()
            }
            FromHost::Taken(taken) => {
                self.taken_there(host, &taken);
                Vec::new()
            }
            // `host_says` has taken all others.
            _ => Vec::new(),
        }
    }

    fn refuse_host(&mut self, host: &Name, state: LinkState) -> Vec<Event> {
        let version = self.resources.links.version(host);
        self.resources.links.refused(host);
        self.lost_link(host, state, version)
    }

    /// Returns what a person must do where a host knows nothing of a teammate that runs there by the
    /// journal: it is another machine, or has lost its files. Whether the teammate still runs is not
    /// known.
    fn unknown_there(&self, host: &Name, now: &HostNow) -> Option<LinkState> {
        let is_known = |of: &Whose| {
            now.ended.contains(of) || now.running.iter().any(|running| running.of == *of)
        };
        let unknown = members_of(&self.dispatcher.team, host)
            .filter(|member| member.phase == Phase::Running)
            .find(|member| !is_known(&whose(&Incarnation::of(member))))?;
        let name = &unknown.name;
        let known = self.dispatcher.team.hosts.as_ref();
        let way = known.and_then(|hosts| hosts.get(host)).map(|it| &it.way);
        let again = if way.is_some_and(HostWay::dials_home) {
            "invite"
        } else {
            "login"
        };
        Some(LinkState::NeedsAttention {
            why: format!(
                "it knows nothing of {name}: it is another machine, or has lost the files of the team"
            ),
            hint: format!(
                "mend that, or `teamctl forget --lost {name}`; then `teamctl host {again} {host}`"
            ),
        })
    }

    /// Takes what a host has: the link is up from then on.
    fn host_present(&mut self, host: &Name, now: HostNow) -> Vec<Event> {
        if let Some(unknown) = self.unknown_there(host, &now) {
            return self.refuse_host(host, unknown);
        }
        self.resources.links.says_what_it_has(host);
        let link = HostLink {
            state: LinkState::Up,
            since: self.since_of(host, &LinkState::Up),
            version: self.resources.links.version(host),
        };
        let mut events = vec![Event::Link {
            host: host.clone(),
            link,
        }];
        let owners = self.owners_on(host);
        for member in members_of(&self.dispatcher.team, host) {
            let incarnation = Incarnation::of(member);
            let of = whose(&incarnation);
            let running = now.running.iter().find(|running| running.of == of);
            match running {
                Some(running) => events.push(Event::Reached {
                    incarnation,
                    process: running.process.clone(),
                }),
                // Its end follows.
                None if now.ended.contains(&of) => {}
                None => {
                    let why = format!("{host} had not heard of it when the link broke");
                    events.push(Event::not_started(incarnation, &why));
                }
            }
        }
        for owner in owners {
            let taken = now.inboxes.iter().find(|inbox| inbox.owner == owner);
            let taken = taken.and_then(|inbox| inbox.line);
            self.resources.links.add_outbox(host, &owner, taken);
        }
        self.resources.links.pump_all(host);
        events
    }

    fn host_ended(&mut self, host: &Name, of: &Whose, end: HostedEnd) -> Vec<Event> {
        let Some(incarnation) = self.hosted(host, of) else {
            return Vec::new();
        };
        let state = self.dispatcher.team.members.get(&of.name);
        if state.is_none_or(|state| state.record.phase.is_ended()) {
            return Vec::new();
        }
        self.forget_linked(&incarnation);
        let mail = self.checked_mail(host, &of.name, end.mail);
        let position = match end.inbox {
            Some(line) => position_after(&self.resources.dir, &of.name, line),
            None => Ok(None),
        };
        let inbox = position.unwrap_or_else(|error| {
            tracing::error!("cannot see what {} had read: {error}", of.name);
            None
        });
        let ended = Ended {
            code: end.code,
            signal: end.signal,
            inbox: inbox.unwrap_or(Position::START),
            unread: end.unread,
            mail: Some(mail),
            more_mail: end.more_mail,
            emptied: end.emptied,
            unworkable: end.unworkable.as_deref().map(first_line),
        };
        let mut events = Vec::new();
        if end.left {
            events.push(Event::Leaving {
                incarnation: incarnation.clone(),
            });
        }
        events.push(Event::Ended { incarnation, ended });
        events
    }

    /// Appends a line from a host, if it is from a member there to a member elsewhere, or to the
    /// lead.
    fn mail_from_host(&mut self, host: &Name, mail: &MailLine) {
        let members = &self.dispatcher.team.members;
        let host_of = |name: &Name| {
            let state = members.get(name)?;
            state.record.terms.host.as_ref()
        };
        let knows_receiver = mail.owner == Name::lead() || members.contains_key(&mail.owner);
        if !knows_receiver || host_of(&mail.owner) == Some(host) {
            tracing::warn!(
                "{host} sends a line for {}, whose inbox is not here",
                mail.owner
            );
            return;
        }
        let from = match Message::parse(mail.text.as_bytes()) {
            Ok(message) => message.from,
            Err(error) => {
                tracing::warn!("{host} sends a line that is no message: {error}");
                return;
            }
        };
        let sender = members.keys().find(|name| name.as_str() == from);
        if sender.and_then(host_of) != Some(host) {
            let from = from.escape_debug();
            tracing::warn!("{host} sends a line from {from}, who is not there: it is dropped");
            return;
        }
        match self.resources.links.take(host, mail) {
            Ok(()) => {}
            Err(IntakeError::NoMessage { .. }) => {
                tracing::warn!("{host} sends a line that is no message");
            }
            Err(error) => {
                // What follows must not overtake it: the host sends it again.
                tracing::error!(
                    "a line from {host} for {} cannot be taken: {error}",
                    mail.owner
                );
                self.resources.links.cut(host);
            }
        }
    }

    /// Returns what an incarnation on a host can have left unread: mail that is in its inbox at home,
    /// or that a member of the same host has sent to it there.
    fn checked_mail(&self, host: &Name, name: &Name, mail: Vec<UnreadMail>) -> Vec<UnreadMail> {
        let members = &self.dispatcher.team.members;
        let is_of_host = |from: &str| {
            let sender = members.values().find(|it| it.record.name.as_str() == from);
            sender.is_some_and(|it| it.record.terms.host.as_ref() == Some(host))
        };
        let mut checked = Vec::new();
        for mut unread in mail.into_iter().take(MAX_RETURNED) {
            let is_here = inbox::holds(&self.resources.dir, name, unread.id).unwrap_or(false);
            if !is_here && !is_of_host(&unread.from) {
                tracing::warn!("{host} returns a message to {name} that was not sent");
                continue;
            }
            unread.text = unread.text.chars().take(MAX_RETURNED_TEXT).collect();
            checked.push(unread);
        }
        checked
    }

    /// Forgets the connection of a worker on a host, and what waits on it.
    fn forget_linked(&mut self, incarnation: &Incarnation) {
        if let Some(number) = self.resources.connections.number_of(incarnation) {
            self.dispatcher.waiters.drop_connection(number);
        }
        self.resources.connections.forget(incarnation);
    }

    /// Adds a piece to the copy of a transcript.
    fn copy_transcript(&self, host: &Name, name: &Name, offset: u64, text: &str) {
        let member = self.dispatcher.team.members.get(name);
        let is_there = member.is_some_and(|it| it.record.terms.host.as_ref() == Some(host));
        if !is_there {
            tracing::warn!("{host} sends a transcript of {name}, who is not there");
            return;
        }
        if let Err(error) = copies::append(&self.resources.dir, name, offset, text) {
            tracing::error!("cannot keep the copy of the transcript of {name}: {error}");
        }
    }

    /// Returns the incarnation that a host speaks for: the present one of a member that is there.
    fn hosted(&self, host: &Name, of: &Whose) -> Option<Incarnation> {
        let state = self.dispatcher.team.members.get(&of.name)?;
        let member = &state.record;
        let is_there = member.terms.host.as_ref() == Some(host);
        if !is_there {
            tracing::warn!("{host} speaks for {}, who is not there", of.name);
            return None;
        }
        (member.incarnation == of.incarnation).then(|| Incarnation::of(member))
    }

    fn add_linked(&mut self, host: &Name, incarnation: &Incarnation) {
        if let Some(worker) = self.resources.links.worker(host, incarnation) {
            let connections = &mut self.resources.connections;
            connections.add_linked(incarnation.clone(), worker);
        }
    }

    fn linked_says(&mut self, host: &Name, of: &Whose, frame: FromWorker) -> Vec<Event> {
        let Some(incarnation) = self.hosted(host, of) else {
            return Vec::new();
        };
        let Some(connection) = self.resources.connections.number_of(&incarnation) else {
            return Vec::new();
        };
        let said = self.worker_says(connection, incarnation, frame);
        said.into_iter().collect()
    }

    /// Returns the state of a worker on a host, with its position in home's inbox.
    fn read_report(&mut self, host: &Name, name: &Name, report: WorkerReport) -> WorkerState {
        let read = match report.read {
            Some(line) => self.resources.links.end_of_read(host, name, line),
            None => 0,
        };
        WorkerState {
            read,
            // The host daemon wakes it.
            needs_waking: false,
            activity: first_line(&report.state.activity),
            ..report.state
        }
    }
}

/// Returns the members of a host, ended or not.
fn owners<'t>(team: &'t Team, host: &'t Name) -> impl Iterator<Item = &'t Name> {
    let members = team.members.values().map(|state| &state.record);
    let there = members.filter(move |member| member.terms.host.as_ref() == Some(host));
    there.map(|member| &member.name)
}

/// Returns the lead, and all members that are elsewhere.
fn others<'t>(team: &'t Team, host: &'t Name, lead: &'t Name) -> impl Iterator<Item = &'t Name> {
    let members = team.members.values().map(|state| &state.record);
    let elsewhere = members
        .filter(move |member| member.terms.host.as_ref() != Some(host) && member.name != *lead);
    std::iter::once(lead).chain(elsewhere.map(|member| &member.name))
}

/// Tells whether the team is what a host was told last. It is compared at each change of a member,
/// for each host.
fn is_as_told(team: &Team, host: &Name, told: &TeamNow) -> bool {
    let lead = Name::lead();
    let hosted = members_of(team, host).map(|member| (&member.name, member.incarnation));
    let told_hosted = told.hosted.iter().map(|of| (&of.name, of.incarnation));
    hosted.eq(told_hosted)
        && owners(team, host).eq(&told.owners)
        && others(team, host, &lead).eq(&told.others)
}

/// Tells whether a link is not dialled again until a person has done something.
fn is_refusal(state: &LinkState) -> bool {
    matches!(state, LinkState::NeedsAttention { .. })
}

/// Returns the id of this machine; empty where there is none.
fn machine_id() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    id.trim().to_owned()
}
