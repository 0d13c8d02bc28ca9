//! What is promised, whichever process dies, and when. It is checked after every line of the
//! journal and every step.
//!
//! Each prefix of the journal is looked at by itself, since a kill may cut a batch between any two
//! lines.

mod asks;
mod ends;
mod jobs;
mod order;
mod requests;
mod returns;
mod silence;
mod tasks;
mod tells;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::inbox::UnreadMail;
use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Record, Team, TeamEvent};
use teamd_shared::member::{Gate, Member};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request, Status};
use teamd_shared::task::TaskId;
use uuid::Uuid;

use super::sim::Worker;
use crate::core::caller::ReplyTo;
use crate::core::incarnation::Incarnation;
use asks::Asked;
pub(super) use asks::Question;
pub(super) use order::Expected;
use tasks::Tasks;

type Checked = Result<(), String>;

/// What is known of the world when a line is written.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) monotonic: Duration,
    /// The environment that this daemon was given for the member.
    pub(super) environment: Option<Environment>,
    /// Whether the incarnation has said to this daemon that SIGTERM ends it, or has written so.
    pub(super) farewell: bool,
    /// The ids under which the plan was submitted that the member waits for.
    pub(super) waits_for: BTreeSet<(RequestId, Uuid)>,
    /// What the incarnation had not read at its end, if a daemon has looked.
    pub(super) mail: Option<Vec<UnreadMail>>,
    /// What is known of a member that lives on a host.
    pub(super) host: HostFacts,
}

/// What is known of a member that lives on a host.
#[derive(Debug, Default)]
pub(super) struct HostFacts {
    /// Whether the daemon knows that its host cannot be reached.
    pub(super) is_unreachable: bool,
    /// Whether the daemon knows that its host can be reached.
    pub(super) can_be_reached: bool,
    /// Whether the incarnation has not ended by the record of its host.
    pub(super) runs_there: bool,
}

/// What was seen so far.
#[derive(Default)]
pub(super) struct Promises {
    /// The fold of the journal.
    pub(super) fold: Team,
    /// Whether the clock is set back and forth.
    jumps: bool,
    /// Whether each line is written and read again.
    thorough: bool,
    requests: BTreeMap<RequestId, Request>,
    /// The status in the last line about each request.
    told_status: BTreeMap<RequestId, Status>,
    /// The gate of each member as of each line that changed it.
    gates: BTreeMap<(Name, u64), Gate>,
    /// What each incarnation answered by lines that it wrote and submitted itself.
    answers: BTreeSet<(Incarnation, RequestId, bool)>,
    /// What people answered, and what the lead agent did.
    pub(super) verdicts: BTreeSet<(RequestId, bool)>,
    pub(super) verdicts_of_the_lead: BTreeSet<(RequestId, bool)>,
    /// The answers that people expect who gave this daemon a command.
    pub(super) people: BTreeMap<ReplyTo, Expected>,
    /// The lines of the lead's inbox that were quarantined.
    quarantined: BTreeSet<u64>,
    /// What was asked over the connections of workers.
    questions: BTreeMap<Question, Asked>,
    /// The environment of the last spawn that was accepted.
    pub(super) environments: BTreeMap<Name, Environment>,
    /// The incarnations that ended themselves because they were released.
    pub(super) left: BTreeSet<Incarnation>,
    /// The incarnations that a person has ended by force: they are killed although that cannot be
    /// journaled.
    pub(super) forced: BTreeSet<Incarnation>,
    /// When each member was started again, since its last spawn.
    restarts: BTreeMap<Name, Vec<Duration>>,
    tells: BTreeMap<(Uuid, Name), Told>,
    /// The messages that have come back.
    returned: BTreeSet<Uuid>,
    /// The incarnations that the lead was told are silent, and that have not answered since.
    silent: BTreeSet<Incarnation>,
    pub(super) tasks: Tasks,
    /// When each spawn was asked for.
    pub(super) asked_at: BTreeMap<RequestId, Duration>,
    /// The members whose spawn this daemon has called off, and when.
    pub(super) called_off: BTreeMap<Name, Duration>,
    /// Who has which commit for which task.
    pub(super) commits: BTreeMap<String, (Name, TaskId)>,
}

/// What became of an inbox line that follows from a line of the journal.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Expected,
    Done(Box<Message>),
    /// There is no inbox any more.
    NoInbox,
}

impl Promises {
    pub(super) fn new(jumps: bool, thorough: bool) -> Self {
        Self {
            jumps,
            thorough,
            ..Self::default()
        }
    }

    /// Takes in a line that holds from now on.
    pub(super) fn line(&mut self, line: &Line, facts: &Facts) -> Checked {
        if self.thorough {
            is_read_as_it_was_written(line)?;
        }
        match &line.record {
            Record::Member(record) if record.derived_from.is_none() => {
                self.member_line(record, facts)?
            }
            // The next daemon knows only the time of day of what an earlier one did.
            Record::Team(record) if self.jumps && record.event == TeamEvent::Started => {
                self.restarts.clear()
            }
            Record::Request(record) => {
                self.told_status
                    .insert(record.request.request_id.clone(), record.request.status);
            }
            _ => {}
        }
        let before: BTreeMap<Name, Gate> = self
            .fold
            .members
            .iter()
            .map(|(name, state)| (name.clone(), state.record.gate))
            .collect();
        self.fold
            .apply(line)
            .map_err(|e| format!("line {} does not continue the journal: {e}", line.seq))?;
        self.fold.mark_done(line.seq);
        self.tasks.line(line, &self.fold)?;
        self.requests_changed(line, facts)?;
        self.notices_follow(line)?;
        for (name, state) in &self.fold.members {
            self.gates
                .insert((name.clone(), state.seq), self.fold.gate(name));
        }
        self.gates_opened(line, &before)?;
        self.pending_requests_are_of_running_members()
    }

    fn member_line(&mut self, record: &MemberRecord, facts: &Facts) -> Checked {
        let member = &record.member;
        match record.event {
            MemberEvent::Spawning => {
                self.was_not_called_off(record)?;
                self.spawning(member)
            }
            MemberEvent::Exited => self.exited(record, facts),
            MemberEvent::Adopted
            | MemberEvent::Silent
            | MemberEvent::Answering
            | MemberEvent::Ending => self.silence(record, facts),
            MemberEvent::Forgotten => {
                self.answers
                    .retain(|(incarnation, ..)| incarnation.name != member.name);
                self.left
                    .retain(|incarnation| incarnation.name != member.name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn spawning(&mut self, member: &Member) -> Checked {
        let name = &member.name;
        self.restarts.remove(name);
        check(!self.fold.stopping, || {
            format!("{name} is spawned while the team is stopping")
        })?;
        let before = self.fold.members.get(name).map(|state| &state.record);
        check(before.is_none_or(|before| before.phase.is_ended()), || {
            format!("{name} is spawned twice")
        })?;
        check(
            before.is_none_or(|before| before.incarnation < member.incarnation),
            || format!("an incarnation of {name} is counted twice"),
        )?;
        let opens = member.gate == Gate::Open && member.terms.plan;
        check(!opens, || {
            format!("{name} must submit a plan, and begins with an open gate")
        })
    }

    /// Checks that a gate opens only where a plan was approved.
    fn gates_opened(&self, line: &Line, before: &BTreeMap<Name, Gate>) -> Checked {
        for (name, state) in &self.fold.members {
            let opened = state.record.gate == Gate::Open && before.get(name) == Some(&Gate::Closed);
            let by = match &line.record {
                Record::Request(record) => {
                    record.request.kind == Kind::PlanApproval
                        && record.request.status == Status::Approved
                        && record.request.member() == name.as_str()
                }
                Record::Member(record) => {
                    record.event == MemberEvent::Spawning && !record.member.terms.plan
                }
                Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => false,
            };
            check(!opened || by, || {
                format!("the gate of {name} opens without an approval")
            })?;
        }
        Ok(())
    }

    /// Checks a worker that begins.
    pub(super) fn begins<'a>(
        &self,
        worker: &Worker,
        mut others: impl Iterator<Item = &'a Worker>,
    ) -> Checked {
        let incarnation = &worker.incarnation;
        let double = others.any(|other| other.begun && other.incarnation.name == incarnation.name);
        check(!double, || format!("{} runs twice", incarnation.name))?;
        let member = self
            .fold
            .members
            .get(&incarnation.name)
            .map(|state| &state.record);
        let known = member
            .filter(|member| member.incarnation == incarnation.number && !member.phase.is_ended());
        let process = known
            .and_then(|member| member.process.as_ref())
            .map(|process| process.pid);
        check(process == Some(worker.pid), || {
            format!(
                "{} begins, and the journal does not know it",
                incarnation.name
            )
        })
    }

    /// Checks the environment of a process that is started.
    pub(super) fn starts(&self, incarnation: &Incarnation, environment: &Environment) -> Checked {
        let given = self.environments.get(&incarnation.name);
        check(given == Some(environment), || {
            format!(
                "{} {} gets an environment that was not given for it",
                incarnation.name, incarnation.number
            )
        })
    }

    /// Checks a worker that begins something that an open gate lets through.
    pub(super) fn changes(&self, worker: &Worker) -> Checked {
        let name = &worker.incarnation.name;
        check(
            worker.plan.as_ref().is_none_or(|plan| plan.is_question),
            || format!("{name} changes something while its plan is unanswered"),
        )?;
        let seq = worker
            .directive
            .as_ref()
            .map_or(0, |directive| directive.seq);
        let gate = self.gates.get(&(name.clone(), seq));
        check(gate == Some(&Gate::Open), || {
            format!("{name} changes something, and its gate at {seq} was {gate:?}")
        })
    }

    /// Checks that the daemon's state is what its journal says, and that derived records have lines
    /// of their own.
    pub(super) fn agrees_with(&self, team: &Team) -> Checked {
        let mut team = team.clone();
        team.mark_done(team.seq);
        check(team == self.fold, || {
            "the daemon's state is not what its journal says".to_owned()
        })?;
        for (id, request) in &self.fold.requests {
            let told = self.told_status.get(id);
            check(told == Some(&request.status), || {
                format!(
                    "{id} is {:?}, and its last line says {told:?}",
                    request.status
                )
            })?;
        }
        Ok(())
    }
}

pub(super) fn check(checked: bool, why: impl FnOnce() -> String) -> Checked {
    if checked { Ok(()) } else { Err(why()) }
}

fn is_read_as_it_was_written(line: &Line) -> Checked {
    let text = serde_json::to_string(line)
        .map_err(|e| format!("line {} cannot be written: {e}", line.seq))?;
    let read: Line = serde_json::from_str(&text)
        .map_err(|e| format!("line {} cannot be read: {e}", line.seq))?;
    check(read == *line, || {
        format!("line {} is read as another one: {text}", line.seq)
    })
}
