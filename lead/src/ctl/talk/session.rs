//! A conversation at a terminal: keys in, the agent's words out, until the person leaves.

mod answers;
mod ends;
mod look;
mod plans;

use std::time::Duration;

use teamd_shared::member::Waiting;
use teamd_shared::team_dir::TeamDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::answers::Answers;
use self::ends::{End, Ends};
use super::Talk;
use super::act;
use super::follow::{Changed, Follow};
use super::keyboard::{Key, Keyboard};
use super::party::Party;
use super::presence::Presence;
use super::question::Question;
use super::slash::{self, Input, Slash};
use super::view::{Piece, View};
use crate::ctl::context::Context;
use crate::ctl::escape;
use crate::ctl::output::{Output, Screen, paint};
use crate::ctl::render::DIM;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How many entries of the past are looked at: enough to know whether a turn runs, and what was answered last.
const PAST: usize = 100;
/// How long the prompt waits for what a command prints. A shutdown may take longer: then it is printed above.
const COMMAND: Duration = Duration::from_secs(1);

/// The model that is built in.
const SCRIPT: &str = "script";

/// What happened.
enum Happened {
    Typed(Key),
    Changed(Changed),
    Done(End),
    Interrupted,
    Resumed,
    Ended,
}

/// A conversation.
struct Session<'a> {
    context: Context,
    dir: &'a TeamDir,
    party: &'a Party,
    screen: Screen,
    keyboard: Keyboard,
    follow: Follow<'a>,
    view: View,
    presence: Option<Presence<'a>>,
    /// Whether an answer is awaited: no prompt is shown before a key is pressed.
    awaits: bool,
    /// What the person is asked.
    question: Option<Question>,
    /// The calls for a verdict that the person was asked about.
    asked: Vec<String>,
    /// Whether the daemon ran at the last look.
    daemon: bool,
    /// Whether the agent ran at the last look.
    runs: bool,
    /// The pause of its model call that was told.
    pause: Option<Waiting>,
    /// The last thing that could not be read: it is said once.
    trouble: Option<CommandError>,
    done: Ends,
    /// Who tells how a plan was answered.
    answers: Answers,
    /// The answers that are being given for longer than the prompt waits: the number of each, and the call for a verdict.
    answering: Vec<(u64, String)>,
}

/// Talks until the person leaves.
///
/// # Errors
/// If the agent cannot be reached, or the terminal cannot be used.
pub(super) async fn run(context: &Context, dir: &TeamDir, talk: &Talk) -> CommandResult {
    let party = &talk.party;
    let mut signals = Signals::catch()?;
    // Whoever talks to a teammate that has ended sees what it said, until something is sent.
    let begun = party.leads() && party.ensure(context, dir, false).await?;
    party.running(dir)?;
    let refused = |error| CommandError::new(ExitCode::Failed, format!("cannot use the terminal: {error}"));
    let (keyboard, screen) = Keyboard::open().map_err(refused)?;
    let mut session = Session {
        context: context.elsewhere()(printer(&screen)),
        dir,
        party,
        follow: Follow::begin(dir, &party.name, PAST, context.settings.poll)?,
        screen,
        keyboard,
        view: View::new(&party.name).without_plans(),
        presence: party.leads().then(|| Presence::new(dir)),
        awaits: false,
        question: None,
        asked: Vec::new(),
        daemon: true,
        runs: true,
        pause: None,
        trouble: None,
        done: Ends::new(),
        answers: Answers::default(),
        answering: Vec::new(),
    };
    session.begin(talk.last, begun)?;
    let ended = session.converse(&mut signals).await;
    session.screen.end_line();
    if matches!(ended, Ok(ExitCode::Done)) && session.runs {
        session.context.out.note(format_args!("{} goes on without you", who(party)));
    }
    session.screen.flush();
    ended
}

/// Prints in the words of the prompt.
fn printer(screen: &Screen) -> Output {
    screen.output().in_words(slash::of_prompt)
}

fn who(party: &Party) -> &str {
    if party.leads() { "the team" } else { party.name.as_str() }
}

impl Session<'_> {
    /// Shows where the conversation stands.
    fn begin(&mut self, last: usize, begun: bool) -> Result<(), CommandError> {
        let name = &self.party.name;
        let member = self.follow.member()?;
        let model =
            member.as_ref().map(|(member, _)| escape::line(&member.model).into_owned()).unwrap_or_default();
        let how = if begun { "is ready" } else { "is here" };
        self.context.out.aside(paint(
            DIM,
            format_args!("{name} ({model}) {how}; /help lists the commands, Ctrl-D leaves"),
        ));
        if begun && model == SCRIPT {
            self.context
                .out
                .note("it runs the built-in `script` model, which does what lines such as `//bash make` say");
            self.context.out.hint(
                "for another one: /shutdown lead, /quit, then `teamctl chat --model anthropic` (or openai:MODEL)",
            );
        }
        let heard = self.follow.conversation()?;
        let past = heard.entries.len().saturating_sub(last);
        self.view.past(&heard.entries[..past], heard.live);
        let pieces = self.view.round(heard.live, &heard.entries[past..]);
        if pieces.is_empty()
            && !begun
            && let Some(failure) = self.view.failure()
        {
            self.show(vec![Piece::Wrong(failure.to_owned())])?;
        }
        self.show(pieces)?;
        self.awaits = self.view.in_turn();
        for plan in self.follow.plans()?.iter().filter(|plan| plan.is_pending()) {
            self.tell_of(plan)?;
        }
        self.look_at_team()?;
        self.look_for_question()?;
        self.ready();
        Ok(())
    }

    async fn converse(&mut self, signals: &mut Signals) -> CommandResult {
        loop {
            let happened = tokio::select! {
                key = self.keyboard.next() => Happened::Typed(key),
                changed = self.follow.changed() => Happened::Changed(changed),
                Some(end) = self.done.next() => Happened::Done(end),
                happened = signals.next() => happened,
            };
            match happened {
                Happened::Typed(Key::End) | Happened::Ended => return Ok(ExitCode::Done),
                Happened::Typed(Key::Interrupt) => {
                    self.interrupt().await?;
                    self.ready();
                }
                Happened::Typed(Key::Line { text, question }) => {
                    if self.typed(&text, question).await? {
                        return Ok(ExitCode::Done);
                    }
                    self.ready();
                }
                Happened::Changed(changed) => self.look(changed)?,
                Happened::Done(end) => {
                    self.hear(end);
                    self.look_for_question()?;
                }
                Happened::Typed(Key::Stop) | Happened::Interrupted => self.interrupt().await?,
                Happened::Resumed => self.keyboard.resumed(),
            }
            self.tell_of_plans()?;
        }
    }

    /// Lets the person type: now, or when a key is pressed while the agent speaks.
    fn ready(&mut self) {
        let plain = format!("{}> ", self.party.name);
        match &self.question {
            Some(question) => self.keyboard.prompt_for(self.asked.len(), question.prompt()),
            None if self.awaits => self.keyboard.prompt_on_key(&plain),
            None => self.keyboard.prompt(&plain),
        }
    }

    /// Does what a line means that was begun under the prompt of a question, or under none. Returns whether the person
    /// leaves.
    async fn typed(&mut self, line: &str, question: Option<usize>) -> Result<bool, CommandError> {
        match slash::parse(line) {
            Input::Do(Slash::Quit) => return Ok(true),
            Input::Do(command) => {
                self.carry_out(command).await;
            }
            Input::Wrong(why) => {
                self.tell(&CommandError::new(ExitCode::Usage, why).hint("//TEXT sends /TEXT"))
            }
            _ if self.question.is_some() && question == Some(self.asked.len()) => self.reply(line).await?,
            Input::Nothing => {}
            Input::Say(text) if self.question.is_some() && Question::is_word(&text) => {
                self.context.out.note(format_args!("{text:?} was typed before you were asked: answer again"));
            }
            // Nobody is asked any more, and nobody else is told so.
            Input::Say(text) if question.is_some() && Question::is_word(&text) => {
                self.context.out.note(format_args!("{text:?} was not sent: that question is over"));
            }
            Input::Say(text) => {
                self.put_off();
                if let Err(error) = self.say(&text).await {
                    self.tell(&error);
                }
            }
        }
        Ok(false)
    }

    async fn say(&mut self, text: &str) -> Result<(), CommandError> {
        let running = self.party.running(self.dir)?;
        if running.is_none() && self.party.leads() {
            self.context.out.note(format_args!("{} is started again", self.party.name));
        }
        self.party.ensure(&self.context, self.dir, true).await?;
        let id = self.party.say(&self.context, self.dir, text)?;
        self.view.sent(id);
        (self.awaits, self.runs) = (true, true);
        Ok(())
    }

    /// Carries a command out in a thread of its own: it has a runtime of its own, and may take long. Returns its number,
    /// and its end, unless it takes longer than the prompt waits: then it goes on.
    async fn carry_out(&mut self, command: Slash) -> (u64, Option<End>) {
        let (screen, elsewhere) = (self.screen.clone(), self.context.elsewhere());
        let party = self.party.name.clone();
        let (number, reports) = self.done.begin();
        if matches!(command, Slash::Answer { .. }) {
            self.answers.begin(number);
        }
        std::thread::spawn(move || {
            let context = elsewhere(printer(&screen));
            let told = act::run(&context, &party, command).unwrap_or_else(|error| {
                context.out.error(&error);
                None
            });
            reports.end(told);
        });
        let ends = self.done.until(number, COMMAND).await;
        let own = ends.last().filter(|end| end.number == number).cloned();
        ends.into_iter().for_each(|end| self.hear(end));
        let answered = |question: &mut Question| self.answers.has_told(question.request_id());
        // By a command, and not at the question.
        self.question.take_if(answered);
        (number, own)
    }

    /// Takes note of the commands that have ended meanwhile.
    fn hear_ends(&mut self) {
        while let Some(end) = self.done.ready() {
            self.hear(end);
        }
    }

    fn hear(&mut self, end: End) {
        let (answering, number) = (&mut self.answering, end.number);
        let given = answering.iter().position(|(of, _)| *of == number).map(|at| answering.swap_remove(at));
        // It has said why the answer was not given: the person is asked again.
        if let Some((_, call)) = given.filter(|_| end.told.is_none()) {
            self.asked.iter_mut().filter(|asked| **asked == call).for_each(String::clear);
        }
        self.answers.end(end);
    }

    /// Ctrl-C: ends the turn that runs, and nothing else.
    async fn interrupt(&mut self) -> Result<(), CommandError> {
        if self.question.is_some() {
            self.put_off();
        } else if self.awaits || self.view.in_turn() {
            self.carry_out(Slash::Interrupt(None)).await;
        } else {
            self.context.out.hint("nothing runs here; /quit or Ctrl-D leaves");
        }
        Ok(())
    }

    fn tell(&self, error: &CommandError) {
        self.context.out.error(error);
    }
}

/// The signals that mean something here.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    resume: Signal,
}

impl Signals {
    fn catch() -> Result<Self, CommandError> {
        let refused = |error| CommandError::new(ExitCode::Failed, format!("cannot catch signals: {error}"));
        let catch = |kind| signal(kind).map_err(refused);
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
            resume: catch(SignalKind::from_raw(nix::libc::SIGCONT))?,
        })
    }

    async fn next(&mut self) -> Happened {
        tokio::select! {
            _ = self.interrupt.recv() => Happened::Interrupted,
            _ = self.terminate.recv() => Happened::Ended,
            _ = self.hang_up.recv() => Happened::Ended,
            _ = self.resume.recv() => Happened::Resumed,
        }
    }
}
