//! A review as text: the heading of the screen, what a pipe gets, and the summary before a
//! question.

use anstyle::{AnsiColor, Style};
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::{BAD, BOLD, DIM, count};
use teamd_client::print::style::paint;

use super::changes::{ChangedFile, Changes, DiffLine, LineKind, shown};
use super::colours::{self, Coloured, Colours};
use super::read::{Reviewed, summary};

/// The style of what came.
const CAME: Style = AnsiColor::Green.on_default();
/// The most lines of which the source is parsed at once.
const PARSED: usize = 3000;
/// How many files are listed before a question.
const LISTED: usize = 20;

/// Writes a file in one line: how it changed, its name, and how many lines came and went.
pub(super) fn file_line(file: &ChangedFile, is_bold: bool) -> String {
    let title = file.title();
    let title = if is_bold { paint(BOLD, title) } else { title };
    let remark = match file.remark() {
        remark if remark.is_empty() => remark,
        remark => format!("  {}", paint(DIM, remark)),
    };
    format!(
        "{} {title}  {} {}{remark}",
        file.change.letter(),
        paint(CAME, format_args!("+{}", file.added)),
        paint(BAD, format_args!("-{}", file.removed))
    )
}

/// Writes what stands above the changes, in lines.
pub(super) fn head(reviewed: &Reviewed, code: Option<&str>, is_since: bool) -> Vec<String> {
    let task = &reviewed.task;
    let mut lines = vec![paint(BOLD, escape::line(&task.subject))];
    let mut fact = |label: &str, value: &str| {
        if !value.is_empty() {
            let label = paint(DIM, format_args!("{label:<9}"));
            lines.push(format!("{label}{}", escape::line(value)));
        }
    };
    fact("author", reviewed.author());
    fact("check", &reviewed.check());
    fact("cost", &reviewed.cost);
    let touched = task
        .result
        .as_ref()
        .and_then(|it| it.touched_protected.as_deref());
    fact("protected", touched.unwrap_or_default());
    fact("code", code.unwrap_or_default());
    let texts = [
        task.description.as_str(),
        task.submission
            .as_ref()
            .map_or("", |it| it.summary.as_str()),
    ];
    for (title, text) in ["to do", "summary"].into_iter().zip(texts) {
        if !text.trim().is_empty() {
            lines.push(paint(DIM, title));
            lines.extend(
                escape::text(text.trim())
                    .lines()
                    .map(|line| format!("  {line}")),
            );
        }
    }
    if !reviewed.output.is_empty() {
        let shown = reviewed.output.len();
        let all = reviewed.output_lines;
        let which = if shown < all {
            format!(
                "the last {shown} of {all} lines of the check, `teamctl task log {}` shows all",
                task.id
            )
        } else {
            "output of the check".to_owned()
        };
        lines.push(paint(DIM, which));
        lines.extend(
            reviewed
                .output
                .iter()
                .map(|it| format!("  {}", escape::line(it))),
        );
    }
    let changes = match &reviewed.since {
        Some(since) if is_since => since,
        _ => &reviewed.changes,
    };
    lines.push(String::new());
    lines.push(paint(
        BOLD,
        if is_since {
            summary(changes)
        } else {
            reviewed.summary()
        },
    ));
    lines.extend(
        changes
            .files
            .iter()
            .map(|file| format!("  {}", file_line(file, false))),
    );
    lines.extend(
        changes
            .notes
            .iter()
            .map(|note| paint(BAD, escape::line(note))),
    );
    lines.push(String::new());
    lines
}

/// Writes what a person should see before a question: the files with their counts, and the check.
pub fn overview(reviewed: &Reviewed) -> Vec<String> {
    let files = reviewed.changes.files.iter().take(LISTED);
    let mut lines = vec![reviewed.summary()];
    lines.extend(files.map(|file| format!("  {}", file_line(file, false))));
    let more = reviewed.changes.files.len().saturating_sub(LISTED);
    if more > 0 {
        lines.push(format!("  and {}", count(more, "more file")));
    }
    lines.push(format!("check: {}", escape::line(&reviewed.check())));
    let word = match &reviewed.request {
        Some(request) => request.request_id.to_string(),
        None => reviewed.task.id.to_string(),
    };
    lines.push(format!("`teamctl review {word}` shows all"));
    lines
}

/// Writes changes with their signs in colour, and at a terminal those of the source, for a reader
/// that does not move the cursor.
pub fn coloured(context: &Context, changes: &Changes) -> String {
    let hunks = changes.files.iter().flat_map(|file| &file.hunks);
    let has_colours = context.out.width().is_some()
        && hunks.map(|hunk| hunk.lines.len()).sum::<usize>() <= PARSED;
    if has_colours {
        colours::load_grammars();
    }
    let mut colours = Colours::default();
    colours.turn_on();
    let mut text = format!("{}\n", paint(BOLD, summary(changes)));
    for file in &changes.files {
        text.push_str(&format!("  {}\n", file_line(file, false)));
    }
    for (number, file) in changes.files.iter().enumerate() {
        text.push_str(&format!("\n{}\n", file_line(file, true)));
        for (at, hunk) in file.hunks.iter().enumerate() {
            text.push_str(&format!("{}\n", paint(DIM, escape::line(&hunk.heading))));
            for (row, line) in hunk.lines.iter().enumerate() {
                let style = match line.kind {
                    LineKind::Context => Style::new(),
                    LineKind::Added => CAME,
                    LineKind::Removed => BAD,
                };
                let parts = match has_colours {
                    true => colours.of((number, at), file, row),
                    false => &[],
                };
                text.push_str(&line_text(line, style, parts));
                text.push('\n');
            }
        }
    }
    for note in &changes.notes {
        text.push_str(&format!("{}\n", escape::line(note)));
    }
    text
}

/// Writes a line of a change. One with colours of its own has its sign in that of the change.
fn line_text(line: &DiffLine, style: Style, parts: &[Coloured]) -> String {
    let sign = line.kind.sign();
    if parts.is_empty() {
        return paint(style, format!("{sign}{}", line.shown()));
    }
    let mut text = paint(style, sign);
    let mut from = 0;
    for part in parts {
        let piece = line.text.get(from..part.end).unwrap_or_default();
        text.push_str(&paint(part.style(), shown(piece)));
        from = part.end;
    }
    text
}

/// Prints a review where there is no screen, or for programs.
pub(super) fn print(context: &Context, reviewed: &Reviewed) -> CommandResult {
    let result = if context.out.is_json() {
        context.out.json(&reviewed.to_json())
    } else {
        let title = paint(BOLD, reviewed.title());
        let head = head(reviewed, None, false).join("\n");
        let shown = match reviewed.changes.files.is_empty() {
            true => String::new(),
            false => coloured(context, &reviewed.changes),
        };
        context.out.text(format_args!("{title}\n{head}\n{shown}"))
    };
    result.map(|()| ExitCode::Done)
}
