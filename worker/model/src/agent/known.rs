//! Which messages a session holds: those are not sent again.
//!
//! Codex writes the text of a message first and then the line with its id. A kill between the two
//! leaves a message without an id. Such a message is found by its text (which ends with the text
//! that was sent), as long as nothing follows it. So the next message to the agent gets an id that
//! is derived from that message, and from then on this id stands for both.

use std::collections::HashSet;

use serde_json::Value;
use uuid::Uuid;

use super::{AgentDriver, AgentMessage};

/// What a session holds of the messages that an agent may have got.
#[derive(Debug, Default)]
pub struct Known {
    /// The messages that it holds.
    pub messages: HashSet<Uuid>,
    /// Those that it may hold, or may not.
    pub unsure: HashSet<Uuid>,
    /// The last of them that has no id there.
    pub without_id: Option<Uuid>,
    /// Whether it may lack the last of them: they were sent, and more is not known.
    pub may_lack: bool,
}

impl Known {
    /// Looks for the messages in the file of a session. A line that was cut short by a kill does
    /// not count, because the agent does not read it.
    pub fn of(driver: &dyn AgentDriver, history: &str, messages: &[AgentMessage]) -> Self {
        let mut texts = driver.texts_without_id(history);
        let mut session = Self {
            may_lack: driver.may_lack_sent(),
            ..Self::default()
        };
        let holds = |entry: &Value, id: Uuid| driver.holds(entry, id);
        let may_hold = |entry: &Value, id: Uuid| driver.may_hold(entry, id);
        for AgentMessage { id, text, .. } in messages {
            let id_or_next = [*id, stands_for(*id)];
            if !id_or_next
                .into_iter()
                .any(|id| has_entry(history, id, holds))
            {
                if has_entry(history, *id, may_hold) {
                    session.unsure.insert(*id);
                    continue;
                }
                let Some(at) = texts.iter().position(|kept| {
                    kept.strip_suffix(text.as_str())
                        .is_some_and(|before| before.is_empty() || before.ends_with("\n\n"))
                }) else {
                    continue;
                };
                texts.remove(at);
                session.without_id = Some(*id);
            }
            session.messages.insert(*id);
        }
        session
    }
}

/// Returns whether a session has an entry that is about this message in this way.
fn has_entry(history: &str, id: Uuid, is_about: impl Fn(&Value, Uuid) -> bool) -> bool {
    history
        .lines()
        .filter(|line| line.contains(&id.to_string()))
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .any(|entry| is_about(&entry, id))
}

/// Returns the id of the message that follows one that the session has without an id.
pub(super) fn stands_for(message: Uuid) -> Uuid {
    Uuid::from_u128(message.as_u128() ^ 1)
}

#[cfg(test)]
mod tests {
    use super::super::{Claude, Codex};
    use super::*;
    use serde_json::json;

    const ONE: Uuid = Uuid::from_u128(0xa0);
    const TWO: Uuid = Uuid::from_u128(0xb0);

    fn known(driver: &dyn AgentDriver, history: &[Value]) -> (Vec<Uuid>, Option<Uuid>) {
        let history: String = history.iter().map(|entry| format!("{entry}\n")).collect();
        of(driver, &history)
    }

    fn of(driver: &dyn AgentDriver, history: &str) -> (Vec<Uuid>, Option<Uuid>) {
        let line = |(id, text): (Uuid, &str)| AgentMessage {
            id,
            text: text.to_owned(),
            is_of_work: false,
        };
        let lines = [(ONE, "go on"), (TWO, "go on")].map(line);
        let Known {
            messages,
            without_id,
            ..
        } = Known::of(driver, history, &lines);
        (
            lines
                .iter()
                .map(|line| line.id)
                .filter(|id| messages.contains(id))
                .collect(),
            without_id,
        )
    }

    #[test]
    fn claude_code_holds_what_stands_whole_in_its_conversation() {
        let claude = Claude::new(Vec::new(), String::new(), None);
        let user = json!({"type": "user", "message": {"role": "user"}, "uuid": ONE});
        let queued = json!({"type": "attachment", "attachment": {"type": "queued_command", "source_uuid": TWO}});
        assert_eq!(
            known(&claude, &[user.clone(), queued]),
            (vec![ONE, TWO], None)
        );
        // Taken from its queue, and not in the conversation yet.
        let removed = json!({"type": "queue-operation", "operation": "remove", "commandUuid": TWO});
        assert_eq!(known(&claude, &[user.clone(), removed]), (vec![ONE], None));
        let line = user.to_string();
        assert_eq!(of(&claude, &line[..line.len() - 4]), (vec![], None));
        assert_eq!(
            of(&claude, &format!("{}\n{line}", &line[..line.len() - 4])),
            (vec![ONE], None)
        );
    }

    #[test]
    fn codex_holds_a_text_whose_id_was_not_written_any_more() {
        let codex = Codex::new(Vec::new(), String::new(), None);
        let text = |text: &str| json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}});
        let id = |id: Uuid| json!({"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "UserMessage", "client_id": id}}});
        assert_eq!(known(&codex, &[text("go on"), id(ONE)]), (vec![ONE], None));
        assert_eq!(known(&codex, &[text("go on")]), (vec![ONE], Some(ONE)));
        assert_eq!(
            known(&codex, &[text("go on"), id(ONE), text("go on")]),
            (vec![ONE, TWO], Some(TWO))
        );
        assert_eq!(
            known(&codex, &[text("other"), text("go on")]),
            (vec![ONE], Some(ONE))
        );
        // What has followed it stands for it.
        let next = [text("go on"), text("your process"), id(stands_for(ONE))];
        assert_eq!(known(&codex, &next), (vec![ONE], None));
        assert_eq!(
            known(
                &codex,
                &[text("go on"), text("of another"), id(Uuid::from_u128(9))]
            ),
            (vec![], None)
        );
    }
}
