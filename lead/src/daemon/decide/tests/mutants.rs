//! Tests of the tests: each rule of the specification that is dropped must be missed within a few schedules.
//!
//! The rules are dropped in the simulated world, around the decisions; the decisions know nothing of it.

use std::collections::VecDeque;

use teamd_shared::control::Command;
use teamd_shared::journal::{MemberEvent, Record, RequestEvent, RequestRecord, Team};
use teamd_shared::member::{ApproveBy, Ending, Phase};
use teamd_shared::message::{Body, LEAD};
use teamd_shared::name::Name;
use teamd_shared::request::{self, Kind, Party};

use super::sim::{Daemon, World, run};
use crate::daemon::decide::Decision;
use crate::daemon::event::{Action, Event, Life};

/// How many schedules may pass before it is missed.
const SCHEDULES: u64 = 300;

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
    /// Section 7.2: the lead agent answers the plans that a person has left to it.
    LeadAnswersForPeople,
    /// Section 7.2: nobody answers their own plan.
    LeadApprovesItsOwn,
    /// What the lead agent asks for is answered.
    AnswersAreLost,
    /// Also if the journal cannot be written.
    WhatIsNotWrittenIsNotAnswered,
    /// The answer goes where the question came from, and nowhere once that is closed.
    AnswersFollowTheLife,
    /// Nobody is heard on a connection that is not a life's present one.
    EveryConnectionIsHeard,
    /// Whoever answers is not ended as one that hangs.
    PongsAreNotHeard,
    /// The lead is told before one that hangs is ended.
    HungWithoutAWord,
}

impl World {
    /// The state as the decisions see it, if they see another one.
    pub(super) fn doctored(&self, team: &Team, event: &Event) -> Option<Team> {
        let forgets = self.is(Mutant::StoppingIsForgotten) && team.stopping;
        let answers = matches!(event, Event::Command(client, Command::Answer { .. }) if client.agent);
        let leaves_all = self.is(Mutant::LeadAnswersForPeople) && answers;
        (forgets || leaves_all).then(|| {
            let mut doctored = team.clone();
            doctored.stopping &= !forgets;
            for state in doctored.members.values_mut().filter(|_| leaves_all) {
                state.record.approve_by = ApproveBy::Lead;
            }
            doctored
        })
    }

    /// Makes another decision of it.
    pub(super) fn spoil(&self, team: &Team, event: &Event, decision: &mut Decision) {
        if self.is(Mutant::ExpiriesAreLinesOfTheirOwn) {
            decision.records = decision.records.drain(..).flat_map(|record| parted(team, record)).collect();
        }
        if self.is(Mutant::LeadApprovesItsOwn) {
            approve_own(team, event, decision);
        }
        if self.is(Mutant::HungWithoutAWord) && matches!(event, Event::Silent { .. }) {
            for record in &mut decision.records {
                if let Record::Member(record) = record {
                    (record.member.ending, record.tell) = (Some(Ending::Hung), Vec::new());
                    record.event = MemberEvent::Ending;
                }
            }
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

/// Lets the lead agent approve its own plan.
fn approve_own(team: &Team, event: &Event, decision: &mut Decision) {
    let Event::Command(client, Command::Answer { request_id, approve: true, .. }) = event else { return };
    let own = team.requests.get(request_id).filter(|plan| client.agent && plan.member() == LEAD);
    let approves = request::Event::Answer { by: Party::Lead, approve: true };
    if let Some(approved) = own.and_then(|plan| plan.after(approves, 0.0, "").ok()) {
        let record = RequestRecord::of(RequestEvent::Approved, approved);
        decision.records.push(Record::Request(Box::new(record)));
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
    the_persons_right_to_answer_is_missed: LeadAnswersForPeople,
    the_other_eyes_on_a_plan_are_missed: LeadApprovesItsOwn,
    the_answer_to_the_lead_agent_is_missed: AnswersAreLost,
    the_answer_to_what_is_not_written_is_missed: WhatIsNotWrittenIsNotAnswered,
    the_way_back_of_an_answer_is_missed: AnswersFollowTheLife,
    the_deafness_to_old_connections_is_missed: EveryConnectionIsHeard,
    the_answers_to_the_watchdog_are_missed: PongsAreNotHeard,
    the_word_to_the_lead_before_the_end_is_missed: HungWithoutAWord,
}
