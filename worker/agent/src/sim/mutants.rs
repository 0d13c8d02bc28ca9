//! Tests of the test: each rule that is taken away must be missed within a few schedules. The rules
//! are taken away in what is played, and in what the disk does; the worker knows nothing of it.

use super::{Fixture, run};

/// How many schedules may pass before it is missed.
const SCHEDULES: u64 = 600;

/// A rule that is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Rule 3: the position travels with the effect.
    PositionLags,
    /// Rule 7: only what the daemon has recorded lets a worker leave.
    RepliesUnrecorded,
    /// Rule 8: the daemon sends its directive on every connection.
    NoDirectiveOnReconnect,
    /// Rule 8: the worker says its state on every connection and at every change.
    StatesAreNotHeard,
    /// Rule 8: the higher seq wins.
    OldDirectivesCount,
    /// Rule 10: a torn tail is cut off.
    TornTailStays,
    /// Rule 14: the answer is in the transcript before its first call runs.
    AnswersAreLate,
    /// Rule 14: each result is before the next call runs.
    ResultsAreLate,
    /// That a call begins which has waited is before it begins.
    AdmissionsAreLate,
    /// Rule 14: an interrupted call is not run again.
    RunsAgain,
    /// Rule 14: the model is told that it may have run.
    InterruptedIsNotTold,
    /// Rule 14: what is repeated has the same ids.
    OtherIdsWhenRepeated,
    /// Rule 14: closing the gate ends the background calls.
    BackgroundStays,
    /// A message that closes the gate says so.
    MessageClosesNoGate,
    /// The daemon answers a worker that doubts its directive.
    DoubtsAreNotHeard,
    /// A gate counts as closed when it is, and not when that was tried.
    BusyCountsAsClosed,
    /// A gate that cannot change while an agent runs ends it.
    FixedGateStays,
    /// An agent begins when nothing of the one before is left.
    EndIsNotAwaited,
}

/// The real rules keep their promises in all of these schedules; the mutant breaks one.
fn is_missed(mutant: Mutant) {
    let place = Fixture::new();
    let broken = (0..SCHEDULES).find_map(|seed| run(&place, seed, Some(mutant), false).err());
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
    the_position_in_the_entry_is_missed: PositionLags,
    the_record_before_the_reply_is_missed: RepliesUnrecorded,
    the_word_on_a_new_connection_is_missed: NoDirectiveOnReconnect,
    the_state_that_is_said_is_missed: StatesAreNotHeard,
    the_order_of_words_is_missed: OldDirectivesCount,
    the_cut_of_a_torn_tail_is_missed: TornTailStays,
    the_answer_before_its_calls_is_missed: AnswersAreLate,
    the_result_before_the_next_call_is_missed: ResultsAreLate,
    the_end_of_a_wait_before_its_call_is_missed: AdmissionsAreLate,
    the_call_that_is_not_run_again_is_missed: RunsAgain,
    the_word_that_it_may_have_run_is_missed: InterruptedIsNotTold,
    the_same_ids_are_missed: OtherIdsWhenRepeated,
    the_end_of_background_commands_is_missed: BackgroundStays,
    the_gate_that_a_message_closes_is_missed: MessageClosesNoGate,
    the_answer_to_doubts_is_missed: DoubtsAreNotHeard,
    the_end_of_an_agent_that_holds_a_file_open_is_missed: BusyCountsAsClosed,
    the_end_of_an_agent_whose_gate_cannot_close_is_missed: FixedGateStays,
    the_end_of_the_agent_before_is_missed: EndIsNotAwaited,
}
