//! The shutdown handshake, the termination ladder, and the stop of the whole team.

use std::time::Duration;

use teamd_shared::amount::told;
use teamd_shared::control::{Done, Refusal, RefusalCode, ShutdownOrder};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{MemberEvent, Record, RequestEvent, TeamEvent, Tell};
use teamd_shared::member::{Ending, Member};
use teamd_shared::message::LEAD;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};

use super::{Decision, View, or_refuse};
use crate::daemon::event::{Action, Client, Life};
use crate::daemon::live::Due;

/// Seconds that a model has to decide when the daemon was told by a signal to end.
const HURRIED: f64 = 3.0;
/// Seconds after which a teammate is forced when `teamd stop --force` asks it.
const STOP_FORCE_AFTER: f64 = 10.0;

impl View<'_> {
    pub(super) fn shutdown(&self, client: Client, order: &ShutdownOrder, ids: &mut dyn Ids) -> Decision {
        let asked = self.running(&order.name).cloned().and_then(|member| {
            may_be_asked(order)?;
            self.is_meant(order)?;
            let (decision, request_id) = self.ask(&member, (order, client.agent), &[], ids);
            let done = Done::Asked { request_id, incarnation: member.incarnation };
            Ok(self.fits(decision)?.act(Action::Reply(client, Ok(done))))
        });
        or_refuse(client, asked)
    }

    /// An order that is repeated may have been carried out: then it is not for whoever has been spawned since.
    fn is_meant(&self, order: &ShutdownOrder) -> Result<(), Refusal> {
        let now = self.team.members.get(&order.name).map_or(0, |state| state.spawned);
        if order.spawned.is_none_or(|meant| meant == now) {
            return Ok(());
        }
        let name = &order.name;
        let message =
            format!("{name} has been spawned again meanwhile, and this life was not asked to leave");
        Err(Refusal::new(RefusalCode::Conflict, message).hint(format!("`teamctl shutdown {name}` asks it")))
    }

    /// Asks a member to leave, or joins the request that is pending (or agreed) for this life.
    ///
    /// `agent`: the lead agent asks. `asked` are the records of the same decision: the ids in them are not in the state
    /// yet.
    fn ask(
        &self,
        member: &Member,
        (order, agent): (&ShutdownOrder, bool),
        asked: &[Record],
        ids: &mut dyn Ids,
    ) -> (Decision, RequestId) {
        let open = self.team.shutdown_of(&member.name);
        let open = open.filter(|request| matches!(request.status, Status::Pending | Status::Approved));
        if let Some(open) = open {
            let decision = match joined(open, order.force_after, agent) {
                Some(request) => Decision::default().request(RequestEvent::Joined, request, Vec::new()),
                None => Decision::default(),
            };
            return (decision, open.request_id.clone());
        }
        let request = Request {
            request_id: self.new_request_id(asked, ids),
            kind: Kind::Shutdown,
            from: LEAD.to_owned(),
            to: member.name.to_string(),
            status: Status::Pending,
            payload: Payload::Shutdown {
                reason: order.reason.clone(),
                decide_within: order.decide_within,
                force_after: order.force_after,
            },
            incarnation: member.incarnation,
            message_id: ids.message(),
            created_at: self.now.wall,
            resolved_at: None,
            reason: None,
            answered_by: None,
            agent,
        };
        let (id, tell) =
            (request.request_id.clone(), Tell { to: member.name.clone(), id: request.message_id });
        (Decision::default().request(RequestEvent::Asked, request, vec![tell]), id)
    }

    fn new_request_id(&self, asked: &[Record], ids: &mut dyn Ids) -> RequestId {
        let is_in = |record: &Record, id: &RequestId| matches!(record, Record::Request(it) if it.request.request_id == *id);
        loop {
            let id = ids.request();
            if !self.team.requests.contains_key(&id) && !asked.iter().any(|record| is_in(record, &id)) {
                return id;
            }
        }
    }

    /// Takes the steps of the ladder that are due. A signal is journaled before it is sent.
    pub(super) fn deadline(&self) -> Decision {
        let due = self.live.due(self.now).into_iter();
        due.fold(Decision::default(), |decision, (life, due)| match due {
            Due::Kill => decision.act(Action::Kill(life)),
            Due::Force => decision.and(self.terminate_life(&life, Ending::Force)),
            Due::Overdue => decision.and(self.terminate_life(&life, Ending::Overdue)),
            Due::Limit => decision.and(self.out_of_time(&life)),
        })
    }

    /// A life has lasted as long as it may. SIGTERM asks it to leave at the next safe point; nothing can be said against it.
    fn out_of_time(&self, life: &Life) -> Decision {
        let Some(member) = self.present(life).filter(|member| member.ending.is_none()) else {
            return Decision::default();
        };
        let most = Duration::from_secs(member.terms.bounds.max_time.unwrap_or_default());
        let why = format!("it had lived as long as it may: {}", told(most));
        let member = Member { ending: Some(Ending::Limit), ending_note: Some(why), ..self.updated(member) };
        Decision::default().member(MemberEvent::Ending, member).act(Action::Terminate(life.clone()))
    }

    /// Begins to end a life by signals.
    pub(super) fn terminate_life(&self, life: &Life, ending: Ending) -> Decision {
        let Some(member) = self.present(life).filter(|member| member.ending.is_none()) else {
            return Decision::default();
        };
        let member = Member { ending: Some(ending), ..self.updated(member) };
        Decision::default().member(MemberEvent::Ending, member).act(Action::Terminate(life.clone()))
    }

    /// SIGTERM ends a life, as it says. One that was taken for hung answers thereby: it is not started again.
    pub(super) fn leaving(&self, life: &Life) -> Decision {
        let by_itself = |member: &Member| matches!(member.ending, None | Some(Ending::Hung));
        match self.present(life) {
            Some(member) if by_itself(member) && self.team.let_go(&life.name).is_none() => {
                let (ending, ending_note) = (Some(Ending::Sigterm), None);
                let member = Member { ending, ending_note, ..self.updated(member) };
                Decision::default().member(MemberEvent::Ending, member)
            }
            _ => Decision::default(),
        }
    }

    pub(super) fn stop(&self, client: Client, force: bool, ids: &mut dyn Ids) -> Decision {
        let force_after = force.then_some(STOP_FORCE_AFTER);
        self.ask_all("the team is stopped", 30.0, force_after, ids).act(Action::WaitForStop(client))
    }

    /// SIGTERM and Ctrl-C cannot be refused: a short time to decide, then the ladder; a second one kills.
    pub(super) fn terminate(&self, ids: &mut dyn Ids) -> Decision {
        if self.live.terminations <= 1 {
            let force_after = HURRIED + self.rules.grace.as_secs_f64().min(HURRIED);
            return self.ask_all("the daemon was told to end", HURRIED, Some(force_after), ids);
        }
        let members: Vec<_> = self.last_first().into_iter().cloned().collect();
        members.iter().fold(Decision::default(), |decision, member| {
            let life = Life { name: member.name.clone(), incarnation: member.incarnation };
            decision.and(self.terminate_life(&life, Ending::Stop)).act(Action::Kill(life))
        })
    }

    /// Returns who runs, in the order in which a team is stopped: who was spawned last goes first, since it may need those
    /// who were there before; the lead agent goes last. All are asked at once: an order that waited for each would let one
    /// who is busy keep all others up.
    fn last_first(&self) -> Vec<&Member> {
        let spawned = |member: &&Member| {
            let spawned = self.team.members.get(&member.name).map_or(0, |state| state.spawned);
            (member.name == Name::lead(), std::cmp::Reverse(spawned))
        };
        let mut members: Vec<&Member> = self.alive().collect();
        members.sort_by_key(spawned);
        members
    }

    fn ask_all(
        &self,
        reason: &str,
        decide_within: f64,
        force_after: Option<f64>,
        ids: &mut dyn Ids,
    ) -> Decision {
        let stopping = Record::Team(self.team_record(TeamEvent::Stopping));
        let first =
            if self.team.stopping { Decision::default() } else { Decision::default().record(stopping) };
        self.last_first().into_iter().fold(first, |decision, member| {
            let (name, reason) = (member.name.clone(), reason.to_owned());
            let order = ShutdownOrder { name, reason, decide_within, force_after, spawned: None };
            let asked = self.ask(member, (&order, false), &decision.records, ids).0;
            decision.and(asked)
        })
    }

    /// What follows for the team when a teammate does not want to leave.
    pub(super) fn unwilling(&self, request: &Request, life: &Life) -> Decision {
        if self.live.terminations > 0 {
            return self.terminate_life(life, Ending::Stop);
        }
        if let Payload::Shutdown { force_after: Some(_), .. } = request.payload {
            return self.terminate_life(life, Ending::Force);
        }
        if self.team.stopping {
            return Decision::default().record(Record::Team(self.team_record(TeamEvent::Staying)));
        }
        Decision::default()
    }
}

/// A time that is no number could not be read from the journal again.
fn may_be_asked(order: &ShutdownOrder) -> Result<(), Refusal> {
    let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    if is_time(order.decide_within) && order.force_after.is_none_or(is_time) {
        return Ok(());
    }
    let refusal = Refusal::new(RefusalCode::Usage, "a time to wait is a number of seconds, 0 or more");
    Err(refusal.hint("`teamctl shutdown --help` shows the flags"))
}

/// The request as it is when somebody joins it, if that changes it: it has more force, or the lead agent wants to know.
fn joined(request: &Request, force_after: Option<f64>, agent: bool) -> Option<Request> {
    let forced = with_force(request, force_after);
    let told = agent && !request.agent;
    (forced.is_some() || told)
        .then(|| Request { agent: agent || request.agent, ..forced.unwrap_or_else(|| request.clone()) })
}

/// The request with more force, if the order brings more.
fn with_force(request: &Request, force_after: Option<f64>) -> Option<Request> {
    let force_after = force_after?;
    let Payload::Shutdown { reason, decide_within, force_after: before } = &request.payload else {
        return None;
    };
    if before.is_some_and(|before| before <= force_after) {
        return None;
    }
    let (reason, decide_within) = (reason.clone(), *decide_within);
    let payload = Payload::Shutdown { reason, decide_within, force_after: Some(force_after) };
    Some(Request { payload, ..request.clone() })
}
