//! What follows from a batch once its lines are in the journal: processes, jobs and directives.

use std::time::Duration;

use teamd_shared::control::{Done, Refusal, RefusalCode, ToWorker};
use teamd_shared::name::Name;
use teamd_shared::task::TaskStatus;

use super::batch::DecisionBatch;
use super::{Dispatcher, RETRY};
use crate::core::decide::called_off;
use crate::core::directive::{directive, welcome};
use crate::core::event::{Action, Event, Ordered};
use crate::core::host_link::HostLink;
use crate::core::incarnation::Incarnation;
use crate::core::io::Io;
use crate::core::job::Job;
use crate::core::runtime::WorkerLink;
use crate::core::watchdog::LookResult;

/// The pause before a check that could not run is tried again.
const CHECK_AGAIN: Duration = Duration::from_secs(10);

impl Dispatcher {
    /// Does what follows from a batch: first the workers get their directives, then the roster
    /// shows the new state, then commands are answered.
    pub(super) fn carry_out(&mut self, mut batch: DecisionBatch, io: &mut dyn Io) {
        let now = io.now();
        batch.touched.extend(batch.subjects.iter().cloned());
        for name in &batch.touched {
            self.runtime.arm(&self.team, name, now, self.rules);
        }
        for event in &batch.events {
            if let Event::JobEnded { job, ended } = event {
                self.runtime.job_ended(&self.team, *job, ended);
            }
        }
        for action in batch.actions {
            self.perform(action, io);
        }
        self.check_held(io);
        // A directive comes after what a worker was sent directly: the worker must know that its
        // plan is recorded before it reads that the plan is pending.
        for name in &batch.subjects {
            self.send_directive(name, io);
        }
        for name in &batch.touched {
            self.answers
                .extend(self.waiters.answered(&self.team, &self.runtime, name));
        }
        for client in self.waiters.linked(&self.runtime) {
            let hosts = self.view(now).hosts();
            self.answers.push(client, Ok(Done::Hosts(hosts)));
        }
        io.show(&self.team, &self.runtime, &batch.touched);
        self.close_if_all_are_gone(io);
    }

    /// Does what was decided. What concerns the state of the dispatcher is done here, and [`Io`]
    /// does the rest.
    pub(super) fn perform(&mut self, action: Action, io: &mut dyn Io) {
        match action {
            Action::Start(incarnation, ordered) => self.start(incarnation, ordered, io),
            Action::Welcome(incarnation) => {
                if let Some(welcome) = welcome(&self.team, &self.runtime, &incarnation) {
                    let frame = ToWorker::Welcome(Box::new(welcome));
                    self.hand_on(Action::Say(incarnation, frame), io);
                }
            }
            Action::Kill(incarnation) => self.kill(&incarnation, io),
            Action::Begin(job) => self.begin_job(*job, io),
            Action::CallOff(name) => {
                let now = io.now().since_boot;
                for (job, client) in self.runtime.jobs.call_off(&name, now) {
                    self.answers.push(client, Err(called_off(&name)));
                    self.hand_on(Action::EndJob(job), io);
                }
            }
            Action::Check(id) => {
                self.held_checks.insert(id);
            }
            Action::CheckAgain(task) => {
                self.delayed
                    .push((io.now().monotonic + CHECK_AGAIN, Event::Review { task }));
            }
            Action::EndCheck(id) => {
                for job in self.runtime.jobs.end_check(id) {
                    self.hand_on(Action::EndJob(job), io);
                }
            }
            Action::IntegrateNext => self.events.push_back(Event::Integrate),
            Action::Offer => self.offer(),
            Action::Keep(name, task) => {
                let state = self.team.members.get(&name);
                let unreachable =
                    state.and_then(|state| self.runtime.unreachable_since(&state.record));
                if unreachable.is_some() {
                    self.runtime.keep_later(name);
                    return;
                }
                self.runtime.kept_now(&name);
                if let Some(job) = self.view(io.now()).keep(&name, task) {
                    self.begin_job(job, io);
                }
            }
            Action::Reply(client, answer) => self.answers.push(client, answer),
            Action::Wait(client, name, until) => {
                self.waiters.add(client, name.clone(), until);
                self.answers
                    .extend(self.waiters.answered(&self.team, &self.runtime, &name));
            }
            Action::WaitForStop(client) => self.waiters.add_for_stop(client),
            Action::WaitForQuiet(client, goal) => self.waiters.add_for_quiet(client, goal),
            Action::RejectStop => self.answer_rejected_stop(),
            Action::Dial(host) => {
                let is_up = |link: &HostLink| link.is_up();
                if !self.runtime.link_to(&host.name).is_some_and(is_up) {
                    self.runtime.forget_link(&host.name);
                }
                self.hand_on(Action::Dial(host), io);
            }
            Action::WaitForLink(client, host) => self.waiters.add_for_link(client, host),
            Action::HangUp(host) => {
                self.runtime.forget_link(&host);
                self.hand_on(Action::HangUp(host), io);
            }
            Action::Say(..)
            | Action::Terminate(_)
            | Action::Look(..)
            | Action::Run(..)
            | Action::TakeOver(_)
            | Action::EndJob(_) => self.hand_on(action, io),
        }
    }

    pub(super) fn hand_on(&mut self, action: Action, io: &mut dyn Io) {
        if let Action::Say(incarnation, frame) = &action {
            self.runtime.sends(incarnation, frame);
        }
        let events = io.perform(&self.team, &action);
        self.events.extend(events);
    }

    fn begin_job(&mut self, Job { order, then }: Job, io: &mut dyn Io) {
        let client = then.client();
        match (self.runtime.jobs.begin(then), client) {
            (Some(job), _) => self.hand_on(Action::Run(job, order), io),
            (None, Some(client)) => self.answers.push(client, Err(branch_is_under_way())),
            (None, None) => {}
        }
    }

    /// Begins the checks whose author cannot change anything any more.
    fn check_held(&mut self, io: &mut dyn Io) {
        for id in std::mem::take(&mut self.held_checks) {
            // It may have been withdrawn in the same batch.
            let Some(task) = self.team.tasks.get(&id).filter(|task| task.is_checked()) else {
                continue;
            };
            let author = task.checked_in_place();
            if author.is_some_and(|author| self.may_change(author)) {
                self.held_checks.insert(id);
            } else if let Some(job) = self.view(io.now()).check(task) {
                self.begin_job(job, io);
            }
        }
    }

    /// Tells whether the author of work that is to be checked in place may still change it: what
    /// the author has started may run until its worker reports that the gate is closed.
    fn may_change(&self, author: &Name) -> bool {
        let Some(state) = self
            .team
            .members
            .get(author)
            .filter(|state| !state.record.phase.is_ended())
        else {
            return false;
        };
        let worker = self.runtime.of(&Incarnation::of(&state.record));
        worker.is_none_or(|worker| worker.state.applied_seq < state.seq)
    }

    /// Queues an offer of work, if there is any work. One offer is enough, however many events ask
    /// for it.
    pub(super) fn offer(&mut self) {
        if self.events.back() != Some(&Event::Offer)
            && self
                .team
                .tasks
                .values()
                .any(|task| task.status == TaskStatus::Pending)
        {
            self.events.push_back(Event::Offer);
        }
    }

    /// Starts a process. A failure for an incarnation that follows a crash is reported after
    /// [`RETRY`]: what is missing is missing for more than a moment, and each attempt counts.
    fn start(&mut self, incarnation: Incarnation, ordered: Option<Ordered>, io: &mut dyn Io) {
        let writable = ordered.as_ref().map(|ordered| ordered.writable.clone());
        let member = self
            .team
            .members
            .get(&incarnation.name)
            .map(|state| &state.record);
        match (ordered, member) {
            (Some(ordered), _) => self.runtime.ordered(&incarnation, ordered.environment),
            (None, Some(member)) => self.runtime.restarted(member, io.now()),
            (None, None) => {}
        }
        let worker = self.runtime.member(&incarnation.name);
        let environment = worker.and_then(|worker| worker.environment.clone());
        let started = match (member, environment) {
            (Some(_), Some(environment)) => {
                let ordered = Ordered {
                    environment,
                    writable: writable.unwrap_or_default(),
                };
                let start = Action::Start(incarnation, Some(ordered));
                io.perform(&self.team, &start)
            }
            (None, _) => vec![Event::not_started(incarnation, "it was forgotten")],
            (Some(_), None) => vec![Event::not_started(incarnation, "its environment was lost")],
        };
        let follows_a_crash = member.is_some_and(|member| member.restarted > 0);
        for event in started {
            let is_failure = matches!(
                event,
                Event::Started {
                    process: Err(_),
                    ..
                }
            );
            if follows_a_crash && is_failure {
                self.delayed.push((io.now().monotonic + RETRY, event));
            } else {
                self.events.push_back(event);
            }
        }
    }

    pub(super) fn kill(&mut self, incarnation: &Incarnation, io: &mut dyn Io) {
        self.runtime.killed(incarnation);
        self.hand_on(Action::Kill(incarnation.clone()), io);
    }

    fn send_directive(&mut self, name: &Name, io: &mut dyn Io) {
        let Some(member) = self.team.members.get(name) else {
            return;
        };
        let incarnation = Incarnation::of(&member.record);
        // The welcome of a worker says all that a directive does.
        if self
            .runtime
            .of(&incarnation)
            .is_some_and(|worker| worker.link == WorkerLink::Open)
            && let Some(directive) = directive(&self.team, &self.runtime, name)
        {
            let frame = ToWorker::Directive(directive);
            self.hand_on(Action::Say(incarnation, frame), io);
        }
    }

    /// Asks the workers that should answer, and reports those that have not.
    pub(super) fn look_at_workers(&mut self, io: &mut dyn Io) {
        // While the journal cannot be written, their answers are not examined either.
        if self.journal.retry_at().is_some() {
            return;
        }
        for (incarnation, result) in self.runtime.look(&self.team, io.now(), self.rules) {
            match result {
                LookResult::Ask(number) => {
                    let ping = ToWorker::Ping { number };
                    self.hand_on(Action::Say(incarnation, ping), io);
                }
                LookResult::Silent => self.events.push_back(Event::Silent { incarnation }),
            }
        }
    }
}

fn branch_is_under_way() -> Refusal {
    Refusal::new(
        RefusalCode::Conflict,
        "a branch is being begun in the checkout",
    )
    .hint("try again in a moment")
}
