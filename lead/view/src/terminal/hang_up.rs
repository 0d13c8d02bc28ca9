//! The end of the terminal: a view without one would read nothing for ever, as fast as it can.

use std::io::{self, stdin};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};

/// Has this process get SIGHUP when its terminal is gone. The kernel sends it to the programs of a
/// session alone, and not to one that was started with `setsid` or from another terminal.
///
/// # Errors
/// If the system refuses a thread.
pub(super) fn watch() -> io::Result<()> {
    let watching = std::thread::Builder::new().name("terminal".to_owned());
    watching.spawn(|| match until_gone() {
        Ok(()) => {
            if let Err(error) = kill_process(getpid(), Signal::HUP) {
                tracing::warn!("the terminal is gone, and this process cannot be told: {error}");
            }
        }
        Err(error) => tracing::warn!("the end of the terminal is not noticed: {error}"),
    })?;
    Ok(())
}

fn until_gone() -> io::Result<()> {
    let terminal = stdin();
    // A hang-up and an error are always reported.
    let mut watched = [PollFd::new(&terminal, PollFlags::empty())];
    loop {
        match poll(&mut watched, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
