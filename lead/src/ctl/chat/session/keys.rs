//! What the person does at the keyboard: keys become a line, and lines become messages and commands.

use std::time::Instant;

use crossterm::event::Event;
use nix::sys::signal::{Signal, raise};
use rustyline::completion::longest_common_prefix;

use super::{Next, Session};
use crate::ctl::args::{self, Command};
use crate::ctl::chat::commands::{self, ChatInput};
use crate::ctl::chat::complete::{Names, completions};
use crate::ctl::chat::keyboard::Input;
use crate::ctl::chat::line::Pressed;
use crate::ctl::chat::mention;
use crate::ctl::chat::question::PlanQuestion;
use crate::ctl::chat::target::ChatTarget;
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::DIM;
use crate::error::CommandError;

impl Session<'_> {
    /// Takes what comes from the terminal.
    pub(super) async fn take(&mut self, input: Input) -> Next {
        self.pressed = Instant::now();
        if self.console.line.text().is_empty() {
            self.begun = self.current();
        }
        let pressed = match input {
            Input::End => return Next::Leave,
            Input::Line(line) => Pressed::Line(line),
            Input::Event(Event::Key(key)) => self.console.line.press(key),
            Input::Event(Event::Paste(text)) => {
                self.console.line.insert(&text.replace("\r\n", "\n").replace('\r', "\n"));
                Pressed::Edited
            }
            Input::Event(_) => Pressed::Edited,
        };
        match pressed {
            Pressed::Edited => {}
            Pressed::Line(line) => return self.enter(&line).await,
            Pressed::Complete => self.complete(),
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

    /// The question that is on the screen.
    fn current(&self) -> Option<usize> {
        self.question.as_ref().map(|_| self.asked.len())
    }

    async fn enter(&mut self, line: &str) -> Next {
        self.console.screen.dock(self.dock());
        self.console.screen.typed(line);
        let question = self.begun.take();
        if !line.trim().is_empty() {
            self.console.line.history.remember(line, &self.context.out);
        }
        let current = self.current();
        match commands::parse(line, &self.target.name) {
            ChatInput::Quit => return Next::Leave,
            ChatInput::Attach(name) => match self.other(name) {
                Ok(target) => return Next::Turn(target),
                Err(error) => self.context.out.error(&error),
            },
            ChatInput::Help => self.context.out.aside(commands::help().trim_end()),
            ChatInput::Call(command) => self.call(*command).await,
            ChatInput::Cost => self.cost(),
            ChatInput::Model(model) => self.model(model).await,
            ChatInput::Clear => self.restart(None, true).await,
            ChatInput::Shell(command) => self.shell(command).await,
            ChatInput::Wrong(error) => self.context.out.error(&error),
            _ if current.is_some() && question == current => self.reply(line).await,
            ChatInput::Nothing => {}
            ChatInput::Say(text) if question != current && PlanQuestion::is_answer(&text) => {
                self.context.out.note(match current {
                    Some(_) => format!("{text:?} was typed before you were asked: answer again"),
                    None => format!("{text:?} was not sent: that question is over"),
                });
            }
            ChatInput::Say(text) => self.message(&text).await,
        }
        Next::Stay
    }

    /// Sends a message; a question is put off.
    pub(super) async fn message(&mut self, text: &str) {
        self.put_off();
        let (text, mentioned) = mention::with_files(text);
        for file in mentioned {
            self.context.out.aside(paint(DIM, escape::line(&file)));
        }
        if let Err(error) = self.say(&text).await {
            self.context.out.error(&error);
        }
    }

    fn other(&self, name: teamd_shared::name::Name) -> Result<ChatTarget, CommandError> {
        let target = ChatTarget::of(name);
        // The lead agent is not started by the way.
        target.running(self.dir)?;
        Ok(target)
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

    /// Esc, or Ctrl-C: interrupts the current turn, and nothing else. What is typed stays; where no turn is running it goes.
    pub(super) async fn interrupt(&mut self) {
        if self.question.is_some() {
            self.put_off();
        } else if self.is_busy() {
            let name = self.target.name.clone();
            // That it is over is shown by the transcript.
            self.carry_out(Command::Interrupt(args::Teammate { name })).await;
        } else if self.console.line.text().is_empty() {
            self.context.out.hint("no turn is running; /quit or Ctrl-D leaves");
        } else {
            self.console.line.set("");
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
                let common = longest_common_prefix(several).filter(|common| *common != &typed[start..]);
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
