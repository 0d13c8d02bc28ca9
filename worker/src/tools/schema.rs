//! How a model is told of its tools: name, what it does and when to use it, and the JSON Schema of its input. Pure.
//!
//! Every call costs these texts as input tokens, and they must not change within a conversation: they stand before
//! all that a service caches.

use serde_json::{Value, json};
use teamd_shared::member::SandboxMode;

use super::kit::{Kit, WRITE_FILES};
use crate::model::prompt::Tool;

/// Returns the tools of a kit that work in this mode of the sandbox, always in the same order.
pub(crate) fn definitions(kit: Kit, mode: SandboxMode) -> Vec<Tool> {
    let tools =
        kit.tools().iter().filter(|tool| mode != SandboxMode::ReadOnly || !WRITE_FILES.contains(tool));
    tools.map(|name| Tool { name, description: description(kit, name), input: input(kit, name) }).collect()
}

fn description(kit: Kit, tool: &str) -> &'static str {
    match (kit, tool) {
        (Kit::Lead, "send_message") => {
            "Sends a message to one teammate; it reaches it with its next tool results, or wakes it. To give a \
             teammate work, correct it, or answer its question. `user` leaves a note in the inbox of the person, who \
             reads what you answer anyway. You hear of a teammate's answer by itself: do not wait or poll."
        }
        (Kit::Lead, "shutdown_response") => {
            "Shows where a request stands (a shutdown or a plan): pending, approved, rejected or expired, with the \
             reason. Only when you yourself are asked to leave, answer that request with `approve` (and `reason`)."
        }
        (Kit::Lead, "plan_approval") => {
            "Answers the plan of a teammate: `approve` true opens its gate, false leaves it closed, and `feedback` \
             says what to change. Read the plan first, and look into the files if you have to. Where a person must \
             decide, your call is a recommendation: it is shown to the person, and the result is what the person \
             decided; or the result says how a person can answer."
        }
        (Kit::Lead, tool) => of_lead(tool),
        (Kit::Teammate, tool) => of_teammate(tool),
    }
}

fn of_lead(tool: &str) -> &'static str {
    match tool {
        "spawn_teammate" => {
            "Starts a teammate: an agent of its own, in a process of its own, that works on `prompt` at once. It sees \
             nothing of this conversation: the prompt must hold all that it needs. With `plan` it can change nothing \
             before a plan of it is approved. Returns when it is ready; you hear by itself when it submits a plan, \
             writes, or has finished: do not wait or poll."
        }
        "list_teammates" => {
            "Shows who is on the team: name, role, status, gate, what each does, and the plans and shutdowns that are \
             pending. Reads only. There is no need to call it in order to wait."
        }
        "broadcast" => {
            "Sends one message to every teammate that runs. Use `send_message` where one is meant."
        }
        "shutdown_request" => {
            "Asks a teammate to leave. Returns at once with the id of the request: an idle teammate leaves, a busy one \
             may reject. You hear by itself when its process is gone, or why it rejects. Only for a teammate that has \
             finished, or when the person says so."
        }
        "request_plan" => {
            "Closes the gate of a teammate, so that it can change nothing more, and asks it for a plan about \
             `content`. You hear by itself when the plan is there."
        }
        other => of_teammate(other),
    }
}

fn of_teammate(tool: &str) -> &'static str {
    match tool {
        "bash" => {
            "Runs a command with `bash -c` in the workspace, and returns what it prints (stdout and stderr together) \
             and its exit code. It has no terminal and no input: nothing that asks questions works. All that it \
             leaves running ends with the call, unless `run_in_background` is set: then the call returns at once, \
             the command goes on, and its output goes to a log file that is named in the result. Of long output only \
             beginning and end are kept. The file system outside the workspace cannot be written; while the gate is \
             closed nothing can, and there is no network."
        }
        "read_file" => {
            "Reads a text file in the workspace: 2,000 lines from `offset` (counted from 1), or `limit` of them. \
             Binary files are refused."
        }
        "write_file" => {
            "Makes a file in the workspace, or replaces all of one that is there, with `content`; makes missing \
             directories. To change a part of a file, use `edit_file`. Refused while the gate is closed."
        }
        "edit_file" => {
            "Replaces `old_text`, which must occur exactly once in the file, by `new_text`. Copy `old_text` exactly, \
             with its white space, and take in enough lines around it to make it unique. Refused while the gate is \
             closed."
        }
        "send_message" => {
            "Sends a message to a teammate by its name, to the lead (`lead`) or to everybody (`all`). To ask, to \
             answer, to hand something over. The lead hears of your final answer by itself when you finish: do not \
             send it too. Answers come to you by themselves: do not wait or poll."
        }
        "read_inbox" => {
            "Shows the messages that have arrived since the last ones you were given. Messages reach you with the \
             results of your calls anyway: it is needed only in the middle of long work."
        }
        "shutdown_response" => {
            "Answers a shutdown request that was shown to you, under its id: `approve` true when your work is done or \
             can be left as it is (you then leave), false with a `reason` when you must finish something first. \
             Nothing else answers such a request, text does not."
        }
        "plan_approval" => {
            "Submits a plan to the lead: what you will change, where, in which order, and how you will check it. Your \
             gate closes, and the call returns with the verdict: approved (the gate is open, go on), or rejected with \
             feedback (submit a revised plan). Before major work, and whenever the gate is closed."
        }
        _ => "",
    }
}

fn input(kit: Kit, tool: &str) -> Value {
    match (kit, tool) {
        (Kit::Lead, "shutdown_response") => object(
            &json!({
                "request_id": text("The id of the request."),
                "approve": flag("Only for a request that asks you to leave: true to leave, false to stay."),
                "reason": text("Why, or why not; only together with `approve`."),
            }),
            &["request_id"],
        ),
        (Kit::Lead, "plan_approval") => object(
            &json!({
                "request_id": text("The id of the plan, as it stands in the plan_approval_request."),
                "approve": flag("True to approve, false to reject."),
                "feedback": text("What to change (when you reject), or what to mind."),
            }),
            &["request_id", "approve"],
        ),
        (Kit::Lead, "send_message") => send_message("The name of a teammate, or `user`."),
        (Kit::Lead, tool) => input_of_lead(tool),
        (Kit::Teammate, "send_message") => send_message("The name of a teammate, `lead`, or `all`."),
        (Kit::Teammate, tool) => common_input(tool),
    }
}

fn send_message(to: &str) -> Value {
    object(&json!({ "to": text(to), "content": text("The text.") }), &["to", "content"])
}

fn input_of_lead(tool: &str) -> Value {
    match tool {
        "spawn_teammate" => object(
            &json!({
                "name": text("Its name: 1 to 32 of a-z, 0-9, _ and -."),
                "role": text("What it is for, in a word or two, such as `coder` or `reviewer`."),
                "prompt": text("What it shall do, with all that it must know to do it."),
                "plan": flag("True: it must submit a plan, and can change nothing before the plan is approved."),
                "model": text("Only if the person asks for one: PROVIDER or PROVIDER:MODEL."),
                "workspace": text("Only if it shall not be yours: a directory in your workspace."),
            }),
            &["name", "role", "prompt"],
        ),
        "broadcast" => object(&json!({ "content": text("The text.") }), &["content"]),
        "shutdown_request" => object(
            &json!({ "teammate": text("Its name."), "reason": text("Why, for the teammate to weigh.") }),
            &["teammate"],
        ),
        "request_plan" => object(
            &json!({ "teammate": text("Its name."), "content": text("What the plan shall be about.") }),
            &["teammate", "content"],
        ),
        other => common_input(other),
    }
}

fn common_input(tool: &str) -> Value {
    let path = || text("The file: relative to the workspace, or absolute and inside it.");
    match tool {
        "bash" => object(
            &json!({
                "command": text("The command."),
                "timeout": number("Seconds until it is ended: 120 by default, at most 3600."),
                "run_in_background": flag("True: return at once, and let the command go on."),
            }),
            &["command"],
        ),
        "read_file" => object(
            &json!({
                "path": path(),
                "limit": count("How many lines at most."),
                "offset": count("The first line, counted from 1."),
            }),
            &["path"],
        ),
        "write_file" => object(
            &json!({ "path": path(), "content": text("All that the file shall hold.") }),
            &["path", "content"],
        ),
        "edit_file" => object(
            &json!({
                "path": path(),
                "old_text": text("The text as it stands in the file, exactly."),
                "new_text": text("The text that takes its place; empty to delete."),
            }),
            &["path", "old_text", "new_text"],
        ),
        "shutdown_response" => object(
            &json!({
                "request_id": text("The id of the shutdown request."),
                "approve": flag("True to leave, false to stay."),
                "reason": text("Why, or why not."),
            }),
            &["request_id", "approve"],
        ),
        "plan_approval" => object(&json!({ "plan": text("The plan, in full.") }), &["plan"]),
        _ => object(&json!({}), &[]),
    }
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn number(description: &str) -> Value {
    json!({ "type": "number", "description": description })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "description": description })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Call;

    /// A value that fits a property.
    fn example(name: &str, property: &Value) -> Value {
        match property["type"].as_str().unwrap() {
            "string" if name == "request_id" => json!("a1b2c3d4"),
            "string" => json!("x"),
            "boolean" => json!(true),
            "number" | "integer" => json!(1),
            other => panic!("{other}"),
        }
    }

    fn examples(tool: &Tool, take: impl Fn(&str) -> bool) -> Value {
        let properties = tool.input["properties"].as_object().unwrap();
        let taken = properties.iter().filter(|(name, _)| take(name));
        Value::Object(taken.map(|(name, it)| (name.clone(), example(name, it))).collect())
    }

    #[test]
    fn what_a_model_is_told_of_a_tool_is_what_is_read() {
        for kit in [Kit::Teammate, Kit::Lead] {
            let tools = definitions(kit, SandboxMode::WorkspaceWrite);
            assert_eq!(tools.iter().map(|tool| tool.name).collect::<Vec<_>>(), kit.tools());
            for tool in tools {
                let required = tool.input["required"].as_array().unwrap();
                let is_required = |name: &str| required.iter().any(|it| it == name);
                assert!(!tool.description.is_empty(), "{}", tool.name);
                for input in [examples(&tool, |_| true), examples(&tool, is_required)] {
                    let call = Call::parse(kit, tool.name, &input);
                    assert!(call.is_ok(), "{kit:?} {} {input}: {call:?}", tool.name);
                }
                for field in required {
                    let input = examples(&tool, |name| is_required(name) && field != name);
                    let error = Call::parse(kit, tool.name, &input).unwrap_err();
                    assert!(error.contains(field.as_str().unwrap()), "{kit:?} {}: {error}", tool.name);
                }
                let mut more = examples(&tool, is_required);
                more["no_such_field"] = json!(1);
                assert!(Call::parse(kit, tool.name, &more).is_err(), "{}", tool.name);
            }
        }
    }

    #[test]
    fn a_read_only_member_is_offered_no_tool_that_writes_files() {
        for kit in [Kit::Teammate, Kit::Lead] {
            let offered = definitions(kit, SandboxMode::ReadOnly);
            assert!(!offered.iter().any(|tool| WRITE_FILES.contains(&tool.name)), "{kit:?}");
            assert_eq!(offered.len() + WRITE_FILES.len(), kit.tools().len());
        }
    }

    #[test]
    fn a_tool_of_the_lead_is_none_of_a_teammates() {
        let of_lead = definitions(Kit::Lead, SandboxMode::WorkspaceWrite);
        for tool in of_lead.iter().filter(|tool| !Kit::Teammate.tools().contains(&tool.name)) {
            let error = Call::parse(Kit::Teammate, tool.name, &examples(tool, |_| true)).unwrap_err();
            assert!(error.starts_with("there is no tool"), "{error}");
        }
    }
}
