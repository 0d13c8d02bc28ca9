//! What only this run of the daemon knows: connections, what workers report, deadlines, jobs. Pure.
//!
//! Nothing in here needs a journal line: after a restart the workers report everything again.

mod deadlines;
mod gate;
mod hosts;
mod ladder;
mod member;
mod orders;
mod refusals;
mod watching;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use teamd_shared::control::ToWorker;
use teamd_shared::environment::Environment;
use teamd_shared::journal::Team;
use teamd_shared::member::{Doing, Gate, Member, RestartLimit};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;
use teamd_shared::usage::{OtherModels, Usage};

pub(crate) use self::hosts::members_of;
pub(crate) use self::ladder::{DueStep, is_needed};
pub(crate) use self::member::{MemberRuntime, WorkerLink};
use self::orders::OrderWatch;
use self::refusals::changes_tasks;
use crate::core::caller::ReplyTo;
use crate::core::event::{Event, Now};
use crate::core::host_link::HostLink;
use crate::core::incarnation::Incarnation;
use crate::core::job::PendingJobs;

/// How many workers take an inotify instance of their own; the daemon wakes the others. Linux
/// grants 128 to a user, and other programs need some (`inotify(7)`, `max_user_instances`).
const WATCHERS: usize = 32;

/// How many characters are kept of the reason that a worker gives.
const MOST_OF_A_REASON: usize = 500;

/// The settings that decisions rest on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionRules {
    /// Between the steps of the termination ladder.
    pub(crate) grace: Duration,
    /// How long a permission question waits for its answer.
    pub(crate) permission_timeout: Duration,
    /// How often a crashed teammate is started again.
    pub(crate) restart: RestartLimit,
    /// How long a worker that should answer may be silent; none: no worker is asked.
    pub(crate) watchdog: Option<Duration>,
    /// How many teammates may run when the lead agent spawns one, that one included.
    pub(crate) max_members: u32,
    /// The fewest lines of the journal between two snapshots.
    pub(crate) snapshot_lines: u64,
}

/// What a worker said to an earlier daemon.
#[derive(Debug, Clone)]
pub(crate) struct LastSaid {
    pub(crate) doing: Doing,
    pub(crate) usage: Usage,
    pub(crate) other_models: OtherModels,
    /// How far a worker on a host had read its inbox, in bytes.
    pub(crate) read: u64,
    /// The gate that a worker on a host had confirmed.
    pub(crate) gate: Option<Gate>,
}

/// The volatile state.
#[derive(Debug, Default)]
pub(crate) struct Runtime {
    members: BTreeMap<Name, MemberRuntime>,
    /// The links to the hosts.
    hosts: BTreeMap<Name, HostLink>,
    /// The members whose work could not be kept, since their hosts were not reached.
    unkept: BTreeSet<Name>,
    pub(crate) jobs: PendingJobs,
    /// How often in a row the check of a task, or its integration, could not be run.
    fruitless_checks: BTreeMap<TaskId, u32>,
    /// When an order may be due.
    pub(crate) orders: OrderWatch,
    /// How many signals to end the daemon has received.
    pub(crate) terminations: u32,
}

impl Runtime {
    /// Applies what an event reports, before anything is decided on it. What an event counts is
    /// applied later: an event that cannot be journaled comes again ([`Runtime::job_ended`]).
    pub(crate) fn apply(&mut self, team: &Team, event: &Event) {
        match event {
            Event::Connected {
                incarnation,
                environment,
                state,
            } if is_present(team, incarnation) => {
                let worker = self.enter(incarnation);
                worker.link = WorkerLink::Open;
                worker.watch.connected();
                if let Some(environment) = environment
                    && !mutant::is_on("environment-dropped")
                {
                    worker.environment = Some(environment.clone());
                }
                worker.report(state);
                worker.gate.begin_connection();
            }
            Event::Reached { incarnation, .. } if is_present(team, incarnation) => {
                let worker = self.enter(incarnation);
                if worker.link == WorkerLink::Closed {
                    worker.link = WorkerLink::Inherited;
                }
                worker.watch.connected();
            }
            Event::Greeted { incarnation } => {
                if let Some(worker) = self.of_mut(incarnation)
                    && worker.link == WorkerLink::Inherited
                {
                    worker.link = WorkerLink::Open;
                }
            }
            Event::Said { incarnation, state } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.report(state);
                    worker.watch.heard();
                }
            }
            Event::OtherModels {
                incarnation,
                models,
                all,
            } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.other_models = models.clone();
                    // A report that is sent once more may be older than the state.
                    if !all.beyond(&worker.state.usage).is_nothing() {
                        worker.state.usage = *all;
                    }
                }
            }
            Event::Compacted {
                incarnation,
                id,
                outcome,
            } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.compacted.insert(id.clone(), outcome.clone());
                }
            }
            Event::Pong {
                incarnation,
                number,
            } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.watch.pong(*number);
                }
            }
            Event::Unable { incarnation, why } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.unable = Some(first_line(why));
                }
            }
            Event::Disconnected { incarnation } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.link = WorkerLink::Closed;
                }
            }
            // If it could not be journaled at once, the member may have another incarnation by now.
            Event::Started {
                incarnation,
                process: Ok(_),
                ..
            } if is_present(team, incarnation) => {
                let watchers = self.members.values().filter(|worker| worker.watches);
                let may_watch = watchers.count() < WATCHERS;
                let worker = self.enter(incarnation);
                worker.watches = may_watch;
                worker.link = WorkerLink::Inherited;
                worker.watch.connected();
            }
            Event::Ended { incarnation, .. } => {
                if let Some(worker) = self.of_mut(incarnation) {
                    worker.end();
                }
            }
            Event::Link { host, link } => self.record_link(team, host, link),
            Event::Command(_, by, command) if changes_tasks(by, command) => self.forget_refusals(),
            Event::Terminate => self.terminations += 1,
            _ => {}
        }
    }

    /// Records whether a worker relies on the daemon to wake it for its mail. Returns true if it
    /// does so from now on: the daemon then wakes it for what came before.
    pub(crate) fn needs_waking(&mut self, incarnation: &Incarnation, wants: bool) -> bool {
        let Some(worker) = self.of_mut(incarnation) else {
            return false;
        };
        let did_before = std::mem::replace(&mut worker.state.needs_waking, wants);
        wants && !did_before
    }

    /// Records whether the inbox of a worker holds mail that it has not read, by its last report.
    pub(crate) fn record_unread(&mut self, incarnation: &Incarnation, has_unread: bool) {
        if let Some(worker) = self.of_mut(incarnation) {
            worker.has_unread = has_unread;
        }
    }

    /// Records the gate that a worker is sent.
    pub(crate) fn sends(&mut self, incarnation: &Incarnation, frame: &ToWorker) {
        let directive = match frame {
            ToWorker::Welcome(welcome) => &welcome.directive,
            ToWorker::Directive(directive) => directive,
            _ => return,
        };
        if let Some(worker) = self.of_mut(incarnation) {
            worker.gate.send(directive.seq, directive.gate);
        }
    }

    /// Records until when a worker may wait for its commands in the background; none: none runs.
    pub(crate) fn record_commands(&mut self, incarnation: &Incarnation, until: Option<Duration>) {
        if let Some(worker) = self.of_mut(incarnation) {
            worker.commands_until = until;
        }
    }

    /// Records the environment of an incarnation whose spawn is journaled now. Before that, the
    /// order could still be refused.
    pub(crate) fn ordered(&mut self, incarnation: &Incarnation, environment: Environment) {
        self.enter(incarnation).environment = Some(environment);
    }

    /// Records a restart that is journaled now, by the monotonic clock too: a wall clock that jumps
    /// removes no restart.
    pub(crate) fn restarted(&mut self, member: &Member, now: Now) {
        let worker = self.enter(&Incarnation::of(member));
        worker
            .restarts
            .retain(|(at, _)| member.restarts.contains(at));
        worker
            .restarts
            .extend(member.restarts.last().map(|&at| (at, now.monotonic)));
    }

    /// Returns when the restart with this time of day happened, since the daemon began; none if an
    /// earlier daemon did it.
    pub(crate) fn restarted_at(&self, name: &Name, wall: f64) -> Option<Duration> {
        let restarts = &self.members.get(name)?.restarts;
        let restart = restarts.iter().rfind(|(at, _)| *at == wall)?;
        Some(restart.1)
    }

    /// Takes over what a worker last reported to an earlier daemon, until it reports again.
    pub(crate) fn recall(&mut self, incarnation: &Incarnation, said: LastSaid) {
        let worker = self.enter(incarnation);
        worker.state.doing = said.doing;
        worker.state.usage = said.usage;
        worker.other_models = said.other_models;
        worker.state.read = said.read;
        worker.gate.recall(said.gate);
    }

    /// Takes over the age of an incarnation that an earlier daemon started.
    pub(crate) fn aged(&mut self, incarnation: &Incarnation, age: Duration) {
        self.enter(incarnation).adopted_age = age;
    }

    /// Returns the usage of a member's conversation: by the last report of its worker, otherwise as
    /// it was when the incarnation before ended.
    pub(crate) fn usage(&self, member: &Member) -> Usage {
        let worker = self.of(&Incarnation::of(member));
        if let Some(worker) = worker
            && !worker.state.usage.is_nothing()
        {
            return worker.state.usage;
        }
        let continues = member.phase.is_ended() || member.conversation != member.incarnation;
        match &member.exit {
            Some(exit) if continues => exit.usage,
            _ => Usage::default(),
        }
    }

    /// Returns what other models than the recorded one have used of that.
    pub(crate) fn other_models(&self, member: &Member) -> OtherModels {
        let worker = self.of(&Incarnation::of(member));
        if let Some(worker) = worker
            && !worker.state.usage.is_nothing()
        {
            return worker.other_models.clone();
        }
        let continues = member.phase.is_ended() || member.conversation != member.incarnation;
        let exit = member.exit.as_ref().filter(|_| continues);
        OtherModels {
            answers: None,
            usage: exit
                .map(|exit| exit.other_usage.clone())
                .unwrap_or_default(),
        }
    }

    /// Returns what is known of an incarnation; none if another one has taken its place.
    pub(crate) fn of(&self, incarnation: &Incarnation) -> Option<&MemberRuntime> {
        self.members
            .get(&incarnation.name)
            .filter(|worker| worker.incarnation == incarnation.number)
    }

    fn of_mut(&mut self, incarnation: &Incarnation) -> Option<&mut MemberRuntime> {
        self.members
            .get_mut(&incarnation.name)
            .filter(|worker| worker.incarnation == incarnation.number)
    }

    /// Returns what is known of a member, whichever incarnation it is.
    pub(crate) fn member(&self, name: &Name) -> Option<&MemberRuntime> {
        self.members.get(name)
    }

    /// Returns the command that an event is, or the outcome of: it must be answered.
    pub(crate) fn client(&self, event: &Event) -> Option<ReplyTo> {
        if let Event::JobEnded { job, .. } = event {
            self.jobs.then(*job)?.client()
        } else {
            event.client()
        }
    }

    fn enter(&mut self, incarnation: &Incarnation) -> &mut MemberRuntime {
        let worker = self.members.entry(incarnation.name.clone()).or_default();
        if worker.incarnation != incarnation.number {
            *worker = worker.next(incarnation.number);
        }
        worker
    }
}

/// Returns what a status has room for: the journal keeps it.
pub(crate) fn first_line(why: &str) -> String {
    why.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(MOST_OF_A_REASON)
        .collect()
}

fn is_present(team: &Team, incarnation: &Incarnation) -> bool {
    team.members
        .get(&incarnation.name)
        .is_some_and(|state| state.record.incarnation == incarnation.number)
}
