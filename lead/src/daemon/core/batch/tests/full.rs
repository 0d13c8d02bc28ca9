//! A disk that stays full while commands keep coming.

use super::*;

impl Desk {
    /// Three commands come, none of which can be journaled, and then nothing more, until a second is over.
    fn is_kept_busy(&mut self) {
        for _ in 0..3 {
            self.now.monotonic += RETRY / 4;
            let taken = self.on(Event::Command(CLIENT, Command::Stop { force: true }));
            assert!(taken.contains(&"refuse"), "{taken:?}");
        }
        self.now.monotonic += RETRY / 4;
    }
}

#[test]
fn what_could_not_be_journaled_is_tried_again_although_commands_keep_coming() {
    let mut desk = Desk::with_alice();
    desk.full = true;
    desk.on(Event::Leaving { incarnation: alice() });
    desk.is_kept_busy();
    desk.full = false;
    desk.on(ended());
    let taken = desk.on(Event::Command(CLIENT, Command::Interrupt { name: alice().name, asked_at: RETRY }));
    assert!(taken.contains(&"append"), "each command brings what waits before it: {taken:?}");
    assert_eq!(desk.alice().phase, Phase::Killed, "the farewell first");
}

#[test]
fn what_is_due_comes_although_commands_keep_coming() {
    let mut desk = Desk::with_alice();
    desk.on(Event::Command(CLIENT, Command::Shutdown(leave(0.0, Some(0.0)))));
    desk.full = true;
    assert!(desk.seconds_later(1).contains(&"append fails"));
    desk.is_kept_busy();
    desk.full = false;
    assert!(desk.seconds_later(1).contains(&"signal"), "she is made to leave");
}

#[test]
fn a_second_sigterm_ends_the_daemon_although_neither_can_be_journaled() {
    for commands in [false, true] {
        let mut desk = Desk::with_alice();
        desk.full = true;
        desk.on(Event::Terminate);
        for _ in 0..3 {
            if commands {
                desk.is_kept_busy();
            }
            desk.seconds_later(1);
            assert!(desk.batcher.end.is_none(), "told once, it waits for the disk");
        }
        desk.on(Event::Terminate);
        assert!(matches!(desk.batcher.end, Some(End::Failed(_))), "{commands}");
    }
}
