//! No message is lost or doubled in effect, and those of one sender stay in order.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use teamd_shared::journal::Team as Fold;

use super::decided::ids;
use crate::stage::{Checked, Stage, hold};

/// Checks all mail of the team after its end.
pub(super) fn check(stage: &Stage, fold: &Fold) -> Checked {
    for name in fold.members.keys() {
        consumed(stage, fold, name.as_str())?;
        by_ids(stage, name.as_str())?;
    }
    repetitions(stage)
}

/// What was sent to a teammate is consumed once, in order, or counted as unread at its end.
fn consumed(stage: &Stage, fold: &Fold, name: &str) -> Checked {
    let taken = stage.taken_since_the_beginning(name);
    let texts: Vec<&str> = taken
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    let mut places = Vec::new();
    let mut missing = Vec::new();
    for sent in stage.ledger.sent.iter().filter(|sent| sent.to == name) {
        let found: Vec<usize> = (0..texts.len())
            .filter(|&at| texts[at] == sent.text)
            .collect();
        hold(found.len() <= 1, || {
            format!("{name} has consumed {:?} {} times", sent.text, found.len())
        })?;
        match found.first() {
            Some(place) => places.push(*place),
            None if sent.told => missing.push(sent.text.as_str()),
            None => {}
        }
    }
    hold(places.is_sorted(), || {
        format!("the order of what was sent to {name} was not kept: {texts:?}")
    })?;
    let unread = unread_for_good(stage, name);
    hold(missing.len() as u64 <= unread, || {
        format!(
            "{missing:?} that {name} was sent are lost; {unread} were counted as unread; {texts:?} has members {:?}",
            fold.members.len()
        )
    })?;
    let unread = texts_left_unread(stage, name);
    let passed = missing
        .iter()
        .find(|text| !unread.iter().any(|left| left == *text));
    hold(passed.is_none(), || {
        format!(
            "{passed:?} that {name} was sent is lost: it does not stand behind what was read, only {unread:?} do"
        )
    })
}

/// The texts of the inbox that stand behind the last position of a conversation, and before that of
/// the next one.
fn texts_left_unread(stage: &Stage, name: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut behind = None;
    for entry in stage.transcript(name) {
        let at = entry["inbox"]["offset"].as_u64().unwrap_or_default();
        let begins =
            entry["entry"] == "incarnation" && entry["conversation"] == entry["incarnation"];
        left.extend(if begins {
            behind.map(|behind| behind..at)
        } else {
            None
        });
        behind = Some(at);
    }
    left.push(behind.unwrap_or_default()..u64::MAX);
    let inbox = stage.text_where_it_lives(name, &format!("inbox/{name}.jsonl"));
    let mut offset = 0;
    let mut texts = Vec::new();
    for line in inbox.split_inclusive('\n') {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let text = if left.iter().any(|part| part.contains(&offset)) {
            message["content"].as_str()
        } else {
            None
        };
        texts.extend(text.map(str::to_owned));
        offset += line.len() as u64;
    }
    texts
}

/// How much mail a teammate left unread for good, as the journal says: what the last incarnation of
/// each of its conversations left. An incarnation that goes on with a conversation reads what the
/// one before has not.
fn unread_for_good(stage: &Stage, name: &str) -> u64 {
    let exits = stage.team.journal().into_iter().filter(|line| {
        line["record"] == "member" && line["event"] == "exited" && line["name"] == name
    });
    let last: BTreeMap<u64, u64> = exits
        .filter_map(|line| {
            Some((
                line["conversation"].as_u64()?,
                line["exit"]["unread"].as_u64()?,
            ))
        })
        .collect();
    last.values().sum()
}

/// A message with an id is consumed once, however often it stands in the inbox.
fn by_ids(stage: &Stage, name: &str) -> Checked {
    let mut seen = HashSet::new();
    for message in stage.taken_since_the_beginning(name) {
        let Some(id) = message["id"].as_str().map(str::to_owned) else {
            continue;
        };
        hold(seen.insert(id.clone()), || {
            format!("{name} has consumed the message {id} twice")
        })?;
    }
    Ok(())
}

/// Lines with the same id are the same line.
fn repetitions(stage: &Stage) -> Checked {
    for (to, lines) in ["lead", "alice", "bob"].map(|name| (name, stage.team.inbox(name))) {
        let by_id = ids(&lines);
        for line in &lines {
            let first = line["id"]
                .as_str()
                .and_then(|id| by_id.get(id))
                .unwrap_or(line);
            hold(same(first, line), || {
                format!(
                    "two lines with one id stand in the inbox of {to}, and differ: {first} and {line}"
                )
            })?;
        }
    }
    Ok(())
}

/// Whether two lines say the same. A later incarnation repeats a line at its own time, under its
/// own number.
fn same(one: &Value, other: &Value) -> bool {
    let said = |line: &Value| {
        let mut line = line.clone();
        if let Some(fields) = line.as_object_mut() {
            fields.retain(|field, _| field != "timestamp" && field != "incarnation");
        }
        line
    };
    said(one) == said(other)
}
