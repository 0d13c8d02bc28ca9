//! Starting the agent of a teammate, for one piece of work or for many turns.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use teamd_shared::member::Gate;
use teamd_worker_core::secret::Secret;
use teamd_worker_slots::Lease;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::agent_gate::{self, AgentGate, GateHandle};
use super::foreground::{Foreground, GRACE_OF_AGENT, how_it_exited, last_words};
use super::shim_handle::ShimHandle;
use super::source::pair;
use super::way::Way;
use crate::agent_stdio::AgentStdio;
use crate::shim::ShimJob;

/// What an agent is started with.
#[derive(Debug)]
pub struct AgentStart<'a> {
    /// Its command, and how that is confined.
    pub job: &'a ShimJob,
    /// The lock that its shim shares.
    pub liveness_lock: &'a File,
    /// Its gate when it begins: it may write from the beginning if that is open.
    pub gate: Gate,
    /// The way to its gateway.
    pub way: Way,
    /// The jobserver of its commands, if they have one.
    pub lease: Option<Lease>,
    /// The token that was handed to it: it is taken out of its last words.
    pub token: Option<Secret>,
}

/// The process of an agent that runs for many turns. If this is dropped, the agent and all that it
/// started are ended; its gate tells when they are.
#[derive(Debug)]
pub struct StartedAgent {
    /// Where its output is read.
    pub reads: UnixStream,
    /// Where its input is written.
    pub writes: UnixStream,
    /// How it has ended. If it is dropped, the agent is ended.
    pub ended: oneshot::Receiver<String>,
    /// Its gate.
    pub gate: GateHandle,
    /// What serves its gateway and keeps its jobserver: it ends with this.
    pub serving: JoinSet<()>,
}

impl AgentStart<'_> {
    /// Starts the agent for one piece of work. `input`: what it reads; `temp`: a directory for what
    /// it writes to its error output.
    ///
    /// # Errors
    /// The system's error.
    pub fn for_one_piece(self, input: &[u8], temp: &Path) -> io::Result<(Foreground, GateHandle)> {
        let input = sealed(input)?;
        // It has no name there, and is gone with its last descriptor.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let errors = File::from(open(temp, flags, Mode::RUSR | Mode::WUSR)?);
        let (output, writes) = pair()?;
        AgentStdio {
            input,
            errors: for_appending(&errors)?,
        }
        .send(&output)?;
        let (gate, side) = self.gate_pair();
        let mut started = Foreground::start_agent(self.job, self.liveness_lock, output, writes)?;
        started.follow_gate(side);
        started.errors = Some(errors);
        started.serving = serve(self.way, self.lease, &gate);
        Ok((started, gate))
    }

    /// Starts the agent for many turns.
    ///
    /// # Errors
    /// The system's error.
    pub fn for_many_turns(self) -> io::Result<StartedAgent> {
        let (writes, input) = pair()?;
        let (errors, its_errors) = pair()?;
        let (reads, output) = pair()?;
        AgentStdio {
            input,
            errors: its_errors,
        }
        .send(&reads)?;
        let (gate, side) = self.gate_pair();
        let mut shim = ShimHandle::start(self.job, self.liveness_lock, output)?;
        shim.follow_gate(side);
        let (ends, ended) = oneshot::channel();
        tokio::spawn(watch_end(shim, errors, ends, self.token));
        let serving = serve(self.way, self.lease, &gate);
        Ok(StartedAgent {
            reads,
            writes,
            ended,
            gate,
            serving,
        })
    }

    /// Returns its gate, if that does not change while it runs.
    pub fn fixed_gate(&self) -> Option<Gate> {
        (!self.is_live()).then_some(self.gate)
    }

    fn is_live(&self) -> bool {
        let agent = self.job.order.agent();
        agent.is_some_and(|agent| agent.live_gate.is_some())
    }

    fn gate_pair(&self) -> (GateHandle, AgentGate) {
        agent_gate::pair(self.gate, self.is_live())
    }
}

/// Serves the gateway of an agent, and keeps its jobserver, until what is returned is dropped.
fn serve(way: Way, lease: Option<Lease>, gate: &GateHandle) -> JoinSet<()> {
    let mut serving = way.serve(gate.follow());
    if let Some(lease) = lease {
        serving.spawn(lease.serve());
    }
    serving
}

/// Waits for the end of an agent, and says how it has ended; ends it when that is not waited for.
async fn watch_end(
    mut shim: ShimHandle,
    errors: UnixStream,
    mut ends: oneshot::Sender<String>,
    token: Option<Secret>,
) {
    let last_words = tokio::spawn(last_words(errors));
    let report = tokio::select! {
        report = shim.ended() => report,
        () = ends.closed() => {
            shim.end();
            shim.ended().await
        }
    };
    let how = if shim.is_ended_by_gate() {
        Some("was ended: its gate was closed while it could write".to_owned())
    } else {
        report.error.clone()
    };
    let how = how
        .or_else(|| how_it_exited(&report))
        .unwrap_or_else(|| "has ended".to_owned());
    // No process holds its error output now.
    let end_of_errors = tokio::time::timeout(GRACE_OF_AGENT, last_words).await;
    let mut end_of_errors = end_of_errors.ok().and_then(Result::ok).unwrap_or_default();
    if let Some(token) = token {
        end_of_errors = token.hide(end_of_errors.into()).into_owned();
    }
    // Without a receiver it is not wanted.
    drop(ends.send(format!("{how}{end_of_errors}")));
}

/// Makes a file in memory that is read from its beginning. No process can change it, not even one
/// that opens it in `/proc`; and a program may open `/dev/stdin`, which no socket allows.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(
        "messages",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    file.write_all(bytes)?;
    file.rewind()?;
    // Nothing has mapped it, so this is as good as `WRITE`, which fails while the kernel holds a
    // page of it.
    let seals = SealFlags::FUTURE_WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// Opens a file again, with an offset of its own.
fn for_appending(file: &File) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(File::options().append(true).open(path)?.into())
}
