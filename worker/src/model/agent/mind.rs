//! The mind of a teammate whose agent is a process for many turns: what the agent says becomes answers and results of the transcript, and
//! what the transcript takes in is told to the agent. A call of a tool of the agent's own runs in the agent; a call of a handed tool runs in
//! the session, as that of any model.
//!
//! A message has an id that follows from the transcript. So a process that goes on with a session is told what that does not hold yet,
//! and nothing twice.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::pending;
use std::time::Duration;

use teamd_shared::amount::format_duration;
use teamd_shared::member::{Agent, Gate, Permissions, Protocol, Waiting};
use teamd_shared::message::{IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};
use tokio::sync::watch;
use uuid::{Builder, Uuid};

use super::{AgentDriver, Claude, Codex, HandedTool, Heard};
use crate::core::submission::Permission;
use crate::model::message_text::{ask, show};
use crate::model::{ModelError, Progress};
use crate::tools::{AgentProcess, Launch, Outcome};

/// How often the agent may end by itself in one piece of work, and is started again.
const RESTARTS: u32 = 3;

/// How long the service is said not to answer after its agent has said so.
const OUTAGE: f64 = 120.0;

/// How long the end of a turn may take that is interrupted.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(2);

/// What an agent is told that was ended in the middle of its work.
const GO_ON: &str = "Your process ended in the middle of your work, and goes on now. A tool call without a result may have run. Go on.";

/// What an agent is told whose session is gone, and how much of the end of that, in bytes.
const LOST: &str = "Your earlier session is gone, and this one is new. A tool call of the work below may have run. What was said before:";
const MAX_BEFORE: usize = 8 << 10;

/// How long an agent may say nothing between a turn that has ended and the one that takes in what it was told meanwhile.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// How an agent ends that does not.
const UNTAKEN: &str = "has ended its turn without a word about a message that it was told";

/// What is added to the instructions of any model.
const OWN_TOOLS: &str = "\n\nYour tools for files and commands are your own: what is said above of bash, write_file and edit_file holds for them. \
    plan_approval returns at once: end your turn then; what comes of it arrives as a message.";

/// What a teammate is told of a plan that it has submitted.
const SUBMITTED: &str = "Submitted. Nothing can be changed before it is approved. End your turn now: the verdict arrives as a message.";

/// What comes of a call that runs in the agent.
#[derive(Debug)]
pub(crate) enum Came {
    /// Its outcome.
    Outcome(Outcome),
    /// The agent asks whether it may do something: after the answer it goes on.
    Asks(Permission),
}

/// What the lead agent is told of its verdict: a person may have to decide.
const PASSED_ON: &str =
    "Passed on. What becomes of it arrives as a message: end your turn unless there is more to do.";

/// What the agent is told.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    id: Uuid,
    text: String,
    /// Whether it means nothing any more when the work has ended.
    is_of_work: bool,
}

/// The mind.
#[derive(Debug)]
pub(crate) struct AgentMind {
    agent: Agent,
    name: Name,
    tools: Vec<HandedTool>,
    instructions: String,
    model: Option<String>,
    process: Option<AgentProcess>,
    /// How questions of the agent are answered.
    pub(crate) permissions: Permissions,
    /// The incarnation in which the conversation began: it names the session.
    conversation: u32,
    /// What this piece of work tells the agent, and before that what earlier work may not have told; how much that is.
    lines: Vec<Line>,
    earlier: usize,
    /// How many messages there were, so that each has an id of its own.
    count: u64,
    /// What was told, and answered, in earlier pieces of work; and whether anything was answered at all.
    before: String,
    has_answered: bool,
    /// Whether there is a piece of work that has not ended.
    is_work: bool,
    /// Calls of handed tools without a result: those whose outcome follows as a message, and the others.
    told_later: HashSet<String>,
    handed: HashSet<String>,
    /// What this process was told, or knew; and what of it is in no turn yet.
    written: HashSet<Uuid>,
    untaken: HashSet<Uuid>,
    /// Whether a turn runs, and whether the agent is to be told that the one before was broken off, or that its session is gone.
    in_turn: bool,
    is_broken: bool,
    is_lost: bool,
    /// Whether a turn has ended since the agent was told what is in no turn yet.
    is_between: bool,
    /// Why the next process begins a new session, although there is one; and what is to be recorded of that.
    afresh: Option<String>,
    begun_afresh: Option<String>,
    /// Outcomes of calls of its own that the session has not come to yet.
    outcomes: HashMap<String, Outcome>,
    /// What was heard while the outcome of a call was waited for.
    later: VecDeque<Heard>,
    usage: Usage,
    restarts: u32,
    /// How long it may say nothing during a turn before that is told.
    pub(crate) patience: Duration,
    pauses: watch::Sender<Option<Waiting>>,
}

impl AgentMind {
    /// Makes it without a process. `tools`: those of the team; `instructions`: what any model is told.
    pub(crate) fn new(
        agent: Agent,
        name: Name,
        tools: impl Iterator<Item = crate::model::prompt::ToolText>,
        instructions: &str,
        model: Option<String>,
    ) -> Self {
        let told = if name == Name::lead() { PASSED_ON } else { SUBMITTED };
        let hand = |text: crate::model::prompt::ToolText| {
            let at_once = (text.name == "plan_approval").then_some(told);
            HandedTool { text, at_once }
        };
        Self {
            agent,
            name,
            tools: tools.map(hand).collect(),
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
            untaken: HashSet::new(),
            in_turn: false,
            is_broken: false,
            is_lost: false,
            is_between: false,
            afresh: None,
            begun_afresh: None,
            outcomes: HashMap::new(),
            later: VecDeque::new(),
            usage: Usage::default(),
            restarts: 0,
            patience: Duration::MAX,
            pauses: watch::Sender::new(None),
        }
    }

    /// Returns where the outage of the moment stands.
    pub(crate) fn pauses(&self) -> watch::Receiver<Option<Waiting>> {
        self.pauses.subscribe()
    }

    /// Tells whether a call runs in the agent.
    pub(crate) fn runs(&self, tool: &str) -> bool {
        !self.tools.iter().any(|handed| handed.text.name == tool)
    }

    /// Returns what is to be started; none if the agent runs.
    pub(crate) fn launch(&self) -> Option<Launch> {
        let driver = || -> Box<dyn AgentDriver> {
            let (tools, instructions, model) =
                (self.tools.clone(), self.instructions.clone(), self.model.clone());
            match self.agent.protocol {
                Protocol::Codex => Box::new(Codex::new(tools, instructions, model)),
                Protocol::Claude | Protocol::Run => Box::new(Claude::new(tools, instructions, model)),
            }
        };
        let known = self.lines.iter().map(|line| line.id).collect();
        let (session, afresh) = (self.id("session", 0), self.begins_afresh());
        self.process.is_none().then(|| Launch { driver: driver(), session, known, afresh })
    }

    /// Tells whether the next process begins a new session, since the one before could not go on with the old one.
    pub(crate) fn begins_afresh(&self) -> bool {
        self.afresh.is_some()
    }

    /// Takes the process that was started.
    pub(crate) fn attach(&mut self, process: AgentProcess) {
        if let Some(why) = self.afresh.take() {
            let told = format!(
                "The agent could not go on with its session ({why}). A new one has begun, and is told what was said before."
            );
            tracing::warn!("{told}");
            self.begun_afresh = Some(told);
        }
        self.written.clone_from(&process.known);
        (self.untaken, self.in_turn, self.is_between) = (HashSet::new(), false, false);
        self.is_lost = self.has_answered && process.is_new;
        self.is_broken =
            self.is_work && self.lines[self.earlier..].iter().any(|line| process.known.contains(&line.id));
        self.process = Some(process);
    }

    /// Ends a process that began with another gate, and whose gate cannot change while it runs.
    pub(crate) fn follow_gate(&mut self, gate: Gate) {
        let fixed = self.process.as_ref().and_then(|process| process.fixed);
        if fixed.is_some_and(|fixed| fixed != gate) {
            self.abandon();
        }
    }

    /// Ends the process: the next one goes on with the session.
    pub(crate) fn abandon(&mut self) {
        self.process = None;
        self.outcomes.clear();
        self.later.clear();
        self.pauses.send_replace(None);
    }

    /// Ends the turn, and with it what it has told so far; the process, if it does not obey, or if it would begin another turn for a
    /// message that waits.
    pub(crate) async fn interrupt(&mut self) {
        let Some(process) = self.process.as_ref().filter(|_| self.in_turn && self.untaken.is_empty()) else {
            return self.abandon();
        };
        process.interrupt();
        let ended = async {
            loop {
                match self.next().await {
                    Ok(Heard::TurnEnded { .. }) => return true,
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
        };
        if !tokio::time::timeout(INTERRUPTED_WITHIN, ended).await.unwrap_or(false) {
            tracing::warn!("the agent does not end its turn when it is interrupted: it is ended");
            return self.abandon();
        }
        self.in_turn = false;
        self.outcomes.clear();
        self.later.clear();
        self.pauses.send_replace(None);
    }

    /// Waits until the agent takes messages.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) async fn ready(&mut self) -> Result<(), String> {
        loop {
            match self.next().await {
                Ok(Heard::Ready) => return Ok(()),
                Ok(Heard::Nonsense(line)) => {
                    return Err(format!("it says {:?}", line.chars().take(200).collect::<String>()));
                }
                Ok(_) => {}
                Err(how) => return Err(how),
            }
        }
    }

    /// Takes in the next entry of the transcript.
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Incarnation { incarnation, conversation, prompt } if incarnation == conversation => {
                (self.conversation, self.count, self.is_work) = (*conversation, 0, false);
                (self.lines, self.earlier) = (Vec::new(), 0);
                (self.before, self.has_answered) = (String::new(), false);
                prompt.iter().for_each(|prompt| self.note(prompt.clone(), true));
            }
            Event::Messages { messages } => {
                for message in messages.iter().filter_map(|it| Message::from_json(it.clone()).ok()) {
                    let is_work = message.starts_a_turn(&self.name);
                    show(&message, &self.name).into_iter().for_each(|text| self.note(text, is_work));
                }
            }
            Event::Asked { request_id, reason } => self.push(ask(request_id.as_str(), reason), true),
            Event::Answer { content, .. } => {
                self.has_answered = true;
                for block in content {
                    let Block::ToolUse { id, name, .. } = block else { continue };
                    match self.tools.iter().find(|tool| tool.text.name == name) {
                        Some(HandedTool { at_once: Some(_), .. }) => self.told_later.insert(id.clone()),
                        Some(_) => self.handed.insert(id.clone()),
                        None => continue,
                    };
                }
            }
            Event::Result { tool_use_id, content, is_error } => {
                if self.told_later.remove(tool_use_id) {
                    self.note(content.clone(), true);
                } else if self.handed.remove(tool_use_id)
                    && let Some(process) = &self.process
                {
                    process.answer(tool_use_id, content, *is_error);
                }
            }
            Event::Idle { .. } | Event::Left { .. } => {
                // Of work that has not ended by itself, the session holds what was told.
                if let Event::Idle { idle_reason: IdleReason::Available, content, .. } = event {
                    self.remember(content);
                    self.lines.clear();
                }
                self.lines.retain(|line| !line.is_of_work);
                self.earlier = self.lines.len();
                if self.in_turn {
                    self.abandon();
                }
                (self.is_work, self.in_turn, self.restarts) = (false, false, 0);
            }
            _ => {}
        }
    }

    /// Takes the messages of work that has ended to what was said before, with its answer.
    fn remember(&mut self, answer: &str) {
        self.lines.iter().for_each(|told| self.before.push_str(&format!("\n\n[told] {}", told.text)));
        self.before.push_str(&format!("\n\n[answered] {answer}"));
        let end = self.before.len();
        let from = (end.saturating_sub(MAX_BEFORE)..end).find(|at| self.before.is_char_boundary(*at));
        self.before.drain(..from.unwrap_or(end));
    }

    fn note(&mut self, text: String, is_work: bool) {
        self.push(text, false);
        self.is_work |= is_work;
    }

    fn push(&mut self, text: String, is_of_work: bool) {
        self.count += 1;
        self.lines.push(Line { id: self.id("line", self.count), text, is_of_work });
    }

    /// Returns an id that is always the same for the same thing of the same conversation.
    fn id(&self, what: &str, number: u64) -> Uuid {
        let of = format!("{what} {number} of {}", self.conversation);
        // FNV-1a, 64 bits, from two beginnings: within one state directory that is enough.
        let hash = |seed: u64| {
            of.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        };
        let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
        Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
    }

    /// Returns what the agent was not told yet; where a turn was broken off and nothing more has come, that it goes on.
    pub(crate) fn news(&mut self) -> Vec<Line> {
        let is_new = |line: &&Line| !self.written.contains(&line.id);
        let mut news: Vec<_> = self.lines.iter().filter(is_new).cloned().collect();
        let is_stuck = self.is_work && !self.in_turn && news.is_empty();
        if std::mem::take(&mut self.is_broken) || is_stuck {
            news.insert(0, Line { id: Uuid::new_v4(), text: GO_ON.to_owned(), is_of_work: true });
        }
        if !news.is_empty() && std::mem::take(&mut self.is_lost) {
            let text = format!("{LOST}{}", self.before);
            news.insert(0, Line { id: Uuid::new_v4(), text, is_of_work: true });
        }
        news
    }

    /// Tells the agent news.
    pub(crate) fn tell(&mut self, news: Vec<Line>) {
        let Some(process) = &self.process else { return };
        for Line { id, text, .. } in news {
            process.say(id, &text, self.permissions);
            self.written.insert(id);
            self.untaken.insert(id);
            self.in_turn = true;
        }
    }

    /// Answers a question of the agent: it may, or why not.
    pub(crate) fn permit(&self, question: &str, refusal: Option<&str>) {
        if let Some(process) = &self.process {
            process.permit(question, refusal);
        }
    }

    /// Waits for the end of the agent's process.
    pub(crate) async fn gone(&mut self) {
        match &mut self.process {
            Some(process) => process.gone().await,
            None => pending().await,
        }
    }

    /// Waits for what the agent says next; a long silence is told.
    async fn heard(&mut self) -> Result<Heard, String> {
        let Some(process) = &mut self.process else { return pending().await };
        if self.is_between {
            let heard = tokio::time::timeout(TAKEN_WITHIN, process.heard()).await;
            return heard.unwrap_or_else(|_| Err(UNTAKEN.to_owned()));
        }
        if let Ok(heard) = tokio::time::timeout(self.patience, process.heard()).await {
            return heard;
        }
        let until = teamd_shared::clock::wall();
        let why = format!("for the model, which has said nothing for {}", format_duration(self.patience));
        self.pauses.send_replace(Some(Waiting { until, why }));
        process.heard().await
    }

    /// Hears what the agent says next.
    async fn next(&mut self) -> Result<Heard, String> {
        let heard = self.heard().await;
        let Some(process) = &self.process else { return heard };
        match heard {
            // The kernel decides what it may do.
            Ok(Heard::Asks(asked)) if self.permissions == Permissions::Allow => {
                process.permit(&asked.id, None);
                Ok(Heard::Asks(asked))
            }
            Ok(Heard::Retry(why)) => {
                tracing::warn!("the service of the agent does not answer: {why}");
                let until = teamd_shared::clock::wall() + OUTAGE;
                self.pauses.send_replace(Some(Waiting { until, why: why.clone() }));
                Ok(Heard::Retry(why))
            }
            Ok(Heard::Cost(cost)) => {
                self.usage += cost;
                Ok(Heard::Cost(cost))
            }
            Ok(Heard::Taken(id)) => {
                self.is_between = false;
                self.untaken.remove(&id);
                Ok(Heard::Taken(id))
            }
            Ok(Heard::Outcome { id, content, is_error }) => {
                self.outcomes.insert(id.clone(), Outcome { content: content.clone(), is_error });
                Ok(Heard::Outcome { id, content, is_error })
            }
            Ok(Heard::Unusable(why)) => {
                self.abandon();
                Err(why)
            }
            Ok(Heard::NotResumed(why)) => {
                self.abandon();
                self.afresh = Some(why.clone());
                Err(format!("cannot go on with its session: {why}"))
            }
            Ok(heard) => {
                if self.pauses.borrow().is_some() {
                    self.pauses.send_replace(None);
                }
                Ok(heard)
            }
            Err(how) => {
                self.abandon();
                Err(how)
            }
        }
    }

    /// Waits for the next answer: what the model of the agent says until it calls a tool, or its turn ends.
    ///
    /// # Errors
    /// [`ModelError::Gone`] if the agent has ended, and is to be started again; [`ModelError::Failed`].
    pub(crate) async fn answer(
        &mut self,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Event, ModelError> {
        let mut content = Vec::new();
        loop {
            let heard = match self.later.pop_front() {
                Some(heard) => Ok(heard),
                None => self.next().await,
            };
            match heard {
                Ok(Heard::Piece(piece)) => observe(Progress::Text(&piece)),
                // It is asked anew.
                Ok(Heard::Retry(_)) => observe(Progress::Again),
                Ok(Heard::Text(text)) => content.push(Block::Text { text }),
                Ok(Heard::Call { id, name, input, .. }) => {
                    content.push(Block::ToolUse { id, name, input, message_id: None, request_id: None });
                    return Ok(self.event(content));
                }
                Ok(Heard::TurnEnded { failure }) => {
                    // What is in no turn yet begins the next one.
                    if !self.untaken.is_empty() {
                        self.is_between = true;
                        continue;
                    }
                    self.in_turn = false;
                    self.outcomes.clear();
                    return failure
                        .map_or_else(|| Ok(self.event(content)), |why| Err(ModelError::Failed(why)));
                }
                // Its calls are known when it asks.
                Ok(Heard::Asks(asked)) if self.permissions == Permissions::Ask => {
                    self.permit(&asked.id, Some("refused: no call of this tool is known"));
                }
                Ok(Heard::Nonsense(line)) => {
                    let line: String = line.chars().take(200).collect();
                    tracing::warn!("the agent says something that makes no sense: {line:?}");
                }
                Ok(_) => {}
                Err(how) if self.restarts < RESTARTS => {
                    self.restarts += 1;
                    return Err(ModelError::Gone(how));
                }
                Err(how) => return Err(ModelError::Failed(format!("the agent {} {how}", self.agent.name))),
            }
        }
    }

    fn event(&mut self, mut content: Vec<Block>) -> Event {
        if let Some(text) = self.begun_afresh.take() {
            content.insert(0, Block::Text { text: format!("[{text}]") });
        }
        Event::Answer { content, usage: std::mem::take(&mut self.usage), cut: None, length: None }
    }

    /// Waits for the outcome of a call that runs in the agent.
    pub(crate) async fn outcome(&mut self, id: &str) -> Came {
        loop {
            if let Some(outcome) = self.outcomes.remove(id) {
                return Came::Outcome(outcome);
            }
            match self.next().await {
                Ok(Heard::TurnEnded { failure }) => {
                    self.later.push_back(Heard::TurnEnded { failure });
                    let told = "the turn of the agent ended without an outcome of this call";
                    return Came::Outcome(Outcome::error(told));
                }
                Ok(Heard::Asks(asked)) if self.permissions == Permissions::Ask => return Came::Asks(asked),
                Ok(heard @ (Heard::Call { .. } | Heard::Text(_))) => self.later.push_back(heard),
                Ok(_) => {}
                Err(how) => {
                    return Came::Outcome(Outcome::error(format!("the agent {how}; the call may have run")));
                }
            }
        }
    }
}
