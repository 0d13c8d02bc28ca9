//! The ids of calls: each is unique in its conversation, even if the service repeats one.

use std::collections::HashSet;

use teamd_shared::transcript::Block;

use crate::prompt::{PromptTurn, TurnPart};

/// Gives a new id to each call without one, and to each whose id the answer or the conversation has
/// already.
pub(super) fn make_unique(content: &mut [Block], turns: &[PromptTurn]) {
    let parts = turns.iter().flat_map(|turn| &turn.parts);
    let mut used: HashSet<String> = parts
        .filter_map(|part| {
            if let TurnPart::Call { id, .. } = part {
                Some(id.clone())
            } else {
                None
            }
        })
        .collect();
    for block in content {
        let Block::ToolUse { id, .. } = block else {
            continue;
        };
        while id.is_empty() || !used.insert(id.clone()) {
            *id = format!("call_{}", &uuid::Uuid::new_v4().simple().to_string()[..24]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Role;
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
        let earlier = TurnPart::Call {
            id: "old".to_owned(),
            name: "bash".to_owned(),
            input: json!({}),
        };
        let turns = [PromptTurn {
            role: Role::Assistant,
            parts: vec![earlier],
        }];
        let mut content = [call("a"), call("a"), call(""), call("old"), call("b")];
        make_unique(&mut content, &turns);
        let ids: Vec<_> = content
            .iter()
            .map(|block| match block {
                Block::ToolUse { id, .. } => id.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((ids[0], ids[4]), ("a", "b"));
        assert!(
            ids[1..4].iter().all(|id| id.starts_with("call_")),
            "{ids:?}"
        );
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 5, "{ids:?}");
    }
}
