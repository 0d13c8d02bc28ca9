//! A disk that stays full while commands keep coming.

use super::*;

impl Fixture {
    /// Three commands come, none of which can be journaled, and then nothing more, until a second is over.
    fn is_kept_busy(&mut self) {
        for _ in 0..3 {
            self.owners.now.monotonic += RETRY / 4;
            let taken = self.on(Event::Command(CLIENT, Command::Stop { force: false }));
            assert!(taken.contains(&"refuse"), "{taken:?}");
        }
        self.owners.now.monotonic += RETRY / 4;
    }
}

#[test]
fn what_could_not_be_journaled_is_tried_again_although_commands_keep_coming() {
    let mut fixture = Fixture::with_alice();
    fixture.owners.full = true;
    fixture.on(Event::Leaving { incarnation: alice() });
    fixture.is_kept_busy();
    fixture.owners.full = false;
    fixture.on(ended());
    let taken =
        fixture.on(Event::Command(CLIENT, Command::Interrupt { name: alice().name, asked_at: RETRY }));
    assert!(taken.contains(&"append"), "each command brings what waits before it: {taken:?}");
    assert_eq!(fixture.alice().phase, Phase::Killed, "the farewell first");
}

#[test]
fn what_is_due_comes_although_commands_keep_coming() {
    let mut fixture = Fixture::with_alice();
    fixture.on(Event::Command(CLIENT, Command::Shutdown(leave(0.0, Some(0.0)))));
    fixture.owners.full = true;
    assert!(fixture.seconds_later(1).contains(&"append fails"));
    fixture.is_kept_busy();
    fixture.owners.full = false;
    assert!(fixture.seconds_later(1).contains(&"signal"), "she is made to leave");
}

#[test]
fn a_second_sigterm_ends_the_daemon_although_neither_can_be_journaled() {
    for commands in [false, true] {
        let mut fixture = Fixture::with_alice();
        fixture.owners.full = true;
        fixture.on(Event::Terminate);
        for _ in 0..3 {
            if commands {
                fixture.is_kept_busy();
            }
            fixture.seconds_later(1);
            assert!(fixture.dispatcher.end.is_none(), "told once, it waits for the disk");
        }
        assert!(fixture.on(Event::Terminate).contains(&"signal"), "{commands}");
        assert!(matches!(fixture.dispatcher.end, Some(End::Failed(_))), "{commands}");
    }
}

#[test]
fn what_a_person_ends_by_force_is_killed_at_once_and_recorded_later() {
    let mut fixture = Fixture::with_alice();
    fixture.owners.full = true;
    let taken = fixture.on(Event::Command(CLIENT, Command::Shutdown(leave(0.0, None))));
    assert!(taken.contains(&"refuse") && !taken.contains(&"signal"), "{taken:?}");
    let taken = fixture.on(Event::Command(CLIENT, Command::Shutdown(leave(0.0, Some(10.0)))));
    assert!(taken.contains(&"refuse") && taken.contains(&"signal"), "{taken:?}");
    fixture.on(ended());
    fixture.owners.full = false;
    fixture.seconds_later(1);
    assert_eq!(fixture.alice().phase, Phase::Killed, "and not started again");
    assert!(fixture.dispatcher.end.is_none());
}

#[test]
fn a_stop_by_force_ends_the_daemon_and_all_teammates() {
    let mut fixture = Fixture::with_alice();
    fixture.owners.full = true;
    let taken = fixture.on(Event::Command(CLIENT, Command::Stop { force: true }));
    assert!(taken.contains(&"refuse") && taken.contains(&"signal"), "{taken:?}");
    assert!(matches!(fixture.dispatcher.end, Some(End::Failed(_))));
}
