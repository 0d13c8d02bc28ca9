//! The published rules for requests of OpenAI's chat completions.

use std::collections::HashSet;

use serde_json::Value;

use super::Request;
use super::rules::{ensure, is_word, only};

type Checked = Result<(), String>;

const FIELDS: [&str; 7] = [
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "messages",
];

pub(super) fn check(request: &Request) -> Checked {
    let body = &request.body;
    only(body, &FIELDS, "body")?;
    ensure(
        body["model"]
            .as_str()
            .is_some_and(|model| !model.is_empty()),
        || "no model".to_owned(),
    )?;
    ensure(
        body.get("stream_options").is_none() || body["stream"] == true,
        || "The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned(),
    )?;
    if let Some(tools) = body.get("tools") {
        tools_fit(tools)?;
    }
    let messages = body["messages"]
        .as_array()
        .filter(|messages| !messages.is_empty());
    let messages = messages.ok_or("'messages' is empty")?;
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let at = format!("messages.[{place}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" {
            ensure(open.is_empty(), || {
                format!(
                    "{at}: An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id': {open:?}"
                )
            })?;
        }
        match role {
            "system" => {
                ensure(place == 0, || {
                    format!("{at}: the system's message comes first")
                })?;
                only(message, &["role", "content"], &at)?;
                ensure(message["content"].is_string(), || {
                    format!("{at}: no content")
                })?;
            }
            "user" => {
                only(message, &["role", "content"], &at)?;
                let text = message["content"].as_str().unwrap_or_default();
                let is_list = is_list(&message["content"]);
                ensure(is_list || !text.trim().is_empty(), || {
                    format!("{at}: no content")
                })?;
            }
            "assistant" => open = assistant(message, &at, &mut ids)?,
            "tool" => {
                only(message, &["role", "content", "tool_call_id"], &at)?;
                ensure(message["content"].is_string(), || {
                    format!("{at}: content should be a string")
                })?;
                let found = open
                    .iter()
                    .position(|id| message["tool_call_id"] == id.as_str());
                let found = found.ok_or_else(|| {
                    format!("{at}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
                })?;
                open.remove(found);
            }
            other => return Err(format!("{at}: no such role: {other:?}")),
        }
    }
    ensure(open.is_empty(), || {
        format!("calls without a result: {open:?}")
    })?;
    ensure(
        messages
            .last()
            .is_some_and(|last| last["role"] != "assistant"),
        || "nothing is asked".to_owned(),
    )
}

fn tools_fit(tools: &Value) -> Checked {
    let tools = tools
        .as_array()
        .filter(|tools| !tools.is_empty())
        .ok_or("'tools' is too short")?;
    let mut names = HashSet::new();
    for tool in tools {
        only(tool, &["type", "function"], "tools")?;
        only(
            &tool["function"],
            &["name", "description", "parameters"],
            "tools.function",
        )?;
        let name = tool["function"]["name"].as_str().unwrap_or_default();
        ensure(tool["type"] == "function" && is_word(name, 64), || {
            format!("tools: bad name {name:?}")
        })?;
        ensure(names.insert(name.to_owned()), || {
            format!("tools: {name} twice")
        })?;
        ensure(tool["function"]["parameters"]["type"] == "object", || {
            format!("{name}: schema must be an object")
        })?;
    }
    Ok(())
}

/// Returns the calls that wait for results.
fn assistant(message: &Value, at: &str, ids: &mut HashSet<String>) -> Result<Vec<String>, String> {
    only(message, &["role", "content", "tool_calls"], at)?;
    let mut open = Vec::new();
    if let Some(calls) = message.get("tool_calls") {
        let calls = calls.as_array().filter(|calls| !calls.is_empty());
        for call in calls.ok_or_else(|| format!("{at}.tool_calls: too short"))? {
            only(call, &["id", "type", "function"], at)?;
            only(&call["function"], &["name", "arguments"], at)?;
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            let name = call["function"]["name"].as_str().unwrap_or_default();
            ensure(call["type"] == "function" && is_word(name, 64), || {
                format!("{at}: bad name {name:?}")
            })?;
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            // The service takes any string; the templates of local models take an object.
            let parsed = serde_json::from_str::<Value>(arguments);
            ensure(parsed.is_ok_and(|value| value.is_object()), || {
                format!("{at}: bad arguments: {arguments}")
            })?;
            ensure(!id.is_empty() && ids.insert(id.clone()), || {
                format!("{at}: id {id:?} is missing or repeated")
            })?;
            open.push(id);
        }
    }
    let content = &message["content"];
    ensure(
        content.is_string() || content.is_null() && !open.is_empty(),
        || format!("{at}: no content"),
    )?;
    Ok(open)
}

/// Whether the content of a message of the user is a list of texts and images.
fn is_list(content: &Value) -> bool {
    let parts = content.as_array();
    parts.is_some_and(|parts| {
        !parts.is_empty()
            && parts.iter().all(|part| match part["type"].as_str() {
                Some("text") => part["text"].is_string(),
                Some("image_url") => part["image_url"]["url"]
                    .as_str()
                    .is_some_and(|url| url.starts_with("data:image/")),
                _ => false,
            })
    })
}
