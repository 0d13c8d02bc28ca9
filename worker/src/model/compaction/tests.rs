use serde_json::json;
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};

use super::*;

fn long(steps: usize) -> Conversation {
    let mut conversation = Conversation::new(Name::new("alice").unwrap());
    let prompt = Some("port the parser".to_owned());
    conversation.observe(&Event::Life { incarnation: 1, conversation: 1, prompt });
    for step in 0..steps {
        let input = json!({"command": format!("make {step}")});
        let (id, name) = (step.to_string(), "bash".to_owned());
        let content =
            vec![Block::ToolUse { id: id.clone(), name, input, message_id: None, request_id: None }];
        conversation.observe(&Event::Answer { content, usage: Usage::default(), cut: None });
        let content = format!("output {step} {}", "x".repeat(3000));
        conversation.observe(&Event::Result { tool_use_id: id, content, is_error: false });
    }
    conversation
}

#[test]
fn a_conversation_is_cut_before_its_window_is_full() {
    assert!(!is_due(0, 1000) && !is_due(799, 1000) && is_due(800, 1000) && is_due(5000, 1000));
}

#[test]
fn the_last_answers_that_fit_are_kept() {
    let conversation = long(10);
    assert_eq!(kept(&conversation, 8000), 1);
    assert_eq!(kept(&conversation, 100), 0);
    assert_eq!(kept(&conversation, 1_000_000), 10);
}

#[test]
fn the_question_is_what_the_cache_holds_and_an_order() {
    let conversation = long(3);
    let asked = question(conversation.turns());
    assert_eq!(asked.len(), conversation.turns().len());
    assert_eq!(asked[..asked.len() - 1], conversation.turns()[..asked.len() - 1]);
    assert!(matches!(asked.last().unwrap().parts.last(), Some(Part::Text(text)) if text == ORDER));
}

#[test]
fn a_question_of_what_is_too_long_already_fits() {
    for (steps, window) in [(200, 2000), (200, 20_000), (3, 50)] {
        let asked = short_question(long(steps).turns(), window);
        let bytes: u64 = asked.iter().map(weight).sum();
        let fits = window * BYTES_PER_TOKEN / 2 + 2 * ORDER.len() as u64 + 2 * GLANCE as u64;
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
    conversation.observe(&Event::Answer { content: vec![plan], usage: Usage::default(), cut: None });
    let verdict = "approved\nmind the tests".to_owned();
    conversation.observe(&Event::Result { tool_use_id: "p".to_owned(), content: verdict, is_error: false });
    conversation
        .observe(&Event::Asked { request_id: RequestId::new("a1b2").unwrap(), reason: "late".to_owned() });
    for written in [Some("the lexer is done"), Some("  "), None] {
        let text = compose(&conversation, written);
        for kept in ["port the parser", "first the lexer", "mind the tests", "a1b2", "shutdown_response"] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        let model = written.is_some_and(|written| !written.trim().is_empty());
        assert_eq!(text.contains("the lexer is done"), model);
        assert_eq!(text.contains("bash {\"command\":\"make 1\"}"), !model, "{text}");
    }
}
