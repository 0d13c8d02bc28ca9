//! An agent that is started by hand, without a team: what a teammate is measured against.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::agents::Subject;
use crate::support::PATIENCE;

/// The id of each prompt by ACP.
const PROMPT: u32 = 4;

/// The agent.
pub(crate) struct Hand {
    child: Child,
    stdin: Arc<Mutex<ChildStdin>>,
    /// What it has said, but for its questions, which are answered at once.
    said: Receiver<Value>,
    /// Its conversation, where it has a name.
    thread: Option<Thread>,
}

/// The name of a conversation, by the protocol.
enum Thread {
    Codex(Value),
    Acp(Value),
}

impl Hand {
    /// Starts it, and returns when it takes messages.
    pub(crate) fn start(subject: &Subject) -> Self {
        let state = subject.team.temp().join(Uuid::new_v4().to_string());
        std::fs::create_dir_all(&state).unwrap();
        let mut command = subject
            .team
            .command(&subject.command[0], &subject.command[1..]);
        command
            .current_dir(subject.team.root())
            .env("CLAUDE_CONFIG_DIR", &state)
            .env("CODEX_HOME", &state);
        match subject.agent {
            "codex" => Self::codex(&mut command),
            "opencode" => {
                // By hand there are no team tools.
                std::fs::File::create(state.join("abilities"))
                    .and_then(|mut file| file.write_all(b"resume load toolless"))
                    .unwrap();
                command.env("TEAM_AGENT_STATE", &state).current_dir(&state);
                Self::acp(&mut command, &state)
            }
            _ => Self::claude(&mut command),
        }
    }

    fn claude(command: &mut Command) -> Self {
        let servers = r#"{"mcpServers":{"team":{"type":"sdk","name":"team"}}}"#;
        command.args([
            "-p",
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--verbose",
        ]);
        command.args(["--session-id", &Uuid::new_v4().to_string()]);
        command.args([
            "--permission-prompt-tool",
            "stdio",
            "--permission-mode",
            "default",
        ]);
        command.args([
            "--strict-mcp-config",
            "--mcp-config",
            servers,
            "--setting-sources",
            "project",
        ]);
        let hand = Self::of(command);
        hand.write(&json!({"type": "control_request", "request_id": "begin", "request": {"subtype": "initialize", "hooks": {}}}));
        hand.until(|frame| frame["response"]["request_id"] == "begin");
        hand
    }

    fn codex(command: &mut Command) -> Self {
        let base = command
            .get_envs()
            .find(|(name, _)| *name == "OPENAI_BASE_URL")
            .and_then(|(_, value)| value);
        let base = base.unwrap().to_str().unwrap();
        let provider = format!(
            "model_providers.team={{name=\"team\",base_url=\"{base}\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}}"
        );
        command.args([
            "app-server",
            "-c",
            "model_provider=\"team\"",
            "-c",
            &provider,
        ]);
        for setting in [
            "agents.enabled",
            "features.goals",
            "features.apps",
            "features.plugins",
            "check_for_update_on_startup",
        ] {
            command.args(["-c", &format!("{setting}=false")]);
        }
        let mut hand = Self::of(command);
        let client = json!({"name": "bench", "version": "1"});
        hand.write(&json!({"id": 1, "method": "initialize", "params": {"clientInfo": client, "capabilities": {"experimentalApi": true}}}));
        hand.until(|frame| frame["id"] == 1);
        hand.write(&json!({"method": "initialized"}));
        let params =
            json!({"sandbox": "danger-full-access", "approvalPolicy": "never", "model": "fake"});
        hand.write(&json!({"id": 2, "method": "thread/start", "params": params}));
        let begun = hand.until(|frame| frame["id"] == 2);
        hand.thread = Some(Thread::Codex(begun["result"]["thread"]["id"].clone()));
        hand
    }

    fn acp(command: &mut Command, directory: &Path) -> Self {
        let mut hand = Self::of(command);
        let call = |id: u32, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let able = json!({"protocolVersion": 1, "clientCapabilities": {}});
        hand.write(&call(1, "initialize", able));
        hand.until(|frame| frame["id"] == 1);
        let server =
            json!({"type": "http", "name": "team", "url": "http://127.0.0.1:9", "headers": []});
        let params = json!({"cwd": directory, "mcpServers": [server]});
        hand.write(&call(2, "session/new", params));
        let session = hand.until(|frame| frame["id"] == 2)["result"]["sessionId"].clone();
        let mode = json!({"sessionId": session, "modeId": "default"});
        hand.write(&call(3, "session/set_mode", mode));
        hand.until(|frame| frame["id"] == 3);
        hand.thread = Some(Thread::Acp(session));
        hand
    }

    fn of(command: &mut Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = Arc::new(Mutex::new(child.stdin.take().unwrap()));
        let stdout = child.stdout.take().unwrap();
        let (says, said) = channel();
        let answers = Arc::clone(&stdin);
        // It waits for an answer to a question also while nothing is wanted of it.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let frame: Value = serde_json::from_str(&line).unwrap();
                if frame["type"] == "control_request" {
                    let response = json!({"subtype": "success", "request_id": frame["request_id"], "response": answer(&frame["request"])});
                    write(
                        &answers,
                        &json!({"type": "control_response", "response": response}),
                    );
                } else if says.send(frame).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            said,
            thread: None,
        }
    }

    /// Tells it a message.
    pub(crate) fn say(&self, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        self.write(&match &self.thread {
            Some(Thread::Acp(session)) => {
                let params = json!({"sessionId": session, "prompt": content});
                json!({"jsonrpc": "2.0", "id": PROMPT, "method": "session/prompt", "params": params})
            }
            Some(Thread::Codex(thread)) => {
                let sandbox = json!({"type": "externalSandbox", "networkAccess": "enabled"});
                let params = json!({"threadId": thread, "input": content, "approvalPolicy": "never", "sandboxPolicy": sandbox});
                json!({"id": 3, "method": "turn/start", "params": params})
            }
            None => {
                let message = json!({"role": "user", "content": content});
                json!({"type": "user", "message": message, "uuid": Uuid::new_v4()})
            }
        });
    }

    /// Waits for the end of its turn.
    pub(crate) fn until_the_end_of_the_turn(&self) {
        self.until(|frame| {
            let by_acp = frame["id"] == PROMPT && frame["result"]["stopReason"].is_string();
            by_acp || frame["type"] == "result" || frame["method"] == "turn/completed"
        });
    }

    fn write(&self, frame: &Value) {
        write(&self.stdin, frame);
    }

    /// Waits until it says this.
    fn until(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.said.recv_timeout(PATIENCE).unwrap();
            if is_it(&frame) {
                return frame;
            }
        }
    }
}

fn write(stdin: &Mutex<ChildStdin>, frame: &Value) {
    // One that has ended says no more, which is seen.
    drop(
        stdin
            .lock()
            .unwrap()
            .write_all(format!("{frame}\n").as_bytes()),
    );
}

/// Answers a question of Claude Code, as a team without tools does.
fn answer(request: &Value) -> Value {
    let message = &request["message"];
    let result = match message["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "team", "version": "1"}}),
        Some("tools/list") => json!({"tools": []}),
        Some(_) => json!({}),
        None => return json!({"behavior": "allow", "updatedInput": request["input"]}),
    };
    json!({"mcp_response": {"jsonrpc": "2.0", "id": message["id"].as_u64().unwrap_or_default(), "result": result}})
}

impl Drop for Hand {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
