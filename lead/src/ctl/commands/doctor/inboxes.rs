//! The inboxes, and how far each reader has taken its own in: the same reader looks as reads them at work.

use std::sync::Arc;

use teamd_shared::inbox::{Count, ReadError, Reader, Standing, count_lines, owner_of, standing};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::Kind;
use teamd_shared::transcript;

use super::finding::Finding;
use super::seen::Seen;

const CHECK: &str = "inboxes";

/// What stands in one inbox.
#[derive(Debug, Default)]
struct Content {
    lines: u64,
    /// Where the lines begin that are no messages, and why the first of them is none.
    rejected: Vec<u64>,
    why: Option<String>,
    /// Where a last line begins that has no end, and how long it is, in bytes.
    torn: Option<(u64, u64)>,
}

/// Judges what stands in them.
pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let (mut findings, mut lines, mut count) = (Vec::new(), 0, 0);
    for found in seen.in_folder(Some("inbox")) {
        let Some(name) = owner_of(found.at.file_name()) else { continue };
        if found.kind != Kind::File {
            // Told with what else is no file.
            continue;
        }
        count += 1;
        match read(seen, &name) {
            Ok(content) => {
                lines += content.lines;
                findings.extend(content.findings(&name, cursor(seen, &name)));
            }
            Err(error) => findings.push(
                Finding::problem(CHECK, error.to_string())
                    .about(format!("read {name}"))
                    .means(format!("{name} gets no mail")),
            ),
        }
        findings.extend(nobodys(seen, &name));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{count} inboxes, {lines} lines, each a message")));
    }
    findings
}

fn read(seen: &Seen, name: &Name) -> Result<Content, ReadError> {
    let mut reader = Reader::open(Arc::clone(&seen.dir), name, Position::START)?.without_memory();
    let mut content = Content::default();
    loop {
        let batch = reader.read_new()?;
        for line in &batch.lines {
            content.lines += 1;
            if let Err(rejection) = &line.message {
                content.rejected.push(line.offset);
                content.why.get_or_insert_with(|| rejection.reason.to_string());
            }
        }
        if !batch.more {
            break;
        }
    }
    let (end, rest) = (reader.position().offset, reader.unread_bytes()?);
    content.torn = (rest > 0).then_some((end, rest));
    Ok(content)
}

impl Content {
    fn findings(&self, name: &Name, taken: Option<Position>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let (Some(first), Some(why)) = (self.rejected.first(), &self.why) {
            let taken = taken.map_or(0, |position| position.offset);
            let waiting = self.rejected.iter().filter(|&&offset| offset >= taken).count();
            let all = self.rejected.len();
            let what = match all {
                1 => format!("1 line of inbox/{name}.jsonl is no message, at byte {first}: {why}"),
                _ => format!(
                    "{all} lines of inbox/{name}.jsonl are no messages; the first, at byte {first}: {why}"
                ),
            };
            findings.push(
                Finding::note(CHECK, what)
                    .about(format!("rejected {name} {first} {all}"))
                    .means(match waiting {
                        0 => format!("they were passed over; those that were read stand in inbox/{name}.rejected.jsonl, and the lead was told"),
                        _ => format!("{waiting} of them are still to be read; then they go to inbox/{name}.rejected.jsonl"),
                    })
                    .next(format!("`teamctl lint {name}.jsonl` in inbox/ shows each; correct whoever writes them")),
            );
        }
        if let Some((offset, length)) = self.torn {
            findings.push(
                Finding::note(CHECK, format!("inbox/{name}.jsonl ends with {length} bytes without a newline"))
                    .about(format!("torn {name} {offset} {length}"))
                    .means("a writer died, or wrote no newline: it is no message yet; the next writer of ours leads its line with a newline")
                    .next(format!("`echo >> inbox/{name}.jsonl` ends that line, if it was meant as one")),
            );
        }
        findings
    }
}

fn nobodys(seen: &Seen, name: &Name) -> Option<Finding> {
    let known = seen.team().is_none_or(|team| team.members.contains_key(name)) || *name == Name::lead();
    (!known).then(|| {
        Finding::note(CHECK, format!("there is an inbox of {name}, who is not on the roster"))
            .means("what stands there is read by nobody")
            .next(format!("`teamctl spawn {name}` makes a reader; else move the file away"))
    })
}

/// How far a member has taken its inbox in: its transcript says, else the journal where it begins.
fn cursor(seen: &Seen, name: &Name) -> Option<Position> {
    let told = transcript::position(&seen.dir, name).ok().flatten();
    let member = || seen.team()?.members.get(name).map(|state| state.record.begins_at);
    told.or_else(member)
}

/// Judges the cursors: each is a place in its inbox, behind the line that was read there.
pub(super) fn judge_cursors(seen: &Seen) -> Vec<Finding> {
    const CHECK: &str = "cursors";
    let Some(team) = seen.team() else { return Vec::new() };
    let (mut findings, mut count, mut unread) = (Vec::new(), 0, Vec::new());
    let mut look = |name: &Name, position: Position, whose: &str| {
        count += 1;
        findings.extend(misplaced(seen, name, position, whose));
    };
    if team.seq > 0 {
        look(&Name::lead(), team.lead, "the daemon");
    }
    for name in team.members.keys() {
        let Some(position) = cursor(seen, name) else { continue };
        look(name, position, name.as_str());
        let count = count_lines(&seen.dir, name, position);
        let mail = count.map_or(0, |Count { mail, .. }| mail);
        if mail > 0 {
            unread.push((name, mail));
        }
    }
    for (name, mail) in &unread {
        let ended = team.members.get(name).is_some_and(|state| state.record.phase.is_ended());
        if ended {
            findings.push(
                Finding::note(CHECK, format!("{name} has ended with {mail} unread messages"))
                    .about(format!("unread {name}"))
                    .means("a fresh spawn does not read what was sent to the life that ended")
                    .next(format!(
                        "`teamctl inbox {name}` shows them, `teamctl spawn {name} --resume` reads them"
                    )),
            );
        }
    }
    if findings.is_empty() {
        let waiting: Vec<_> = unread.iter().map(|(name, mail)| format!("{name} {mail}")).collect();
        let waiting = if waiting.is_empty() { "nothing".to_owned() } else { waiting.join(", ") };
        findings.push(Finding::ok(
            CHECK,
            format!("{count} cursors stand behind a line that was read; unread: {waiting}"),
        ));
    }
    findings
}

fn misplaced(seen: &Seen, name: &Name, position: Position, whose: &str) -> Option<Finding> {
    let offset = position.offset;
    let what = match standing(&seen.dir, name, position) {
        Ok(Standing::Fits) | Err(ReadError::Dir(_)) => return None,
        Ok(Standing::Beyond { length }) => format!("which has {length} bytes"),
        Ok(Standing::WithinALine) => "which is no end of a line".to_owned(),
        Ok(Standing::Changed) => "where other lines stand now".to_owned(),
        Err(_) if offset == 0 => return None,
        Err(_) => "which is not there".to_owned(),
    };
    let what = format!("{whose} has read inbox/{name}.jsonl up to byte {offset}, {what}");
    Some(
        Finding::problem("cursors", what)
            .about(format!("cursor {whose} {offset}"))
            .means("somebody has truncated, replaced or removed the inbox: what nobody had read is lost; reading begins at its new beginning")
            .next("nothing to repair: find out who does that (a reader must not truncate what it has read)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_read_and_lines_that_are_still_to_be_read_are_told_apart() {
        let alice = Name::new("alice").unwrap();
        let content = Content {
            lines: 4,
            rejected: vec![10, 90],
            why: Some("not JSON".to_owned()),
            torn: Some((120, 7)),
        };
        let told = content.findings(&alice, Some(Position { offset: 50, tail: 0 }));
        assert_eq!(
            told[0].what,
            "2 lines of inbox/alice.jsonl are no messages; the first, at byte 10: not JSON"
        );
        assert!(told[0].means.starts_with("1 of them are still to be read"), "{}", told[0].means);
        assert_eq!(told[1].what, "inbox/alice.jsonl ends with 7 bytes without a newline");
        let read = content.findings(&alice, Some(Position { offset: 120, tail: 0 }));
        assert!(read[0].means.contains("the lead was told"));
    }
}
