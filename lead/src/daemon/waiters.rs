//! The commands that wait: each is a question, asked of the state again after every change. Pure.

use std::collections::BTreeMap;

use teamd_shared::control::{Await, Done, Refusal, RefusalCode, StopOutcome};
use teamd_shared::journal::Team;
use teamd_shared::member::{Doing, Gate, Member, Status};
use teamd_shared::name::Name;
use teamd_shared::request::{self, Kind, Request};

use super::event::{Client, Life};
use super::live::Live;
use super::word::verdict_of;

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    of_members: BTreeMap<Name, Vec<(Client, u32, Await)>>,
    for_stop: Vec<Client>,
}

type Answer = Result<Done, Refusal>;

impl Waiters {
    /// Adds a question about a life.
    pub(crate) fn add(&mut self, client: Client, life: Life, what: Await) {
        self.of_members.entry(life.name).or_default().push((client, life.incarnation, what));
    }

    /// Adds somebody who waits for the daemon to stop.
    pub(crate) fn add_for_stop(&mut self, client: Client) {
        self.for_stop.push(client);
    }

    /// Forgets everybody on a connection that is closed.
    pub(crate) fn drop_connection(&mut self, connection: u64) {
        for waiting in self.of_members.values_mut() {
            waiting.retain(|(client, ..)| client.connection != connection);
        }
        self.of_members.retain(|_, waiting| !waiting.is_empty());
        self.for_stop.retain(|client| client.connection != connection);
    }

    /// Takes out the questions about a member that have an answer now.
    pub(crate) fn answered(&mut self, team: &Team, live: &Live, name: &Name) -> Vec<(Client, Answer)> {
        let Some(waiting) = self.of_members.get_mut(name) else { return Vec::new() };
        let mut answers = Vec::new();
        waiting.retain(|(client, incarnation, what)| {
            let life = Life { name: name.clone(), incarnation: *incarnation };
            let answer = answer(team, live, &life, what);
            answers.extend(answer.map(|answer| (*client, answer)));
            answers.last().is_none_or(|(answered, _)| answered != client)
        });
        if waiting.is_empty() {
            self.of_members.remove(name);
        }
        answers
    }

    /// Takes out those who wait for the stop, with how it ended.
    pub(crate) fn stopped(&mut self, outcome: &StopOutcome) -> Vec<(Client, Answer)> {
        self.for_stop.drain(..).map(|client| (client, Ok(Done::Stop(outcome.clone())))).collect()
    }
}

/// Answers a question about a life, if it has an answer now.
fn answer(team: &Team, live: &Live, life: &Life, what: &Await) -> Option<Answer> {
    let gone = |code, message: String| Some(Err(Refusal::new(code, message)));
    let Some(member) = team.members.get(&life.name).map(|state| &state.record) else {
        return gone(RefusalCode::NotFound, format!("{} was forgotten", life.name));
    };
    let ended = member.phase.is_ended() || member.incarnation != life.incarnation;
    match what {
        Await::Ready if ended => gone(RefusalCode::Failed, not_ready(member)),
        Await::Ready => {
            live.of(life).filter(|alive| alive.ready)?;
            let pid = member.process.as_ref()?.pid;
            Some(Ok(Done::Ready { pid, status: status(team, live, member) }))
        }
        Await::Ended { .. } if ended => Some(Ok(Done::Ended { status: member.phase.ended_as() })),
        Await::Ended { request_id } => {
            let request = team.requests.get(request_id)?;
            let rejected = request.status == request::Status::Rejected && member.ending.is_none();
            rejected.then(|| {
                let reason = request.reason.clone().unwrap_or_default();
                Err(Refusal::new(RefusalCode::Rejected, reason))
            })
        }
        // Nothing of that life runs any more, and the next one has begun with its gate closed.
        Await::GateClosed { seq } if ended && !member.phase.is_ended() && member.gate == Gate::Closed => {
            Some(Ok(Done::Recorded { seq: *seq, incarnation: life.incarnation }))
        }
        Await::GateClosed { .. } if ended => Some(Err(Refusal::new(
            RefusalCode::Conflict,
            format!("{} ended before it could be asked for a plan", life.name),
        )
        .hint(format!("`teamctl spawn {} --resume --plan` goes on with it, its gate closed", life.name)))),
        Await::GateClosed { seq } => {
            let acted_on = live.of(life)?.said.acted_on;
            (acted_on >= *seq).then_some(Ok(Done::Recorded { seq: *seq, incarnation: life.incarnation }))
        }
        // A plan belongs to the conversation: that its life has ended says nothing.
        Await::Answered { request_id } => match team.requests.get(request_id) {
            None => gone(RefusalCode::NotFound, format!("no such request: {request_id}")),
            Some(request) => (!request.is_pending()).then(|| Ok(Done::Judged(verdict_of(request)))),
        },
    }
}

fn not_ready(member: &Member) -> String {
    let name = &member.name;
    match member.exit.as_ref().and_then(|exit| exit.note.as_deref()) {
        Some(note) => format!("{name} ended before it was ready: {note}"),
        None => format!("{name} ended before it was ready"),
    }
}

/// The status that people see, computed from the journal and from what the worker last said.
pub(crate) fn status(team: &Team, live: &Live, member: &Member) -> Status {
    let name = &member.name;
    let leaving = team.let_go(name).is_some()
        || member.ending.is_some()
        || team.pending(name, Kind::Shutdown).is_some();
    let plan = team.pending(name, Kind::PlanApproval).is_some();
    Status::of(member.phase, leaving, plan, doing(team, live, member))
}

/// What a worker does. One whose plan has its verdict is at work, whether it has said so yet or not.
fn doing(team: &Team, live: &Live, member: &Member) -> Doing {
    let life = Life { name: member.name.clone(), incarnation: member.incarnation };
    let Some(said) = live.of(&life).map(|alive| &alive.said) else { return Doing::Starting };
    // An id that is taken is somebody else's.
    let own = |request: &&Request| request.member() == member.name.as_str();
    let plan = said.plan.as_ref().and_then(|id| team.requests.get(id)).filter(own);
    if plan.is_some_and(|request| !request.is_pending()) { Doing::Working } else { said.doing }
}
