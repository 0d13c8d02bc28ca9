//! A simulated worker: it behaves as the specification says (sections 7, 8 and 12), and may be
//! killed, frozen or cut off at any time.

mod acts;

use teamd_shared::control::{Directive, FromWorker, ToWorker, Welcome, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::member::{Doing, Gate};
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::mutants::Mutant;
use super::super::promises::Question;
use super::machine::Up;
use super::world::World;
use crate::core::incarnation::Incarnation;

#[derive(Debug)]
pub(in super::super) struct Worker {
    pub(in super::super) pid: u32,
    pub(in super::super) incarnation: Incarnation,
    pub(super) environment: Environment,
    /// Whether it holds the liveness lock.
    pub(super) locked: bool,
    /// Whether it was welcomed.
    pub(in super::super) begun: bool,
    /// SIGSTOP; SIGCONT ends it.
    pub(in super::super) frozen: bool,
    /// It reacts to nothing but SIGKILL.
    pub(in super::super) hung: bool,
    /// SIGTERM has come.
    pub(in super::super) term: bool,
    stranger: bool,
    pub(in super::super) link: Option<u64>,
    pub(in super::super) directive: Option<Directive>,
    applied_seq: u64,
    working: bool,
    /// A call runs that an open gate let through.
    changing: bool,
    pub(in super::super) plan: Option<Waiting>,
    /// The shutdown that it has answered, and what the daemon made of that.
    answer: Option<(RequestId, Option<Status>)>,
    release: bool,
    /// The lines that are not recorded yet.
    submitted: Vec<(RequestId, u64)>,
    /// What it said last on this connection.
    pub(in super::super) said: Option<WorkerState>,
    said_leaving: bool,
    /// How often it has asked for something, and what has no answer yet.
    pub(super) asked: u32,
    pub(super) asking: Option<Question>,
}

/// A plan or a permission question without a verdict.
#[derive(Debug, Clone)]
pub(in super::super) struct Waiting {
    pub(in super::super) request_id: RequestId,
    message_id: Uuid,
    /// Whether it is a question: its gate stays as it is, and its next incarnation does not know of
    /// it.
    pub(in super::super) is_question: bool,
    heard: Heard,
}

#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Nothing,
    Submitted,
    Recorded(Status),
    Taken,
    Refused,
}

impl Worker {
    pub(super) fn new(
        pid: u32,
        incarnation: Incarnation,
        environment: Environment,
        link: u64,
    ) -> Self {
        Self {
            pid,
            incarnation,
            environment,
            locked: false,
            begun: false,
            frozen: false,
            hung: false,
            term: false,
            stranger: false,
            link: Some(link),
            directive: None,
            applied_seq: 0,
            working: false,
            changing: false,
            plan: None,
            answer: None,
            release: false,
            submitted: Vec::new(),
            said: None,
            said_leaving: false,
            asked: 0,
            asking: None,
        }
    }

    /// Returns the gate. With an unanswered plan it stays closed whatever the directive says.
    fn gate(&self, mutant: Option<Mutant>) -> Gate {
        let plan = self.plan.as_ref().is_some_and(|plan| !plan.is_question)
            && mutant != Some(Mutant::GateIgnoresItsPlan);
        if plan {
            Gate::Closed
        } else {
            self.directive
                .as_ref()
                .map_or(Gate::Closed, |directive| directive.gate)
        }
    }

    /// Tells whether something runs that an open gate let through.
    pub(super) fn changes(&self) -> bool {
        self.changing
    }

    fn report(&self) -> WorkerState {
        let doing = if self.working && self.plan.is_none() {
            Doing::Working
        } else {
            Doing::Idle
        };
        let awaits = self.plan.as_ref().map(|plan| plan.request_id.clone());
        WorkerState {
            applied_seq: self.applied_seq,
            doing,
            activity: String::new(),
            waiting: None,
            awaits,
            ..WorkerState::default()
        }
    }

    /// Applies the directive. A closing one is applied when nothing runs any more that an open gate
    /// let through.
    fn act(&mut self) {
        let Some(directive) = &self.directive else {
            return;
        };
        if directive.gate == Gate::Open || !self.changing {
            self.applied_seq = directive.seq;
        }
    }
}

impl World {
    pub(super) fn worker_step(&mut self, pid: u32) {
        let Some(mut worker) = self.processes.remove(&pid) else {
            return;
        };
        if worker.frozen || worker.hung || self.survives(&mut worker) {
            self.processes.insert(pid, worker);
        } else {
            self.process_ended(&worker);
        }
    }

    fn survives(&mut self, worker: &mut Worker) -> bool {
        if !worker.locked {
            return self.takes_its_lock(worker);
        }
        if !self.hears(worker) {
            return false;
        }
        if !worker.begun {
            return !worker.term;
        }
        if worker.stranger || worker.term {
            return self.leaves_by_signal(worker);
        }
        if worker.link.is_none() && self.can_connect(&worker.incarnation.name) {
            self.reconnects(worker);
        }
        if !self.goes_on(worker) {
            return false;
        }
        worker.act();
        self.says_its_state(worker);
        true
    }

    fn takes_its_lock(&mut self, worker: &mut Worker) -> bool {
        if self.lock_is_held(&worker.incarnation.name) {
            return false;
        }
        worker.locked = true;
        self.says(worker, Up::StartedWorker);
        if self.is(Mutant::BeginsUnwelcomed) {
            self.begins(worker);
        }
        true
    }

    fn begins(&mut self, worker: &mut Worker) {
        worker.begun = true;
        let checked = self.promises.begins(worker, self.processes.values());
        self.check(checked);
    }

    pub(super) fn says(&mut self, worker: &Worker, what: Up) {
        let Some(link) = worker.link.and_then(|number| self.links.get_mut(&number)) else {
            return;
        };
        if link.worker_open && link.daemon_open {
            link.up.push_back(what);
        }
    }

    /// Hears one frame. Returns false if its incarnation ends by that.
    fn hears(&mut self, worker: &mut Worker) -> bool {
        let Some(number) = worker.link else {
            return true;
        };
        let frame = self
            .links
            .get_mut(&number)
            .and_then(|link| link.down.pop_front());
        let Some(frame) = frame else {
            let open = self
                .links
                .get(&number)
                .is_some_and(|link| link.worker_open && link.daemon_open);
            if open {
                return true;
            }
            if let Some(link) = self.links.get_mut(&number) {
                link.worker_open = false;
            }
            worker.link = None;
            worker.said = None;
            worker.said_leaving = false;
            // What became of it is not known.
            worker.asking = None;
            return worker.begun;
        };
        self.note(|| {
            format!(
                "{} ({}) hears {frame:?}",
                worker.incarnation.name, worker.pid
            )
        });
        match frame {
            ToWorker::Welcome(welcome) => {
                self.is_welcome(worker, *welcome);
                self.says(worker, Up::Says(FromWorker::Pong { number: 0 }));
            }
            ToWorker::Directive(directive) => {
                if worker
                    .directive
                    .as_ref()
                    .is_none_or(|before| before.seq <= directive.seq)
                {
                    let pending = directive
                        .shutdown
                        .as_ref()
                        .map(|pending| &pending.request_id);
                    if let Some((id, outcome)) =
                        worker.answer.as_mut().filter(|(id, _)| Some(id) != pending)
                    {
                        worker.submitted.retain(|(submitted, _)| submitted != id);
                        let status = if directive.release {
                            Status::Approved
                        } else {
                            Status::Rejected
                        };
                        *outcome = Some(status);
                    }
                    worker.directive = Some(directive);
                    worker.act();
                }
            }
            ToWorker::Recorded { request_id, status } => {
                worker.submitted.retain(|(id, _)| *id != request_id);
                if let Some(plan) = worker
                    .plan
                    .as_mut()
                    .filter(|plan| plan.request_id == request_id)
                {
                    plan.heard = Heard::Recorded(status);
                }
            }
            ToWorker::Reply(reply) => self.hears_an_answer(worker, number, &reply),
            ToWorker::Refused {
                request_id, taken, ..
            } => {
                worker.submitted.retain(|(id, _)| *id != request_id);
                if worker
                    .answer
                    .as_ref()
                    .is_some_and(|(id, _)| *id == request_id)
                {
                    worker.answer = None;
                }
                if let Some(plan) = worker
                    .plan
                    .as_mut()
                    .filter(|plan| plan.request_id == request_id)
                {
                    plan.heard = if taken { Heard::Taken } else { Heard::Refused };
                }
            }
            ToWorker::Interrupt { .. } => {
                worker.working = false;
                worker.changing = false;
                self.plan_ends(worker);
            }
            ToWorker::Stranger { .. } => worker.stranger = true,
            ToWorker::Wake => {}
            ToWorker::Ping { number } => self.says(worker, Up::Says(FromWorker::Pong { number })),
            ToWorker::Compact { id } => {
                let outcome = Ok(());
                self.says(worker, Up::Says(FromWorker::Compacted { id, outcome }));
            }
        }
        true
    }

    fn is_welcome(&mut self, worker: &mut Worker, welcome: Welcome) {
        // A host daemon puts its own in.
        let is_there = self.host_of(&worker.incarnation.name).is_some();
        let right = is_there || welcome.environment == worker.environment;
        self.check(
            right
                .then_some(())
                .ok_or_else(|| "a worker is welcomed with another environment".to_owned()),
        );
        self.begins(worker);
        let transcript = self
            .disk
            .transcripts
            .entry(worker.incarnation.name.clone())
            .or_default();
        if transcript.conversation != welcome.conversation {
            transcript.conversation = welcome.conversation;
            transcript.plan = None;
        }
        worker.plan = transcript.plan.as_ref().map(|call| {
            let (request_id, message_id) = call.first.clone();
            Waiting {
                request_id,
                message_id,
                is_question: false,
                heard: Heard::Nothing,
            }
        });
        worker.working = worker.plan.is_some();
        worker.directive = Some(welcome.directive);
    }

    fn reconnects(&mut self, worker: &mut Worker) {
        let number = self.connect(worker.pid, &worker.incarnation);
        worker.link = Some(number);
        let state = worker.report();
        worker.said = Some(state.clone());
        self.says(worker, Up::Back(worker.environment.clone(), state));
        self.says(worker, Up::Says(FromWorker::Pong { number: 0 }));
        for (request_id, offset) in worker.submitted.clone() {
            self.says(
                worker,
                Up::Says(FromWorker::Submitted {
                    request_id,
                    offset,
                    len: 0,
                }),
            );
        }
    }

    fn says_its_state(&mut self, worker: &mut Worker) {
        let state = worker.report();
        if worker.link.is_some() && worker.said.as_ref() != Some(&state) {
            worker.said = Some(state.clone());
            self.says(worker, Up::Says(FromWorker::State(state)));
        }
    }

    /// Leaves because of SIGTERM: says so, and ends at the next safe point.
    fn leaves_by_signal(&mut self, worker: &mut Worker) -> bool {
        if worker.link.is_some() && !worker.said_leaving && !worker.stranger {
            worker.said_leaving = true;
            self.says(worker, Up::Says(FromWorker::Leaving));
            return true;
        }
        worker.changing = false;
        let stays = self.rng.one_in(2);
        if !stays {
            self.plan_ends(worker);
            if let Some(transcript) = self.disk.transcripts.get_mut(&worker.incarnation.name) {
                transcript.left_by_signal = Some(worker.incarnation.number);
            }
        }
        stays
    }

    /// Gives the plan its result in the transcript: the worker does not wait for it any more.
    fn plan_ends(&mut self, worker: &mut Worker) {
        worker.plan = None;
        if let Some(transcript) = self.disk.transcripts.get_mut(&worker.incarnation.name) {
            transcript.plan = None;
        }
    }
}
