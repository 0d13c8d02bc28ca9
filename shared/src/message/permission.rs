//! The text of an agent's permission question. Pure.

use serde_json::Value;

/// The fields of a tool's input that name its subject.
const SUBJECTS: [&str; 6] = ["command", "file_path", "path", "url", "pattern", "query"];

/// Returns what an agent wants to do: the tool and its subject in the first line, each further
/// field below.
pub(crate) fn permission_text(tool: &str, input: &Value) -> String {
    let subject = SUBJECTS.into_iter().find(|name| input[name].is_string());
    let first = subject.map_or_else(
        || tool.to_owned(),
        |name| format!("{tool}: {}", text_of(&input[name])),
    );
    let rest = input
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| Some(name.as_str()) != subject);
    let rest = rest.map(|(name, value)| format!("{name}: {}", text_of(value)));
    std::iter::once(first)
        .chain(rest)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a text as it is, and any other value as JSON.
fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_wants_begins_with_the_tool_and_its_subject() {
        let bash = serde_json::json!({"description": "see", "command": "ls -l", "timeout": 5});
        assert_eq!(
            permission_text("Bash", &bash),
            "Bash: ls -l\ndescription: see\ntimeout: 5"
        );
        assert_eq!(permission_text("Odd", &serde_json::json!([1])), "Odd");
    }
}
