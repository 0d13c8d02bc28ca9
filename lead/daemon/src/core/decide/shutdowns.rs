//! The shutdown handshake, the termination ladder, and the stop of the whole team.

use std::time::Duration;

use teamd_shared::amount::format_duration;
use teamd_shared::control::{Done, Refusal, RefusalCode, ShutdownOrder};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{MemberEvent, Notice, Record, RequestEvent, TeamEvent};
use teamd_shared::member::{Ending, Member};
use teamd_shared::message::IDLE;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};
use uuid::Uuid;

use super::{Decision, DecisionView};
use crate::core::caller::ReplyTo;
use crate::core::event::{Action, Until};
use crate::core::incarnation::Incarnation;
use crate::core::runtime::{DueStep, is_needed};

/// Seconds that a model has to decide when a signal has ended the daemon.
const HURRIED: f64 = 3.0;
/// Seconds that an idle worker has to say whether it leaves: no model is asked.
const DECIDE_WITHIN: f64 = 30.0;
/// Seconds after which a teammate is forced when `teamd stop --force` asks it.
const STOP_FORCE_AFTER: f64 = 10.0;

impl DecisionView<'_> {
    /// Asks a teammate to shut down, or joins the request that is pending or approved. A repeated
    /// order joins the request that it led to, in whatever state that is.
    pub(super) fn shutdown(
        &self,
        client: ReplyTo,
        order: &ShutdownOrder,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        may_be_asked(order)?;
        let name = &order.name;
        let agent = client.agent;
        let earlier = self.team.requests.get(&order.request_id);
        let (decision, request_id) = match earlier {
            Some(earlier)
                if earlier.kind == Kind::Shutdown && earlier.member() == name.as_str() =>
            {
                let open = self
                    .open_shutdown(name)
                    .filter(|open| open.request_id == earlier.request_id);
                let decision = open
                    .map(|open| join(open, order.force_after, agent))
                    .unwrap_or_default();
                (decision, earlier.request_id.clone())
            }
            Some(_) => return Err(taken(&order.request_id)),
            None => match self.running(name) {
                Ok(member) => self.ask(member, order, agent, ids.message()),
                Err(refusal) => return Ok(self.call_off(client, name, refusal)),
            },
        };
        let answer = if order.wait {
            Action::Wait(client, name.clone(), Until::Ended(request_id))
        } else {
            Action::Reply(client, Ok(Done::Asked { request_id }))
        };
        Ok(self.fits(decision)?.act(answer))
    }

    /// Calls the spawns off that were asked for before, of a member that does not run: so no
    /// request waits for what the next daemon would know nothing of. If its checkout is being made,
    /// the command is answered when nothing is left of that.
    fn call_off(&self, client: ReplyTo, name: &Name, refusal: Refusal) -> Decision {
        let jobs = &self.runtime.jobs;
        let answer = if jobs.spawns(name) || jobs.is_ending(name) {
            Action::Wait(client, name.clone(), Until::CalledOff)
        } else {
            Action::Reply(client, Err(refusal))
        };
        Decision::default()
            .act(Action::CallOff(name.clone()))
            .act(answer)
    }

    /// Returns the shutdown of a member's present incarnation that can be joined.
    fn open_shutdown(&self, name: &Name) -> Option<&Request> {
        let last = self.team.shutdown_of(name)?;
        matches!(last.status, Status::Pending | Status::Approved).then_some(last)
    }

    /// Asks a member to shut down, or joins the request that is open for this incarnation.
    /// `message_id` is the id of the line in the teammate's inbox.
    fn ask(
        &self,
        member: &Member,
        order: &ShutdownOrder,
        agent: bool,
        message_id: Uuid,
    ) -> (Decision, RequestId) {
        if let Some(open) = self.open_shutdown(&member.name) {
            return (
                join(open, order.force_after, agent),
                open.request_id.clone(),
            );
        }
        let payload = Payload::Shutdown {
            reason: order.reason.clone(),
            decide_within: order.decide_within,
            force_after: order.force_after,
        };
        let request = self.pending(
            order.request_id.clone(),
            (&member.name, member.incarnation),
            payload,
            message_id,
        );
        let tell = Notice {
            to: member.name.clone(),
            id: message_id,
        };
        let asked = Decision::default().request(
            RequestEvent::Asked,
            Request { agent, ..request },
            vec![tell],
        );
        (asked, order.request_id.clone())
    }

    /// Returns an id that no request has. The requests of the same decision, `asked`, are not in
    /// the state yet.
    fn new_request_id(&self, asked: &[Record], ids: &mut dyn Ids) -> RequestId {
        loop {
            let id = ids.request();
            if !self.team.requests.contains_key(&id)
                && !asked.iter().any(|record| has_request_id(record, &id))
            {
                return id;
            }
        }
    }

    /// Takes the steps of the ladder that are due. A signal is journaled before it is sent.
    pub(super) fn deadline(&self, ids: &mut dyn Ids) -> Decision {
        let due = self.runtime.due(self.now).into_iter();
        due.fold(
            Decision::default(),
            |decision, (incarnation, due)| match due {
                DueStep::Kill => decision.act(Action::Kill(incarnation)),
                DueStep::Terminate(ending) => {
                    decision.and(self.terminate_incarnation(&incarnation, ending))
                }
                DueStep::Refuse => decision.and(self.refuse_permission(&incarnation.name)),
                DueStep::Leave => decision.and(self.ask_idle(&incarnation, ids)),
            },
        )
    }

    /// Asks a teammate to leave that was idle for as long as it may be. Its worker knows what came
    /// meanwhile, and then says no.
    fn ask_idle(&self, incarnation: &Incarnation, ids: &mut dyn Ids) -> Decision {
        let member = self.present(incarnation);
        let Some(member) = member.filter(|member| !is_needed(self.team, member)) else {
            return Decision::default();
        };
        let order = ShutdownOrder {
            name: incarnation.name.clone(),
            request_id: self.new_request_id(&[], ids),
            reason: IDLE.to_owned(),
            decide_within: DECIDE_WITHIN,
            force_after: None,
            wait: false,
        };
        let (asked, _) = self.ask(member, &order, false, ids.message());
        asked
    }

    /// Begins to end an incarnation by signals. SIGTERM tells it to leave at the next safe point;
    /// it cannot refuse.
    pub(super) fn terminate_incarnation(
        &self,
        incarnation: &Incarnation,
        ending: Ending,
    ) -> Decision {
        let Some(member) = self
            .present(incarnation)
            .filter(|member| member.ending.is_none())
        else {
            return Decision::default();
        };
        let limit = if ending == Ending::Limit {
            member.terms.bounds.max_time.map(Duration::from_secs)
        } else {
            None
        };
        let ending_note =
            limit.map(|limit| format!("it reached its time limit: {}", format_duration(limit)));
        let member = Member {
            ending: Some(ending),
            ending_note,
            ..self.updated(member)
        };
        Decision::default()
            .member(MemberEvent::Ending, member)
            .act(Action::Terminate(incarnation.clone()))
    }

    /// Records that SIGTERM ends a worker, as it says. If it was taken for hung, that is its
    /// answer: it is not started again.
    pub(super) fn leaving(&self, incarnation: &Incarnation) -> Decision {
        match self.present(incarnation) {
            Some(member)
                if leaves_by_itself(member) && self.team.release(&incarnation.name).is_none() =>
            {
                let ending = Some(Ending::Sigterm);
                let ending_note = None;
                let member = Member {
                    ending,
                    ending_note,
                    ..self.updated(member)
                };
                Decision::default().member(MemberEvent::Ending, member)
            }
            _ => Decision::default(),
        }
    }

    pub(super) fn stop(&self, client: ReplyTo, force: bool, ids: &mut dyn Ids) -> Decision {
        let force_after = force.then_some(STOP_FORCE_AFTER);
        self.ask_all("the team is stopped", 30.0, force_after, ids)
            .act(Action::WaitForStop(client))
    }

    /// Decides on SIGTERM or Ctrl-C, which cannot be refused: the workers get a short time to
    /// decide, then the termination ladder. A second signal kills them.
    pub(super) fn terminate(&self, ids: &mut dyn Ids) -> Decision {
        if self.runtime.terminations <= 1 {
            let force_after = HURRIED + self.rules.grace.as_secs_f64().min(HURRIED);
            return self.ask_all(
                "the daemon was told to end",
                HURRIED,
                Some(force_after),
                ids,
            );
        }
        let members: Vec<_> = self.last_first().into_iter().cloned().collect();
        members
            .iter()
            .fold(Decision::default(), |decision, member| {
                let incarnation = Incarnation::of(member);
                decision
                    .and(self.terminate_incarnation(&incarnation, Ending::Stop))
                    .act(Action::Kill(incarnation))
            })
    }

    /// Returns the running members in the order of a stop: the last spawned first, since it may
    /// need the earlier ones; the lead agent last. All are asked at once: waiting for each would
    /// let one busy teammate hold up all others.
    fn last_first(&self) -> Vec<&Member> {
        let mut members: Vec<&Member> = self.alive().collect();
        members.sort_by_key(|member| {
            let spawned = self
                .team
                .members
                .get(&member.name)
                .map_or(0, |state| state.spawned);
            (member.name == Name::lead(), std::cmp::Reverse(spawned))
        });
        members
    }

    fn ask_all(
        &self,
        reason: &str,
        decide_within: f64,
        force_after: Option<f64>,
        ids: &mut dyn Ids,
    ) -> Decision {
        let stopping = Record::Team(Box::new(self.team_record(TeamEvent::Stopping)));
        let first = if self.team.stopping {
            Decision::default()
        } else {
            Decision::default().record(stopping)
        };
        self.last_first()
            .into_iter()
            .fold(first, |decision, member| {
                let name = member.name.clone();
                let reason = reason.to_owned();
                let request_id = self.new_request_id(&decision.records, ids);
                let order = ShutdownOrder {
                    request_id,
                    name,
                    reason,
                    decide_within,
                    force_after,
                    wait: false,
                };
                decision.and(self.ask(member, &order, false, ids.message()).0)
            })
    }

    /// Decides what a rejected shutdown means for the team.
    pub(super) fn shutdown_rejected(
        &self,
        request: &Request,
        incarnation: &Incarnation,
    ) -> Decision {
        if self.runtime.terminations > 0 {
            return self.terminate_incarnation(incarnation, Ending::Stop);
        }
        if let Payload::Shutdown {
            force_after: Some(_),
            ..
        } = request.payload
        {
            return self.terminate_incarnation(incarnation, Ending::Force);
        }
        if self.team.stopping {
            let staying = Record::Team(Box::new(self.team_record(TeamEvent::Staying)));
            return Decision::default().record(staying).act(Action::RejectStop);
        }
        Decision::default()
    }
}

/// Refuses a time that is no number: it could not be read from the journal again.
fn may_be_asked(order: &ShutdownOrder) -> Result<(), Refusal> {
    if is_time(order.decide_within) && order.force_after.is_none_or(is_time) {
        return Ok(());
    }
    let refusal = Refusal::new(
        RefusalCode::Usage,
        "a time to wait is a number of seconds, 0 or more",
    );
    Err(refusal.hint("`teamctl shutdown --help` shows the flags"))
}

fn taken(request_id: &RequestId) -> Refusal {
    let message = format!("the id {request_id} belongs to another request");
    Refusal::new(RefusalCode::Taken, message).hint("try again: the next id is another one")
}

/// Joins an open request. That changes it only if the order brings more force, or if the lead agent
/// is to hear how it ends.
fn join(open: &Request, earlier: Option<f64>, agent: bool) -> Decision {
    let mut request = open.clone();
    request.agent |= agent;
    if let Payload::Shutdown { force_after, .. } = &mut request.payload {
        *force_after = force_after
            .iter()
            .copied()
            .chain(earlier)
            .min_by(f64::total_cmp);
    }
    if request == *open {
        return Decision::default();
    }
    Decision::default().request(RequestEvent::Joined, request, Vec::new())
}

fn has_request_id(record: &Record, id: &RequestId) -> bool {
    match record {
        Record::Request(record) => record.request.request_id == *id,
        Record::Team(_) | Record::Member(_) | Record::Task(_) | Record::Snapshot(_) => false,
    }
}

/// Tells whether no order of a person or the lead ends a member.
fn leaves_by_itself(member: &Member) -> bool {
    matches!(member.ending, None | Some(Ending::Hung))
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds >= 0.0
}
