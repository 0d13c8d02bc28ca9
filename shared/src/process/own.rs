//! What a process of the project settles for itself when it begins.

use std::io;

use nix::sys::signal::Signal;

/// Closes all descriptors but 0, 1, 2 and those that were handed on by their numbers: what its
/// starter had left open besides (a lock, a pipe, a jobserver) is none of its business. Comes
/// before anything else is opened.
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

/// Makes this process the subreaper of its descendants: the processes that they leave behind become
/// its children, so that it can end them.
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
/// the end of the process. Programs that it starts are ended by it, as they expect.
///
/// Called once, outside of any event loop, after [`close_inherited`].
///
/// # Errors
/// The system's error.
pub fn survive_file_limit() -> io::Result<()> {
    catch(Signal::SIGXFSZ)
}

/// Has the kernel keep how each child ends, until it is asked: it does not if the starter of this
/// process has ignored SIGCHLD (`trap '' CHLD`). Programs that it starts are not concerned any
/// more.
///
/// Called once, outside of any event loop, after [`close_inherited`].
///
/// # Errors
/// The system's error.
pub fn keep_exit_codes() -> io::Result<()> {
    catch(Signal::SIGCHLD)
}

/// Catches a signal, and does nothing about it.
fn catch(signal: Signal) -> io::Result<()> {
    // Caught once, it is caught for good, also when this event loop is gone.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(signal as i32)).map(drop)
}
