//! The mind of a teammate whose agent is a process for many turns: what the agent says becomes
//! answers and results of the transcript, and what the transcript takes in is told to the agent. A
//! call of a tool of the agent's own runs in the agent; a call of a handed tool runs in the
//! session, as that of any model.
//!
//! A message has an id that follows from the transcript. So a process that goes on with a session
//! is told what that does not hold yet, and nothing twice.

mod hearing;
mod listening;
mod telling;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use teamd_shared::member::{Agent, Gate, Permissions, Protocol, Waiting};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Event, Usage};
use tokio::sync::watch;
use uuid::Uuid;

use super::process::{AgentProcess, Launch};
use super::{AgentDriver, AtOnce, Claude, Codex, HandedTool, Heard};
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::{Outcome, ToolText};

/// What is added to the instructions of any model.
const OWN_TOOLS: &str = "\n\nYour tools for files and commands are your own: what is said above of bash, write_file and edit_file holds for them. \
    plan_approval returns at once: end your turn then; what comes of it arrives as a message.";

/// What a teammate is told of a plan that it has submitted.
const SUBMITTED: &str = "Submitted. Nothing can be changed before it is approved. End your turn now: the verdict arrives as a message.";

/// What the lead agent is told of its verdict: a person may have to decide.
const PASSED_ON: &str =
    "Passed on. What becomes of it arrives as a message: end your turn unless there is more to do.";

/// What it is told of another one behind that.
const PLAN_WAITS: &str = "not submitted: your plan waits for its verdict. End your turn now: the verdict arrives as a message.";

/// What is told of a call whose turn is over.
const NO_OUTCOME: &str = "the turn of the agent ended without an outcome of this call";

/// How long the agent may still say something when a model call was refused since the budget is
/// spent. Some ask again for minutes.
const SPENT: Duration = Duration::from_secs(1);

/// What comes of a call that runs in the agent.
#[derive(Debug)]
pub enum Came {
    /// Its outcome.
    Outcome(Outcome),
    /// The agent asks whether it may do something: after the answer it goes on.
    Asks(Permission),
    /// Nothing yet, but the model has cost something.
    Cost,
    /// Nothing yet, but this is to be recorded: it makes another call, or another one has its
    /// outcome.
    Beside(Event),
}

/// What the agent is told.
#[derive(Debug, Clone)]
pub struct Line {
    /// Follows from the transcript.
    pub id: Uuid,
    /// What it says.
    pub text: String,
    /// Whether it means nothing any more when the work has ended.
    pub(super) is_of_work: bool,
}

/// The mind.
#[derive(Debug)]
pub struct AgentMind {
    agent: Agent,
    name: Name,
    tools: Vec<HandedTool>,
    instructions: String,
    model: Option<String>,
    process: Option<AgentProcess>,
    /// How questions of the agent are answered.
    pub permissions: Permissions,
    /// The incarnation in which the conversation began: it names the session.
    conversation: u32,
    /// What this piece of work tells the agent, and before that what earlier work may not have
    /// told; how much that is.
    lines: Vec<Line>,
    earlier: usize,
    /// How many messages there were, so that each has an id of its own.
    count: u64,
    /// What was told, and answered, in earlier pieces of work; and whether anything was answered at
    /// all.
    before: String,
    has_answered: bool,
    /// Whether there is a piece of work that has not ended.
    pub is_work: bool,
    /// Calls of handed tools without a result: those whose outcome follows as a message, and the
    /// others.
    told_later: HashSet<String>,
    handed: HashSet<String>,
    /// What this process was told, or knew; and what of it is in no turn yet.
    written: HashSet<Uuid>,
    /// The message that the session holds without an id: what is told next stands for it.
    without_id: Option<Uuid>,
    untaken: HashSet<Uuid>,
    /// Whether a turn runs, and whether the agent is to be told that the one before was broken off,
    /// or that its session is gone.
    in_turn: bool,
    is_broken: bool,
    is_lost: bool,
    /// Whether a turn has ended since the agent was told what is in no turn yet.
    is_between: bool,
    /// Why the next process begins a new session, although there is one; and what is to be recorded
    /// of that.
    afresh: Option<String>,
    begun_afresh: Option<String>,
    /// The recorded calls without a result whose outcome is for the agent to say, or was said by
    /// it.
    running: Vec<String>,
    /// Outcomes of calls of its own that are not recorded yet, and why others were refused when
    /// they were heard.
    outcomes: HashMap<String, Outcome>,
    refused: HashMap<String, &'static str>,
    /// What was heard while the outcome of a call was waited for.
    later: VecDeque<Heard>,
    /// What was heard of the cost of the model, and of answers that it has begun, and is in no
    /// entry yet.
    usage: Usage,
    model_calls: u32,
    /// Whether it has begun an answer that is in no entry yet: what that costs is recorded with it.
    is_answering: bool,
    /// How many answers its model has begun since it was to end its turn.
    unfollowed: u32,
    restarts: u32,
    /// How long it may say nothing during a turn before that is told.
    pub patience: Duration,
    pauses: watch::Sender<Option<Waiting>>,
}

impl AgentMind {
    /// Makes it without a process. `tools`: those of the team; `instructions`: what any model is
    /// told.
    pub fn new(
        agent: Agent,
        name: Name,
        tools: impl Iterator<Item = ToolText>,
        instructions: &str,
        model: Option<String>,
    ) -> Self {
        let told = if name == Name::lead() {
            PASSED_ON
        } else {
            SUBMITTED
        };
        let again = (name != Name::lead()).then_some(PLAN_WAITS);
        Self {
            agent,
            name,
            tools: tools
                .map(|text| {
                    let at_once = (text.name == "plan_approval").then_some(AtOnce { told, again });
                    HandedTool { text, at_once }
                })
                .collect(),
            instructions: format!("{instructions}{OWN_TOOLS}"),
            model,
            process: None,
            permissions: Permissions::default(),
            conversation: 0,
            lines: Vec::new(),
            earlier: 0,
            count: 0,
            before: String::new(),
            has_answered: false,
            is_work: false,
            told_later: HashSet::new(),
            handed: HashSet::new(),
            written: HashSet::new(),
            without_id: None,
            untaken: HashSet::new(),
            in_turn: false,
            is_broken: false,
            is_lost: false,
            is_between: false,
            afresh: None,
            begun_afresh: None,
            running: Vec::new(),
            outcomes: HashMap::new(),
            refused: HashMap::new(),
            is_answering: false,
            unfollowed: 0,
            later: VecDeque::new(),
            usage: Usage::default(),
            model_calls: 0,
            restarts: 0,
            patience: Duration::MAX,
            pauses: watch::Sender::new(None),
        }
    }

    /// Takes out what was heard of the cost, and of answers that have begun, and is in no entry
    /// yet.
    pub fn take_unrecorded(&mut self) -> (Usage, u32) {
        (
            std::mem::take(&mut self.usage),
            std::mem::take(&mut self.model_calls),
        )
    }

    /// Another worker goes on with the conversation: how far the agent has come with its work is
    /// not known.
    pub fn goes_on(&mut self) {
        self.in_turn = self.is_work;
    }

    /// Tells whether a turn runs: only then its model is asked.
    pub fn is_in_turn(&self) -> bool {
        self.in_turn && self.process.is_some()
    }

    /// Tells whether a model call of this turn was refused since the budget is spent.
    fn is_spent(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.meter.refused().is_some())
    }

    /// Returns a future that is over when the agent waits in vain for a model call that was refused
    /// since the budget is spent.
    fn spent(&self) -> impl Future<Output = ()> + use<> {
        let meter = self.process.as_ref().map(|process| process.meter.clone());
        async move {
            let Some(meter) = meter else {
                return std::future::pending().await;
            };
            meter.until_refused().await;
            tokio::time::sleep(SPENT).await;
        }
    }

    /// Returns where the outage of the moment stands.
    pub fn pauses(&self) -> watch::Receiver<Option<Waiting>> {
        self.pauses.subscribe()
    }

    /// Tells whether what comes of a call is for the agent to say, or was said by it.
    pub fn runs(&self, id: &str, tool: &str) -> bool {
        self.refused.contains_key(id) || !self.tools.iter().any(|handed| handed.text.name == tool)
    }

    /// Returns what is to be started; none if the agent runs.
    pub fn launch(&self) -> Option<Launch> {
        let driver = || -> Box<dyn AgentDriver> {
            let tools = self.tools.clone();
            let instructions = self.instructions.clone();
            let model = self.model.clone();
            match self.agent.protocol {
                Protocol::Codex => Box::new(Codex::new(tools, instructions, model)),
                Protocol::Claude | Protocol::Run => {
                    Box::new(Claude::new(tools, instructions, model))
                }
            }
        };
        let session = self.id("session", 0);
        let afresh = self.begins_afresh();
        self.process.is_none().then(|| Launch {
            driver: driver(),
            session,
            lines: self.lines.clone(),
            afresh,
        })
    }

    /// Tells whether the next process begins a new session, since the one before could not go on
    /// with the old one.
    pub fn begins_afresh(&self) -> bool {
        self.afresh.is_some()
    }

    /// Takes the process that was started.
    pub fn attach(&mut self, process: AgentProcess) {
        if let Some(why) = self.afresh.take() {
            let told = format!(
                "The agent could not go on with its session ({why}). A new one has begun, and is told what was said before."
            );
            tracing::warn!("{told}");
            self.begun_afresh = Some(told);
        }
        // They ran in the process before.
        for id in &self.running {
            self.outcomes
                .entry(id.clone())
                .or_insert_with(|| Outcome::error(hearing::GONE));
        }
        self.written.clone_from(&process.known.messages);
        self.without_id = process.known.without_id;
        let was_in_turn = std::mem::take(&mut self.in_turn);
        self.untaken = HashSet::new();
        self.is_between = false;
        self.is_lost = self.has_answered && process.is_new;
        self.is_broken = was_in_turn
            && self.is_work
            && self.lines[self.earlier..]
                .iter()
                .any(|line| self.written.contains(&line.id));
        self.process = Some(process);
    }

    /// Ends a process that began with another gate, and whose gate cannot change while it runs.
    pub fn follow_gate(&mut self, gate: Gate) {
        let fixed = self.process.as_ref().and_then(|process| process.fixed);
        if fixed.is_some_and(|fixed| fixed != gate) {
            self.abandon();
        }
    }

    /// Forgets what was heard in a turn, and is not recorded.
    fn forget_turn(&mut self) {
        self.later.clear();
        self.outcomes.clear();
        self.refused.clear();
    }

    /// Ends the process: the next one goes on with the session.
    pub fn abandon(&mut self) {
        self.process = None;
        // What was heard in a turn that has ended behind a plan is still to be recorded.
        if self.in_turn {
            self.forget_turn();
        }
        self.pauses.send_replace(None);
    }
}
