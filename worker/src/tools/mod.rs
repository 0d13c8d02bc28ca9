//! The tools of a member: one file each, with its name, texts, input and execution, and the table
//! that lists them.
//!
//! The toolbox runs what works on the machine, and owns every process that such a tool starts. The
//! other tools are steps of the session: they speak to other members, or ask the daemon. Nothing
//! here decides whether a call may run.

mod answer_plan;
mod bash;
mod broadcast;
mod edit_file;
mod input;
mod list_teammates;
mod orders;
mod output;
mod plan_approval;
mod read_file;
mod read_inbox;
mod request_plan;
mod request_status;
mod run_agent;
mod send_message;
mod shutdown_request;
mod shutdown_response;
mod sleep;
pub(crate) mod spawn_teammate;
mod table;
mod tasks;
pub(crate) mod team;
mod terminal;
mod toolbox;
mod workspace;
mod write_file;

use std::future::Future;

use teamd_shared::control::TaskOrder;
use teamd_shared::id::RequestId;
use teamd_shared::member::Gate;
use teamd_shared::message::{ALL, IdleReason};
use teamd_shared::transcript::Usage;

use answer_plan::AnswerPlan;
pub(crate) use bash::{AgentProcess, Bash, GOOD_END, Launch, LiveLog, Ran, Reader};
#[cfg(test)]
pub(crate) use bash::{GateHandle, Said, SimulatedAgent};
use edit_file::EditFile;
pub(crate) use plan_approval::PlanApproval;
use read_file::ReadFile;
use request_plan::RequestPlan;
use run_agent::RunAgent;
use send_message::SendMessage;
use shutdown_request::ShutdownRequest;
use shutdown_response::ShutdownResponse;
use sleep::Sleep;
use spawn_teammate::SpawnTeammate;
pub(crate) use table::{AfterCrash, Caller};
use tasks::TaskAction;
pub(crate) use toolbox::{Toolbox, ToolboxConfig};
pub(crate) use workspace::{Guide, Rest};
use write_file::WriteFile;

use crate::core::state::Budget;

/// One call of a tool, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The call in a few words, on one line, at most 60 characters.
    pub(crate) activity: String,
    /// What is to be done.
    pub(crate) action: Action,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Work on the machine, by the toolbox.
    Local(LocalAction),
    /// Something about the team, whose outcome is the result.
    Team(TeamAction),
    /// To consume what has arrived.
    ReadInbox,
    /// An answer to a shutdown; the daemon decides what becomes of it.
    AnswerShutdown(ShutdownResponse),
    /// A plan; the result is its verdict.
    SubmitPlan(PlanApproval),
}

/// What the toolbox does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LocalAction {
    /// Runs a command.
    Bash(Bash),
    /// Reads a text file.
    ReadFile(ReadFile),
    /// Makes or replaces a file.
    WriteFile(WriteFile),
    /// Replaces a text that occurs once in a file.
    EditFile(EditFile),
    /// Runs the agent of the teammate.
    RunAgent(RunAgent),
    /// Waits.
    Sleep(Sleep),
}

/// What is done about the team.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TeamAction {
    /// Sends a message to another member, or to every one that runs.
    SendMessage(SendMessage),
    /// Shows the team.
    List,
    /// Shows where a request stands.
    ShowRequest(RequestId),
    /// Starts a teammate.
    Spawn(SpawnTeammate),
    /// Asks a teammate to leave.
    RequestShutdown(ShutdownRequest),
    /// Closes the gate of a teammate and asks it for a plan.
    RequestPlan(RequestPlan),
    /// Answers a plan, or says what the lead agent would answer.
    AnswerPlan(AnswerPlan),
    /// Does something with tasks.
    Task(TaskAction),
}

impl Action {
    /// Tells whether it tells or asks others something, and does not only look.
    pub(crate) fn reaches_the_team(&self) -> bool {
        match self {
            Self::Local(_) | Self::ReadInbox => false,
            Self::Team(action) => !matches!(
                action,
                TeamAction::List
                    | TeamAction::ShowRequest(_)
                    | TeamAction::Task(
                        TaskAction::Order(TaskOrder::List(_)) | TaskAction::Refuse(_)
                    )
            ),
            Self::AnswerShutdown(_) | Self::SubmitPlan(_) => true,
        }
    }

    /// Tells whether it is a message to all.
    pub(crate) fn is_for_all(&self) -> bool {
        matches!(self, Self::Team(TeamAction::SendMessage(SendMessage { to, .. })) if to == ALL)
    }
}

impl From<LocalAction> for Action {
    fn from(action: LocalAction) -> Self {
        Self::Local(action)
    }
}

impl From<TeamAction> for Action {
    fn from(action: TeamAction) -> Self {
        Self::Team(action)
    }
}

impl LocalAction {
    /// Tells whether a closed gate refuses the call. `bash` is let through: the kernel keeps it
    /// from changing anything. In the background it is not, since a closed gate ends background
    /// commands.
    pub(crate) fn needs_open_gate(&self) -> bool {
        match self {
            Self::WriteFile(_) | Self::EditFile(_) => true,
            Self::Bash(bash) => bash.run_in_background,
            Self::ReadFile(_) | Self::RunAgent(_) | Self::Sleep(_) => false,
        }
    }

    /// Tells whether the call is the agent itself at work: then it has no longer to answer a
    /// shutdown than a model has.
    pub(crate) fn is_mind(&self) -> bool {
        matches!(self, Self::RunAgent(_))
    }

    /// Tells whether the call can change anything when it begins with the gate as it is.
    pub(crate) fn changes(&self, gate: Gate) -> bool {
        self.needs_open_gate() || (gate == Gate::Open && matches!(self, Self::Bash(_)))
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The text for the model.
    pub(crate) content: String,
    /// Whether that is an error.
    pub(crate) is_error: bool,
}

impl Outcome {
    /// Makes the outcome of a call that did what was asked.
    pub(crate) fn ok(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            is_error: false,
        }
    }

    /// Makes the outcome of a call that did not.
    pub(crate) fn error(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            is_error: true,
        }
    }
}

impl From<Result<String, String>> for Outcome {
    fn from(result: Result<String, String>) -> Self {
        result.map_or_else(Self::error, Self::ok)
    }
}

/// The tools that work on the machine, as the session uses them.
pub(crate) trait Tools: std::fmt::Debug {
    /// A call that has been started.
    type Running: Runs;
    /// Starts a call. Must be called within the runtime.
    fn start(&mut self, action: LocalAction, gate: Gate) -> Self::Running;
    /// Removes what an earlier incarnation has left that was killed in this call.
    fn clear_up(&self, _broken_off: &LocalAction) {}
    /// Tells whether something runs beside the calls that may write: a command in the background,
    /// an agent with an open gate.
    fn has_background(&mut self) -> bool;
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
    /// Opens the gate of the agent, if one runs behind a closed gate; tells whether that is so.
    fn open_gate(&mut self) -> bool {
        false
    }
    /// Waits until nothing is left of an agent that was ended: two of them never hold one session.
    fn agent_ended(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// Waits until an agent whose gate is to be opened can write.
    fn opened(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// Closes the gate of the agent, and ends the commands in the background with all that they
    /// started; returns when that is done.
    fn end_background(&mut self) -> impl Future<Output = ()>;
    /// Kills and reaps, in one round, the orphans of killed shims. Calls do so themselves: this is
    /// for the moments between them.
    fn reap_orphans(&mut self);
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
