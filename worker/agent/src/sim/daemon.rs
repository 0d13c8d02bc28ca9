//! The double of the daemon: it records what a worker names, gives its directive, dies, forgets
//! connections and comes back. What it has recorded it keeps.

use std::collections::{BTreeSet, VecDeque};

use teamd_shared::control::{
    Directive, FromWorker, PendingShutdown, PlanVerdict, ToWorker, Welcome, WorkerState,
};
use teamd_shared::id::RequestId;
use teamd_shared::inbox;
use teamd_shared::member::{Gate, Limits, Terms};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::{Mutant, World};

/// A plan, as it is recorded.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) request_id: RequestId,
    pub(super) message_id: Option<Uuid>,
    pub(super) text: String,
    pub(super) status: Status,
}

/// A shutdown, as it is recorded.
#[derive(Debug, Clone)]
pub(super) struct SimulatedShutdown {
    pub(super) directive: PendingShutdown,
    pub(super) incarnation: u32,
    pub(super) status: Status,
}

/// What is recorded, and what is on its way.
#[derive(Debug)]
pub(super) struct SimulatedDaemon {
    pub(super) alive: bool,
    pub(super) seq: u64,
    pub(super) gate: Gate,
    /// Since which directive the gate is closed.
    pub(super) closed_at: u64,
    pub(super) plans: Vec<Plan>,
    /// Ids that belong to others.
    taken: BTreeSet<RequestId>,
    pub(super) shutdowns: Vec<SimulatedShutdown>,
    /// What the worker doubts.
    pub(super) doubts: u64,
    /// The incarnation that has ended by its own doing, until it is resumed.
    pub(super) ended: bool,
    pub(super) up: VecDeque<FromWorker>,
    pub(super) down: VecDeque<ToWorker>,
    /// The last directive that was sent.
    pub(super) last: Option<Directive>,
}

impl SimulatedDaemon {
    pub(super) fn new() -> Self {
        Self {
            alive: true,
            seq: 1,
            gate: Gate::Open,
            closed_at: 0,
            plans: Vec::new(),
            taken: BTreeSet::new(),
            shutdowns: Vec::new(),
            doubts: 0,
            ended: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
            last: None,
        }
    }

    pub(super) fn pending_plan(&self) -> Option<&Plan> {
        self.plans
            .iter()
            .rev()
            .find(|plan| plan.status == Status::Pending)
    }

    pub(super) fn pending_shutdown(&self) -> Option<&SimulatedShutdown> {
        self.shutdowns
            .last()
            .filter(|shutdown| shutdown.status == Status::Pending)
    }

    /// Tells whether an incarnation may leave.
    pub(super) fn may_leave(&self, incarnation: u32) -> bool {
        self.shutdowns
            .iter()
            .any(|request| request.incarnation == incarnation && request.status == Status::Approved)
    }

    pub(super) fn directive(&self, incarnation: u32) -> Directive {
        let shutdown = self
            .pending_shutdown()
            .map(|shutdown| shutdown.directive.clone());
        let judged = self
            .plans
            .iter()
            .rev()
            .find(|plan| plan.status != Status::Pending);
        let verdict = judged.map(|plan| PlanVerdict {
            request_id: plan.request_id.clone(),
            status: plan.status,
            feedback: String::new(),
        });
        let plan = self.pending_plan().map(|plan| plan.request_id.clone());
        Directive {
            seq: self.seq,
            gate: self.gate,
            shutdown,
            release: self.may_leave(incarnation),
            plan,
            verdict,
            permissions: Default::default(),
            settles: self.doubts,
            checking: None,
        }
    }

    fn closes(&mut self) {
        self.gate = Gate::Closed;
        self.closed_at = self.seq;
    }

    /// What an end for good does to what is pending.
    pub(super) fn expires_all(&mut self) {
        self.seq += 1;
        let plans = self
            .plans
            .iter_mut()
            .filter(|plan| plan.status == Status::Pending);
        for plan in plans {
            plan.status = Status::Expired;
        }
        let shutdowns = self
            .shutdowns
            .iter_mut()
            .filter(|request| request.status == Status::Pending);
        for shutdown in shutdowns {
            shutdown.status = Status::Expired;
        }
    }

    /// A person judges the plan that waits.
    pub(super) fn judges(&mut self, approve: bool) {
        let Some(plan) = self
            .plans
            .iter_mut()
            .rev()
            .find(|plan| plan.status == Status::Pending)
        else {
            return;
        };
        plan.status = if approve {
            Status::Approved
        } else {
            Status::Rejected
        };
        self.seq += 1;
        if approve {
            self.gate = Gate::Open;
        }
    }

    /// A person wants a plan.
    pub(super) fn wants_a_plan(&mut self) {
        self.seq += 1;
        self.closes();
    }

    pub(super) fn asks(&mut self, incarnation: u32, decide_within: f64) {
        self.seq += 1;
        let request_id =
            RequestId::from_bits(0x5d00_0000 + u32::try_from(self.shutdowns.len()).unwrap());
        let directive = PendingShutdown {
            request_id,
            reason: "tidy up".to_owned(),
            decide_within,
        };
        self.shutdowns.push(SimulatedShutdown {
            directive,
            incarnation,
            status: Status::Pending,
        });
    }
}

impl World<'_> {
    pub(super) fn welcome(&self) -> Welcome {
        Welcome {
            terms: Terms {
                role: "coder".to_owned(),
                limits: Limits {
                    max_turns: Some(8),
                    ..Limits::default()
                },
                ..Terms::of_workspace("/".to_owned())
            },
            conversation: 1,
            begins_at: Position::START,
            prompt: Some("begin".to_owned()),
            watch: false,
            environment: Default::default(),
            territory: Vec::new(),
            directive: self.daemon.directive(self.incarnation),
            memory: None,
        }
    }

    pub(super) fn send_to_worker(&mut self, frame: ToWorker) {
        if self.daemon.alive
            && self
                .worker
                .as_ref()
                .is_some_and(|worker| worker.link.is_connected())
        {
            self.daemon.down.push_back(frame);
        }
    }

    pub(super) fn push_directive(&mut self) {
        let directive = self.daemon.directive(self.incarnation);
        self.daemon.last = Some(directive.clone());
        self.send_to_worker(ToWorker::Directive(directive));
    }

    /// Says something that is not new: the last directive again.
    pub(super) fn repeats_itself(&mut self) {
        let Some(mut directive) = self.daemon.last.clone() else {
            return;
        };
        if self.mutant == Some(Mutant::OldDirectivesCount) {
            directive.seq = self.daemon.seq.max(directive.seq) + 1;
        }
        self.note(|| format!("the daemon repeats directive {}", directive.seq));
        self.send_to_worker(ToWorker::Directive(directive));
    }

    /// The connection of the worker is there again.
    pub(super) fn is_greeted(&mut self, state: &WorkerState) {
        self.note(|| {
            format!(
                "the worker connects: {:?}, plan {:?}",
                state.activity, state.awaits
            )
        });
        self.daemon.up = VecDeque::new();
        self.daemon.down = VecDeque::new();
        if self.mutant != Some(Mutant::StatesAreNotHeard) {
            self.receive_state(state);
        }
        if self.mutant != Some(Mutant::NoDirectiveOnReconnect) {
            self.push_directive();
        }
    }

    fn receive_state(&mut self, state: &WorkerState) {
        self.daemon.doubts = state.doubts;
        if state.doubts > 0 && self.mutant != Some(Mutant::DoubtsAreNotHeard) {
            self.push_directive();
        }
        if self
            .daemon
            .pending_plan()
            .is_some_and(|plan| Some(&plan.request_id) != state.awaits.as_ref())
        {
            let plans = self
                .daemon
                .plans
                .iter_mut()
                .filter(|plan| plan.status == Status::Pending);
            for plan in plans {
                plan.status = Status::Expired;
            }
            self.daemon.seq += 1;
            self.note(|| "  its plan expires: it does not wait for it".to_owned());
            self.push_directive();
        }
    }

    /// The daemon takes in one thing.
    pub(super) fn daemon_receives(&mut self) {
        if !self.daemon.alive {
            return;
        }
        let Some(frame) = self.daemon.up.pop_front() else {
            return;
        };
        self.note(|| format!("the daemon receives {frame:?}"));
        match frame {
            FromWorker::State(_) if self.mutant == Some(Mutant::StatesAreNotHeard) => {}
            FromWorker::State(state) => self.receive_state(&state),
            FromWorker::Submitted {
                request_id,
                offset,
                len,
            } => self.submit_line(request_id, offset, len),
            FromWorker::Leaving
            | FromWorker::Asks(_)
            | FromWorker::Pong { .. }
            | FromWorker::McpServers(_)
            | FromWorker::RunsCommands(_)
            | FromWorker::OtherModels(..)
            | FromWorker::Compacted { .. }
            | FromWorker::Unable { .. } => {}
        }
    }

    fn submit_line(&mut self, request_id: RequestId, offset: u64, len: u64) {
        let unlucky = !self.calm && self.rng.one_in(40);
        let line = inbox::read_line_at(&self.place.dir, &Name::lead(), offset, len);
        let line = if !unlucky {
            line.ok().and_then(|line| Message::parse(&line).ok())
        } else {
            None
        };
        let refused = |why: &str, taken| ToWorker::Refused {
            request_id: request_id.clone(),
            why: why.to_owned(),
            taken,
        };
        let answer = match line.map(|line| (line.id, line.body)) {
            None => Some(refused("it cannot be read", false)),
            Some((_, Body::ShutdownResponse { approve, .. })) => {
                self.is_answered(&request_id, approve)
            }
            Some((id, Body::PlanApprovalRequest { plan, .. })) => {
                Some(self.is_submitted(&request_id, id, plan))
            }
            Some(_) => Some(refused("it is nothing", false)),
        };
        self.note(|| format!("  {answer:?}"));
        let is_recorded = !matches!(
            answer,
            Some(ToWorker::Refused { .. } | ToWorker::Directive(_))
        );
        if let Some(answer) = answer {
            self.send_to_worker(answer);
        }
        if is_recorded {
            self.push_directive();
        }
        if self.rng.one_in(8) {
            self.repeats_itself();
        }
    }

    /// Applies an answer. The directive says what is recorded.
    fn is_answered(&mut self, request_id: &RequestId, approve: bool) -> Option<ToWorker> {
        let incarnation = self.incarnation;
        let shutdown = self
            .daemon
            .shutdowns
            .iter_mut()
            .find(|shutdown| shutdown.directive.request_id == *request_id);
        let Some(shutdown) = shutdown.filter(|shutdown| shutdown.incarnation == incarnation) else {
            let why = "no shutdown of this incarnation".to_owned();
            return Some(ToWorker::Refused {
                request_id: request_id.clone(),
                why,
                taken: false,
            });
        };
        if self.mutant == Some(Mutant::RepliesUnrecorded) && approve {
            let directive = self.daemon.directive(incarnation);
            return Some(ToWorker::Directive(Directive {
                shutdown: None,
                release: true,
                ..directive
            }));
        }
        if shutdown.status == Status::Pending {
            shutdown.status = if approve {
                Status::Approved
            } else {
                Status::Rejected
            };
            self.daemon.seq += 1;
        }
        None
    }

    fn is_submitted(
        &mut self,
        request_id: &RequestId,
        message_id: Option<Uuid>,
        text: String,
    ) -> ToWorker {
        let taken = ToWorker::Refused {
            request_id: request_id.clone(),
            why: "taken".to_owned(),
            taken: true,
        };
        if let Some(known) = self
            .daemon
            .plans
            .iter()
            .find(|plan| plan.request_id == *request_id)
        {
            let same = known.message_id == message_id;
            let status = known.status;
            return if same {
                ToWorker::Recorded {
                    request_id: request_id.clone(),
                    status,
                }
            } else {
                taken
            };
        }
        if self.daemon.taken.contains(request_id) || !self.calm && self.rng.one_in(12) {
            self.daemon.taken.insert(request_id.clone());
            return taken;
        }
        let pending = self
            .daemon
            .plans
            .iter_mut()
            .filter(|plan| plan.status == Status::Pending);
        for plan in pending {
            plan.status = Status::Expired;
        }
        self.daemon.seq += 1;
        self.daemon.closes();
        let request_id = request_id.clone();
        let status = Status::Pending;
        self.daemon.plans.push(Plan {
            request_id: request_id.clone(),
            message_id,
            text,
            status,
        });
        ToWorker::Recorded { request_id, status }
    }
}
