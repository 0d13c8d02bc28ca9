//! The log of a teammate on a host: its end is read over the link.

use std::time::Duration;

use serde_json::json;
use teamd_client::args::Logs;
use teamd_client::connection::{Client, unexpected};
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_shared::control::{Command, Done};
use teamd_shared::host::LogPiece;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

/// How often a log that is followed is read.
const EVERY: Duration = Duration::from_secs(1);
/// How many pieces are read at a time: the end of a log has fewer.
const MOST_PIECES: usize = 16;

/// Shows the end of a log, and follows it.
pub(super) fn show(context: &Context, dir: &TeamDir, name: &Name, args: &Logs) -> CommandResult {
    block_on(async {
        let mut client = Client::connect(dir).await?;
        let mut reader = HostLogReader::default();
        let mut lines = reader.read(&mut client, name).await?;
        if !args.range.follow {
            lines.extend(reader.take_rest());
        }
        if let Some(last) = args.range.last {
            lines.drain(..lines.len().saturating_sub(last));
        }
        if !args.range.follow {
            return print_all(context, name, &lines);
        }
        loop {
            print_more(context, name, &lines)?;
            if context.out.closed() {
                return Ok(ExitCode::Done);
            }
            tokio::time::sleep(EVERY).await;
            lines = reader.read(&mut client, name).await?;
        }
    })
}

/// How far a log was read.
#[derive(Default)]
struct HostLogReader {
    next: Option<u64>,
    /// What was read of a line that is not whole yet.
    rest: String,
}

impl HostLogReader {
    /// Reads all further whole lines.
    async fn read(
        &mut self,
        client: &mut Client,
        name: &Name,
    ) -> Result<Vec<String>, CommandError> {
        let mut lines = Vec::new();
        for _ in 0..MOST_PIECES {
            let command = Command::HostLog {
                name: name.clone(),
                from: self.next,
            };
            let piece = match client.call(command).await? {
                Done::HostLog(piece) => piece,
                other => return Err(unexpected(&other)),
            };
            let is_all = piece.end >= piece.length;
            self.take(&piece, &mut lines);
            if is_all {
                break;
            }
        }
        Ok(lines)
    }

    fn take(&mut self, piece: &LogPiece, lines: &mut Vec<String>) {
        let has_begun_again = self.next.is_some_and(|next| next != piece.offset);
        if has_begun_again {
            lines.extend(self.take_rest());
        }
        self.next = Some(piece.end);
        self.rest.push_str(&piece.text);
        while let Some(newline) = self.rest.find('\n') {
            let line: String = self.rest.drain(..=newline).collect();
            lines.push(line.trim_end_matches('\n').to_owned());
        }
    }

    /// Takes what is there of the last line.
    fn take_rest(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        (!rest.is_empty()).then_some(rest)
    }
}

fn print_all(context: &Context, name: &Name, lines: &[String]) -> CommandResult {
    if context.out.is_json() {
        let records = lines.iter().map(|line| json!({"name": name, "line": line}));
        let records: Vec<_> = records.collect();
        return context.out.json(&records).map(|()| ExitCode::Done);
    }
    print_more(context, name, lines)?;
    if lines.is_empty() {
        context.out.note("there is nothing yet");
    }
    Ok(ExitCode::Done)
}

fn print_more(context: &Context, name: &Name, lines: &[String]) -> Result<(), CommandError> {
    if context.out.is_json() {
        for line in lines {
            context.out.json(&json!({"name": name, "line": line}))?;
        }
        return Ok(());
    }
    let shown: String = lines
        .iter()
        .map(|line| format!("{}\n", escape::text(line)))
        .collect();
    context.out.text(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_a_log_that_begins_again_ends_the_last_one() {
        let piece = |offset: u64, text: &str| LogPiece {
            offset,
            text: text.to_owned(),
            end: offset + text.len() as u64,
            length: 100,
        };
        let mut reader = HostLogReader::default();
        let mut lines = Vec::new();
        reader.take(&piece(7, "one\ntw"), &mut lines);
        reader.take(&piece(13, "o\nthr"), &mut lines);
        assert_eq!(lines, ["one", "two"]);
        reader.take(&piece(0, "new\n"), &mut lines);
        assert_eq!(lines, ["one", "two", "thr", "new"]);
    }
}
