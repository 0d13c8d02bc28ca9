//! `teamctl logs`: the logs of the daemon and of teammates, merged by time.

use std::collections::VecDeque;

use anstyle::AnsiColor;
use serde_json::json;
use teamd_shared::message::TEAMD;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::log;
use crate::ctl::args::Logs;
use crate::ctl::context::{Context, block_on};
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::tail::Tail;
use crate::ctl::wake::Wake;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// The colours of the names, one after the other.
const COLOURS: [AnsiColor; 5] =
    [AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue];
/// How much is printed at a time, in bytes.
const CHUNK: usize = 64 << 10;

/// A log that is read.
struct Source<'d> {
    name: String,
    tail: Tail<'d>,
    lines: VecDeque<Vec<u8>>,
    /// Whether it has no further lines now.
    ended: bool,
    /// When the next line was written. A line that does not say so belongs to the line before it.
    stamp: Vec<u8>,
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Logs) -> CommandResult {
    let dir = context.dir()?;
    block_on(async {
        // Watched first, then read: what is written in between is seen.
        let mut wake = args.follow.then(|| Wake::of_logs(&dir, context.settings.poll));
        let (mut sources, mut records, mut last) = (Vec::new(), Vec::new(), args.last);
        loop {
            add_new(context, &dir, args, last.take(), &mut sources)?;
            let shown = show(context, args.follow, &mut sources, &mut records)?;
            match &mut wake {
                Some(_) if context.out.closed() => return Ok(ExitCode::Done),
                Some(wake) => wake.changed().await,
                None if context.out.is_json() => {
                    return context.out.json(&records).map(|()| ExitCode::Done);
                }
                None => {
                    if !shown && args.last != Some(0) {
                        context.out.note("there is nothing yet");
                    }
                    return Ok(ExitCode::Done);
                }
            }
        }
    })
}

/// Adds the logs that are not read yet: those that are named, else all that are there.
fn add_new<'d>(
    context: &Context,
    dir: &'d TeamDir,
    args: &Logs,
    last: Option<usize>,
    sources: &mut Vec<Source<'d>>,
) -> Result<(), CommandError> {
    let mut names: Vec<String> = args.names.iter().map(|name| name.0.clone()).collect();
    if names.is_empty() {
        let found = dir.list(TeamPath::log(TEAMD).folder())?;
        let logs = found.iter().filter_map(|it| it.at.file_name().strip_suffix(".log"));
        let is_one = |name: &&str| *name == TEAMD || Name::of_inbox(name).is_ok();
        names = logs.filter(is_one).map(str::to_owned).collect();
    }
    for name in names {
        if sources.iter().any(|source| source.name == name) {
            continue;
        }
        let at = TeamPath::log(&name);
        let mut tail = Tail::new(dir, at.clone());
        if !tail.begin(last, |_| true)? {
            if !args.follow {
                return Err(log::missing(dir, &name));
            }
            context.out.note(format_args!("waiting for {} to appear", dir.path(&at).display()));
        }
        sources.push(Source { name, tail, lines: VecDeque::new(), ended: false, stamp: Vec::new() });
    }
    Ok(())
}

/// Shows all lines that are there now, the oldest first. Returns whether there were any.
fn show(
    context: &Context,
    follow: bool,
    sources: &mut [Source<'_>],
    records: &mut Vec<serde_json::Value>,
) -> Result<bool, CommandError> {
    let width = sources.iter().map(|source| source.name.len()).max().unwrap_or(0);
    let (mut text, mut any) = (String::new(), false);
    sources.iter_mut().for_each(|source| source.ended = false);
    loop {
        for source in &mut *sources {
            source.fill(follow)?;
        }
        let waiting = sources.iter_mut().enumerate().filter(|(_, source)| !source.lines.is_empty());
        let oldest = waiting.min_by(|(_, one), (_, other)| one.stamp.cmp(&other.stamp));
        let Some((index, source)) = oldest else { break };
        let line = source.lines.pop_front().unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        source.set_stamp();
        any = true;
        let record = || json!({"name": source.name, "line": line});
        match (context.out.is_json(), follow) {
            (true, true) => context.out.json(&record())?,
            (true, false) => records.push(record()),
            _ => {
                let name = format!("{:width$} |", source.name);
                let name = paint(COLOURS[index % COLOURS.len()].on_default(), name);
                text.push_str(&format!("{name} {}\n", escape::text(&line)));
            }
        }
        if text.len() > CHUNK {
            context.out.text(std::mem::take(&mut text))?;
        }
    }
    context.out.text(text)?;
    Ok(any)
}

impl Source<'_> {
    /// Reads further lines, if none are left and there are any.
    fn fill(&mut self, follow: bool) -> Result<(), CommandError> {
        if self.ended || !self.lines.is_empty() {
            return Ok(());
        }
        self.lines = self.tail.read()?.into();
        self.ended = self.lines.is_empty();
        if self.ended && !follow {
            self.lines.extend(Some(self.tail.rest()?).filter(|rest| !rest.is_empty()));
        }
        self.set_stamp();
        Ok(())
    }

    fn set_stamp(&mut self) {
        let stamp = self.lines.front().and_then(|line| line.split(|&byte| byte == b' ').next());
        let is_time = |word: &&[u8]| word.len() > 19 && word[10] == b'T' && word.ends_with(b"Z");
        if let Some(stamp) = stamp.filter(is_time) {
            self.stamp = stamp.to_vec();
        }
    }
}
