//! The agent of alice: a stub of Claude Code that counts its own steps, and stops at the one where
//! it, or its shim, is killed.

use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::{Checked, Stage, Victim, hold};
use crate::faults::Fault;
use crate::support::{process, python, signal};
use crate::tracer::Seen;

impl Stage {
    /// Makes the stub known as the agent `claude`.
    pub(crate) fn bring_an_agent(&mut self) -> Checked {
        self.team
            .write("stub.py", include_str!("../../fixtures/claude-stub.py"));
        self.team
            .write("orders.py", include_str!("../../fixtures/orders.py"));
        let stub = self.team.root().join("stub.py");
        let command = format!("[{}, '{}']", python::STUB, stub.display());
        self.team.write(
            "team.toml",
            &format!("[agents.claude]\ncommand = {command}\nprotocol = 'claude'\n"),
        );
        self.team
            .write("stop-at", &self.step().unwrap_or_default().to_string());
        let trusted = self.run(env!("CARGO_BIN_EXE_teamd"), &["trust"], false)?;
        hold(trusted.is_done(), || {
            format!("the agent is not trusted: {trusted:?}")
        })
    }

    /// The step at which something happens, if it is the agent's.
    fn step(&self) -> Option<u64> {
        let is_its = matches!(self.victim, Victim::Agent | Victim::Shim);
        if is_its {
            self.point.map(|point| point.at)
        } else {
            None
        }
    }

    /// The files of this name that the stubs have in their state directories; of a folder, what
    /// lies in it.
    pub(crate) fn of_agents(&self, name: &str) -> Vec<PathBuf> {
        let files = |folder: PathBuf| {
            std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|it| it.path())
        };
        let teams = files(self.team.home().join(".local/state/teamd/agents"));
        let named = teams
            .map(|team| team.join("alice/claude").join(name))
            .filter(|found| found.exists());
        named
            .flat_map(|found| {
                if found.is_dir() {
                    files(found).collect()
                } else {
                    vec![found]
                }
            })
            .collect()
    }

    /// Kills the agent, or its shim, once the agent has stopped at the step for that.
    pub(super) fn strike(&self) {
        if self.struck.get() {
            return;
        }
        let Some(step) = self.step() else { return };
        if self.of_agents("steps.reached").is_empty() {
            return;
        }
        self.struck.set(true);
        let worker = self.member("alice")["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let Some(worker) = worker else { return };
        let below = process::descendants(worker);
        let victim = match self.victim {
            Victim::Shim => below
                .iter()
                .find(|pid| process::command_line(**pid).contains(" shim ")),
            _ => below.iter().find(|pid| process::is_agent(**pid)),
        };
        let Some(victim) = victim else { return };
        signal(*victim, Signal::SIGKILL);
        if self.kills_the_worker() {
            signal(worker, Signal::SIGKILL);
        }
        self.tracer.struck(format!("step {step} of the agent"));
    }

    /// What was seen of the run: of calls, or of the agent's steps.
    pub(crate) fn seen(&self) -> Seen {
        let mut seen = self.tracer.look();
        if matches!(self.victim, Victim::Agent | Victim::Shim) && self.point.is_none() {
            let files = self.of_agents("steps");
            let steps = files
                .iter()
                .map(|file| file.metadata().map_or(0, |it| it.len()))
                .sum();
            seen.counts = [(Fault::Kill, steps), (Fault::Both, steps)].into();
            seen.visible = (1..=steps).collect();
        }
        seen
    }
}
