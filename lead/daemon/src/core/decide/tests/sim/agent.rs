//! The lead agent: a worker like the others that also asks for what a person may ask for, over its
//! own connection. Others ask, too, and are not heard.

use teamd_shared::control::{
    Command, Done, FromWorker, Refusal, Reply, ShutdownOrder, SpawnOrder, TaggedCommand as Asks,
    ToWorker,
};
use teamd_shared::id::Ids;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Request;

use super::super::mutants::Mutant;
use super::super::promises::{Expected, check};
use super::daemon::{Daemon, knows_its_journal};
use super::machine::Up;
use super::worker::Worker;
use super::world::World;
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::{Event, Until};
use crate::core::incarnation::Incarnation;
use crate::core::job::SpawnFacts;

/// What the worker does.
impl World {
    /// Asks for something now and then, one thing after the other, at whatever else it is.
    pub(super) fn may_want_something(&mut self, worker: &mut Worker) {
        let works = self
            .promises
            .fold
            .held_by(&worker.incarnation.name)
            .is_some();
        let seldom = if works || worker.incarnation.name == Name::lead() {
            2
        } else {
            8
        };
        if self.calm || worker.asking.is_some() || !self.rng.one_in(seldom) {
            return;
        }
        let Some(link) = worker.link else { return };
        worker.asked += 1;
        let question = (link, worker.asked);
        let is_lead = worker.incarnation.name == Name::lead();
        let command = if self.rng.one_in(8) != is_lead {
            Command::Task(self.task_wish(&worker.incarnation.name))
        } else {
            self.wish(worker)
        };
        self.note(|| {
            format!(
                "{} ({}) asks {question:?}: {command:?}",
                worker.incarnation.name, worker.pid
            )
        });
        worker.asking = Some(question);
        self.promises.asks(question, &worker.incarnation, &command);
        self.says(
            worker,
            Up::Says(FromWorker::Asks(Asks {
                tag: question.1,
                command,
            })),
        );
    }

    fn wish(&mut self, worker: &Worker) -> Command {
        match self.rng.below(16) {
            0..=2 => {
                let name = self.some_name(false);
                let mut order = self.varied(SpawnOrder::new(name, worker.environment.clone()));
                order.terms.prompt = Some("begin".to_owned());
                Command::Spawn {
                    id: self.ids.request(),
                    order: Box::new(order),
                }
            }
            3 | 4 => {
                let force_after = self.rng.one_in(6).then_some(0.0);
                let name = self.some_name(true);
                let reason = "asked by the lead agent".to_owned();
                Command::Shutdown(ShutdownOrder {
                    request_id: self.ids.request(),
                    name,
                    reason,
                    decide_within: 30.0,
                    force_after,
                    wait: false,
                })
            }
            5..=8 => self.verdict(),
            9 => {
                let id = self.ids.request();
                let name = self.some_name(true);
                Command::RequestPlan {
                    id,
                    name,
                    content: "what will you do?".to_owned(),
                    wait: false,
                }
            }
            10..=14 => self.verdict_of_another(),
            _ => Command::Stop { force: false },
        }
    }

    /// Waits until a plan is answered.
    pub(super) fn verdict_of_another(&mut self) -> Command {
        let open = self.promises.fold.requests.values();
        let open = open.filter(|request| request.is_pending() && request.kind.is_judged());
        let open: Vec<Request> = open.cloned().collect();
        let Some(plan) = self.rng.pick(&open) else {
            return self.verdict();
        };
        Command::AwaitVerdict {
            request_id: plan.request_id,
        }
    }

    /// Takes in an answer to what the worker has asked on this connection.
    pub(super) fn hears_an_answer(&mut self, worker: &mut Worker, link: u64, reply: &Reply) {
        let checked = self.promises.hears((link, reply.tag));
        self.check(checked);
        if worker.asking == Some((link, reply.tag)) {
            worker.asking = None;
        }
    }
}

/// Returns the incarnation whose present connection a question came over.
fn present(daemon: &Daemon, client: ReplyTo) -> Option<Incarnation> {
    let mut connections = daemon.connections.iter();
    connections
        .find(|(_, connection)| **connection == client.connection)
        .map(|(incarnation, _)| incarnation.clone())
}

/// What the daemon does, as its functions of the same names.
impl World {
    pub(super) fn agent_asks(
        &mut self,
        daemon: &Daemon,
        (incarnation, connection): (&Incarnation, u64),
        Asks { tag, command }: Asks,
    ) -> Event {
        let client = ReplyTo {
            connection,
            tag,
            agent: true,
        };
        let checked = self.promises.takes_up(
            (connection, tag),
            daemon.connections.get(incarnation).copied(),
        );
        self.check(checked);
        let by = Actor::Member(incarnation.name.clone());
        Event::Command(client, by, command)
    }

    /// Looks up what a spawn rests on.
    pub(super) fn spawn_facts(&self, order: &SpawnOrder) -> SpawnFacts {
        let name = &order.name;
        let begins = *name == Name::lead() && !order.resume;
        let lines = self.disk.inboxes.get(&Name::lead()).map_or(0, Vec::len);
        let end = Position {
            offset: u64::try_from(lines).unwrap(),
            tail: 0,
        };
        SpawnFacts {
            held: (self.host_of(name).is_none() && self.lock_is_held(name))
                .then(|| "something".to_owned()),
            lead_inbox: Ok(begins.then_some(end)),
            cannot_commit: None,
        }
    }

    /// Answers a person, or the lead agent if the connection that it asked over is still its
    /// worker's.
    pub(super) fn reply(
        &mut self,
        daemon: &Daemon,
        client: ReplyTo,
        result: Result<Done, Refusal>,
    ) {
        if self.is(Mutant::WhatIsNotWrittenIsNotAnswered)
            && result
                .as_ref()
                .is_err_and(|refusal| refusal.message.starts_with("cannot write the journal"))
        {
            return;
        }
        if let (Ok(Done::Withdrawn), Some(Expected::Wait(name, _))) =
            (&result, self.promises.people.get(&client))
        {
            let name = name.clone();
            self.promises.called_off.insert(name, self.clocks.monotonic);
        }
        if knows_its_journal(daemon) {
            let checked =
                self.promises
                    .is_shown(daemon, &result, &self.disk.roster, self.since(daemon));
            self.check(checked);
        }
        if !client.agent {
            let checked = self.promises.is_answered(client);
            return self.check(checked);
        }
        let question = (client.connection, client.tag);
        let mut incarnation = present(daemon, client);
        if self.is(Mutant::AnswersFollowTheIncarnation) {
            incarnation = self.promises.asker(question);
        }
        if self.is(Mutant::AnswersAreLost) {
            return;
        }
        let Some(incarnation) = incarnation else {
            return;
        };
        let checked = self.promises.replies(question);
        self.check(checked);
        self.say(
            daemon,
            &incarnation,
            ToWorker::Reply(Reply {
                tag: client.tag,
                result,
            }),
        );
    }

    /// Looks whether each question has its answer, once everything has come to rest.
    pub(super) fn questions_rest(&self) -> Result<(), String> {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let fold = &self.promises.fold;
        let hangs = |name: &Name| {
            self.processes
                .values()
                .any(|it| it.incarnation.name == *name && it.hung)
        };
        for (question, incarnation, command) in self.promises.unanswered() {
            let link = self.links.get(&question.0);
            let is_open = link.is_some_and(|link| link.worker_open && link.daemon_open)
                && daemon.connections.get(incarnation) == Some(&question.0)
                && !hangs(&incarnation.name);
            let waits = match command {
                Command::AwaitVerdict { request_id } => fold
                    .requests
                    .get(request_id)
                    .is_some_and(Request::is_pending),
                Command::Spawn { order, .. } => hangs(&order.name),
                _ => false,
            };
            if is_open && !waits {
                return Err(format!(
                    "{} {} has no answer to {command:?}",
                    incarnation.name, incarnation.number
                ));
            }
        }
        for (client, expected) in &self.promises.people {
            let waits = match expected {
                Expected::Answer => false,
                Expected::Wait(_, Until::Judged(request_id)) => fold
                    .requests
                    .get(request_id)
                    .is_some_and(Request::is_pending),
                Expected::Wait(name, _) => hangs(name),
                Expected::Stop => self.processes.values().any(|it| it.hung),
            };
            check(waits, || format!("{client:?} has no answer: {expected:?}"))?;
        }
        Ok(())
    }
}
