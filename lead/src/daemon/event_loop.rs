//! The loop: gather what has happened → decide → journal → effects → directives → roster → replies.
//!
//! [`super::core`] decides, and gives out the steps that follow in their order; this loop has the owners in [`super::io`] do
//! them. The workers hear first, then the roster is written and commands are answered, and only then are inbox lines synced.

pub(super) mod gather;
mod upkeep;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use teamd_shared::clock;
use teamd_shared::control;
use teamd_shared::id::RandomIds;
use teamd_shared::journal::TeamRecord;
use teamd_shared::member::{Ending, Member, Restart};
use teamd_shared::mutant;
use teamd_shared::process::How;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::{SLOW_TICK, Watch};
use tokio::sync::mpsc;

use super::core::batch::{Batcher, NewWorker, RETRY, Step};
use super::core::decide::decide;
use super::core::event::{Event, Incarnation, Now};
use super::hand_over::HandOver;
use super::io::connections::{Connections, Input, Inputs, serve_inherited};
use super::io::effects::{Effects, Failed, Outcome};
use super::io::journal::Journal;
use super::io::lead_inbox::LeadInbox;
use super::io::reap::Beginning;
use super::io::reaper::{ExitContext, Reaper};
use super::io::roster::RosterFile;
use super::io::signals::Signals;
use super::io::socket::Socket;
use super::io::workers::{StartedWorker, Supervisor};

pub(super) use upkeep::Upkeep;

/// Everything that the daemon owns.
pub(super) struct EventLoop {
    pub(super) dir: Arc<TeamDir>,
    /// The state, and what is to be done.
    pub(super) batcher: Batcher,
    pub(super) journal: Journal,
    pub(super) effects: Effects,
    pub(super) roster: RosterFile,
    pub(super) supervisor: Supervisor,
    pub(super) reaper: Reaper,
    pub(super) lead: LeadInbox,
    /// Whether there may be more to read.
    pub(super) lead_has_more: bool,
    pub(super) connections: Connections,
    /// Where connections report to.
    pub(super) inputs: Inputs,
    pub(super) began: Instant,
    /// An order that another program becomes the daemon.
    pub(super) hand_over: Option<HandOver>,
    pub(super) upkeep: Upkeep,
}

/// Where events come from.
pub(super) struct Sources {
    /// What connections report.
    pub(super) inputs: mpsc::Receiver<Input>,
    /// The workers whose process has ended.
    pub(super) exited: mpsc::UnboundedReceiver<Incarnation>,
    /// The incarnations of which nothing is left.
    pub(super) empty: mpsc::UnboundedReceiver<Event>,
    /// Tells when an inbox grows.
    pub(super) inboxes: Option<Watch>,
    /// Tells when a file of the team directory itself is deleted or replaced. Without it the slow tick finds out.
    pub(super) names: Option<Watch>,
    pub(super) signals: Signals,
    pub(super) socket: Socket,
}

impl EventLoop {
    /// Takes one turn after the other, until the daemon is to end.
    pub(super) async fn run(&mut self, sources: &mut Sources) {
        let mut tick = tokio::time::interval(SLOW_TICK);
        while self.batcher.end.is_none() {
            let wake_up = self.next_wake_up();
            let mut events = Vec::new();
            tokio::select! {
                Some(input) = sources.inputs.recv() => events.extend(self.intake(input)),
                Some(incarnation) = sources.exited.recv() => self.process_exited(incarnation),
                Some(event) = sources.empty.recv() => {
                    events.extend(self.reaper.on_empty(event, &mut self.supervisor));
                }
                () = changed(sources.inboxes.as_ref()) => {}
                () = changed(sources.names.as_ref()) => events.extend(self.look_after_files(sources)),
                outcome = self.effects.synced() => self.completed(outcome),
                () = sources.signals.received() => events.push(Event::Terminate),
                () = sleep_until(wake_up) => {}
                _ = tick.tick() => events.extend(self.tick(sources)),
            }
            self.gather(sources, &mut events);
            self.handle(events);
            if self.batcher.has_answers() {
                // What was said to the workers goes out first.
                tokio::task::yield_now().await;
                self.answer();
            }
            if self.batcher.is_unsettled() {
                tokio::task::yield_now().await;
                self.settle_in_time();
            }
            let outcome = self.effects.notify_some();
            self.completed(outcome);
            self.hand_over_if_ready();
        }
    }

    /// Returns the time now.
    pub(super) fn now(&self) -> Now {
        Now { wall: clock::wall(), monotonic: self.began.elapsed() }
    }

    /// Returns when something is due without any event.
    fn next_wake_up(&self) -> Option<Instant> {
        let due = self.batcher.next_due().map(|at| self.began + at);
        let more = (self.lead_has_more || self.effects.has_notices()).then(Instant::now);
        let refused = self.hand_over.as_ref().map(|wanted| wanted.by);
        [due, self.roster.due(), more, refused].into_iter().flatten().min()
    }

    /// Writes what every start of a daemon writes, before any command is served, and does again what an earlier daemon may not
    /// have done.
    pub(super) fn begin(&mut self, record: TeamRecord) {
        self.batcher.begin(record, self.now());
        self.take_steps();
    }

    /// Does what is due, and handles events until none is left.
    pub(super) fn handle(&mut self, events: Vec<Event>) {
        self.batcher.handle(events, self.now());
        self.take_steps();
        if self.roster.due().is_some_and(|due| due <= Instant::now()) {
            self.write_roster();
        }
    }

    /// Answers the commands, after the roster shows what they are told.
    fn answer(&mut self) {
        self.batcher.answer(self.now());
        self.take_steps();
    }

    /// Takes one step after the other, until none is left.
    fn take_steps(&mut self) {
        while let Some(step) =
            self.batcher.next(self.now(), &mut |view, event| decide(view, event, &mut RandomIds))
        {
            self.take(step);
        }
    }

    fn take(&mut self, step: Step) {
        if matches!(step, Step::Append(_)) && mutant::is_on("effect-before-journal") {
            let outcome = self.effects.complete(&self.batcher.team, false);
            self.completed(outcome);
        }
        match step {
            Step::Append(lines) => match self.journal.append(&self.dir, &lines) {
                Ok(()) => {
                    self.roster.touch();
                    self.batcher.appended(self.now());
                }
                Err(error) => {
                    let (why, journal) = self.journal.after_failure(&error);
                    self.batcher.not_written(&why, journal, self.now());
                }
            },
            Step::Complete { again } => {
                let outcome = self.effects.complete(&self.batcher.team, again);
                self.completed(outcome);
            }
            Step::Settle => {
                let outcome = self.effects.settle_all(&self.batcher.team);
                self.completed(outcome);
            }
            Step::Start(beginning) => {
                let started = self.start(*beginning);
                self.batcher.started(started, self.now());
            }
            Step::Terminate(incarnation) => self.supervisor.terminate(&incarnation),
            Step::Kill(incarnation) => self.supervisor.kill(&incarnation),
            Step::Say(incarnation, frame) => self.connections.say(&incarnation, frame),
            Step::Show(names) => {
                let Batcher { team, live, .. } = &self.batcher;
                names.iter().for_each(|name| self.roster.show(team, live, name));
            }
            Step::WriteRoster => {
                let written = self.write_roster();
                self.batcher.shown(written, self.now());
            }
            Step::Reply(client, answer) => self.connections.reply(client, answer),
        }
    }

    /// Takes in how far the effects have come.
    fn completed(&mut self, outcome: Outcome) {
        match outcome {
            Ok(None) => {}
            Ok(Some(seq)) => self.batcher.settled(seq),
            Err(Failed) => self.batcher.try_again_later(self.now()),
        }
    }

    /// Syncs the effects now.
    pub(super) fn settle(&mut self) {
        let outcome = self.effects.settle(&self.batcher.team);
        self.completed(outcome);
    }

    fn settle_in_time(&mut self) {
        // What has just failed is not tried again at once.
        if !self.batcher.has_just_failed(self.now()) {
            let outcome = self.effects.settle_in_time(&self.batcher.team);
            self.completed(outcome);
        }
    }

    fn start(&mut self, NewWorker { incarnation, member, environment }: NewWorker) -> Event {
        // The connection comes first: if it cannot be made, no process must be ended.
        let connected = control::pair().and_then(|(ours, theirs)| {
            let (connection, outbound) = serve_inherited(ours, incarnation.clone(), &self.inputs)?;
            Ok((connection, outbound, theirs))
        });
        let started = connected.map_err(|error| format!("cannot make its connection: {error}")).and_then(
            |(connection, outbound, theirs)| {
                let started = self.supervisor.start(&member, &environment, theirs)?;
                self.connections.add_worker(incarnation.clone(), connection, outbound);
                Ok(started)
            },
        );
        match started {
            Ok(StartedWorker { identity, cgroup }) => {
                Event::Started { incarnation, process: Ok(identity), cgroup }
            }
            Err(why) => {
                tracing::error!("cannot start {}: {why}", incarnation.name);
                Event::not_started(incarnation, &why)
            }
        }
    }

    /// Takes in that a process has ended: a task waits until nothing of its incarnation is left.
    fn process_exited(&mut self, incarnation: Incarnation) {
        let how = self.supervisor.reap(&incarnation);
        let is_connected = self.connections.has(&incarnation);
        if let Some(how) = self.reaper.on_process_exit(&incarnation, how, is_connected) {
            self.wait_until_empty(incarnation, how);
        }
    }

    /// Has the end of an incarnation reported once nothing of it is left.
    pub(super) fn wait_until_empty(&mut self, incarnation: Incarnation, how: How) {
        self.batcher.live.process_exited(&incarnation);
        let member = self.batcher.team.members.get(&incarnation.name).map(|state| &state.record);
        let beginning = member.map(|it| Beginning { at: it.begins_at, conversation: it.conversation });
        let next = member.filter(|it| self.may_begin_again(it)).map(|it| PathBuf::from(&it.terms.workspace));
        let context = ExitContext {
            beginning: beginning.unwrap_or_default(),
            group: self.supervisor.leave(&incarnation),
            lock_tells: self.supervisor.lock_tells(&incarnation),
            next_works_in: next,
        };
        self.reaper.wait(incarnation, how, context);
    }

    /// Tells whether a member that ends now may be started again. Only then is its workspace looked at.
    fn may_begin_again(&self, member: &Member) -> bool {
        member.terms.restart == Restart::OnFailure
            && matches!(member.ending, None | Some(Ending::Hung))
            && self.batcher.team.shutdown_of(&member.name).is_none()
    }

    /// Writes the roster, if there is anything new; false if it cannot be written.
    pub(super) fn write_roster(&mut self) -> bool {
        let written = self.roster.flush(&self.dir, &self.batcher.team);
        if let Err(error) = &written {
            tracing::error!("cannot write the roster (tried again): {error}");
            self.batcher.try_again_later(self.now());
            self.roster.postpone(RETRY);
        }
        written.is_ok()
    }
}

async fn changed(watch: Option<&Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
