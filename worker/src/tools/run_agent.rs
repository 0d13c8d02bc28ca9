//! `run`: one process of the teammate's agent, for one piece of work. No model is told of it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::environment::Environment;
use teamd_shared::member::{Agent, Gate};

use super::ToolboxConfig;
use super::bash::{Foreground, GateHandle, Way};
use crate::model::Gateway;
use crate::sandbox::Policy;
use crate::shim::{AgentOrder, Job, Order};

/// Runs the agent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunAgent {
    /// What it reads from standard input.
    pub(crate) input: String,
}

impl RunAgent {
    /// Starts the agent, confined by a policy; `live`: that is the policy of an open gate, and the gate changes while it runs.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(
        &self,
        (agent, gateway): (&Agent, Gateway),
        (config, mut environment): (&ToolboxConfig, Environment),
        temp: &Path,
        (policy, gate, live): (Option<Policy>, Gate, bool),
    ) -> io::Result<(Foreground, GateHandle)> {
        let mut input = File::from(memfd_create("messages", MemfdFlags::CLOEXEC)?);
        input.write_all(self.input.as_bytes())?;
        input.rewind()?;
        // It has no name there, and is gone with its last descriptor.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let errors = File::from(open(temp, flags, Mode::RUSR | Mode::WUSR)?);
        let read = errors.try_clone()?;
        let mut way = Way::make(gateway, live)?;
        let order = AgentOrder {
            command: agent.command.clone(),
            stdio: [input.as_raw_fd(), errors.as_raw_fd()],
            live_gate: live.then_some(gate),
            listen: way.listen(),
        };
        let order = Order { timeout: None, bounds: config.bounds, policy, agent: Some(order) };
        config.workspace.metadata()?;
        way.variables().iter().for_each(|(name, value)| environment.set(name, value));
        let handed_on = [OwnedFd::from(input), errors.into()].into_iter().chain(way.hand_on()).collect();
        let job = Job::of_agent(order, &environment, &config.workspace, handed_on)?;
        Foreground::start_agent(&job, &config.liveness_lock, (gate, read), way)
    }
}
