//! The resources with which the dispatcher's decisions are carried out.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use teamd_shared::clock;
use teamd_shared::control::{self, SpawnOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::RandomIds;
use teamd_shared::inbox::{ReadError, Unread, last_lines, look_at_unread, position_at};
use teamd_shared::job::JobOrder;
use teamd_shared::journal::{Line, MemberEvent, Record, RequestEvent, Team};
use teamd_shared::link::ToHost;
use teamd_shared::member::{ApproveBy, Member, Terms};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::repository::cannot_commit;
use teamd_shared::request::Request;
use teamd_shared::task::Task;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::approve_codes::ApproveCodes;
use super::checkouts::resolve_visible;
use super::connections::{Connections, serve_inherited};
use super::effects::Effects;
use super::hooks::{CODE, Hook, Hooks};
use super::input::Inputs;
use super::jobs::{JobMeans, JobRunner};
use super::journal::Journal;
use super::links::{Links, whose};
use super::lock::liveness_lock_holder;
use super::memory_file::MemoryFile;
use super::roster_file::RosterFile;
use super::task_files::TaskFiles;
use super::workers::{StartedWorker, Supervisor};
use crate::core::decide::{Decision, DecisionView, decide};
use crate::core::dispatcher::RETRY;
use crate::core::event::{Action, Event, Now, Ordered};
use crate::core::incarnation::Incarnation;
use crate::core::io::{Io, IoFailed, NotWritten};
use crate::core::job::SpawnFacts;
use crate::core::runtime::{Runtime, members_of};

/// Everything that the daemon acts on, one field for each resource.
pub(crate) struct DaemonResources {
    pub(crate) dir: Arc<TeamDir>,
    pub(crate) journal: Journal,
    pub(crate) effects: Effects,
    pub(crate) roster: RosterFile,
    /// Why the roster cannot be written now, if it cannot.
    pub(crate) roster_trouble: Option<String>,
    pub(crate) supervisor: Supervisor,
    pub(crate) connections: Connections,
    pub(crate) links: Links,
    pub(crate) jobs: JobRunner,
    pub(crate) task_files: TaskFiles,
    pub(crate) memory_file: MemoryFile,
    /// Where connections report to.
    pub(crate) inputs: Inputs,
    pub(crate) began: Instant,
    pub(crate) hooks: Hooks,
    pub(crate) codes: ApproveCodes,
    /// The records that hooks are still to be run for.
    pub(crate) news: Vec<Record>,
}

impl DaemonResources {
    /// Returns the jobs, and what starts their processes.
    pub(crate) fn jobs(&mut self) -> (&mut JobRunner, JobMeans<'_>) {
        let means = JobMeans {
            supervisor: &mut self.supervisor,
            links: &mut self.links,
            inputs: &self.inputs,
        };
        (&mut self.jobs, means)
    }
}

impl Io for DaemonResources {
    fn has_unread(&mut self, name: &Name, read: u64) -> bool {
        self.dir
            .path(&TeamPath::inbox(name))
            .metadata()
            .is_ok_and(|inbox| inbox.len() > read)
    }

    fn unread_mail(&mut self, name: &Name, from: Position) -> Unread {
        match look_at_unread(&self.dir, name, from, None) {
            Ok(unread) => unread,
            Err(ReadError::NoInbox(_)) => Unread::default(),
            Err(error) => {
                tracing::warn!("the unread mail of {name} cannot be read: {error}");
                Unread::default()
            }
        }
    }

    fn position_at(&mut self, name: &Name, offset: u64) -> Position {
        position_at(&self.dir, name, offset).unwrap_or_else(|error| {
            tracing::warn!("the inbox of {name} cannot be read: {error}");
            Position::START
        })
    }

    fn now(&self) -> Now {
        Now {
            wall: clock::wall(),
            monotonic: self.began.elapsed(),
            since_boot: clock::since_boot(),
        }
    }

    fn decide(&mut self, view: &DecisionView<'_>, event: &Event) -> Decision {
        decide(view, event, &mut RandomIds)
    }

    fn append(&mut self, lines: &[Line]) -> Result<(), NotWritten> {
        self.roster.touch();
        self.journal
            .append(&self.dir, lines)
            .map_err(|error| self.journal.after_failure(&error))?;
        self.news.extend(
            lines
                .iter()
                .map(|line| &line.record)
                .filter(|record| is_for_a_hook(record))
                .cloned(),
        );
        Ok(())
    }

    fn complete(&mut self, team: &Team, again: bool) -> Result<(), IoFailed> {
        self.effects.complete(team, again)
    }

    fn finish_effects(&mut self) -> Result<u64, IoFailed> {
        self.effects.finish()
    }

    fn perform(&mut self, team: &Team, action: &Action) -> Vec<Event> {
        match action {
            Action::Start(incarnation, ordered) => {
                let member = team.members.get(&incarnation.name);
                let (Some(member), Some(ordered)) = (member, ordered) else {
                    return Vec::new();
                };
                return match &member.record.terms.host {
                    Some(host) => self.start_there(host, &member.record, ordered),
                    None => vec![self.start(incarnation, &member.record, &ordered.environment)],
                };
            }
            Action::Say(incarnation, frame) => {
                // What is said to it does not overtake its mail.
                if let Some(host) = host_of(team, incarnation) {
                    self.links.pump(host, &incarnation.name);
                }
                self.connections.say(incarnation, frame.clone());
            }
            Action::Terminate(incarnation) => match host_of(team, incarnation) {
                Some(host) => self.links.say(host, ToHost::Terminate(whose(incarnation))),
                None => self.supervisor.terminate(incarnation),
            },
            Action::Kill(incarnation) => match host_of(team, incarnation) {
                Some(host) => self.links.say(host, ToHost::Kill(whose(incarnation))),
                None => self.supervisor.kill(incarnation),
            },
            Action::Dial(host) => {
                if let Some(hosts) = &team.hosts {
                    self.links.dial(hosts.home, host);
                }
            }
            Action::HangUp(host) => {
                self.links.hang_up(host);
                self.jobs.hosted.link_broke(host);
                for member in members_of(team, host) {
                    self.connections.forget(&Incarnation::of(member));
                }
            }
            Action::TakeOver(host) => self.links.take_over(host),
            Action::Look(client, id, order, terms) => {
                let facts = self.spawn_facts(order, terms);
                return vec![Event::Spawn(*client, id.clone(), order.clone(), facts)];
            }
            Action::Run(job, order) => {
                let mut order = order.clone();
                if let JobOrder::Git(git) = &mut order {
                    resolve_visible(git);
                }
                let (jobs, mut means) = self.jobs();
                return jobs.add(*job, order, &mut means);
            }
            Action::EndJob(job) => {
                let (jobs, mut means) = self.jobs();
                return jobs.end(*job, &mut means);
            }
            // The dispatcher does these itself.
            Action::Welcome(_)
            | Action::Begin(_)
            | Action::CallOff(_)
            | Action::Check(_)
            | Action::CheckAgain(_)
            | Action::EndCheck(_)
            | Action::IntegrateNext
            | Action::Offer
            | Action::Keep(..)
            | Action::Reply(..)
            | Action::Wait(..)
            | Action::WaitForLink(..)
            | Action::WaitForStop(_)
            | Action::WaitForQuiet(..)
            | Action::RejectStop => {}
        }
        Vec::new()
    }

    fn show_tasks(&mut self, tasks: &[&Task]) {
        self.task_files.show(&self.dir, tasks);
    }

    fn show(&mut self, team: &Team, runtime: &Runtime, names: &BTreeSet<Name>) {
        let wall = Some(self.now().wall);
        for name in names.iter() {
            if !team.members.contains_key(name) {
                self.links.forget(name);
            }
            self.roster.show((team, runtime), name, wall);
        }
        for record in std::mem::take(&mut self.news).iter() {
            self.run_hook(team, record);
        }
    }

    fn write_roster(&mut self, team: &Team) -> Result<(), IoFailed> {
        let Err(error) = self.roster.flush(&self.dir, team) else {
            self.roster_trouble = None;
            self.links.roster_is_new = true;
            return Ok(());
        };
        tracing::error!("cannot write the roster (tried again): {error}");
        self.roster_trouble = Some(format!("cannot write the roster: {error}"));
        self.roster.postpone(RETRY);
        Err(IoFailed)
    }
}

/// Returns the host of an incarnation; none: home.
fn host_of<'t>(team: &'t Team, incarnation: &Incarnation) -> Option<&'t Name> {
    let state = team.members.get(&incarnation.name)?;
    state.record.terms.host.as_ref()
}

/// Tells whether it is the end of an incarnation, a plan or work that is submitted to be judged, or
/// the answer to that from a process that is to be shown.
fn is_for_a_hook(record: &Record) -> bool {
    match record {
        Record::Member(it) => it.event == MemberEvent::Exited,
        Record::Request(it) if !it.request.kind.is_judged() => false,
        Record::Request(it) => match it.event {
            RequestEvent::Asked => true,
            RequestEvent::Approved | RequestEvent::Rejected => it.request.answered_from.is_some(),
            RequestEvent::Joined | RequestEvent::Expired => false,
        },
        Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => false,
    }
}

impl DaemonResources {
    /// Runs the hook of a record that is in the journal.
    fn run_hook(&mut self, team: &Team, record: &Record) {
        match record {
            Record::Member(it) => {
                let facts = json!({"exit": it.member.exit});
                self.run_hook_of(Hook::End, team, &it.member, facts);
            }
            Record::Request(it) if it.event == RequestEvent::Asked => {
                self.show_request(team, &it.request);
            }
            Record::Request(it) => {
                let author = team
                    .members
                    .iter()
                    .find(|(name, _)| name.as_str() == it.request.member());
                let author = author.map(|(_, state)| &state.record);
                if let Some(author) = author {
                    let facts = json!({"request": it.request});
                    self.run_hook_of(Hook::Answer, team, author, facts);
                }
            }
            Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => {}
        }
    }

    /// Runs the hook of a request that waits for a person.
    pub(crate) fn show_request(&mut self, team: &Team, request: &Request) {
        let author = team
            .members
            .iter()
            .find(|(name, _)| name.as_str() == request.member());
        if team.judge_of(request) == ApproveBy::Person
            && let Some((_, state)) = author
        {
            let mut facts = json!({"request": request});
            if let Some(hash) = request.plan_sha256() {
                facts["plan_sha256"] = json!(hash);
            }
            if let Some(code) = self.codes.of(&request.request_id) {
                facts[CODE] = json!(code);
            }
            self.run_hook_of(Hook::Request, team, &state.record, facts);
        }
    }

    /// Runs the hook of a piece of work that has ended, by the notice of its teammate to the lead.
    pub(crate) fn work_ended(&mut self, team: &Team, notice: &Message) {
        let author = team
            .members
            .iter()
            .find(|(name, _)| name.as_str() == notice.from);
        if let Some((_, state)) = author {
            self.run_hook_of(
                Hook::Idle,
                team,
                &state.record,
                json!({"message": notice.to_json()}),
            );
        }
    }

    fn run_hook_of(&mut self, hook: Hook, team: &Team, member: &Member, mut facts: Value) {
        let Terms {
            role,
            model,
            workspace,
            ..
        } = &member.terms;
        let of_member = json!({"at": clock::wall(), "team_name": team.team_name, "team_dir": self.dir.root(), "name": member.name,
            "role": role, "model": model, "workspace": workspace, "incarnation": member.incarnation});
        if let Some(it) = facts.as_object_mut() {
            it.extend(of_member.as_object().cloned().into_iter().flatten());
        }
        let territory: Vec<_> = team.territory().map(|(path, _)| path.to_owned()).collect();
        self.hooks.run(hook, &territory, facts);
    }

    fn start(
        &mut self,
        incarnation: &Incarnation,
        member: &Member,
        environment: &Environment,
    ) -> Event {
        let started = start_worker(
            &mut self.supervisor,
            &mut self.connections,
            &self.inputs,
            member,
            environment,
        );
        match started {
            Ok(StartedWorker { identity, cgroup }) => Event::Started {
                incarnation: incarnation.clone(),
                process: Ok(identity),
                cgroup,
            },
            Err(why) => {
                tracing::error!("cannot start {}: {why}", incarnation.name);
                Event::not_started(incarnation.clone(), &why)
            }
        }
    }

    /// Has an incarnation started on a host, which reports it.
    fn start_there(&mut self, host: &Name, member: &Member, ordered: &Ordered) -> Vec<Event> {
        let incarnation = Incarnation::of(member);
        match self.links.start(host, member, ordered) {
            Ok(Some(worker)) => {
                self.connections.add_linked(incarnation, worker);
                Vec::new()
            }
            // No command waits for one that follows a crash. It is tried again once the host has
            // said that it knows nothing of it: until then no attempt counts.
            Ok(None) if member.restarted > 0 => {
                let name = &member.name;
                tracing::info!("{name} begins again when {host} can be reached");
                Vec::new()
            }
            Ok(None) => {
                let why = format!("{host} cannot be reached");
                vec![Event::not_started(incarnation, &why)]
            }
            Err(why) => vec![Event::not_started(incarnation, &why)],
        }
    }

    fn spawn_facts(&self, order: &SpawnOrder, terms: &Terms) -> SpawnFacts {
        if terms.host.is_some() {
            return SpawnFacts {
                held: None,
                lead_inbox: Ok(None),
                cannot_commit: None,
            };
        }
        let begins = order.name == Name::lead() && !order.resume;
        SpawnFacts {
            held: liveness_lock_holder(&self.dir, &order.name),
            lead_inbox: if begins {
                end_of_lead_inbox(&self.dir).map(Some)
            } else {
                Ok(None)
            },
            cannot_commit: cannot_commit(Path::new(&terms.workspace)),
        }
    }
}

/// Starts the process of an incarnation, with a connection that it inherits.
pub(crate) fn start_worker(
    supervisor: &mut Supervisor,
    connections: &mut Connections,
    inputs: &Inputs,
    member: &Member,
    environment: &Environment,
) -> Result<StartedWorker, String> {
    let incarnation = Incarnation::of(member);
    // The connection comes first: if it cannot be made, no process must be ended.
    let connected = control::pair().and_then(|(ours, theirs)| {
        Ok((serve_inherited(ours, incarnation.clone(), inputs)?, theirs))
    });
    let ((connection, outbound), theirs) =
        connected.map_err(|error| format!("cannot make its connection: {error}"))?;
    let started = supervisor.start(member, environment, theirs)?;
    connections.add_worker(incarnation, connection, outbound);
    Ok(started)
}

/// Returns where a fresh lead agent begins to read: it must not consume the mail that people got
/// for months.
fn end_of_lead_inbox(dir: &TeamDir) -> Result<Position, String> {
    match last_lines(dir, &Name::lead(), 0) {
        Ok(last) => Ok(last.position),
        Err(ReadError::NoInbox(_)) => Ok(Position::START),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_lead_agent_begins_where_its_inbox_ends() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let inbox = TeamPath::inbox(&Name::lead());
        let nothing = Ok(Position::START);
        assert_eq!(end_of_lead_inbox(&dir), nothing, "there is no mail");
        teamd_shared::fs::replace(&dir, &inbox, b"{}\n{}\n").unwrap();
        assert_eq!(end_of_lead_inbox(&dir).unwrap().offset, 6);
        dir.remove(&inbox).unwrap();
        std::fs::create_dir(dir.path(&inbox)).unwrap();
        assert!(end_of_lead_inbox(&dir).is_err());
    }
}
