//! What the dispatcher's decisions are done with, each part by its owner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use teamd_shared::check::CheckOrder;
use teamd_shared::clock;
use teamd_shared::control::{self, ToWorker};
use teamd_shared::environment::Environment;
use teamd_shared::id::RandomIds;
use teamd_shared::job::{GitStep, JobOrder};
use teamd_shared::journal::{Line, MemberEvent, Record, RequestEvent, Team};
use teamd_shared::member::{ApproveBy, Member, Sandbox, Terms};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::task::{Task, TaskId};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::checkouts::{Checkouts, GitJob, checkout_of};
use super::connections::{Connections, Inputs, serve_inherited};
use super::effects::Effects;
use super::hooks::{Hook, Hooks};
use super::jobs::{EndedJob, Job, Jobs, Key, Purpose};
use super::journal::Journal;
use super::roster_file::RosterFile;
use super::task_files::TaskFiles;
use super::workers::{StartedWorker, Supervisor};
use crate::core::decide::{Decision, View, decide};
use crate::core::dispatcher::RETRY;
use crate::core::event::{Event, Incarnation, Now};
use crate::core::live::Live;
use crate::core::owners::{Failed, NotWritten, Owners};

/// The owners of what the daemon decides about.
pub(crate) struct Owned {
    pub(crate) dir: Arc<TeamDir>,
    pub(crate) journal: Journal,
    pub(crate) effects: Effects,
    pub(crate) roster: RosterFile,
    /// Why the roster cannot be written now, if it cannot.
    pub(crate) roster_trouble: Option<String>,
    pub(crate) supervisor: Supervisor,
    pub(crate) connections: Connections,
    pub(crate) jobs: Jobs,
    /// The jobs that have ended, or could not be started.
    pub(crate) ended_jobs: Vec<EndedJob>,
    pub(crate) checkouts: Checkouts,
    pub(crate) task_files: TaskFiles,
    /// Where connections report to.
    pub(crate) inputs: Inputs,
    pub(crate) began: Instant,
    pub(crate) hooks: Hooks,
    /// The lines of which hooks are still to be told.
    pub(crate) news: Vec<Record>,
}

impl Owners for Owned {
    fn has_unread(&mut self, name: &Name, read: u64) -> bool {
        self.dir
            .path(&TeamPath::inbox(name))
            .metadata()
            .is_ok_and(|inbox| inbox.len() > read)
    }

    fn now(&self) -> Now {
        Now {
            wall: clock::wall(),
            monotonic: self.began.elapsed(),
        }
    }

    fn decide(&mut self, view: &View<'_>, event: &Event) -> Decision {
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

    fn complete(&mut self, team: &Team, again: bool) -> Result<(), Failed> {
        self.effects.complete(team, again)
    }

    fn finish_effects(&mut self) -> Result<u64, Failed> {
        self.effects.finish()
    }

    fn start(&mut self, member: &Member, environment: &Environment) -> Event {
        let incarnation = Incarnation::of(member);
        match self.try_start(&incarnation, member, environment) {
            Ok(StartedWorker { identity, cgroup }) => Event::Started {
                incarnation,
                process: Ok(identity),
                cgroup,
            },
            Err(why) => {
                tracing::error!("cannot start {}: {why}", incarnation.name);
                Event::not_started(incarnation, &why)
            }
        }
    }

    fn terminate(&mut self, incarnation: &Incarnation) {
        self.supervisor.terminate(incarnation);
    }

    fn kill(&mut self, incarnation: &Incarnation) {
        self.supervisor.kill(incarnation);
    }

    fn say(&mut self, incarnation: &Incarnation, frame: ToWorker) {
        self.connections.say(incarnation, frame);
    }

    fn check(&mut self, team: &Team, task: &Task, environment: Option<&Environment>) {
        let Some(submission) = &task.submission else {
            return;
        };
        let purpose = Purpose::Check {
            task: task.id,
            number: submission.number,
        };
        if self.jobs.has(&purpose) {
            return;
        }
        let author = team
            .members
            .get(&submission.by)
            .map(|state| &state.record.terms);
        let here = self.dir.workspace().to_string_lossy().into_owned();
        let sandbox = author
            .map(|terms| terms.sandbox.clone())
            .unwrap_or_default();
        let order = CheckOrder {
            task: task.id,
            number: submission.number,
            commands: submission
                .checks
                .iter()
                .map(|check| check.command.clone())
                .collect(),
            workspace: author.map_or_else(|| here.clone(), |terms| terms.workspace.clone()),
            checkout: author.and_then(|terms| terms.checkout.clone()),
            timeout: team.work.timeout().as_secs_f64(),
            environment: environment.cloned().unwrap_or_else(Environment::of_self),
            sandbox: Sandbox {
                writable: Vec::new(),
                no_network: !team.work.check_network,
                ..sandbox
            },
            bounds: author.map(|terms| terms.bounds).unwrap_or_default(),
            territory: team
                .territory()
                .map(|(path, _)| path.to_string_lossy().into_owned())
                .collect(),
            protect: team.work.protect.clone(),
            protect_in: here,
            protected: task.protected.clone(),
        };
        match &submission.commit {
            Some(commit) => self.prepare(team, (task, commit), order, purpose),
            None => self.add_job(Job {
                keys: vec![Key::InPlace, Key::Task(task.id)],
                order: JobOrder::Check(Box::new(order)),
                purpose,
            }),
        }
    }

    fn integrate(&mut self, team: &Team, task: &Task) {
        let Some(submission) = &task.submission else {
            return;
        };
        let Some(merged) = submission.merged.clone() else {
            return;
        };
        let purpose = Purpose::Integrate {
            task: task.id,
            number: submission.number,
        };
        if !self.jobs.has(&purpose) {
            let step = GitStep::Integrate {
                merged,
                cache: team.work.cache.clone(),
            };
            self.add_integration_job(team, step, purpose);
        }
    }

    fn end_check(&mut self, task: TaskId) {
        self.jobs.end_check(task);
    }

    fn offer(
        &mut self,
        team: &Team,
        (name, task): (&Name, TaskId),
        environment: Option<&Environment>,
    ) {
        let Some(checkout) = checkout_of(team, name) else {
            return;
        };
        let step = GitStep::Branch {
            root: checkout.root.clone(),
            task,
        };
        let purpose = Purpose::Offer(name.clone(), task);
        let name = name.clone();
        let environment = environment.cloned();
        self.add_git_job(
            team,
            GitJob {
                name,
                environment,
                step,
                purpose,
                task: Some(task),
                visible: Vec::new(),
            },
        );
    }

    fn keep(&mut self, team: &Team, (name, task): (&Name, Option<TaskId>)) {
        let Some(checkout) = checkout_of(team, name) else {
            return;
        };
        let step = GitStep::Keep {
            root: checkout.root.clone(),
            task,
            submit: false,
        };
        let purpose = Purpose::Keep(name.clone());
        let name = name.clone();
        self.add_git_job(
            team,
            GitJob {
                name,
                environment: None,
                step,
                purpose,
                task,
                visible: Vec::new(),
            },
        );
    }

    fn show_tasks(&mut self, tasks: &[&Task]) {
        self.task_files.show(&self.dir, tasks);
    }

    fn show(&mut self, team: &Team, live: &Live, names: &BTreeSet<Name>) {
        let wall = Some(self.now().wall);
        for name in names.iter() {
            self.roster.show((team, live), name, wall);
        }
        for record in std::mem::take(&mut self.news).iter() {
            self.run_hook(team, record);
        }
    }

    fn write_roster(&mut self, team: &Team) -> Result<(), Failed> {
        let Err(error) = self.roster.flush(&self.dir, team) else {
            self.roster_trouble = None;
            return Ok(());
        };
        tracing::error!("cannot write the roster (tried again): {error}");
        self.roster_trouble = Some(format!("cannot write the roster: {error}"));
        self.roster.postpone(RETRY);
        Err(Failed)
    }
}

/// Tells whether it is the end of an incarnation, or a plan or work that is submitted to be judged.
fn is_for_a_hook(record: &Record) -> bool {
    match record {
        Record::Member(it) => it.event == MemberEvent::Exited,
        Record::Request(it) => it.event == RequestEvent::Asked && it.request.kind.is_judged(),
        Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => false,
    }
}

impl Owned {
    /// Runs the hook of a record that is in the journal.
    fn run_hook(&mut self, team: &Team, record: &Record) {
        match record {
            Record::Member(it) => {
                let facts = json!({"exit": it.member.exit});
                self.run_hook_of(Hook::End, team, &it.member, facts);
            }
            Record::Request(it) => {
                let author = team
                    .members
                    .iter()
                    .find(|(name, _)| name.as_str() == it.request.member());
                let author = author.map(|(_, state)| &state.record);
                if team.judge_of(&it.request) == ApproveBy::Person
                    && let Some(author) = author
                {
                    let facts = json!({"request": it.request});
                    self.run_hook_of(Hook::Request, team, author, facts);
                }
            }
            Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => {}
        }
    }

    /// Runs the hook of a piece of work that has ended, as its teammate has told the lead.
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

    fn try_start(
        &mut self,
        incarnation: &Incarnation,
        member: &Member,
        environment: &Environment,
    ) -> Result<StartedWorker, String> {
        // The connection comes first: if it cannot be made, no process must be ended.
        let connected = control::pair().and_then(|(ours, theirs)| {
            Ok((
                serve_inherited(ours, incarnation.clone(), &self.inputs)?,
                theirs,
            ))
        });
        let ((connection, outbound), theirs) =
            connected.map_err(|error| format!("cannot make its connection: {error}"))?;
        let started = self.supervisor.start(member, environment, theirs)?;
        self.connections
            .add_worker(incarnation.clone(), connection, outbound);
        Ok(started)
    }
}
