//! `teamctl logs`: the logs of the daemon and of teammates, merged by time. One alone is shown
//! without its name.

mod host_log;

use anstyle::AnsiColor;
use serde_json::json;
use teamd_client::args::Logs;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::style::paint;
use teamd_client::read::roster;
use teamd_client::read::tail::Tail;
use teamd_client::read::wake::Wake;
use teamd_shared::message::TEAMD;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// The colours of the names, one after the other.
const COLOURS: [AnsiColor; 5] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::Blue,
];

/// A log that is read.
struct LogSource<'d> {
    name: String,
    tail: Tail<'d>,
    /// When its last line was written. A line without a time belongs to the line before it.
    stamp: String,
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Logs) -> CommandResult {
    let dir = context.dir()?;
    if let [name] = args.names.as_slice()
        && let Some(member) = on_a_host(&dir, name)?
    {
        return host_log::show(context, &dir, &member, args);
    }
    block_on(async {
        // Watched first, then read: nothing that is written in between is missed.
        let mut wake = args
            .range
            .follow
            .then(|| Wake::of_logs(&dir, context.settings.poll));
        let mut sources = Vec::new();
        let mut records = Vec::new();
        let mut last = args.range.last;
        loop {
            add_new(context, &dir, args, last.take(), &mut sources)?;
            let shown = show(
                context,
                (args.range.follow, args.names.len() != 1),
                &mut sources,
                &mut records,
            )?;
            match &mut wake {
                Some(_) if context.out.closed() => return Ok(ExitCode::Done),
                Some(wake) => wake.changed().await,
                None if context.out.is_json() => {
                    return context.out.json(&records).map(|()| ExitCode::Done);
                }
                None => {
                    if !shown && args.range.last != Some(0) {
                        context.out.note("there is nothing yet");
                    }
                    return Ok(ExitCode::Done);
                }
            }
        }
    })
}

/// Returns the teammate of this name, if its log is on a host.
fn on_a_host(dir: &TeamDir, name: &str) -> Result<Option<Name>, CommandError> {
    let Ok(owner) = Name::of_inbox(name) else {
        return Ok(None);
    };
    let roster = roster::load_one(dir, &owner)?;
    let member = roster.member(&owner);
    let is_hosted = member.is_some_and(|member| member.host.is_some());
    Ok(is_hosted.then_some(owner))
}

/// Adds the logs that are not read yet: those that are named, else all that are there.
fn add_new<'d>(
    context: &Context,
    dir: &'d TeamDir,
    args: &Logs,
    last: Option<usize>,
    sources: &mut Vec<LogSource<'d>>,
) -> Result<(), CommandError> {
    let mut names: Vec<String> = args.names.clone();
    if names.is_empty() {
        let files = dir.list(TeamPath::log(TEAMD).folder())?;
        let logs = files
            .iter()
            .filter_map(|it| it.at.file_name().strip_suffix(".log"));
        names = logs
            .filter(|name| *name == TEAMD || Name::of_inbox(name).is_ok())
            .map(str::to_owned)
            .collect();
    }
    for name in names {
        if sources.iter().any(|source| source.name == name) {
            continue;
        }
        let at = TeamPath::log(&name);
        let mut tail = Tail::new(dir, at.clone());
        if !tail.begin(last, |_| true)? {
            if !args.range.follow {
                return Err(missing(dir, &name));
            }
            context.out.note(format_args!(
                "waiting for {} to appear",
                dir.path(&at).display()
            ));
        }
        sources.push(LogSource {
            name,
            tail,
            stamp: String::new(),
        });
    }
    Ok(())
}

/// Shows all lines that are there now, the oldest first. Returns whether there were any. Logs are
/// rotated, so all of them fit into the memory.
fn show(
    context: &Context,
    (follow, named): (bool, bool),
    sources: &mut [LogSource<'_>],
    records: &mut Vec<serde_json::Value>,
) -> Result<bool, CommandError> {
    let width = sources
        .iter()
        .map(|source| source.name.len())
        .max()
        .unwrap_or(0);
    let mut lines = Vec::new();
    for (index, source) in sources.iter_mut().enumerate() {
        for line in source.read(follow)? {
            source.note_stamp(&line);
            lines.push((source.stamp.clone(), index, line));
        }
    }
    // Stable: the lines of one log stay in their order.
    lines.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let mut text = String::new();
    for (_, index, line) in &lines {
        let name = &sources[*index].name;
        match (context.out.is_json(), follow) {
            (true, true) => context.out.json(&json!({"name": name, "line": line}))?,
            (true, false) => records.push(json!({"name": name, "line": line})),
            _ if !named => text.push_str(&format!("{}\n", escape::text(line))),
            _ => {
                let name = paint(
                    COLOURS[index % COLOURS.len()].on_default(),
                    format!("{name:width$} |"),
                );
                text.push_str(&format!("{name} {}\n", escape::text(line)));
            }
        }
    }
    context.out.text(text)?;
    Ok(!lines.is_empty())
}

impl LogSource<'_> {
    /// Reads all further lines; also the last one that is not whole yet, unless the log is
    /// followed.
    fn read(&mut self, follow: bool) -> Result<Vec<String>, CommandError> {
        let mut lines = Vec::new();
        loop {
            let more = self.tail.read()?;
            if more.is_empty() {
                break;
            }
            lines.extend(more);
        }
        if !follow {
            lines.extend(Some(self.tail.rest()?).filter(|rest| !rest.is_empty()));
        }
        Ok(lines
            .iter()
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect())
    }

    fn note_stamp(&mut self, line: &str) {
        let stamp = line.split(' ').next().unwrap_or_default();
        // A clock that was set back does not change the order of a log.
        if stamp > self.stamp.as_str()
            && stamp.len() > 19
            && stamp.as_bytes()[10] == b'T'
            && stamp.ends_with('Z')
        {
            stamp.clone_into(&mut self.stamp);
        }
    }
}

/// Makes the error of a log that is not there.
fn missing(dir: &TeamDir, name: &str) -> CommandError {
    let owner = Name::of_inbox(name).ok();
    // A teammate that is on the roster and has no log was never started.
    let roster = roster::load(dir).ok();
    let found = owner.zip(roster.as_ref());
    let found = found.map(|(owner, roster)| roster::find(roster, &owner));
    if let Some(Ok(member)) = &found
        && let Some(host) = &member.host
    {
        return CommandError::new(
            ExitCode::NotFound,
            format!("the log of {name} is on {host}"),
        )
        .hint(format!("`teamctl logs {name}` alone reads it there"));
    }
    let unknown = found.and_then(Result::err);
    unknown.unwrap_or_else(|| {
        let path = dir.path(&TeamPath::log(name));
        CommandError::new(
            ExitCode::NotFound,
            format!("there is no log at {}", path.display()),
        )
        .hint("`teamctl status` shows the teammates; `teamctl log teamd` shows the daemon's log")
    })
}
