//! What the person does at the keyboard: keys become a line, and lines become messages and
//! commands.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyModifiers};
use nix::sys::signal::{Signal, raise};
use rustyline::completion::longest_common_prefix;
use teamd_client::act::interrupt;
use teamd_client::error::CommandError;
use teamd_client::print::escape;
use teamd_client::print::output::{lines, paint};
use teamd_client::print::render::DIM;
use teamd_shared::name::Name;

use super::{Next, Session};
use crate::chat::SCRIPT;
use crate::chat::agent::ChatTarget;
use crate::chat::prompt::commands::ChatInput;
use crate::chat::prompt::complete::{Names, completions};
use crate::chat::prompt::question::PlanQuestion;
use crate::chat::prompt::{commands, mention};
use crate::chat::terminal::{Input, Pressed};

/// How long an interruption waits for the turn that a message begins.
const BEGINS: Duration = Duration::from_secs(2);

impl Session<'_> {
    /// Takes what comes from the terminal.
    pub(super) async fn take(&mut self, input: Input) -> Next {
        self.pressed = Instant::now();
        if self.console.line.text().is_empty() {
            self.begun = self
                .question
                .as_ref()
                .map(|question| question.request_id.clone());
        }
        let pressed = match input {
            Input::End => return Next::Leave,
            Input::Event(Event::Key(mut key)) => {
                if self.is_busy() && self.console.line.is_escape_and_key(&key) {
                    self.interrupt().await;
                    key.modifiers.remove(KeyModifiers::ALT);
                }
                self.console.line.press(key)
            }
            Input::Event(Event::Paste(text)) => {
                self.console
                    .line
                    .insert(&text.replace("\r\n", "\n").replace('\r', "\n"));
                Pressed::Edited
            }
            Input::Event(_) => Pressed::Edited,
        };
        match pressed {
            Pressed::Edited => {}
            Pressed::Line(line) => return self.enter(&line).await,
            Pressed::Complete => self.complete(),
            Pressed::Escape => self.interrupt().await,
            Pressed::Interrupt if self.rests() => self.console.line.set(""),
            Pressed::Interrupt => self.interrupt().await,
            Pressed::End => return Next::Leave,
            Pressed::Suspend => {
                self.console.screen.suspend();
                self.console.keyboard.leave();
                // The shell has the terminal until it continues this program.
                raise(Signal::SIGTSTP).ok();
                self.resumed();
            }
            Pressed::Clear => self.console.screen.clear(),
        }
        Next::Stay
    }

    /// Sets the terminal up again, after the program was stopped and continues.
    pub(super) fn resumed(&mut self) {
        self.console.keyboard.leave();
        self.console.screen.suspend();
        // Without it typed keys are echoed, and nothing worse.
        self.console.keyboard.take().ok();
        self.console.screen.resume();
    }

    async fn enter(&mut self, line: &str) -> Next {
        let dock = self.dock(self.question.as_ref());
        let echo = format!("{}{}", dock.prompt, escape::text(line));
        self.console.screen.print_from_dock(lines(echo), dock);
        if !line.trim().is_empty() {
            self.console.line.history.remember(line, &self.context.out);
        }
        let begun = self.begun.take();
        let current = self
            .question
            .as_ref()
            .map(|question| question.request_id.clone());
        match commands::parse(line, &self.target.name).for_model(self.model == SCRIPT) {
            ChatInput::Quit => return Next::Leave,
            ChatInput::Attach(name) => match self.other(name) {
                Ok(target) => return Next::Turn(target),
                Err(error) => self.context.out.error(&error),
            },
            ChatInput::Help => self.console.screen.print(Box::new(commands::help)),
            ChatInput::Call(command) => self.call(*command).await,
            ChatInput::Model(model) => self.model(model).await,
            ChatInput::Clear => self.restart(None, true).await,
            ChatInput::Shell(command) => self.shell(command).await,
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
        Next::Stay
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
        self.awaits = true;
        self.runs = true;
        Ok(())
    }

    /// Esc, or Ctrl-C: puts the question off for whose answer the agent waits; else interrupts the
    /// current turn, and nothing else. What is typed stays; Ctrl-C takes it away where there is
    /// nothing to interrupt.
    pub(super) async fn interrupt(&mut self) {
        if self.question.is_some() && (self.is_awaited() || !self.is_busy()) {
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
                .hint("no turn is running; /quit or Ctrl-D leaves");
        }
    }

    /// Tells whether there is nothing to interrupt, but a text that is typed.
    fn rests(&self) -> bool {
        self.question.is_none() && !self.is_busy() && !self.console.line.text().is_empty()
    }

    /// Waits until the turn runs that a message of the person begins: an interruption before it
    /// would end nothing.
    async fn until_begun(&mut self) {
        let begins = Instant::now();
        while self.awaits && !self.view.in_turn() && begins.elapsed() < BEGINS {
            drop(tokio::time::timeout(BEGINS, self.follower.changed()).await);
            self.look();
        }
    }

    /// Completes what is typed as far as it is certain, and lists what it could mean.
    fn complete(&mut self) {
        let line = &mut self.console.line;
        let typed = line.text()[..line.cursor()].to_owned();
        let (start, found) = completions(&typed, || Names::of(self.dir));
        match found.as_slice() {
            [] => {}
            [only] => {
                let end = if only.ends_with('/') { "" } else { " " };
                line.complete(start, &format!("{only}{end}"));
            }
            several => {
                let common =
                    longest_common_prefix(several).filter(|common| *common != &typed[start..]);
                match common {
                    Some(common) => line.complete(start, common),
                    None => {
                        let list = several.join("  ");
                        self.context.out.aside(paint(DIM, escape::line(&list)));
                    }
                }
            }
        }
    }
}
