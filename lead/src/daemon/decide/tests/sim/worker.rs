//! A simulated worker: it behaves as the specification says (sections 7, 8 and 12), and may be killed,
//! frozen or cut off at any time.

use teamd_shared::control::{FromWorker, ToWorker, Welcome, Word, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::member::{Doing, Gate};
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::mutants::Mutant;
use super::super::promises::Question;
use super::disk::PlanCall;
use super::machine::{Up, renamed};
use super::world::World;
use crate::daemon::event::Life;

/// A process.
#[derive(Debug)]
pub(in super::super) struct Worker {
    pub(in super::super) pid: u32,
    pub(in super::super) life: Life,
    pub(super) environment: Environment,
    /// Whether it holds the life lock.
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
    pub(in super::super) word: Option<Word>,
    acted_on: u64,
    working: bool,
    /// A call runs that an open gate let through.
    changing: bool,
    pub(in super::super) plan: Option<Waiting>,
    /// The shutdown that it has answered, and what the daemon made of that.
    answer: Option<(RequestId, Option<Status>)>,
    let_go: bool,
    settled: Option<RequestId>,
    /// The lines that are not recorded yet.
    named: Vec<(RequestId, u64)>,
    /// What it said last on this connection.
    pub(in super::super) said: Option<WorkerState>,
    said_leaving: bool,
    /// How often it has asked for something, and what has no answer yet.
    pub(super) asked: u32,
    pub(super) asking: Option<Question>,
}

/// A plan without a verdict.
#[derive(Debug, Clone)]
pub(in super::super) struct Waiting {
    pub(in super::super) request_id: RequestId,
    message_id: Uuid,
    heard: Heard,
}

#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Nothing,
    Named,
    Recorded(Status),
    Taken,
    Refused,
}

impl Worker {
    pub(super) fn new(pid: u32, life: Life, environment: Environment, link: u64) -> Self {
        Self {
            pid,
            life,
            environment,
            locked: false,
            begun: false,
            frozen: false,
            hung: false,
            term: false,
            stranger: false,
            link: Some(link),
            word: None,
            acted_on: 0,
            working: false,
            changing: false,
            plan: None,
            answer: None,
            let_go: false,
            settled: None,
            named: Vec::new(),
            said: None,
            said_leaving: false,
            asked: 0,
            asking: None,
        }
    }

    /// A gate with an unanswered plan stays closed whatever the word says.
    fn gate(&self, mutant: Option<Mutant>) -> Gate {
        let plan = self.plan.is_some() && mutant != Some(Mutant::GateIgnoresItsPlan);
        if plan { Gate::Closed } else { self.word.as_ref().map_or(Gate::Closed, |word| word.gate) }
    }

    fn report(&self) -> WorkerState {
        let doing = if self.working && self.plan.is_none() { Doing::Working } else { Doing::Idle };
        let plan = self.plan.as_ref().map(|plan| plan.request_id.clone());
        WorkerState {
            acted_on: self.acted_on,
            doing,
            activity: String::new(),
            waiting: None,
            plan,
            ..WorkerState::default()
        }
    }

    /// A closing word is acted on when nothing runs any more that an open gate let through.
    fn act(&mut self) {
        let Some(word) = &self.word else { return };
        if word.gate == Gate::Open || !self.changing {
            self.acted_on = word.seq;
        }
    }
}

impl World {
    /// A worker does something.
    pub(super) fn worker_step(&mut self, pid: u32) {
        let Some(mut worker) = self.processes.remove(&pid) else { return };
        if worker.frozen || worker.hung || self.lives_on(&mut worker) {
            self.processes.insert(pid, worker);
        } else {
            self.bury(&worker);
        }
    }

    fn lives_on(&mut self, worker: &mut Worker) -> bool {
        if !worker.locked {
            return self.is_born(worker);
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
        if worker.link.is_none() && self.daemon.is_some() {
            self.reconnects(worker);
        }
        if !self.goes_on(worker) {
            return false;
        }
        worker.act();
        self.says_its_state(worker);
        true
    }

    fn is_born(&mut self, worker: &mut Worker) -> bool {
        if self.lock_is_held(&worker.life.name) {
            return false;
        }
        worker.locked = true;
        self.says(worker, Up::Born);
        if self.is(Mutant::BeginsUnwelcomed) {
            self.begins(worker);
        }
        true
    }

    fn begins(&mut self, worker: &mut Worker) {
        worker.begun = true;
        let kept = self.promises.begins(worker, self.processes.values());
        self.promise(kept);
    }

    pub(super) fn says(&mut self, worker: &Worker, what: Up) {
        let Some(link) = worker.link.and_then(|number| self.links.get_mut(&number)) else { return };
        if link.worker_open && link.daemon_open {
            link.up.push_back(what);
        }
    }

    /// Hears one thing. False if its life ends by that.
    fn hears(&mut self, worker: &mut Worker) -> bool {
        let Some(number) = worker.link else { return true };
        let frame = self.links.get_mut(&number).and_then(|link| link.down.pop_front());
        let Some(frame) = frame else {
            let open = self.links.get(&number).is_some_and(|link| link.worker_open && link.daemon_open);
            if open {
                return true;
            }
            self.links.get_mut(&number).into_iter().for_each(|link| link.worker_open = false);
            (worker.link, worker.said, worker.said_leaving) = (None, None, false);
            // What became of it is not known.
            worker.asking = None;
            return worker.begun;
        };
        self.note(|| format!("{} ({}) hears {frame:?}", worker.life.name, worker.pid));
        match frame {
            ToWorker::Welcome(welcome) => {
                self.is_welcome(worker, *welcome);
                self.says(worker, Up::Says(FromWorker::Pong { number: 0 }));
            }
            ToWorker::Word(word) => {
                if worker.word.as_ref().is_none_or(|before| before.seq <= word.seq) {
                    worker.word = Some(word);
                    worker.act();
                }
            }
            ToWorker::Recorded { request_id, status } => {
                worker.named.retain(|(id, _)| *id != request_id);
                match (&mut worker.answer, &mut worker.plan) {
                    (Some((id, outcome)), _) if *id == request_id => *outcome = Some(status),
                    (_, Some(plan)) if plan.request_id == request_id => plan.heard = Heard::Recorded(status),
                    _ => {}
                }
            }
            ToWorker::Reply(reply) => self.hears_an_answer(worker, number, &reply),
            ToWorker::Refused { request_id, taken, .. } => {
                worker.named.retain(|(id, _)| *id != request_id);
                if worker.answer.as_ref().is_some_and(|(id, _)| *id == request_id) {
                    worker.answer = None;
                }
                if let Some(plan) = worker.plan.as_mut().filter(|plan| plan.request_id == request_id) {
                    plan.heard = if taken { Heard::Taken } else { Heard::Refused };
                }
            }
            ToWorker::Interrupt { .. } => {
                (worker.working, worker.changing) = (false, false);
                self.plan_ends(worker);
            }
            ToWorker::Stranger { .. } => worker.stranger = true,
            ToWorker::Ring => {}
            ToWorker::Ping { number } => self.says(worker, Up::Says(FromWorker::Pong { number })),
        }
        true
    }

    fn is_welcome(&mut self, worker: &mut Worker, welcome: Welcome) {
        let right = welcome.environment == worker.environment;
        self.promise(
            right.then_some(()).ok_or_else(|| "a worker is welcomed with another environment".to_owned()),
        );
        self.begins(worker);
        let transcript = self.disk.transcripts.entry(worker.life.name.clone()).or_default();
        if transcript.conversation != welcome.conversation {
            (transcript.conversation, transcript.plan) = (welcome.conversation, None);
        }
        worker.plan = transcript.plan.as_ref().map(|call| {
            let (request_id, message_id) = call.first.clone();
            Waiting { request_id, message_id, heard: Heard::Nothing }
        });
        worker.working = worker.plan.is_some();
        worker.word = Some(welcome.word);
    }

    fn reconnects(&mut self, worker: &mut Worker) {
        let number = self.connect(worker.pid, &worker.life);
        worker.link = Some(number);
        let state = worker.report();
        worker.said = Some(state.clone());
        self.says(worker, Up::Back(worker.environment.clone(), state));
        self.says(worker, Up::Says(FromWorker::Pong { number: 0 }));
        for (request_id, offset) in worker.named.clone() {
            self.says(worker, Up::Says(FromWorker::Named { request_id, offset, len: 0 }));
        }
    }

    fn says_its_state(&mut self, worker: &mut Worker) {
        let state = worker.report();
        if worker.link.is_some() && worker.said.as_ref() != Some(&state) {
            worker.said = Some(state.clone());
            self.says(worker, Up::Says(FromWorker::State(state)));
        }
    }

    /// SIGTERM: it says so, and leaves at the next safe point.
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
            if let Some(transcript) = self.disk.transcripts.get_mut(&worker.life.name) {
                transcript.left_by_signal = Some(worker.life.incarnation);
            }
        }
        stays
    }

    /// The plan has a result in the transcript: nobody waits for it any more.
    fn plan_ends(&mut self, worker: &mut Worker) {
        worker.plan = None;
        if let Some(transcript) = self.disk.transcripts.get_mut(&worker.life.name) {
            transcript.plan = None;
        }
    }

    /// Does what is to be done next. False if its life ends.
    fn goes_on(&mut self, worker: &mut Worker) -> bool {
        self.believes_its_inbox(worker);
        self.may_want_something(worker);
        if self.rng.one_in(40) && !self.calm {
            self.names_some_line(worker);
        }
        if let Some((request_id, outcome)) = worker.answer.clone() {
            match outcome {
                None if !self.calm && self.rng.one_in(6) => self.names_again(worker),
                None => {}
                Some(status) => {
                    (worker.answer, worker.settled) = (None, Some(request_id));
                    worker.let_go |= status == Status::Approved;
                }
            }
            return true;
        }
        if worker.let_go || worker.word.as_ref().is_some_and(|word| word.let_go) {
            if std::mem::take(&mut worker.changing) {
                return true;
            }
            return self.leaves(worker);
        }
        let asked = worker.word.as_ref().and_then(|word| word.shutdown.clone()).map(|word| word.request_id);
        if let Some(request_id) = asked.filter(|id| Some(id) != worker.settled.as_ref()) {
            let idle = !worker.working || worker.plan.is_some() || self.calm;
            if idle || self.rng.one_in(6) {
                let approve = idle || self.rng.one_in(2);
                return self.answers(worker, &request_id, approve);
            }
        }
        if worker.plan.is_some() {
            self.awaits_its_verdict(worker)
        } else {
            self.works(worker)
        }
        true
    }

    /// Ends by its own doing, since the daemon has recorded that it may.
    fn leaves(&mut self, worker: &mut Worker) -> bool {
        self.plan_ends(worker);
        self.promises.left.insert(worker.life.clone());
        false
    }

    /// Appends the answer, and names it. False if its life ends.
    fn answers(&mut self, worker: &mut Worker, request_id: &RequestId, approve: bool) -> bool {
        let (reason, answered_by) = ("as it is".to_owned(), Some(AnsweredBy::Runtime));
        let body = Body::ShutdownResponse { request_id: request_id.clone(), approve, reason, answered_by };
        let id = self.ids.message();
        worker.answer = Some((request_id.clone(), None));
        self.names(worker, id, request_id, body);
        !(self.is(Mutant::LeavesUnrecorded) && approve) || self.leaves(worker)
    }

    fn names(&mut self, worker: &mut Worker, id: Uuid, request_id: &RequestId, body: Body) {
        let message = Message::new(id, worker.life.name.as_str(), "lead", self.clocks.wall, body);
        let offset = self.disk.inboxes.get(&Name::lead()).map_or(0, Vec::len);
        let offset = u64::try_from(offset).unwrap();
        self.sends(&Name::lead(), message);
        worker.named.push((request_id.clone(), offset));
        self.names_again(worker);
    }

    /// Names its last line: for the first time, or twice.
    fn names_again(&mut self, worker: &Worker) {
        let Some((request_id, offset)) = worker.named.last().cloned() else { return };
        self.says_a_name(worker, request_id, offset);
    }

    fn says_a_name(&mut self, worker: &Worker, request_id: RequestId, offset: u64) {
        let line = self
            .disk
            .inboxes
            .get(&Name::lead())
            .and_then(|inbox| inbox.get(usize::try_from(offset).unwrap()));
        if let Some(line) = line {
            self.promises.named(&worker.life, line);
        }
        self.note(|| format!("{} ({}) names line {offset} as {request_id}", worker.life.name, worker.pid));
        self.says(worker, Up::Says(FromWorker::Named { request_id, offset, len: 0 }));
    }

    /// Names a line that is another's, too old, or of another kind.
    fn names_some_line(&mut self, worker: &Worker) {
        let lines = self.disk.inboxes.get(&Name::lead()).map_or(0, Vec::len);
        if lines == 0 {
            return;
        }
        let at = self.rng.below(u32::try_from(lines).unwrap());
        let line = self.disk.inboxes.get(&Name::lead()).and_then(|inbox| inbox.get(at as usize));
        let of_line = match line.map(|line| &line.body) {
            Some(
                Body::ShutdownResponse { request_id, .. } | Body::PlanApprovalRequest { request_id, .. },
            ) => request_id.clone(),
            _ => RequestId::from_bits(self.rng.below(256)),
        };
        self.says_a_name(worker, of_line, u64::from(at));
    }

    fn awaits_its_verdict(&mut self, worker: &mut Worker) {
        let Some(plan) = worker.plan.clone() else { return };
        let verdict = worker.word.as_ref().and_then(|word| word.verdict.clone());
        let verdict =
            verdict.filter(|verdict| verdict.request_id == plan.request_id).map(|verdict| verdict.status);
        let known = match plan.heard {
            Heard::Recorded(status) if status != Status::Pending => Some(status),
            Heard::Refused => Some(Status::Expired),
            _ => None,
        };
        if let Some(status) = verdict.or(known) {
            let kept = self.promises.resolved(&plan.request_id, status, plan.heard == Heard::Refused);
            self.promise(kept);
            return self.plan_ends(worker);
        }
        match plan.heard {
            // Nothing that an open gate let through may run when the plan is recorded.
            Heard::Nothing if worker.changing => worker.changing = false,
            Heard::Nothing => {
                let transcript = self.disk.transcripts.entry(worker.life.name.clone()).or_default();
                if let Some(call) = &mut transcript.plan {
                    call.named.insert((plan.request_id.clone(), plan.message_id));
                }
                worker.plan = Some(Waiting { heard: Heard::Named, ..plan.clone() });
                let (request_id, text) =
                    (plan.request_id.clone(), format!("plan {}", plan.message_id.as_u128()));
                let body = Body::PlanApprovalRequest { request_id, plan: text, incarnation: None };
                self.names(worker, plan.message_id, &plan.request_id, body);
            }
            Heard::Taken => {
                let (request_id, message_id) = renamed(&plan.request_id, plan.message_id);
                worker.plan = Some(Waiting { request_id, message_id, heard: Heard::Nothing });
            }
            Heard::Named if !self.calm && self.rng.one_in(6) => self.names_again(worker),
            Heard::Named | Heard::Recorded(_) | Heard::Refused => {}
        }
    }

    fn works(&mut self, worker: &mut Worker) {
        if self.calm {
            (worker.working, worker.changing) = (false, false);
            return;
        }
        let open = worker.gate(self.mutant) == Gate::Open;
        match self.rng.below(12) {
            0 => (worker.working, worker.changing) = (false, false),
            1..=4 => worker.working = true,
            5 | 6 if worker.working && open => self.changes_something(worker),
            7 => worker.changing = false,
            8 | 9 if worker.working && (!open || self.rng.one_in(3)) => {
                let first = (self.ids.request(), self.ids.message());
                let waiting =
                    Waiting { request_id: first.0.clone(), message_id: first.1, heard: Heard::Nothing };
                worker.plan = Some(waiting);
                let transcript = self.disk.transcripts.entry(worker.life.name.clone()).or_default();
                transcript.plan = Some(PlanCall { first, named: Default::default() });
            }
            _ => {}
        }
        if worker.plan.is_some()
            && self.is(Mutant::GateIgnoresItsPlan)
            && worker.gate(self.mutant) == Gate::Open
        {
            self.changes_something(worker);
        }
    }

    fn changes_something(&mut self, worker: &mut Worker) {
        worker.changing = true;
        self.note(|| format!("{} ({}) changes something", worker.life.name, worker.pid));
        let kept = self.promises.changes(worker);
        self.promise(kept);
    }

    /// What a worker must not do: take an inbox line for the daemon's word.
    fn believes_its_inbox(&mut self, worker: &mut Worker) {
        if !self.is(Mutant::InboxOpensTheGate) {
            return;
        }
        let inbox = self.disk.inboxes.get(&worker.life.name).and_then(|inbox| inbox.last());
        let opens = |line: &Message| matches!(line.body, Body::PlanApprovalResponse { approve: true, .. });
        if inbox.is_some_and(opens)
            && let Some(word) = &mut worker.word
        {
            word.gate = Gate::Open;
            self.plan_ends(worker);
        }
    }
}
