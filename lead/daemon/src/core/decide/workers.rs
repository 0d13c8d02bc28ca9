//! What workers say over their own connections.

use teamd_shared::control::{ToWorker, WorkerState};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{MemberEvent, Record, RequestEvent, RequestRecord};
use teamd_shared::member::{Cgroup, Doing, Ending, Member, Phase};
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::process::Identity;
use teamd_shared::request::{self, Answerer, Payload, Request, Status};

use super::{Decision, DecisionView};
use crate::core::directive::directive;
use crate::core::event::{Action, Ended};
use crate::core::incarnation::Incarnation;

impl DecisionView<'_> {
    /// Decides when a process was started, or could not be.
    pub(super) fn started(
        &self,
        incarnation: &Incarnation,
        (process, cgroup): (&Result<Identity, String>, Option<&Cgroup>),
        ids: &mut dyn Ids,
    ) -> Decision {
        // An event that could not be journaled at once comes late.
        let Some(member) = self
            .present(incarnation)
            .filter(|member| member.phase == Phase::Spawning)
        else {
            return Decision::default();
        };
        match process {
            Ok(identity) => {
                let phase = Phase::Running;
                let process = Some(identity.clone());
                let cgroup = cgroup.cloned();
                let member = Member {
                    phase,
                    process,
                    cgroup,
                    ..self.updated(member)
                };
                Decision::default().member(MemberEvent::Spawned, member)
            }
            Err(why) => {
                // It read nothing: in a continued conversation, unread messages stay unread.
                let goes_on = member.conversation < member.incarnation;
                let inbox = member
                    .exit
                    .as_ref()
                    .map_or(member.begins_at, |exit| exit.inbox);
                let unread = match &member.exit {
                    Some(exit) if goes_on => exit.unread,
                    _ => 0,
                };
                let ended = Ended {
                    inbox,
                    unread,
                    ..Ended::default()
                };
                self.never_ran(incarnation, &ended, why, ids)
            }
        }
    }

    /// Welcomes a worker that has greeted: by now its process is decided, and journaled before the
    /// welcome. A welcome that waited in a socket could let the worker begin after its daemon had
    /// died and the next one had recorded its end.
    pub(super) fn greeted(&self, incarnation: &Incarnation) -> Decision {
        match self.present(incarnation) {
            Some(_) => Decision::default().act(Action::Welcome(incarnation.clone())),
            None => Decision::default(),
        }
    }

    /// Adopts an incarnation that the starting daemon found alive.
    pub(super) fn found(&self, incarnation: &Incarnation) -> Decision {
        let Some(member) = self.present(incarnation) else {
            return Decision::default();
        };
        // This daemon counts its silence again from zero, and notifies the lead again.
        let answering = Member {
            silent_since: None,
            ..self.updated(member)
        };
        let adopted = Decision::default().member(MemberEvent::Adopted, answering);
        // A signal is sent again: it is not known whether the earlier daemon sent it.
        match member.ending {
            None => adopted,
            // A hung worker reacts to no other signal.
            Some(Ending::Hung) => adopted.act(Action::Kill(incarnation.clone())),
            Some(_) => adopted.act(Action::Terminate(incarnation.clone())),
        }
    }

    pub(super) fn connected(&self, incarnation: &Incarnation, state: &WorkerState) -> Decision {
        self.directed(incarnation)
            .and(self.said(incarnation, state))
    }

    /// Sends a worker its directive.
    pub(super) fn directed(&self, incarnation: &Incarnation) -> Decision {
        let directive = directive(self.team, self.runtime, &incarnation.name);
        directive.map_or_else(Decision::default, |directive| {
            Decision::default().act(Action::Say(
                incarnation.clone(),
                ToWorker::Directive(directive),
            ))
        })
    }

    /// Expires a pending plan or permission that its author knows of and does not wait for.
    ///
    /// An author that waits for another one submits that next. Either it is recorded and replaces
    /// this one, or its id is taken, and the author tries further ids until it comes to this one (a
    /// restarted incarnation begins with the first id).
    pub(super) fn said(&self, incarnation: &Incarnation, state: &WorkerState) -> Decision {
        if self.present(incarnation).is_none() {
            return Decision::default();
        }
        let Some(member) = self.team.members.get(&incarnation.name) else {
            return Decision::default();
        };
        let Some(asked) = self.team.awaited_by(&incarnation.name) else {
            return Decision::default();
        };
        let knows = state.doing != Doing::Starting && state.applied_seq >= member.seq;
        if !knows || state.awaits.is_some() {
            return Decision::default();
        }
        let reason = format!("{} does not wait for it any more", incarnation.name);
        match asked.after(request::Trigger::Withdrawn, self.now.wall, &reason) {
            Ok(expired) => Decision::default().request(RequestEvent::Expired, expired, Vec::new()),
            Err(_) => Decision::default(),
        }
    }

    /// Decides on a line of the lead's inbox that an incarnation submits over its connection.
    pub(super) fn submitted(
        &self,
        incarnation: &Incarnation,
        request_id: &RequestId,
        line: &Result<Box<Message>, String>,
    ) -> Decision {
        let refuse = |why: String, taken| {
            let request_id = request_id.clone();
            Decision::default().act(Action::Say(
                incarnation.clone(),
                ToWorker::Refused {
                    request_id,
                    why,
                    taken,
                },
            ))
        };
        let Some(member) = self.present(incarnation) else {
            return Decision::default();
        };
        let message = match line {
            Ok(message) if message.from == incarnation.name.as_str() => message,
            Ok(message) => return refuse(format!("the line is from {:?}", message.from), false),
            Err(why) => return refuse(why.clone(), false),
        };
        match &message.body {
            Body::ShutdownResponse {
                request_id: id,
                approve,
                reason,
                answered_by,
            } if id == request_id => {
                let by = answered_by.unwrap_or(AnsweredBy::Model);
                self.shutdown_answered(incarnation, request_id, *approve, (reason, by))
                    .unwrap_or_else(|why| refuse(why, false))
            }
            Body::PlanApprovalRequest {
                request_id: id,
                plan,
                ..
            } if id == request_id => {
                let payload = Payload::Plan { plan: plan.clone() };
                self.asked(member, message, request_id, payload)
                    .unwrap_or_else(|why| refuse(why, true))
            }
            Body::PermissionRequest {
                request_id: id,
                tool,
                input,
                ..
            } if id == request_id => {
                let payload = Payload::Permission {
                    tool: tool.clone(),
                    input: input.clone(),
                };
                self.asked(member, message, request_id, payload)
                    .unwrap_or_else(|why| refuse(why, true))
            }
            _ => refuse("the line says something else".to_owned(), false),
        }
    }

    fn shutdown_answered(
        &self,
        incarnation: &Incarnation,
        request_id: &RequestId,
        approve: bool,
        (reason, by): (&str, AnsweredBy),
    ) -> Result<Decision, String> {
        let request = self
            .team
            .requests
            .get(request_id)
            .ok_or("no such request")?;
        if request.member() != incarnation.name.as_str()
            || request.incarnation != incarnation.number
        {
            return Err("the request is not for this incarnation".to_owned());
        }
        let event = request::Trigger::Answer {
            by: Answerer::Member,
            approve,
        };
        let answered = match request.after(event, self.now.wall, reason) {
            Ok(answered) => Request {
                answered_by: Some(by),
                ..answered
            },
            Err(request::AnswerError::WrongAnswerer) => {
                return Err("the request is the lead's to answer".to_owned());
            }
            // The first answer holds, and the worker has the directive that follows from it,
            // or does so when it connects.
            Err(_) => return Ok(Decision::default()),
        };
        let event = if approve {
            RequestEvent::Approved
        } else {
            RequestEvent::Rejected
        };
        let asked = self
            .team
            .awaited_by(&incarnation.name)
            .map(|asked| asked.request_id.clone());
        let expired = match asked {
            Some(shutdown) if approve => vec![shutdown],
            _ => Vec::new(),
        };
        let record = RequestRecord {
            expired,
            ..RequestRecord::of(event, answered)
        };
        let decision = Decision::default().record(Record::Request(Box::new(record)));
        Ok(if approve {
            decision
        } else {
            decision.and(self.shutdown_rejected(request, incarnation))
        })
    }

    fn asked(
        &self,
        member: &Member,
        message: &Message,
        request_id: &RequestId,
        payload: Payload,
    ) -> Result<Decision, String> {
        let incarnation = Incarnation::of(member);
        if let Some(known) = self.team.requests.get(request_id) {
            // The same line, said again after a broken connection; but a plan that expired with an
            // earlier incarnation must be submitted again.
            let same = known.kind.is_judged() && Some(known.message_id) == message.id;
            return if same && known.status != Status::Expired {
                Ok(recorded(&incarnation, request_id, known.status))
            } else {
                Err(format!("the id {request_id} is taken"))
            };
        }
        let Some(message_id) = message.id else {
            return Err("the line has no id".to_owned());
        };
        let request = self.pending(
            request_id.clone(),
            (&member.name, member.incarnation),
            payload,
            message_id,
        );
        let before = self
            .team
            .awaited_by(&member.name)
            .map(|asked| asked.request_id.clone());
        let expired = before.into_iter().collect();
        let record = RequestRecord {
            expired,
            ..RequestRecord::of(RequestEvent::Asked, request)
        };
        let asked = Decision::default().record(Record::Request(Box::new(record)));
        Ok(asked.and(recorded(&incarnation, request_id, Status::Pending)))
    }
}

fn recorded(incarnation: &Incarnation, request_id: &RequestId, status: Status) -> Decision {
    let request_id = request_id.clone();
    Decision::default().act(Action::Say(
        incarnation.clone(),
        ToWorker::Recorded { request_id, status },
    ))
}
