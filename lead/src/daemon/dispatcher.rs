//! The dispatcher: takes every event that is ready, hands it to the [`Batcher`], and does the steps that this gives out, one
//! after the other. What is decided, and in which order what follows is done, is the batcher's to say.
//!
//! Nobody waits for what concerns somebody else: the workers hear first, then the roster is written and commands
//! are answered, and only then are inbox lines synced ([`Dispatcher::answer`], [`Dispatcher::settle`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use teamd_shared::clock;
use teamd_shared::control;
use teamd_shared::id::{RandomIds, RequestId};
use teamd_shared::journal::TeamRecord;
use teamd_shared::process::How;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::mpsc;

use super::core::batch::{Batcher, NewLife, RETRY, Step};
use super::core::decide::decide;
use super::core::event::{Client, Event, Life, Now};
use super::hand_over::HandOver;
use super::io::connections::{Connections, Inputs, serve_born};
use super::io::inboxes::Progress;
use super::io::journal::Journal;
use super::io::lead_inbox::LeadInbox;
use super::io::roster::RosterFile;
use super::io::workers::{Born, Supervisor};
use super::later::Syncing;

/// Everything that the daemon owns.
pub(super) struct Dispatcher {
    pub(super) dir: Arc<TeamDir>,
    pub(super) settings: Settings,
    /// The state, and what is to be done.
    pub(super) batcher: Batcher,
    pub(super) journal: Journal,
    pub(super) roster: RosterFile,
    pub(super) supervisor: Supervisor,
    pub(super) lead: LeadInbox,
    /// Whether there may be more to read.
    pub(super) lead_has_more: bool,
    pub(super) connections: Connections,
    /// Where connections report to.
    pub(super) inputs: Inputs,
    /// The spawns whose workspace is looked up just now, and their ids.
    pub(super) looking_up: HashMap<Client, RequestId>,
    /// Where the leaves that see a life off report to.
    pub(super) ends: mpsc::UnboundedSender<Event>,
    pub(super) began: Instant,
    /// The effects of the lines that are not done yet.
    pub(super) progress: Progress,
    /// What another thread syncs just now.
    pub(super) syncing: Syncing,
    /// Lives whose process has ended, and whose connection has not: what they still said is heard first.
    pub(super) departed: HashMap<Life, How>,
    /// When the process of each life ended that is not seen off yet.
    pub(super) gone_at: HashMap<Life, Instant>,
    /// Somebody who wants another program to be the daemon.
    pub(super) hand_over: Option<HandOver>,
    /// When the lead was last told of modes that were put back.
    pub(super) modes_told: Option<Instant>,
}

impl Dispatcher {
    /// Returns the time now.
    pub(super) fn now(&self) -> Now {
        Now { wall: clock::wall(), monotonic: self.began.elapsed() }
    }

    /// Returns when something is due without any event.
    pub(super) fn next_wake_up(&self) -> Option<Instant> {
        let due = self.batcher.next_due().map(|at| self.began + at);
        let more = (self.lead_has_more || self.progress.news.is_waiting()).then(Instant::now);
        let refused = self.hand_over.as_ref().map(|wanted| wanted.by);
        [due, self.roster.due(), more, refused].into_iter().flatten().min()
    }

    /// Writes what every start of a daemon writes, before anybody is served, and does again what an earlier daemon may not
    /// have done.
    pub(super) fn begin(&mut self, record: TeamRecord) {
        self.batcher.begin(record, self.now());
        self.go_on();
    }

    /// Does what is due, and handles events until none is left.
    pub(super) fn handle(&mut self, events: Vec<Event>) {
        self.batcher.handle(events, self.now());
        self.go_on();
        if self.roster.due().is_some_and(|due| due <= Instant::now()) {
            self.write_roster();
        }
    }

    /// Answers the commands, after the roster shows what they are told.
    pub(super) fn answer(&mut self) {
        self.batcher.answer(self.now());
        self.go_on();
    }

    /// Does one step after the other, until none is left.
    fn go_on(&mut self) {
        while let Some(step) =
            self.batcher.next(self.now(), &mut |view, event| decide(view, event, &mut RandomIds))
        {
            self.take(step);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(lines) => match self.journal.append(&self.dir, &lines) {
                Ok(()) => {
                    self.roster.touch();
                    self.batcher.appended(self.now());
                }
                Err(error) => self.not_written(&error),
            },
            Step::Complete { again } => self.complete(again),
            Step::Settle => {
                self.tell_all_news();
                self.settle();
            }
            Step::Start(beginning) => {
                let started = self.start(*beginning);
                self.batcher.started(started, self.now());
            }
            Step::Terminate(life) => self.supervisor.terminate(&life),
            Step::Kill(life) => self.supervisor.kill(&life),
            Step::Say(life, frame) => self.connections.say(&life, frame),
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

    /// Does the effects of the lines that are not done yet, oldest first.
    fn complete(&mut self, again: bool) {
        if let Err((seq, error)) = self.progress.go_on(&self.dir, &self.batcher.team, again) {
            tracing::error!("cannot complete line {seq} of the journal (tried again): {error}");
            self.batcher.try_again_later(self.now());
        }
    }

    /// Makes the effects last, here and now, and lets the next line of the journal say so.
    pub(super) fn settle(&mut self) {
        self.take_over_sync();
        match self.progress.settle(&self.dir, &self.batcher.team, self.settings.durability) {
            Ok(seq) => self.batcher.settled(seq),
            Err(error) => {
                tracing::error!("cannot complete the effects of the journal (tried again): {error}");
                self.batcher.try_again_later(self.now());
            }
        }
    }

    fn start(&mut self, NewLife { life, member, environment }: NewLife) -> Event {
        // The connection first: where it cannot be made, there is no process to be ended.
        let connected = control::pair().and_then(|(ours, theirs)| {
            let (connection, words) = serve_born(ours, life.clone(), &self.inputs)?;
            Ok((connection, words, theirs))
        });
        let started = connected.map_err(|error| format!("cannot make its connection: {error}")).and_then(
            |(connection, words, theirs)| {
                let born = self.supervisor.start(&member, &environment, theirs)?;
                self.connections.add_worker(life.clone(), connection, words);
                Ok(born)
            },
        );
        match started {
            Ok(Born { identity, cgroup }) => Event::Started { life, process: Ok(identity), cgroup },
            Err(why) => {
                tracing::error!("cannot start {}: {why}", life.name);
                Event::not_started(life, &why)
            }
        }
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
