//! The lines that the script model understands. Pure.
//!
//! | line | what it is |
//! |---|---|
//! | `/bash COMMAND` | the rest of the line is the command |
//! | `/bash& COMMAND` | the same, in the background |
//! | `/read_file PATH` | |
//! | `/write_file PATH CONTENT` | in CONTENT `\n`, `\t` and `\\` stand for newline, tab and backslash |
//! | `/send_message NAME TEXT` | the same in TEXT |
//! | `/plan_approval PLAN` | the same in PLAN |
//! | `/read_inbox` | |
//! | `/sleep SECONDS` | |
//! | `/shutdown_response ID approve\|reject REASON` | |
//! | `/reject_shutdown REASON` | no call: the next shutdown request is rejected with this reason |
//! | `/fail_model REASON` | no call: the model fails, as a service that is out of reach does |
//! | `/spawn_teammate [--plan] NAME ROLE PROMPT` | the same in PROMPT: so it can hold several lines |
//! | `/list_teammates` | |
//! | `/broadcast TEXT` | the same in TEXT |
//! | `/shutdown_request NAME REASON` | REASON may be missing |
//! | `/shutdown_response ID` | where a request stands |
//! | `/request_plan NAME TEXT` | the same in TEXT |
//! | `/plan_approval ID approve\|reject FEEDBACK` | the lead agent's verdict, where ID is 8 hex digits; the same in FEEDBACK |
//! | `/task_create SUBJECT` | |
//! | `/claim_task [ID]`, `/task_get ID`, `/task_list` | |
//! | `/task_update ID completed\|pending\|cancelled SUMMARY` | the same in SUMMARY |
//! | `/TOOL {…}` | any tool with its input as a JSON object |
//! | `//…` | text that begins with `/` |
//! | any other line that is not empty | text |

use serde_json::{Map, Value, json};

/// The order to fail. It stands in the queue of calls, and no tool has this name.
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
pub(super) enum Line {
    /// A call.
    Call(ScriptedCall),
    /// Text of the final answer.
    Text(String),
    /// How to answer the next shutdown request.
    RejectShutdown(String),
}

/// Reads the lines of a text; empty ones are left out.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line> + '_ {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(read)
}

fn read(line: &str) -> Line {
    let Some(command) = line.strip_prefix('/') else {
        return Line::Text(line.to_owned());
    };
    let (name, rest) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    let rest = rest.trim();
    if name.is_empty() {
        // A slash alone names no tool.
        return Line::Text(line.to_owned());
    }
    if command.starts_with('/') {
        return Line::Text(command.to_owned());
    }
    if name == "reject_shutdown" {
        let reason = if rest.is_empty() {
            "no reason given"
        } else {
            rest
        };
        return Line::RejectShutdown(reason.to_owned());
    }
    if name == FAIL {
        return Line::Call(ScriptedCall {
            name: name.to_owned(),
            input: json!({ "reason": rest }),
        });
    }
    let (name, background) = if name == "bash&" {
        ("bash", true)
    } else {
        (name, false)
    };
    let mut input = json_object(rest).unwrap_or_else(|| arguments(name, rest));
    if background {
        input.insert("run_in_background".to_owned(), Value::Bool(true));
    }
    Line::Call(ScriptedCall {
        name: name.to_owned(),
        input: Value::Object(input),
    })
}

/// A command such as `{ date; }` begins like an object and is none.
fn json_object(rest: &str) -> Option<Map<String, Value>> {
    rest.starts_with('{')
        .then(|| serde_json::from_str(rest).ok())
        .flatten()
}

/// The fields of each tool in the order of its line: every one is a word, but the last, which is
/// the rest of the line.
const FIELDS: [(&str, &[&str]); 15] = [
    ("bash", &["command"]),
    ("read_file", &["path"]),
    ("write_file", &["path", "content"]),
    ("send_message", &["to", "content"]),
    ("plan_approval", &["plan"]),
    ("spawn_teammate", &["name", "role", "prompt"]),
    ("broadcast", &["content"]),
    ("shutdown_request", &["teammate", "reason"]),
    ("request_plan", &["teammate", "content"]),
    ("shutdown_response", &["request_id", "approve", "reason"]),
    ("sleep", &["seconds"]),
    ("task_create", &["subject"]),
    ("claim_task", &["task_id"]),
    ("task_get", &["task_id"]),
    ("task_update", &["task_id", "status", "summary"]),
];

/// What the rest of a line means for a tool. One that is not listed says itself which fields it
/// misses.
fn arguments(name: &str, mut rest: &str) -> Map<String, Value> {
    let mut input = Map::new();
    let listed = FIELDS
        .iter()
        .find(|(tool, _)| *tool == name)
        .map(|(_, fields)| *fields);
    let (first, behind) = parted(rest);
    let fields = match (name, listed) {
        ("plan_approval", _) if is_verdict(first, behind) => &["request_id", "approve", "feedback"],
        ("shutdown_response", _) if behind.trim().is_empty() => &["request_id"][..],
        ("spawn_teammate", Some(fields)) if first == "--plan" => {
            input.insert("plan".to_owned(), Value::Bool(true));
            rest = behind;
            fields
        }
        ("claim_task", _) if rest.is_empty() => &[],
        (_, Some(fields)) => fields,
        (_, None) if rest.is_empty() => &[],
        (_, None) => &["input"],
    };
    let Some((last, words)) = fields.split_last() else {
        return input;
    };
    for field in words {
        let (word, behind) = parted(rest);
        rest = behind;
        let value = match *field {
            "approve" => approval(word),
            "task_id" => whole(word),
            _ => json!(word),
        };
        input.insert((*field).to_owned(), value);
    }
    // Only the content of a file begins with the spaces before it.
    let text = if name == "write_file" {
        rest
    } else {
        rest.trim_start()
    };
    let value = match *last {
        "command" | "path" | "input" => json!(text),
        "seconds" => number(text),
        "task_id" => whole(text),
        _ => json!(unescape(text)),
    };
    input.insert((*last).to_owned(), value);
    input
}

/// Tells the lead agent's answer to a plan (an id as this project writes it, and a verdict) from
/// the text of a plan.
fn is_verdict(id: &str, behind: &str) -> bool {
    let is_id = id.len() == 8
        && id
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    is_id && approval(parted(behind).0).is_boolean()
}

/// Parts the first word from what stands behind the space after it.
fn parted(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

/// A word that is no number goes on as it is, so that the tool can say so.
fn number(word: &str) -> Value {
    word.parse::<f64>()
        .ok()
        .and_then(serde_json::Number::from_f64)
        .map_or_else(|| json!(word), Value::Number)
}

fn whole(word: &str) -> Value {
    word.parse::<u32>()
        .map_or_else(|_| json!(word), Value::from)
}

fn approval(word: &str) -> Value {
    match word {
        "approve" | "true" | "yes" => Value::Bool(true),
        "reject" | "false" | "no" => Value::Bool(false),
        other => json!(other),
    }
}

/// Reads `\n`, `\t` and `\\`; any other backslash stands for itself.
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
            Line::Call(ScriptedCall { name, input }) => (name, input),
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn each_tool_reads_the_rest_of_its_line() {
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
                "/bash& sleep 9",
                "bash",
                json!({"command": "sleep 9", "run_in_background": true}),
            ),
            (
                r#"/bash& {"command":"x"}"#,
                "bash",
                json!({"command": "x", "run_in_background": true}),
            ),
            (
                r#"/bash {"command":"x","timeout":3}"#,
                "bash",
                json!({"command": "x", "timeout": 3}),
            ),
            (
                "/read_file a b.txt",
                "read_file",
                json!({"path": "a b.txt"}),
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
                r"/plan_approval 1. Drop\n2. Build",
                "plan_approval",
                json!({"plan": "1. Drop\n2. Build"}),
            ),
            ("/read_inbox", "read_inbox", json!({})),
            ("/sleep 0.5", "sleep", json!({"seconds": 0.5})),
            ("/sleep long", "sleep", json!({"seconds": "long"})),
            (
                "/shutdown_response a1b2 reject not now, please",
                "shutdown_response",
                json!({"request_id": "a1b2", "approve": false, "reason": "not now, please"}),
            ),
            (
                "/shutdown_response a1b2 approve",
                "shutdown_response",
                json!({"request_id": "a1b2", "approve": true, "reason": ""}),
            ),
            (
                r#"/edit_file {"path":"a","old_text":"x","new_text":"y"}"#,
                "edit_file",
                json!({"path": "a", "old_text": "x", "new_text": "y"}),
            ),
            (
                r"/spawn_teammate alice coder /bash make\n/send_message lead done",
                "spawn_teammate",
                json!({"name": "alice", "role": "coder", "prompt": "/bash make\n/send_message lead done"}),
            ),
            (
                "/spawn_teammate --plan bob reviewer look at it",
                "spawn_teammate",
                json!({"name": "bob", "role": "reviewer", "prompt": "look at it", "plan": true}),
            ),
            ("/list_teammates", "list_teammates", json!({})),
            (
                "/broadcast stop, please",
                "broadcast",
                json!({"content": "stop, please"}),
            ),
            (
                "/shutdown_request bob",
                "shutdown_request",
                json!({"teammate": "bob", "reason": ""}),
            ),
            (
                "/shutdown_request bob well done",
                "shutdown_request",
                json!({"teammate": "bob", "reason": "well done"}),
            ),
            (
                "/shutdown_response a1b2c3d4",
                "shutdown_response",
                json!({"request_id": "a1b2c3d4"}),
            ),
            (
                "/request_plan bob the cache",
                "request_plan",
                json!({"teammate": "bob", "content": "the cache"}),
            ),
            (
                "/plan_approval a1b2c3d4 reject smaller steps",
                "plan_approval",
                json!({"request_id": "a1b2c3d4", "approve": false, "feedback": "smaller steps"}),
            ),
            (
                "/plan_approval Please approve it",
                "plan_approval",
                json!({"plan": "Please approve it"}),
            ),
            (
                "/plan_approval a1b2c3d4 is the commit",
                "plan_approval",
                json!({"plan": "a1b2c3d4 is the commit"}),
            ),
            ("/dance wildly", "dance", json!({"input": "wildly"})),
            ("/dance", "dance", json!({})),
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
            assert_eq!(read(line), Line::Text(text.to_owned()), "{line}");
        }
        assert_eq!(lines("\n  \n\t\r\n").count(), 0);
        assert_eq!(
            lines("a\r\n\r\nb").collect::<Vec<_>>(),
            [Line::Text("a".into()), Line::Text("b".into())]
        );
    }

    #[test]
    fn a_rejection_has_a_reason() {
        assert_eq!(
            read("/reject_shutdown still writing"),
            Line::RejectShutdown("still writing".to_owned())
        );
        assert_eq!(
            read("/reject_shutdown"),
            Line::RejectShutdown("no reason given".to_owned())
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
