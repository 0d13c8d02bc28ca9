//! A chat at a terminal: lines in, the agent's words out, until the person leaves.

mod look;
mod plans;

use std::io;
use std::time::Duration;

use teamd_shared::member::Waiting;
use teamd_shared::message::IdleReason;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::{Entry, Event};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::ChatOptions;
use super::commands::{self, ChatInput};
use super::follow::Follower;
use super::keyboard::Keyboard;
use super::presence::Presence;
use super::question::PlanQuestion;
use super::target::ChatTarget;
use super::terminal::{Key, Prompt};
use super::view::ConversationView;
use crate::ctl::args::{self, Command};
use crate::ctl::context::Context;
use crate::ctl::escape;
use crate::ctl::output::{Output, Screen, paint};
use crate::ctl::render::DIM;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How many entries of the past are read: enough to know whether a turn is running, and which verdicts wait.
const PAST: usize = 100;
/// How long the prompt waits for the output of a command. A shutdown may take longer: its output is shown above the prompt.
const COMMAND: Duration = Duration::from_secs(1);

/// The model that is built in.
const SCRIPT: &str = "script";

/// A chat.
struct Session<'a> {
    context: Context,
    dir: &'a TeamDir,
    target: &'a ChatTarget,
    screen: Screen,
    keyboard: Keyboard,
    follower: Follower<'a>,
    view: ConversationView,
    presence: Option<Presence<'a>>,
    /// Whether an answer is awaited: the prompt is shown when a key is pressed, and not before.
    awaits: bool,
    question: Option<PlanQuestion>,
    /// The calls for a verdict about which the person was asked.
    asked: Vec<String>,
    /// Whether the daemon ran at the last look.
    daemon: bool,
    /// Whether the agent ran at the last look.
    runs: bool,
    /// The pause of its model call that is shown.
    pause: Option<Waiting>,
    /// The last failure to read a file, which is shown once.
    trouble: Option<CommandError>,
}

/// Runs the chat until the person leaves.
///
/// # Errors
/// If the agent cannot be reached, or the terminal cannot be used.
pub(super) async fn run(context: &Context, dir: &TeamDir, options: &ChatOptions) -> CommandResult {
    let target = &options.target;
    let refused =
        |error: io::Error| CommandError::new(ExitCode::Failed, format!("cannot use the terminal: {error}"));
    let signals = signals().map_err(refused)?;
    // A teammate that has ended is only shown, until something is sent.
    let begun = target.is_lead() && target.ensure(context, dir, false).await?;
    target.running(dir)?;
    let (keyboard, screen) = Keyboard::open().map_err(refused)?;
    let mut session = Session {
        context: context.elsewhere()(output(&screen)),
        dir,
        target,
        follower: Follower::begin(dir, &target.name, PAST, context.settings.poll)?,
        screen,
        keyboard,
        view: ConversationView::new(&target.name, true),
        presence: target.is_lead().then(|| Presence::new(dir)),
        awaits: false,
        question: None,
        asked: Vec::new(),
        daemon: true,
        runs: true,
        pause: None,
        trouble: None,
    };
    session.begin(options.last, begun)?;
    let ended = session.converse(signals).await;
    session.screen.end_line();
    if matches!(ended, Ok(ExitCode::Done)) && session.runs {
        let stays = if target.is_lead() { "the team" } else { target.name.as_str() };
        session.context.out.note(format_args!("{stays} goes on without you"));
    }
    session.screen.flush();
    ended
}

/// Catches SIGINT, SIGCONT (after Ctrl-Z), SIGTERM and SIGHUP: each leaves the terminal as it was.
fn signals() -> io::Result<[Signal; 4]> {
    let resume = SignalKind::from_raw(nix::libc::SIGCONT);
    let [interrupt, resume, terminate, hang_up] =
        [SignalKind::interrupt(), resume, SignalKind::terminate(), SignalKind::hangup()].map(signal);
    Ok([interrupt?, resume?, terminate?, hang_up?])
}

/// Prints above the prompt, in the words of the prompt.
fn output(screen: &Screen) -> Output {
    screen.output().in_words(commands::in_chat)
}

/// Tells whether the last piece of work failed.
fn has_failed(entries: &[Entry]) -> bool {
    let last = entries.last().map(|entry| &entry.event);
    matches!(last, Some(Event::Idle { idle_reason: IdleReason::Failed, .. }))
}

impl Session<'_> {
    /// Shows the state of the conversation.
    fn begin(&mut self, last: usize, begun: bool) -> Result<(), CommandError> {
        let name = &self.target.name;
        let member = self.follower.member()?;
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
        let added = self.follower.conversation()?;
        let shown = if has_failed(&added.entries) { last.max(1) } else { last };
        let (past, entries) = added.entries.split_at(added.entries.len().saturating_sub(shown));
        self.view.skip(past, &added.live);
        let items = self.view.update(&added.live, entries);
        self.show(items);
        self.awaits = self.view.in_turn();
        for plan in self.follower.plans()?.iter().filter(|plan| plan.is_pending()) {
            self.show_plan(plan);
        }
        self.look_at_team()?;
        self.look_for_question()?;
        self.ready();
        Ok(())
    }

    async fn converse(&mut self, signals: [Signal; 4]) -> CommandResult {
        let [mut interrupt, mut resume, mut terminate, mut hang_up] = signals;
        loop {
            tokio::select! {
                key = self.keyboard.next() => match key {
                    Key::End => return Ok(ExitCode::Done),
                    Key::Interrupt => self.interrupt().await,
                    Key::Line { text, question } => {
                        if self.typed(&text, question).await {
                            return Ok(ExitCode::Done);
                        }
                        self.look();
                    }
                },
                () = self.follower.changed() => self.look(),
                _ = interrupt.recv() => self.interrupt().await,
                _ = resume.recv() => self.keyboard.resumed(),
                _ = terminate.recv() => return Ok(ExitCode::Done),
                _ = hang_up.recv() => return Ok(ExitCode::Done),
            }
            self.ready();
        }
    }

    /// Shows the prompt that fits: now, or when a key is pressed while the agent speaks.
    fn ready(&self) {
        match &self.question {
            Some(question) => {
                let prompt = Prompt { text: question.prompt().to_owned(), question: Some(self.asked.len()) };
                self.keyboard.ask(prompt, false);
            }
            None => {
                let prompt = Prompt { text: format!("{}> ", self.target.name), question: None };
                self.keyboard.ask(prompt, self.awaits);
            }
        }
    }

    /// Does what a line means. `question` is the one under whose prompt it was begun. Returns whether the person leaves.
    async fn typed(&mut self, line: &str, question: Option<usize>) -> bool {
        let current = self.question.as_ref().map(|_| self.asked.len());
        match commands::parse(line, &self.target.name) {
            ChatInput::Quit => return true,
            ChatInput::Help => self.context.out.aside(commands::help().trim_end()),
            ChatInput::Call(command) => self.call(*command).await,
            ChatInput::Wrong(error) => self.context.out.error(&error),
            _ if current.is_some() && question == current => self.reply(line).await,
            ChatInput::Nothing => {}
            ChatInput::Say(text) if question != current && PlanQuestion::is_answer(&text) => {
                self.context.out.note(match current {
                    Some(_) => format!("{text:?} was typed before you were asked: answer again"),
                    None => format!("{text:?} was not sent: that question is over"),
                });
            }
            ChatInput::Say(text) => {
                self.put_off();
                if let Err(error) = self.say(&text).await {
                    self.context.out.error(&error);
                }
            }
        }
        false
    }

    /// Carries a command out. One that answers the plan of the question ends the question.
    async fn call(&mut self, command: Command) {
        let answers = match &command {
            Command::Approve(verdict) | Command::Reject(verdict) => Some(verdict.id.clone()),
            _ => None,
        };
        let done = matches!(self.carry_out(command).await, Some(Ok(_)));
        if let Some(id) = answers.filter(|_| done) {
            self.question.take_if(|question| question.request_id().as_str().starts_with(&id));
        }
    }

    async fn say(&mut self, text: &str) -> Result<(), CommandError> {
        let running = self.target.running(self.dir)?;
        if running.is_none() && self.target.is_lead() {
            self.context.out.note(format_args!("{} is started again", self.target.name));
        }
        self.target.ensure(&self.context, self.dir, true).await?;
        let id = self.target.send(&self.context, self.dir, text)?;
        self.view.sent(id);
        (self.awaits, self.runs) = (true, true);
        Ok(())
    }

    /// Carries a command out in a thread: it has a runtime of its own, and may take long. Returns its result, unless it takes
    /// longer than the prompt waits: then it goes on.
    async fn carry_out(&self, command: Command) -> Option<CommandResult> {
        let (done, is_done) = oneshot::channel();
        let (screen, elsewhere) = (self.screen.clone(), self.context.elsewhere());
        // The answer to a plan that the chat follows is shown from the journal.
        let followed = (!self.target.is_lead()).then(|| self.target.name.clone());
        std::thread::spawn(move || {
            let context = elsewhere(output(&screen));
            let says_answer = |from: &str| followed.is_some_and(|name| name.as_str() != from);
            let result = commands::run(&context, command, says_answer);
            if let Err(error) = &result {
                context.out.error(error);
            }
            // The prompt may have stopped waiting.
            done.send(result).ok();
        });
        tokio::time::timeout(COMMAND, is_done).await.ok()?.ok()
    }

    /// Ctrl-C: interrupts the current turn, and nothing else.
    async fn interrupt(&mut self) {
        if self.question.is_some() {
            self.put_off();
        } else if self.awaits || self.view.in_turn() {
            let name = self.target.name.clone();
            self.carry_out(Command::Interrupt(args::Teammate { name })).await;
        } else {
            self.context.out.hint("no turn is running; /quit or Ctrl-D leaves");
        }
    }
}
