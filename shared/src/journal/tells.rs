//! How inbox lines that follow from a decision are written: those that everybody gets share an id, and stand there once,
//! with a list of names. The end of one of a thousand teammates is told to all others: it shall not take 66 kB to say so.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::Tell;
use crate::name::Name;

/// Inbox lines with the same id.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Written {
    /// Whose inboxes.
    to: To,
    /// The id of the lines: the same when they are written again.
    id: Uuid,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum To {
    One(Name),
    Many(Vec<Name>),
}

pub(super) fn serialize<S: Serializer>(tells: &[Tell], serializer: S) -> Result<S::Ok, S::Error> {
    let same = tells.chunk_by(|one, next| one.id == next.id);
    serializer.collect_seq(same.filter_map(|tells| {
        let (first, rest) = tells.split_first()?;
        let to = match rest {
            [] => To::One(first.to.clone()),
            _ => To::Many(tells.iter().map(|tell| tell.to.clone()).collect()),
        };
        Some(Written { to, id: first.id })
    }))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Tell>, D::Error> {
    let mut tells = Vec::new();
    for Written { to, id } in Vec::<Written>::deserialize(deserializer)? {
        match to {
            To::One(to) => tells.push(Tell { to, id }),
            To::Many(names) => tells.extend(names.into_iter().map(|to| Tell { to, id })),
        }
    }
    Ok(tells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Line {
        #[serde(with = "super")]
        tell: Vec<Tell>,
    }

    #[test]
    fn what_all_are_told_stands_there_once() {
        let names = ["lead", "alice", "bob", "carol"].map(|name| Name::of_inbox(name).unwrap());
        let ids = [1, 2, 2, 3].map(Uuid::from_u128);
        let tell = names.into_iter().zip(ids).map(|(to, id)| Tell { to, id }).collect();
        let line = Line { tell };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        let id = |number: u128| Uuid::from_u128(number).to_string();
        let (one, two, three) = (id(1), id(2), id(3));
        assert_eq!(
            text,
            format!(
                r#"{{"tell":[{{"to":"lead","id":"{one}"}},{{"to":["alice","bob"],"id":"{two}"}},{{"to":"carol","id":"{three}"}}]}}"#
            )
        );
    }
}
