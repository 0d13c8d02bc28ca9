use super::super::ImmediateReply;
use super::*;
use teamd_worker_core::tools::Caller;

fn driver() -> Claude {
    Claude::new(
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

fn hears(driver: &mut Claude, frame: &Value) -> (Value, Vec<AgentOutput>) {
    let (answer, output) = driver.parse_line(&frame.to_string());
    (
        if answer.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&answer).unwrap()
        },
        output,
    )
}

fn assistant(block: &Value) -> Value {
    let message = json!({"id": "msg_1", "content": [block], "usage": {"input_tokens": 10, "output_tokens": 1}});
    json!({"type": "assistant", "message": message, "parent_tool_use_id": null})
}

fn tool_call(name: &str, of: &str) -> Value {
    let params = json!({"name": name, "arguments": {}, "_meta": {"claudecode/toolUseId": of}});
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let request = json!({"subtype": "mcp_message", "server_name": "team", "message": message});
    json!({"type": "control_request", "request_id": "r", "request": request})
}

fn text_of(answer: &Value) -> &str {
    answer["response"]["response"]["mcp_response"]["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
}

#[test]
fn a_call_of_a_team_tool_is_answered_once_whichever_comes_first() {
    let mut claude = driver();
    let call = |id: &str| {
        assistant(
            &json!({"type": "tool_use", "id": id, "name": "mcp__team__task_list", "input": {}}),
        )
    };
    let (_, output) = hears(&mut claude, &call("t1"));
    let cost = Usage {
        input_tokens: 10,
        output_tokens: 1,
        ..Usage::default()
    };
    let named = AgentOutput::Call {
        id: "t1".into(),
        name: "task_list".into(),
        input: json!({}),
        is_of_team: true,
        refused: None,
    };
    assert_eq!(
        output,
        [AgentOutput::Begins, AgentOutput::Cost(cost), named]
    );
    assert_eq!(
        hears(&mut claude, &tool_call("task_list", "t1")),
        (Value::Null, Vec::new())
    );
    assert_eq!(
        text_of(&serde_json::from_str(&claude.send_outcome("t1", Outcome::ok("none"))).unwrap()),
        "none"
    );
    hears(&mut claude, &call("t2"));
    assert_eq!(claude.send_outcome("t2", Outcome::error("early")), "");
    let (answer, _) = hears(&mut claude, &tool_call("task_list", "t2"));
    assert_eq!(
        (
            text_of(&answer),
            &answer["response"]["response"]["mcp_response"]["result"]["isError"]
        ),
        ("early", &json!(true))
    );
    for forged in ["t2", "toolu_x", ""] {
        let (answer, output) = hears(&mut claude, &tool_call("task_list", forged));
        assert!(
            text_of(&answer).contains("does not know") && output.is_empty(),
            "{forged}"
        );
    }
}

#[test]
fn what_may_take_days_is_answered_at_once_and_a_question_is_answered_once() {
    let mut claude = driver();
    hears(
        &mut claude,
        &assistant(
            &json!({"type": "tool_use", "id": "p", "name": "mcp__team__plan_approval", "input": {"plan": "x"}}),
        ),
    );
    assert_eq!(
        text_of(&hears(&mut claude, &tool_call("plan_approval", "p")).0),
        "later"
    );
    // Another plan behind it is refused; after the verdict, or the end of the turn (that of an
    // interrupted call, too), it is not.
    let plan = |claude: &mut Claude, id: &str| {
        let block = json!({"type": "tool_use", "id": id, "name": "mcp__team__plan_approval", "input": {"plan": "x"}});
        hears(claude, &assistant(&block));
        text_of(&hears(claude, &tool_call("plan_approval", id)).0).to_owned()
    };
    assert_eq!(plan(&mut claude, "p2"), "one plan at a time");
    assert_eq!(claude.send_outcome("p", Outcome::ok("approved")), "");
    assert_eq!(
        (plan(&mut claude, "p3"), plan(&mut claude, "p4")),
        ("later".into(), "one plan at a time".into())
    );
    hears(
        &mut claude,
        &json!({"type": "result", "is_error": true, "usage": {}}),
    );
    assert_eq!(plan(&mut claude, "p5"), "later");
    let asks = json!({"type": "control_request", "request_id": "q", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}});
    let [AgentOutput::Asks(asked)] = &hears(&mut claude, &asks).1[..] else {
        panic!("no question")
    };
    assert_eq!(
        (asked.tool.as_str(), &asked.input),
        ("Bash", &json!({"command": "ls"}))
    );
    let answered = |line: String| serde_json::from_str::<Value>(&line).unwrap()["response"].clone();
    let allowed = json!({"behavior": "allow", "updatedInput": {"command": "ls"}});
    let answer = answered(claude.permit(&asked.id, None));
    assert_eq!(
        (&answer["request_id"], &answer["response"]),
        (&json!("q"), &allowed)
    );
    assert_eq!(claude.permit(&asked.id, None), "", "once");
    hears(&mut claude, &asks);
    let refused = json!({"behavior": "deny", "message": "not now"});
    assert_eq!(
        answered(claude.permit(&asked.id, Some("not now")))["response"],
        refused
    );
    let of_team = json!({"type": "control_request", "request_id": "q", "request": {"subtype": "can_use_tool", "tool_name": "mcp__team__task_list", "input": {}}});
    assert_eq!(
        hears(&mut claude, &of_team).0["response"]["response"]["behavior"],
        "allow"
    );
    let other = json!({"type": "control_request", "request_id": "q", "request": {"subtype": "hook_callback"}});
    assert_eq!(hears(&mut claude, &other).0["response"]["subtype"], "error");
}

#[test]
fn the_end_of_a_turn_says_what_it_cost_in_all_and_why_it_failed() {
    let mut claude = driver();
    hears(
        &mut claude,
        &assistant(&json!({"type": "text", "text": "hi"})),
    );
    // A second part of the same answer, and what the whole of it has written.
    assert!(matches!(
        hears(
            &mut claude,
            &assistant(&json!({"type": "text", "text": "!"}))
        )
        .1[..],
        [AgentOutput::Text(_)]
    ));
    let written = |count: u64| json!({"type": "stream_event", "event": {"type": "message_delta", "usage": {"output_tokens": count}}});
    let more = Usage {
        output_tokens: 4,
        ..Usage::default()
    };
    assert_eq!(hears(&mut claude, &written(5)).1, [AgentOutput::Cost(more)]);
    assert_eq!(hears(&mut claude, &written(5)).1, []);
    let start =
        json!({"type": "message_start", "message": {"id": "msg_2", "usage": {"input_tokens": 3}}});
    let start = json!({"type": "stream_event", "event": start});
    let read = Usage {
        input_tokens: 3,
        ..Usage::default()
    };
    assert_eq!(
        hears(&mut claude, &start).1,
        [AgentOutput::Begins, AgentOutput::Cost(read)]
    );
    let end = json!({"type": "result", "is_error": false, "result": "hi", "usage": {"input_tokens": 30, "output_tokens": 9}});
    let rest = Usage {
        input_tokens: 17,
        output_tokens: 4,
        ..Usage::default()
    };
    assert_eq!(
        hears(&mut claude, &end).1,
        [
            AgentOutput::Cost(rest),
            AgentOutput::TurnEnded { failure: None }
        ]
    );
    let failed = json!({"type": "result", "is_error": true, "api_error_status": 529, "result": "Overloaded", "usage": {}});
    let why = Some("its service is overloaded or fails (status 529): Overloaded".to_owned());
    assert_eq!(
        hears(&mut claude, &failed).1[1],
        AgentOutput::TurnEnded { failure: why }
    );
}

#[test]
fn what_makes_no_sense_and_what_a_subagent_says_is_no_answer() {
    let mut claude = driver();
    assert_eq!(
        claude.parse_line("{half").1,
        [AgentOutput::Nonsense("{half".to_owned())]
    );
    for odd in [
        json!(null),
        json!([]),
        json!({"type": 5}),
        json!({"type": "assistant"}),
        json!({"type": "user"}),
        json!({"type": "new"}),
    ] {
        let output = hears(&mut claude, &odd).1;
        assert!(
            output
                .iter()
                .all(|output| matches!(output, AgentOutput::Cost(_))),
            "{odd} {output:?}"
        );
    }
    let mut of_subagent = assistant(&json!({"type": "text", "text": "hi"}));
    of_subagent["parent_tool_use_id"] = json!("toolu_1");
    assert_eq!(hears(&mut claude, &of_subagent).1, []);
}

#[test]
fn a_version_that_is_too_old_and_a_session_that_is_not_gone_on_with_are_told() {
    let mut claude = driver();
    let begun = |version: Value| {
        let response = json!({"commands": [], "claude_code_version": version});
        json!({"type": "control_response", "response": {"subtype": "success", "request_id": "begin", "response": response}})
    };
    let too_old = "cannot be driven: version 1.0.88 is too old: 2.1.290 is needed; `npm install -g @anthropic-ai/claude-code` updates it";
    assert_eq!(
        hears(&mut claude, &begun(json!("1.0.88"))).1,
        [AgentOutput::Unusable(too_old.to_owned())]
    );
    for version in [json!("2.1.330"), json!("3.0.0 (Claude Code)"), Value::Null] {
        assert_eq!(hears(&mut claude, &begun(version)).1, [AgentOutput::Ready]);
    }
    let ended = json!({"type": "result", "is_error": true, "errors": ["No conversation found"], "usage": {}});
    claude.begin(&AgentSession {
        id: Uuid::nil(),
        history: Some("x".into()),
        ..AgentSession::default()
    });
    assert_eq!(
        hears(&mut claude, &ended).1,
        [AgentOutput::NotResumed("No conversation found".to_owned())]
    );
    claude.begin(&AgentSession {
        id: Uuid::nil(),
        history: Some("x".into()),
        ..AgentSession::default()
    });
    hears(&mut claude, &begun(json!("2.1.330")));
    assert!(matches!(
        hears(&mut claude, &ended).1[..],
        [_, AgentOutput::TurnEnded { failure: Some(_) }]
    ));
}

#[test]
fn no_settings_of_a_project_lead_it_to_another_model() {
    let variables = [
        ("ANTHROPIC_BASE_URL", "http://here".to_owned()),
        ("ANTHROPIC_API_KEY", "key".to_owned()),
    ];
    let all = driver().arguments(
        &AgentSession {
            id: Uuid::nil(),
            ..AgentSession::default()
        },
        &variables,
    );
    let at = all
        .iter()
        .position(|argument| argument == "--settings")
        .unwrap();
    let settings: Value = serde_json::from_str(&all[at + 1]).unwrap();
    assert_eq!(settings["env"]["ANTHROPIC_BASE_URL"], "http://here");
    assert_eq!(
        (
            &settings["env"]["CLAUDE_CODE_USE_BEDROCK"],
            &settings["env"]["HTTPS_PROXY"]
        ),
        (&json!(""), &json!(""))
    );
    assert!(!all.concat().contains("key\""), "{all:?}");
}

#[test]
fn settings_of_a_project_do_not_outrank_the_gateway() {
    let claude = Claude::new(Vec::new(), String::new(), None);
    let variables = [
        (
            "ANTHROPIC_BASE_URL",
            "http://127.0.0.1:4141/anthropic".to_owned(),
        ),
        ("ANTHROPIC_API_KEY", "token".to_owned()),
    ];
    let arguments = claude.arguments(
        &AgentSession {
            id: Uuid::nil(),
            ..AgentSession::default()
        },
        &variables,
    );
    let at = arguments
        .iter()
        .position(|argument| argument == "--settings")
        .unwrap()
        + 1;
    let settings: Value = serde_json::from_str(&arguments[at]).unwrap();
    assert_eq!(
        settings["env"]["ANTHROPIC_BASE_URL"],
        "http://127.0.0.1:4141/anthropic"
    );
    for name in [
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "HTTP_PROXY",
    ] {
        assert_eq!(settings["env"][name], "", "{name}");
    }
    assert_eq!(settings["apiKeyHelper"], "");
    assert!(
        !arguments.concat().contains("token"),
        "its key is not in the list of processes"
    );
    // That cannot be outranked without its key.
    let scratch = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        use std::io::Write as _;
        std::fs::create_dir_all(scratch.path().join(".claude")).unwrap();
        let mut file = std::fs::File::create(scratch.path().join(".claude/settings.json")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    assert_eq!(claude.refuses(scratch.path()), None);
    for (text, is_refused) in [
        (r#"{"env": {"ANTHROPIC_API_KEY": "x"}}"#, true),
        (r#"{"env": {"FOO": "x"}}"#, false),
        ("{", false),
    ] {
        write(text);
        let why = claude.refuses(scratch.path());
        assert_eq!(
            why.is_some_and(
                |why| why.contains("ANTHROPIC_API_KEY") && why.contains(".claude/settings.json")
            ),
            is_refused
        );
    }
}

/// The token counts as it stands in the environment: no settings say another one, and none of them
/// shows it.
#[test]
fn an_agent_with_a_token_is_led_to_its_vendor_by_its_environment_alone() {
    let claude = Claude::new(Vec::new(), String::new(), None);
    let claude = claude.with_login(Login::Token);
    let proxy = "http://127.0.0.1:4141";
    let variables = [("HTTPS_PROXY", proxy.to_owned())];
    let arguments = claude.arguments(&AgentSession::default(), &variables);
    let settings = arguments
        .iter()
        .find(|argument| argument.contains("apiKeyHelper"));
    let settings: Value = serde_json::from_str(settings.unwrap()).unwrap();
    let variables = settings["env"].as_object().unwrap();
    assert!(!variables.contains_key(CLAUDE_TOKEN), "{settings}");
    assert_eq!(variables["HTTPS_PROXY"], proxy);
    for name in ["ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"] {
        assert_eq!(variables[name], "", "{name}");
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(scratch.path().join(".claude")).unwrap();
    let path = scratch.path().join(".claude/settings.json");
    let mut file = std::fs::File::create(path).unwrap();
    let text = r#"{"env": {"CLAUDE_CODE_OAUTH_TOKEN": "of another"}}"#;
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    let why = claude.refuses(scratch.path()).unwrap();
    assert!(
        why.contains("env.CLAUDE_CODE_OAUTH_TOKEN") && why.contains("the token of the user"),
        "{why}"
    );
    let by_key = Claude::new(Vec::new(), String::new(), None);
    assert_eq!(by_key.refuses(scratch.path()), None);
}
