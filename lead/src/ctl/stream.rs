//! Showing the records of a file, once or for ever. What a record looks like is for `render` to say.

use serde_json::{Value, json};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::args::Range;
use super::context::{Context, block_on};
use super::tail::Tail;
use super::wake::Wake;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// A file of records, and how to show one.
pub(super) struct Stream {
    /// The file.
    pub(super) at: TeamPath,
    /// A record for people.
    pub(super) human: fn(&[u8]) -> String,
    /// A record for programs.
    pub(super) json: fn(&[u8]) -> Value,
    /// Whether an empty line, or one that is not whole yet, is a record too (a log).
    pub(super) plain: bool,
}

impl Stream {
    /// Shows a range of the records. Where the file is missing, `missing` says why that is an error, if it is.
    ///
    /// # Errors
    /// As `missing`, or if the file cannot be read.
    pub(super) fn show(
        &self,
        context: &Context,
        dir: &TeamDir,
        range: &Range,
        missing: Option<CommandError>,
    ) -> CommandResult {
        if range.follow {
            return block_on(self.follow(context, dir, range.last));
        }
        let mut tail = Tail::new(dir, self.at.clone());
        let there = tail.begin(range.last, self.counts())?;
        if let (false, Some(missing)) = (there, missing) {
            return Err(missing);
        }
        let (mut records, mut shown) = (Vec::new(), 0);
        loop {
            let mut lines = tail.read()?;
            let end = lines.is_empty();
            if end && self.plain {
                lines.extend(Some(tail.rest()?).filter(|rest| !rest.is_empty()));
            }
            lines.retain(|line| self.plain || !is_blank(line));
            shown += lines.len();
            if context.out.is_json() {
                records.extend(lines.iter().map(|line| (self.json)(line)));
            } else {
                self.print(context, &lines.iter().map(|line| (self.human)(line) + "\n").collect::<String>())?;
            }
            if end {
                break;
            }
        }
        if context.out.is_json() {
            context.out.json(&records)?;
        } else if shown == 0 {
            context.out.note("there is nothing yet");
        }
        Ok(ExitCode::Done)
    }

    async fn follow(&self, context: &Context, dir: &TeamDir, last: Option<usize>) -> CommandResult {
        let path = dir.path(&self.at);
        // Watched first, then read: what is written in between is seen.
        let mut wake = Wake::new(path.parent().unwrap_or(dir.root()), context.settings.poll);
        let mut tail = Tail::new(dir, self.at.clone());
        if !tail.begin(last, self.counts())? {
            context.out.note(format_args!("waiting for {} to appear", path.display()));
        }
        while !context.out.closed() {
            let lines = tail.read()?;
            for line in lines.iter().filter(|line| self.plain || !is_blank(line)) {
                match context.out.is_json() {
                    true => context.out.json(&(self.json)(line))?,
                    false => self.print(context, &((self.human)(line) + "\n"))?,
                }
            }
            if lines.is_empty() {
                wake.changed(self.at.file_name()).await;
            }
        }
        Ok(ExitCode::Done)
    }

    /// A log stays as it is.
    fn print(&self, context: &Context, text: &str) -> Result<(), CommandError> {
        if self.plain { context.out.text(text) } else { context.out.wrapped(text) }
    }

    fn counts(&self) -> fn(&[u8]) -> bool {
        if self.plain { |_| true } else { |line| !is_blank(line) }
    }
}

/// Returns a line of JSON as it stands in the file; one that is none under a key of its own.
pub(super) fn as_it_stands(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(
        |error| json!({"malformed": {"line": String::from_utf8_lossy(line), "reason": error.to_string()}}),
    )
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}
