//! What people do: commands with sense and without.

use std::time::Duration;

use teamd_shared::control::{Command, ShutdownOrder, SpawnOrder};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::member::{ApproveBy, Permissions, Restart, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::request::Kind;

use super::hosts::HOSTED;
use super::machine::environment;
use super::world::{NAMES, World};
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::Event;

impl World {
    /// Lets a client run a command.
    pub(super) fn client_step(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        self.next_client += 1;
        let client = ReplyTo {
            connection: self.next_client,
            tag: 1,
            agent: false,
        };
        let event = match self.rng.below(42) {
            _ if self.rng.one_in(12) && !self.said.is_empty() => {
                let again = self.rng.pick(&self.said).map(|said| to(client, &said));
                again.unwrap_or_else(|| Event::Command(client, Actor::Person, self.verdict()))
            }
            0..=8 => self.order_spawn(client),
            9..=23 if self.works && !self.rng.one_in(4) => {
                Event::Command(client, Actor::Person, Command::Task(self.task_order()))
            }
            9..=23 => Event::Command(client, Actor::Person, self.order()),
            24..=29 => Event::Command(client, Actor::Person, self.verdict()),
            31..=41 => Event::Command(client, Actor::Person, Command::Task(self.task_order())),
            30 if self.rng.one_in(3) => Event::Command(
                client,
                Actor::Person,
                Command::Stop {
                    force: self.rng.one_in(4),
                },
            ),
            _ => return,
        };
        self.note(|| format!("client {}: {event:?}", client.connection));
        self.said.push(event.clone());
        if let Some(daemon) = &mut self.daemon {
            daemon.commands.push_back(event);
        }
    }

    /// Returns a name: mostly of a running member, or of one that does not run, as wanted.
    pub(super) fn some_name(&mut self, runs: bool) -> Name {
        let names = ["lead"]
            .iter()
            .chain(&NAMES)
            .map(|name| Name::of_inbox(name).unwrap());
        let names: Vec<Name> = names.collect();
        let fitting: Vec<Name> = names
            .iter()
            .filter(|name| {
                let member = self.promises.fold.members.get(*name);
                member.is_some_and(|member| !member.record.phase.is_ended()) == runs
            })
            .cloned()
            .collect();
        let any = self.rng.pick(&names).unwrap();
        if self.rng.one_in(6) {
            any
        } else {
            self.rng.pick(&fitting).unwrap_or(any)
        }
    }

    /// Returns a name to shut down: of a running member, or of one that is being prepared.
    fn some_leaver(&mut self) -> Name {
        let jobs = self.daemon.iter().flat_map(|daemon| &daemon.jobs);
        let prepared: Vec<Name> = jobs.filter_map(|job| job.makes().cloned()).collect();
        let running = self.some_name(true);
        if self.rng.one_in(2) {
            self.rng.pick(&prepared).unwrap_or(running)
        } else {
            running
        }
    }

    fn order(&mut self) -> Command {
        if self.far.is_there && self.rng.one_in(10) {
            let name = Name::new(HOSTED).unwrap();
            return Command::Lose { name };
        }
        match self.rng.below(15) {
            0..=5 => {
                let name = self.some_leaver();
                let force_after = self
                    .rng
                    .pick(&[None, None, None, Some(0.0), Some(5.0), Some(30.0)])
                    .flatten();
                let reason = "asked by a person".to_owned();
                let request_id = self.ids.request();
                let wait = self.rng.one_in(2);
                Command::Shutdown(ShutdownOrder {
                    request_id,
                    name,
                    reason,
                    decide_within: 30.0,
                    force_after,
                    wait,
                })
            }
            6..=9 => {
                let id = self.ids.request();
                let name = self.some_name(true);
                let wait = self.rng.one_in(2);
                Command::RequestPlan {
                    id,
                    name,
                    content: "what will you do?".to_owned(),
                    wait,
                }
            }
            10..=12 => Command::Interrupt {
                name: self.some_name(true),
                asked_at: Duration::ZERO,
            },
            13 => Command::Forget {
                name: self.some_name(false),
                discard: false,
            },
            _ => self.verdict_of_another(),
        }
    }

    /// Returns a verdict, mostly on a plan that waits for it.
    pub(super) fn verdict(&mut self) -> Command {
        let known: Vec<RequestId> = self.promises.fold.requests.keys().cloned().collect();
        let open = self.promises.fold.requests.values();
        let open = open.filter(|request| request.is_pending() && request.kind != Kind::Shutdown);
        let open: Vec<RequestId> = open.map(|request| request.request_id.clone()).collect();
        let from = if self.rng.one_in(4) { known } else { open };
        let request_id = self
            .rng
            .pick(&from)
            .unwrap_or(RequestId::from_bits(self.rng.below(256)));
        let approve = !self.rng.one_in(3);
        let feedback = "as you like".to_owned();
        let permissions = self.rng.one_in(4).then_some(Permissions::Ask);
        Command::Answer {
            request_id,
            approve,
            feedback,
            permissions,
        }
    }

    fn order_spawn(&mut self, client: ReplyTo) -> Event {
        let lead = self.promises.fold.members.get(&Name::lead());
        let leads = lead.is_some_and(|lead| !lead.record.phase.is_ended());
        // Without it there is less to see.
        let name = if !leads && self.rng.one_in(2) {
            Name::lead()
        } else {
            self.some_name(false)
        };
        let before = self.promises.fold.members.get(&name);
        let resume = before.is_some() && self.rng.one_in(2);
        let environment = environment(u32::try_from(client.connection).unwrap());
        let mut order = self.varied(SpawnOrder {
            resume,
            ..SpawnOrder::new(name, environment)
        });
        order.terms.prompt = (!resume || self.rng.one_in(2)).then(|| "begin".to_owned());
        order.terms.restart = self.rng.one_in(4).then_some(Restart::Never);
        let id = self.ids.request();
        let order = Box::new(order);
        Event::Command(client, Actor::Person, Command::Spawn { id, order })
    }

    /// Returns the order with a plan or without, answered by a person or by the lead agent, which
    /// itself has none.
    pub(super) fn varied(&mut self, mut order: SpawnOrder) -> SpawnOrder {
        order.asked_at = self.clocks.monotonic;
        if order.name == Name::lead() && !self.rng.one_in(8) {
            return order;
        }
        let approve_by = self.rng.one_in(2).then_some(ApproveBy::Lead);
        let checkout = self.rng.one_in(2).then_some(true);
        let auto = (self.works || self.rng.one_in(2)).then_some(true);
        let terms = TermsPatch {
            plan: self
                .rng
                .one_in(if self.works { 8 } else { 2 })
                .then_some(true),
            approve_by,
            auto,
            checkout,
            ..TermsPatch::default()
        };
        // What is on a host has no checkout, and claims no tasks.
        let host = self.host_of(&order.name);
        let terms = match host {
            Some(_) => TermsPatch {
                host,
                workspace: Some("~/work".to_owned()),
                auto: None,
                checkout: None,
                ..terms
            },
            None => terms,
        };
        SpawnOrder { terms, ..order }
    }

    /// Sends SIGTERM or Ctrl-C to the daemon.
    pub(super) fn signal_daemon(&mut self) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        daemon.commands.push_back(Event::Terminate);
        self.note(|| "the daemon is told to end".to_owned());
    }
}

/// Returns the same command from another client, such as one that has lost its daemon.
fn to(client: ReplyTo, said: &Event) -> Event {
    match said.clone() {
        Event::Command(_, by, command) => Event::Command(client, by, command),
        other => other,
    }
}
