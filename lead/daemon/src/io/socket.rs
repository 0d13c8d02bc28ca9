//! The control socket as a file: made, made again where another process removed it, and removed at
//! the end. Its connections are served in [`crate::io::connections`].

use teamd_shared::control::Listener;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use tokio::task::JoinHandle;

use crate::io::connections::accept;
use crate::io::input::Inputs;
use teamd_client::error::CommandError;

/// The socket that the daemon listens on.
#[derive(Debug)]
pub(crate) struct Socket {
    accepts: JoinHandle<()>,
    /// Its device and inode.
    identity: Option<(u64, u64)>,
    /// Whether its file contains the pid.
    has_pid: bool,
}

impl Socket {
    /// Listens, and writes the pid for people.
    ///
    /// # Errors
    /// [`teamd_client::exit_code::ExitCode::Failed`] if the system refuses.
    pub(crate) fn listen(dir: &TeamDir, inputs: Inputs) -> Result<Self, CommandError> {
        let listener = Listener::bind(dir)
            .map_err(|e| CommandError::refused("cannot make its control socket", &e))?;
        let identity = dir.identity(&TeamPath::socket())?;
        // From here on connections must be accepted: a client of a socket that is not served waits
        // in vain.
        let accepts = tokio::spawn(accept(listener, inputs));
        Ok(Self {
            accepts,
            identity,
            has_pid: write_pid(dir),
        })
    }

    /// Makes the socket again if its path names nothing or another file: a socket from a backup
    /// leads nowhere either. Writes the pid if that has failed.
    pub(crate) fn look_after(&mut self, dir: &TeamDir, inputs: &Inputs) {
        self.has_pid = self.has_pid || write_pid(dir);
        let present = dir.identity(&TeamPath::socket());
        if !present.is_ok_and(|present| present.is_none() || present != self.identity) {
            return;
        }
        tracing::warn!("the control socket was deleted or replaced: it is made again");
        match Self::listen(dir, inputs.clone()) {
            Ok(socket) => std::mem::replace(self, socket).close(),
            Err(error) => tracing::error!("cannot make the control socket again: {error}"),
        }
    }

    /// Stops accepting connections.
    pub(crate) fn close(&self) {
        self.accepts.abort();
    }

    /// Removes the files. One that stays does no harm: the next daemon replaces it.
    pub(crate) fn remove(self, dir: &TeamDir) {
        for at in [TeamPath::socket(), TeamPath::pid()] {
            if let Err(error) = dir.remove(&at) {
                tracing::warn!("cannot take {at} away: {error}");
            }
        }
    }
}

/// Writes the pid for people. If that fails, the pid of an earlier daemon does not stay.
fn write_pid(dir: &TeamDir) -> bool {
    let pid = format!("{}\n", std::process::id());
    let written = teamd_shared::fs::replace(dir, &TeamPath::pid(), pid.as_bytes());
    if let Err(error) = &written {
        let removed = dir.remove(&TeamPath::pid());
        tracing::warn!(
            "cannot write the pid for people (tried again): {error}; the earlier one: {removed:?}"
        );
    }
    written.is_ok()
}
