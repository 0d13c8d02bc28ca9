//! Every request ends exactly once, by a party that may end it.

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, MemberEvent, Record, RequestEvent};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};

use super::{Checked, Facts, Promises, check};
use crate::core::incarnation::Incarnation;

impl Promises {
    /// Takes in that a worker submits a line. An answer is its own only if it wrote the line.
    pub(in super::super) fn submitted(&mut self, incarnation: &Incarnation, line: &Message) {
        if let Body::ShutdownResponse {
            request_id,
            approve,
            ..
        } = &line.body
            && line.from == incarnation.name.as_str()
        {
            self.answers
                .insert((incarnation.clone(), request_id.clone(), *approve));
        }
    }

    /// Checks what a worker learns of its plan.
    pub(in super::super) fn resolved(
        &self,
        id: &RequestId,
        status: Status,
        refused: bool,
    ) -> Checked {
        let stands = self.fold.requests.get(id).map(|request| request.status);
        check(refused || stands == Some(status), || {
            format!("the author of {id} hears {status:?}: it is {stands:?}")
        })
    }

    pub(super) fn requests_changed(&mut self, line: &Line, facts: &Facts) -> Checked {
        for (id, request) in &self.fold.requests {
            let before = self.requests.get(id);
            if before == Some(request) {
                continue;
            }
            match before {
                None => check(request.is_pending(), || format!("{id} was never pending"))?,
                Some(before) => self.changed(before, request, line, facts)?,
            }
        }
        for (id, request) in &self.fold.requests {
            if self.requests.get(id) != Some(request) {
                self.requests.insert(id.clone(), request.clone());
            }
        }
        Ok(())
    }

    fn changed(&self, before: &Request, request: &Request, line: &Line, facts: &Facts) -> Checked {
        let id = &request.request_id;
        let same = (
            before.kind,
            before.member(),
            before.incarnation,
            before.message_id,
            before.created_at,
        ) == (
            request.kind,
            request.member(),
            request.incarnation,
            request.message_id,
            request.created_at,
        );
        check(same, || format!("{id} becomes another request"))?;
        if before.status == request.status {
            // With more force.
            return check(request.kind == Kind::Shutdown, || {
                format!("{id} changes without an event")
            });
        }
        check(before.is_pending(), || {
            format!(
                "{id} was {:?} and becomes {:?}",
                before.status, request.status
            )
        })?;
        let approve = request.status == Status::Approved;
        match (request.kind, request.status) {
            (_, Status::Pending) => Err(format!("{id} is pending again")),
            (Kind::Shutdown, Status::Approved | Status::Rejected) => {
                let name = Name::of_inbox(request.member()).map_err(|e| e.to_string())?;
                let incarnation = Incarnation {
                    name,
                    number: request.incarnation,
                };
                check(
                    self.answers.contains(&(incarnation, id.clone(), approve)),
                    || format!("{id} is not answered by the incarnation that was asked"),
                )
            }
            // It was not answered in time.
            (Kind::Permission, Status::Rejected) if is_overdue(request) => Ok(()),
            (
                Kind::PlanApproval | Kind::Review | Kind::Permission | Kind::Memory,
                Status::Approved | Status::Rejected,
            ) => {
                let verdict = (id.clone(), approve);
                let by_lead = self.verdicts_of_the_lead.contains(&verdict)
                    && self.is_left_to_the_lead(before);
                check(by_lead || self.verdicts.contains(&verdict), || {
                    format!("{id} is answered by a party that may not")
                })
            }
            (kind, Status::Expired) => self.expired(kind, request, line, facts),
        }
    }

    fn expired(&self, kind: Kind, request: &Request, line: &Line, facts: &Facts) -> Checked {
        let id = &request.request_id;
        let why = match (&line.record, kind) {
            (Record::Member(record), Kind::Shutdown | Kind::Permission) => {
                record.event == MemberEvent::Exited
            }
            // A restart goes on with the same conversation.
            (Record::Member(record), Kind::PlanApproval) => {
                record.event == MemberEvent::Exited && record.ended_incarnation.is_none()
            }
            // With its submission, and never because its author ends.
            (Record::Task(record), Kind::Review) => record.expired.contains(id),
            (Record::Request(record), Kind::PlanApproval | Kind::Permission) => {
                match record.event {
                    RequestEvent::Asked | RequestEvent::Joined | RequestEvent::Approved => {
                        record.request.request_id != *id
                    }
                    RequestEvent::Rejected => false,
                    RequestEvent::Expired => {
                        check(
                            !facts.waits_for.contains(&(id.clone(), request.message_id)),
                            || format!("{id} expires as withdrawn, and its author waits for it"),
                        )?;
                        true
                    }
                }
            }
            _ => false,
        };
        check(why, || {
            format!("{id} expires for no reason at line {}", line.seq)
        })
    }

    /// Checks that at most one request of each kind is pending for a member, and none for one that
    /// has ended.
    pub(super) fn pending_requests_are_of_running_members(&self) -> Checked {
        let mut seen = Vec::new();
        for request in self
            .fold
            .requests
            .values()
            .filter(|request| request.is_pending())
        {
            if let Payload::Review(review) = &request.payload {
                let waits = self
                    .fold
                    .tasks
                    .get(&review.task)
                    .and_then(|task| task.review_id());
                check(waits == Some(&request.request_id), || {
                    format!(
                        "task {} does not wait for its review {}",
                        review.task, request.request_id
                    )
                })?;
                continue;
            }
            let id = &request.request_id;
            let name = Name::of_inbox(request.member()).map_err(|e| e.to_string())?;
            let member = self.fold.members.get(&name).map(|state| &state.record);
            let Some(member) = member.filter(|member| !member.phase.is_ended()) else {
                return Err(format!("{id} is pending, and {name} has ended"));
            };
            check(!seen.contains(&(name.clone(), request.kind)), || {
                format!("two requests of one kind are pending for {name}")
            })?;
            let spans = match request.kind {
                Kind::Shutdown | Kind::Permission => request.incarnation == member.incarnation,
                Kind::PlanApproval | Kind::Review => {
                    (member.conversation..=member.incarnation).contains(&request.incarnation)
                }
                Kind::Memory => true,
            };
            check(spans, || {
                format!("{id} is pending of another incarnation of {name}")
            })?;
            let indexed = self
                .fold
                .pending(&name, request.kind)
                .map(|request| &request.request_id);
            check(indexed == Some(id), || {
                format!("{id} is pending, and not found as such")
            })?;
            if request.kind.is_judged() {
                let awaited = self
                    .fold
                    .awaited_by(&name)
                    .map(|request| &request.request_id);
                check(awaited == Some(id), || {
                    format!("{name} waits for two verdicts")
                })?;
            }
            seen.push((name, request.kind));
        }
        Ok(())
    }
}

fn is_overdue(request: &Request) -> bool {
    request
        .reason
        .as_deref()
        .is_some_and(|reason| reason.starts_with("no answer within"))
}
