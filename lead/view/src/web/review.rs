//! The work of a task, or of a teammate, for the page: lines of JSON, so that a browser shows the
//! first of them while the others come. The first line has the facts and the files, the others the
//! rows of these files, in pieces. Names and lines are escaped here, as for a terminal.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use teamd_client::act::integration;
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::output::Output;
use teamd_client::read::roster;
use teamd_shared::task::TaskId;
use tokio::sync::mpsc;

use super::answer::name_of_work;
use super::guard::ChangesOf;
use super::shown::body;
use crate::act::explained;
use crate::review::{
    ChangedFile, Changes, Colours, DiffLine, LineKind, Reviewed, load_grammars, shown, summary,
};

/// The longest text of changes that a page shows, in bytes.
const LONGEST: usize = 16 << 20;
/// The rows and bytes from which on a piece ends, unless it is within lines that went and came at
/// one place. A browser lays a piece out at once, so it is small.
const ROWS: usize = 25;
const BYTES: usize = 8 << 10;
/// So many times that, it ends there too.
const FACTOR: usize = 16;
/// The longest part of a line in one row, in bytes.
const PART: usize = 2000;
/// How long the colours of a diff, and of one file of it, are sought: lines after that have none,
/// and do not wait.
const COLOURING: Duration = Duration::from_secs(2);
const COLOURING_FILE: Duration = Duration::from_millis(500);
/// For so many columns the commands print.
const COLUMNS: usize = 200;

/// Finds changes in a thread, and sends them line by line, as fast as they are taken.
pub(super) fn send(context: &Context, asked: ChangesOf, lines: mpsc::Sender<Bytes>) {
    let elsewhere = context.elsewhere();
    std::thread::spawn(move || {
        let (out, _) = Output::stored(COLUMNS);
        let context = elsewhere(out);
        let send = |value: &Value| {
            let line = Bytes::from(format!("{value}\n"));
            lines.blocking_send(line).is_ok()
        };
        match find(&context, &asked) {
            Ok((head, changes)) => send_changes(head, &changes, send),
            // A browser that is gone wants no answer.
            Err(error) => drop(send(&json!({"error": explained(&error)}))),
        }
    });
}

/// Finds changes, and what stands above them.
fn find(context: &Context, asked: &ChangesOf) -> Result<(Value, Changes), CommandError> {
    if asked.of.parse::<TaskId>().is_err() {
        if works_in_place(context, &asked.of)? {
            let summary = format!(
                "{} has no checkout: it changes the files of the workspace, where `git diff` shows what is new",
                asked.of
            );
            return Ok((json!({"summary": summary}), Changes::default()));
        }
        let changes = Changes::parse(&integration::diff(context, &asked.of)?, "");
        let summary = match changes.files.is_empty() && changes.notes.is_empty() {
            true => "nothing is changed".to_owned(),
            false => summary(&changes),
        };
        return bounded(json!({"summary": summary}), changes);
    }
    let reviewed = Reviewed::find(context, &asked.of)?;
    let mut head = head(&reviewed);
    let Some(since) = reviewed.since.filter(|_| asked.is_since) else {
        return bounded(head, reviewed.changes);
    };
    head["summary"] = json!(summary(&since));
    bounded(head, since)
}

/// Tells whether a teammate is known and has no checkout: what it changes is not told apart.
fn works_in_place(context: &Context, name: &str) -> Result<bool, CommandError> {
    let roster = roster::load(&context.dir()?)?;
    let mut members = roster.members.iter();
    let member = members.find(|member| member.name.as_str() == name);
    Ok(member.is_some_and(|member| member.checkout.is_none()))
}

fn bounded(head: Value, changes: Changes) -> Result<(Value, Changes), CommandError> {
    let hunks = changes.files.iter().flat_map(|file| &file.hunks);
    let lines = hunks.flat_map(|hunk| &hunk.lines);
    if lines.map(|line| line.text.len() + 1).sum::<usize>() > LONGEST {
        let message = "the diff is longer than 16 MiB: a page does not show it";
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint("`teamctl review ID` shows up to 64 MiB"));
    }
    Ok((head, changes))
}

/// Says what stands above the changes, in the words of `teamctl review`.
fn head(reviewed: &Reviewed) -> Value {
    let task = &reviewed.task;
    let result = task.result.as_ref();
    let touched = result.and_then(|it| it.touched_protected.as_deref());
    let facts = [
        ("author", reviewed.author().to_owned()),
        ("check", reviewed.check()),
        ("cost", reviewed.cost.clone()),
        ("protected", touched.unwrap_or_default().to_owned()),
    ];
    let facts = facts.iter().filter(|(_, value)| !value.is_empty());
    let facts: Vec<Value> = facts
        .map(|(label, value)| json!([label, escape::line(value)]))
        .collect();
    let lines = reviewed.output.len();
    let which = match lines < reviewed.output_lines {
        true => format!(
            "the last {lines} of {} lines of the check",
            reviewed.output_lines
        ),
        false => "output of the check".to_owned(),
    };
    let request = reviewed.request.as_ref().map(|it| &it.request_id);
    json!({"title": reviewed.title(), "subject": escape::line(&task.subject), "facts": facts,
        "to_do": body(&task.description), "output": body(&reviewed.output.join("\n")), "which": which,
        "summary": reviewed.summary(), "since": reviewed.since.is_some(), "request": request,
        "work": name_of_work(reviewed.commits.as_ref())})
}

/// A row of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SentRow {
    Heading(usize),
    /// A part of a line of a hunk: its bytes, and whether it begins the line.
    Part {
        hunk: usize,
        line: usize,
        from: usize,
        to: usize,
    },
}

/// Parts the rows of a file into pieces. What changes at one place stays together, if it can.
fn pieces(file: &ChangedFile) -> Vec<Vec<SentRow>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut bytes = 0;
    for (hunk, found) in file.hunks.iter().enumerate() {
        let mut put = |row: SentRow, length: usize, is_within: bool| {
            let factor = if is_within { FACTOR } else { 1 };
            if piece.len() >= factor * ROWS || bytes >= factor * BYTES {
                pieces.push(std::mem::take(&mut piece));
                bytes = 0;
            }
            piece.push(row);
            bytes += length;
        };
        put(SentRow::Heading(hunk), found.heading.len(), false);
        let mut runs = mixed(&found.lines).into_iter().peekable();
        for (line, it) in found.lines.iter().enumerate() {
            runs.next_if(|run| run.end <= line);
            let is_within = runs.peek().is_some_and(|run| run.start < line);
            for (from, to) in parts(&it.text) {
                let row = SentRow::Part {
                    hunk,
                    line,
                    from,
                    to,
                };
                put(row, to - from, is_within && from == 0);
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Returns how many digits the longest number of a line has.
fn digits(file: &ChangedFile) -> usize {
    let last = file.hunks.last().map(|hunk| hunk.lines.as_slice());
    let numbers = last.unwrap_or_default().iter();
    let longest = numbers.filter_map(|it| it.old.max(it.new)).max();
    longest.unwrap_or(0).to_string().len()
}

/// Finds the runs of lines in which some went and some came: side by side, they are beside each
/// other.
fn mixed(lines: &[DiffLine]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut at = 0;
    for run in lines.chunk_by(|a, b| is_changed(a) == is_changed(b)) {
        let has = |kind| run.iter().any(|it| it.kind == kind);
        if has(LineKind::Added) && has(LineKind::Removed) {
            runs.push(at..at + run.len());
        }
        at += run.len();
    }
    runs
}

fn is_changed(line: &DiffLine) -> bool {
    line.kind != LineKind::Context
}

/// Parts a text where it is long. A row ends between two characters.
fn parts(text: &str) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let mut from = 0;
    while text.len() - from > PART {
        let ends = from + 1..=from + PART;
        let to = ends.rev().find(|to| text.is_char_boundary(*to));
        let to = to.unwrap_or(text.len());
        parts.push((from, to));
        from = to;
    }
    parts.push((from, text.len()));
    parts
}

/// Returns where a piece begins: in which hunk, and with which of its lines. A heading begins the
/// hunk after that one.
fn place(piece: &[SentRow]) -> [i64; 2] {
    let number = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
    match piece.first() {
        Some(SentRow::Heading(hunk)) => [number(*hunk) - 1, 0],
        // What continues a line does not count it again.
        Some(SentRow::Part {
            hunk, line, from, ..
        }) => [number(*hunk), number(*line + usize::from(*from > 0))],
        None => [0, 0],
    }
}

/// Returns a row as the page takes it: a heading as its text; a part of a line as sign, numbers,
/// texts (one with colour with its class before it) and a mark: 1 for what continues a line, 2
/// where the file ends without an end of the line.
fn sent(
    file: &ChangedFile,
    number: usize,
    row: SentRow,
    colours: &mut Option<&mut Colours>,
) -> Value {
    let SentRow::Part {
        hunk,
        line,
        from,
        to,
    } = row
    else {
        let SentRow::Heading(hunk) = row else {
            return Value::Null;
        };
        return json!(shown(&file.hunks[hunk].heading));
    };
    let it = &file.hunks[hunk].lines[line];
    let is_whole = from == 0 && to == it.text.len();
    let coloured = match colours {
        Some(colours) if is_whole => colours.of((number, hunk), file, line),
        _ => &[],
    };
    let mut texts = Vec::new();
    let mut at = from;
    for part in coloured {
        let Some(text) = it.text.get(at..part.end).filter(|it| !it.is_empty()) else {
            continue;
        };
        at = part.end;
        texts.push(match part.class() {
            0 => json!(shown(text)),
            class => json!([class, shown(text)]),
        });
    }
    if at < to {
        texts.push(json!(shown(&it.text[at..to])));
    }
    let mark = match (from > 0, it.is_unended && to == it.text.len()) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    };
    let kind = match it.kind {
        LineKind::Context => 0,
        LineKind::Added => 1,
        LineKind::Removed => 2,
    };
    json!([kind, it.old, it.new, texts, mark])
}

fn send_changes(mut head: Value, changes: &Changes, mut send: impl FnMut(&Value) -> bool) {
    let all: Vec<Vec<Vec<SentRow>>> = changes.files.iter().map(pieces).collect();
    let files = changes.files.iter().zip(&all).map(|(file, pieces)| {
        let rows: Vec<usize> = pieces.iter().map(Vec::len).collect();
        json!({"title": file.title(), "letter": file.change.letter(), "added": file.added, "removed": file.removed,
            "remark": file.remark(), "generated": file.generated, "digits": digits(file), "rows": rows})
    });
    head["files"] = files.collect();
    let notes = changes.notes.iter();
    head["notes"] = notes.map(|note| escape::line(note)).collect();
    if !send(&head) {
        return;
    }
    load_grammars();
    let mut colours = Colours::default();
    colours.turn_on();
    let mut taken = Duration::ZERO;
    for (number, (file, pieces)) in changes.files.iter().zip(&all).enumerate() {
        let of_file = (taken + COLOURING_FILE).min(COLOURING);
        for piece in pieces {
            let wants_colours = !file.generated && taken < of_file;
            let began = Instant::now();
            let mut colours = wants_colours.then_some(&mut colours);
            let rows = piece
                .iter()
                .map(|row| sent(file, number, *row, &mut colours));
            let rows: Vec<Value> = rows.collect();
            taken += began.elapsed();
            if !send(&json!([place(piece), rows])) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_lines(diff: &str) -> Vec<Value> {
        let changes = Changes::parse(diff, "");
        let mut lines = Vec::new();
        send_changes(json!({}), &changes, |line| {
            lines.push(line.clone());
            true
        });
        lines
    }

    fn added(path: &str, lines: &[String]) -> String {
        let count = lines.len();
        let mut diff = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{count} @@\n"
        );
        for line in lines {
            diff += &format!("+{line}\n");
        }
        diff
    }

    #[test]
    fn rows_have_numbers_classes_and_escaped_texts() {
        let lines = [
            "let x = 1;".to_owned(),
            "\u{202e}\u{1b}[2J</script>".to_owned(),
        ];
        let sent = sent_lines(&added("a.rs", &lines));
        assert_eq!(sent[0]["files"][0]["rows"], json!([3]));
        assert_eq!(sent[0]["files"][0]["letter"], "A");
        assert_eq!(sent[0]["files"][0]["digits"], 1);
        let rows = &sent[1][1];
        assert_eq!(sent[1][0], json!([-1, 0]));
        assert_eq!(rows[0], "@@ -0,0 +1,2 @@");
        assert_eq!(rows[1][0], 1);
        assert_eq!((&rows[1][1], &rows[1][2]), (&Value::Null, &json!(1)));
        assert_eq!(rows[1][3][0], json!([5, "let"]));
        let hostile = rows[2][3].to_string();
        assert!(
            hostile.contains("u{202e}") && !hostile.contains('\u{202e}'),
            "{hostile}"
        );
    }

    #[test]
    fn long_lines_and_long_files_come_in_pieces_of_bounded_size() {
        let long = format!("{}ä", "x".repeat(1 << 20));
        let lines: Vec<String> = (0..20_000)
            .map(|n| format!("line {n}"))
            .chain([long])
            .collect();
        let sent = sent_lines(&added("a.txt", &lines));
        let counts = sent[0]["files"][0]["rows"].as_array().unwrap().clone();
        assert_eq!(counts.len(), sent.len() - 1);
        let mut text = String::new();
        let mut count = 0;
        for (piece, rows) in sent[1..].iter().zip(&counts) {
            let shown = piece[1].as_array().unwrap();
            assert_eq!(json!(shown.len()), *rows);
            assert!(shown.len() <= ROWS && piece.to_string().len() < 120_000);
            count += shown
                .iter()
                .filter(|row| row.is_array() && row[4] != 1)
                .count();
            for row in shown
                .iter()
                .filter(|row| row.is_array() && row[2] == 20_001)
            {
                text += row[3][0].as_str().unwrap();
            }
        }
        assert_eq!(count, 20_001);
        assert!(text.len() == (1 << 20) + 2 && text.ends_with('ä'));
    }

    #[test]
    fn what_changes_at_one_place_stays_in_one_piece() {
        let mut diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,250 +1,250 @@\n".to_owned();
        diff += &" same\n".repeat(90);
        diff += &"-old\n".repeat(70);
        diff += &"+new\n".repeat(70);
        diff += &" same\n".repeat(90);
        let changes = Changes::parse(&diff, "");
        let pieces = pieces(&changes.files[0]);
        let lengths: Vec<usize> = pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [25, 25, 25, 156, 25, 25, 25, 15]);
        assert_eq!(place(&pieces[3]), [0, 74]);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let lines = vec!["x".repeat(1 << 20); 17];
        let changes = Changes::parse(&added("a.txt", &lines), "");
        let error = bounded(json!({}), changes).unwrap_err().to_string();
        assert!(error.contains("longer than 16 MiB"), "{error}");
    }
}
