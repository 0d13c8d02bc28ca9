//! Claude Code: `claude -p` with stream-json in both directions, one process for many turns. Its
//! team tools come and go through the same pipe, as control messages that carry MCP. Written from
//! the frames of version 2.1.330.

mod frames;

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use teamd_shared::environment::CLAUDE_TOKEN;
use teamd_shared::member::{Permissions, Protocol};
use teamd_shared::terms::Login;
use teamd_shared::transcript::Usage;
use uuid::Uuid;

use super::team_calls::TeamCalls;
use super::{
    AgentDriver, AgentOutput, AgentSession, TeamTool, mcp, open_kept, text_of, too_old,
    why_it_failed,
};
use frames::{line, mcp_result, outcomes, refused, success, usage_of};
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::Outcome;

/// What the agent puts before the names of team tools.
const PREFIX: &str = "mcp__team__";

/// Its model sees the team tools from the beginning, without a search. A command in the background
/// would begin a turn of its own when it ends, outside of any work. What a person could say next is
/// not asked for: that costs a model call for each turn.
pub(super) const SETTINGS: [(&str, &str); 3] = [
    ("ENABLE_TOOL_SEARCH", "false"),
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION", "false"),
];

/// The files of a project's settings, and the variables of theirs that cannot be outranked.
const PROJECT: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];
const REFUSED: [&str; 1] = ["ANTHROPIC_API_KEY"];
/// The same for an agent with a token, which does not stand on its command line.
const REFUSED_WITH_TOKEN: [&str; 2] = ["ANTHROPIC_API_KEY", CLAUDE_TOKEN];

/// How much of such a file is read, in bytes.
const MAX_SETTINGS: u64 = 1 << 20;

/// Its tools for teams, tasks, worktrees and subagents of its own: two protocols confuse a model.
/// And those that ask a person.
const DISALLOWED: &str = "Task,Agent,SendMessage,ListAgents,EnterWorktree,ExitWorktree,EnterPlanMode,ExitPlanMode,AskUserQuestion,CronCreate,CronDelete,CronList,ScheduleWakeup,Workflow,Monitor,TaskStop";

/// The variables by which it finds its model, beside its key. The settings of a project may set any
/// variable, and go before those that it is started with: a program in the workspace could answer
/// in the place of the model, and call tools as it likes.
const OF_THE_WAY: [&str; 19] = [
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    CLAUDE_TOKEN,
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_UNIX_SOCKET",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// What was counted of a turn.
#[derive(Debug, Default)]
struct Counted {
    /// The answer of the model that was counted last, and what it has cost so far.
    answer: String,
    of_answer: Usage,
    of_turn: Usage,
}

impl Counted {
    /// Counts what an answer has cost so far; without an id, the last one.
    fn count(&mut self, id: Option<&str>, usage: &Value) -> Vec<AgentOutput> {
        let mut output = Vec::new();
        if let Some(id) = id.filter(|id| *id != self.answer) {
            self.answer = id.to_owned();
            self.of_answer = Usage::default();
            output.push(AgentOutput::Begins);
        }
        let more = usage_of(usage).beyond(&self.of_answer);
        if !more.is_nothing() {
            self.of_answer += more;
            self.of_turn += more;
            output.push(AgentOutput::Cost(more));
        }
        output
    }
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Claude {
    /// The outcome of a call goes to the control request of the first id, and to the message in it
    /// of the second one.
    calls: TeamCalls<(Value, Value)>,
    instructions: String,
    model: Option<String>,
    login: Login,
    /// What tools are given that it has asked about.
    questions: HashMap<String, Value>,
    counted: Counted,
    /// Whether it is to resume a session, and no output has shown yet that it does.
    resumes: bool,
}

impl Claude {
    /// Makes it; `instructions` are added to its own.
    pub(crate) fn new(tools: Vec<TeamTool>, instructions: String, model: Option<String>) -> Self {
        Self {
            calls: TeamCalls::new(tools),
            instructions,
            model,
            login: Login::Key,
            questions: HashMap::new(),
            counted: Counted::default(),
            resumes: false,
        }
    }

    /// Sets how it logs in.
    pub(crate) fn with_login(self, login: Login) -> Self {
        Self { login, ..self }
    }

    /// Answers a control request of the agent, or returns the question in it.
    fn control(&mut self, frame: &Value) -> (String, Vec<AgentOutput>) {
        let id = &frame["request_id"];
        let request = &frame["request"];
        let line = match request["subtype"].as_str() {
            Some("can_use_tool") => {
                let tool = request["tool_name"].as_str().unwrap_or_default();
                let input = &request["input"];
                let is_of_team = tool
                    .strip_prefix(PREFIX)
                    .is_some_and(|name| self.calls.has(name));
                if !is_of_team {
                    let id = id.to_string();
                    let tool = tool.to_owned();
                    let input = input.clone();
                    self.questions.insert(id.clone(), input.clone());
                    return (
                        String::new(),
                        vec![AgentOutput::Asks(Permission { id, tool, input })],
                    );
                }
                success(id, &json!({"behavior": "allow", "updatedInput": input}))
            }
            Some("mcp_message") => self.mcp(id, &request["message"]),
            _ => refused(id, "not supported"),
        };
        (line, Vec::new())
    }

    /// Answers a message of MCP; an empty text if that comes later.
    fn mcp(&mut self, request: &Value, message: &Value) -> String {
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => mcp_result(request, id, &mcp::welcome(&message["params"])),
            Some("tools/list") => mcp_result(request, id, &mcp::list(&self.calls.tools)),
            Some("tools/call") => self.called(request, message),
            _ if message.get("id").is_none() => success(
                request,
                &json!({"mcp_response": {"jsonrpc": "2.0", "result": {}, "id": 0}}),
            ),
            _ => {
                let error = json!({"code": -32601, "message": "there is no such method"});
                success(
                    request,
                    &json!({"mcp_response": {"jsonrpc": "2.0", "id": message["id"], "error": error}}),
                )
            }
        }
    }

    fn called(&mut self, request: &Value, message: &Value) -> String {
        let call = message["params"]["_meta"]["claudecode/toolUseId"]
            .as_str()
            .unwrap_or_default();
        let by = (request.clone(), message["id"].clone());
        let Some(known) = self.calls.asked(call, by) else {
            return String::new();
        };
        mcp_result(request, &message["id"], &mcp::result(known))
    }

    /// Reads an event of the model's service.
    fn streamed(&mut self, event: &Value) -> Vec<AgentOutput> {
        match event["type"].as_str() {
            Some("message_start") => self
                .counted
                .count(event["message"]["id"].as_str(), &event["message"]["usage"]),
            // What it writes is known at its end.
            Some("message_delta") => self.counted.count(None, &event["usage"]),
            _ => {
                let piece = event["delta"]["text"].as_str();
                piece
                    .map(|piece| AgentOutput::Piece(piece.to_owned()))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Reads a message of the model: text and calls, and what it cost.
    fn assistant(&mut self, message: &Value) -> Vec<AgentOutput> {
        let mut output = self
            .counted
            .count(message["id"].as_str(), &message["usage"]);
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") => output.push(AgentOutput::Text(text_of(&block["text"]))),
                Some("tool_use") => output.push(self.tool_use(block)),
                _ => {}
            }
        }
        output
    }

    /// Reads a call of a team tool, whose name has a prefix, or of a tool of its own.
    fn tool_use(&mut self, block: &Value) -> AgentOutput {
        let id = text_of(&block["id"]);
        let mut name = text_of(&block["name"]);
        let mut is_of_team = false;
        let mut refused = None;
        if let Some(team_tool) = name.strip_prefix(PREFIX)
            && let Some(refusal) = self.calls.called(&id, team_tool)
        {
            refused = refusal;
            is_of_team = true;
            name = team_tool.to_owned();
        }
        AgentOutput::Call {
            id,
            name,
            input: block["input"].clone(),
            is_of_team,
            refused,
        }
    }

    /// Reads how a turn ended.
    fn result(&mut self, frame: &Value) -> Vec<AgentOutput> {
        if self.resumes {
            let errors = frame["errors"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            return vec![AgentOutput::NotResumed(
                errors.collect::<Vec<_>>().join("; "),
            )];
        }
        self.calls.turn_ended();
        let counted = std::mem::take(&mut self.counted).of_turn;
        let rest = usage_of(&frame["usage"]).beyond(&counted);
        let failure = (frame["is_error"] == true).then(|| {
            let message = frame["result"]
                .as_str()
                .or(frame["subtype"].as_str())
                .unwrap_or("its turn failed");
            why_it_failed(frame["api_error_status"].as_u64(), message)
        });
        vec![AgentOutput::Cost(rest), AgentOutput::TurnEnded { failure }]
    }
}

/// Returns settings that go before those of the project: the way to its model as it was found, and
/// no other. A key does not belong on a command line: the token of an agent that has one counts as
/// it stands in the environment.
fn way(login: Login, variables: &[(&'static str, String)]) -> Value {
    let mut settings = serde_json::Map::new();
    for name in OF_THE_WAY {
        if login.is_token() && name == CLAUDE_TOKEN {
            continue;
        }
        let value = variables
            .iter()
            .find(|(variable, _)| *variable == name)
            .map(|(_, value)| value.as_str());
        settings.insert(name.to_owned(), json!(value.unwrap_or_default()));
    }
    json!({"env": settings, "apiKeyHelper": ""})
}

impl AgentDriver for Claude {
    fn arguments(
        &self,
        session: &AgentSession,
        variables: &[(&'static str, String)],
    ) -> Vec<String> {
        let way = way(self.login, variables).to_string();
        let servers = json!({"mcpServers": {"team": {"type": "sdk", "name": "team"}}}).to_string();
        let how = if session.history.is_some() {
            "--resume"
        } else {
            "--session-id"
        };
        let session = session.id.to_string();
        let mut all = vec![
            "-p",
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-partial-messages",
            how,
            &session,
            "--permission-prompt-tool",
            "stdio",
            "--permission-mode",
            "default",
            "--strict-mcp-config",
            "--mcp-config",
            &servers,
            "--disallowedTools",
            DISALLOWED,
            "--setting-sources",
            "project",
            "--settings",
            &way,
            "--append-system-prompt",
            &self.instructions,
        ];
        all.extend(
            self.model
                .iter()
                .flat_map(|model| ["--model", model.as_str()]),
        );
        all.into_iter().map(str::to_owned).collect()
    }

    fn settings(&self) -> &'static [(&'static str, &'static str)] {
        &SETTINGS
    }

    fn refuses(&self, workspace: &Path) -> Option<String> {
        PROJECT.iter().find_map(|file| {
            let mut text = String::new();
            // One that cannot be read, the agent cannot read either.
            open_kept(&workspace.join(file))
                .ok()?
                .take(MAX_SETTINGS)
                .read_to_string(&mut text)
                .ok()?;
            let (refused, why) = if self.login.is_token() {
                (
                    &REFUSED_WITH_TOKEN[..],
                    "this agent works with the token of the user alone",
                )
            } else {
                (&REFUSED[..], "the gateway takes its own key alone")
            };
            let variable = sets_refused(&text, refused)?;
            Some(format!(
                "{file} of the project sets `env.{variable}`, and {why}: take it out there"
            ))
        })
    }

    fn history(&self, state: &Path, session: Uuid) -> Option<PathBuf> {
        let projects = std::fs::read_dir(state.join("claude/projects")).ok()?;
        let files = projects
            .filter_map(|project| Some(project.ok()?.path().join(format!("{session}.jsonl"))));
        files.into_iter().find(|file| {
            file.symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file())
        })
    }

    fn holds(&self, entry: &Value, message: Uuid) -> bool {
        entry["uuid"] == json!(message) || entry["attachment"]["source_uuid"] == json!(message)
    }

    fn begin(&mut self, session: &AgentSession) -> String {
        self.resumes = session.history.is_some();
        line(
            &json!({"type": "control_request", "request_id": "begin", "request": {"subtype": "initialize", "hooks": {}}}),
        )
    }

    fn parse_line(&mut self, raw: &str) -> (String, Vec<AgentOutput>) {
        let Ok(frame) = serde_json::from_str::<Value>(raw) else {
            return (String::new(), vec![AgentOutput::Nonsense(raw.to_owned())]);
        };
        // What a subagent does is part of a call.
        if frame["parent_tool_use_id"].is_string() {
            return (String::new(), Vec::new());
        }
        let kind = frame["type"].as_str();
        // It ends at once if it cannot, and outputs nothing else before.
        self.resumes &= matches!(kind, Some("result" | "control_request"));
        let output = match (kind, frame["subtype"].as_str()) {
            (Some("control_request"), _) => return self.control(&frame),
            (Some("control_response"), _) if frame["response"]["request_id"] == "begin" => {
                let version = frame["response"]["response"]["claude_code_version"].as_str();
                vec![
                    too_old("claude", Protocol::Claude, version.unwrap_or_default())
                        .unwrap_or(AgentOutput::Ready),
                ]
            }
            (Some("command_lifecycle"), _) if frame["state"] == "started" => frame["command_uuid"]
                .as_str()
                .and_then(|id| id.parse().ok())
                .map(AgentOutput::Taken)
                .into_iter()
                .collect(),
            (Some("stream_event"), _) => self.streamed(&frame["event"]),
            (Some("assistant"), _) => self.assistant(&frame["message"]),
            (Some("user"), _) => outcomes(&frame["message"]["content"]),
            (Some("result"), _) => self.result(&frame),
            (Some("system"), Some("api_retry")) => {
                let status = frame["error_status"]
                    .as_u64()
                    .map_or(String::new(), |status| format!(" (status {status})"));
                vec![AgentOutput::Retry(format!(
                    "attempt {}{status}: {}",
                    frame["attempt"],
                    text_of(&frame["error"])
                ))]
            }
            _ => Vec::new(),
        };
        (String::new(), output)
    }

    fn send_message(&mut self, id: Uuid, text: &str, _: Permissions) -> String {
        let message = json!({"role": "user", "content": [{"type": "text", "text": text}]});
        line(&json!({"type": "user", "message": message, "uuid": id.to_string()}))
    }

    fn send_outcome(&mut self, id: &str, outcome: Outcome) -> String {
        let Some((request, message)) = self.calls.answered(id, &outcome) else {
            return String::new();
        };
        mcp_result(&request, &message, &mcp::result(outcome))
    }

    fn permit(&mut self, question: &str, refusal: Option<&str>) -> String {
        let Some(input) = self.questions.remove(question) else {
            return String::new();
        };
        let Ok(id) = serde_json::from_str(question) else {
            return String::new();
        };
        let answer = refusal.map_or_else(
            || json!({"behavior": "allow", "updatedInput": input}),
            |why| json!({"behavior": "deny", "message": why}),
        );
        success(&id, &answer)
    }

    fn interrupt(&mut self) -> String {
        self.questions.clear();
        line(
            &json!({"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}}),
        )
    }
}

/// Returns a variable that settings set, and may not.
fn sets_refused(settings: &str, refused: &[&'static str]) -> Option<&'static str> {
    let settings: Value = serde_json::from_str(settings).ok()?;
    let mut refused = refused.iter().copied();
    refused.find(|name| settings["env"].get(name).is_some())
}

#[cfg(test)]
mod tests;
