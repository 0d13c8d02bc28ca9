//! The order of steps, one case at a time. Every order, with deaths at any time, is tried in
//! `decide::tests::sim`.

mod full;
mod orders;

use teamd_shared::checkout::Checkout;
use teamd_shared::control::{
    Command, Done, ShutdownOrder, SpawnOrder, StopOutcome, TaskOrder, ToWorker, WorkerState,
};
use teamd_shared::environment::Environment;
use teamd_shared::id::{CountingIds, RequestId};
use teamd_shared::inbox::Unread;
use teamd_shared::job::JobReport;
use teamd_shared::journal::{Line, Record, RejectedLine, SNAPSHOT_LINES, TeamEvent};
use teamd_shared::member::{Doing, Member, Phase};
use teamd_shared::position::Position;
use teamd_shared::process::Identity;
use teamd_shared::settings::Settings;
use teamd_shared::task::{Task, TaskEvent, TaskFields};

use super::*;
use crate::core::caller::{Actor, ReplyTo};
use crate::core::decide::{Decision, decide};
use crate::core::event::{Ended, Ordered};
use crate::core::io::{IoFailed, NotWritten};
use crate::core::job::SpawnFacts;

const CLIENT: ReplyTo = ReplyTo {
    connection: 7,
    tag: 1,
    agent: false,
};

fn next_id() -> RequestId {
    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0x5000_0000);
    RequestId::from_bits(LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// An order to alice.
fn leave(decide_within: f64, force_after: Option<f64>) -> ShutdownOrder {
    let request_id = next_id();
    let name = alice().name;
    let reason = String::new();
    ShutdownOrder {
        request_id,
        name,
        reason,
        decide_within,
        force_after,
        wait: true,
    }
}

/// A dispatcher, and a disk that may be full.
struct Fixture {
    dispatcher: Dispatcher,
    io: Recorder,
}

/// Says in a word what is done.
struct Recorder {
    taken: Vec<&'static str>,
    now: Now,
    ids: CountingIds,
    journal: Vec<Line>,
    full: bool,
    roster_fails: bool,
    finish_fails: bool,
    start_fails: bool,
    has_mail: bool,
    /// The environment of the incarnation that was started last.
    environment: Environment,
}

impl Io for Recorder {
    fn unread_mail(&mut self, _: &Name, _: Position) -> Unread {
        Unread::default()
    }

    fn position_at(&mut self, _: &Name, _: u64) -> Position {
        Position::START
    }

    fn has_unread(&mut self, _: &Name, _: u64) -> bool {
        self.has_mail
    }

    fn show_tasks(&mut self, _: &[&Task]) {}

    fn now(&self) -> Now {
        self.now
    }

    fn decide(&mut self, view: &DecisionView<'_>, event: &Event) -> Decision {
        decide(view, event, &mut self.ids)
    }

    fn append(&mut self, lines: &[Line]) -> Result<(), NotWritten> {
        self.taken
            .push(if self.full { "append fails" } else { "append" });
        if self.full {
            let mut team = Team::default();
            for line in &self.journal {
                team.apply(line).unwrap();
            }
            return Err(NotWritten {
                why: "it is full".to_owned(),
                journal: Ok(Box::new(team)),
            });
        }
        self.journal.extend_from_slice(lines);
        Ok(())
    }

    fn complete(&mut self, _: &Team, again: bool) -> Result<(), IoFailed> {
        self.taken
            .push(if again { "complete again" } else { "complete" });
        Ok(())
    }

    fn finish_effects(&mut self) -> Result<u64, IoFailed> {
        self.taken.push("finish");
        if self.finish_fails {
            Err(IoFailed)
        } else {
            Ok(self.journal.len() as u64)
        }
    }

    fn perform(&mut self, _: &Team, action: &Action) -> Vec<Event> {
        match action {
            Action::Start(incarnation, Some(ordered)) => {
                self.taken.push("start");
                return vec![self.start(incarnation, ordered)];
            }
            Action::Terminate(_) | Action::Kill(_) => self.taken.push("signal"),
            Action::Say(_, ToWorker::Welcome(_)) => self.taken.push("welcome"),
            Action::Say(..) => self.taken.push("say"),
            Action::Look(client, id, order, _) => {
                let facts = facts();
                return vec![Event::Spawn(*client, id.clone(), order.clone(), facts)];
            }
            Action::Run(..) => self.taken.push("run"),
            Action::EndJob(_) => self.taken.push("end"),
            other => panic!("{other:?}"),
        }
        Vec::new()
    }

    fn show(&mut self, _: &Team, _: &Runtime, _: &BTreeSet<Name>) {
        self.taken.push("show");
    }

    fn write_roster(&mut self, _: &Team) -> Result<(), IoFailed> {
        self.taken.push("roster");
        if self.roster_fails {
            Err(IoFailed)
        } else {
            Ok(())
        }
    }
}

impl Recorder {
    fn start(&mut self, incarnation: &Incarnation, ordered: &Ordered) -> Event {
        self.environment = ordered.environment.clone();
        let incarnation = incarnation.clone();
        if self.start_fails {
            return Event::not_started(incarnation, "no descriptor is left");
        }
        let identity = Identity {
            pid: 100,
            start_ticks: 1,
            boot_id: "boot".to_owned(),
        };
        Event::Started {
            incarnation,
            process: Ok(identity),
            cgroup: None,
        }
    }
}

fn facts() -> SpawnFacts {
    SpawnFacts {
        held: None,
        lead_inbox: Ok(None),
        cannot_commit: None,
    }
}

fn alice() -> Incarnation {
    Incarnation {
        name: Name::new("alice").unwrap(),
        number: 1,
    }
}

impl Fixture {
    /// A daemon that has begun.
    fn new() -> Self {
        let rules = DecisionRules {
            max_members: 16,
            grace: Duration::from_secs(10),
            permission_timeout: Duration::from_secs(600),
            restart: Settings::default().restart(),
            watchdog: None,
            snapshot_lines: SNAPSHOT_LINES,
        };
        let io = Recorder {
            taken: Vec::new(),
            now: Now {
                wall: 1_763_756_100.0,
                monotonic: Duration::from_secs(5),
                since_boot: Duration::from_secs(5),
            },
            ids: CountingIds::default(),
            journal: Vec::new(),
            full: false,
            roster_fails: false,
            finish_fails: false,
            start_fails: false,
            has_mail: false,
            environment: Environment::default(),
        };
        let mut fixture = Self {
            dispatcher: Dispatcher::new(Team::default(), rules, JobPlaces::default()),
            io,
        };
        let record = TeamRecord::of(TeamEvent::Started, "default".to_owned(), None);
        fixture.dispatcher.begin(record, &mut fixture.io);
        fixture
    }

    /// A team of one running member.
    fn with_alice() -> Self {
        let mut fixture = Self::new();
        fixture.on(spawn_alice(CLIENT));
        fixture.on(Event::Greeted {
            incarnation: alice(),
        });
        let state = WorkerState {
            doing: Doing::Idle,
            ..WorkerState::default()
        };
        fixture.on(Event::Said {
            incarnation: alice(),
            state,
        });
        fixture
    }

    /// Handles events, and says in words what is done.
    fn handle(&mut self, events: Vec<Event>) -> Vec<&'static str> {
        self.io.taken.clear();
        self.dispatcher.handle(events, &mut self.io);
        self.taken()
    }

    fn taken(&mut self) -> Vec<&'static str> {
        let replies = self.dispatcher.take_replies();
        self.io
            .taken
            .extend(replies.iter().map(|reply| match reply.1 {
                Ok(Done::Stop(StopOutcome::Stopped)) => "reply stopped",
                Ok(_) => "reply",
                Err(_) => "refuse",
            }));
        std::mem::take(&mut self.io.taken)
    }

    /// Handles an event, and answers.
    fn on(&mut self, event: Event) -> Vec<&'static str> {
        let mut taken = self.handle(vec![event]);
        taken.extend(self.answers());
        taken
    }

    fn answers(&mut self) -> Vec<&'static str> {
        if self.dispatcher.has_answers() {
            self.dispatcher.answer(&mut self.io);
        }
        self.taken()
    }

    fn seconds_later(&mut self, seconds: u64) -> Vec<&'static str> {
        self.io.now.monotonic += Duration::from_secs(seconds);
        self.handle(Vec::new())
    }

    fn alice(&self) -> &Member {
        &self.dispatcher.team.members[&alice().name].record
    }

    fn lead_position(&self) -> u64 {
        self.dispatcher.team.lead.offset
    }
}

fn how_it_ended() -> Ended {
    Ended {
        code: Some(143),
        signal: None,
        inbox: Position::START,
        unread: 0,
        mail: Some(Vec::new()),
        more_mail: 0,
        emptied: None,
        unworkable: None,
    }
}

fn ended() -> Event {
    Event::Ended {
        incarnation: alice(),
        ended: how_it_ended(),
    }
}

fn bad_line_before(offset: u64) -> Event {
    let bad = RejectedLine {
        offset: offset - 1,
        reason: "no JSON".to_owned(),
        line: "{".to_owned(),
    };
    Event::LeadRead {
        position: Position { offset, tail: 0 },
        rejected: vec![bad],
    }
}

#[test]
fn lines_come_first_then_what_follows_then_the_roster_then_answers() {
    let mut fixture = Fixture::with_alice();
    let taken = fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: true },
    ));
    assert_eq!(taken, ["append", "complete", "say", "show"]);
    let order = Command::Forget {
        name: alice().name,
        discard: false,
    };
    assert_eq!(
        fixture.on(Event::Command(CLIENT, Actor::Person, order)),
        ["show", "roster", "refuse"]
    );
}

#[test]
fn nothing_of_a_batch_that_could_not_be_written_holds_or_is_done() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    let before = fixture.dispatcher.team.clone();
    let taken = fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: false },
    ));
    assert_eq!(taken, ["append fails", "show", "refuse"]);
    assert_eq!(fixture.dispatcher.team.members, before.members);
    assert!(
        !fixture.dispatcher.team.stopping && !fixture.dispatcher.has_undecided(),
        "its caller may try again"
    );
}

/// Alice has left, and a command is to forget her.
fn without_alice() -> (Fixture, Event) {
    let mut fixture = Fixture::with_alice();
    fixture.on(Event::Leaving {
        incarnation: alice(),
    });
    fixture.on(ended());
    (
        fixture,
        Event::Command(
            CLIENT,
            Actor::Person,
            Command::Forget {
                name: alice().name,
                discard: false,
            },
        ),
    )
}

fn spawn_alice(client: ReplyTo) -> Event {
    let facts = SpawnFacts {
        held: None,
        lead_inbox: Ok(None),
        cannot_commit: None,
    };
    let order = Box::new(SpawnOrder::new(alice().name, Environment::default()));
    Event::Spawn(client, next_id(), order, facts)
}

#[test]
fn the_name_of_a_forgotten_teammate_is_free_once_its_files_are_in_the_archive() {
    let (mut fixture, forget) = without_alice();
    assert_eq!(fixture.on(forget)[..3], ["append", "complete", "finish"]);
    assert_eq!(
        fixture.on(spawn_alice(CLIENT))[..3],
        ["append", "complete", "start"]
    );
}

#[test]
fn a_forget_and_a_spawn_at_once_are_both_carried_out() {
    let (mut fixture, forget) = without_alice();
    let taken = fixture.handle(vec![forget, spawn_alice(CLIENT)]);
    assert_eq!(
        taken[..7],
        [
            "append", "complete", "finish", "show", "append", "complete", "start"
        ]
    );
}

#[test]
fn the_name_of_a_forgotten_teammate_is_refused_while_its_files_cannot_be_moved() {
    let (mut fixture, forget) = without_alice();
    fixture.io.finish_fails = true;
    fixture.on(forget);
    let refused = fixture.on(spawn_alice(CLIENT));
    assert_eq!(
        refused,
        ["complete again", "finish", "show", "roster", "refuse"]
    );
    // The next spawn tries again, and waits for no timer.
    fixture.io.finish_fails = false;
    assert!(fixture.on(spawn_alice(CLIENT)).contains(&"start"));
}

#[test]
fn a_start_whose_end_is_journaled_with_it_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    fixture.on(spawn_alice(CLIENT));
    fixture.io.full = true;
    fixture.io.full = false;
    fixture.on(ended());
    fixture.seconds_later(1);
    assert_eq!(
        fixture.dispatcher.team.members[&alice().name]
            .record
            .incarnation,
        2,
        "it is started again"
    );
    assert!(fixture.dispatcher.runtime.of(&alice()).is_none());
}

/// A pending shutdown would have prevented the restart, and the spawn would have brought its
/// environment: both were refused with the batch.
#[test]
fn a_restart_does_not_get_the_environment_of_a_refused_order() {
    let mut fixture = Fixture::with_alice();
    let mut order = SpawnOrder::new(alice().name, Environment::default());
    order.environment.set("OF", "the order");
    let facts = SpawnFacts {
        held: None,
        lead_inbox: Ok(None),
        cannot_commit: None,
    };
    let leave = leave(30.0, None);
    let leave = Event::Command(CLIENT, Actor::Person, Command::Shutdown(leave));
    fixture.io.full = true;
    let taken = fixture.handle(vec![
        leave,
        ended(),
        Event::Spawn(CLIENT, next_id(), Box::new(order), facts),
    ]);
    assert_eq!(taken, ["append fails", "show", "refuse", "refuse"]);
    fixture.io.full = false;
    assert_eq!(
        fixture.seconds_later(1)[..3],
        ["append", "complete", "start"]
    );
    assert_eq!(fixture.io.environment, Environment::default());
}

#[test]
fn an_end_does_not_overtake_a_farewell_that_could_not_be_journaled() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    fixture.on(Event::Leaving {
        incarnation: alice(),
    });
    fixture.io.full = false;
    assert_eq!(
        fixture.on(ended()),
        Vec::<&str>::new(),
        "it waits for what was heard before"
    );
    fixture.seconds_later(1);
    assert_eq!(
        fixture.dispatcher.team.members[&alice().name].record.phase,
        Phase::Killed
    );
}

#[test]
fn a_command_goes_on_waiting_for_an_end_while_the_journal_cannot_be_written() {
    let mut fixture = Fixture::with_alice();
    let leave = leave(30.0, None);
    fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Shutdown(leave),
    ));
    fixture.io.full = true;
    assert_eq!(fixture.handle(vec![ended()]), ["append fails", "show"]);
    fixture.io.full = false;
    fixture.seconds_later(1);
    assert_eq!(fixture.answers().last(), Some(&"reply"));
}

/// A worker reports each tool that it runs, and a disk is full for hours.
#[test]
fn of_what_a_worker_says_while_the_journal_cannot_be_written_the_last_waits() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    fixture.on(Event::Leaving {
        incarnation: alice(),
    });
    for round in 0..20 {
        fixture.io.now.monotonic += RETRY;
        let taken = fixture.handle(
            (0..5)
                .map(|number| {
                    let state = WorkerState {
                        activity: format!("{round} {number}"),
                        ..WorkerState::default()
                    };
                    Event::Said {
                        incarnation: alice(),
                        state,
                    }
                })
                .collect(),
        );
        assert!(
            taken.iter().filter(|step| **step == "say").count() <= 1,
            "{taken:?}"
        );
        assert!(
            fixture.dispatcher.events.len() <= 3,
            "{:?}",
            fixture.dispatcher.events
        );
    }
}

#[test]
fn no_member_is_restarted_before_the_stop_is_journaled() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    fixture.on(Event::Terminate);
    fixture.io.full = false;
    let killed = Ended {
        code: None,
        signal: Some(9),
        ..how_it_ended()
    };
    assert_eq!(
        fixture.on(Event::Ended {
            incarnation: alice(),
            ended: killed
        }),
        Vec::<&str>::new()
    );
    fixture.seconds_later(1);
    assert!(
        fixture.dispatcher.team.members[&alice().name]
            .record
            .phase
            .is_ended(),
        "it does not come back"
    );
}

/// Alice has crashed, and her next incarnation could not be run.
fn not_run_again() -> Fixture {
    let mut fixture = Fixture::with_alice();
    let killed = Ended {
        code: None,
        signal: Some(9),
        ..how_it_ended()
    };
    fixture.io.start_fails = true;
    assert!(
        fixture
            .on(Event::Ended {
                incarnation: alice(),
                ended: killed
            })
            .contains(&"start")
    );
    fixture
}

#[test]
fn a_next_incarnation_that_cannot_be_run_is_tried_again_after_a_while() {
    let mut fixture = not_run_again();
    for next in 2..4 {
        assert_eq!(fixture.handle(Vec::new()), Vec::<&str>::new());
        assert_eq!(
            fixture.dispatcher.next_due(),
            Some(fixture.io.now.monotonic + RETRY),
            "others are heard meanwhile"
        );
        assert!(fixture.seconds_later(1).contains(&"start"), "{next}");
    }
    assert!(
        !fixture.seconds_later(1).contains(&"start"),
        "no more often than one that crashes"
    );
    assert_eq!(fixture.alice().phase, Phase::Crashed);
}

#[test]
fn a_delayed_restart_is_dropped_when_the_team_stops() {
    for full in [false, true] {
        let mut fixture = not_run_again();
        // What could not be journaled is tried again later than that incarnation.
        fixture.io.now.monotonic += RETRY / 2;
        fixture.io.full = full;
        fixture.on(Event::Terminate);
        fixture.io.full = false;
        for _ in 0..4 {
            fixture.io.now.monotonic += RETRY / 2;
            assert!(!fixture.seconds_later(0).contains(&"start"));
        }
        assert!(fixture.alice().phase.is_ended());
    }
}

#[test]
fn a_delayed_restart_is_dropped_when_the_member_is_to_leave() {
    let mut fixture = not_run_again();
    fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Shutdown(leave(30.0, None)),
    ));
    assert!(!fixture.seconds_later(1).contains(&"start"));
    assert_eq!(fixture.alice().phase, Phase::Crashed);
}

#[test]
fn bad_lines_do_not_overtake_those_that_could_not_be_journaled() {
    let mut fixture = Fixture::new();
    fixture.io.full = true;
    fixture.on(bad_line_before(4));
    fixture.io.full = false;
    fixture.on(bad_line_before(9));
    assert_eq!(
        fixture.lead_position(),
        0,
        "a daemon that starts now reads both again"
    );
    fixture.seconds_later(1);
    assert_eq!(fixture.lead_position(), 9);
    let told = fixture
        .io
        .journal
        .iter()
        .filter_map(|line| match &line.record {
            Record::Team(record) => record.rejected.first().map(|bad| bad.offset),
            _ => None,
        });
    assert_eq!(told.collect::<Vec<_>>(), [3, 8]);
}

#[test]
fn the_stop_is_answered_when_the_roster_shows_the_end() {
    let mut fixture = Fixture::with_alice();
    fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: true },
    ));
    fixture.io.roster_fails = true;
    let taken = fixture.on(ended());
    assert_eq!(taken[taken.len() - 3..], ["finish", "append", "roster"]);
    assert!(
        fixture.dispatcher.is_stopping(),
        "crash window A14: a command that starts a daemon waits for the end of this one"
    );
    assert!(fixture.dispatcher.end().is_none() && fixture.dispatcher.has_answers());
    assert_eq!(
        fixture.on(Event::Command(
            CLIENT,
            Actor::Person,
            Command::Stop { force: true }
        )),
        ["roster"],
        "nothing begins"
    );
    fixture.io.roster_fails = false;
    assert_eq!(fixture.answers(), ["roster", "reply stopped"]);
    assert!(matches!(fixture.dispatcher.end(), Some(DaemonEnd::Stopped)));
}

#[test]
fn a_daemon_whose_roster_cannot_be_written_ends_all_the_same_after_a_while() {
    let mut fixture = Fixture::new();
    fixture.io.roster_fails = true;
    fixture.on(Event::Terminate);
    assert!(fixture.dispatcher.end().is_none());
    fixture.seconds_later(5);
    fixture.answers();
    assert!(matches!(fixture.dispatcher.end(), Some(DaemonEnd::Stopped)));
}

#[test]
fn a_team_is_quiet_once_messages_are_on_the_disk_and_read() {
    let mut fixture = Fixture::with_alice();
    let wait = Event::Command(CLIENT, Actor::Person, Command::AwaitQuiet { goal: Some(1) });
    assert_eq!(
        fixture.on(wait),
        ["show"],
        "the effects of the last lines are not known to be done"
    );
    fixture.dispatcher.mark_done(fixture.dispatcher.team.seq);
    fixture.io.has_mail = true;
    assert_eq!(
        fixture.seconds_later(1),
        Vec::<&str>::new(),
        "she has not read it"
    );
    fixture.io.has_mail = false;
    let state = WorkerState {
        doing: Doing::Working,
        ..WorkerState::default()
    };
    assert_eq!(
        fixture.on(Event::Said {
            incarnation: alice(),
            state
        }),
        ["show"]
    );
    let state = WorkerState {
        doing: Doing::Idle,
        ..WorkerState::default()
    };
    // As her worker is idle, its inbox was looked at.
    fixture.dispatcher.runtime.record_unread(&alice(), false);
    assert_eq!(
        fixture.on(Event::Said {
            incarnation: alice(),
            state
        }),
        ["show", "roster", "reply"]
    );
    assert_eq!(
        fixture.seconds_later(1),
        Vec::<&str>::new(),
        "it is answered once"
    );
}

/// Orders that alice starts in a checkout, and takes tasks by herself.
fn spawn_alice_in_a_checkout() -> Event {
    let mut order = SpawnOrder::new(alice().name, Environment::default());
    order.terms.checkout = Some(true);
    order.terms.auto = Some(true);
    order.asked_at = Duration::from_secs(4);
    let id = next_id();
    let order = Box::new(order);
    Event::Command(CLIENT, Actor::Person, Command::Spawn { id, order })
}

/// The end of the job that has made a checkout.
fn made(job: u64) -> Event {
    let report = JobReport::Made {
        checkout: Checkout::default(),
        workspace: "/".to_owned(),
    };
    let ended = Ok(report);
    Event::JobEnded { job, ended }
}

/// A team of alice, who is idle in a checkout.
fn with_alice_in_a_checkout() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.on(spawn_alice_in_a_checkout());
    fixture.on(made(1));
    fixture.on(Event::Greeted {
        incarnation: alice(),
    });
    fixture.on(says(Doing::Idle));
    fixture
}

/// Alice reports what she does.
fn says(doing: Doing) -> Event {
    let state = WorkerState {
        doing,
        ..WorkerState::default()
    };
    Event::Said {
        incarnation: alice(),
        state,
    }
}

#[test]
fn of_a_forget_and_a_spawn_at_once_one_works_in_the_checkout() {
    let mut fixture = with_alice_in_a_checkout();
    fixture.on(Event::Leaving {
        incarnation: alice(),
    });
    fixture.on(ended());
    let forget = Event::Command(
        CLIENT,
        Actor::Person,
        Command::Forget {
            name: alice().name,
            discard: false,
        },
    );
    let mut order = SpawnOrder::new(alice().name, Environment::default());
    order.terms.checkout = Some(true);
    let spawn = Event::Spawn(CLIENT, next_id(), Box::new(order), facts());
    let mut taken = fixture.handle(vec![forget, spawn]);
    taken.extend(fixture.answers());
    taken.retain(|step| ["run", "refuse"].contains(step));
    assert_eq!(taken, ["run", "refuse"]);
}

#[test]
fn a_spawn_that_is_called_off_is_refused_at_once_and_the_end_of_its_job_awaited() {
    let mut fixture = Fixture::new();
    let taken = fixture.on(spawn_alice_in_a_checkout());
    assert!(taken.contains(&"run"), "{taken:?}");
    let person = ReplyTo {
        connection: 8,
        ..CLIENT
    };
    let leave = Command::Shutdown(leave(30.0, None));
    let taken = fixture.on(Event::Command(person, Actor::Person, leave));
    assert!(taken.contains(&"end"), "{taken:?}");
    let answers = |taken: &[&str]| {
        let answers = taken.iter().filter(|it| ["reply", "refuse"].contains(it));
        answers.map(|it| it.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(answers(&taken), ["refuse"], "the spawn");
    // It may have been done just then.
    let taken = fixture.on(made(1));
    assert_eq!(answers(&taken), ["reply"], "the shutdown");
    assert!(!taken.contains(&"start"), "{taken:?}");
    // The same command comes late.
    let taken = fixture.on(spawn_alice_in_a_checkout());
    assert_eq!(answers(&taken), ["refuse"]);
    assert!(!taken.contains(&"run"), "{taken:?}");
}

#[test]
fn an_owner_that_waits_for_its_background_command_is_reminded_after_ten_minutes() {
    let mut fixture = Fixture::with_alice();
    let fields = TaskFields {
        subject: Some("fix it".to_owned()),
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    fixture.on(Event::Command(CLIENT, Actor::Person, Command::Task(add)));
    let claim = Command::Task(TaskOrder::Claim(Some(1)));
    fixture.on(Event::Command(CLIENT, Actor::Member(alice().name), claim));
    fixture.on(says(Doing::Working));
    let now = fixture.io.now;
    fixture.dispatcher.runs_commands(&alice(), true, now);
    let is_reminded = |fixture: &Fixture| {
        let mut lines = fixture.io.journal.iter();
        lines
            .any(|line| matches!(&line.record, Record::Task(it) if it.event == TaskEvent::Reminded))
    };
    fixture.on(says(Doing::Idle));
    fixture.seconds_later(599);
    assert!(!is_reminded(&fixture));
    fixture.seconds_later(1);
    assert!(is_reminded(&fixture));
}
