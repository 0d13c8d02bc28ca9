//! The order of steps, one case at a time. Every order, with deaths at any time, is tried in `decide::tests::sim`.

mod full;

use teamd_shared::control::{Command, Done, ShutdownOrder, SpawnOrder, StopOutcome, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::id::{CountingIds, RequestId};
use teamd_shared::journal::{RejectedLine, SNAPSHOT_LINES};
use teamd_shared::member::{Doing, Member, Phase};
use teamd_shared::position::Position;
use teamd_shared::process::Identity;
use teamd_shared::settings::Settings;

use super::*;
use crate::daemon::core::decide::decide;
use crate::daemon::core::event::{Ended, SpawnFacts};

const CLIENT: Client = Client { connection: 7, tag: 1, agent: false };

fn next_id() -> RequestId {
    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0x5000_0000);
    RequestId::from_bits(LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// An order to alice.
fn leave(decide_within: f64, force_after: Option<f64>) -> ShutdownOrder {
    let (request_id, name, reason) = (next_id(), alice().name, String::new());
    ShutdownOrder { request_id, name, reason, decide_within, force_after, wait: true }
}

/// A batcher, and a disk that may be full.
struct Fixture {
    batcher: Batcher,
    now: Now,
    ids: CountingIds,
    journal: Vec<Line>,
    full: bool,
    roster_fails: bool,
    settle_fails: bool,
    /// The environment of the incarnation that was started last.
    environment: Environment,
}

fn alice() -> Incarnation {
    Incarnation { name: Name::new("alice").unwrap(), number: 1 }
}

impl Fixture {
    /// A daemon that has begun.
    fn new() -> Self {
        let rules = Rules {
            grace: Duration::from_secs(10),
            restart: Settings::default().restart(),
            watchdog: None,
            snapshot_lines: SNAPSHOT_LINES,
        };
        let mut fixture = Self {
            batcher: Batcher::new(Team::default(), rules),
            now: Now { wall: 1_763_756_100.0, monotonic: Duration::from_secs(5) },
            ids: CountingIds::default(),
            journal: Vec::new(),
            full: false,
            roster_fails: false,
            settle_fails: false,
            environment: Environment::default(),
        };
        let record = TeamRecord::of(TeamEvent::Started, "default".to_owned(), None);
        fixture.batcher.begin(record, fixture.now);
        fixture.steps();
        fixture
    }

    /// A team of one running member.
    fn with_alice() -> Self {
        let mut fixture = Self::new();
        fixture.on(spawn_alice(CLIENT));
        let identity = Identity { pid: 100, start_ticks: 1, boot_id: "boot".to_owned() };
        fixture.on(Event::Started { incarnation: alice(), process: Ok(identity), cgroup: None });
        let state = WorkerState { doing: Doing::Idle, ..WorkerState::default() };
        fixture.on(Event::Said { incarnation: alice(), state });
        fixture
    }

    /// Takes the steps that are due, and says in a word which.
    fn steps(&mut self) -> Vec<&'static str> {
        let mut taken = Vec::new();
        let Self { batcher, now, ids, .. } = self;
        while let Some(step) = batcher.next(*now, &mut |view, event| decide(view, event, ids)) {
            taken.push(match step {
                Step::Append(_) if self.full => {
                    let mut team = Team::default();
                    self.journal.iter().for_each(|line| team.apply(line).unwrap());
                    batcher.not_written("it is full", Ok(team), *now);
                    "append fails"
                }
                Step::Append(lines) => {
                    self.journal.extend(lines);
                    batcher.appended(*now);
                    "append"
                }
                Step::Complete { again: false } => "complete",
                Step::Complete { again: true } => "complete again",
                Step::Settle if self.settle_fails => {
                    batcher.try_again_later(*now);
                    "settle"
                }
                Step::Settle => {
                    batcher.settled(batcher.team.seq);
                    "settle"
                }
                Step::Start(new) => {
                    self.environment = new.environment;
                    "start"
                }
                Step::Terminate(_) | Step::Kill(_) => "signal",
                Step::Say(_, ToWorker::Welcome(_)) => "welcome",
                Step::Say(..) => "say",
                Step::Show(_) => "show",
                Step::WriteRoster => {
                    batcher.shown(!self.roster_fails, *now);
                    "roster"
                }
                Step::Reply(_, Ok(Done::Stop(StopOutcome::Stopped))) => "reply stopped",
                Step::Reply(_, Ok(_)) => "reply",
                Step::Reply(_, Err(_)) => "refuse",
            });
        }
        taken
    }

    /// Handles an event, and answers.
    fn on(&mut self, event: Event) -> Vec<&'static str> {
        self.batcher.handle(vec![event], self.now);
        let mut taken = self.steps();
        taken.extend(self.answers());
        taken
    }

    fn answers(&mut self) -> Vec<&'static str> {
        if !self.batcher.has_answers() {
            return Vec::new();
        }
        self.batcher.answer(self.now);
        self.steps()
    }

    fn seconds_later(&mut self, seconds: u64) -> Vec<&'static str> {
        self.now.monotonic += Duration::from_secs(seconds);
        self.batcher.handle(Vec::new(), self.now);
        self.steps()
    }

    /// The last incarnation that was begun could not be run.
    fn cannot_start(&mut self, incarnation: u32) {
        let incarnation = Incarnation { number: incarnation, ..alice() };
        self.batcher.started(Event::not_started(incarnation, "no descriptor is left"), self.now);
    }

    fn alice(&self) -> &Member {
        &self.batcher.team.members[&alice().name].record
    }

    fn lead_position(&self) -> u64 {
        self.batcher.team.lead.offset
    }
}

fn how_it_ended() -> Ended {
    Ended {
        code: Some(143),
        signal: None,
        inbox: Position::START,
        unread: 0,
        by_signal: false,
        emptied: None,
        unworkable: None,
    }
}

fn ended() -> Event {
    Event::Ended { incarnation: alice(), ended: how_it_ended() }
}

fn bad_line_before(offset: u64) -> Event {
    let bad = RejectedLine { offset: offset - 1, reason: "no JSON".to_owned(), line: "{".to_owned() };
    Event::LeadRead { position: Position { offset, tail: 0 }, rejected: vec![bad] }
}

#[test]
fn lines_come_first_then_what_follows_then_the_roster_then_answers() {
    let mut fixture = Fixture::with_alice();
    let taken = fixture.on(Event::Command(CLIENT, Command::Stop { force: true }));
    assert_eq!(taken, ["append", "complete", "say", "show"]);
    let order = Command::Forget { name: alice().name };
    assert_eq!(fixture.on(Event::Command(CLIENT, order)), ["show", "roster", "refuse"]);
}

#[test]
fn nothing_of_a_batch_that_could_not_be_written_holds_or_is_done() {
    let mut fixture = Fixture::with_alice();
    fixture.full = true;
    let before = fixture.batcher.team.clone();
    let taken = fixture.on(Event::Command(CLIENT, Command::Stop { force: true }));
    assert_eq!(taken, ["append fails", "refuse", "show"]);
    assert_eq!(fixture.batcher.team.members, before.members);
    assert!(!fixture.batcher.team.stopping && !fixture.batcher.has_undecided(), "its caller may try again");
}

/// Alice has left, and a command is to forget her.
fn without_alice() -> (Fixture, Event) {
    let mut fixture = Fixture::with_alice();
    fixture.on(Event::Leaving { incarnation: alice() });
    fixture.on(ended());
    (fixture, Event::Command(CLIENT, Command::Forget { name: alice().name }))
}

fn spawn_alice(client: Client) -> Event {
    let facts = SpawnFacts { held: None, default_workspace: "/home/u/web".to_owned(), lead_inbox: None };
    let order = Box::new(SpawnOrder::new(alice().name, Environment::default()));
    Event::Spawn(client, next_id(), order, facts)
}

#[test]
fn the_name_of_a_forgotten_teammate_is_free_once_its_files_are_in_the_archive() {
    let (mut fixture, forget) = without_alice();
    fixture.on(forget);
    assert!(fixture.batcher.is_unsettled(), "its files may be in their places");
    assert_eq!(fixture.on(spawn_alice(CLIENT))[..4], ["settle", "append", "complete", "start"]);
}

#[test]
fn a_forget_and_a_spawn_at_once_are_both_carried_out() {
    let (mut fixture, forget) = without_alice();
    fixture.batcher.handle(vec![forget, spawn_alice(CLIENT)], fixture.now);
    let taken = fixture.steps();
    assert_eq!(taken[..7], ["append", "complete", "show", "settle", "append", "complete", "start"]);
}

#[test]
fn the_name_of_a_forgotten_teammate_is_refused_only_when_its_files_cannot_be_moved_now() {
    let (mut fixture, forget) = without_alice();
    fixture.on(forget);
    fixture.batcher.try_again_later(fixture.now);
    fixture.settle_fails = true;
    let taken = fixture.on(spawn_alice(CLIENT));
    assert_eq!(taken, ["complete again", "settle", "show", "roster", "refuse"]);
    fixture.settle_fails = false;
    assert!(fixture.on(spawn_alice(CLIENT)).contains(&"refuse"), "nothing has changed since");
    fixture.seconds_later(1);
    fixture.batcher.settled(fixture.batcher.team.seq);
    assert!(fixture.on(spawn_alice(CLIENT)).contains(&"start"));
}

#[test]
fn a_start_whose_end_is_journaled_with_it_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    fixture.on(spawn_alice(CLIENT));
    fixture.full = true;
    let identity = Identity { pid: 100, start_ticks: 1, boot_id: "boot".to_owned() };
    fixture.on(Event::Started { incarnation: alice(), process: Ok(identity), cgroup: None });
    fixture.full = false;
    fixture.on(ended());
    fixture.seconds_later(1);
    assert_eq!(fixture.batcher.team.members[&alice().name].record.incarnation, 2, "it is started again");
    assert!(!fixture.batcher.is_unwelcomed(&alice()));
}

/// A pending shutdown would have prevented the restart, and the spawn would have brought its environment: both were refused
/// with the batch.
#[test]
fn a_restart_does_not_get_the_environment_of_a_refused_order() {
    let mut fixture = Fixture::with_alice();
    let mut order = SpawnOrder::new(alice().name, Environment::default());
    order.environment.set("OF", "the order");
    let facts = SpawnFacts { held: None, default_workspace: "/home/u/web".to_owned(), lead_inbox: None };
    let leave = leave(30.0, Some(30.0));
    let leave = Event::Command(CLIENT, Command::Shutdown(leave));
    fixture.full = true;
    fixture
        .batcher
        .handle(vec![leave, ended(), Event::Spawn(CLIENT, next_id(), Box::new(order), facts)], fixture.now);
    assert_eq!(fixture.steps(), ["append fails", "refuse", "refuse", "show"]);
    fixture.full = false;
    assert_eq!(fixture.seconds_later(1)[..3], ["append", "complete", "start"]);
    assert_eq!(fixture.environment, Environment::default());
}

#[test]
fn an_end_does_not_overtake_a_farewell_that_could_not_be_journaled() {
    let mut fixture = Fixture::with_alice();
    fixture.full = true;
    fixture.on(Event::Leaving { incarnation: alice() });
    fixture.full = false;
    assert_eq!(fixture.on(ended()), Vec::<&str>::new(), "it waits for what was heard before");
    fixture.seconds_later(1);
    assert_eq!(fixture.batcher.team.members[&alice().name].record.phase, Phase::Killed);
}

#[test]
fn a_command_goes_on_waiting_for_an_end_while_the_journal_cannot_be_written() {
    let mut fixture = Fixture::with_alice();
    let leave = leave(30.0, None);
    fixture.on(Event::Command(CLIENT, Command::Shutdown(leave)));
    fixture.full = true;
    fixture.batcher.handle(vec![ended()], fixture.now);
    assert_eq!(fixture.steps(), ["append fails", "show"]);
    fixture.full = false;
    fixture.seconds_later(1);
    assert_eq!(fixture.answers().last(), Some(&"reply"));
}

/// A worker reports each tool that it runs, and a disk is full for hours.
#[test]
fn of_what_a_worker_says_while_the_journal_cannot_be_written_the_last_waits() {
    let mut fixture = Fixture::with_alice();
    fixture.full = true;
    fixture.on(Event::Leaving { incarnation: alice() });
    for round in 0..20 {
        let said = |number: u64| {
            let state = WorkerState { activity: format!("{round} {number}"), ..WorkerState::default() };
            Event::Said { incarnation: alice(), state }
        };
        fixture.now.monotonic += RETRY;
        fixture.batcher.handle((0..5).map(said).collect(), fixture.now);
        let taken = fixture.steps();
        assert!(taken.iter().filter(|step| **step == "say").count() <= 1, "{taken:?}");
        assert!(fixture.batcher.events.len() <= 3, "{:?}", fixture.batcher.events);
    }
}

#[test]
fn no_member_is_restarted_before_the_stop_is_journaled() {
    let mut fixture = Fixture::with_alice();
    fixture.full = true;
    fixture.on(Event::Terminate);
    fixture.full = false;
    let killed = Ended { code: None, signal: Some(9), ..how_it_ended() };
    assert_eq!(fixture.on(Event::Ended { incarnation: alice(), ended: killed }), Vec::<&str>::new());
    fixture.seconds_later(1);
    assert!(fixture.batcher.team.members[&alice().name].record.phase.is_ended(), "it does not come back");
}

/// Alice has crashed, and her next incarnation could not be run.
fn not_run_again() -> Fixture {
    let mut fixture = Fixture::with_alice();
    let killed = Ended { code: None, signal: Some(9), ..how_it_ended() };
    assert!(fixture.on(Event::Ended { incarnation: alice(), ended: killed }).contains(&"start"));
    fixture.cannot_start(2);
    fixture
}

#[test]
fn a_next_incarnation_that_cannot_be_run_is_tried_again_after_a_while() {
    let mut fixture = not_run_again();
    for next in 2..4 {
        assert_eq!(fixture.steps(), Vec::<&str>::new());
        assert_eq!(
            fixture.batcher.next_due(),
            Some(fixture.now.monotonic + RETRY),
            "others are heard meanwhile"
        );
        assert!(fixture.seconds_later(1).contains(&"start"), "{next}");
        fixture.cannot_start(next + 1);
    }
    assert!(!fixture.seconds_later(1).contains(&"start"), "no more often than one that crashes");
    assert_eq!(fixture.alice().phase, Phase::Crashed);
}

#[test]
fn a_delayed_restart_is_dropped_when_the_team_stops() {
    for full in [false, true] {
        let mut fixture = not_run_again();
        // What could not be journaled is tried again later than that incarnation.
        fixture.now.monotonic += RETRY / 2;
        fixture.full = full;
        fixture.on(Event::Terminate);
        fixture.full = false;
        for _ in 0..4 {
            fixture.now.monotonic += RETRY / 2;
            assert!(!fixture.seconds_later(0).contains(&"start"));
        }
        assert!(fixture.alice().phase.is_ended());
    }
}

#[test]
fn a_delayed_restart_is_dropped_when_the_member_is_to_leave() {
    let mut fixture = not_run_again();
    fixture.on(Event::Command(CLIENT, Command::Shutdown(leave(30.0, None))));
    assert!(!fixture.seconds_later(1).contains(&"start"));
    assert_eq!(fixture.alice().phase, Phase::Crashed);
}

#[test]
fn bad_lines_do_not_overtake_those_that_could_not_be_journaled() {
    let mut fixture = Fixture::new();
    fixture.full = true;
    fixture.on(bad_line_before(4));
    fixture.full = false;
    fixture.on(bad_line_before(9));
    assert_eq!(fixture.lead_position(), 0, "a daemon that starts now reads both again");
    fixture.seconds_later(1);
    assert_eq!(fixture.lead_position(), 9);
    let told = fixture.journal.iter().filter_map(|line| match &line.record {
        Record::Team(record) => record.rejected.first().map(|bad| bad.offset),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [3, 8]);
}

#[test]
fn the_stop_is_answered_when_the_roster_shows_the_end() {
    let mut fixture = Fixture::with_alice();
    fixture.on(Event::Command(CLIENT, Command::Stop { force: true }));
    fixture.roster_fails = true;
    let taken = fixture.on(ended());
    assert_eq!(taken[taken.len() - 3..], ["settle", "append", "roster"]);
    assert!(
        fixture.batcher.is_stopping(),
        "crash window A14: a command that starts a daemon waits for the end of this one"
    );
    assert!(fixture.batcher.end.is_none() && fixture.batcher.has_answers());
    assert_eq!(
        fixture.on(Event::Command(CLIENT, Command::Stop { force: true })),
        ["roster"],
        "nothing begins"
    );
    fixture.roster_fails = false;
    assert_eq!(fixture.answers(), ["roster", "reply stopped"]);
    assert!(matches!(fixture.batcher.end, Some(End::Stopped)));
}

#[test]
fn a_daemon_whose_roster_cannot_be_written_ends_all_the_same_after_a_while() {
    let mut fixture = Fixture::new();
    fixture.roster_fails = true;
    fixture.on(Event::Terminate);
    assert!(fixture.batcher.end.is_none());
    fixture.seconds_later(5);
    fixture.answers();
    assert!(matches!(fixture.batcher.end, Some(End::Stopped)));
}
