//! `run`: one process of the teammate's agent, for one piece of work. No model is told of it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::environment::Environment;
use teamd_shared::member::{Agent, Gate};

use super::ToolboxConfig;
use super::bash::{AgentProcess, Foreground, GateHandle, Launch, Way, pair};
use crate::model::{AgentSession, Gateway, Known, open_kept};
use crate::sandbox::Policy;
use crate::shim::{AgentOrder, AgentStdio, Job, Order};

/// How many words of the command of an agent people see in the list of processes.
const SHOWN: usize = 3;

/// How much of a session is read, in bytes.
const MAX_HISTORY: u64 = 256 << 20;

/// Runs the agent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunAgent {
    /// What it reads from standard input.
    pub(crate) input: String,
}

/// What an agent is started with.
pub(super) struct Setting<'a> {
    pub(super) agent: &'a Agent,
    pub(super) config: &'a ToolboxConfig,
    pub(super) environment: Environment,
    pub(super) temp: &'a Path,
    pub(super) policy: Option<Policy>,
    /// Its gate when it begins, and whether that changes while it runs: then the policy is that of
    /// an open gate.
    pub(super) gate: Gate,
    pub(super) live: bool,
    pub(super) gateway: Gateway,
}

impl Setting<'_> {
    /// Makes the job of an agent with further arguments, given the variables by which it finds its
    /// gateway; returns also the way to its gateway.
    fn job(
        self,
        arguments: impl FnOnce(&[(&'static str, String)]) -> Vec<String>,
    ) -> io::Result<(Job, Way)> {
        let Self {
            agent,
            config,
            mut environment,
            policy,
            gate,
            live,
            gateway,
            ..
        } = self;
        let mut way = Way::make(gateway, live)?;
        let variables = way.variables();
        let order = AgentOrder {
            command: agent
                .command
                .iter()
                .cloned()
                .chain(arguments(&variables))
                .collect(),
            live_gate: live.then_some(gate),
        };
        let shown = order.command[..order.command.len().min(SHOWN)].join(" ");
        let listen = way.listen();
        let order = Order {
            timeout: None,
            bounds: config.bounds,
            policy,
            agent: Some(order),
            listen,
        };
        config.workspace.metadata()?;
        for (name, value) in variables.iter() {
            environment.set(name, value);
        }
        let mut job = Job::new(order, &environment, &config.workspace, shown.as_ref())?;
        job.handed_on = way.hand_on().into_iter().collect();
        Ok((job, way))
    }

    /// Starts an agent for one piece of work, confined by the policy.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn run(self, work: &RunAgent) -> io::Result<(Foreground, GateHandle)> {
        let input = sealed(work.input.as_bytes())?;
        // It has no name there, and is gone with its last descriptor.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let errors = File::from(open(self.temp, flags, Mode::RUSR | Mode::WUSR)?);
        let (output, writes) = pair()?;
        AgentStdio {
            input,
            errors: for_appending(&errors)?,
        }
        .send(&output)?;
        let gate = self.gate;
        let lock = &self.config.liveness_lock;
        let (job, way) = self.job(|_| Vec::new())?;
        Foreground::start_agent(&job, lock, (gate, errors), way, (output, writes))
    }

    /// Starts an agent for many turns; `state`: its state directory.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn launch(
        mut self,
        launch: Launch,
        state: &Path,
    ) -> io::Result<(AgentProcess, GateHandle)> {
        let Launch {
            mut driver,
            session,
            lines,
            afresh,
        } = launch;
        if let Some(why) = driver.refuses(&self.config.workspace) {
            return Err(io::Error::other(why));
        }
        let mut session = AgentSession {
            id: session,
            history: driver.history(state, session),
        };
        if afresh && let Some(history) = session.history.take() {
            put_aside(state, &history)?;
        }
        let history = session.history.as_deref().map(read_history).transpose()?;
        let known = history.map(|history| Known::of(&*driver, &history, &lines));
        for (name, value) in driver.settings().iter() {
            self.environment.set(name, value);
        }
        let gate = self.gate;
        let lock = &self.config.liveness_lock;
        let (job, way) = self.job(|found| driver.arguments(&session, found))?;
        let begin = driver.begin(&session);
        AgentProcess::start(&job, lock, (driver, begin, known), (gate, way))
    }
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

/// Opens a file anew, with an offset of its own.
fn for_appending(file: &File) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(File::options().append(true).open(path)?.into())
}

/// Renames a file in which an agent keeps a session that it cannot go on with: it is found no more,
/// and not lost.
fn put_aside(state: &Path, history: &Path) -> io::Result<()> {
    // The agent may have put a link in the place of any directory on the way.
    let is_its_own = history
        .parent()
        .is_some_and(|it| it.canonicalize().is_ok_and(|it| it.starts_with(state)));
    if !is_its_own {
        return Err(io::Error::other(
            "the file of its session is not in its state directory",
        ));
    }
    std::fs::rename(history, history.with_extension("unusable"))
}

fn read_history(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_kept(path)?.take(MAX_HISTORY).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
