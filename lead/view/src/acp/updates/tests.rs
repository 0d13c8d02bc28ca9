use serde_json::json;
use teamd_shared::position::Position;
use teamd_shared::transcript::{Entry, Usage};

use super::*;

fn reader() -> UpdateReader {
    let mut reader = UpdateReader::new(&Name::new("alice").unwrap(), Path::new("/w"));
    let begun = Event::Incarnation {
        incarnation: 1,
        conversation: 1,
        prompt: Some("go".to_owned()),
        tools: teamd_shared::tool_set::ToolSet::default(),
    };
    reader.entry(&begun);
    reader
}

fn answer(content: Value) -> Event {
    Event::Answer {
        content: serde_json::from_value(content).unwrap(),
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    }
}

fn said(text: &str) -> Event {
    answer(json!([{"type": "text", "text": text}]))
}

/// What was read at once: the text in progress, and the entries behind it.
fn read(live: &str, events: Vec<Event>) -> NewEntries {
    let entries = events.into_iter().map(|event| Entry {
        at: 1.0,
        inbox: Position::START,
        pending_notices: Vec::new(),
        call: None,
        model: None,
        event,
    });
    NewEntries {
        live: live.to_owned(),
        entries: entries.collect(),
        places: Vec::new(),
        lines: Vec::new(),
    }
}

/// The text that a reader makes of what it reads.
fn text(reader: &mut UpdateReader, live: &str, events: Vec<Event>) -> String {
    let new = read(live, events);
    let mut updates: Vec<SessionUpdate> = Vec::new();
    for entry in &new.entries {
        updates.extend(reader.entry(&entry.event));
    }
    updates.extend(reader.live(&new));
    let texts = updates.iter().map(|update| match update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => text.text.clone(),
            other => panic!("{other:?}"),
        },
        SessionUpdate::ToolCall(call) => format!("<{}>", call.title),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn a_text_is_told_once_however_it_arrives() {
    let mut reader = reader();
    // What stands there at first may be an old one.
    assert_eq!(text(&mut reader, "I", vec![]), "");
    assert_eq!(text(&mut reader, "I lo", vec![]), "I lo");
    assert_eq!(text(&mut reader, "I look", vec![]), "ok");
    assert_eq!(text(&mut reader, "I look", vec![]), "");
    // Its entry comes, and its text stays in the file until the next one begins.
    assert_eq!(text(&mut reader, "I look", vec![said("I look.")]), ".");
    assert_eq!(text(&mut reader, "I look.", vec![]), "");
    // The next one is a paragraph of its own.
    assert_eq!(text(&mut reader, "Fo", vec![]), "\n\nFo");
    // Two answers at once, of which the first is the one that was live.
    let both = vec![said("Found."), said("Done.")];
    assert_eq!(text(&mut reader, "Found.", both), "und.\n\nDone.");
}

#[test]
fn what_a_model_says_again_follows_what_it_had_said() {
    let mut reader = reader();
    text(&mut reader, "", vec![]);
    text(&mut reader, "I thi", vec![]);
    assert_eq!(text(&mut reader, "", vec![]), "");
    assert_eq!(text(&mut reader, "No, I", vec![]), "\n\nNo, I");
    assert_eq!(text(&mut reader, "", vec![said("No, I see.")]), " see.");
}

#[test]
fn a_call_parts_texts_and_shows_what_it_changes() {
    let mut reader = reader();
    let input = json!({"path": "a\u{1b}.rs", "old_text": "x\u{1b}", "new_text": "y"});
    let call = json!({"type": "tool_use", "id": "t", "name": "edit_file", "input": input});
    let edit = answer(json!([{"type": "text", "text": "I edit."}, call]));
    let updates = reader.entry(&edit);
    let SessionUpdate::ToolCall(call) = &updates[1] else {
        panic!("{updates:?}");
    };
    assert_eq!(
        (call.kind, call.status),
        (ToolKind::Edit, ToolCallStatus::InProgress)
    );
    assert_eq!(call.locations[0].path, Path::new("/w/a\\u{1b}.rs"));
    let ToolCallContent::Diff(diff) = &call.content[0] else {
        panic!("{call:?}");
    };
    assert_eq!(diff.old_text.as_deref(), Some("x\\u{1b}"));
    assert_eq!(diff.new_text, "y");
    assert_eq!(text(&mut reader, "", vec![said("Done.")]), "Done.");
}

#[test]
fn a_fence_is_longer_than_any_in_what_it_holds() {
    assert_eq!(fenced("a"), "```\na\n```");
    assert_eq!(fenced("a\n````b`\n"), "`````\na\n````b`\n`````");
}
