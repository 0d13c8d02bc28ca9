//! A chat at a terminal: keys in, the agent's words out, until the person leaves.

mod actions;
mod draw;
mod keys;
mod look;
mod plans;
mod questions;
mod run;

use std::time::{Duration, Instant};

use teamd_client::act::Perform;
use teamd_shared::message::IdleReason;
use teamd_shared::price::Prices;
use teamd_shared::settings::Notify;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::{Entry, Event};

use super::agent::ChatTarget;
use super::agent::presence::Presence;
use super::console::{Console, next_event};
use super::conversation::view::ConversationView;
use super::log::{Log, LogBlock};
use super::print_queue::PrintQueue;
use super::prompt::commands;
use super::{ChatOptions, SCRIPT};
use crate::model::ConversationPart;
use crate::model::Follower;
use crate::terminal::{FRAME, Overlay};
use look::WorkStatus;
use questions::{OpenQuestion, QuestionId, Questions};

pub(super) use run::run;

use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::print::escape;
use teamd_client::print::output::Output;
use teamd_client::print::render::DIM;
use teamd_client::print::style::paint;
use teamd_client::read::money;

/// How many entries of the past are read: enough to know whether a turn is running, and which
/// verdicts wait.
const PAST: usize = 100;
/// After how long without a key the person gets a signal when a piece of work ends.
const AWAY: Duration = Duration::from_secs(5);

/// A chat with one agent.
struct ChatSession<'a> {
    context: Context,
    perform: Perform,
    dir: &'a TeamDir,
    target: ChatTarget,
    console: &'a mut Console,
    follower: Follower<'a>,
    view: ConversationView,
    log: Log,
    /// The help, while it is on the screen.
    overlay: Option<Overlay>,
    presence: Option<Presence<'a>>,
    prices: Prices,
    questions: Questions,
    /// When the last key was pressed.
    pressed: Instant,
    /// Whether the last key was a Ctrl-C for which there was nothing to interrupt.
    leaves: bool,
    seen: LastLook,
}

/// What was seen of the agent and its daemon when the files were read last.
struct LastLook {
    has_daemon: bool,
    runs: bool,
    /// Whether an answer to a message of the person is awaited.
    awaits: bool,
    model: String,
    /// Who the agent is, in one line.
    title: String,
    /// What it has used.
    spent: String,
    /// What it did, and since when.
    doing: Option<(String, Instant)>,
    /// The failure to read a file, which is shown once.
    trouble: Option<CommandError>,
}

/// What comes after a key or a line.
enum AfterInput {
    Stay,
    Leave,
    /// Talk to another agent.
    Turn(ChatTarget),
}

fn unusable(error: std::io::Error) -> CommandError {
    CommandError::refused("cannot use the terminal", &error)
}

/// Prints into the log, in the words of the prompt.
fn output(printed: &PrintQueue, columns: usize) -> Output {
    printed.output()(columns).in_words(commands::in_chat)
}

/// Tells whether the last piece of work failed.
fn has_failed(entries: &[Entry]) -> bool {
    let last = entries.last().map(|entry| &entry.event);
    matches!(
        last,
        Some(Event::Idle {
            idle_reason: IdleReason::Failed,
            ..
        })
    )
}

/// What can change on the screen without the person.
#[derive(PartialEq)]
struct News {
    /// How many blocks the log has got.
    blocks: usize,
    live: String,
    status: Option<WorkStatus>,
    title: String,
    spent: String,
    question: Option<QuestionId>,
    prompt: String,
}

impl LastLook {
    const fn begin(awaits: bool) -> Self {
        Self {
            has_daemon: true,
            runs: true,
            awaits,
            model: String::new(),
            title: String::new(),
            spent: String::new(),
            doing: None,
            trouble: None,
        }
    }
}

impl<'a> ChatSession<'a> {
    /// Begins with the last entries of the conversation.
    fn begin(
        context: &Context,
        dir: &'a TeamDir,
        options: &ChatOptions,
        console: &'a mut Console,
    ) -> Result<Self, CommandError> {
        let target = &options.target;
        let columns = console.screen.columns();
        let mut follower = Follower::begin(dir, &target.name, PAST, context.settings.poll)?;
        let mut view = ConversationView::new(&target.name, true);
        let new = follower.conversation()?;
        let least = usize::from(has_failed(&new.entries));
        let hidden = new.entries.len().saturating_sub(options.last.max(least));
        let mut parts = view.update(&new.live, &new.entries[..hidden]);
        let shown = view.update(&new.live, &new.entries[hidden..]);
        let shown_count = shown.len();
        parts.extend(shown);
        follower.plans()?;
        Ok(Self {
            context: context.elsewhere()(output(&console.printed, columns)),
            perform: options.perform,
            dir,
            follower,
            log: Log::begin(parts, shown_count),
            overlay: None,
            presence: target.is_lead().then(|| Presence::new(dir)),
            prices: money::prices(context),
            target: target.clone(),
            console,
            seen: LastLook::begin(view.in_turn()),
            view,
            questions: Questions::default(),
            pressed: Instant::now(),
            leaves: false,
        })
    }

    /// Says who is here, and which plans wait.
    fn greet(&mut self, begun: bool) -> Result<(), CommandError> {
        self.look_at_team()?;
        let name = &self.target.name;
        let model = escape::line(&self.seen.model);
        let how = if begun { "is ready" } else { "is here" };
        self.context.out.aside(paint(
            DIM,
            format_args!("{name} ({model}) {how}; /help lists the commands, Ctrl-D leaves"),
        ));
        if begun && model == SCRIPT {
            let what = "it runs the built-in `script` model, which does what lines such as `/bash make` say";
            self.context.out.note(what);
            self.context
                .out
                .hint("/model anthropic (or openai:MODEL) switches to another one");
        }
        let waiting: Vec<_> = self.follower.waiting().cloned().collect();
        for plan in &waiting {
            self.show_plan(plan);
        }
        Ok(())
    }

    async fn converse(&mut self) -> Result<AfterInput, CommandError> {
        // What the screen shows, unless something has happened that changes the rest of it.
        let mut on_screen = None;
        loop {
            if let Some(next) = self.ask().await? {
                return Ok(next);
            }
            self.take_printed();
            let news = Some(self.news());
            if on_screen != news {
                self.draw()?;
            }
            on_screen = None;
            let drawn = Instant::now();
            let open = self.questions.open.as_ref();
            let settles = open.and_then(OpenQuestion::settles_in);
            let Console {
                keys,
                signals,
                printed,
                ..
            } = &mut *self.console;
            let next = tokio::select! {
                // A key that was pressed before a change concerns what was on the screen then.
                biased;
                _ = signals.terminate.recv() => AfterInput::Leave,
                _ = signals.hang_up.recv() => AfterInput::Leave,
                _ = signals.quit.recv() => AfterInput::Leave,
                event = next_event(keys) => self.take_all(event).await?,
                _ = signals.interrupt.recv() => {
                    self.interrupt().await;
                    AfterInput::Stay
                }
                _ = signals.resume.recv() => {
                    self.console.take_back().map_err(unusable)?;
                    AfterInput::Stay
                }
                text = printed.next() => {
                    self.log.push(LogBlock::Printed(text));
                    AfterInput::Stay
                }
                () = tokio::time::sleep(settles.unwrap_or(Duration::MAX)) => AfterInput::Stay,
                () = async {
                    self.follower.changed().await;
                    tokio::time::sleep(FRAME.saturating_sub(drawn.elapsed())).await;
                } => {
                    on_screen = news;
                    AfterInput::Stay
                }
            };
            if !matches!(next, AfterInput::Stay) {
                return Ok(next);
            }
            self.look();
        }
    }

    /// Returns what can change on the screen without the person.
    fn news(&self) -> News {
        News {
            blocks: self.log.added(),
            live: self.view.live().to_owned(),
            status: self.status(),
            title: self.seen.title.clone(),
            spent: self.seen.spent.clone(),
            question: self.questions.open.as_ref().map(OpenQuestion::id),
            prompt: self.prompt(),
        }
    }

    /// Leaves the agent: what was said with it, and what there is of its answer, is printed later.
    fn end(mut self) {
        self.look();
        self.take_printed();
        let live = self.view.live();
        if !live.is_empty() {
            self.log
                .push(LogBlock::Part(ConversationPart::Answer(live.to_owned())));
            let unfinished = paint(DIM, "(the answer was not complete when you left)");
            self.log.push(LogBlock::Printed(unfinished));
        }
        self.console.spoken.extend(self.log.into_new());
    }

    /// Begins the next question. Keys that were pressed before it is on the screen answer nothing.
    /// Returns what one of them leads to, if the chat is over.
    async fn ask(&mut self) -> Result<Option<AfterInput>, CommandError> {
        let Some(question) = self.next_question() else {
            return Ok(None);
        };
        let left = self.take_pressed().await?;
        self.ring(question.text());
        self.questions.open = Some(question);
        Ok(left)
    }

    /// Tells the person, who may look elsewhere, by a sound or a notice of the terminal.
    fn ring(&mut self, what: &str) {
        let bytes = match self.context.settings.notify {
            Notify::Bell => "\x07".to_owned(),
            Notify::Osc9 => format!("\x1b]9;{}\x07", escape::line(what)),
            Notify::Off => return,
        };
        // If the terminal is gone, the next frame fails.
        self.console.screen.signal(&bytes).ok();
    }
}
