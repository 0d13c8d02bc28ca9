//! `teamctl lint`: what our readers make of a file that another program has written, line by line.
//!
//! It asks the readers that the programs use, and has no rules of its own. It reads files wherever
//! they are, needs no team, and changes nothing. `doctor` runs the same checks on the team's own
//! inboxes and transcripts.

mod lines;
pub(super) mod messages;
mod settings;
pub(super) mod transcript;

use std::io::Read;
use std::path::Path;

use serde::Serialize;
use teamd_client::args::{Lint, LintAs};
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::{BAD, BOLD};
use teamd_client::print::style::paint;
use teamd_shared::config::{Roster, VERSION};
use teamd_shared::json;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LintLevel {
    /// Our reader does not use the line.
    Error,
    /// The last line has no newline: our reader does not use it yet.
    #[serde(rename = "error")]
    Torn,
    /// Legal, but unwise.
    Warning,
}

/// A remark about one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Remark {
    /// From 1; 0 for the file as a whole.
    pub(super) line: usize,
    /// From 1, in characters.
    column: usize,
    pub(super) severity: LintLevel,
    /// What is wrong.
    pub(super) what: String,
    /// What our reader does with it.
    pub(super) reader: String,
}

/// A place in a file.
#[derive(Clone, Copy)]
struct RemarkPlace {
    line: usize,
    column: usize,
}

impl RemarkPlace {
    /// The file as a whole.
    const NOWHERE: Self = Self::of(0, 0);

    const fn of(line: usize, column: usize) -> Self {
        Self { line, column }
    }
}

impl Remark {
    fn error(place: RemarkPlace, what: impl Into<String>, reader: impl Into<String>) -> Self {
        let what = what.into();
        let reader = reader.into();
        Self {
            line: place.line,
            column: place.column,
            severity: LintLevel::Error,
            what,
            reader,
        }
    }

    fn warning(place: RemarkPlace, what: impl Into<String>, reader: impl Into<String>) -> Self {
        Self {
            severity: LintLevel::Warning,
            ..Self::error(place, what, reader)
        }
    }
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Lint) -> CommandResult {
    let mut failed = false;
    for file in &args.files {
        let kind = match args.kind {
            Some(kind) => kind,
            None => kind_by_name(Path::new(file))?,
        };
        let remarks = read(file).map_or_else(
            |why| {
                vec![Remark::error(
                    RemarkPlace::NOWHERE,
                    format!("cannot be read: {why}"),
                    "nothing",
                )]
            },
            |bytes| of(kind, file, &bytes),
        );
        failed |= remarks
            .iter()
            .any(|remark| remark.severity != LintLevel::Warning);
        for remark in &remarks {
            print(context, file, remark)?;
        }
    }
    Ok(if failed {
        ExitCode::Failed
    } else {
        ExitCode::Done
    })
}

/// Reads a file whole: no more than [`MAX_FILE`], whatever it is.
fn read(file: &str) -> std::io::Result<Vec<u8>> {
    let from: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(std::fs::File::open(path)?),
    };
    let mut bytes = Vec::new();
    from.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        let why = "it is longer than 1 GiB: lint it in parts (`split -C 500M`)";
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Tells what a file is by its folder and its name; one with any other name is taken
/// for an inbox.
fn kind_by_name(file: &Path) -> Result<LintAs, CommandError> {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let folder = file
        .parent()
        .and_then(|folder| folder.file_name()?.to_str());
    Ok(match name {
        "journal.jsonl" => LintAs::Journal,
        "config.json" => LintAs::Roster,
        _ if name.ends_with(".toml") => LintAs::Settings,
        _ if name.ends_with(".rejected.jsonl") => {
            let message = format!(
                "{} holds what was rejected, and no messages",
                file.display()
            );
            return Err(CommandError::new(ExitCode::Usage, message)
                .hint("lint the inbox itself: it holds the same lines, and the others"));
        }
        _ if folder == Some("transcript") => LintAs::Transcript,
        _ => LintAs::Messages,
    })
}

fn of(kind: LintAs, file: &str, bytes: &[u8]) -> Vec<Remark> {
    match kind {
        LintAs::Messages => messages::lint(bytes),
        LintAs::Journal => lines::journal(bytes),
        LintAs::Transcript => transcript::lint(bytes),
        LintAs::Roster => roster(bytes),
        LintAs::Settings => settings::lint(file, bytes),
    }
}

fn roster(bytes: &[u8]) -> Vec<Remark> {
    match json::read::<Roster>(bytes) {
        Ok(roster) if roster.version > VERSION => vec![Remark::warning(
            RemarkPlace::of(1, 1),
            format!("version {}, this program knows {VERSION}", roster.version),
            "read as far as possible, and never written over",
        )],
        Ok(_) => Vec::new(),
        Err(error) => vec![Remark::error(
            RemarkPlace::of(error.line(), error.column().max(1)),
            without_place(&error.to_string()),
            "no roster: `teamd start` keeps it aside and writes it again from the journal",
        )],
    }
}

/// Removes the place from an error of JSON: it is shown already.
fn without_place(error: &str) -> String {
    error
        .split_once(" at line ")
        .map_or(error, |(what, _)| what)
        .to_owned()
}

fn print(context: &Context, file: &str, remark: &Remark) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct OfFile<'a> {
        file: &'a str,
        #[serde(flatten)]
        remark: &'a Remark,
    }
    if context.out.is_json() {
        return context.out.json(&OfFile { file, remark });
    }
    let file = escape::line(file);
    let line = remark.line;
    let column = remark.column;
    let place = if line > 0 {
        format!("{file}:{line}:{column}")
    } else {
        file.into_owned()
    };
    let severity = match remark.severity {
        LintLevel::Error | LintLevel::Torn => paint(BAD, "error"),
        LintLevel::Warning => paint(BOLD, "warning"),
    };
    let what = escape::line(&remark.what);
    let reader = escape::line(&remark.reader);
    let reader = if line > 0 {
        format!(" ({reader})")
    } else {
        String::new()
    };
    context
        .out
        .text(format_args!("{place}: {severity}: {what}{reader}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_name_says() {
        let kind = |path: &str| kind_by_name(Path::new(path)).ok();
        assert_eq!(kind(".team/journal.jsonl"), Some(LintAs::Journal));
        assert_eq!(kind("config.json"), Some(LintAs::Roster));
        assert_eq!(
            kind(".team/transcript/alice.jsonl"),
            Some(LintAs::Transcript)
        );
        assert_eq!(kind(".team/inbox/alice.jsonl"), Some(LintAs::Messages));
        assert_eq!(kind("team.toml"), Some(LintAs::Settings));
        assert_eq!(kind("-"), Some(LintAs::Messages));
        assert_eq!(kind(".team/inbox/alice.rejected.jsonl"), None);
    }

    #[test]
    fn a_roster_is_read_as_the_programs_do() {
        assert!(roster(br#"{"version": 1, "seq": 1, "team_name": "t", "members": []}"#).is_empty());
        let wrong = roster(b"{\"version\": 1, \"seq\": 1, \"team_name\": \"t\",\n \"members\": 7}");
        assert_eq!((wrong[0].line, wrong[0].severity), (2, LintLevel::Error));
        assert_eq!(
            wrong[0].what,
            "invalid type: integer `7`, expected a sequence"
        );
        let newer = roster(br#"{"version": 2, "seq": 1, "team_name": "t", "members": []}"#);
        assert_eq!(newer[0].severity, LintLevel::Warning);
    }
}
