//! The commands that wait until they are done. After every change, the state tells which of them
//! are. Pure.

use std::collections::BTreeMap;

use teamd_shared::amount::count;
use teamd_shared::control::{Done, Refusal, RefusalCode, StopOutcome};
use teamd_shared::journal::Team;
use teamd_shared::member::{Gate, Member, MemberStatus};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::request::{self, Payload, Request};
use teamd_shared::task::TaskId;

use crate::core::caller::{Answer, ReplyTo};
use crate::core::directive::verdict_of;
use crate::core::event::Until;
use crate::core::incarnation::Incarnation;
use crate::core::quiet::obstacles;
use crate::core::runtime::Runtime;
use crate::core::status::status;
use teamd_shared::unwritten;

/// The commands, and what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    of_members: BTreeMap<Name, Vec<(ReplyTo, Until)>>,
    for_stop: Vec<ReplyTo>,
    for_quiet: Vec<(ReplyTo, Option<TaskId>)>,
    for_links: Vec<(ReplyTo, Name)>,
}

impl Waiters {
    /// Adds a command that waits for something of a member.
    pub(crate) fn add(&mut self, client: ReplyTo, name: Name, until: Until) {
        self.of_members
            .entry(name)
            .or_default()
            .push((client, until));
    }

    /// Adds a command that waits for the daemon to stop.
    pub(crate) fn add_for_stop(&mut self, client: ReplyTo) {
        self.for_stop.push(client);
    }

    /// Adds a command that waits until nothing happens any more by itself ([`obstacles`]).
    pub(crate) fn add_for_quiet(&mut self, client: ReplyTo, goal: Option<TaskId>) {
        self.for_quiet.push((client, goal));
    }

    /// Adds a command that waits until it is known what became of the link to a host.
    pub(crate) fn add_for_link(&mut self, client: ReplyTo, host: Name) {
        self.for_links.push((client, host));
    }

    /// Takes out the commands that wait for a link, and know now.
    pub(crate) fn linked(&mut self, runtime: &Runtime) -> Vec<ReplyTo> {
        let known = |(_, host): &mut (ReplyTo, Name)| runtime.link_to(host).is_some();
        let answered = self.for_links.extract_if(.., known);
        answered.map(|(client, _)| client).collect()
    }

    /// Forgets the commands of a connection that is closed.
    pub(crate) fn drop_connection(&mut self, connection: u64) {
        for waiting in self.of_members.values_mut() {
            waiting.retain(|(client, _)| client.connection != connection);
        }
        self.of_members.retain(|_, waiting| !waiting.is_empty());
        self.for_stop
            .retain(|client| client.connection != connection);
        self.for_quiet
            .retain(|(client, _)| client.connection != connection);
        self.for_links
            .retain(|(client, _)| client.connection != connection);
    }

    /// Takes out the commands that have an answer now, of those that wait for something of a
    /// member.
    pub(crate) fn answered(
        &mut self,
        team: &Team,
        runtime: &Runtime,
        name: &Name,
    ) -> Vec<(ReplyTo, Answer)> {
        let Some(waiting) = self.of_members.get_mut(name) else {
            return Vec::new();
        };
        let mut answers = Vec::new();
        waiting.retain(|(client, until)| {
            let answer = answer(team, runtime, name, until);
            answers.extend(answer.map(|answer| (*client, answer)));
            answers
                .last()
                .is_none_or(|(answered, _)| answered != client)
        });
        if waiting.is_empty() {
            self.of_members.remove(name);
        }
        answers
    }

    /// Takes out the commands that wait until a worker is ready, with the refusal of each: none
    /// becomes ready while the journal cannot be written.
    pub(crate) fn cannot_become_ready(
        &mut self,
        runtime: &Runtime,
        why: &str,
    ) -> Vec<(ReplyTo, Answer)> {
        let mut answers = Vec::new();
        for (name, waiting) in &mut self.of_members {
            waiting.retain(|(client, until)| {
                let Until::Ready(number) = until else { return true };
                let incarnation = Incarnation { name: name.clone(), number: *number };
                let unable = runtime.of(&incarnation).and_then(|worker| worker.unable.as_deref());
                let message = match unable {
                    Some(unable) => format!("{name} cannot begin: {unable}; {why}"),
                    None => format!("{name} cannot begin: {why}"),
                };
                let next = unwritten::next_step(why);
                let refusal = Refusal::new(RefusalCode::Failed, message).hint(format!(
                    "{next}: then it is recorded, and `teamctl status {name}` shows what became of it"
                ));
                answers.push((*client, Err(refusal)));
                false
            });
        }
        self.of_members.retain(|_, waiting| !waiting.is_empty());
        answers
    }

    /// Takes out the commands that wait for the stop, with how it ended.
    pub(crate) fn stopped(&mut self, outcome: &StopOutcome) -> Vec<(ReplyTo, Answer)> {
        self.for_stop
            .drain(..)
            .map(|client| (client, Ok(Done::Stop(outcome.clone()))))
            .collect()
    }

    /// Tells whether a command seems to have waited long enough until nothing happens any more.
    pub(crate) fn seems_quiet(&self, team: &Team, runtime: &Runtime) -> bool {
        self.for_quiet
            .iter()
            .any(|(_, goal)| obstacles(team, runtime, *goal).is_some())
    }

    /// Takes out the commands that wait until nothing happens any more, if so, with what is stuck.
    pub(crate) fn quiet(&mut self, team: &Team, runtime: &Runtime) -> Vec<(ReplyTo, Answer)> {
        let mut answers = Vec::new();
        self.for_quiet.retain(|(client, goal)| {
            let obstacles = obstacles(team, runtime, *goal);
            let is_over = obstacles.is_some();
            answers.extend(obstacles.map(|obstacles| (*client, Ok(Done::Quiet(obstacles)))));
            !is_over
        });
        answers
    }
}

/// Returns the answer to a command that waits for something of a member, if there is one now.
fn answer(team: &Team, runtime: &Runtime, name: &Name, until: &Until) -> Option<Answer> {
    let member = team.members.get(name).map(|state| &state.record);
    let runs = |incarnation: u32| {
        member.filter(|member| member.incarnation == incarnation && !member.phase.is_ended())
    };
    match until {
        Until::Ready(incarnation) => match runs(*incarnation) {
            Some(member) => ready(team, runtime, member).map(Ok),
            None => Some(Err(not_ready(name, member))),
        },
        Until::Ended(request_id) => ended(member, team.requests.get(request_id)?).map(Ok),
        Until::GateClosed { incarnation, seq } => match (runs(*incarnation), member) {
            (Some(member), _) => {
                let closed = runtime.of(&Incarnation::of(member))?.state.applied_seq >= *seq
                    || mutant::is_on("gate-answered-unheard");
                if closed {
                    return Some(Ok(Done::Recorded {
                        incarnation: *incarnation,
                    }));
                }
                waits_for_host(runtime, member).map(Ok)
            }
            // Nothing of that incarnation runs any more, and the next one has begun with its gate
            // closed.
            (None, Some(next)) if !next.phase.is_ended() && next.gate == Gate::Closed => {
                Some(Ok(Done::Recorded {
                    incarnation: *incarnation,
                }))
            }
            (None, _) => Some(Err(ended_unasked(name))),
        },
        Until::CalledOff => (!runtime.jobs.is_ending(name)).then_some(Ok(Done::Withdrawn)),
        Until::Compacted(incarnation, id) => {
            let Some(member) = runs(*incarnation) else {
                return Some(Err(ended_before_summary(name)));
            };
            let worker = runtime.of(&Incarnation::of(member))?;
            let done = Done::Recorded {
                incarnation: *incarnation,
            };
            Some(match worker.compacted.get(id)? {
                Ok(()) => Ok(done),
                Err(why) => Err(Refusal::new(RefusalCode::Conflict, why)
                    .hint(format!("`teamctl status {name}` shows what it does"))),
            })
        }
        // A plan belongs to the conversation: that an incarnation has ended says nothing.
        Until::Judged(request_id) => {
            let request = team.requests.get(request_id)?;
            (!request.is_pending()).then(|| Ok(Done::Judged(verdict_of(request))))
        }
    }
}

/// Answers that what was asked of a member waits for its host; none if that can be reached.
pub(crate) fn waits_for_host(runtime: &Runtime, member: &Member) -> Option<Done> {
    let host = runtime.awaited_host(member)?;
    let worker = runtime.of(&Incarnation::of(member));
    let is_closed = worker.is_some_and(|worker| worker.gate.is_surely_closed());
    Some(Done::Waits {
        incarnation: member.incarnation,
        host,
        gate: if is_closed { Gate::Closed } else { Gate::Open },
    })
}

fn ended_before_summary(name: &Name) -> Refusal {
    let message =
        format!("the worker of {name} ended before its conversation was put into a summary");
    Refusal::new(RefusalCode::Conflict, message)
        .hint(format!("`teamctl compact {name}` asks the next one"))
}

fn ready(team: &Team, runtime: &Runtime, member: &Member) -> Option<Done> {
    let incarnation = member.incarnation;
    runtime
        .of(&Incarnation::of(member))
        .filter(|worker| worker.ready)?;
    let pid = member.process.as_ref()?.pid;
    let fresh = member.conversation == incarnation;
    let skipped = match &member.exit {
        Some(exit) if fresh => exit.unread,
        _ => 0,
    };
    let mut notes = member
        .terms
        .checkout
        .as_ref()
        .map(|it| it.notes.clone())
        .unwrap_or_default();
    let returned = member.exit.as_ref().map_or(0, |exit| exit.returned);
    if !fresh && returned > 0 {
        let mail = count(usize::try_from(returned).unwrap_or(usize::MAX), "message");
        notes.push(format!(
            "{mail} that had come back to the senders: it reads them after all"
        ));
    }
    Some(Done::Ready {
        pid,
        incarnation,
        status: status(team, runtime, member),
        skipped,
        notes,
    })
}

/// Returns how a shutdown has ended, if it has.
fn ended(member: Option<&Member>, request: &Request) -> Option<Done> {
    let request_id = request.request_id.clone();
    let incarnation = request.incarnation;
    let present = member.filter(|member| member.incarnation == incarnation);
    let status = match (present, request.status) {
        (Some(member), request::Status::Rejected)
            if member.ending.is_none() && !member.phase.is_ended() =>
        {
            let reason = request.reason.clone().unwrap_or_default();
            return Some(Done::Rejected { request_id, reason });
        }
        (Some(member), _) if !member.phase.is_ended() => return None,
        (Some(member), _) => member.phase.ended_as(),
        // Another incarnation has taken its place: the request tells.
        (None, request::Status::Approved) => MemberStatus::Shutdown,
        (None, _) if is_forced(request) => MemberStatus::Killed,
        (None, _) => MemberStatus::Crashed,
    };
    let exit = present
        .or_else(|| {
            member.filter(|next| next.incarnation == incarnation + 1 && !next.phase.is_ended())
        })
        .and_then(|member| member.exit.clone())
        .map(Box::new);
    Some(Done::Ended {
        request_id,
        status,
        exit,
    })
}

fn is_forced(request: &Request) -> bool {
    matches!(
        request.payload,
        Payload::Shutdown {
            force_after: Some(_),
            ..
        }
    )
}

fn ended_unasked(name: &Name) -> Refusal {
    Refusal::new(
        RefusalCode::Conflict,
        format!("{name} ended before it could be asked for a plan"),
    )
    .hint(format!(
        "`teamctl spawn {name} --resume --plan` continues its conversation with a closed gate"
    ))
}

fn not_ready(name: &Name, member: Option<&Member>) -> Refusal {
    let note = member
        .and_then(|member| member.exit.as_ref())
        .and_then(|exit| exit.note.as_deref());
    let message = match (member, note) {
        (None, _) => return Refusal::new(RefusalCode::NotFound, format!("{name} was forgotten")),
        (_, Some(note)) => format!("{name} ended before it was ready: {note}"),
        (_, None) => format!("{name} ended before it was ready"),
    };
    Refusal::new(RefusalCode::NotReady, message)
}
