//! The mind of a teammate whose agent is a process for many turns. What the agent outputs becomes
//! answers and results of the transcript; what the transcript holds for the agent is sent to it. The
//! agent runs its own tools; the session runs the team tools, as for any model.
//!
//! The id of a message follows from the transcript. So a process that resumes a session gets what
//! the session does not hold yet, and nothing twice.

mod answer;
mod calls;
mod cost;
mod listening;
mod messages;
mod output;
mod sending;
mod state;

use std::collections::VecDeque;
use std::time::Duration;

use teamd_shared::member::{Agent, Gate, Permissions, Protocol, Waiting};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Event, Usage};
use tokio::sync::watch;

use super::process::{AgentProcess, Launch};
use super::{Acp, AgentDriver, AgentOutput, Claude, Codex, ImmediateReply, TeamTool};
use calls::AgentCalls;
use cost::Cost;
pub use messages::AgentMessage;
use messages::Messages;
use state::{MindState, Resumption, RunningAgent, Stopped};
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::{Outcome, ToolText};

/// What is added to the instructions of any model.
const OWN_TOOLS: &str = "\n\nYou use your own tools for files and commands; the rules above about bash, write_file and edit_file apply to them. \
    plan_approval returns at once: end your turn then; the verdict arrives as a message.";

/// The reply to a teammate that submits a plan.
const SUBMITTED: &str = "Submitted. Nothing can be changed before it is approved. End your turn now: the verdict arrives as a message.";

/// The reply to a verdict of the lead agent: a person may have to decide.
const PASSED_ON: &str =
    "Passed on. The decision arrives as a message: end your turn unless there is more to do.";

/// The reply to a second plan while the first one waits.
const PLAN_WAITS: &str = "not submitted: your plan waits for its verdict. End your turn now: the verdict arrives as a message.";

/// The outcome of a call whose turn is over.
const NO_OUTCOME: &str = "the turn of the agent ended without an outcome of this call";

/// How long the agent may continue when a model call was refused because the budget is spent. Some
/// agents retry for minutes.
const SPENT: Duration = Duration::from_secs(1);

/// What happened while the session waited for a call that runs in the agent.
#[derive(Debug)]
pub enum CallProgress {
    /// The call has ended.
    Outcome(Outcome),
    /// The agent asks whether it may do something, and continues after the answer.
    Asks(Permission),
    /// The model has cost something.
    Cost,
    /// An entry must be recorded: the agent makes another call, or another call has its outcome.
    Beside(Event),
}

/// The mind.
#[derive(Debug)]
pub struct AgentMind {
    setup: Setup,
    state: MindState,
    messages: Messages,
    calls: AgentCalls,
    cost: Cost,
    /// Output of the agent that belongs to a later entry.
    backlog: VecDeque<AgentOutput>,
    /// How questions of the agent are answered.
    pub permissions: Permissions,
    /// Whether there is a piece of work that has not ended.
    pub is_work: bool,
    /// What the next answer begins with, if a new session has replaced one that was lost.
    restart_note: Option<String>,
    /// How often the agent was restarted in this piece of work.
    restarts: u32,
    /// How long the agent may be silent during a turn before that is reported.
    pub patience: Duration,
    pauses: watch::Sender<Option<Waiting>>,
}

/// What the agent is started with.
#[derive(Debug)]
struct Setup {
    agent: Agent,
    name: Name,
    tools: Vec<TeamTool>,
    instructions: String,
    model: Option<String>,
}

impl Setup {
    fn driver(&self) -> Box<dyn AgentDriver> {
        let tools = self.tools.clone();
        let instructions = self.instructions.clone();
        let model = self.model.clone();
        match self.agent.protocol {
            Protocol::Acp => {
                let name = self.agent.name.clone();
                Box::new(Acp::new(name, tools, instructions, model))
            }
            Protocol::Codex => Box::new(Codex::new(tools, instructions, model)),
            Protocol::Claude | Protocol::Run => {
                let claude = Claude::new(tools, instructions, model);
                Box::new(claude.with_login(self.agent.login))
            }
        }
    }

    /// Returns the team tool of this name; none if the tool is the agent's own.
    fn team_tool(&self, name: &str) -> Option<&TeamTool> {
        self.tools.iter().find(|tool| tool.text.name == name)
    }
}

impl AgentMind {
    /// Makes a mind without a process. `tools`: those of the team; `instructions`: those of any
    /// model.
    pub fn new(
        agent: Agent,
        name: Name,
        tools: impl Iterator<Item = ToolText>,
        instructions: &str,
        model: Option<String>,
    ) -> Self {
        let plan_reply = if name == Name::lead() {
            ImmediateReply {
                text: PASSED_ON,
                refusal: None,
            }
        } else {
            ImmediateReply {
                text: SUBMITTED,
                refusal: Some(PLAN_WAITS),
            }
        };
        let team_tool = |text: ToolText| {
            let is_plan = text.name == "plan_approval";
            TeamTool {
                text,
                immediate_reply: is_plan.then_some(plan_reply),
            }
        };
        Self {
            setup: Setup {
                agent,
                name,
                tools: tools.map(team_tool).collect(),
                instructions: format!("{instructions}{OWN_TOOLS}"),
                model,
            },
            state: MindState::default(),
            messages: Messages::default(),
            calls: AgentCalls::default(),
            cost: Cost::default(),
            backlog: VecDeque::new(),
            permissions: Permissions::default(),
            is_work: false,
            restart_note: None,
            restarts: 0,
            patience: Duration::MAX,
            pauses: watch::Sender::new(None),
        }
    }

    /// Takes the cost that is in no entry yet, and the number of answers that have begun.
    pub fn take_unrecorded(&mut self) -> (Usage, u32) {
        self.cost.take()
    }

    /// Continues the conversation of an earlier worker, without knowing how far the agent has come.
    pub fn resume(&mut self) {
        self.state = MindState::Off(Stopped {
            was_in_turn: self.is_work,
            restart_reason: None,
        });
    }

    /// Returns whether a turn runs: only then the model is asked.
    pub fn is_in_turn(&self) -> bool {
        self.state.running().is_some_and(RunningAgent::is_in_turn)
    }

    /// Returns a future that ends when the agent still retries a model call that was refused
    /// because the budget is spent.
    fn spent(&self) -> impl Future<Output = ()> + use<> {
        let running = self.state.running();
        let meter = running.map(|running| running.process.meter.clone());
        async move {
            let Some(meter) = meter else {
                return std::future::pending().await;
            };
            meter.until_refused().await;
            tokio::time::sleep(SPENT).await;
        }
    }

    /// Returns the channel that publishes the agent's present outage.
    pub fn pauses(&self) -> watch::Receiver<Option<Waiting>> {
        self.pauses.subscribe()
    }

    /// Returns whether the outcome of a call comes from the agent, or the agent's driver has refused
    /// the call already.
    pub fn runs(&self, id: &str, tool: &str) -> bool {
        self.calls.is_refused(id) || self.setup.team_tool(tool).is_none()
    }

    /// Returns what to start; none if the agent runs.
    pub fn launch(&self) -> Option<Launch> {
        let MindState::Off(stopped) = &self.state else {
            return None;
        };
        Some(Launch {
            driver: self.setup.driver(),
            session: self.messages.session_id(),
            messages: self.messages.all().to_vec(),
            is_new_session: stopped.restart_reason.is_some(),
        })
    }

    /// Returns whether the next process begins a new session, because the one before could not
    /// resume the old one.
    pub fn begins_new_session(&self) -> bool {
        matches!(&self.state, MindState::Off(stopped) if stopped.restart_reason.is_some())
    }

    /// Takes the process that was started.
    pub fn attach(&mut self, process: AgentProcess) {
        let stopped = match std::mem::take(&mut self.state) {
            MindState::Off(stopped) => stopped,
            MindState::On(_) => Stopped::default(),
        };
        if let Some(why) = stopped.restart_reason {
            let note = format!(
                "The agent could not resume its session ({why}). A new one has begun and gets the end of the conversation."
            );
            tracing::warn!("{note}");
            self.restart_note = Some(note);
        }
        // They ran in the process before.
        self.calls.end_running(output::GONE);
        let resumption = self.resumption(&process, stopped.was_in_turn);
        self.state = MindState::On(Box::new(RunningAgent::new(process, resumption)));
    }

    fn resumption(&self, process: &AgentProcess, was_in_turn: bool) -> Resumption {
        if process.is_new {
            return if self.messages.has_answered {
                Resumption::Lost
            } else {
                Resumption::Nothing
            };
        }
        let without_id = process.known.without_id;
        let has_begun = self
            .messages
            .of_this_work()
            .iter()
            .any(|message| process.known.messages.contains(&message.id));
        if without_id.is_some() || (was_in_turn && self.is_work && has_begun) {
            Resumption::BrokenOff { without_id }
        } else {
            Resumption::Nothing
        }
    }

    /// Ends a process that began with another gate, if its gate cannot change while it runs.
    pub fn follow_gate(&mut self, gate: Gate) {
        let running = self.state.running();
        let fixed = running.and_then(|running| running.process.fixed);
        if fixed.is_some_and(|fixed| fixed != gate) {
            self.abandon();
        }
    }

    /// Forgets the output of a turn that is not recorded.
    fn forget_turn(&mut self) {
        self.backlog.clear();
        self.calls.forget_turn();
    }

    /// Ends the process: the next one resumes the session.
    pub fn abandon(&mut self) {
        self.state.stop();
        // The output of a turn that has ended behind a plan is still to be recorded.
        if matches!(&self.state, MindState::Off(stopped) if stopped.was_in_turn) {
            self.forget_turn();
        }
        self.pauses.send_replace(None);
    }
}
