//! The dispatcher: takes every event that is ready, decides and applies each in turn, writes all records
//! with one append and one sync, and only then performs the actions and answers.
//!
//! Nobody waits for what concerns somebody else: the workers hear first, then the roster is written and commands
//! are answered, and only then are inbox lines synced ([`Dispatcher::answer`], [`Dispatcher::settle`]).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::clock;
use teamd_shared::control::{Done, Refusal, StopOutcome, Successor, ToWorker};
use teamd_shared::fs::AppendError;
use teamd_shared::id::RandomIds;
use teamd_shared::journal::{Line, Record, Team, TeamEvent, TeamRecord, VERSION};
use teamd_shared::name::Name;
use teamd_shared::process::How;
use teamd_shared::request;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::mpsc;

use super::control_server::{Birth, Connections, Input, serve_born};
use super::decide::{View, decide};
use super::event::{Action, Client, Event, Life, Now};
use super::hand_over::HandOver;
use super::journal::Journal;
use super::later::Syncing;
use super::lead_inbox::{LeadInbox, LeadTaken};
use super::live::{Live, Rules};
use super::perform::Progress;
use super::roster::RosterFile;
use super::supervisor::Supervisor;
use super::waiters::Waiters;
use super::watchdog::Finding;
use super::word::{welcome, word};

/// How long events wait that could not be journaled, before they are tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// How long commands wait for a roster that cannot be written: what they are told is in the journal.
const UNSHOWN: Duration = Duration::from_secs(5);

/// Everything that the daemon owns. Only this file changes it (`intake` reads what a decision rests on).
pub(super) struct Dispatcher {
    pub(super) dir: Arc<TeamDir>,
    pub(super) settings: Settings,
    pub(super) journal: Journal,
    pub(super) team: Team,
    pub(super) live: Live,
    pub(super) roster: RosterFile,
    pub(super) supervisor: Supervisor,
    pub(super) lead: LeadInbox,
    pub(super) connections: Connections,
    pub(super) waiters: Waiters,
    pub(super) inputs: mpsc::Sender<Input>,
    /// Where the leaves that see a life off report to.
    pub(super) ends: mpsc::UnboundedSender<Event>,
    pub(super) began: Instant,
    /// Events of the world that could not be journaled: they happened, and are tried again.
    pub(super) backlog: VecDeque<Event>,
    /// The effects of the lines that are not done yet.
    pub(super) progress: Progress,
    /// What commands are answered, once the roster shows it.
    pub(super) answers: Vec<(Client, Reply)>,
    /// Since when they wait for a roster that cannot be written.
    pub(super) unshown: Option<Instant>,
    /// When the backlog and undone effects are tried again.
    pub(super) retry_at: Option<Instant>,
    /// What another thread syncs just now.
    pub(super) syncing: Syncing,
    /// How far the lead's inbox is taken in: this stands in the next line of the journal.
    pub(super) lead_taken: LeadTaken,
    /// Lives whose process has ended, and whose connection has not: what they still said is heard first.
    pub(super) departed: HashMap<Life, How>,
    /// When the process of each life ended that is not seen off yet.
    pub(super) gone_at: HashMap<Life, Instant>,
    /// Somebody who wants another program to be the daemon.
    pub(super) hand_over: Option<HandOver>,
    /// Set when the daemon shall end.
    pub(super) exit: Option<End>,
}

/// Why the daemon ends.
#[derive(Debug)]
pub(super) enum End {
    /// It was told to, and nobody is left.
    Stopped,
    /// It becomes another program.
    HandedOver(Box<Successor>),
    /// It cannot go on: why.
    Failed(String),
}

/// What a batch of events led to.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<Line>,
    pub(super) actions: Vec<Action>,
    /// The members that something was decided or said about.
    touched: BTreeSet<Name>,
    pub(super) events: Vec<Event>,
}

impl Dispatcher {
    /// Returns the time now.
    pub(super) fn now(&self) -> Now {
        Now { wall: clock::wall(), monotonic: self.began.elapsed() }
    }

    /// Returns when something is due without any event.
    pub(super) fn next_wake_up(&self) -> Option<Instant> {
        let deadline = self.live.next_deadline().map(|at| self.began + at);
        let more = (self.lead_taken.more || self.progress.news.is_waiting()).then(Instant::now);
        let refused = self.hand_over.as_ref().map(|wanted| wanted.by);
        [deadline, self.roster.due(), self.retry_at, more, refused].into_iter().flatten().min()
    }

    /// Does what is due, and handles events until none is left.
    pub(super) fn handle(&mut self, events: Vec<Event>) {
        let mut events: VecDeque<Event> = events.into();
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            let mut again = self.take_backlog();
            again.append(&mut events);
            events = again;
            self.complete(false);
            // The line of the end is nobody's event.
            self.end_if_all_are_gone();
        }
        if self.live.next_deadline().is_some_and(|at| at <= self.began.elapsed()) {
            self.look_at_workers(&mut events);
            events.push_back(Event::Deadline);
        }
        while !events.is_empty() && self.exit.is_none() {
            let batch = self.decide_all(events.drain(..));
            events = self.carry_out(batch).into();
        }
        if self.roster.due().is_some_and(|due| due <= Instant::now()) {
            self.write_roster();
        }
    }

    /// Asks the workers that should answer, and sees who has not.
    fn look_at_workers(&mut self, events: &mut VecDeque<Event>) {
        for (life, finding) in self.live.look(&self.team, self.now(), self.rules()) {
            match finding {
                Finding::Ask(number) => self.connections.say(&life, ToWorker::Ping { number }),
                Finding::Silent => events.push_back(Event::Silent { life }),
                Finding::Hung => events.push_back(Event::Hung { life }),
            }
        }
    }

    /// Returns the settings that decisions rest on.
    pub(super) fn rules(&self) -> Rules {
        let Settings { grace, restart, watchdog, .. } = self.settings;
        Rules { grace, restart, watchdog }
    }

    fn decide_all(&mut self, events: impl Iterator<Item = Event>) -> Batch {
        let mut batch = Batch::default();
        for event in events {
            let now = self.now();
            self.live.wall = now.wall;
            self.live.observe(&self.team, &event);
            let rules = self.rules();
            let view = View { team: &self.team, live: &self.live, now, rules };
            let decision = decide(&view, &event, &mut RandomIds);
            batch.touched.extend(concerned(&event));
            if let Event::Unreadable { position, .. } = &event {
                self.lead_taken.quarantined(*position);
            }
            for record in decision.records {
                self.apply(record, now, &mut batch);
            }
            for record in self.team.untold() {
                self.apply(record, now, &mut batch);
            }
            batch.actions.extend(decision.actions);
            batch.events.push(event);
        }
        batch
    }

    /// Gives a record its line, and changes the state by it.
    fn apply(&mut self, record: Record, now: Now, batch: &mut Batch) {
        let lead = Some(self.lead_taken.position).filter(|&position| position != self.team.lead);
        let line = Line {
            seq: self.team.seq + 1,
            at: now.wall,
            version: (self.team.seq == 0).then_some(VERSION),
            done: self.team.done,
            lead,
            record,
        };
        if let Err(error) = self.team.apply(&line) {
            tracing::error!("a decision does not continue the journal: {error}");
            return;
        }
        batch.touched.extend(subject(&line.record));
        batch.lines.push(line);
    }

    /// Writes the batch, and does what follows from it. Returns the events that this brought about.
    fn carry_out(&mut self, batch: Batch) -> Vec<Event> {
        if !batch.lines.is_empty()
            && let Err(error) = self.journal.append(&batch.lines)
        {
            self.not_written(batch, &error);
            return Vec::new();
        }
        if !batch.lines.is_empty() {
            self.roster.touch();
            self.complete(true);
        }
        let now = self.now();
        for name in &batch.touched {
            self.live.arm(&self.team, name, now, self.rules());
        }
        let mut brought = Vec::new();
        for action in batch.actions {
            self.perform(action, &mut brought);
        }
        // The words come after what was said to a worker directly: it must know that its plan is recorded
        // before it hears that it is pending.
        for name in subjects(&batch.lines) {
            self.say_word(&name);
        }
        for name in &batch.touched {
            self.roster.show(&self.team, &self.live, name);
        }
        for name in &batch.touched {
            self.answers.extend(self.waiters.answered(&self.team, &self.live, name));
        }
        let stays = self.stop_answers(&batch.lines);
        self.answers.extend(stays);
        self.end_if_all_are_gone();
        brought
    }

    /// Tells whether commands wait for [`Dispatcher::answer`].
    pub(super) fn owes_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Answers the commands, after the roster shows what they are told. While it cannot be written they wait, as long as
    /// somebody who waits for an answer can be expected to.
    pub(super) fn answer(&mut self) {
        // A life that is only decided shows nothing yet: its command goes on and waits until it is ready.
        if self.answers.iter().any(|(_, answer)| !matches!(answer, Ok(Done::Spawning { .. }))) {
            let since = *self.unshown.get_or_insert_with(Instant::now);
            if !self.write_roster() && since.elapsed() < UNSHOWN && self.exit.is_none() {
                return;
            }
        }
        self.unshown = None;
        for (client, answer) in std::mem::take(&mut self.answers) {
            self.connections.reply(client, answer);
        }
    }

    /// Tells whether effects wait for [`Dispatcher::settle`].
    pub(super) fn is_unsettled(&self) -> bool {
        self.team.done < self.team.seq
    }

    /// Makes the effects last, here and now, and lets the next line of the journal say so.
    pub(super) fn settle(&mut self) {
        self.take_over_sync();
        match self.progress.settle(&self.dir, &self.team, self.settings.durability) {
            Ok(seq) => self.team.mark_done(seq),
            Err(error) => {
                tracing::error!("cannot complete the effects of the journal (tried again): {error}");
                self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            }
        }
    }

    pub(super) fn kill(&mut self, life: &Life) {
        self.supervisor.kill(life);
        self.live.killed(life);
    }

    /// Does the effects of the lines that are not done yet, oldest first.
    fn complete(&mut self, first_time: bool) {
        if let Err((seq, error)) = self.progress.go_on(&self.dir, &self.team, !first_time) {
            tracing::error!("cannot complete line {seq} of the journal (tried again): {error}");
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
        }
    }

    /// Does again what an earlier daemon may not have done.
    pub(super) fn redo(&mut self) {
        self.complete(false);
        self.tell_all_news();
        self.settle();
    }

    fn perform(&mut self, action: Action, brought: &mut Vec<Event>) {
        match action {
            Action::Start(life) => brought.push(self.start(life)),
            Action::Welcome(life) => self.half_born(&life, Birth::Journaled),
            Action::Say(life, frame) => self.connections.say(&life, frame),
            Action::Terminate(life) => self.supervisor.terminate(&life),
            Action::Kill(life) => self.kill(&life),
            Action::Reply(client, answer) => self.answers.push((client, answer)),
            Action::Wait(client, life, what) => {
                let name = life.name.clone();
                self.waiters.add(client, life, what);
                self.answers.extend(self.waiters.answered(&self.team, &self.live, &name));
            }
            Action::WaitForStop(client) => self.waiters.add_for_stop(client),
        }
    }

    fn start(&mut self, life: Life) -> Event {
        let Some(member) = self.team.members.get(&life.name).map(|state| state.record.clone()) else {
            return not_started(life, "it was forgotten");
        };
        let environment = self.live.member(&life.name).and_then(|alive| alive.environment.clone());
        let Some(environment) = environment else {
            return not_started(life, "its environment was lost");
        };
        let process = self.supervisor.start(&member, &environment).and_then(|born| {
            let (connection, words) = serve_born(born.connection, life.clone(), &self.inputs)
                .map_err(|e| format!("cannot serve its connection: {e}"))?;
            self.connections.add_worker(life.clone(), connection, words);
            Ok((born.identity, born.cgroup))
        });
        match process {
            Ok((identity, cgroup)) => Event::Started { life, process: Ok(identity), cgroup },
            Err(why) => {
                tracing::error!("cannot start {}: {why}", life.name);
                not_started(life, &why)
            }
        }
    }

    /// Welcomes a worker once its process is in the journal and it has greeted.
    pub(super) fn half_born(&mut self, life: &Life, half: Birth) {
        if self.connections.is_born(life, half) {
            self.welcome(life);
        }
    }

    fn welcome(&mut self, life: &Life) {
        let Some(welcome) = welcome(&self.team, &self.live, life) else { return };
        self.connections.say(life, ToWorker::Welcome(Box::new(welcome)));
    }

    pub(super) fn say_word(&mut self, name: &Name) {
        let Some(incarnation) = self.team.members.get(name).map(|state| state.record.incarnation) else {
            return;
        };
        let life = Life { name: name.clone(), incarnation };
        // One that is not welcomed yet hears all in its welcome.
        if !self.live.of(&life).is_some_and(|alive| alive.connected) {
            return;
        }
        if let Some(word) = word(&self.team, &self.live, name) {
            self.connections.say(&life, ToWorker::Word(word));
        }
    }

    fn stop_answers(&mut self, lines: &[Line]) -> Vec<(Client, Reply)> {
        let stays =
            |line: &Line| matches!(&line.record, Record::Team(team) if team.event == TeamEvent::Staying);
        if !lines.iter().any(stays) {
            return Vec::new();
        }
        let rejected = |name: &Name| {
            let request = self.team.shutdown_of(name)?;
            let reason = request.reason.clone().unwrap_or_default();
            (request.status == request::Status::Rejected).then(|| (name.clone(), reason))
        };
        let alive = self.team.members.iter().filter(|(_, state)| !state.record.phase.is_ended());
        let unwilling = alive.filter_map(|(name, _)| rejected(name)).collect();
        self.waiters.stopped(&StopOutcome::Rejected(unwilling))
    }

    /// Ends the daemon once it is stopping and nobody is left.
    fn end_if_all_are_gone(&mut self) {
        if !self.team.stopping || self.exit.is_some() {
            return;
        }
        if self.team.members.values().any(|state| !state.record.phase.is_ended()) {
            return;
        }
        let record = TeamRecord {
            event: TeamEvent::Stopped,
            team_name: self.team.team_name.clone(),
            daemon: None,
            rejected: Vec::new(),
            tell: Vec::new(),
        };
        // The last line says that nothing is left to be done.
        self.tell_all_news();
        self.settle();
        let mut batch = Batch::default();
        self.apply(Record::Team(record), self.now(), &mut batch);
        if let Err(error) = self.journal.append(&batch.lines) {
            self.not_written(batch, &error);
            return;
        }
        self.roster.touch();
        self.write_roster();
        for (client, answer) in self.waiters.stopped(&StopOutcome::Stopped) {
            self.connections.reply(client, answer);
        }
        self.exit = Some(End::Stopped);
    }

    /// Writes what every start of a daemon writes, before anybody is served.
    pub(super) fn record_start(&mut self, record: TeamRecord) -> Result<(), AppendError> {
        let mut batch = Batch::default();
        let now = self.now();
        self.apply(Record::Team(record), now, &mut batch);
        for record in self.team.untold() {
            self.apply(record, now, &mut batch);
        }
        self.journal.append(&batch.lines)?;
        self.roster.touch();
        let names: Vec<_> = self.team.members.keys().cloned().collect();
        for name in names {
            self.live.arm(&self.team, &name, now, self.rules());
            self.roster.show(&self.team, &self.live, &name);
        }
        Ok(())
    }

    /// Writes the roster, if there is anything new; false if it cannot be written.
    pub(super) fn write_roster(&mut self) -> bool {
        let written = self.roster.flush(&self.dir, &self.team);
        if let Err(error) = &written {
            tracing::error!("cannot write the roster (tried again): {error}");
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            self.roster.postpone(RETRY);
        }
        written.is_ok()
    }
}

type Reply = Result<Done, Refusal>;

fn not_started(life: Life, why: &str) -> Event {
    Event::Started { life, process: Err(why.to_owned()), cgroup: None }
}

/// Returns the members that an event is about, beyond those of the records that follow from it.
fn concerned(event: &Event) -> Option<Name> {
    match event {
        Event::Connected { life, .. }
        | Event::Said { life, .. }
        | Event::Started { life, .. }
        | Event::Found { life }
        | Event::Ended { life, .. }
        | Event::Disconnected { life }
        | Event::Pong { life, .. } => Some(life.name.clone()),
        // With a spawn that was refused goes its environment.
        Event::Spawn(_, order, _) => Some(order.name.clone()),
        _ => None,
    }
}

fn subject(record: &Record) -> Option<Name> {
    match record {
        Record::Team(_) => None,
        Record::Member(record) => Some(record.member.name.clone()),
        Record::Request(record) => Name::of_inbox(record.request.member()).ok(),
    }
}

fn subjects(lines: &[Line]) -> BTreeSet<Name> {
    lines.iter().filter_map(|line| subject(&line.record)).collect()
}
