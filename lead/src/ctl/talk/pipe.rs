//! A conversation without a terminal: what stands on stdin is said, and the agent's answers are the result. It ends
//! with the work that this set off.

use std::io::{self, IsTerminal};
use std::time::Duration;

use teamd_shared::clock::wall;
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::Entry;

use super::Talk;
use super::act;
use super::follow::{Follow, Heard};
use super::quiet::{Quiet, quiet};
use super::slash::{self, Input, Slash};
use super::view::{Piece, View};
use crate::ctl::context::{Context, block_on};
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, DIM};
use crate::ctl::stream::as_it_stands;
use crate::ctl::waiting::Interrupt;
use crate::ctl::{clock, escape, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Between two looks at a team that seems to be done, at first and at last: the files change before the roster does, and a
/// worker that is held up may leave its mail where it is.
const SETTLING: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Says what stands on stdin, and waits until the work is done.
///
/// # Errors
/// As the agent cannot be reached; [`ExitCode::Failed`] if its work failed, [`ExitCode::TimedOut`],
/// [`ExitCode::Interrupted`].
pub(super) fn run(context: &Context, dir: &TeamDir, talk: &Talk) -> CommandResult {
    let said = text::given("-")?;
    let inputs = match said.starts_with('/') {
        true => said.lines().map(slash::parse).collect(),
        false if said.trim().is_empty() => Vec::new(),
        false => vec![Input::Say(said)],
    };
    let wrong = inputs.iter().find_map(|input| match input {
        Input::Wrong(why) => Some(why.clone()),
        _ => None,
    });
    // Nothing is done of what is wrong in part.
    if let Some(why) = wrong {
        return Err(CommandError::new(ExitCode::Usage, why).hint("//TEXT sends /TEXT"));
    }
    if talk.party.leads() && inputs.is_empty() {
        return Err(CommandError::new(ExitCode::Usage, "there is nothing to say on stdin")
            .hint("`echo TEXT | teamctl chat`, or call it at a terminal"));
    }
    let says = inputs.iter().any(|input| matches!(input, Input::Say(_)));
    let mut pipe = block_on(Pipe::begin(context, dir, talk, says))?;
    for input in inputs {
        match input {
            Input::Do(Slash::Quit) => return Ok(ExitCode::Done),
            Input::Do(command) => {
                act::run(context, &talk.party.name, command)?;
            }
            Input::Say(text) => pipe.say(&text)?,
            Input::Nothing | Input::Wrong(_) => {}
        }
    }
    // Commands alone set nothing off.
    if !says && talk.party.leads() {
        return Ok(ExitCode::Done);
    }
    block_on(pipe.wait())
}

/// A conversation.
struct Pipe<'a> {
    context: &'a Context,
    dir: &'a TeamDir,
    talk: &'a Talk,
    view: View,
    /// Whether stdout is a terminal, on which nothing must act that others wrote.
    terminal: bool,
    /// Where the transcript stood.
    begun: Follow<'a>,
}

impl<'a> Pipe<'a> {
    async fn begin(
        context: &'a Context,
        dir: &'a TeamDir,
        talk: &'a Talk,
        says: bool,
    ) -> Result<Self, CommandError> {
        let party = &talk.party;
        match says {
            true => drop(party.ensure(context, dir, false).await?),
            false => drop(party.running(dir)?),
        }
        let last = if says { 0 } else { talk.last };
        let begun = Follow::begin(dir, &party.name, last, context.settings.poll)?;
        Ok(Self {
            context,
            dir,
            talk,
            view: View::new(&party.name),
            terminal: io::stdout().is_terminal(),
            begun,
        })
    }

    fn say(&mut self, text: &str) -> Result<(), CommandError> {
        let id = self.talk.party.say(self.context, self.dir, text)?;
        self.view.sent(id);
        Ok(())
    }

    async fn wait(mut self) -> CommandResult {
        let mut interrupt = Interrupt::catch()?;
        let name = self.talk.party.name.clone();
        let limit = self.talk.timeout;
        let deadline = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = self.follow() => ended,
            () = interrupt.came() => {
                let message = format!("the waiting for {name} was ended");
                Err(CommandError::new(ExitCode::Interrupted, message)
                    .hint(format!("{name} goes on; `teamctl interrupt {name}` ends what it does")))
            }
            () = deadline => {
                let time = clock::span(limit.unwrap_or_default().as_secs_f64());
                Err(CommandError::new(ExitCode::TimedOut, format!("the work is not done after {time}"))
                    .hint(format!("it goes on; `teamctl attach {name}` shows it")))
            }
        }
    }

    async fn follow(&mut self) -> CommandResult {
        let (mut told, mut pause, mut settling) = (false, None, SETTLING.0);
        while !self.context.out.closed() {
            // Looked at first: what is quiet then has said all that the files hold.
            let (everybody, waiting) = self.begun.everybody()?;
            let state = quiet(&self.talk.party.name, self.talk.party.leads(), &everybody);
            let Heard { entries, lines, .. } = self.begun.conversation()?;
            self.show(&entries, &lines)?;
            match &state {
                Quiet::No | Quiet::Soon => {}
                _ if !entries.is_empty() => continue,
                state => return self.end(state),
            }
            if waiting != pause {
                pause = waiting;
                if let Some(pause) = &pause {
                    let line = format!("{}: {}", self.talk.party.name, pause.told(wall()));
                    self.context.out.aside(paint(DIM, escape::line(&line)));
                }
            }
            if !told && !self.begun.has_daemon() {
                told = true;
                self.context.out.note("the daemon is gone; still waiting (`teamd start` starts it again)");
            }
            // What a teammate takes in without a turn changes nothing that wakes.
            let next = if state == Quiet::Soon { settling } else { Duration::MAX };
            settling = if state == Quiet::Soon { (settling * 2).min(SETTLING.1) } else { SETTLING.0 };
            drop(tokio::time::timeout(next, self.begun.changed()).await);
        }
        Ok(ExitCode::Done)
    }

    fn show(&mut self, entries: &[Entry], lines: &[Vec<u8>]) -> Result<(), CommandError> {
        if self.context.out.is_json() {
            for line in lines {
                self.context.out.json(&as_it_stands(line))?;
            }
        }
        // Answers are shown as a whole: what was printed cannot be taken back.
        for piece in self.view.round("", entries) {
            match piece {
                Piece::Answer(_) if self.context.out.is_json() => {}
                Piece::Answer(text) if self.terminal => self.context.out.text(escape::text(&text))?,
                Piece::Answer(text) => self.context.out.text(text)?,
                Piece::End => {}
                Piece::Aside(line) => self.context.out.aside(paint(DIM, escape::line(&line))),
                Piece::Wrong(line) => self.context.out.aside(paint(BAD, escape::line(&line))),
            }
        }
        Ok(())
    }

    fn end(&self, state: &Quiet) -> CommandResult {
        let name = &self.talk.party.name;
        match state {
            Quiet::Gone => {
                let message = format!("{name} has ended before the work was done");
                return Err(CommandError::new(ExitCode::Failed, message)
                    .hint(format!("`teamctl status {name}` and `teamctl log {name}` show why")));
            }
            Quiet::Waits(names) => {
                let names = names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
                self.context.out.note(format_args!("a plan waits for a person: {names}"));
                self.context
                    .out
                    .hint("`teamctl plans` shows it; `teamctl approve ID` or `reject ID` answers it");
            }
            Quiet::Yes | Quiet::Soon | Quiet::No => {}
        }
        match self.view.ended() {
            None | Some(IdleReason::Available) => Ok(ExitCode::Done),
            Some(reason) => {
                let message = format!("the work of {name} was not done: {}", reason.as_str());
                Err(CommandError::new(ExitCode::Failed, message)
                    .hint(format!("`teamctl transcript {name} --last 5` shows what it came to")))
            }
        }
    }
}
