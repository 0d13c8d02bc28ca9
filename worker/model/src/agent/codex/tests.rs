use teamd_shared::transcript::Usage;

use super::super::ImmediateReply;
use super::*;
use teamd_worker_core::tools::Caller;

const SESSION: Uuid = Uuid::from_u128(7);

fn driver() -> Codex {
    Codex::new(
        Caller::Teammate
            .team_tools()
            .map(|text| {
                let immediate_reply = ImmediateReply {
                    text: "later",
                    refusal: Some("one plan at a time"),
                };
                let immediate_reply = (text.name == "plan_approval").then_some(immediate_reply);
                TeamTool {
                    text,
                    immediate_reply,
                }
            })
            .collect(),
        "be kind".to_owned(),
        Some("m".to_owned()),
    )
}

/// A driver whose thread `t` has begun.
fn begun() -> Codex {
    let mut codex = driver();
    codex.begin(&AgentSession {
        id: SESSION,
        ..AgentSession::default()
    });
    hears(
        &mut codex,
        &json!({"id": 1, "result": {"userAgent": "teamd/0.169.0"}}),
    );
    hears(
        &mut codex,
        &json!({"id": 2, "result": {"thread": {"id": "t"}}}),
    );
    codex
}

fn frames(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn hears(codex: &mut Codex, frame: &Value) -> (Vec<Value>, Vec<AgentOutput>) {
    let (answer, output) = codex.parse_line(&frame.to_string());
    (frames(&answer), output)
}

/// Applies a notification of the thread, within its turn.
fn notified(codex: &mut Codex, method: &str, mut params: Value) -> Vec<AgentOutput> {
    params["threadId"] = json!("t");
    hears(codex, &json!({"method": method, "params": params})).1
}

fn turn(codex: &mut Codex) {
    notified(
        codex,
        "turn/started",
        json!({"turn": {"id": "u", "status": "inProgress"}}),
    );
}

fn ends(codex: &mut Codex, turn: Value) -> (Vec<Value>, Vec<AgentOutput>) {
    hears(
        codex,
        &json!({"method": "turn/completed", "params": {"threadId": "t", "turn": turn}}),
    )
}

fn tool(codex: &mut Codex, id: &str, name: &str) -> Vec<AgentOutput> {
    notified(
        codex,
        "item/started",
        json!({"item": {"type": "dynamicToolCall", "id": id, "tool": name, "arguments": {}}}),
    )
}

fn asks(codex: &mut Codex, id: &str) -> Vec<Value> {
    let params =
        json!({"threadId": "t", "turnId": "u", "callId": id, "tool": "task_list", "arguments": {}});
    hears(
        codex,
        &json!({"method": "item/tool/call", "id": 9, "params": params}),
    )
    .0
}

fn text_of(answer: &Value) -> (&str, bool) {
    (
        answer["result"]["contentItems"][0]["text"]
            .as_str()
            .unwrap(),
        answer["result"]["success"] == false,
    )
}

fn put(path: &Path, text: &str) {
    std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), text.as_bytes()).unwrap();
}

#[test]
fn a_thread_is_marked_with_its_session_and_gone_on_with_by_its_file() {
    let mut codex = driver();
    let hello = frames(&codex.begin(&AgentSession {
        id: SESSION,
        ..AgentSession::default()
    }));
    assert_eq!(
        (hello[0]["method"].as_str(), &hello[0]["id"]),
        (Some("initialize"), &json!(1))
    );
    let message = Uuid::from_u128(3);
    assert_eq!(
        codex.send_message(message, "early", Permissions::Allow),
        "",
        "there is no thread yet"
    );
    let (opening, output) = hears(&mut codex, &json!({"id": 1, "result": {}}));
    assert_eq!(
        (opening[0]["method"].as_str(), output),
        (Some("initialized"), Vec::new())
    );
    let params = &opening[1]["params"];
    assert_eq!(opening[1]["method"], "thread/start");
    assert_eq!(
        (&params["threadSource"], &params["model"]),
        (&json!(SESSION), &json!("m"))
    );
    assert_eq!(params["developerInstructions"], "be kind");
    assert!(
        params["dynamicTools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == "plan_approval")
    );
    let (sent, output) = hears(
        &mut codex,
        &json!({"id": 2, "result": {"thread": {"id": "t"}}}),
    );
    assert_eq!(output, [AgentOutput::Ready]);
    assert_eq!(
        (&sent[0]["method"], &sent[0]["params"]["threadId"]),
        (&json!("turn/start"), &json!("t"))
    );
    assert_eq!(sent[0]["params"]["clientUserMessageId"], json!(message));
    assert_eq!(sent[0]["params"]["approvalPolicy"], "never");
    assert_eq!(
        frames(&codex.send_message(message, "x", Permissions::Ask))[0]["params"]["approvalPolicy"],
        "untrusted"
    );

    let state = tempfile::tempdir().unwrap();
    let day = state.path().join("codex/sessions/2026/11/25");
    std::fs::create_dir_all(&day).unwrap();
    let thread = Uuid::from_u128(5);
    let file = |thread: Uuid| day.join(format!("rollout-2026-11-25T19-09-36-{thread}.jsonl"));
    let first = |session: Uuid| {
        json!({"type": "session_meta", "payload": {"thread_source": session}}).to_string()
    };
    put(
        &file(Uuid::from_u128(6)),
        &format!("{}\n{SESSION}", first(Uuid::from_u128(8))),
    );
    put(&day.join("rollout-x.jsonl"), &first(SESSION));
    std::os::unix::fs::symlink("/dev/zero", file(Uuid::from_u128(9))).unwrap();
    assert_eq!(codex.history(state.path(), SESSION), None);
    put(&file(thread), &first(SESSION));
    let history = codex.history(state.path(), SESSION);
    assert_eq!(history, Some(file(thread)));
    codex.begin(&AgentSession {
        id: SESSION,
        history,
        ..AgentSession::default()
    });
    let (opening, _) = hears(&mut codex, &json!({"id": 1, "result": {}}));
    assert_eq!(opening[1]["method"], "thread/resume");
    assert_eq!(opening[1]["params"]["threadId"], json!(thread));
    let (_, output) = hears(
        &mut codex,
        &json!({"id": 2, "error": {"code": -32600, "message": "in use"}}),
    );
    assert_eq!(output, [AgentOutput::NotResumed("in use".to_owned())]);

    let mut codex = driver();
    codex.begin(&AgentSession {
        id: SESSION,
        ..AgentSession::default()
    });
    let too_old = "cannot be driven: version 0.20.1 is too old: 0.150.0 is needed; `npm install -g @openai/codex` updates it";
    let (sent, output) = hears(
        &mut codex,
        &json!({"id": 1, "result": {"userAgent": "teamd/0.20.1 (Debian; x86_64)"}}),
    );
    assert_eq!(
        (sent, output),
        (Vec::new(), vec![AgentOutput::Unusable(too_old.to_owned())])
    );
    hears(
        &mut codex,
        &json!({"id": 1, "result": {"userAgent": "teamd/0.170.0 (Debian; x86_64)"}}),
    );
    let (_, output) = hears(&mut codex, &json!({"id": 2, "error": {"message": "no"}}));
    assert_eq!(
        output,
        [AgentOutput::Unusable("does not begin: no".to_owned())]
    );
}

#[test]
fn a_message_that_the_turn_does_not_take_is_said_after_it() {
    let mut codex = begun();
    turn(&mut codex);
    let message = Uuid::from_u128(3);
    let id = frames(&codex.send_message(message, "more", Permissions::Allow))[0]["id"].clone();
    assert_eq!(
        hears(
            &mut codex,
            &json!({"id": id, "error": {"message": "not now"}})
        ),
        (Vec::new(), Vec::new())
    );
    let (sent, output) = ends(&mut codex, json!({"id": "u", "status": "completed"}));
    assert_eq!(output, [AgentOutput::TurnEnded { failure: None }]);
    assert_eq!(
        (
            &sent[0]["method"],
            &sent[0]["params"]["clientUserMessageId"]
        ),
        (&json!("turn/start"), &json!(message))
    );
    // Without a turn, nothing can take it.
    let (_, output) = hears(
        &mut codex,
        &json!({"id": sent[0]["id"], "error": {"message": "too long"}}),
    );
    let failure = Some("it does not take a message: too long".to_owned());
    assert_eq!(
        output,
        [
            AgentOutput::Taken(message),
            AgentOutput::TurnEnded { failure }
        ]
    );
    let item = json!({"item": {"type": "userMessage", "clientId": message.to_string()}});
    assert_eq!(
        notified(&mut codex, "item/started", item),
        [AgentOutput::Taken(message)]
    );
}

#[test]
fn a_call_of_a_team_tool_is_answered_once_whichever_comes_first() {
    let mut codex = begun();
    let called = AgentOutput::Call {
        id: "c1".into(),
        name: "task_list".into(),
        input: json!({}),
        is_of_team: true,
        refused: None,
    };
    assert_eq!(
        tool(&mut codex, "c1", "task_list"),
        [AgentOutput::Begins, called]
    );
    assert_eq!(asks(&mut codex, "c1"), Vec::<Value>::new());
    assert_eq!(
        text_of(&frames(&codex.send_outcome("c1", Outcome::ok("none")))[0]),
        ("none", false)
    );
    tool(&mut codex, "c2", "task_list");
    assert_eq!(codex.send_outcome("c2", Outcome::error("early")), "");
    assert_eq!(text_of(&asks(&mut codex, "c2")[0]), ("early", true));
    tool(&mut codex, "p", "plan_approval");
    assert_eq!(text_of(&asks(&mut codex, "p")[0]), ("later", false));
    assert_eq!(tool(&mut codex, "c3", "no_tool"), []);
    for forged in ["c1", "c3", "call_x", ""] {
        let answer = asks(&mut codex, forged);
        assert!(
            text_of(&answer[0]).0.contains("does not know") && text_of(&answer[0]).1,
            "{forged}"
        );
    }
    let asks = json!({"method": "item/commandExecution/requestApproval", "id": 0, "params": {}});
    let [AgentOutput::Asks(asked)] = &hears(&mut codex, &asks).1[..] else {
        panic!("no question")
    };
    for (refusal, decision) in [(None, "accept"), (Some("no"), "decline")] {
        let answer = frames(&codex.permit(&asked.id, refusal));
        assert_eq!(
            (&answer[0]["id"], &answer[0]["result"]["decision"]),
            (&json!(0), &json!(decision))
        );
        let reason = answer.get(1).map(|sent| {
            sent["params"]["input"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        assert_eq!(reason, refusal.map(|why| format!("{REFUSED}{why}")));
    }
    let other = json!({"method": "item/tool/requestUserInput", "id": 1, "params": {}});
    assert_eq!(hears(&mut codex, &other).0[0]["error"]["code"], -32601);
}

#[test]
fn a_command_has_its_outcome_or_runs_on_when_the_model_does() {
    let mut codex = begun();
    turn(&mut codex);
    let item = |id: &str, more: Value| {
        let mut item = json!({"type": "commandExecution", "id": id, "command": "make"});
        for (name, value) in more.as_object().unwrap().iter() {
            item[name] = value.clone();
        }
        json!({"item": item})
    };
    let begins = |codex: &mut Codex, id: &str| {
        notified(
            codex,
            "item/started",
            item(id, json!({"status": "inProgress"})),
        )
    };
    let input = json!({"command": "make"});
    let call = AgentOutput::Call {
        id: "c".into(),
        name: "exec_command".into(),
        input,
        is_of_team: false,
        refused: None,
    };
    assert_eq!(begins(&mut codex, "c"), [AgentOutput::Begins, call]);
    let failed = json!({"status": "failed", "exitCode": 3, "aggregatedOutput": "no rule"});
    let content = "no rule\n[exit code 3]".to_owned();
    let outcome = AgentOutput::Outcome {
        id: "c".into(),
        content,
        is_error: true,
    };
    assert_eq!(
        notified(&mut codex, "item/completed", item("c", failed.clone())),
        [outcome]
    );
    assert_eq!(
        notified(&mut codex, "item/completed", item("c", failed)),
        [],
        "twice"
    );

    let runs_on = |id: &str| AgentOutput::Outcome {
        id: id.into(),
        content: "[runs on in the background]".to_owned(),
        is_error: false,
    };
    begins(&mut codex, "d");
    let last = json!({"inputTokens": 100, "cachedInputTokens": 60, "cacheWriteInputTokens": 10, "outputTokens": 5});
    let cost = Usage {
        input_tokens: 30,
        output_tokens: 5,
        cache_read_input_tokens: 60,
        cache_creation_input_tokens: 10,
    };
    let costs = |turn: &str| json!({"turnId": turn, "tokenUsage": {"last": last}});
    assert_eq!(
        notified(&mut codex, "thread/tokenUsage/updated", costs("of-before")),
        []
    );
    assert_eq!(
        notified(&mut codex, "thread/tokenUsage/updated", costs("u")),
        [runs_on("d"), AgentOutput::Cost(cost)]
    );
    begins(&mut codex, "e");
    assert_eq!(tool(&mut codex, "h", "task_list")[0], runs_on("e"));
    begins(&mut codex, "f");
    let (_, output) = ends(&mut codex, json!({"id": "u", "status": "completed"}));
    assert_eq!(
        output,
        [runs_on("f"), AgentOutput::TurnEnded { failure: None }]
    );
}

#[test]
fn a_failure_says_what_the_service_has_answered() {
    let mut codex = begun();
    let info = |kind: &str, status: u16| json!({kind: {"httpStatusCode": status}});
    let retry = json!({
        "error": {"message": "Reconnecting... 1/5", "codexErrorInfo": info("responseStreamDisconnected", 529), "additionalDetails": "overloaded"},
        "willRetry": true,
    });
    let why = "its service is overloaded or fails (status 529): Reconnecting... 1/5: overloaded"
        .to_owned();
    assert_eq!(
        notified(&mut codex, "error", retry),
        [AgentOutput::Retry(why)]
    );
    let error =
        json!({"message": "unauthorized", "codexErrorInfo": info("httpConnectionFailed", 401)});
    for (turn, why) in [
        (
            json!({"status": "failed", "error": error}),
            "its service refuses the key (status 401): unauthorized",
        ),
        (
            json!({"status": "failed", "error": {"message": "odd", "codexErrorInfo": "other"}}),
            "odd",
        ),
        (json!({"status": "interrupted"}), "its turn is interrupted"),
        (json!({}), "its turn is over, without a status"),
    ] {
        assert_eq!(
            ends(&mut codex, turn).1,
            [AgentOutput::TurnEnded {
                failure: Some(why.to_owned())
            }]
        );
    }
}

#[test]
fn what_makes_no_sense_and_what_a_subagent_says_is_no_answer() {
    let mut codex = begun();
    assert_eq!(
        codex.parse_line("{half").1,
        [AgentOutput::Nonsense("{half".to_owned())]
    );
    for odd in [
        json!(null),
        json!([]),
        json!({"id": "x", "result": 5}),
        json!({"id": 77, "error": {}}),
        json!({"method": "item/started"}),
        json!({"method": "item/completed", "params": {"threadId": "t", "item": {"id": "of-no-call"}}}),
        json!({"method": "new", "params": []}),
    ] {
        assert_eq!(hears(&mut codex, &odd), (Vec::new(), Vec::new()), "{odd}");
    }
    let item = json!({"type": "agentMessage", "text": "hi"});
    let of = |thread: &str| json!({"method": "item/completed", "params": {"threadId": thread, "item": item}});
    assert_eq!(
        hears(&mut codex, &of("t")).1,
        [AgentOutput::Begins, AgentOutput::Text("hi".to_owned())]
    );
    assert_eq!(hears(&mut codex, &of("of-a-subagent")).1, []);
}
