//! Every decision of the daemon: from the state and one event to journal records and actions. Pure.
//!
//! No decision asks a model, a clock or a file: what it must know comes in with the event. The
//! functions only read the state; [`Team::apply`] changes it, from the records that they return.

mod ends;
mod hosts;
mod jobs;
mod members;
mod memory;
mod orders;
mod plans;
mod shutdowns;
mod silence;
mod tasks;
mod workers;

#[cfg(test)]
mod tests;

pub(crate) use members::called_off;

use teamd_shared::control::{Command, Done, IntegrationOrder, Refusal, RefusalCode};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::inbox::Unread;
use teamd_shared::job::JobReport;
use teamd_shared::journal::{
    Line, MemberEvent, MemberRecord, Notice, Record, RequestEvent, RequestRecord, TaskRecord, Team,
    TeamEvent, TeamRecord,
};
use teamd_shared::member::{Ending, Member};
use teamd_shared::message::LEAD;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};
use teamd_shared::suggest;
use uuid::Uuid;

use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::{Action, Event, Now};
use crate::core::incarnation::Incarnation;
use crate::core::job::JobPlaces;
use crate::core::notices::messages;
use crate::core::runtime::{DecisionRules, Runtime};

/// What was decided: the records go into the journal, then the actions are performed.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Decision {
    pub(crate) records: Vec<Record>,
    pub(crate) actions: Vec<Action>,
}

/// What a decision rests on.
pub(crate) struct DecisionView<'a> {
    pub(crate) team: &'a Team,
    pub(crate) runtime: &'a Runtime,
    pub(crate) now: Now,
    pub(crate) rules: DecisionRules,
    pub(crate) places: &'a JobPlaces,
    /// What the job reports that this decision needed.
    pub(crate) prepared: Option<&'a JobReport>,
    /// What the member has not read that this decision forgets, or takes for lost.
    pub(crate) unread: &'a Unread,
}

/// Decides what follows from an event.
pub(crate) fn decide(view: &DecisionView<'_>, event: &Event, ids: &mut dyn Ids) -> Decision {
    match event {
        Event::Command(client, by, command) => {
            or_refuse(*client, view.command(*client, by, command, ids))
        }
        Event::JobEnded { job, ended } => view.job_ended(*job, ended, ids),
        Event::Spawn(client, id, order, facts) => {
            or_refuse(*client, view.spawn(*client, (id, order), facts, ids))
        }
        Event::Greeted { incarnation } => view.greeted(incarnation),
        Event::Connected {
            incarnation, state, ..
        } => view.connected(incarnation, state).and(view.offer_later()),
        Event::Said { incarnation, state } => {
            let answer = if state.doubts > 0 {
                view.directed(incarnation)
            } else {
                Decision::default()
            };
            let decision = answer.and(view.said(incarnation, state));
            decision
                .and(view.remind(incarnation, ids))
                .and(view.offer_later())
        }
        Event::Submitted {
            incarnation,
            request_id,
            line,
        } => view.submitted(incarnation, request_id, line),
        Event::Leaving { incarnation } => view.leaving(incarnation),
        // What it says is recorded with its end.
        Event::Disconnected { .. }
        | Event::Unable { .. }
        | Event::OtherModels { .. }
        | Event::Compacted { .. } => Decision::default(),
        Event::Started {
            incarnation,
            process,
            cgroup,
        } => view.started(incarnation, (process, cgroup.as_ref()), ids),
        Event::Found { incarnation } => view.found(incarnation),
        Event::Reached {
            incarnation,
            process,
        } => view.reached(incarnation, process, ids),
        Event::Link { host, link } if link.is_up() => view.keep_what_waited(host),
        Event::Link { .. } => Decision::default(),
        Event::Ended { incarnation, ended } => view.ended(incarnation, ended, ids),
        Event::LeadRead { rejected, .. } if rejected.is_empty() => Decision::default(),
        Event::LeadRead { rejected, .. } => {
            let tell = vec![Notice {
                to: Name::lead(),
                id: ids.message(),
            }];
            let record = TeamRecord {
                rejected: rejected.clone(),
                tell,
                ..view.team_record(TeamEvent::Read)
            };
            Decision::default().record(Record::Team(Box::new(record)))
        }
        Event::Restored { what } => {
            let running: Vec<&str> = view.alive().map(|member| member.name.as_str()).collect();
            let content = format!(
                "another process had changed the files of the team: {what}. Without namespaces a command of a teammate can do \
                 that (running: {}), and so can every program of this user.",
                running.join(", ")
            );
            let tell = vec![Notice {
                to: Name::lead(),
                id: ids.message(),
            }];
            let record = view.team_record(TeamEvent::Restored);
            Decision::default().record(Record::Team(Box::new(TeamRecord {
                content: Some(content),
                tell,
                ..record
            })))
        }
        Event::WrongCodes { content } => {
            Decision::default().record(Record::Team(Box::new(TeamRecord {
                content: Some(content.clone()),
                ..view.team_record(TeamEvent::Noted)
            })))
        }
        Event::Pong { incarnation, .. } => view.pong(incarnation, ids),
        Event::Silent { incarnation } => view.silent(incarnation, ids),
        Event::Integrate => view.integrate_next(),
        Event::Review { task } => view.review(*task, ids),
        Event::Offer => view.offer(ids),
        Event::Orders => view.orders(ids),
        Event::Deadline => view.deadline(ids),
        Event::Remind { incarnation } => view.remind(incarnation, ids),
        Event::Forced { incarnation } => view.terminate_incarnation(incarnation, Ending::Force),
        Event::Terminate => view.terminate(ids),
    }
}

impl DecisionView<'_> {
    fn command(
        &self,
        client: ReplyTo,
        by: &Actor,
        command: &Command,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        may_ask(by, command)?;
        match command {
            Command::Spawn { id, order } => self.look_for_spawn(client, id, order),
            Command::Shutdown(order) => self.shutdown(client, order, ids),
            Command::Answer {
                request_id,
                approve,
                feedback,
                permissions,
            } => {
                let answer = (request_id, *approve, feedback.as_str(), *permissions);
                self.answer(client, by, answer, ids)
            }
            Command::ApprovePlan(approval) => self.approve_plan(client, by, approval, ids),
            Command::RequestPlan {
                id,
                name,
                content,
                wait,
            } => self.request_plan(client, (id, name, content, *wait), ids),
            Command::Interrupt { name, asked_at } => self.interrupt(client, name, *asked_at),
            Command::Compact { id, name } => self.compact(client, id, name),
            Command::Forget { name, discard } => self.forget(client, name, *discard),
            Command::Stop { force } => Ok(self.stop(client, *force, ids)),
            Command::AwaitVerdict { request_id } => self.await_verdict(client, request_id),
            Command::AwaitQuiet { goal } => {
                Ok(Decision::default().act(Action::WaitForQuiet(client, *goal)))
            }
            Command::Task(order) => self.task(client, by, order, ids),
            Command::Integration(order) => self.integration(client, order, ids),
            Command::Remember { id, text } => self.remember(client, by, (id, text), ids),
            Command::ForgetMemory { request_id } => self.forget_memory(client, request_id),
            Command::AddHost(host) => self.add_host(client, host, ids),
            Command::RemoveHost { name } => self.remove_host(client, name),
            Command::Lose { name } => self.lose(client, name, ids),
            Command::TakeHost { name } => self.take_host(client, name),
            Command::Hosts => {
                let answer = Ok(Done::Hosts(self.hosts()));
                Ok(Decision::default().act(Action::Reply(client, answer)))
            }
            // These ask the process, not the team. The event loop answers them, also while nothing
            // can be journaled.
            Command::Ping
            | Command::Leads
            | Command::LeadRead { .. }
            | Command::AwaitEvents
            | Command::ShowCodes
            | Command::GiveCode(_)
            | Command::McpServers
            | Command::AwaitDelivery { .. }
            | Command::HostLog { .. }
            | Command::HandOver(_) => Ok(Decision::default()),
        }
    }

    /// Returns a member that has not ended.
    fn running(&self, name: &Name) -> Result<&Member, Refusal> {
        let member = self.known(name)?;
        if member.phase.is_ended() {
            let hint = if *name == Name::lead() {
                "`teamctl chat` starts it".to_owned()
            } else {
                format!("`teamctl spawn {name} --resume` continues its conversation")
            };
            return Err(conflict(format!("{name} is not running"), hint));
        }
        Ok(member)
    }

    /// Returns a member of the roster.
    fn known(&self, name: &Name) -> Result<&Member, Refusal> {
        self.team
            .members
            .get(name)
            .map(|state| &state.record)
            .ok_or_else(|| {
                let names = self.team.members.keys().map(Name::as_str);
                let (wrong, hint) = suggest::unknown_teammate(name.as_str(), names);
                Refusal::new(RefusalCode::NotFound, wrong).hint(hint)
            })
    }

    /// Returns the record of an incarnation, if it is the member's present one and has not ended.
    fn present(&self, incarnation: &Incarnation) -> Option<&Member> {
        let member = &self.team.members.get(&incarnation.name)?.record;
        (member.incarnation == incarnation.number && !member.phase.is_ended()).then_some(member)
    }

    fn alive(&self) -> impl Iterator<Item = &Member> {
        self.team
            .members
            .values()
            .map(|state| &state.record)
            .filter(|member| !member.phase.is_ended())
    }

    fn team_record(&self, event: TeamEvent) -> TeamRecord {
        TeamRecord::of(event, self.team.team_name.clone(), self.team.daemon.clone())
    }

    /// Refuses a decision with an inbox line that could not be written: the effects of a record
    /// must be possible.
    fn fits(&self, decision: Decision) -> Result<Decision, Refusal> {
        for record in &decision.records {
            let line = Line {
                seq: 0,
                at: self.now.wall,
                version: None,
                done: 0,
                lead: None,
                record: record.clone(),
            };
            for (_, message) in messages(&line) {
                message.to_line().map_err(|error| {
                    Refusal::new(RefusalCode::Usage, error.to_string())
                        .hint("write the text to a file in the workspace, and send its path")
                })?;
            }
        }
        Ok(decision)
    }

    /// Returns a request that begins: the lead asks a member to leave, or a member asks the lead.
    fn pending(
        &self,
        request_id: RequestId,
        (name, incarnation): (&Name, u32),
        payload: Payload,
        message_id: Uuid,
    ) -> Request {
        let lead = LEAD.to_owned();
        let name = name.to_string();
        let (kind, from, to) = match payload {
            Payload::Shutdown { .. } => (Kind::Shutdown, lead, name),
            Payload::Plan { .. } => (Kind::PlanApproval, name, lead),
            Payload::Review(_) => (Kind::Review, name, lead),
            Payload::Permission { .. } => (Kind::Permission, name, lead),
            Payload::Memory { .. } => (Kind::Memory, name, lead),
        };
        Request {
            request_id,
            kind,
            from,
            to,
            status: Status::Pending,
            payload,
            incarnation,
            message_id,
            created_at: self.now.wall,
            resolved_at: None,
            reason: None,
            answered_by: None,
            agent: false,
            permissions: None,
            answered_from: None,
        }
    }

    fn updated(&self, member: &Member) -> Member {
        Member {
            updated_at: self.now.wall,
            ..member.clone()
        }
    }
}

impl Decision {
    fn record(mut self, record: Record) -> Self {
        self.records.push(record);
        self
    }

    fn member(self, event: MemberEvent, member: Member) -> Self {
        self.record(Record::Member(Box::new(MemberRecord::of(event, member))))
    }

    fn request(self, event: RequestEvent, request: Request, tell: Vec<Notice>) -> Self {
        self.record(Record::Request(Box::new(RequestRecord {
            tell,
            ..RequestRecord::of(event, request)
        })))
    }

    fn task(self, record: TaskRecord) -> Self {
        self.record(Record::Task(Box::new(record)))
    }

    fn act(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }

    fn and(mut self, other: Self) -> Self {
        self.records.extend(other.records);
        self.actions.extend(other.actions);
        self
    }
}

/// Turns a refusal into the decision that only answers with it.
fn or_refuse(client: ReplyTo, decision: Result<Decision, Refusal>) -> Decision {
    decision.unwrap_or_else(|refusal| Decision::default().act(Action::Reply(client, Err(refusal))))
}

/// Makes the refusal of what does not fit the present state.
fn conflict(message: impl Into<String>, hint: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Conflict, message).hint(hint)
}

/// Tells whether one may ask for something: the lead agent may what its tools do, and any other
/// teammate works with tasks alone.
fn may_ask(by: &Actor, command: &Command) -> Result<(), Refusal> {
    if let Actor::RunByLead(lead) = by {
        let message =
            format!("a person decides, and this command runs below {lead}, which leads the team");
        return Err(Refusal::new(RefusalCode::Rejected, message).hint(
            "answer in a terminal that it has not opened, or when it has ended: `teamctl requests` shows what waits",
        ));
    }
    let is_person = matches!(by, Actor::Person | Actor::PersonAnswers { .. });
    let is_for_all = matches!(command, Command::Task(_) | Command::Remember { .. });
    if is_person || is_for_all {
        return Ok(());
    }
    if by.is_teammate() {
        return Err(conflict(
            "only the lead agent asks for something",
            "write to the lead",
        ));
    }
    match command {
        Command::Shutdown(order) if order.force_after.is_some() => Err(conflict(
            "the lead agent ends no teammate by force",
            "a person does with `teamctl shutdown NAME --force`",
        )),
        Command::Spawn { .. }
        | Command::Shutdown(_)
        | Command::Answer { .. }
        | Command::ApprovePlan(_)
        | Command::RequestPlan { .. }
        | Command::AwaitVerdict { .. }
        | Command::Integration(IntegrationOrder::DiffOfTask(_)) => Ok(()),
        Command::Ping
        | Command::Leads
        | Command::LeadRead { .. }
        | Command::AwaitEvents
        | Command::ShowCodes
        | Command::GiveCode(_)
        | Command::McpServers
        | Command::HandOver(_)
        | Command::Interrupt { .. }
        | Command::Compact { .. }
        | Command::Forget { .. }
        | Command::Integration(_)
        | Command::Task(_)
        | Command::Remember { .. }
        | Command::ForgetMemory { .. }
        | Command::AddHost(_)
        | Command::RemoveHost { .. }
        | Command::Lose { .. }
        | Command::Hosts
        | Command::AwaitDelivery { .. }
        | Command::TakeHost { .. }
        | Command::HostLog { .. }
        | Command::AwaitQuiet { .. }
        | Command::Stop { .. } => Err(conflict(
            "that is not for the lead agent to do",
            "a person does it with `teamctl` or `teamd`",
        )),
    }
}
