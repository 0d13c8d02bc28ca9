//! What each process of the project sets up for itself when it begins.

use std::io;

use nix::sys::signal::Signal;
use tokio::runtime::Handle;

/// Closes all descriptors except 0, 1, 2 and those that were passed on by their numbers: others
/// that its starter left open (a lock, a pipe, a jobserver) do not concern it. Must be
/// called before anything else is opened.
///
/// # Errors
/// The system's error if `/proc` cannot be read.
pub fn close_inherited(handed_on: &[i32]) -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open
        .into_iter()
        .filter(|it| *it > 2 && !handed_on.contains(it))
    {
        match nix::unistd::close(descriptor) {
            // One of them was that of the listing.
            Ok(()) | Err(nix::errno::Errno::EBADF) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes this process the subreaper of its descendants: orphaned processes become its children, so
/// that it can end them.
pub fn adopt_orphans() {
    if let Err(errno) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::warn!("cannot become the subreaper of what is started: {errno}");
    }
}

/// Makes this process unreadable for other processes of the user: no trace, no look into its
/// memory, environment or descriptors (root excepted).
pub fn deny_tracing() {
    if let Err(errno) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!("cannot deny tracing: {errno}");
    }
}

/// Makes a write beyond the limit of a file's size (`RLIMIT_FSIZE`) an error, `EFBIG`, instead of
/// the end of the process. Programs that it starts are still ended by such a write, as they expect.
///
/// Called once, outside of any event loop, after [`close_inherited`].
///
/// # Errors
/// The system's error.
pub fn survive_file_limit() -> io::Result<()> {
    catch(&[Signal::SIGXFSZ])
}

/// As [`survive_file_limit`], and makes the kernel keep how each child ends until it is asked. It
/// would not if the starter of this process ignored SIGCHLD (`trap '' CHLD`). Programs that this
/// process starts no longer ignore it.
///
/// # Errors
/// The system's error.
pub fn set_signals() -> io::Result<()> {
    catch(&[Signal::SIGXFSZ, Signal::SIGCHLD])
}

/// Catches signals and does nothing.
fn catch(signals: &[Signal]) -> io::Result<()> {
    if Handle::try_current().is_ok() {
        return catch_in_runtime(signals);
    }
    // A signal that was caught once is caught for good, even when this event loop is gone.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    catch_in_runtime(signals)
}

fn catch_in_runtime(signals: &[Signal]) -> io::Result<()> {
    for signal in signals {
        let kind = tokio::signal::unix::SignalKind::from_raw(*signal as i32);
        drop(tokio::signal::unix::signal(kind)?);
    }
    Ok(())
}
