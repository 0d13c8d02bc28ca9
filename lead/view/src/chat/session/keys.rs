//! What the person does at the keyboard: keys become a line, and lines become messages and
//! commands.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind};
use ratatui::layout::Position;
use teamd_shared::name::Name;

use super::questions::OpenQuestion;
use super::{AfterInput, ChatSession, unusable};
use crate::chat::SCRIPT;
use crate::chat::agent::ChatTarget;
use crate::chat::log::LogBlock;
use crate::chat::prompt::commands::{self, ChatInput};
use crate::chat::prompt::complete::{Names, common_beginning, completions};
use crate::chat::prompt::line::Pressed;
use crate::chat::prompt::mention;
use crate::chat::prompt::question::PlanQuestion;
use crate::terminal::{FRAME, HelpOf, Motion, Overlay, WHEEL, help_text, list_commands};
use teamd_client::act::interrupt;
use teamd_client::error::CommandError;
use teamd_client::print::escape;
use teamd_client::print::render::{BOLD, DIM};
use teamd_client::print::style::paint;

/// How long an interruption waits for the turn that a message begins.
const BEGINS: Duration = Duration::from_secs(2);

impl ChatSession<'_> {
    /// Takes what comes from the terminal, and what is there already behind it: many keys make one
    /// frame.
    pub(super) async fn take_all(
        &mut self,
        first: Option<Event>,
    ) -> Result<AfterInput, CommandError> {
        let began = Instant::now();
        let next = self.take(first).await?;
        if !matches!(next, AfterInput::Stay) {
            return Ok(next);
        }
        while began.elapsed() < FRAME
            && let Some(event) = self.console.pressed().await
        {
            let next = self.take(event).await?;
            if !matches!(next, AfterInput::Stay) {
                return Ok(next);
            }
        }
        Ok(AfterInput::Stay)
    }

    /// Takes all that was pressed already. Returns what one of the keys leads to, if the chat is
    /// over.
    pub(super) async fn take_pressed(&mut self) -> Result<Option<AfterInput>, CommandError> {
        while let Some(event) = self.console.pressed().await {
            let next = self.take(event).await?;
            if !matches!(next, AfterInput::Stay) {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Takes an event; none if the terminal is gone.
    async fn take(&mut self, event: Option<Event>) -> Result<AfterInput, CommandError> {
        match event {
            None => return Ok(AfterInput::Leave),
            Some(Event::Key(key)) => return self.take_key(key).await,
            Some(Event::Paste(text)) => {
                self.note_beginning();
                self.console.line.insert(&text);
            }
            Some(Event::Mouse(mouse)) => self.take_mouse(mouse),
            Some(Event::Resize(..) | Event::FocusGained | Event::FocusLost) => {}
        }
        Ok(AfterInput::Stay)
    }

    /// Remembers what the person sees who begins a line.
    fn note_beginning(&mut self) {
        self.pressed = Instant::now();
        if self.console.line.is_empty() {
            self.questions.note_beginning();
        }
    }

    async fn take_key(&mut self, mut key: KeyEvent) -> Result<AfterInput, CommandError> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if let Some(overlay) = &mut self.overlay {
            let is_help = key.code == KeyCode::Char('g');
            if is_control || !overlay.take_key(key.code) {
                self.overlay = None;
            }
            // Other Ctrl keys do what they do without it.
            if !is_control || is_help {
                return Ok(AfterInput::Stay);
            }
        }
        self.note_beginning();
        let leaves = std::mem::take(&mut self.leaves);
        if self.is_busy() && self.console.line.is_escape_and_key(&key) {
            self.interrupt().await;
            key.modifiers.remove(KeyModifiers::ALT);
        }
        match self.console.line.press(key) {
            Pressed::Edited => {}
            Pressed::Line(line) => return self.enter(&line).await,
            Pressed::Complete => self.complete(),
            Pressed::Escape => self.escape().await,
            Pressed::Interrupt if !self.is_at_rest() => self.interrupt().await,
            Pressed::Interrupt if !self.console.line.is_empty() => self.console.line.set(""),
            Pressed::Interrupt if leaves => return Ok(AfterInput::Leave),
            Pressed::Interrupt => {
                self.interrupt().await;
                self.leaves = true;
            }
            Pressed::End => return Ok(AfterInput::Leave),
            Pressed::Suspend => self.console.suspend().await.map_err(unusable)?,
            Pressed::Clear => self.log.clear(),
            Pressed::Help => {
                let help = help_text(HelpOf::Chat);
                self.overlay = Some(Overlay::new("keys".to_owned(), help));
            }
            Pressed::Unfold => self.log.unfold(),
            Pressed::Scroll(by) => self.scroll(by),
        }
        Ok(AfterInput::Stay)
    }

    fn take_mouse(&mut self, mouse: MouseEvent) {
        let by = match mouse.kind {
            MouseEventKind::ScrollDown => Motion::Lines(WHEEL),
            MouseEventKind::ScrollUp => Motion::Lines(-WHEEL),
            _ => return,
        };
        let at = Position::new(mouse.column, mouse.row);
        if let Some(overlay) = &mut self.overlay {
            overlay.pager.go(by);
        } else if let Some(open) = &mut self.questions.open
            && open.area.contains(at)
        {
            open.pager.go(by);
        } else {
            self.scroll(by);
        }
    }

    /// Scrolls the plan that has the screen, else the conversation; before its first line what was
    /// said earlier.
    fn scroll(&mut self, by: Motion) {
        if let Some(open) = &mut self.questions.open
            && open.is_whole
        {
            return open.pager.go(by);
        }
        if by.lines(1) < 0 && self.log.is_at_start() {
            self.show_earlier();
        }
        self.log.go(by);
    }

    fn show_earlier(&mut self) {
        if !self.log.hides_any() && !self.log.has_dropped() {
            match self.follower.earlier() {
                Ok(parts) => self.log.put_before(parts),
                Err(error) => self.context.out.error(&error.into()),
            }
        }
        self.log.show_hidden();
    }

    async fn enter(&mut self, line: &str) -> Result<AfterInput, CommandError> {
        let prompt = paint(BOLD, self.prompt().trim_end());
        let echo = format!("{prompt} {}", escape::text(line));
        self.take_printed();
        self.log.push(LogBlock::Printed(echo));
        self.log.go_to_end();
        if !line.trim().is_empty() {
            self.console.line.history.remember(line, &self.context.out);
        }
        let begun = self.questions.take_begun();
        let open = self.questions.open.as_ref();
        let current = open.map(OpenQuestion::id);
        match commands::parse(line, &self.target.name).for_model(self.seen.model == SCRIPT) {
            ChatInput::Quit => return Ok(AfterInput::Leave),
            ChatInput::Attach(name) => match self.other(name) {
                Ok(target) => return Ok(AfterInput::Turn(target)),
                Err(error) => self.context.out.error(&error),
            },
            ChatInput::Help => {
                let columns = self.console.screen.columns();
                self.context.out.aside(list_commands(columns).trim_end());
            }
            ChatInput::Call(command) => self.call(*command).await,
            ChatInput::Model(model) => self.model(model).await,
            ChatInput::Clear => self.restart(None, true).await,
            ChatInput::Shell(command) => return self.shell(&command).await,
            ChatInput::Wrong(error) | ChatInput::Unknown(_, error) => {
                self.context.out.error(&error)
            }
            _ if current.is_some() && begun == current => self.reply(line).await,
            ChatInput::Nothing => {}
            ChatInput::Say(text) if begun != current && PlanQuestion::is_answer(&text) => {
                self.context.out.note(match current {
                    Some(_) => format!("{text:?} was typed before you were asked: answer again"),
                    None => format!("{text:?} was not sent: that question is over"),
                });
            }
            ChatInput::Say(text) => self.message(&text).await,
        }
        Ok(AfterInput::Stay)
    }

    /// Sends a message. A question about a plan stays.
    pub(super) async fn message(&mut self, text: &str) {
        let (text, mentioned) = mention::with_files(text);
        for file in mentioned {
            self.context.out.aside(paint(DIM, escape::line(&file)));
        }
        if let Err(error) = self.say(&text).await {
            self.context.out.error(&error);
        }
    }

    fn other(&self, name: Name) -> Result<ChatTarget, CommandError> {
        let target = ChatTarget::of(name);
        // The lead agent is not started by the way.
        target.running(self.dir)?;
        Ok(target)
    }

    async fn say(&mut self, text: &str) -> Result<(), CommandError> {
        let running = self.target.running(self.dir)?;
        if running.is_none() && self.target.is_lead() {
            self.context
                .out
                .note(format_args!("{} is started again", self.target.name));
        }
        self.target.ensure(&self.context, self.dir, true).await?;
        let id = self.target.send(&self.context, self.dir, text)?;
        self.view.sent(id);
        self.seen.awaits = true;
        self.seen.runs = true;
        Ok(())
    }

    /// Esc: leaves the whole plan, else interrupts.
    async fn escape(&mut self) {
        match &mut self.questions.open {
            Some(open) if open.is_whole => open.is_whole = false,
            _ => self.interrupt().await,
        }
    }

    /// Puts a question off if the agent waits for its answer; else interrupts the current turn, and
    /// nothing else. What is typed stays. Ctrl-C deletes it if there is nothing to interrupt.
    pub(super) async fn interrupt(&mut self) {
        if self.questions.open.is_some() && (self.is_awaited() || !self.is_busy()) {
            self.put_off();
        } else if self.is_busy() {
            self.until_begun().await;
            // That it is over is shown by the transcript.
            if let Err(error) = interrupt::ask(self.dir, &self.target.name).await {
                self.context.out.error(&error);
            }
        } else {
            self.context
                .out
                .hint("no turn is running; Ctrl-C twice, /quit or Ctrl-D leaves");
        }
    }

    /// Tells whether there is nothing to interrupt.
    fn is_at_rest(&self) -> bool {
        self.questions.open.is_none() && !self.is_busy()
    }

    /// Waits until the turn runs that a message of the person begins: an interruption before it
    /// would end nothing.
    async fn until_begun(&mut self) {
        let begins = Instant::now();
        while self.seen.awaits && !self.view.in_turn() && begins.elapsed() < BEGINS {
            drop(tokio::time::timeout(BEGINS, self.follower.changed()).await);
            self.look();
        }
    }

    /// Completes what is typed as far as it is certain, and lists what it could mean.
    fn complete(&mut self) {
        let typed = self.console.line.text_before_cursor();
        let (start, meant) = completions(&typed, || Names::of(self.dir));
        let word = typed.len() - start;
        let common = common_beginning(&meant);
        let mut more = common.get(word..).unwrap_or_default().to_owned();
        if meant.len() == 1 && !common.ends_with('/') {
            more.push(' ');
        }
        if more.is_empty() && meant.len() > 1 {
            let list = meant.join("  ");
            self.context.out.aside(paint(DIM, escape::line(&list)));
        }
        self.console.line.insert(&more);
    }
}
