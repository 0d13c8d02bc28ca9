//! Codex: `codex app-server`, lines of JSON-RPC in both directions, one process for many turns. The
//! team tools are dynamic tools of its thread. Written from the frames of version
//! 0.169.0.
//!
//! Codex chooses the id of a thread itself. So a thread is marked with the id of its session
//! (`threadSource`), which the first line of its file keeps from before its first turn on: by that
//! it is found again. A message is always sent by `turn/start`, which begins a turn or joins the
//! one that runs. Codex writes the message, and its id behind it, to that file before its model is
//! asked.

mod frames;
mod thread_file;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use teamd_shared::member::{Permissions, Protocol};
use uuid::Uuid;

use super::team_calls::TeamCalls;
use super::{AgentDriver, AgentOutput, AgentSession, TeamTool, text_of};
use frames::{failure, how_it_ended, line, shown, tool_result, usage};
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::Outcome;
use thread_file::thread_of;

/// Its own tools for subagents and goals are off, because two protocols confuse a model. So is what
/// it would fetch at its start.
const OFF: [&str; 5] = [
    "agents.enabled",
    "features.goals",
    "features.apps",
    "features.plugins",
    "check_for_update_on_startup",
];

/// The ids of the first request, and of the one that begins or resumes a thread.
const INITIALIZE: u64 = 1;
const THREAD: u64 = 2;

/// The request that resumes a thread.
const RESUME: &str = "thread/resume";

/// What the model of Codex calls its tools.
const COMMAND: &str = "exec_command";
const PATCH: &str = "apply_patch";

/// The message about a call that may not run, before the reason.
const REFUSED: &str = "The last command or change may not run: ";

/// The driver.
#[derive(Debug)]
pub(crate) struct Codex {
    /// The outcome of a call goes to the request of that id.
    calls: TeamCalls<Value>,
    instructions: String,
    model: Option<String>,
    /// The request for the thread, and the thread once it is there.
    opening: Value,
    thread: Option<String>,
    /// The turn that runs.
    turn: Option<String>,
    /// Messages that wait for a thread, or for the end of a turn that takes no messages.
    waiting: Vec<(Uuid, String)>,
    /// Messages that were sent, by their request.
    sent: HashMap<u64, (Uuid, String)>,
    requests: u64,
    /// Calls of its own tools without an outcome, and what they are given.
    running: BTreeMap<String, Value>,
    /// Whether the next output of its model begins another answer. The protocol does not say so;
    /// calls that run at the same time belong to one answer.
    is_next: bool,
    permissions: Permissions,
}

impl Codex {
    /// Makes it; `instructions` are added to its own.
    pub(crate) fn new(tools: Vec<TeamTool>, instructions: String, model: Option<String>) -> Self {
        Self {
            calls: TeamCalls::new(tools),
            instructions,
            model,
            opening: Value::Null,
            thread: None,
            turn: None,
            waiting: Vec::new(),
            sent: HashMap::new(),
            requests: THREAD,
            running: BTreeMap::new(),
            is_next: true,
            permissions: Permissions::default(),
        }
    }

    /// Answers a request of the agent, or returns the question in it; an empty text if the answer
    /// comes later.
    fn request(&mut self, id: &Value, method: &str, params: &Value) -> (String, Vec<AgentOutput>) {
        let line = match method {
            "item/tool/call" => {
                let call = params["callId"].as_str().unwrap_or_default();
                match self.calls.asked(call, id.clone()) {
                    Some(outcome) => tool_result(id, &outcome),
                    None => String::new(),
                }
            }
            "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
                let tool = if method.contains("fileChange") {
                    PATCH
                } else {
                    COMMAND
                };
                let call = params["itemId"].as_str().unwrap_or_default();
                let input = self.running.get(call).unwrap_or(params).clone();
                let id = id.to_string();
                let tool = tool.to_owned();
                return (
                    String::new(),
                    vec![AgentOutput::Asks(Permission { id, tool, input })],
                );
            }
            _ => line(
                &json!({"id": id, "error": {"code": -32601, "message": "there is no such method"}}),
            ),
        };
        (line, Vec::new())
    }

    /// Reads the answer to a request.
    fn response(&mut self, id: &Value, frame: &Value) -> (String, Vec<AgentOutput>) {
        let error = frame
            .get("error")
            .map(|error| error["message"].as_str().unwrap_or("no reason").to_owned());
        match (id.as_u64(), error) {
            (Some(THREAD), Some(why)) if self.opening["method"] == RESUME => {
                (String::new(), vec![AgentOutput::NotResumed(why)])
            }
            (Some(INITIALIZE | THREAD), Some(why)) => (
                String::new(),
                vec![AgentOutput::Unusable(format!("does not begin: {why}"))],
            ),
            (Some(INITIALIZE), None) => {
                // `teamd/0.169.0 (Debian …)`
                let agent = frame["result"]["userAgent"].as_str().unwrap_or_default();
                let version = agent.split_once('/').map_or("", |(_, version)| version);
                match super::too_old("codex", Protocol::Codex, version) {
                    None => (
                        line(&json!({"method": "initialized"})) + &line(&self.opening),
                        Vec::new(),
                    ),
                    Some(output) => (String::new(), vec![output]),
                }
            }
            (Some(THREAD), None) => {
                self.thread = frame["result"]["thread"]["id"].as_str().map(str::to_owned);
                (self.send_waiting(), vec![AgentOutput::Ready])
            }
            (Some(request), error) => (String::new(), self.sent_to_turn(request, error)),
            (None, _) => (String::new(), Vec::new()),
        }
    }

    /// Applies that the agent has taken a message, or has refused it.
    fn sent_to_turn(&mut self, request: u64, error: Option<String>) -> Vec<AgentOutput> {
        let Some((id, text)) = self.sent.remove(&request) else {
            return Vec::new();
        };
        let Some(why) = error else { return Vec::new() };
        if self.turn.is_some() {
            self.waiting.push((id, text));
            return Vec::new();
        }
        vec![
            AgentOutput::Taken(id),
            AgentOutput::TurnEnded {
                failure: Some(format!("it does not take a message: {why}")),
            },
        ]
    }

    fn send_waiting(&mut self) -> String {
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .iter()
            .map(|(id, text)| self.send_message(*id, text, self.permissions))
            .collect()
    }

    /// Reads a notification.
    fn notification(&mut self, method: &str, params: &Value) -> (String, Vec<AgentOutput>) {
        // What a subagent does is part of a call.
        if params["threadId"]
            .as_str()
            .is_some_and(|thread| Some(thread) != self.thread.as_deref())
        {
            return (String::new(), Vec::new());
        }
        let output = match method {
            "turn/started" => {
                self.turn = params["turn"]["id"].as_str().map(str::to_owned);
                self.is_next = true;
                Vec::new()
            }
            "item/started" => self.started(&params["item"]),
            "item/agentMessage/delta" => params["delta"]
                .as_str()
                .map(|piece| AgentOutput::Piece(piece.to_owned()))
                .into_iter()
                .collect(),
            "item/completed" => self.completed(&params["item"]),
            // A resumed session begins with the cost of its last turn.
            "thread/tokenUsage/updated" if params["turnId"].as_str() == self.turn.as_deref() => {
                let mut output = self.run_on();
                self.is_next = true;
                output.push(AgentOutput::Cost(usage(&params["tokenUsage"]["last"])));
                output
            }
            "error" if params["willRetry"] == true => {
                vec![AgentOutput::Retry(failure(&params["error"]))]
            }
            "turn/completed" => {
                self.turn = None;
                self.calls.turn_ended();
                let mut output = self.run_on();
                output.push(AgentOutput::TurnEnded {
                    failure: how_it_ended(&params["turn"]),
                });
                return (self.send_waiting(), output);
            }
            _ => Vec::new(),
        };
        (String::new(), output)
    }

    /// Reads what begins: a message that the turn takes, or a call.
    fn started(&mut self, item: &Value) -> Vec<AgentOutput> {
        let id = text_of(&item["id"]);
        let (name, input) = match item["type"].as_str() {
            Some("userMessage") => {
                return text_of(&item["clientId"])
                    .parse()
                    .ok()
                    .map(AgentOutput::Taken)
                    .into_iter()
                    .collect();
            }
            Some("dynamicToolCall") => {
                let name = text_of(&item["tool"]);
                let Some(refused) = self.calls.called(&id, &name) else {
                    return Vec::new();
                };
                // It may wait for this one.
                let mut output = self.run_on();
                output.extend(self.begins());
                let input = item["arguments"].clone();
                output.push(AgentOutput::Call {
                    id,
                    name,
                    input,
                    is_of_team: true,
                    refused,
                });
                return output;
            }
            Some("commandExecution") => (COMMAND.to_owned(), json!({"command": item["command"]})),
            Some("fileChange") => (PATCH.to_owned(), json!({"changes": item["changes"]})),
            Some("webSearch") => ("web_search".to_owned(), json!({"query": item["query"]})),
            Some("mcpToolCall") => (
                format!(
                    "mcp__{}__{}",
                    text_of(&item["server"]),
                    text_of(&item["tool"])
                ),
                item["arguments"].clone(),
            ),
            _ => return Vec::new(),
        };
        self.running.insert(id.clone(), input.clone());
        let call = AgentOutput::Call {
            id,
            name,
            input,
            is_of_team: false,
            refused: None,
        };
        self.begins().into_iter().chain([call]).collect()
    }

    /// Reads what is complete: a text, or a call of a tool of its own.
    fn completed(&mut self, item: &Value) -> Vec<AgentOutput> {
        let id = text_of(&item["id"]);
        if item["type"] == "agentMessage" {
            return self
                .begins()
                .into_iter()
                .chain([AgentOutput::Text(text_of(&item["text"]))])
                .collect();
        }
        let is_own = self.running.remove(&id).is_some();
        self.is_next |= (is_own || item["type"] == "dynamicToolCall") && self.running.is_empty();
        if !is_own {
            return Vec::new();
        }
        let is_error = item["status"]
            .as_str()
            .is_some_and(|status| status != "completed");
        let mut content = match item["type"].as_str() {
            Some("commandExecution") => text_of(&item["aggregatedOutput"]),
            Some("mcpToolCall") if is_error => text_of(&item["error"]["message"]),
            Some("mcpToolCall") => item["result"]["content"].to_string(),
            _ => text_of(&item["status"]),
        };
        if is_error && content.is_empty() {
            content = text_of(&item["status"]);
        }
        if let Some(code) = item["exitCode"].as_i64().filter(|code| *code != 0) {
            content.push_str(&format!("\n[exit code {code}]"));
        }
        vec![AgentOutput::Outcome {
            id,
            content,
            is_error,
        }]
    }

    /// Applies output of its model: it may begin another answer.
    fn begins(&mut self) -> Option<AgentOutput> {
        std::mem::take(&mut self.is_next).then_some(AgentOutput::Begins)
    }

    /// Ends the calls without an outcome, since the model continues. A command in the background
    /// may never end.
    fn run_on(&mut self) -> Vec<AgentOutput> {
        std::mem::take(&mut self.running)
            .into_keys()
            .map(|id| AgentOutput::Outcome {
                id,
                content: "[runs on in the background]".to_owned(),
                is_error: false,
            })
            .collect()
    }
}

/// Names the gateway as a provider of models. No file of a project can hold settings for a name
/// that it does not know.
fn provider(session: &AgentSession) -> String {
    format!("team_{}", session.id.simple())
}

impl AgentDriver for Codex {
    fn arguments(
        &self,
        session: &AgentSession,
        variables: &[(&'static str, String)],
    ) -> Vec<String> {
        let mut settings: Vec<_> = OFF.iter().map(|name| format!("{name}=false")).collect();
        if let Some((_, base)) = variables
            .iter()
            .find(|(name, _)| *name == "OPENAI_BASE_URL")
        {
            let provider = provider(session);
            settings.push(format!("model_provider=\"{provider}\""));
            settings.push(format!(
                "model_providers.{provider}={{name=\"team\",base_url=\"{base}\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}}"
            ));
        }
        let settings = settings
            .into_iter()
            .flat_map(|setting| ["-c".to_owned(), setting]);
        ["app-server".to_owned()]
            .into_iter()
            .chain(settings)
            .collect()
    }

    fn history(&self, state: &Path, session: Uuid) -> Option<PathBuf> {
        thread_file::find(state, session)
    }

    fn holds(&self, entry: &Value, message: Uuid) -> bool {
        entry["payload"]["item"]["client_id"] == json!(message)
    }

    fn texts_without_id(&self, history: &str) -> Vec<String> {
        thread_file::texts_without_id(history)
    }

    fn begin(&mut self, session: &AgentSession) -> String {
        let mut params = json!({"sandbox": "danger-full-access", "approvalPolicy": "never", "developerInstructions": self.instructions});
        if let Some(model) = &self.model {
            params["model"] = json!(model);
        }
        let method = match session.history.as_deref().and_then(thread_of) {
            Some(thread) => {
                params["threadId"] = json!(thread);
                params["excludeTurns"] = json!(true);
                RESUME
            }
            None => {
                params["threadSource"] = json!(session.id);
                params["dynamicTools"] = self.calls.tools.iter().map(shown).collect();
                "thread/start"
            }
        };
        self.opening = json!({"id": THREAD, "method": method, "params": params});
        let client = json!({"name": "teamd", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
        line(&json!({"id": INITIALIZE, "method": "initialize", "params": params}))
    }

    fn parse_line(&mut self, raw: &str) -> (String, Vec<AgentOutput>) {
        let Ok(frame) = serde_json::from_str::<Value>(raw) else {
            return (String::new(), vec![AgentOutput::Nonsense(raw.to_owned())]);
        };
        match (frame["method"].as_str(), frame.get("id")) {
            (Some(method), Some(id)) => self.request(id, method, &frame["params"]),
            (Some(method), None) => self.notification(method, &frame["params"]),
            (None, Some(id)) => self.response(id, &frame),
            (None, None) => (String::new(), Vec::new()),
        }
    }

    fn send_message(&mut self, id: Uuid, text: &str, permissions: Permissions) -> String {
        self.permissions = permissions;
        let Some(thread) = &self.thread else {
            self.waiting.push((id, text.to_owned()));
            return String::new();
        };
        let params = json!({
            "threadId": thread,
            "clientUserMessageId": id,
            "input": [{"type": "text", "text": text}],
            "approvalPolicy": if permissions == Permissions::Ask { "untrusted" } else { "never" },
            "sandboxPolicy": {"type": "externalSandbox", "networkAccess": "enabled"},
        });
        self.requests += 1;
        self.sent.insert(self.requests, (id, text.to_owned()));
        line(&json!({"id": self.requests, "method": "turn/start", "params": params}))
    }

    fn send_outcome(&mut self, id: &str, outcome: Outcome) -> String {
        let by = self.calls.answered(id, &outcome);
        by.map_or_else(String::new, |request| tool_result(&request, &outcome))
    }

    fn permit(&mut self, question: &str, refusal: Option<&str>) -> String {
        let id = serde_json::from_str::<Value>(question).unwrap_or_default();
        let decision = if refusal.is_some() {
            "decline"
        } else {
            "accept"
        };
        // The protocol has no field for a reason.
        let reason = refusal.map(|why| {
            self.send_message(Uuid::new_v4(), &format!("{REFUSED}{why}"), self.permissions)
        });
        line(&json!({"id": id, "result": {"decision": decision}})) + &reason.unwrap_or_default()
    }

    fn interrupt(&mut self) -> String {
        let Some(thread) = &self.thread else {
            return String::new();
        };
        let Some(turn) = &self.turn else {
            return String::new();
        };
        self.requests += 1;
        let params = json!({"threadId": thread, "turnId": turn});
        line(&json!({"id": self.requests, "method": "turn/interrupt", "params": params}))
    }
}

#[cfg(test)]
mod tests;
