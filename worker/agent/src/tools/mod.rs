//! What the tools that work on the machine do: one file each. The names, texts and inputs of all
//! tools are in `teamd_worker_core::tools`.
//!
//! The toolbox owns every process that such a tool starts. The tools of the team are in `calls`:
//! the session carries them out. Nothing here decides whether a call may run.

mod agent_process;
mod edit_file;
mod mcp;
mod read_file;
mod run_agent;
pub(crate) mod search;
mod session_record;
mod skills;
mod toolbox;
mod workspace;
mod write_file;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use teamd_shared::control::McpServerReport;
use teamd_shared::member::Gate;
use teamd_shared::message::IdleReason;
use teamd_shared::transcript::Usage;
use teamd_worker_core::state::Budget;
use teamd_worker_core::tools::{LocalAction, Outcome};
use teamd_worker_model::{AgentProcess, Launch};
use teamd_worker_sandbox::run::{AdmissionTicket, EndedCommand};
use tokio::sync::watch;

pub(crate) use toolbox::Toolbox;
pub(crate) use workspace::{Guide, Rest};

/// What finds out which tools the MCP servers have.
pub(crate) type Listing = Pin<Box<dyn Future<Output = ()>>>;

/// The tools that work on the machine, as the session uses them.
pub(crate) trait Tools: std::fmt::Debug {
    /// A call that has been started.
    type Running: Runs;
    /// What lets a call begin.
    type Admission: Admits;
    /// Asks whether a call may begin now; none: its kind is not held back, and does not count.
    fn admission(&mut self, _action: &LocalAction) -> Option<Self::Admission> {
        None
    }
    /// Starts a call. Must be called within the runtime.
    fn start(&mut self, action: LocalAction, gate: Gate) -> Self::Running;
    /// Finds out which tools the MCP servers have; none: that is known. The future may be dropped:
    /// then it is not known.
    fn list_mcp_tools(&mut self, _gate: Gate) -> Option<Listing> {
        None
    }
    /// Returns what becomes of the MCP servers, at every change; none if there are none.
    fn mcp_reports(&self) -> Option<watch::Receiver<Vec<McpServerReport>>> {
        None
    }
    /// Removes what an earlier incarnation has left that was killed in this call.
    fn clear_up(&self, _broken_off: &LocalAction) {}
    /// Tells whether something runs beside the calls that may write: a command in the background,
    /// an agent with an open gate.
    fn has_background(&mut self) -> bool;
    /// Tells whether commands run in the background.
    fn runs_commands(&mut self) -> bool {
        false
    }
    /// Starts the agent of the teammate, which runs for many turns.
    ///
    /// # Errors
    /// Why it cannot be started. Fits behind "error: ".
    fn start_process(&mut self, _launch: Launch, _gate: Gate) -> Result<AgentProcess, String> {
        Err("this teammate has no agent of its own".to_owned())
    }
    /// Tells whether only the agent can speak as the agent: what it has started cannot.
    fn is_agent_itself(&self) -> bool {
        true
    }
    /// Takes out what the agent and its tools have spent, as its gateway counts it, and in how many
    /// model calls.
    fn take_spent(&mut self) -> (Usage, u32) {
        (Usage::default(), 0)
    }
    /// Sets what they may spend, beyond what was taken out; none: no turn runs, and no model is
    /// asked.
    fn allow(&mut self, _budget: Option<Budget>) {}
    /// Returns which limit a model call of this turn was refused for, if one was.
    fn refused(&self) -> Option<IdleReason> {
        None
    }
    /// Opens the gates of the agent and of the MCP servers that run behind a closed one; tells
    /// whether there are any.
    fn open_gate(&mut self) -> bool {
        false
    }
    /// Waits until nothing is left of an agent that was ended: two of them never hold one session.
    fn agent_ended(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// Waits until the agent and the MCP servers whose gates are to be opened can write.
    fn opened(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// Closes the gates of the agent and of the MCP servers, and ends the commands in the background with all that they
    /// started; returns when that is done.
    fn end_background(&mut self) -> impl Future<Output = ()>;
    /// Returns the next command in the background that has ended by itself; waits for it. May be
    /// dropped and called again.
    fn background_ended(&mut self) -> impl Future<Output = EndedCommand> {
        std::future::pending()
    }
    /// Takes those that have ended by themselves, and were not returned so far.
    fn take_ended(&mut self) -> Vec<EndedCommand> {
        Vec::new()
    }
    /// Returns the commands in the background that have ended with an earlier worker, which was
    /// killed.
    fn lost_background(&self) -> Vec<EndedCommand> {
        Vec::new()
    }
    /// Kills and reaps, in one round, the orphans of killed shims. Calls do so themselves: this is
    /// for the moments between them.
    fn reap_orphans(&mut self);
}

/// The admission of a call, which counts as running until this is dropped.
pub(crate) trait Admits {
    /// Returns how many are before it; none if it may begin.
    fn before(&self) -> Option<u32>;
    /// Waits until it may begin, or another number is before it. May be dropped and called again.
    fn changed(&mut self) -> impl Future<Output = ()>;
    /// Returns how long the call was held back, if it was.
    fn waited(&self) -> Option<Duration>;
}

impl Admits for AdmissionTicket {
    fn before(&self) -> Option<u32> {
        Self::before(self)
    }

    fn changed(&mut self) -> impl Future<Output = ()> {
        Self::changed(self)
    }

    fn waited(&self) -> Option<Duration> {
        Self::waited(self)
    }
}

/// A call that has been started. If it is dropped, it is ended, but no caller waits for that.
pub(crate) trait Runs {
    /// Waits for the outcome; all that the call started (except in the background) is gone then.
    ///
    /// Cancel safe: may be dropped halfway and called again.
    fn finish(&mut self) -> impl Future<Output = Outcome>;
    /// Ends the call; all that it started is gone when this returns.
    ///
    /// The outcome tells why, unless the call had ended by itself.
    fn cancel(self, why: &str) -> impl Future<Output = Outcome>;
}
