//! What tools did, they did once; the transcripts can be read, and pair each call with one result.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::stage::{Checked, Stage, hold};

/// Checks what all teammates did.
pub(super) fn check(stage: &Stage) -> Checked {
    let effects = stage.team.text("effects");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in effects.lines() {
        *counts.entry(line).or_default() += 1;
    }
    for (token, count) in &counts {
        hold(*count == 1, || {
            format!("the command that leaves {token:?} ran {count} times")
        })?;
    }
    let members = stage.roster()["members"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for member in &members {
        if let Some(name) = member["name"].as_str() {
            transcript(stage, name, !member["agent"].is_null(), &counts)?;
        }
    }
    Ok(())
}

/// `is_agent`: a program that goes on while its plan waits, so it may answer beside that call.
fn transcript(
    stage: &Stage,
    name: &str,
    is_agent: bool,
    counts: &BTreeMap<&str, usize>,
) -> Checked {
    let text = stage.text_where_it_lives(name, &format!("transcript/{name}.jsonl"));
    // A torn tail stays until the next incarnation cuts it off; inside there is none.
    let text = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    // Those of a subagent are open beside the call that it works for.
    let mut open: HashMap<String, Value> = HashMap::new();
    let mut delegated: HashMap<String, Value> = HashMap::new();
    let mut incarnations = Vec::new();
    let mut unwritten = false;
    for (number, line) in (1..).zip(text.lines()) {
        let entry: Value = serde_json::from_str(line).unwrap_or_default();
        hold(entry.is_object(), || {
            format!("line {number} of the transcript of {name} is {line:?}")
        })?;
        let is_delegated = !entry["call"].is_null();
        let sort = entry["entry"].as_str().unwrap_or_default();
        if !is_delegated && sort == "result" {
            // Its subagent ends with it.
            delegated.clear();
        }
        let open = if is_delegated {
            &mut delegated
        } else {
            &mut open
        };
        match sort {
            "incarnation" => {
                if entry["incarnation"] == entry["conversation"] {
                    open.clear();
                }
                incarnations.push(entry["incarnation"].as_u64().unwrap_or_default());
            }
            "answer" => {
                let waits = open
                    .values()
                    .all(|call| is_agent && call["name"] == "plan_approval");
                hold(waits, || {
                    format!("{name} answered while {open:?} had no result")
                })?;
                for block in entry["content"].as_array().into_iter().flatten() {
                    if block["type"] == "tool_use" {
                        open.insert(
                            block["id"].as_str().unwrap_or_default().to_owned(),
                            block.clone(),
                        );
                    }
                }
            }
            "result" => {
                let id = entry["tool_use_id"].as_str().unwrap_or_default();
                let call = open.remove(id);
                hold(call.is_some(), || {
                    format!("{name}: a second result, or one without its call: {entry}")
                })?;
                let call = call.unwrap_or_default();
                happened(name, &call, &entry, counts)?;
                // What follows in such a file may be anything.
                let said = unwritten || stage.is_refused_something() || is_said(&call, &entry);
                hold(said, || {
                    format!("{name} was told that an edit failed which died, or ran: {entry}")
                })?;
                unwritten |= call["name"] == "write_file" && entry["is_error"] == true;
            }
            _ => {}
        }
    }
    hold(incarnations.is_sorted_by(|one, next| one < next), || {
        format!("the incarnations of {name} are {incarnations:?}")
    })
}

/// Whether an edit was done, or its result says that it may have been, or was not: a second one
/// would fail for another reason.
fn is_said(call: &Value, result: &Value) -> bool {
    let content = result["content"].as_str().unwrap_or_default();
    let says = ["interrupted", "not run", "refused"]
        .iter()
        .any(|word| content.starts_with(word));
    call["name"] != "edit_file" && call["name"] != "write_file"
        || result["is_error"] != true
        || says
}

/// A command whose result is no error has left its trace.
fn happened(name: &str, call: &Value, result: &Value, counts: &BTreeMap<&str, usize>) -> Checked {
    let command = call["input"]["command"].as_str().unwrap_or_default();
    let Some(token) = command
        .strip_prefix("echo ")
        .and_then(|rest| rest.split(" >> effects").next())
    else {
        return Ok(());
    };
    if !command.contains(">> effects") {
        return Ok(());
    }
    let count = counts.get(token).copied().unwrap_or_default();
    if result["is_error"] == true {
        let content = result["content"].as_str().unwrap_or_default();
        let untouched = content.starts_with("not run") || content.starts_with("refused");
        return hold(!untouched || count == 0, || {
            format!("{name} was told of {command:?} that it did not run ({content}), and it has")
        });
    }
    hold(count == 1, || {
        format!("{name} was told that {command:?} was done, and it ran {count} times")
    })
}
