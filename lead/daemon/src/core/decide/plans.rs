//! Plans, reviews and permission questions: the answer of a person or of the lead. And asking for a
//! plan.

use teamd_shared::amount::format_duration;
use teamd_shared::control::{Done, PlanApproval, Refusal, RefusalCode};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{MemberEvent, MemberRecord, Notice, Record, RequestEvent};
use teamd_shared::member::{Agent, ApproveBy, Gate, Member, Permissions};
use teamd_shared::message::LEAD;
use teamd_shared::name::Name;
use teamd_shared::request::{self, Answerer, Kind, Request};
use teamd_shared::terms::TOKEN_HOST;

use super::{Decision, DecisionView, conflict};
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::{Action, Until};
use crate::core::waiters::waits_for_host;

impl DecisionView<'_> {
    /// Has a command answered when a plan or review is not pending any more.
    pub(super) fn await_verdict(
        &self,
        client: ReplyTo,
        request_id: &RequestId,
    ) -> Result<Decision, Refusal> {
        let plan = self
            .team
            .requests
            .get(request_id)
            .filter(|it| it.kind.is_judged());
        let author = plan.and_then(|plan| Name::of_inbox(plan.member()).ok());
        let author = author.ok_or_else(|| no_such_request(request_id))?;
        Ok(Decision::default().act(Action::Wait(
            client,
            author,
            Until::Judged(request_id.clone()),
        )))
    }

    /// Approves a plan whose text is the one that was read.
    pub(super) fn approve_plan(
        &self,
        client: ReplyTo,
        by: &Actor,
        approval: &PlanApproval,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let PlanApproval {
            request_id,
            plan_sha256,
            feedback,
            permissions,
        } = approval;
        let request = self
            .team
            .requests
            .get(request_id)
            .ok_or_else(|| no_such_request(request_id))?;
        has_this_text(request, plan_sha256)?;
        let answer = (request_id, true, feedback.as_str(), *permissions);
        self.answer(client, by, answer, ids)
    }

    pub(super) fn answer(
        &self,
        client: ReplyTo,
        by: &Actor,
        (request_id, approve, feedback, permissions): (&RequestId, bool, &str, Option<Permissions>),
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let request = self
            .team
            .requests
            .get(request_id)
            .ok_or_else(|| no_such_request(request_id))?;
        if client.agent {
            self.agent_may_answer(request)?;
        }
        if approve {
            self.fits_into_memory(request)?;
        }
        if let Actor::PersonAnswers {
            has_code: false, ..
        } = by
        {
            self.needs_no_code(request)?;
        }
        let event = request::Trigger::Answer {
            by: Answerer::Lead,
            approve,
        };
        match request.after(event, self.now.wall, feedback) {
            Ok(answered) => {
                let answered = Request {
                    permissions: if approve { permissions } else { None },
                    answered_from: by.answers_from().map(str::to_owned),
                    ..answered
                };
                // The author of a review gets a notice about its task, and an agent gets its
                // answer from its worker. A memory is for those that begin later.
                let is_told =
                    !matches!(request.kind, Kind::Review | Kind::Permission | Kind::Memory);
                let to = if is_told {
                    Name::of_inbox(request.member()).ok()
                } else {
                    None
                };
                let tell = to
                    .map(|to| Notice {
                        to,
                        id: ids.message(),
                    })
                    .into_iter()
                    .collect();
                let event = if approve {
                    RequestEvent::Approved
                } else {
                    RequestEvent::Rejected
                };
                let done = Done::Answered { repeated: false };
                let follows = self.answered_review(&answered, ids);
                let decision = Decision::default()
                    .request(event, answered, tell)
                    .and(follows);
                Ok(self.fits(decision)?.act(Action::Reply(client, Ok(done))))
            }
            // The new feedback would reach no teammate, so the command must not look successful.
            Err(request::AnswerError::Repeated)
                if !feedback.is_empty() && !says(request, feedback) =>
            {
                let message = format!(
                    "{request_id} is {} already, with other words",
                    request.status.as_str()
                );
                let hint = format!("`teamctl send {} TEXT` tells more", request.member());
                Err(conflict(message, hint))
            }
            Err(request::AnswerError::Repeated) => {
                let done = Done::Answered { repeated: true };
                Ok(Decision::default().act(Action::Reply(client, Ok(done))))
            }
            Err(why) => Err(explain(request, why)),
        }
    }

    /// Refuses a permission that was not given in time.
    pub(super) fn refuse_permission(&self, name: &Name) -> Decision {
        let within = format_duration(self.rules.permission_timeout);
        let refused = self
            .team
            .pending(name, Kind::Permission)
            .and_then(|request| {
                let event = request::Trigger::Answer {
                    by: Answerer::Lead,
                    approve: false,
                };
                request
                    .after(event, self.now.wall, &format!("no answer within {within}"))
                    .ok()
            });
        refused.map_or_else(Decision::default, |refused| {
            Decision::default().request(RequestEvent::Rejected, refused, Vec::new())
        })
    }

    /// Refuses the lead agent, unless a person has left that plan or review to it. It never answers
    /// its own.
    fn agent_may_answer(&self, request: &Request) -> Result<(), Refusal> {
        let by = self.team.judge_of(request);
        let own = request.member() == LEAD;
        if !request.kind.is_judged() || !request.is_pending() || by == ApproveBy::Lead && !own {
            return Ok(());
        }
        let id = &request.request_id;
        let from = request.member();
        let what = request.kind.noun();
        let message = format!("the {what} {id} of {from} is a person's to answer");
        let hint = format!("a person answers with `teamctl approve {id}` or `teamctl reject {id}`");
        Err(Refusal::new(RefusalCode::Rejected, message).hint(hint))
    }

    /// Refuses an answer without its code where a person decides.
    fn needs_no_code(&self, request: &Request) -> Result<(), Refusal> {
        if !request.is_pending() || self.team.judge_of(request) == ApproveBy::Lead {
            return Ok(());
        }
        let id = &request.request_id;
        let what = request.kind.noun();
        let from = request.member();
        let message = format!("the {what} {id} of {from} is answered with its code");
        Err(Refusal::new(RefusalCode::Rejected, message).hint(format!(
            "`teamctl top` and the page show four digits: `teamctl approve {id} --code DIGITS`, or `reject`"
        )))
    }

    /// Closes the gate and asks for a plan, in one line.
    pub(super) fn request_plan(
        &self,
        client: ReplyTo,
        (id, name, content, wait): (&RequestId, &Name, &str, bool),
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        if let Some(state) = self.team.members.get(name)
            && let Some((_, seq)) = state
                .plan_request
                .as_ref()
                .filter(|(before, _)| before == id)
        {
            return Ok(Decision::default().act(self.gate_closed(
                client,
                &state.record,
                *seq,
                wait,
            )));
        }
        let member = self.running(name)?;
        if *name == Name::lead() {
            let hint = "tell it with `teamctl send lead TEXT`, or in `teamctl chat`";
            return Err(conflict(
                "the lead agent submits no plans: it has no lead that answers them",
                hint,
            ));
        }
        if let Some(agent) = &member.terms.program
            && !agent.login.may_plan()
        {
            return Err(no_closed_gate(name, agent));
        }
        let member = Member {
            gate: Gate::Closed,
            ..self.updated(member)
        };
        let done = self.gate_closed(client, &member, self.team.seq + 1, wait);
        let record = MemberRecord {
            command_id: Some(id.clone()),
            content: Some(content.to_owned()),
            tell: vec![Notice {
                to: name.clone(),
                id: ids.message(),
            }],
            ..MemberRecord::of(MemberEvent::GateClosed, member)
        };
        Ok(self
            .fits(Decision::default().record(Record::Member(Box::new(record))))?
            .act(done))
    }

    /// Answers a command that closes a gate: now, or when the worker has applied that line.
    fn gate_closed(&self, client: ReplyTo, member: &Member, seq: u64, wait: bool) -> Action {
        let incarnation = member.incarnation;
        if wait {
            let until = Until::GateClosed { incarnation, seq };
            return Action::Wait(client, member.name.clone(), until);
        }
        let waits = waits_for_host(self.runtime, member);
        Action::Reply(client, Ok(waits.unwrap_or(Done::Recorded { incarnation })))
    }
}

fn no_closed_gate(name: &Name, agent: &Agent) -> Refusal {
    conflict(
        format!(
            "the agent of {name} logs in with a token, so a closed gate reaches {TOKEN_HOST} (any account there)"
        ),
        format!(
            "if a plan is worth it all the same: `plan_with_token = true` in `[agents.{}]` of your own config.toml, \
             then `teamctl shutdown {name}` and `teamctl spawn {name} --resume`",
            agent.name
        ),
    )
}

/// Refuses the approval of a plan with another text than the one that was read.
fn has_this_text(request: &Request, sha256: &str) -> Result<(), Refusal> {
    let id = &request.request_id;
    let noun = request.kind.noun();
    let from = request.member();
    match request.plan_sha256() {
        Some(own) if own == sha256 => Ok(()),
        Some(_) => Err(conflict(
            format!("the plan {id} of {from} is another one: its SHA-256 is not {sha256}"),
            format!(
                "read it with `teamctl plans {id}`; `teamctl plans {id} --json` shows its plan_sha256"
            ),
        )),
        None => {
            let message = format!("{id} is a {noun} of {from}, and a hash names a plan");
            let hint = format!("`teamctl approve {id}` without `--plan-sha256` answers it");
            Err(Refusal::new(RefusalCode::Usage, message).hint(hint))
        }
    }
}

fn no_such_request(request_id: &RequestId) -> Refusal {
    Refusal::new(
        RefusalCode::NotFound,
        format!("no such request: {request_id}"),
    )
    .hint("`teamctl requests` lists them")
}

fn says(request: &Request, feedback: &str) -> bool {
    request.reason.as_deref() == Some(feedback)
}

fn explain(request: &Request, why: request::AnswerError) -> Refusal {
    let id = &request.request_id;
    match why {
        request::AnswerError::WrongAnswerer => conflict(
            format!("{id} is a shutdown request: {} answers it", request.to),
            "`teamctl plans` lists what can be answered",
        ),
        request::AnswerError::Resolved(status) => {
            let reason = request
                .reason
                .as_deref()
                .filter(|reason| !reason.is_empty());
            let why = reason
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default();
            conflict(
                format!("{id} is {} already{why}", status.as_str()),
                format!(
                    "a further {} of {} gets an id of its own: `teamctl {}`",
                    request.kind.noun(),
                    request.member(),
                    request.kind.listed_by()
                ),
            )
        }
        request::AnswerError::Repeated => Refusal::new(RefusalCode::Conflict, why.to_string()),
    }
}
