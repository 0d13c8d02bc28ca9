//! The end of the terminal: a view without one would read nothing for ever, as fast as it can.

use std::io::{self, stdin};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

/// Has this process get SIGHUP when its terminal is gone. The kernel sends it to the programs of a
/// session alone, and not to one that was started with `setsid` or from another terminal.
///
/// # Errors
/// If the system refuses a thread.
pub(super) fn watch() -> io::Result<()> {
    let watching = std::thread::Builder::new().name("terminal".to_owned());
    watching.spawn(|| {
        until_gone();
        // A process may always signal itself.
        kill_process(getpid(), Signal::HUP).ok();
    })?;
    Ok(())
}

/// Waits until the terminal is gone. One that cannot be watched any more is taken to be gone.
fn until_gone() {
    let terminal = stdin();
    // A hang-up and an error are always reported.
    let mut watched = [PollFd::new(&terminal, PollFlags::empty())];
    while poll(&mut watched, None) == Err(Errno::INTR) {}
}
