use serde_json::json;
use teamd_worker_core::tools::Caller;

use super::super::{ImmediateReply, Known};
use super::*;

const SESSION: Uuid = Uuid::from_u128(7);
const ONE: Uuid = Uuid::from_u128(1);
const TWO: Uuid = Uuid::from_u128(2);

fn driver() -> Acp {
    let tools = Caller::Teammate.team_tools().map(|text| {
        let immediate_reply = (text.name == "plan_approval").then_some(ImmediateReply {
            text: "later",
            refusal: Some("one plan at a time"),
        });
        TeamTool {
            text,
            immediate_reply,
        }
    });
    Acp::new(
        "mine".to_owned(),
        tools.collect(),
        "be kind".to_owned(),
        None,
    )
}

fn frames(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn hears(acp: &mut Acp, frame: Value) -> (Vec<Value>, Vec<AgentOutput>) {
    let (answer, output) = acp.parse_line(&frame.to_string());
    (frames(&answer), output)
}

fn able(resume: bool, load: bool) -> Value {
    let sessions = if resume {
        json!({"resume": {}})
    } else {
        json!({})
    };
    let able = json!({"loadSession": load, "mcpCapabilities": {"http": true}, "sessionCapabilities": sessions});
    json!({"protocolVersion": 1, "agentCapabilities": able, "agentInfo": {"name": "x", "version": "0.1"}})
}

/// Begins, with what the worker has recorded of an earlier process; returns what opens the session.
fn opens(acp: &mut Acp, kept: &str, able: Value) -> (Vec<Value>, Vec<AgentOutput>) {
    let hello = acp.begin(&AgentSession {
        id: SESSION,
        kept: kept.to_owned(),
        workspace: "/w".into(),
        gateway: Some("http://127.0.0.1:4141".to_owned()),
        ..AgentSession::default()
    });
    let hello = &frames(&hello)[0];
    let capabilities = &hello["params"]["clientCapabilities"];
    assert_eq!(hello["params"]["protocolVersion"], 1);
    assert_eq!(capabilities["terminal"], false);
    assert_eq!(
        capabilities["fs"],
        json!({"readTextFile": false, "writeTextFile": false})
    );
    hears(
        acp,
        json!({"jsonrpc": "2.0", "id": hello["id"], "result": able}),
    )
}

/// A driver whose session `s` is ready.
fn begun() -> Acp {
    let mut acp = driver();
    let (opening, _) = opens(&mut acp, "", able(true, true));
    let id = &opening[0]["id"];
    hears(&mut acp, json!({"id": id, "result": {"sessionId": "s"}}));
    assert_eq!(acp.take_record(), "{\"session\":\"s\"}\n");
    acp
}

fn shows(acp: &mut Acp, update: Value) -> Vec<AgentOutput> {
    let params = json!({"sessionId": "s", "update": update});
    hears(acp, json!({"method": "session/update", "params": params})).1
}

fn says(acp: &mut Acp, text: &str) -> Vec<AgentOutput> {
    let content = json!({"type": "text", "text": text});
    shows(
        acp,
        json!({"sessionUpdate": "agent_message_chunk", "content": content}),
    )
}

fn prompts(acp: &mut Acp, id: Uuid, text: &str) -> Vec<Value> {
    let lines = acp.send_message(id, text, Permissions::Allow);
    frames(&lines)
}

fn text_of(prompt: &Value) -> &str {
    prompt["params"]["prompt"][0]["text"].as_str().unwrap()
}

fn ended(failure: Option<&str>) -> AgentOutput {
    AgentOutput::TurnEnded {
        failure: failure.map(str::to_owned),
    }
}

fn calls(
    acp: &mut Acp,
    name: &str,
    input: Value,
) -> (Vec<AgentOutput>, oneshot::Receiver<Outcome>) {
    let (reply, outcome) = oneshot::channel();
    let call = TeamCall {
        name: name.to_owned(),
        input,
        reply,
    };
    (acp.call_team(call), outcome)
}

#[test]
fn a_session_begins_in_the_workspace_with_the_team_tools_and_in_a_mode_that_asks() {
    let mut acp = driver();
    assert_eq!(prompts(&mut acp, ONE, "early"), Vec::<Value>::new());
    let (opening, output) = opens(&mut acp, "", able(true, true));
    assert_eq!(output, []);
    let params = &opening[0]["params"];
    assert_eq!(opening[0]["method"], "session/new");
    assert_eq!(params["cwd"], "/w");
    let server = &params["mcpServers"][0];
    assert_eq!(server["url"], "http://127.0.0.1:4141/mcp");
    let modes = ["auto", "yolo", "default"].map(|id| json!({"id": id, "name": id}));
    let modes = json!({"currentModeId": "auto", "availableModes": modes});
    let (mode, output) = hears(
        &mut acp,
        json!({"id": opening[0]["id"], "result": {"sessionId": "s", "modes": modes}}),
    );
    assert_eq!(output, []);
    assert_eq!(
        mode[0]["params"],
        json!({"sessionId": "s", "modeId": "default"})
    );
    let (prompt, output) = hears(&mut acp, json!({"id": mode[0]["id"], "result": {}}));
    assert_eq!(output, [AgentOutput::Ready, AgentOutput::Taken(ONE)]);
    assert_eq!(text_of(&prompt[0]), "be kind\n\nearly");
    let record = acp.take_record();
    assert_eq!(
        record,
        format!("{{\"session\":\"s\"}}\n{{\"message\":\"{ONE}\"}}\n")
    );
}

#[test]
fn an_agent_that_cannot_be_driven_is_told_why() {
    let told = |answer: Value, name: &str| {
        let mut acp = driver();
        acp.name = name.to_owned();
        match &opens(&mut acp, "", answer).1[..] {
            [AgentOutput::Unusable(why)] => why.clone(),
            other => panic!("{other:?}"),
        }
    };
    let mut newer = able(true, true);
    newer["protocolVersion"] = json!(2);
    assert!(told(newer, "mine").contains("version 2 of ACP"));
    let mut no_http = able(true, true);
    no_http["agentCapabilities"]["mcpCapabilities"]["http"] = json!(false);
    assert!(told(no_http, "mine").contains("over HTTP"));
    let mut old = able(true, true);
    old["agentInfo"]["version"] = json!("0.1.2");
    assert!(told(old, "gemini").contains("npm install -g @google/gemini-cli"));
    let mut acp = driver();
    let (opening, _) = opens(&mut acp, "", able(true, true));
    let error = json!({"code": -32000, "message": "Authentication required"});
    let (_, output) = hears(&mut acp, json!({"id": opening[0]["id"], "error": error}));
    let why = "does not begin: Authentication required".to_owned();
    assert_eq!(output, [AgentOutput::Unusable(why)]);
}

#[test]
fn a_session_is_resumed_or_loaded_or_given_up() {
    let kept = format!("{{\"session\":\"old\"}}\n{{\"message\":\"{ONE}\"}}\n");
    for (answer, method) in [
        (able(true, true), "session/resume"),
        (able(false, true), "session/load"),
    ] {
        let mut acp = driver();
        let (opening, _) = opens(&mut acp, &kept, answer);
        assert_eq!(opening[0]["method"], method);
        assert_eq!(opening[0]["params"]["sessionId"], "old");
        // Its replay is no output.
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "again"}});
        let params = json!({"sessionId": "old", "update": update});
        let replay = json!({"method": "session/update", "params": params});
        assert_eq!(hears(&mut acp, replay), (vec![], vec![]));
        let id = opening[0]["id"].clone();
        let refused = json!({"id": id, "error": {"code": -32602, "message": "gone"}});
        let gone = vec![AgentOutput::NotResumed("gone".to_owned())];
        assert_eq!(hears(&mut acp, refused).1, gone);
    }
    let mut acp = driver();
    let none = vec![AgentOutput::NotResumed("it keeps no sessions".to_owned())];
    assert_eq!(opens(&mut acp, &kept, able(false, false)), (vec![], none));

    let messages = [ONE, TWO].map(|id| super::super::AgentMessage {
        id,
        text: String::new(),
        is_of_work: false,
    });
    let known = Known::of(&acp, &kept, &messages);
    assert!(known.messages.contains(&ONE) && !known.messages.contains(&TWO));
    assert!(known.may_lack && acp.can_resume(&kept));
    assert!(
        !acp.can_resume("{\"session\":\"old\"}\n"),
        "no prompt was sent"
    );
}

#[test]
fn mail_waits_for_the_end_of_the_turn_and_a_turn_without_output_has_failed() {
    let mut acp = begun();
    let first = prompts(&mut acp, ONE, "one");
    assert_eq!(acp.take_output(), [AgentOutput::Taken(ONE)]);
    assert_eq!(prompts(&mut acp, TWO, "two"), Vec::<Value>::new());
    says(&mut acp, "he");
    says(&mut acp, "llo");
    let usage =
        json!({"totalTokens": 9, "inputTokens": 4, "outputTokens": 3, "cachedReadTokens": 2});
    let answer = json!({"stopReason": "end_turn", "usage": usage});
    let (next, output) = hears(&mut acp, json!({"id": first[0]["id"], "result": answer}));
    let cost = teamd_shared::transcript::Usage {
        input_tokens: 4,
        output_tokens: 3,
        cache_read_input_tokens: 2,
        cache_creation_input_tokens: 0,
    };
    assert_eq!(
        output,
        [
            AgentOutput::Text("hello".to_owned()),
            AgentOutput::Cost(cost),
            ended(None),
            AgentOutput::Taken(TWO),
        ]
    );
    assert_eq!((next.len(), text_of(&next[0])), (1, "two"));
    let meta = json!({"quota": {"token_count": {"input_tokens": 4, "output_tokens": 3}}});
    let (_, output) = hears(
        &mut acp,
        json!({"id": next[0]["id"], "result": {"stopReason": "end_turn", "_meta": meta}}),
    );
    let cost = teamd_shared::transcript::Usage {
        cache_read_input_tokens: 0,
        ..cost
    };
    assert_eq!(output, [AgentOutput::Cost(cost), ended(Some(NO_ANSWER))]);
    for (answer, why) in [
        (
            json!({"result": {"stopReason": "max_tokens"}}),
            "cut at its longest",
        ),
        (json!({"result": {"stopReason": "refusal"}}), "refuses"),
        (json!({"result": {}}), "not of ACP"),
        (
            json!({"error": {"code": 529, "message": "busy"}}),
            "overloaded or fails (status 529): busy",
        ),
        (
            json!({"error": {"code": -32603, "message": "Internal error", "data": {"details": "no"}}}),
            "Internal error: no",
        ),
    ] {
        let prompt = prompts(&mut acp, ONE, "one");
        says(&mut acp, "x");
        let mut frame = answer;
        frame["id"] = prompt[0]["id"].clone();
        match hears(&mut acp, frame).1.last() {
            Some(AgentOutput::TurnEnded {
                failure: Some(told),
            }) => assert!(told.contains(why)),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn a_question_is_answered_by_the_kind_of_its_options() {
    let mut acp = begun();
    let prompt = prompts(&mut acp, ONE, "one");
    acp.take_output();
    let kinds = ["allow_always", "reject_always", "reject_once", "allow_once"];
    let options =
        kinds.map(|kind| json!({"optionId": format!("o-{kind}"), "name": "x", "kind": kind}));
    let asks = |call: Value| {
        let params = json!({"sessionId": "s", "toolCall": call, "options": options.clone()});
        json!({"id": 5, "method": "session/request_permission", "params": params})
    };
    let command = json!({"toolCallId": "c", "title": "make", "kind": "execute", "rawInput": {"command": "make"}});
    let (lines, output) = hears(&mut acp, asks(command.clone()));
    assert_eq!(lines, Vec::<Value>::new());
    let input = json!({"command": "make"});
    assert_eq!(
        output[1..],
        [
            AgentOutput::Call {
                id: "c".into(),
                name: "execute".into(),
                input: input.clone(),
                is_of_team: false,
                refused: None,
            },
            AgentOutput::Asks(Permission {
                id: "5".into(),
                tool: "execute".into(),
                input,
            }),
        ]
    );
    let chosen = |lines: &str| frames(lines)[0]["result"]["outcome"].clone();
    let once = json!({"outcome": "selected", "optionId": "o-allow_once"});
    assert_eq!(chosen(&acp.permit("5", None)), once);
    assert_eq!(acp.permit("5", None), "", "once");
    hears(&mut acp, asks(command.clone()));
    let once = json!({"outcome": "selected", "optionId": "o-reject_once"});
    assert_eq!(chosen(&acp.permit("5", Some("not that"))), once);
    // Some agents end their turns then: the model is told why all the same.
    let (next, output) = hears(
        &mut acp,
        json!({"id": prompt[0]["id"], "result": {"stopReason": "cancelled"}}),
    );
    assert!(text_of(&next[0]).ends_with("not that"), "{next:?}");
    assert!(
        !output
            .iter()
            .any(|it| matches!(it, AgentOutput::TurnEnded { .. }))
    );
    // The call of a team tool is allowed: the session decides what it may do.
    let team = json!({"toolCallId": "t", "title": "mcp__team__task_list", "kind": "other"});
    let (lines, output) = hears(&mut acp, asks(team));
    assert_eq!(lines[0]["result"]["outcome"]["optionId"], "o-allow_once");
    assert_eq!(output, []);
    hears(&mut acp, asks(command.clone()));
    let lines = frames(&acp.interrupt());
    assert_eq!(lines[0]["method"], "session/cancel");
    assert_eq!(
        lines[1]["result"]["outcome"],
        json!({"outcome": "cancelled"})
    );
    let (_, output) = hears(
        &mut acp,
        json!({"id": next[0]["id"], "result": {"stopReason": "cancelled"}}),
    );
    assert!(matches!(output.last(), Some(AgentOutput::TurnEnded { .. })));
    let (lines, output) = hears(&mut acp, asks(command));
    assert_eq!(lines[0]["result"]["outcome"]["optionId"], "o-reject_once");
    assert_eq!(output, [], "there is no turn");
    let fs = json!({"id": 6, "method": "fs/read_text_file", "params": {}});
    assert_eq!(hears(&mut acp, fs).0[0]["error"]["code"], -32601);
}

#[test]
fn a_call_of_a_team_tool_is_told_once_and_only_within_a_turn() {
    let mut acp = begun();
    let (output, mut outcome) = calls(&mut acp, "task_list", json!({}));
    assert_eq!(output, []);
    assert!(
        outcome
            .try_recv()
            .unwrap()
            .content
            .contains("does not know")
    );
    prompts(&mut acp, ONE, "one");
    acp.take_output();
    for title in [
        "team_task_list",
        "task_list (team MCP Server)",
        "mcp__team__task_list",
    ] {
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": title, "title": title, "kind": "other", "status": "in_progress"});
        assert_eq!(shows(&mut acp, call), [], "{title}");
    }
    // One whose title says nothing is known by what it is given, and never waited for.
    let odd = json!({"sessionUpdate": "tool_call", "toolCallId": "odd", "title": "odd", "status": "in_progress", "rawInput": {"a": 1}});
    shows(&mut acp, odd);
    let (output, mut outcome) = calls(&mut acp, "task_list", json!({"a": 1}));
    let answered = AgentOutput::Outcome {
        id: "odd".into(),
        content: "[answered by the team]".into(),
        is_error: false,
    };
    assert_eq!(output[0], answered);
    let Some(AgentOutput::Call {
        id,
        name,
        is_of_team: true,
        refused: None,
        ..
    }) = output.last()
    else {
        panic!("{output:?}")
    };
    assert_eq!(name, "task_list");
    assert!(outcome.try_recv().is_err(), "it comes later");
    acp.send_outcome(id, Outcome::ok("none"));
    assert_eq!(outcome.try_recv().unwrap(), Outcome::ok("none"));
    for (number, told) in ["later", "one plan at a time"].into_iter().enumerate() {
        let (output, mut outcome) = calls(&mut acp, "plan_approval", json!({"plan": "x"}));
        assert_eq!(outcome.try_recv().unwrap().content, told);
        let refuses = matches!(
            output.last(),
            Some(AgentOutput::Call {
                refused: Some(_),
                ..
            })
        );
        assert_eq!(refuses, number == 1);
    }
    let (_, mut outcome) = calls(&mut acp, "no_tool", json!({}));
    assert!(outcome.try_recv().unwrap().is_error);
    // What it is given is known when it runs.
    let update = |kind: &str, status: &str, input: Value| json!({"sessionUpdate": kind, "toolCallId": "run", "title": "bash", "kind": "execute", "status": status, "rawInput": input});
    let pending = update("tool_call", "pending", json!({"cwd": "/w"}));
    assert_eq!(shows(&mut acp, pending), []);
    let given = json!({"command": "make"});
    let runs = update("tool_call_update", "in_progress", given.clone());
    match shows(&mut acp, runs).last() {
        Some(AgentOutput::Call { input, .. }) => assert_eq!(*input, given),
        other => panic!("{other:?}"),
    }
    // A tool of its own is never taken for one of the team.
    let own = json!({"sessionUpdate": "tool_call", "toolCallId": "own", "title": "x", "name": "send_message", "kind": "execute", "status": "in_progress"});
    match shows(&mut acp, own).last() {
        Some(AgentOutput::Call {
            name,
            is_of_team: false,
            ..
        }) => assert_eq!(name, "own_send_message"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_mode_that_skips_questions_is_chosen() {
    let chosen = |current: &str, all: &[&str]| {
        let all: Vec<_> = all.iter().map(|id| json!({"id": id, "name": id})).collect();
        let modes = json!({"currentModeId": current, "availableModes": all});
        mode_to_set(&serde_json::from_value(modes).unwrap()).map(|id| id.0.to_string())
    };
    let is = |id: &str| Some(id.to_owned());
    assert_eq!(chosen("auto", &["auto", "yolo", "default"]), is("default"));
    assert_eq!(chosen("default", &["auto", "default"]), None);
    assert_eq!(
        chosen("agent", &["read-only", "agent", "agent-full-access"]),
        is("agent-full-access")
    );
    assert_eq!(chosen("plan", &["plan", "build"]), is("build"));
    assert_eq!(
        chosen("bypassAll", &["bypassAll", "acceptEdits", "careful"]),
        is("careful")
    );
    assert_eq!(chosen("careful", &["careful", "auto"]), None);
    assert_eq!(chosen("yolo", &["yolo"]), None);
}

fn steering() -> Acp {
    let mut acp = driver();
    let mut able = able(true, true);
    able["_meta"] = json!({"steering": {"supported": true}});
    let (opening, _) = opens(&mut acp, "", able);
    let id = &opening[0]["id"];
    hears(&mut acp, json!({"id": id, "result": {"sessionId": "s"}}));
    acp.take_record();
    acp
}

fn ends(acp: &mut Acp, prompt: &Value, reason: &str) -> (Vec<Value>, Vec<AgentOutput>) {
    let result = json!({"stopReason": reason});
    hears(acp, json!({"id": prompt["id"], "result": result}))
}

#[test]
fn a_message_joins_the_turn_of_an_agent_that_announces_it() {
    let mut acp = steering();
    let first = prompts(&mut acp, ONE, "one");
    acp.take_output();
    acp.take_record();
    let steered = prompts(&mut acp, TWO, "two");
    assert_eq!(steered[0]["method"], "_session/steering");
    assert_eq!(text_of(&steered[0]), "two");
    let idle = &steered[0]["params"]["_meta"]["steering"]["idleBehavior"];
    assert_eq!(idle, "promptRequired");
    let line = |what: &str| format!("{{\"{what}\":\"{TWO}\"}}\n");
    assert_eq!(acp.take_record(), line("steered"), "before it is sent");
    let injected = json!({"id": steered[0]["id"], "result": {"outcome": "injected"}});
    let (lines, output) = hears(&mut acp, injected);
    assert_eq!((lines, output), (vec![], vec![]), "it may not be read yet");
    says(&mut acp, "x");
    let (_, output) = ends(&mut acp, &first[0], "end_turn");
    assert_eq!(output[1..], [AgentOutput::Taken(TWO), ended(None)]);
    assert_eq!(acp.take_record(), line("message"));

    // Cut off before that, it may be part of the session, or not.
    let messages = [ONE, TWO].map(|id| super::super::AgentMessage {
        id,
        text: String::new(),
        is_of_work: false,
    });
    let session = format!("{{\"session\":\"s\"}}\n{{\"message\":\"{ONE}\"}}\n");
    let cut_off = Known::of(&acp, &format!("{session}{}", line("steered")), &messages);
    assert!(cut_off.unsure.contains(&TWO) && !cut_off.messages.contains(&TWO));
    let whole = format!("{session}{}{}", line("steered"), line("message"));
    let whole = Known::of(&acp, &whole, &messages);
    assert!(whole.unsure.is_empty() && whole.messages.contains(&TWO));
}

#[test]
fn a_message_that_the_turn_does_not_take_is_the_next_prompt() {
    for answer in [
        json!({"result": {"outcome": "promptRequired"}}),
        json!({"result": {}}),
        json!({"error": {"code": -32601, "message": "no such method"}}),
    ] {
        for is_late in [false, true] {
            let mut acp = steering();
            let first = prompts(&mut acp, ONE, "one");
            let steered = prompts(&mut acp, TWO, "two");
            says(&mut acp, "x");
            let mut frame = answer.clone();
            frame["id"] = steered[0]["id"].clone();
            let next = if is_late {
                assert_eq!(ends(&mut acp, &first[0], "end_turn").0, Vec::<Value>::new());
                hears(&mut acp, frame)
            } else {
                assert_eq!(hears(&mut acp, frame).0, Vec::<Value>::new());
                ends(&mut acp, &first[0], "end_turn")
            };
            assert_eq!(next.0[0]["method"], "session/prompt", "{answer} {is_late}");
            assert_eq!(text_of(&next.0[0]), "two");
            assert_eq!(next.1.last(), Some(&AgentOutput::Taken(TWO)));
        }
    }
}

#[test]
fn a_message_that_joined_a_turn_ends_with_it_whenever_that_is_said() {
    let mut acp = steering();
    let first = prompts(&mut acp, ONE, "one");
    let steered = prompts(&mut acp, TWO, "two");
    let answer = |outcome: &str| json!({"id": steered[0]["id"], "result": {"outcome": outcome}});
    let (_, output) = ends(&mut acp, &first[0], "refusal");
    let failed = output.last().cloned();
    let (_, output) = hears(&mut acp, answer("injected"));
    assert_eq!(output[0], AgentOutput::Taken(TWO));
    assert_eq!(output.last().cloned(), failed, "its turn had ended so");

    // An interrupted turn takes nothing with it, and begins no other.
    let mut acp = steering();
    let first = prompts(&mut acp, ONE, "one");
    prompts(&mut acp, TWO, "two");
    hears(&mut acp, answer("injected"));
    acp.take_record();
    acp.take_output();
    acp.interrupt();
    assert_eq!(
        prompts(&mut acp, Uuid::from_u128(3), "three"),
        Vec::<Value>::new()
    );
    let (_, output) = ends(&mut acp, &first[0], "cancelled");
    assert!(!output.contains(&AgentOutput::Taken(TWO)), "{output:?}");

    let mut acp = steering();
    prompts(&mut acp, ONE, "one");
    prompts(&mut acp, TWO, "two");
    acp.take_output();
    let (_, output) = hears(&mut acp, answer("startedNewTurn"));
    assert!(matches!(&output[..], [AgentOutput::Unusable(_)]));
}
