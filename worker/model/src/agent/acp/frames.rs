//! Parts of the lines of ACP, without a state.

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, Error, PermissionOption, PermissionOptionId, PermissionOptionKind,
    Plan, PromptResponse, SessionModeId, SessionModeState, StopReason, ToolCall, ToolCallContent,
    ToolKind, Usage as ReportedUsage,
};
use serde::Serialize;
use serde_json::{Value, json};
use teamd_shared::transcript::Usage;

use super::super::{number_of, why_it_failed};

/// The modes in which an agent works and asks, in the order of preference. The sandbox of the agent
/// itself does not work inside ours, so one without it is preferred to one with it.
const MODES: [&str; 4] = ["default", "agent-full-access", "build", "code"];

/// Parts of the names of modes that are no default: they skip questions, or do not work.
const NO_DEFAULT: [&str; 7] = ["auto", "yolo", "bypass", "accept", "plan", "ask", "read"];

/// Words that agents put around the name of a team tool.
const AROUND: [&str; 4] = ["mcp", "team", "tool", "server"];

pub(super) fn request(id: u64, method: &str, params: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

pub(super) fn notification(method: &str, params: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

pub(super) fn response(id: &Value, result: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

pub(super) fn not_served(id: &Value) -> String {
    let error = json!({"code": -32601, "message": "there is no such method"});
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn line(frame: &Value) -> String {
    format!("{frame}\n")
}

/// Returns the mode to set; none: that is set, or there are none to choose from.
pub(super) fn mode_to_set(modes: &SessionModeState) -> Option<SessionModeId> {
    let ids = || modes.available_modes.iter().map(|mode| &mode.id);
    let preferred = MODES
        .iter()
        .find_map(|name| ids().find(|id| *id.0 == **name));
    let is_no_default = |id: &SessionModeId| {
        let id = id.0.to_ascii_lowercase();
        NO_DEFAULT.iter().any(|part| id.contains(part))
    };
    let chosen = match preferred {
        Some(id) => id,
        None if is_no_default(&modes.current_mode_id) => ids().find(|id| !is_no_default(id))?,
        None => return None,
    };
    (*chosen != modes.current_mode_id).then(|| chosen.clone())
}

/// Chooses an option by its kind, since any may come first; none: there is no such option.
pub(super) fn option_for(allows: bool, options: &[PermissionOption]) -> Option<PermissionOptionId> {
    let kinds = if allows {
        [
            PermissionOptionKind::AllowOnce,
            PermissionOptionKind::AllowAlways,
        ]
    } else {
        [
            PermissionOptionKind::RejectOnce,
            PermissionOptionKind::RejectAlways,
        ]
    };
    let of_kind = |kind| options.iter().find(|option| option.kind == kind);
    let option = kinds.into_iter().find_map(of_kind)?;
    Some(option.option_id.clone())
}

/// Returns whether a call is what the agent shows of a call of this team tool:
/// `mcp__team__send_message`, `send_message (team MCP Server)`, `team_send_message`.
pub(super) fn shows(call: &ToolCall, tool: &str) -> bool {
    if call.kind != ToolKind::Other {
        return false;
    }
    let titles = [Some(call.title.as_str()), call.name.as_deref()];
    titles.into_iter().flatten().any(|title| {
        let title = title.to_ascii_lowercase();
        let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words = words.filter(|word| !word.is_empty() && !AROUND.contains(word));
        words.eq(tool.split('_'))
    })
}

/// Names the tool of a call.
pub(super) fn name_of(call: &ToolCall) -> String {
    if let Some(name) = &call.name {
        return name.clone();
    }
    let kind = json!(call.kind);
    match kind.as_str() {
        Some("other") | None => call.title.clone(),
        Some(kind) => kind.to_owned(),
    }
}

/// Returns what a call is given.
pub(super) fn input_of(call: &ToolCall) -> Value {
    match &call.raw_input {
        Some(Value::Object(input)) if !input.is_empty() => Value::Object(input.clone()),
        Some(input) if !input.is_object() && !input.is_null() => json!({ "input": input }),
        _ => json!({"title": call.title}),
    }
}

/// Returns whether a call is shown to be given this. Some agents show it as the title.
pub(super) fn is_given(call: &ToolCall, input: &Value) -> bool {
    let title = serde_json::from_str::<Value>(&call.title).ok();
    [call.raw_input.as_ref(), title.as_ref()].contains(&Some(input))
}

/// Returns the outcome of a call as text.
pub(super) fn outcome_of(call: &ToolCall) -> String {
    let texts = call.content.iter().filter_map(|content| match content {
        ToolCallContent::Content(content) => text_of(&content.content),
        ToolCallContent::Diff(diff) => Some(format!("changed {}", diff.path.display())),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    if !text.is_empty() {
        return text;
    }
    match &call.raw_output {
        Some(Value::String(output)) => output.clone(),
        Some(Value::Object(output)) if output.get("output").is_some_and(Value::is_string) => {
            super::super::text_of(&output["output"])
        }
        Some(Value::Null) | None => String::new(),
        Some(output) => output.to_string(),
    }
}

/// Returns the text of a piece; none if it is no text.
pub(super) fn piece_of(chunk: ContentChunk) -> Option<String> {
    text_of(&chunk.content)
}

fn text_of(content: &ContentBlock) -> Option<String> {
    match content {
        ContentBlock::Text(text) => Some(text.text.clone()),
        _ => None,
    }
}

/// Returns a plan as the input of a call.
pub(super) fn plan_input(plan: &Plan) -> Value {
    let entries = plan.entries.iter();
    let entries = entries.map(|entry| json!({"content": entry.content, "status": entry.status}));
    json!({"entries": entries.collect::<Vec<_>>()})
}

/// Returns what a turn has cost, if its answer tells that. Gemini CLI has a field of its own.
pub(super) fn cost_of(answer: &PromptResponse) -> Option<Usage> {
    if let Some(usage) = &answer.usage {
        return Some(usage_of(usage));
    }
    let tokens = &answer.meta.as_ref()?.get("quota")?["token_count"];
    Some(Usage {
        input_tokens: number_of(&tokens["input_tokens"]),
        output_tokens: number_of(&tokens["output_tokens"]),
        ..Usage::default()
    })
}

fn usage_of(usage: &ReportedUsage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_input_tokens: usage.cached_read_tokens.unwrap_or_default(),
        cache_creation_input_tokens: usage.cached_write_tokens.unwrap_or_default(),
    }
}

/// Returns why a turn has failed that stopped for a reason; none if it has not.
pub(super) fn why_it_stopped(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::EndTurn => None,
        StopReason::MaxTokens => Some("the answer of its model was cut at its longest"),
        StopReason::MaxTurnRequests => Some("its turn had too many model calls"),
        StopReason::Refusal => Some("its model refuses to answer"),
        StopReason::Cancelled => Some("its turn was cancelled"),
        _ => Some("its turn is over, for an unknown reason"),
    }
}

/// Returns an error as text. Some agents give the status of their model's service as its code.
pub(super) fn error_text(error: &Error) -> String {
    let code = i32::from(error.code);
    let status = u64::try_from(code).ok();
    let status = status.filter(|status| (400..600).contains(status));
    why_it_failed(status, &error_words(error))
}

fn error_words(error: &Error) -> String {
    let data = error.data.as_ref();
    let details = data.and_then(|data| match data {
        Value::String(text) => Some(text.clone()),
        data => ["details", "message", "errorKind"]
            .into_iter()
            .find_map(|name| data[name].as_str().map(str::to_owned)),
    });
    match details {
        Some(details) if details != error.message => format!("{}: {details}", error.message),
        _ => error.message.clone(),
    }
}
