//! The ids of calls: each is unique in its conversation, whatever the model's service says.

use std::collections::HashSet;

use teamd_shared::transcript::Block;

use crate::model::prompt::{Part, Turn};

/// Gives a new id to each call without one, and to each whose id the answer or the conversation has already.
pub(super) fn make_unique(content: &mut [Block], turns: &[Turn], fresh: &mut dyn FnMut() -> String) {
    let parts = turns.iter().flat_map(|turn| &turn.parts);
    let mut used: HashSet<String> = parts
        .filter_map(|part| match part {
            Part::Call { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    for block in content {
        let Block::ToolUse { id, .. } = block else { continue };
        while id.is_empty() || !used.insert(id.clone()) {
            *id = fresh();
        }
    }
}

/// Returns an id that no conversation has.
pub(super) fn random() -> String {
    format!("call_{}", &uuid::Uuid::new_v4().simple().to_string()[..24])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::prompt::Role;
    use serde_json::json;

    #[test]
    fn missing_and_repeated_ids_are_made_unique() {
        let call = |id: &str| Block::ToolUse {
            id: id.to_owned(),
            name: "bash".to_owned(),
            input: json!({}),
            message_id: None,
            request_id: None,
        };
        let known = Part::Call { id: "old".to_owned(), name: "bash".to_owned(), input: json!({}) };
        let turns = [Turn { role: Role::Assistant, parts: vec![known] }];
        let mut content = [call("a"), call("a"), call(""), call("old"), call("b")];
        let mut ids = ["old", "a", "n1", "n2", "n3"].into_iter();
        make_unique(&mut content, &turns, &mut || ids.next().unwrap().to_owned());
        assert_eq!(content, [call("a"), call("n1"), call("n2"), call("n3"), call("b")]);
        assert_ne!(random(), random());
    }
}
