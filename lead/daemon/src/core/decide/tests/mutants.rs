//! Tests of the tests: if a rule of the specification is dropped, a promise must break within a few
//! schedules.
//!
//! The rules are dropped in the simulated world, around the decisions, which do not know of it.

use teamd_shared::control::{Command, TaskOrder, ToWorker};
use teamd_shared::journal::{Line, MemberEvent, Record, RequestEvent, RequestRecord, Team};
use teamd_shared::member::{ApproveBy, Ending, Phase};
use teamd_shared::message::{Body, LEAD, USER};
use teamd_shared::name::Name;
use teamd_shared::request::{self, Answerer, Kind};
use teamd_shared::task::TaskStatus;

use super::sim::{Daemon, World, run};
use crate::core::caller::Actor;
use crate::core::decide::Decision;
use crate::core::effect_queues::EffectQueues;
use crate::core::event::{Action, Event};
use crate::core::incarnation::Incarnation;

/// How many schedules may pass before a promise breaks.
const SCHEDULES: u64 = 2000;

/// A rule that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Rule 5: an incarnation is over only when its lock is free.
    EndsBeforeTheLockIsFree,
    /// Rule 6: a worker does nothing before it is welcomed.
    BeginsUnwelcomed,
    /// Rule 7: only the worker's own connection makes a line count.
    AnyLineCounts,
    /// Rule 7: only the reply lets a worker leave.
    LeavesUnrecorded,
    /// Section 7.2: only the daemon's directive opens a gate.
    InboxOpensTheGate,
    /// Rule 8: the daemon says its directive on every connection.
    NoDirectiveOnReconnect,
    /// Rule 8: the worker says its state, and the plan that it waits for.
    StatesAreNotHeard,
    /// Rule 8: a gate with an unanswered plan stays closed whatever the directive says.
    GateIgnoresItsPlan,
    /// Rule 9: one decision is one line.
    ExpiriesAreLinesOfTheirOwn,
    /// Rule 9: what is not done is done again.
    NothingIsDoneAgain,
    /// Rule 9: under the same ids.
    OtherIdsWhenDoneAgain,
    /// Rule 11: a signal is journaled before it is sent.
    SignalsFirst,
    /// Rule 11: a member with a pending shutdown is not restarted.
    RestartsDespiteShutdown,
    /// Rule 11: no member is restarted or spawned while the team is stopping.
    StoppingIsForgotten,
    /// Section 7.2: the lead agent answers the plans that a person has left to it.
    LeadAnswersForPeople,
    /// Section 7.2: the lead agent does not answer its own plan.
    LeadApprovesItsOwn,
    /// What the lead agent asks for is answered.
    AnswersAreLost,
    /// Also if the journal cannot be written.
    WhatIsNotWrittenIsNotAnswered,
    /// The answer goes where the question came from, and nowhere once that is closed.
    AnswersFollowTheIncarnation,
    /// A worker is heard only on the present connection of its incarnation.
    EveryConnectionIsHeard,
    /// A worker that answers is not ended as hung.
    PongsAreNotHeard,
    /// The lead is told before a hung worker is ended.
    HungWithoutNotice,
    /// What is said and done rests on lines that are on the disk.
    SyncIsForgotten,
    /// An append that failed has not happened.
    FailuresAreForgotten,
    /// What follows from a line comes after it.
    EffectsComeFirst,
    /// The journal says that it is done when it is.
    DoneIsSaidTooEarly,
    /// A command is answered when the roster shows what it is told.
    RosterComesLate,
    /// What could not be journaled is tried again.
    BacklogIsForgotten,
    /// Rule 10: a torn tail is cut off.
    TornTailStays,
    /// Section 5: an event that is lost costs time, and nothing else.
    OnlyRingsAreHeard,
    /// Rule 3: the position travels with the effect.
    PositionOvertakes,
    /// What a member holds is released with its end.
    ClaimsOutliveTheirOwner,
    /// A task that is claimed is claimed by no other member.
    ClaimsAreNotLookedAt,
    /// A teammate does not choose how its work is checked.
    TeammatesChooseTheirChecks,
    /// A check that could not run is run again.
    StalledChecksAreForgotten,
    /// While work is checked where its author works, the gate of that is closed.
    ChecksLeaveTheGateOpen,
    /// A spawn whose member is told to leave while its checkout is made does not begin.
    CalledOffSpawnsBegin,
    /// What a receiver did not read before its end comes back.
    UnreadMailIsKept,
    /// While a host is unreachable the clocks of its members stand still.
    ClocksRunWithoutALink,
    /// After a restart home waits for what a host reports of its members.
    HostsAreNotWaitedFor,
    /// A member that is lost has ended for good.
    LostIsNotFinal,
    /// What home does not have any more is ended on its host.
    LostWorkersLiveOn,
    /// Nothing is started on a host before it has said, on that link, what it has.
    StartsBeforeAHostHasSaid,
    /// On a new link the workers say anew what holds.
    StateIsNotSaidAnew,
}

impl Mutant {
    /// Tells whether it needs another machine.
    pub(super) fn is_of_hosts(self) -> bool {
        matches!(
            self,
            Self::ClocksRunWithoutALink
                | Self::HostsAreNotWaitedFor
                | Self::LostIsNotFinal
                | Self::LostWorkersLiveOn
                | Self::StartsBeforeAHostHasSaid
                | Self::StateIsNotSaidAnew
        )
    }
}

impl World {
    /// Returns the state that the decisions see instead, if a rule is dropped in it.
    pub(super) fn doctored(&self, team: &Team, event: &Event) -> Option<Team> {
        let forgets = self.is(Mutant::StoppingIsForgotten) && team.stopping;
        let answers =
            matches!(event, Event::Command(client, _, Command::Answer { .. }) if client.agent);
        let leaves_all = self.is(Mutant::LeadAnswersForPeople) && answers;
        let ends_again = self.is(Mutant::LostIsNotFinal) && matches!(event, Event::Ended { .. });
        let claims = self.is(Mutant::ClaimsAreNotLookedAt)
            && matches!(
                event,
                Event::Command(_, _, Command::Task(TaskOrder::Claim(_))) | Event::Offer
            );
        (forgets || leaves_all || claims || ends_again).then(|| {
            let mut doctored = team.clone();
            doctored.stopping &= !forgets;
            for task in doctored
                .tasks
                .values_mut()
                .filter(|task| claims && task.owner.is_some())
            {
                task.status = TaskStatus::Pending;
                task.owner = None;
            }
            let members = doctored.members.values_mut();
            for state in members.filter(|it| ends_again && it.record.phase == Phase::Lost) {
                state.record.phase = Phase::Running;
            }
            if leaves_all {
                for state in doctored.members.values_mut() {
                    state.record.terms.approve_by = ApproveBy::Lead;
                }
            }
            doctored
        })
    }

    /// Returns an order of a teammate as the lead would give it, if that rule is dropped.
    pub(super) fn as_a_person(&self, event: &Event) -> Option<Event> {
        let Event::Command(client, Actor::Member(_), Command::Task(order)) = event else {
            return None;
        };
        let command = Command::Task(order.clone());
        self.is(Mutant::TeammatesChooseTheirChecks)
            .then(|| Event::Command(*client, Actor::Person, command))
    }

    /// Changes a decision as the dropped rule would.
    pub(super) fn spoil(&self, team: &Team, event: &Event, decision: &mut Decision) {
        if self.is(Mutant::NoDirectiveOnReconnect) {
            decision
                .actions
                .retain(|action| !matches!(action, Action::Say(_, ToWorker::Directive(_))));
        }
        if self.is(Mutant::ExpiriesAreLinesOfTheirOwn) {
            decision.records = decision
                .records
                .drain(..)
                .flat_map(|record| parted(team, record))
                .collect();
        }
        if self.is(Mutant::StalledChecksAreForgotten) {
            decision
                .actions
                .retain(|action| !matches!(action, Action::CheckAgain(_)));
        }
        if self.is(Mutant::CalledOffSpawnsBegin) {
            decision
                .actions
                .retain(|action| !matches!(action, Action::CallOff(_)));
        }
        if self.is(Mutant::LeadApprovesItsOwn) {
            approve_own(team, event, decision);
        }
        if self.is(Mutant::HungWithoutNotice) && matches!(event, Event::Silent { .. }) {
            for record in &mut decision.records {
                if let Record::Member(record) = record {
                    record.member.ending = Some(Ending::Hung);
                    record.tell = Vec::new();
                    record.event = MemberEvent::Ending;
                }
            }
        }
        if self.is(Mutant::ClaimsOutliveTheirOwner) {
            for record in &mut decision.records {
                if let Record::Member(record) = record {
                    record.released.clear();
                }
            }
        }
        if self.is(Mutant::UnreadMailIsKept) {
            for record in &mut decision.records {
                if let Record::Member(record) = record {
                    let returned = std::mem::take(&mut record.returned);
                    record
                        .tell
                        .retain(|tell| !returned.iter().any(|mail| mail.id == tell.id));
                }
            }
        }
        let Event::Ended { incarnation, .. } = event else {
            return;
        };
        if !self.is(Mutant::RestartsDespiteShutdown)
            || team.pending(&incarnation.name, Kind::Shutdown).is_none()
        {
            return;
        }
        for record in &mut decision.records {
            if let Record::Member(record) = record
                && record.event == MemberEvent::Exited
                && record.member.phase == Phase::Crashed
            {
                record.ended_incarnation = Some(incarnation.number);
                record.member.phase = Phase::Spawning;
                record.member.incarnation = incarnation.number + 1;
                let incarnation = Incarnation {
                    name: incarnation.name.clone(),
                    number: incarnation.number + 1,
                };
                decision.actions.push(Action::Start(incarnation, None));
            }
        }
    }

    pub(super) fn signals_first(&mut self, daemon: &Daemon, lines: &[Line]) {
        if !self.is(Mutant::SignalsFirst) {
            return;
        }
        for line in lines {
            if let Record::Member(record) = &line.record
                && record.event == MemberEvent::Ending
            {
                let member = &record.member;
                let incarnation = Incarnation::of(member);
                self.signal(daemon, &incarnation, false);
            }
        }
    }

    pub(super) fn does_effects_first(&mut self, lines: &[Line]) {
        if !self.is(Mutant::EffectsComeFirst) {
            return;
        }
        let mut queues = EffectQueues::default();
        for line in lines.iter() {
            queues.take_in_line(line, false);
        }
        while let Some((to, effects)) = queues.next() {
            for effect in effects.iter() {
                self.does(&to, effect);
            }
        }
    }

    /// Takes the last line of the lead's inbox for an answer, from any writer.
    pub(super) fn answers_any_line(&self, daemon: &Daemon, events: &mut Vec<Event>) {
        let line = self
            .disk
            .inboxes
            .get(&Name::lead())
            .and_then(|inbox| inbox.last());
        if !self.is(Mutant::AnyLineCounts) {
            return;
        }
        let Some(line) = line else { return };
        let Body::ShutdownResponse { request_id, .. } = &line.body else {
            return;
        };
        let Ok(name) = Name::new(&line.from) else {
            return;
        };
        if let Some(member) = daemon.dispatcher.team.members.get(&name) {
            let incarnation = Incarnation::of(&member.record);
            let request_id = request_id.clone();
            let line = Ok(Box::new(line.clone()));
            events.push(Event::Submitted {
                incarnation,
                request_id,
                line,
            });
        }
    }
}

impl Decision {
    /// Says of each change of a task that this member asked for it.
    pub(super) fn is_by(&mut self, name: &Name) {
        for record in &mut self.records {
            if let Record::Task(record) = record
                && record.by == USER
            {
                record.by = name.to_string();
            }
        }
    }
}

/// Lets the lead agent approve its own plan.
fn approve_own(team: &Team, event: &Event, decision: &mut Decision) {
    let Event::Command(
        client,
        _,
        Command::Answer {
            request_id,
            approve: true,
            ..
        },
    ) = event
    else {
        return;
    };
    let own = team
        .requests
        .get(request_id)
        .filter(|plan| client.agent && plan.member() == LEAD);
    let approves = request::Trigger::Answer {
        by: Answerer::Lead,
        approve: true,
    };
    if let Some(approved) = own.and_then(|plan| plan.after(approves, 0.0, "").ok()) {
        let record = RequestRecord::of(RequestEvent::Approved, approved);
        decision.records.push(Record::Request(Box::new(record)));
    }
}

/// Returns a decision in several lines.
fn parted(team: &Team, mut record: Record) -> Vec<Record> {
    let expired = match &mut record {
        Record::Member(record) => std::mem::take(&mut record.expired),
        Record::Request(record) => std::mem::take(&mut record.expired),
        Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => Vec::new(),
    };
    let expired = expired.iter().filter_map(|id| {
        let request = team
            .requests
            .get(id)?
            .after(request::Trigger::Withdrawn, 0.0, "")
            .ok()?;
        Some(Record::Request(Box::new(RequestRecord::of(
            RequestEvent::Expired,
            request,
        ))))
    });
    let expired: Vec<_> = expired.collect();
    std::iter::once(record).chain(expired).collect()
}

/// Checks that the mutant breaks a promise in one of the schedules, in all of which the real rules
/// keep them.
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
    the_liveness_lock_is_missed: EndsBeforeTheLockIsFree,
    the_welcome_is_missed: BeginsUnwelcomed,
    the_own_connection_is_missed: AnyLineCounts,
    the_reply_is_missed: LeavesUnrecorded,
    the_deafness_to_inbox_lines_is_missed: InboxOpensTheGate,
    the_directive_on_a_new_connection_is_missed: NoDirectiveOnReconnect,
    the_state_of_the_worker_is_missed: StatesAreNotHeard,
    the_closed_gate_of_an_unanswered_plan_is_missed: GateIgnoresItsPlan,
    the_whole_decision_in_one_line_is_missed: ExpiriesAreLinesOfTheirOwn,
    the_second_attempt_is_missed: NothingIsDoneAgain,
    the_same_ids_are_missed: OtherIdsWhenDoneAgain,
    the_line_before_the_signal_is_missed: SignalsFirst,
    the_respect_for_a_pending_shutdown_is_missed: RestartsDespiteShutdown,
    the_respect_for_a_stop_is_missed: StoppingIsForgotten,
    the_persons_right_to_answer_is_missed: LeadAnswersForPeople,
    the_other_eyes_on_a_plan_are_missed: LeadApprovesItsOwn,
    the_answer_to_the_lead_agent_is_missed: AnswersAreLost,
    the_answer_to_what_is_not_written_is_missed: WhatIsNotWrittenIsNotAnswered,
    the_way_back_of_an_answer_is_missed: AnswersFollowTheIncarnation,
    the_deafness_to_old_connections_is_missed: EveryConnectionIsHeard,
    the_answers_to_the_watchdog_are_missed: PongsAreNotHeard,
    the_notice_to_the_lead_before_the_end_is_missed: HungWithoutNotice,
    the_sync_before_what_follows_is_missed: SyncIsForgotten,
    the_failure_of_an_append_is_missed: FailuresAreForgotten,
    the_line_before_its_effects_is_missed: EffectsComeFirst,
    the_truth_of_what_is_done_is_missed: DoneIsSaidTooEarly,
    the_roster_before_the_answer_is_missed: RosterComesLate,
    the_second_attempt_to_journal_is_missed: BacklogIsForgotten,
    the_cut_of_a_torn_tail_is_missed: TornTailStays,
    the_slow_tick_is_missed: OnlyRingsAreHeard,
    the_position_with_the_effect_is_missed: PositionOvertakes,
    the_release_with_the_end_is_missed: ClaimsOutliveTheirOwner,
    the_look_at_other_claims_is_missed: ClaimsAreNotLookedAt,
    the_choice_of_checks_by_others_is_missed: TeammatesChooseTheirChecks,
    the_second_run_of_a_check_is_missed: StalledChecksAreForgotten,
    the_closed_gate_of_a_check_is_missed: ChecksLeaveTheGateOpen,
    the_end_of_a_spawn_that_is_called_off_is_missed: CalledOffSpawnsBegin,
    mail_that_does_not_come_back_is_missed: UnreadMailIsKept,
    the_clocks_that_stand_still_are_missed: ClocksRunWithoutALink,
    the_wait_for_a_host_is_missed: HostsAreNotWaitedFor,
    the_end_of_what_is_lost_is_missed: LostIsNotFinal,
    the_end_of_workers_that_are_lost_is_missed: LostWorkersLiveOn,
    the_wait_for_what_a_host_has_is_missed: StartsBeforeAHostHasSaid,
    the_state_on_a_new_link_is_missed: StateIsNotSaidAnew,
}
