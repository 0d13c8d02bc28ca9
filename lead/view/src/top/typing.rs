//! Texts that a person types: a message, feedback, a spawn, a task, a filter.

use clap::Parser;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use teamd_client::args::{Cli, TeamctlCommand};
use teamd_client::context::explain;
use teamd_shared::control::TaskOrder;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::task::TaskFields;

use super::app::{App, TypingPurpose, Verdict, Wish};
use crate::terminal::{edit, paste};

/// The longest text, in bytes.
const LONGEST: usize = 16 << 10;

impl App {
    /// Takes a key of a text: Enter ends it, and Alt-Enter begins another line.
    pub(super) fn type_key(&mut self, key: KeyEvent) -> Option<Wish> {
        let (purpose, area) = self.typing.as_mut()?;
        let is_filter = *purpose == TypingPurpose::Filter;
        match key.code {
            KeyCode::Esc => {
                self.typing = None;
                self.filter = if is_filter {
                    String::new()
                } else {
                    std::mem::take(&mut self.filter)
                };
            }
            KeyCode::Char('j') if is_filter && key.modifiers.contains(KeyModifiers::CONTROL) => {}
            KeyCode::Enter if is_filter || !key.modifiers.contains(KeyModifiers::ALT) => {
                let (purpose, area) = self.typing.take()?;
                return self.typed(purpose, &area.into_lines().join("\n"));
            }
            _ => {
                if area.lines().iter().map(String::len).sum::<usize>() < LONGEST
                    || key.code == KeyCode::Backspace
                {
                    edit(area, key);
                }
                if is_filter {
                    self.filter = area.lines().concat();
                }
            }
        }
        None
    }

    fn typed(&mut self, purpose: TypingPurpose, text: &str) -> Option<Wish> {
        let text = text.trim();
        match purpose {
            TypingPurpose::Filter => None,
            TypingPurpose::Feedback(verdict) if !verdict.approve && text.is_empty() => {
                "nothing was answered: a rejection says why".clone_into(&mut self.notice);
                self.type_for(TypingPurpose::Feedback(verdict));
                None
            }
            TypingPurpose::Feedback(verdict) => {
                let feedback = text.to_owned();
                Some(self.answer(Verdict {
                    feedback,
                    ..verdict
                }))
            }
            _ if text.is_empty() => None,
            TypingPurpose::Send(name) => Some(Wish::Send(name, text.to_owned())),
            TypingPurpose::AddTask => {
                let (subject, description) = text.split_once('\n').unwrap_or((text, ""));
                let description =
                    Some(description.trim().to_owned()).filter(|text| !text.is_empty());
                let fields = TaskFields {
                    subject: Some(subject.trim().to_owned()),
                    description,
                    ..Default::default()
                };
                let id = RandomIds.request();
                let tasks = vec![fields];
                let within = false;
                Some(Wish::Task(TaskOrder::Add { id, tasks, within }))
            }
            TypingPurpose::Spawn => self.spawn(text),
        }
    }

    /// The first line is as behind `teamctl spawn`, the rest is the prompt.
    fn spawn(&mut self, text: &str) -> Option<Wish> {
        let (line, prompt) = text.split_once('\n').unwrap_or((text, ""));
        let words = ["teamctl", "spawn"]
            .into_iter()
            .chain(line.split_whitespace());
        let prompt = Some(prompt.trim()).filter(|prompt| !prompt.is_empty());
        let words = words.chain(prompt.iter().flat_map(|prompt| ["--prompt", prompt]));
        match Cli::try_parse_from(words) {
            // The terminal is taken: there is nothing to read from it.
            Ok(Cli {
                command: TeamctlCommand::Spawn(args),
                ..
            }) if args
                .prompt_file
                .as_ref()
                .is_none_or(|file| file.as_os_str() != "-") =>
            {
                Some(Wish::Call(Box::new(TeamctlCommand::Spawn(args))))
            }
            Ok(_) => {
                "error: stdin is the terminal here: write the prompt below the first line"
                    .clone_into(&mut self.notice);
                None
            }
            Err(error) => {
                let error = explain(&error);
                self.notice = format!("error: {error}\n{}", error.next_step().unwrap_or_default());
                None
            }
        }
    }

    /// Takes text that was pasted: it is typed, and never a key.
    pub(super) fn paste(&mut self, text: &str) {
        if self.review.is_some() {
            if let Some(screen) = self.review_screen() {
                screen.paste(text);
            }
            return;
        }
        if let Some((purpose, area)) = &mut self.typing {
            let text = if *purpose == TypingPurpose::Filter {
                text.replace(['\r', '\n'], " ")
            } else {
                text.to_owned()
            };
            let length = area.lines().iter().map(String::len).sum::<usize>() + text.len();
            if length <= LONGEST {
                paste(area, &text);
            }
        }
    }
}
