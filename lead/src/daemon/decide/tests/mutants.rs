//! Tests of the tests: each rule of the specification that is dropped must be missed within a few schedules.
//!
//! The rules are dropped in the simulated world, around the decisions; the decisions know nothing of it.

use std::collections::VecDeque;

use teamd_shared::journal::{MemberEvent, Record, RequestEvent, RequestRecord, Team};
use teamd_shared::member::Phase;
use teamd_shared::message::Body;
use teamd_shared::name::Name;
use teamd_shared::request::{self, Kind};

use super::sim::{Daemon, World, run};
use crate::daemon::decide::Decision;
use crate::daemon::event::{Action, Event, Life};

/// How many schedules may pass before it is missed.
const SCHEDULES: u64 = 150;

/// A rule that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Rule 5: a life is over only when its lock is free.
    BuriesBeforeTheLockIsFree,
    /// Rule 6: a worker does nothing before it is welcomed.
    BeginsUnwelcomed,
    /// Rule 7: only the worker's own connection makes a line count.
    AnyLineCounts,
    /// Rule 7: only the reply lets a worker leave.
    LeavesUnrecorded,
    /// Section 7.2: only the daemon's word opens a gate.
    InboxOpensTheGate,
    /// Rule 8: the daemon says its word on every connection.
    NoWordOnReconnect,
    /// Rule 8: the worker says its state, and the plan that it waits for.
    StatesAreNotHeard,
    /// Rule 8: a gate with an unanswered plan stays closed whatever the word says.
    GateIgnoresItsPlan,
    /// Rule 9: one decision is one line.
    ExpiriesAreLinesOfTheirOwn,
    /// Rule 9: what is not done is done again.
    NothingIsDoneAgain,
    /// Rule 9: under the same ids.
    OtherIdsWhenDoneAgain,
    /// Rule 11: a signal is journaled before it is sent.
    SignalsFirst,
    /// Rule 11: nobody is restarted whose shutdown is pending.
    RestartsWhoShallLeave,
    /// Rule 11: nobody is restarted or spawned while the team is stopping.
    StoppingIsForgotten,
}

impl World {
    /// The state as the decisions see it, if they see another one.
    pub(super) fn doctored(&self, team: &Team) -> Option<Team> {
        let forgets = self.is(Mutant::StoppingIsForgotten) && team.stopping;
        forgets.then(|| {
            let mut doctored = team.clone();
            doctored.stopping = false;
            doctored
        })
    }

    /// Makes another decision of it.
    pub(super) fn spoil(&self, team: &Team, event: &Event, decision: &mut Decision) {
        if self.is(Mutant::ExpiriesAreLinesOfTheirOwn) {
            decision.records = decision.records.drain(..).flat_map(|record| parted(team, record)).collect();
        }
        let asked = |life: &Life| team.pending(&life.name, Kind::Shutdown).is_some();
        let Event::Ended { life, .. } = event else { return };
        if !self.is(Mutant::RestartsWhoShallLeave) || !asked(life) {
            return;
        }
        for record in &mut decision.records {
            if let Record::Member(record) = record
                && record.event == MemberEvent::Exited
                && record.member.phase == Phase::Crashed
            {
                record.ended_incarnation = Some(life.incarnation);
                (record.member.phase, record.member.incarnation) = (Phase::Spawning, life.incarnation + 1);
                let life = Life { name: life.name.clone(), incarnation: life.incarnation + 1 };
                decision.actions.push(Action::Start(life));
            }
        }
    }

    pub(super) fn signals_first(&mut self, daemon: &Daemon, actions: &[Action]) {
        if !self.is(Mutant::SignalsFirst) {
            return;
        }
        for action in actions {
            match action {
                Action::Terminate(life) => self.signal(daemon, life, false),
                Action::Kill(life) => self.signal(daemon, life, true),
                _ => {}
            }
        }
    }

    /// Takes the last line of the lead's inbox for an answer, whoever wrote it.
    pub(super) fn answers_any_line(&self, daemon: &Daemon, events: &mut VecDeque<Event>) {
        let line = self.disk.inboxes.get(&Name::lead()).and_then(|inbox| inbox.last());
        let Some(line) = line.filter(|_| self.is(Mutant::AnyLineCounts)) else { return };
        let (Body::ShutdownResponse { request_id, .. }, Ok(name)) = (&line.body, Name::new(&line.from))
        else {
            return;
        };
        if let Some(member) = daemon.team.members.get(&name) {
            let life = Life { name, incarnation: member.record.incarnation };
            let (request_id, line) = (request_id.clone(), Ok(Box::new(line.clone())));
            events.push_back(Event::Named { life, request_id, line });
        }
    }
}

/// A decision in several lines.
fn parted(team: &Team, mut record: Record) -> Vec<Record> {
    let expired = match &mut record {
        Record::Member(record) => std::mem::take(&mut record.expired),
        Record::Request(record) => std::mem::take(&mut record.expired),
        Record::Team(_) => Vec::new(),
    };
    let expired = expired.iter().filter_map(|id| {
        let request = team.requests.get(id)?.after(request::Event::Withdrawn, 0.0, "").ok()?;
        Some(Record::Request(Box::new(RequestRecord::of(RequestEvent::Expired, request))))
    });
    let expired: Vec<_> = expired.collect();
    std::iter::once(record).chain(expired).collect()
}

/// The real rules keep their promises in all of these schedules; the mutant breaks one.
fn is_missed(mutant: Mutant) {
    let broken = (0..SCHEDULES).find_map(|seed| run(seed, Some(mutant), false).err());
    match broken {
        Some(broken) => println!("{mutant:?}: seed {}: {}", broken.seed, broken.what),
        None => panic!("{mutant:?} breaks no promise in {SCHEDULES} schedules"),
    }
}

macro_rules! missed {
    ($($name:ident: $mutant:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            is_missed(Mutant::$mutant);
        }
    )* };
}

missed! {
    the_life_lock_is_missed: BuriesBeforeTheLockIsFree,
    the_welcome_is_missed: BeginsUnwelcomed,
    the_own_connection_is_missed: AnyLineCounts,
    the_reply_is_missed: LeavesUnrecorded,
    the_deafness_to_inbox_lines_is_missed: InboxOpensTheGate,
    the_word_on_a_new_connection_is_missed: NoWordOnReconnect,
    the_state_of_the_worker_is_missed: StatesAreNotHeard,
    the_closed_gate_of_an_unanswered_plan_is_missed: GateIgnoresItsPlan,
    the_whole_decision_in_one_line_is_missed: ExpiriesAreLinesOfTheirOwn,
    the_second_attempt_is_missed: NothingIsDoneAgain,
    the_same_ids_are_missed: OtherIdsWhenDoneAgain,
    the_line_before_the_signal_is_missed: SignalsFirst,
    the_respect_for_a_pending_shutdown_is_missed: RestartsWhoShallLeave,
    the_respect_for_a_stop_is_missed: StoppingIsForgotten,
}
