//! The lines that the script model understands. Pure.
//!
//! | line | what it is |
//! |---|---|
//! | `/TOOL {…}` | a call of any tool with its input as a JSON object |
//! | `/TOOL` | a call without input |
//! | `/bash COMMAND` | the rest of the line is the command |
//! | `/write_file PATH CONTENT` | in CONTENT `\n`, `\t` and `\\` stand for newline, tab and backslash |
//! | `/send_message NAME TEXT` | the same in TEXT |
//! | `/plan_approval PLAN` | the same in PLAN |
//! | `/load_skill NAME FILE` | the file may be left out |
//! | `/delegate PROMPT` | the same as above in PROMPT, whose lines the subagent obeys |
//! | `/sleep SECONDS` | |
//! | `/reject_shutdown REASON` | no call: the next shutdown request is rejected with this reason |
//! | `/fail_model REASON` | no call: the model fails, as a service that is out of reach does |
//! | `//…` | text that begins with `/` |
//! | any other line that is not empty | text |

use serde_json::{Value, json};

/// The order to fail. It is queued like a call, and no tool has this name.
pub(super) const FAIL: &str = "fail_model";

/// A call of a tool, which need not exist.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScriptedCall {
    /// The tool.
    pub(super) name: String,
    /// Its input.
    pub(super) input: Value,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScriptLine {
    /// A call.
    Call(ScriptedCall),
    /// Text of the final answer.
    Text(String),
    /// How to answer the next shutdown request.
    RejectShutdown(String),
}

/// Reads the lines of a text; empty ones are left out.
pub(super) fn lines(text: &str) -> impl Iterator<Item = ScriptLine> + '_ {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(read)
}

fn read(line: &str) -> ScriptLine {
    let Some(command) = line.strip_prefix('/') else {
        return ScriptLine::Text(line.to_owned());
    };
    let (name, rest) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    let rest = rest.trim();
    if name.is_empty() {
        // A slash alone names no tool.
        return ScriptLine::Text(line.to_owned());
    }
    if command.starts_with('/') {
        return ScriptLine::Text(command.to_owned());
    }
    if name == "reject_shutdown" {
        let reason = if rest.is_empty() {
            "no reason given"
        } else {
            rest
        };
        return ScriptLine::RejectShutdown(reason.to_owned());
    }
    if name == FAIL {
        return ScriptLine::Call(ScriptedCall {
            name: name.to_owned(),
            input: json!({ "reason": rest }),
        });
    }
    ScriptLine::Call(ScriptedCall {
        name: name.to_owned(),
        input: input_of(name, rest),
    })
}

/// Reads the input of a call: an object, or the short form of the tool. A command such as `{ date;
/// }` begins like an object but is not one. A tool that has no short form reports which field it
/// misses.
fn input_of(tool: &str, rest: &str) -> Value {
    if rest.starts_with('{')
        && let Ok(input @ Value::Object(_)) = serde_json::from_str(rest)
    {
        return input;
    }
    match tool {
        "bash" => json!({ "command": rest }),
        "sleep" => json!({ "seconds": number(rest) }),
        "delegate" => json!({ "prompt": unescape(rest) }),
        "load_skill" => match rest.split_once(char::is_whitespace) {
            Some((name, file)) => json!({ "name": name, "file": file.trim_start() }),
            None => json!({ "name": rest }),
        },
        "plan_approval" => json!({ "plan": unescape(rest) }),
        "send_message" => {
            let (to, content) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            json!({ "to": to, "content": unescape(content.trim_start()) })
        }
        "write_file" => {
            // The content begins with the spaces before it.
            let (path, content) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            json!({ "path": path, "content": unescape(content) })
        }
        _ if rest.is_empty() => json!({}),
        _ => json!({ "input": rest }),
    }
}

/// Reads a number. Another word stays as it is, so that the tool can name the mistake.
fn number(word: &str) -> Value {
    match word.parse::<f64>() {
        Ok(number) if number.is_finite() => json!(number),
        _ => json!(word),
    }
}

/// Reads `\n`, `\t` and `\\`; any other backslash stays.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match rest.clone().next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('\\') => plain.push('\\'),
            _ => {
                plain.push('\\');
                continue;
            }
        }
        rest.next();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(line: &str) -> (String, Value) {
        match read(line) {
            ScriptLine::Call(ScriptedCall { name, input }) => (name, input),
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn any_tool_takes_an_object() {
        for (line, name, input) in [
            (
                r#"/bash {"command":"x","timeout":3}"#,
                "bash",
                json!({"command": "x", "timeout": 3}),
            ),
            (
                r#"/edit_file {"path":"a","old_text":"x","new_text":"y"}"#,
                "edit_file",
                json!({"path": "a", "old_text": "x", "new_text": "y"}),
            ),
            ("/read_inbox", "read_inbox", json!({})),
            ("/dance", "dance", json!({})),
            ("/dance wildly", "dance", json!({"input": "wildly"})),
            ("/dance {wildly", "dance", json!({"input": "{wildly"})),
        ] {
            assert_eq!(call(line), (name.to_owned(), input), "{line}");
        }
    }

    #[test]
    fn some_tools_have_a_short_form() {
        for (line, name, input) in [
            (
                "/bash cargo test | head -3",
                "bash",
                json!({"command": "cargo test | head -3"}),
            ),
            ("/bash { date; }", "bash", json!({"command": "{ date; }"})),
            (
                r"/bash printf 'a\n'",
                "bash",
                json!({"command": r"printf 'a\n'"}),
            ),
            (
                "/write_file notes.txt hello",
                "write_file",
                json!({"path": "notes.txt", "content": "hello"}),
            ),
            (
                r"/write_file n.txt a\nb\tc\\n\d\",
                "write_file",
                json!({"path": "n.txt", "content": "a\nb\tc\\n\\d\\"}),
            ),
            (
                "/write_file empty",
                "write_file",
                json!({"path": "empty", "content": ""}),
            ),
            (
                "/write_file n   indented",
                "write_file",
                json!({"path": "n", "content": "  indented"}),
            ),
            (
                "/send_message bob done, go on",
                "send_message",
                json!({"to": "bob", "content": "done, go on"}),
            ),
            (
                "/send_message",
                "send_message",
                json!({"to": "", "content": ""}),
            ),
            (
                r"/plan_approval 1. Drop\n2. Build",
                "plan_approval",
                json!({"plan": "1. Drop\n2. Build"}),
            ),
            (
                r"/delegate /bash ls\nlooked",
                "delegate",
                json!({"prompt": "/bash ls\nlooked"}),
            ),
            ("/load_skill pdf", "load_skill", json!({"name": "pdf"})),
            (
                "/load_skill pdf ref/a b.md",
                "load_skill",
                json!({"name": "pdf", "file": "ref/a b.md"}),
            ),
            ("/sleep 0.5", "sleep", json!({"seconds": 0.5})),
            ("/sleep long", "sleep", json!({"seconds": "long"})),
            ("/sleep inf", "sleep", json!({"seconds": "inf"})),
        ] {
            assert_eq!(call(line), (name.to_owned(), input), "{line}");
        }
    }

    #[test]
    fn other_lines_are_text() {
        for (line, text) in [
            ("hello", "hello"),
            ("  /bash no", "  /bash no"),
            ("//usr/bin is a path", "/usr/bin is a path"),
            ("//", "/"),
            ("// comment", "/ comment"),
            ("/", "/"),
            ("/ alone", "/ alone"),
        ] {
            assert_eq!(read(line), ScriptLine::Text(text.to_owned()), "{line}");
        }
        assert_eq!(lines("\n  \n\t\r\n").count(), 0);
        assert_eq!(
            lines("a\r\n\r\nb").collect::<Vec<_>>(),
            [ScriptLine::Text("a".into()), ScriptLine::Text("b".into())]
        );
    }

    #[test]
    fn a_rejection_has_a_reason() {
        assert_eq!(
            read("/reject_shutdown still writing"),
            ScriptLine::RejectShutdown("still writing".to_owned())
        );
        assert_eq!(
            read("/reject_shutdown"),
            ScriptLine::RejectShutdown("no reason given".to_owned())
        );
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "(?s).{0,80}") {
            prop_assert!(lines(&text).count() <= text.lines().count());
        }

        #[test]
        fn an_escaped_text_is_read_back(text in "[a-z\\\\\n\t ]{0,20}") {
            let escaped = text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t");
            prop_assert_eq!(unescape(&escaped), text);
        }
    }
}
