//! What a simulated worker does next by itself: it works, changes something, submits plans, answers
//! and leaves.

use teamd_shared::control::FromWorker;
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::member::Gate;
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::super::mutants::Mutant;
use super::super::disk::PlanCall;
use super::super::machine::{Up, renamed};
use super::super::world::World;
use super::{Heard, Waiting, Worker};

impl World {
    /// Does what is to be done next. Returns false if its incarnation ends.
    pub(super) fn goes_on(&mut self, worker: &mut Worker) -> bool {
        self.believes_its_inbox(worker);
        self.may_want_something(worker);
        if self.rng.one_in(40) && !self.calm {
            self.submits_some_line(worker);
        }
        if let Some((_, outcome)) = worker.answer.clone() {
            match outcome {
                None if !self.calm && self.rng.one_in(6) => self.submits_again(worker),
                None => {}
                Some(status) => {
                    worker.answer = None;
                    worker.release |= status == Status::Approved;
                }
            }
            return true;
        }
        if worker.release
            || worker
                .directive
                .as_ref()
                .is_some_and(|directive| directive.release)
        {
            if std::mem::take(&mut worker.changing) {
                return true;
            }
            return self.leaves(worker);
        }
        let asked = worker
            .directive
            .as_ref()
            .and_then(|directive| directive.shutdown.clone())
            .map(|directive| directive.request_id);
        if let Some(request_id) = asked {
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
        self.promises.left.insert(worker.incarnation.clone());
        false
    }

    /// Appends the answer, and submits it. Returns false if its incarnation ends.
    fn answers(&mut self, worker: &mut Worker, request_id: &RequestId, approve: bool) -> bool {
        let reason = "as it is".to_owned();
        let answered_by = Some(AnsweredBy::Runtime);
        let body = Body::ShutdownResponse {
            request_id: request_id.clone(),
            approve,
            reason,
            answered_by,
        };
        let id = self.ids.message();
        worker.answer = Some((request_id.clone(), None));
        self.submits(worker, id, request_id, body);
        !(self.is(Mutant::LeavesUnrecorded) && approve) || self.leaves(worker)
    }

    fn submits(&mut self, worker: &mut Worker, id: Uuid, request_id: &RequestId, body: Body) {
        let message = Message::new(
            id,
            worker.incarnation.name.as_str(),
            "lead",
            self.clocks.wall,
            body,
        );
        let offset = self.disk.inboxes.get(&Name::lead()).map_or(0, Vec::len);
        let offset = u64::try_from(offset).unwrap();
        self.sends(&Name::lead(), message);
        worker.submitted.push((request_id.clone(), offset));
        self.submits_again(worker);
    }

    /// Submits its last line: for the first time, or again.
    fn submits_again(&mut self, worker: &Worker) {
        let Some((request_id, offset)) = worker.submitted.last().cloned() else {
            return;
        };
        self.says_submitted(worker, request_id, offset);
    }

    fn says_submitted(&mut self, worker: &Worker, request_id: RequestId, offset: u64) {
        let line = self
            .disk
            .inboxes
            .get(&Name::lead())
            .and_then(|inbox| inbox.get(usize::try_from(offset).unwrap()));
        if let Some(line) = line {
            self.promises.submitted(&worker.incarnation, line);
        }
        self.note(|| {
            format!(
                "{} ({}) submits line {offset} as {request_id}",
                worker.incarnation.name, worker.pid
            )
        });
        self.says(
            worker,
            Up::Says(FromWorker::Submitted {
                request_id,
                offset,
                len: 0,
            }),
        );
    }

    /// Submits a line that is another's, too old, or of another kind.
    fn submits_some_line(&mut self, worker: &Worker) {
        let lines = self.disk.inboxes.get(&Name::lead()).map_or(0, Vec::len);
        if lines == 0 {
            return;
        }
        let at = self.rng.below(u32::try_from(lines).unwrap());
        let line = self
            .disk
            .inboxes
            .get(&Name::lead())
            .and_then(|inbox| inbox.get(at as usize));
        let of_line = match line.map(|line| &line.body) {
            Some(
                Body::ShutdownResponse { request_id, .. }
                | Body::PlanApprovalRequest { request_id, .. }
                | Body::PermissionRequest { request_id, .. },
            ) => request_id.clone(),
            _ => RequestId::from_bits(self.rng.below(256)),
        };
        self.says_submitted(worker, of_line, u64::from(at));
    }

    fn awaits_its_verdict(&mut self, worker: &mut Worker) {
        let Some(plan) = worker.plan.clone() else {
            return;
        };
        let verdict = worker
            .directive
            .as_ref()
            .and_then(|directive| directive.verdict.clone());
        let verdict = verdict
            .filter(|verdict| verdict.request_id == plan.request_id)
            .map(|verdict| verdict.status);
        let known = match plan.heard {
            Heard::Recorded(status) if status != Status::Pending => Some(status),
            Heard::Refused => Some(Status::Expired),
            _ => None,
        };
        if let Some(status) = verdict.or(known) {
            let checked =
                self.promises
                    .resolved(&plan.request_id, status, plan.heard == Heard::Refused);
            self.check(checked);
            return self.plan_ends(worker);
        }
        match plan.heard {
            // Nothing that an open gate let through may run when the plan is recorded.
            Heard::Nothing if worker.changing && !plan.is_question => worker.changing = false,
            Heard::Nothing => {
                let transcript = self
                    .disk
                    .transcripts
                    .entry(worker.incarnation.name.clone())
                    .or_default();
                if !plan.is_question
                    && let Some(call) = transcript.plan.as_mut()
                {
                    call.submitted
                        .insert((plan.request_id.clone(), plan.message_id));
                }
                worker.plan = Some(Waiting {
                    heard: Heard::Submitted,
                    ..plan.clone()
                });
                let request_id = plan.request_id.clone();
                let text = format!("plan {}", plan.message_id.as_u128());
                let body = if plan.is_question {
                    Body::PermissionRequest {
                        request_id,
                        tool: text,
                        input: serde_json::Value::Null,
                        incarnation: None,
                    }
                } else {
                    Body::PlanApprovalRequest {
                        request_id,
                        plan: text,
                        incarnation: None,
                    }
                };
                self.submits(worker, plan.message_id, &plan.request_id, body);
            }
            Heard::Taken => {
                let (request_id, message_id) = renamed(&plan.request_id, plan.message_id);
                worker.plan = Some(Waiting {
                    request_id,
                    message_id,
                    heard: Heard::Nothing,
                    ..plan
                });
            }
            Heard::Submitted if !self.calm && self.rng.one_in(6) => self.submits_again(worker),
            Heard::Submitted | Heard::Recorded(_) | Heard::Refused => {}
        }
    }

    fn works(&mut self, worker: &mut Worker) {
        if self.calm {
            worker.working = false;
            worker.changing = false;
            return;
        }
        let open = worker.gate(self.mutant) == Gate::Open;
        match self.rng.below(12) {
            0 => {
                worker.working = false;
                worker.changing = false;
            }
            1..=4 => worker.working = true,
            5 | 6 if worker.working && open => self.changes_something(worker),
            7 => worker.changing = false,
            8 | 9 if worker.working && (!open || self.rng.one_in(3)) => {
                let first = (self.ids.request(), self.ids.message());
                let request_id = first.0.clone();
                let message_id = first.1;
                let is_question = self.rng.one_in(3);
                worker.plan = Some(Waiting {
                    request_id,
                    message_id,
                    is_question,
                    heard: Heard::Nothing,
                });
                let transcript = self
                    .disk
                    .transcripts
                    .entry(worker.incarnation.name.clone())
                    .or_default();
                transcript.plan = (!is_question).then(|| PlanCall {
                    first,
                    submitted: Default::default(),
                });
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
        self.note(|| {
            format!(
                "{} ({}) changes something",
                worker.incarnation.name, worker.pid
            )
        });
        let checked = self.promises.changes(worker);
        self.check(checked);
    }

    /// What a worker must not do: take an inbox line for the daemon's directive.
    fn believes_its_inbox(&mut self, worker: &mut Worker) {
        if !self.is(Mutant::InboxOpensTheGate) {
            return;
        }
        let inbox = self
            .disk
            .inboxes
            .get(&worker.incarnation.name)
            .and_then(|inbox| inbox.last());
        if inbox.is_some_and(|line| {
            matches!(line.body, Body::PlanApprovalResponse { approve: true, .. })
        }) && let Some(directive) = &mut worker.directive
        {
            directive.gate = Gate::Open;
            self.plan_ends(worker);
        }
    }
}
