//! How inbox lines that follow from a decision are written: those that many members get share an
//! id, and are written once, with a list of names. The end of one of a thousand teammates is
//! announced to all others, and must not take 66 kB.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::Notice;
use crate::name::Name;

/// Up to so many are written one by one, the form that every reader knows.
const FEW: usize = 8;

/// Inbox lines with the same id.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct NoticeGroup {
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

impl NoticeGroup {
    fn of_one(notice: &Notice) -> Self {
        Self {
            to: To::One(notice.to.clone()),
            id: notice.id,
        }
    }
}

pub(super) fn serialize<S: Serializer>(tells: &[Notice], serializer: S) -> Result<S::Ok, S::Error> {
    let same = tells.chunk_by(|one, next| one.id == next.id);
    serializer.collect_seq(same.flat_map(|same| match same {
        [first, ..] if same.len() > FEW => {
            vec![NoticeGroup {
                to: To::Many(same.iter().map(|tell| tell.to.clone()).collect()),
                id: first.id,
            }]
        }
        few => few.iter().map(NoticeGroup::of_one).collect(),
    }))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Notice>, D::Error> {
    let mut tells = Vec::new();
    for NoticeGroup { to, id } in Vec::<NoticeGroup>::deserialize(deserializer)? {
        match to {
            To::One(to) => tells.push(Notice { to, id }),
            To::Many(names) => tells.extend(names.into_iter().map(|to| Notice { to, id })),
        }
    }
    Ok(tells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        #[serde(with = "super")]
        tell: Vec<Notice>,
    }

    /// A line for as many as have each of these ids.
    fn line(ids: &[(u128, usize)]) -> Sample {
        let receivers = ids
            .iter()
            .flat_map(|&(id, count)| (0..count).map(move |number| (id, number)));
        let tell = receivers.map(|(id, number)| {
            let to = Name::new(&format!("w{number}")).unwrap();
            Notice {
                to,
                id: Uuid::from_u128(id),
            }
        });
        Sample {
            tell: tell.collect(),
        }
    }

    #[test]
    fn what_many_are_told_stands_there_once_and_what_few_are_told_as_ever() {
        for (ids, written) in [
            (&[(1, 8), (2, 1)][..], 9),
            (&[(1, 1), (2, 9), (3, 1)], 3),
            (&[(1, 1000)], 1),
            (&[], 0),
        ] {
            let line = line(ids);
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), line);
            assert_eq!(text.matches("\"id\"").count(), written, "{text}");
        }
        assert!(serde_json::to_string(&line(&[(1, 1000)])).unwrap().len() < 8_000);
        let few = serde_json::to_string(&line(&[(1, 1)])).unwrap();
        assert_eq!(
            few,
            r#"{"tell":[{"to":"w0","id":"00000000-0000-0000-0000-000000000001"}]}"#
        );
    }
}
