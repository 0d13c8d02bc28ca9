//! Any agent that speaks the Agent Client Protocol (ACP), version 1: lines of JSON-RPC in both
//! directions, one process for many turns. The team tools are an MCP server over HTTP behind the
//! gateway of the agent.
//!
//! The agent chooses the id of its session, and shows no ids of messages. So the worker keeps a
//! record of both ([`record`]). A prompt is never sent during a turn: some agents cancel the turn
//! then. What comes meanwhile joins the turn of an agent that can take it so ([`steering`]), else
//! it is the next prompt.
//!
//! A call of a team tool is the one that comes over HTTP. What the agent shows of it is left out.

mod endpoint;
mod frames;
mod record;
mod steering;
mod updates;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, CancelNotification, ClientCapabilities, Error, HttpHeader, Implementation,
    InitializeRequest, InitializeResponse, LoadSessionRequest, LoadSessionResponse, McpServer,
    McpServerHttp, NewSessionRequest, NewSessionResponse, PermissionOption, PromptRequest,
    PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    ResumeSessionRequest, ResumeSessionResponse, SelectedPermissionOutcome, SessionId,
    SessionModeState, SessionNotification, SetSessionModeRequest, StopReason, SystemPrompt,
    ToolCall,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use teamd_shared::member::{Permissions, Protocol};
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::Outcome;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::team_calls::TeamCalls;
use super::{AgentDriver, AgentOutput, AgentSession, TeamTool, too_old};
pub use endpoint::{TeamCall, TeamServer};
use frames::{
    error_text, mode_to_set, not_served, notification, option_for, request, response,
    why_it_stopped,
};
use steering::Steering;

/// The message about a call that may not run, before the reason.
const REFUSED: &str = "The last call of a tool may not run: ";

/// The failure of a turn in which its model did nothing: a service that fails looks like that.
const NO_ANSWER: &str = "its turn ended without an answer";

/// The outcome of a call of a team tool outside of a turn.
const NO_TURN: &str = "the team does not know this call: only your main conversation can call team tools, and only during a turn";

/// What the answer to a request is awaited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Initialize,
    New,
    Resume,
    Load,
    Mode,
    Prompt,
    Steering,
}

/// A turn that runs.
#[derive(Debug, Default)]
struct Turn {
    /// Whether its model has said or called anything.
    has_output: bool,
    /// Whether the last output of its model is whole, so that the next one begins another answer. The
    /// protocol does not say so.
    answer_is_whole: bool,
    /// The text that is not complete.
    text: String,
    /// Why calls were refused, for the model to be told.
    refusals: Vec<String>,
    is_interrupted: bool,
}

impl Turn {
    fn new() -> Self {
        Self {
            answer_is_whole: true,
            ..Self::default()
        }
    }
}

/// The requests whose answers are awaited.
#[derive(Debug, Default)]
struct OpenRequests {
    /// The number of the last one.
    last: u64,
    awaited: HashMap<u64, Awaited>,
}

/// The session.
#[derive(Debug, Default)]
struct AcpSession {
    /// What the agent calls it. While it is being resumed, it is not ready.
    id: Option<SessionId>,
    is_ready: bool,
    /// What its first prompt begins with.
    preamble: Option<String>,
    /// What the agent can do.
    capabilities: AgentCapabilities,
    steering: Steering,
}

/// What the agent shows of its turn.
#[derive(Debug, Default)]
struct ShownCalls {
    /// Calls of its own tools that are not told yet: what they are given is not known.
    announced: BTreeMap<String, ToolCall>,
    /// Those without an outcome.
    running: BTreeMap<String, ToolCall>,
    /// Those that show a call of a team tool.
    of_team: HashSet<String>,
    /// The options of its questions.
    questions: HashMap<String, Vec<PermissionOption>>,
}

/// The plans that the agent has shown.
#[derive(Debug, Default)]
struct Plans {
    count: u64,
    last: Value,
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Acp {
    /// Its name, by which more may be known of it.
    name: String,
    instructions: String,
    model: Option<String>,
    calls: TeamCalls<()>,
    /// Where the outcomes of the calls go.
    replies: HashMap<String, oneshot::Sender<Outcome>>,
    /// What the agent shows to call team tools.
    token: String,
    workspace: PathBuf,
    gateway: String,
    requests: OpenRequests,
    session: AcpSession,
    /// Messages that wait for the session, or for the end of the turn.
    waiting: Vec<(Uuid, String)>,
    turn: Option<Turn>,
    shown: ShownCalls,
    plans: Plans,
    record: String,
    output: Vec<AgentOutput>,
}

impl Acp {
    /// Makes it; `instructions` are given to its model, as far as it can be told.
    pub(crate) fn new(
        name: String,
        tools: Vec<TeamTool>,
        instructions: String,
        model: Option<String>,
    ) -> Self {
        Self {
            name,
            instructions,
            model,
            calls: TeamCalls::new(tools),
            replies: HashMap::new(),
            token: endpoint::new_token(),
            workspace: PathBuf::new(),
            gateway: String::new(),
            requests: OpenRequests::default(),
            session: AcpSession::default(),
            waiting: Vec::new(),
            turn: None,
            shown: ShownCalls::default(),
            plans: Plans::default(),
            record: String::new(),
            output: Vec::new(),
        }
    }

    /// Returns the lines of a request whose answer is awaited.
    fn ask(&mut self, awaited: Awaited, method: &str, params: &impl serde::Serialize) -> String {
        self.requests.last += 1;
        self.requests.awaited.insert(self.requests.last, awaited);
        request(self.requests.last, method, params)
    }

    /// Returns the server of the team tools, as the agent is told of it.
    fn team_server_entry(&self) -> McpServer {
        let url = format!("{}{}", self.gateway, endpoint::PATH);
        let token = HttpHeader::new("Authorization", format!("Bearer {}", self.token));
        McpServer::Http(McpServerHttp::new("team", url).headers(vec![token]))
    }

    /// Reads the answer to a request.
    fn answered(&mut self, id: &Value, frame: &Value) -> String {
        let number = id.as_u64().unwrap_or_default();
        let Some(awaited) = self.requests.awaited.remove(&number) else {
            return String::new();
        };
        let error = frame.get("error").filter(|error| !error.is_null());
        let error = error.map(|error| match read::<Error>(error) {
            Some(error) => error_text(&error),
            None => error.to_string(),
        });
        let result = &frame["result"];
        match (awaited, error) {
            (Awaited::Prompt, error) => self.prompt_answered(result, error),
            (Awaited::Steering, error) => self.steering_answered(number, result, error),
            (Awaited::Resume | Awaited::Load, Some(why)) => {
                self.output.push(AgentOutput::NotResumed(why));
                String::new()
            }
            (_, Some(why)) => self.unusable(format!("does not begin: {why}")),
            (Awaited::Initialize, None) => self.initialized(result),
            (Awaited::New, None) => match read::<NewSessionResponse>(result) {
                Some(NewSessionResponse {
                    session_id, modes, ..
                }) => {
                    self.record.push_str(&record::session_line(&session_id.0));
                    self.session.id = Some(session_id);
                    self.set_mode(modes)
                }
                None => self.unusable("does not begin: it names no session".to_owned()),
            },
            (Awaited::Resume, None) => {
                let response = read::<ResumeSessionResponse>(result);
                self.set_mode(response.and_then(|response| response.modes))
            }
            (Awaited::Load, None) => {
                let response = read::<LoadSessionResponse>(result);
                self.set_mode(response.and_then(|response| response.modes))
            }
            (Awaited::Mode, None) => self.ready(),
        }
    }

    fn unusable(&mut self, why: String) -> String {
        self.output.push(AgentOutput::Unusable(why));
        String::new()
    }

    /// Applies what the agent can do, and opens the session.
    fn initialized(&mut self, result: &Value) -> String {
        let Some(agent) = read::<InitializeResponse>(result) else {
            return self.unusable("does not begin: its answer is not of ACP".to_owned());
        };
        let version = agent.protocol_version;
        if version != ProtocolVersion::V1 {
            return self.unusable(format!(
                "cannot be driven: it speaks version {version} of ACP, and version 1 is needed"
            ));
        }
        let its_version = agent.agent_info.map(|info| info.version);
        if let Some(output) = too_old(&self.name, Protocol::Acp, &its_version.unwrap_or_default()) {
            self.output.push(output);
            return String::new();
        }
        if !agent.agent_capabilities.mcp_capabilities.http {
            return self.unusable(
                "cannot be driven: it takes no MCP servers over HTTP, so it would get no team tools"
                    .to_owned(),
            );
        }
        self.session.capabilities = agent.agent_capabilities;
        self.session.steering = Steering::announced(agent.meta.as_ref());
        let servers = vec![self.team_server_entry()];
        let cwd = self.workspace.clone();
        let sessions = &self.session.capabilities.session_capabilities;
        let prompt = sessions
            .system_prompt
            .is_some()
            .then(|| SystemPrompt::new(vec![self.instructions.clone().into()]));
        let Some(session) = self.session.id.clone() else {
            if prompt.is_none() {
                self.session.preamble = Some(self.instructions.clone());
            }
            let params = NewSessionRequest::new(cwd)
                .mcp_servers(servers)
                .system_prompt(prompt);
            return self.ask(Awaited::New, "session/new", &params);
        };
        if sessions.resume.is_some() {
            let params = ResumeSessionRequest::new(session, cwd)
                .mcp_servers(servers)
                .system_prompt(prompt);
            return self.ask(Awaited::Resume, "session/resume", &params);
        }
        if self.session.capabilities.load_session {
            let params = LoadSessionRequest::new(session, cwd)
                .mcp_servers(servers)
                .system_prompt(prompt);
            return self.ask(Awaited::Load, "session/load", &params);
        }
        self.output
            .push(AgentOutput::NotResumed("it keeps no sessions".to_owned()));
        String::new()
    }

    /// Sets the mode in which the agent asks before it uses its tools, if it is in another one.
    fn set_mode(&mut self, modes: Option<SessionModeState>) -> String {
        let mode = modes.and_then(|modes| mode_to_set(&modes));
        match (mode, self.session.id.clone()) {
            (Some(mode), Some(session)) => {
                let params = SetSessionModeRequest::new(session, mode);
                self.ask(Awaited::Mode, "session/set_mode", &params)
            }
            _ => self.ready(),
        }
    }

    fn ready(&mut self) -> String {
        self.session.is_ready = true;
        self.output.push(AgentOutput::Ready);
        self.prompt_waiting()
    }

    /// Begins a turn with the messages that wait, if there are any.
    fn prompt_waiting(&mut self) -> String {
        if !self.session.is_ready || self.turn.is_some() || self.waiting.is_empty() {
            return String::new();
        }
        let mut texts = Vec::new();
        for (id, text) in std::mem::take(&mut self.waiting) {
            self.taken(id);
            texts.push(text);
        }
        self.turn = Some(Turn::new());
        self.prompt(&texts.join("\n\n"))
    }

    /// A message is part of a turn: from now on, the session holds it.
    fn taken(&mut self, id: Uuid) {
        self.record.push_str(&record::message_line(id));
        self.output.push(AgentOutput::Taken(id));
    }

    fn prompt(&mut self, text: &str) -> String {
        let Some(session) = self.session.id.clone() else {
            return String::new();
        };
        let text = match self.session.preamble.take() {
            Some(preamble) => format!("{preamble}\n\n{text}"),
            None => text.to_owned(),
        };
        let params = PromptRequest::new(session, vec![text.into()]);
        self.ask(Awaited::Prompt, "session/prompt", &params)
    }

    /// Applies that a prompt is answered: its turn has ended.
    fn prompt_answered(&mut self, result: &Value, error: Option<String>) -> String {
        self.flush_text();
        self.end_running("[runs on in the background]");
        self.shown = ShownCalls::default();
        let Some(mut turn) = self.turn.take() else {
            return String::new();
        };
        let answer = read::<PromptResponse>(result);
        if let Some(cost) = answer.as_ref().and_then(frames::cost_of) {
            self.output.push(AgentOutput::Cost(cost));
        }
        let reason = answer.map(|answer| answer.stop_reason);
        // A call that was refused ends the turn of some agents: their models are never told.
        if self.calls.is_waiting() {
            turn.refusals.clear();
        }
        let has_ended_itself = matches!(reason, Some(StopReason::EndTurn | StopReason::Cancelled));
        if has_ended_itself && !turn.is_interrupted && !turn.refusals.is_empty() {
            let refusals = std::mem::take(&mut turn.refusals);
            turn.answer_is_whole = true;
            self.turn = Some(turn);
            return self.prompt(&refusals.join("\n"));
        }
        let failure = match (error, reason) {
            (Some(why), _) => Some(why),
            (None, None) => Some("its turn ended in a way that is not of ACP".to_owned()),
            (None, Some(StopReason::EndTurn)) if !turn.has_output => Some(NO_ANSWER.to_owned()),
            (None, Some(reason)) => why_it_stopped(reason).map(str::to_owned),
        };
        self.calls.turn_ended();
        self.replies.clear();
        self.end_steering(turn.is_interrupted, failure.as_deref());
        self.output.push(AgentOutput::TurnEnded { failure });
        self.prompt_waiting()
    }

    /// Answers a request of the agent; an empty text if the answer comes later.
    fn requested(&mut self, id: &Value, method: &str, params: &Value) -> String {
        let asked = match method {
            "session/request_permission" => read::<RequestPermissionRequest>(params),
            _ => None,
        };
        let Some(RequestPermissionRequest {
            tool_call, options, ..
        }) = asked
        else {
            return not_served(id);
        };
        let call = tool_call.tool_call_id.0.to_string();
        let question = id.to_string();
        self.shown.questions.insert(question.clone(), options);
        if self.turn.is_none() {
            return self.permit(&question, Some(NO_TURN));
        }
        self.call_changes(&call, tool_call.fields);
        if self.shown.of_team.contains(&call) {
            return self.permit(&question, None);
        }
        self.tell(&call);
        let shown = self.shown.running.get(&call);
        let tool = shown.map_or_else(String::new, |shown| self.own_name(shown));
        let input = shown.map_or(Value::Null, frames::input_of);
        self.output.push(AgentOutput::Asks(Permission {
            id: question,
            tool,
            input,
        }));
        String::new()
    }
}

/// Reads a part of a frame; none if it is not of ACP.
fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value)
        .inspect_err(|error| tracing::debug!("a frame of the agent is not of ACP: {error}"))
        .ok()
}

impl AgentDriver for Acp {
    fn arguments(
        &self,
        _session: &AgentSession,
        _variables: &[(&'static str, String)],
    ) -> Vec<String> {
        Vec::new()
    }

    fn settings(&self) -> &'static [(&'static str, &'static str)] {
        // The adapter of Claude Code hands them on. To others they mean nothing.
        &super::claude::SETTINGS
    }

    fn set_up(
        &self,
        variables: &[(&'static str, String)],
        state: &Path,
    ) -> Vec<(&'static str, String)> {
        super::acp_known::variables(&self.name, self.model.as_deref(), variables, state)
    }

    fn team_server(&mut self) -> Option<TeamServer> {
        Some(TeamServer::new(&self.calls.tools, self.token.clone()))
    }

    fn record_name(&self, session: Uuid) -> Option<PathBuf> {
        Some(record::name(session))
    }

    fn can_resume(&self, history: &str) -> bool {
        record::has_message(history)
    }

    fn take_record(&mut self) -> String {
        std::mem::take(&mut self.record)
    }

    fn take_output(&mut self) -> Vec<AgentOutput> {
        std::mem::take(&mut self.output)
    }

    fn history(&self, state: &Path, session: Uuid) -> Option<PathBuf> {
        let file = state.join(record::name(session));
        file.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file())
            .then_some(file)
    }

    fn holds(&self, entry: &Value, message: Uuid) -> bool {
        record::is_message(entry, message)
    }

    fn may_hold(&self, entry: &Value, message: Uuid) -> bool {
        record::is_steered(entry, message)
    }

    fn may_lack_sent(&self) -> bool {
        true
    }

    fn begin(&mut self, session: &AgentSession) -> String {
        self.workspace.clone_from(&session.workspace);
        self.gateway = session.gateway.clone().unwrap_or_default();
        self.session.id = record::session_in(&session.kept).map(SessionId::new);
        let client = Implementation::new("teamd", env!("CARGO_PKG_VERSION"));
        let params = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::default())
            .client_info(client);
        self.ask(Awaited::Initialize, "initialize", &params)
    }

    fn parse_line(&mut self, raw: &str) -> (String, Vec<AgentOutput>) {
        let Ok(frame) = serde_json::from_str::<Value>(raw) else {
            return (String::new(), vec![AgentOutput::Nonsense(raw.to_owned())]);
        };
        let params = &frame["params"];
        let lines = match (frame["method"].as_str(), frame.get("id")) {
            (Some(method), Some(id)) => self.requested(id, method, params),
            (Some("session/update"), None) => {
                if let Some(SessionNotification {
                    session_id, update, ..
                }) = read(params)
                    && self.session.is_ready
                    && Some(&session_id) == self.session.id.as_ref()
                {
                    self.updated(update);
                }
                String::new()
            }
            (None, Some(id)) => self.answered(id, &frame),
            _ => String::new(),
        };
        (lines, self.take_output())
    }

    fn send_message(&mut self, id: Uuid, text: &str, _permissions: Permissions) -> String {
        if self.can_steer() {
            return self.steer(id, text);
        }
        self.waiting.push((id, text.to_owned()));
        self.prompt_waiting()
    }

    fn send_outcome(&mut self, id: &str, outcome: Outcome) -> String {
        self.calls.answered(id, &outcome);
        if let Some(reply) = self.replies.remove(id) {
            // Without a receiver the agent has given the call up.
            drop(reply.send(outcome));
        }
        String::new()
    }

    fn call_team(&mut self, call: TeamCall) -> Vec<AgentOutput> {
        self.team_called(call);
        self.take_output()
    }

    fn permit(&mut self, question: &str, refusal: Option<&str>) -> String {
        let Some(options) = self.shown.questions.remove(question) else {
            return String::new();
        };
        if let (Some(why), Some(turn)) = (refusal, &mut self.turn) {
            turn.refusals.push(format!("{REFUSED}{why}"));
        }
        let outcome = match option_for(refusal.is_none(), &options) {
            Some(option) => {
                RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option))
            }
            None => RequestPermissionOutcome::Cancelled,
        };
        let id: Value = serde_json::from_str(question).unwrap_or_default();
        response(&id, &RequestPermissionResponse::new(outcome))
    }

    fn interrupt(&mut self) -> String {
        let (Some(turn), Some(session)) = (&mut self.turn, self.session.id.clone()) else {
            return String::new();
        };
        turn.is_interrupted = true;
        // They would begin another turn.
        self.waiting.clear();
        self.session.steering.forget();
        let mut lines = notification("session/cancel", &CancelNotification::new(session));
        // The protocol wants each question answered.
        for question in std::mem::take(&mut self.shown.questions).into_keys() {
            let id: Value = serde_json::from_str(&question).unwrap_or_default();
            let outcome = RequestPermissionOutcome::Cancelled;
            lines += &response(&id, &RequestPermissionResponse::new(outcome));
        }
        self.replies.clear();
        lines
    }
}

#[cfg(test)]
mod tests;
