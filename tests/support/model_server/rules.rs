//! The published rules for requests of Anthropic's Messages API.

use std::collections::HashSet;

use serde_json::Value;

use super::Request;

type Checked = Result<(), String>;

/// Fails with these words unless the condition holds.
pub(super) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(why()) }
}

/// Whether a text is 1 to `most` letters, digits, `_` and `-`.
pub(super) fn is_word(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

/// Fails unless all fields of an object are known.
pub(super) fn only(object: &Value, known: &[&str], at: &str) -> Checked {
    let fields = object
        .as_object()
        .ok_or_else(|| format!("{at}: Input should be an object"))?;
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(extra) => Err(format!("{at}.{extra}: Extra inputs are not permitted")),
        None => Ok(()),
    }
}

/// `paused`: the answers that were paused.
pub(super) fn check(request: &Request, paused: &[Value]) -> Checked {
    let body = &request.body;
    ensure(request.header("anthropic-version") == "2023-06-01", || {
        "anthropic-version: header is required".to_owned()
    })?;
    ensure(
        request
            .header("content-type")
            .starts_with("application/json"),
        || "content-type: not JSON".to_owned(),
    )?;
    only(
        body,
        &[
            "model",
            "max_tokens",
            "stream",
            "tools",
            "system",
            "messages",
        ],
        "body",
    )?;
    ensure(
        body["model"]
            .as_str()
            .is_some_and(|model| !model.is_empty()),
        || "model: Field required".to_owned(),
    )?;
    ensure(
        body["max_tokens"].as_u64().is_some_and(|most| most > 0),
        || "max_tokens: Field required".to_owned(),
    )?;
    let marks = body
        .to_string()
        .matches("\"cache_control\":{\"type\":\"ephemeral\"}")
        .count();
    ensure(marks <= 4, || {
        format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    })?;
    tools(&body["tools"])?;
    system(&body["system"])?;
    let messages = body["messages"]
        .as_array()
        .filter(|messages| !messages.is_empty());
    let messages = messages.ok_or("messages: at least one message is required")?;
    let goes_on = goes_on(messages, paused);
    let mut ids = HashSet::new();
    for (place, message) in messages.iter().enumerate() {
        let role = if place % 2 == 0 { "user" } else { "assistant" };
        only(message, &["role", "content"], &format!("messages.{place}"))?;
        ensure(message["role"] == role, || {
            format!("messages.{place}: roles must alternate, first user")
        })?;
        let before = if place == 0 {
            &Value::Null
        } else {
            &messages[place - 1]["content"]
        };
        content(place, message, before, &mut ids)?;
        ensure(
            (goes_on && place + 1 == messages.len()) || is_paired(&message["content"]),
            || {
                format!(
                    "messages.{place}: a `server_tool_use` without its result, or the other way round"
                )
            },
        )?;
    }
    ensure(messages.len() % 2 == 1 || goes_on, || {
        "the conversation must end with a user message".to_owned()
    })?;
    ensure(ids.is_empty() || body["tools"].is_array(), || {
        "Requests which include `tool_use` or `tool_result` blocks must define tools".to_owned()
    })
}

/// Whether the conversation ends with an answer that was paused, as it was: with all its pieces.
fn goes_on(messages: &[Value], paused: &[Value]) -> bool {
    let last = messages.last().filter(|last| last["role"] == "assistant");
    let mut rest = last
        .and_then(|last| last["content"].as_array())
        .map_or(&[][..], Vec::as_slice);
    let any = !rest.is_empty();
    while !rest.is_empty() {
        let pieces = paused.iter().filter_map(Value::as_array);
        let Some(left) = pieces
            .filter(|piece| !piece.is_empty())
            .find_map(|piece| rest.strip_suffix(&piece[..]))
        else {
            return false;
        };
        rest = left;
    }
    any
}

/// Whether each use of a tool at the service has its result.
fn is_paired(content: &Value) -> bool {
    let ids = |kind: &str, name: &str| -> Vec<String> {
        let blocks = content.as_array().into_iter().flatten();
        let of_kind = blocks.filter(|block| block["type"] == kind);
        of_kind.map(|block| block[name].to_string()).collect()
    };
    ids("server_tool_use", "id") == ids("web_search_tool_result", "tool_use_id")
}

fn tools(tools: &Value) -> Checked {
    let mut names = HashSet::new();
    for (place, tool) in tools.as_array().into_iter().flatten().enumerate() {
        let at = format!("tools.{place}");
        only(
            tool,
            &["name", "description", "input_schema", "cache_control"],
            &at,
        )?;
        let name = tool["name"].as_str().unwrap_or_default();
        ensure(is_word(name, 128), || {
            format!("{at}.name: should match '^[a-zA-Z0-9_-]{{1,128}}$'")
        })?;
        ensure(names.insert(name.to_owned()), || {
            "tools: Tool names must be unique.".to_owned()
        })?;
        ensure(tool["description"].is_string(), || {
            format!("{at}.description: should be a string")
        })?;
        ensure(tool["input_schema"]["type"] == "object", || {
            format!("{at}.input_schema.type: Field required")
        })?;
    }
    Ok(())
}

fn system(system: &Value) -> Checked {
    for block in system.as_array().into_iter().flatten() {
        only(block, &["type", "text", "cache_control"], "system")?;
        let text = block["text"].as_str().unwrap_or_default();
        ensure(block["type"] == "text" && !text.is_empty(), || {
            "system: text must be non-empty".to_owned()
        })?;
    }
    Ok(())
}

fn uses(content: &Value) -> Vec<&str> {
    let blocks = content.as_array().into_iter().flatten();
    blocks
        .filter(|block| block["type"] == "tool_use")
        .filter_map(|block| block["id"].as_str())
        .collect()
}

fn content(place: usize, message: &Value, before: &Value, ids: &mut HashSet<String>) -> Checked {
    let at = format!("messages.{place}");
    let blocks = message["content"]
        .as_array()
        .filter(|blocks| !blocks.is_empty());
    let blocks = blocks.ok_or_else(|| format!("{at}: all messages must have non-empty content"))?;
    let of_user = message["role"] == "user";
    let mut open = uses(before);
    let mut results_over = false;
    for block in blocks {
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        match (block["type"].as_str().unwrap_or_default(), of_user) {
            ("text", _) => {
                results_over = true;
                only(block, &["type", "text", "cache_control"], &at)?;
                ensure(!text("text").trim().is_empty(), || {
                    format!("{at}: text content blocks must contain non-whitespace text")
                })?;
            }
            ("tool_use", false) => {
                only(
                    block,
                    &["type", "id", "name", "input", "cache_control"],
                    &at,
                )?;
                ensure(is_word(text("id"), 200), || {
                    format!("{at}.tool_use.id: {:?} does not fit", text("id"))
                })?;
                ensure(ids.insert(text("id").to_owned()), || {
                    format!("{at}: `tool_use` ids must be unique")
                })?;
                ensure(is_word(text("name"), 128), || {
                    format!("{at}.tool_use.name: {:?}", text("name"))
                })?;
                ensure(block["input"].is_object(), || {
                    format!("{at}.tool_use.input: Input should be an object")
                })?;
            }
            ("tool_result", true) => {
                only(
                    block,
                    &[
                        "type",
                        "tool_use_id",
                        "content",
                        "is_error",
                        "cache_control",
                    ],
                    &at,
                )?;
                ensure(!results_over, || {
                    format!("{at}: `tool_result` blocks must come first")
                })?;
                let found = open.iter().position(|id| *id == text("tool_use_id"));
                let found = found.ok_or_else(|| {
                    format!(
                        "{at}: unexpected `tool_use_id` found in `tool_result` blocks: {}",
                        text("tool_use_id")
                    )
                })?;
                open.remove(found);
                let is_list = is_result_list(&block["content"]);
                ensure(is_list || !text("content").is_empty(), || {
                    format!("{at}: empty tool_result")
                })?;
            }
            ("thinking" | "redacted_thinking", false) => {
                ensure(block.get("cache_control").is_none(), || {
                    format!("{at}: thinking cannot be cached")
                })?;
            }
            ("server_tool_use" | "web_search_tool_result", false) => {}
            (other, _) => return Err(format!("{at}: a block of type {other:?} cannot stand here")),
        }
    }
    ensure(open.is_empty(), || {
        format!(
            "{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {open:?}"
        )
    })
}

/// Whether the content of a result is a list of texts and images.
fn is_result_list(content: &Value) -> bool {
    let blocks = content.as_array();
    blocks.is_some_and(|blocks| {
        !blocks.is_empty()
            && blocks.iter().all(|block| match block["type"].as_str() {
                Some("text") => block["text"].is_string(),
                Some("image") => {
                    let source = &block["source"];
                    let is_of_kind = source["media_type"] == "image/png";
                    source["type"] == "base64" && is_of_kind && source["data"].is_string()
                }
                _ => false,
            })
    })
}
