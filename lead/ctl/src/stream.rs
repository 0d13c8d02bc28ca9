//! Shows the records of a file, once or as they are appended. `render` decides what a record looks
//! like.

use teamd_client::args::Range;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::tail::{Tail, as_it_stands};
use teamd_client::read::wake::Wake;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// A file of records, and how to show one.
pub(crate) struct Stream {
    /// The file.
    pub(crate) at: TeamPath,
    /// Formats a record for people; empty if it says nothing to them.
    pub(crate) human: fn(&[u8]) -> String,
    /// Shows only records since then, in seconds since 1970.
    pub(crate) since: Option<f64>,
}

impl Stream {
    /// Shows a range of the records, and with `follow` those that are appended from then on. Where
    /// the file is missing, `missing` says why that is an error, if it is.
    ///
    /// # Errors
    /// As `missing`, or if the file cannot be read.
    pub(crate) fn show(
        &self,
        context: &Context,
        dir: &TeamDir,
        range: &Range,
        missing: Option<CommandError>,
    ) -> CommandResult {
        block_on(async {
            let out = &context.out;
            // The watch comes first, then the reading: nothing that is written in between is missed.
            let mut wake = range
                .follow
                .then(|| Wake::new(dir, &self.at, context.settings.poll));
            let mut tail = Tail::new(dir, self.at.clone());
            match (tail.begin(range.last, is_record)?, missing) {
                (false, _) if range.follow => {
                    out.note(format_args!(
                        "waiting for {} to appear",
                        dir.path(&self.at).display()
                    ));
                }
                (false, Some(missing)) => return Err(missing),
                _ => {}
            }
            let mut records = Vec::new();
            let mut shown = 0;
            while !range.follow || !out.closed() {
                let mut lines = tail.read()?;
                let end = lines.is_empty();
                lines.retain(|line| {
                    is_record(line) && self.since.is_none_or(|since| is_since(line, since))
                });
                shown += lines.len();
                if !out.is_json() {
                    let texts = lines
                        .iter()
                        .map(|line| (self.human)(line))
                        .filter(|text| !text.is_empty());
                    out.wrapped(&texts.map(|text| text + "\n").collect::<String>())?;
                } else if range.follow {
                    lines
                        .iter()
                        .try_for_each(|line| out.json(&as_it_stands(line)))?;
                } else {
                    records.extend(lines.iter().map(|line| as_it_stands(line)));
                }
                match &mut wake {
                    Some(wake) if end => wake.changed().await,
                    None if end => break,
                    _ => {}
                }
            }
            if range.follow {
                return Ok(ExitCode::Done);
            }
            if out.is_json() {
                out.json(&records)?;
            } else if shown == 0 && range.last != Some(0) {
                out.note("there is nothing yet");
            }
            Ok(ExitCode::Done)
        })
    }
}

fn is_record(line: &[u8]) -> bool {
    !line.trim_ascii().is_empty()
}

/// Tells whether a record was written since then; one without a time counts as such.
fn is_since(line: &[u8], since: f64) -> bool {
    #[derive(serde::Deserialize)]
    struct Timed {
        at: f64,
    }
    serde_json::from_slice::<Timed>(line).map_or(true, |record| record.at >= since)
}
