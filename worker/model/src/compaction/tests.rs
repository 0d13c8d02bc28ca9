use serde_json::json;
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};

use super::*;

fn long(steps: usize) -> ModelConversation {
    let mut conversation = ModelConversation::new(Name::new("alice").unwrap());
    let prompt = Some("port the parser".to_owned());
    conversation.observe(&Event::Incarnation {
        incarnation: 1,
        conversation: 1,
        prompt,
        tools: teamd_shared::tool_set::ToolSet::default(),
    });
    for step in 0..steps {
        let input = json!({"command": format!("make {step}")});
        let id = step.to_string();
        let name = "bash".to_owned();
        let content = vec![Block::ToolUse {
            id: id.clone(),
            name,
            input,
            message_id: None,
            request_id: None,
        }];
        conversation.observe(&Event::Answer {
            content,
            usage: Usage::default(),
            cut: None,
            length: None,
            model_calls: 1,
        });
        let content = format!("output {step} {}", "x".repeat(3000));
        conversation.observe(&Event::Result {
            tool_use_id: id,
            content,
            is_error: false,
            images: Vec::new(),
            killed_for_memory: None,
        });
    }
    conversation
}

fn cut() -> Event {
    Event::Compacted {
        summary: "s".to_owned(),
        kept: 0,
        usage: Usage::default(),
        at_rest: false,
    }
}

fn answered() -> Event {
    Event::Answer {
        content: Vec::new(),
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    }
}

#[test]
fn a_conversation_is_cut_before_its_window_is_full_and_not_again_before_it_was_tried() {
    let mut room = Room::new(1000);
    assert!(!room.is_full(0) && !room.is_full(799) && room.is_full(800) && room.is_full(5000));
    room.observe(&cut());
    assert!(!room.is_full(5000));
    room.observe(&answered());
    assert!(room.is_full(5000) && !room.is_full(10));
}

#[test]
fn what_the_service_refuses_is_cut_ever_shorter_and_then_given_up_until_the_next_work() {
    let mut room = Room::new(100_000);
    let conversation = long(3);
    assert_eq!(room.kept(&conversation), 3);
    let mut before = room.for_summary();
    for _ in 0..3 {
        room.refused = true;
        assert!(room.is_full(10) && room.refused && room.kept(&conversation) == 0);
        room.observe(&cut());
        assert!(!room.is_full(10) && room.for_summary() < before);
        before = room.for_summary();
    }
    room.refused = true;
    assert!(!room.is_full(10), "it has to end");
    let idle = teamd_shared::message::IdleReason::Failed;
    room.observe(&Event::Idle {
        idle_reason: idle,
        content: String::new(),
        message_id: uuid::Uuid::nil(),
        goes_on: false,
    });
    room.refused = true;
    assert!(room.is_full(10), "another piece of work may fit");
}

#[test]
fn the_last_answers_that_fit_are_kept() {
    let conversation = long(10);
    for (window, kept) in [(8000, 1), (100, 0), (1_000_000, 10)] {
        assert_eq!(Room::new(window).kept(&conversation), kept);
    }
}

#[test]
fn a_summary_has_its_share_of_the_window_whatever_was_said() {
    let mut conversation = long(2);
    for _ in 0..50 {
        let message = json!({"type": "message", "from": "bob", "content": "y".repeat(20_000)});
        conversation.observe(&Event::Messages {
            messages: vec![message],
        });
    }
    let at_rest = Occasion::Asked { at_rest: true };
    let text = compose(&conversation, at_rest, "", 0, 20_000);
    assert!(text.contains("a person wanted it") && text.contains("that work has ended"));
    for room in [2000, 20_000, 200_000] {
        for kept in [0, 2] {
            let text = compose(
                &conversation,
                Occasion::Long,
                &"w".repeat(500_000),
                kept,
                room,
            );
            assert!(text.len() < room + 1500, "{} of {room}", text.len());
        }
    }
}

#[test]
fn a_guide_has_a_small_share_of_the_window() {
    for (window, bytes) in [(4000, 1200), (200_000, 60_000)] {
        assert_eq!(Room::new(window).for_guide(), bytes);
    }
}

#[test]
fn the_question_is_what_the_cache_holds_and_an_order() {
    let conversation = long(3);
    let turns = conversation.turns();
    let asked = question(turns.to_vec(), Occasion::Long);
    assert_eq!(asked.len(), turns.len());
    assert_eq!(asked[..asked.len() - 1], turns[..asked.len() - 1]);
    assert!(
        matches!(asked.last().unwrap().parts.last(), Some(TurnPart::Text(text)) if text.ends_with(ORDER))
    );
}

#[test]
fn a_question_of_what_is_too_long_already_fits() {
    for (steps, window) in [(200, 2000), (200, 20_000), (3, 50)] {
        let room = Room::new(window).for_short_question();
        let asked = short_question(long(steps).turns().into_owned(), Occasion::Long, room);
        let bytes: usize = asked.iter().map(PromptTurn::bytes).sum();
        let fits = room + 2 * ORDER.len() + 2 * GLANCE;
        assert!(bytes <= fits, "{bytes} of {fits}");
        assert_eq!(asked[0].role, Role::User);
    }
}

#[test]
fn task_plan_and_shutdown_are_kept_word_for_word_whatever_the_model_wrote() {
    let mut conversation = long(2);
    let input = json!({"plan": "first the lexer"});
    let plan = Block::ToolUse {
        id: "p".to_owned(),
        name: "plan_approval".to_owned(),
        input,
        message_id: None,
        request_id: None,
    };
    conversation.observe(&Event::Answer {
        content: vec![plan],
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    });
    let verdict = "approved\nmind the tests".to_owned();
    conversation.observe(&Event::Result {
        tool_use_id: "p".to_owned(),
        content: verdict,
        is_error: false,
        images: Vec::new(),
        killed_for_memory: None,
    });
    conversation.observe(&Event::Asked {
        request_id: RequestId::new("a1b2").unwrap(),
        reason: "late".to_owned(),
    });
    for written in ["the lexer is done", "  ", ""] {
        let text = compose(&conversation, Occasion::Long, written, 0, 60_000);
        for kept in [
            "port the parser",
            "first the lexer",
            "mind the tests",
            "a1b2",
            "shutdown_response",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        let model = !written.trim().is_empty();
        assert_eq!(text.contains("the lexer is done"), model);
        assert_eq!(
            text.contains("bash {\"command\":\"make 1\"}"),
            !model,
            "{text}"
        );
    }
}

#[test]
fn a_summary_quotes_the_steps_that_were_written_down() {
    let mut conversation = long(2);
    let writes = |id: &str, step: &str| Event::Answer {
        content: vec![Block::ToolUse {
            id: id.to_owned(),
            name: "todo_write".to_owned(),
            input: json!({"todos": [{"content": step, "status": "in_progress"}]}),
            message_id: None,
            request_id: None,
        }],
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    };
    let ends = |id: &str, is_error| Event::Result {
        tool_use_id: id.to_owned(),
        content: String::new(),
        is_error,
        images: Vec::new(),
        killed_for_memory: None,
    };
    for (id, step, is_error) in [("a", "port it", false), ("b", "too much", true)] {
        conversation.observe(&writes(id, step));
        conversation.observe(&ends(id, is_error));
    }
    // Also when what was said of it has been cut already.
    conversation.observe(&cut());
    let summary = compose(&conversation, Occasion::Long, "so far", 1, 4000);
    let quoted = "Your list of steps, word for word:\n[>] port it";
    assert!(summary.contains(quoted), "{summary}");
    assert!(!compose(&long(2), Occasion::Long, "so far", 1, 4000).contains("list of steps"));
}
