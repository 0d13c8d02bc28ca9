//! A chat at a terminal: keys in, the agent's words out, until the person leaves.

mod actions;
mod keys;
mod look;
mod plans;

use std::io;
use std::time::{Duration, Instant};

use teamd_client::act::Perform;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::output::{Dock, Output, Screen, paint};
use teamd_client::print::render::{BOLD, DIM};
use teamd_shared::id::RequestId;
use teamd_shared::message::IdleReason;
use teamd_shared::settings::Notify;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::{Entry, Event};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::agent::ChatTarget;
use super::agent::presence::Presence;
use super::conversation::answer::AnswerText;
use super::conversation::follow::Follower;
use super::conversation::view::ConversationView;
use super::prompt::commands;
use super::prompt::question::PlanQuestion;
use super::terminal::{Keyboard, Line, LineHistory};
use super::{ChatOptions, SCRIPT};

/// How many entries of the past are read: enough to know whether a turn is running, and which
/// verdicts wait.
const PAST: usize = 100;
/// How many entries are shown of a teammate to which the person turns.
const ATTACHED: usize = 10;
/// After how long without a key the person is told that a piece of work has ended.
const AWAY: Duration = Duration::from_secs(5);

/// What stays when the person turns to another agent.
struct Console {
    screen: Screen,
    keyboard: Keyboard,
    line: Line,
    signals: [Signal; 4],
}

/// A chat with one agent.
struct Session<'a> {
    context: Context,
    perform: Perform,
    dir: &'a TeamDir,
    target: ChatTarget,
    console: &'a mut Console,
    follower: Follower<'a>,
    view: ConversationView,
    answer: AnswerText,
    presence: Option<Presence<'a>>,
    /// Whether an answer to a message of the person is awaited.
    awaits: bool,
    question: Option<PlanQuestion>,
    /// The calls for a verdict that the person was told of, and the plans that the person has put
    /// off.
    asked: Vec<String>,
    /// The plan of the question under which the line was begun.
    begun: Option<RequestId>,
    /// When the last key was pressed.
    pressed: Instant,
    /// Whether the daemon ran at the last look.
    daemon: bool,
    /// Whether the agent ran at the last look.
    runs: bool,
    /// The model of the agent at the last look.
    model: String,
    /// What the agent did at the last look, and since when.
    doing: Option<(String, Instant)>,
    /// The last failure to read a file, which is shown once.
    trouble: Option<CommandError>,
}

/// What comes after a key or a line.
enum Next {
    Stay,
    Leave,
    /// Talk to another agent.
    Turn(ChatTarget),
}

/// Runs the chat until the person leaves.
///
/// # Errors
/// If the agent cannot be reached, or the terminal cannot be used.
pub(super) async fn run(context: &Context, dir: &TeamDir, options: &ChatOptions) -> CommandResult {
    let target = &options.target;
    let refused = |error: io::Error| {
        CommandError::new(
            ExitCode::Failed,
            format!("cannot use the terminal: {error}"),
        )
    };
    let signals = signals().map_err(refused)?;
    // A teammate that has ended is only shown, until something is sent.
    let mut begun = target.is_lead() && target.ensure(context, dir, false).await?;
    target.running(dir)?;
    let keyboard = Keyboard::open().map_err(refused)?;
    let screen = Screen::of_stdout();
    let line = Line::new(LineHistory::load(&output(&screen)));
    let mut console = Console {
        screen,
        keyboard,
        line,
        signals,
    };
    let mut target = target.clone();
    let mut last = options.last;
    let ended = loop {
        let mut session = Session::new(context, options.perform, dir, &target, &mut console)?;
        session.begin(last, begun)?;
        match session.converse().await {
            Next::Turn(other) => {
                target = other;
                last = ATTACHED;
                begun = false;
            }
            _ => break session.runs,
        }
    };
    console.screen.dock(Dock::default());
    if ended {
        let stays = if target.is_lead() {
            "the team"
        } else {
            target.name.as_str()
        };
        output(&console.screen).note(format_args!("{stays} goes on without you"));
    }
    console.screen.flush();
    Ok(ExitCode::Done)
}

/// Catches SIGINT, SIGCONT (after Ctrl-Z), SIGTERM and SIGHUP: each leaves the terminal as it was.
fn signals() -> io::Result<[Signal; 4]> {
    let resume = SignalKind::from_raw(nix::libc::SIGCONT);
    let [interrupt, resume, terminate, hang_up] = [
        SignalKind::interrupt(),
        resume,
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(signal);
    Ok([interrupt?, resume?, terminate?, hang_up?])
}

/// Prints above the prompt, in the words of the prompt.
fn output(screen: &Screen) -> Output {
    screen.output().in_words(commands::in_chat)
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

impl<'a> Session<'a> {
    fn new(
        context: &Context,
        perform: Perform,
        dir: &'a TeamDir,
        target: &ChatTarget,
        console: &'a mut Console,
    ) -> Result<Self, CommandError> {
        Ok(Self {
            context: context.elsewhere()(output(&console.screen)),
            perform,
            dir,
            follower: Follower::begin(dir, &target.name, PAST, context.settings.poll)?,
            view: ConversationView::new(&target.name, true),
            answer: AnswerText::default(),
            presence: target.is_lead().then(|| Presence::new(dir)),
            target: target.clone(),
            console,
            awaits: false,
            question: None,
            asked: Vec::new(),
            begun: None,
            pressed: Instant::now(),
            daemon: true,
            runs: true,
            model: String::new(),
            doing: None,
            trouble: None,
        })
    }

    /// Shows the state of the conversation.
    fn begin(&mut self, last: usize, begun: bool) -> Result<(), CommandError> {
        self.look_at_team()?;
        let name = &self.target.name;
        let model = escape::line(&self.model);
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
        let added = self.follower.conversation()?;
        let shown = if has_failed(&added.entries) {
            last.max(1)
        } else {
            last
        };
        let (past, entries) = added
            .entries
            .split_at(added.entries.len().saturating_sub(shown));
        self.view.skip(past, &added.live);
        let items = self.view.update(&added.live, entries);
        self.show(items);
        self.awaits = self.view.in_turn();
        self.follower.plans()?;
        for plan in self.follower.waiting() {
            self.show_plan(plan);
        }
        Ok(())
    }

    async fn converse(&mut self) -> Next {
        loop {
            if let Some(next) = self.ask().await {
                return next;
            }
            self.console.screen.dock(self.dock(self.question.as_ref()));
            let [interrupt, resume, terminate, hang_up] = &mut self.console.signals;
            let next = tokio::select! {
                input = self.console.keyboard.next() => self.take(input).await,
                () = self.follower.changed() => Next::Stay,
                _ = interrupt.recv() => {
                    self.interrupt().await;
                    Next::Stay
                }
                _ = resume.recv() => {
                    self.resumed();
                    Next::Stay
                }
                _ = terminate.recv() => Next::Leave,
                _ = hang_up.recv() => Next::Leave,
            };
            match next {
                Next::Stay => self.look(),
                next => return next,
            }
        }
    }

    /// Shows the next question. Keys that were pressed before it was on the screen answer nothing.
    /// Returns what one of them leads to, if the chat is over.
    async fn ask(&mut self) -> Option<Next> {
        let question = self.next_question()?;
        let mut left = self.take_pressed().await;
        self.console.screen.dock(self.dock(Some(&question)));
        // A terminal that is stopped does not show it yet.
        if !self.console.screen.flush() && left.is_none() {
            left = self.take_pressed().await;
        }
        self.ring(&question.text);
        self.question = Some(question);
        left
    }

    /// Takes what was pressed already.
    async fn take_pressed(&mut self) -> Option<Next> {
        while let Some(input) = self.console.keyboard.pressed().await {
            match self.take(input).await {
                Next::Stay => {}
                next => return Some(next),
            }
        }
        None
    }

    /// Puts together what stays below the output.
    fn dock(&self, question: Option<&PlanQuestion>) -> Dock {
        let line = &self.console.line;
        let prompt = match (question, line.search()) {
            (_, Some(wanted)) => format!("(search) {wanted}: "),
            (Some(question), _) => question.prompt().to_owned(),
            (None, _) => format!("{}> ", self.target.name),
        };
        let answer = self.answer.in_progress();
        let status = self.status();
        let question = question.map(|question| paint(BOLD, escape::line(&question.text)) + "\n");
        Dock {
            above: Box::new(move |columns| {
                let status = status
                    .as_ref()
                    .map(|status| paint(DIM, status.line(columns)) + "\n");
                answer(columns)
                    + &status.unwrap_or_default()
                    + question.as_deref().unwrap_or_default()
            }),
            prompt,
            typed: line.text().to_owned(),
            cursor: line.cursor(),
        }
    }

    /// Tells the person, who may look elsewhere, by a sound or a notice of the terminal.
    fn ring(&self, what: &str) {
        match self.context.settings.notify {
            Notify::Bell => self.console.screen.signal("\x07"),
            Notify::Osc9 => self
                .console
                .screen
                .signal(&format!("\x1b]9;{}\x07", escape::line(what))),
            Notify::Off => {}
        }
    }
}
