//! `teamctl status --watch`: the list stays on the screen, follows the team, and answers plans. It is redrawn when a file
//! changes or a key is pressed; once a second it looks whether an age is another one.

mod screen;
mod view;

use std::time::Instant;

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use teamd_shared::config::Roster;
use teamd_shared::journal::Team;
use teamd_shared::team_dir::{Stamp, TeamDir, TeamPath};
use tokio::signal::unix::{SignalKind, signal};

use crate::client::is_locked;
use crate::ctl::args::StatusArgs;
use crate::ctl::commands::answer;
use crate::ctl::context::{Context, block_on};
use crate::ctl::wake::Wake;
use crate::ctl::{money, roster};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

use screen::Screen;
use view::{Verdict, View, Wish};

/// The team, as its files showed it last.
struct Seen {
    stamp: Option<Stamp>,
    locked: bool,
    roster: Roster,
    requests: Team,
}

impl Seen {
    fn read(dir: &TeamDir) -> Result<Self, CommandError> {
        // The stamp first: a roster that is replaced meanwhile is read again.
        let (stamp, locked) = (dir.stamp(&TeamPath::config())?, is_locked(dir));
        let roster = roster::load(dir)?;
        let requests = super::folded(dir, &roster);
        Ok(Self { stamp, locked, roster, requests })
    }

    fn is_current(&self, dir: &TeamDir) -> Result<bool, CommandError> {
        Ok(self.stamp == dir.stamp(&TeamPath::config())? && self.locked == is_locked(dir))
    }
}

/// Runs the command, until the person quits.
pub(super) fn run(context: &Context, dir: &TeamDir, args: &StatusArgs) -> CommandResult {
    if !screen::is_terminal() {
        let message = "--watch needs a terminal for stdin and stdout";
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("`teamctl events --follow` follows the team into a pipe"));
    }
    block_on(watch(context, dir, args))
}

async fn watch(context: &Context, dir: &TeamDir, args: &StatusArgs) -> CommandResult {
    let on = |kind| signal(kind).map_err(|error| CommandError::refused("cannot watch for signals", &error));
    let (mut term, mut hup) = (on(SignalKind::terminate())?, on(SignalKind::hangup())?);
    let (mut int, mut quit) = (on(SignalKind::interrupt())?, on(SignalKind::quit())?);
    // Watched before it is read: a change in between is seen.
    let mut wake = Wake::new(dir, &TeamPath::config(), context.settings.poll);
    let mut seen = Seen::read(dir)?;
    let mut screen =
        Screen::open().map_err(|error| CommandError::refused("cannot use the terminal", &error))?;
    let (mut keys, mut answers, mut view) = (EventStream::new(), FuturesUnordered::new(), View::default());
    let prices = money::prices(context);
    loop {
        let mut rows =
            super::rows(&seen.roster, seen.roster.members.iter().collect(), &seen.requests, &prices);
        super::sort(&mut rows);
        rows.retain(|row| super::is_wanted(args, row));
        // One inbox alone: to read all of them takes its time.
        let detailed = rows.iter_mut().find(|row| view.details_of() == Some(&row.member.name));
        detailed.into_iter().for_each(|row| row.unread = roster::unread(dir, row.member).ok());
        let frame = view.frame(&rows, &seen.roster, screen::size());
        screen.show(&frame).map_err(|error| CommandError::refused("cannot draw", &error))?;
        view.drawn(Instant::now());
        tokio::select! {
            // A key that was pressed before a change concerns what was on the screen then.
            biased;
            Some(()) = term.recv() => return Ok(ExitCode::Terminated),
            Some(()) = hup.recv() => return Ok(ExitCode::Interrupted),
            Some(()) = int.recv() => return Ok(ExitCode::Interrupted),
            Some(()) = quit.recv() => return Ok(ExitCode::Interrupted),
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) => match view.key(key, Instant::now()) {
                    Some(Wish::Quit) => return Ok(ExitCode::Done),
                    Some(Wish::Answer(verdict)) => answers.push(give(dir, verdict)),
                    Some(Wish::Suspend) => {
                        screen.suspend().map_err(|error| CommandError::refused("cannot use the terminal", &error))?;
                    }
                    None => {}
                },
                Some(Ok(Event::Paste(text))) => view.paste(&text),
                Some(Ok(_)) => {}
                // The terminal is gone.
                Some(Err(_)) | None => return Ok(ExitCode::Interrupted),
            },
            Some(said) = answers.next() => view.say(said),
            () = wake.changed() => if !seen.is_current(dir)? {
                seen = Seen::read(dir)?;
            },
        }
    }
}

/// Gives an answer, and says what became of it.
async fn give(dir: &TeamDir, verdict: Verdict) -> String {
    let Verdict { request_id, name, approve, feedback } = verdict;
    let what = if approve { "approved" } else { "rejected" };
    match answer::record(dir, &request_id, approve, feedback).await {
        Ok(repeated) => {
            format!("the plan {request_id} of {name} is {}{what}", if repeated { "already " } else { "" })
        }
        Err(error) => format!("error: {error}"),
    }
}
