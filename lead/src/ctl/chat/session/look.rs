//! What is new in a chat, read and shown: answers, plans, the team, the daemon, the pauses of a model call.

use teamd_shared::clock::wall;
use teamd_shared::member::{MemberStatus, Waiting};
use teamd_shared::transcript::Event;

use super::Session;
use crate::ctl::chat::view::Item;
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, DIM};
use crate::error::CommandError;

impl Session<'_> {
    /// Shows what is new. A failure to read is shown once.
    pub(super) fn look(&mut self) {
        let trouble = self.look_at_all().err();
        if trouble != self.trouble {
            trouble.iter().for_each(|error| self.context.out.error(error));
            self.trouble = trouble;
        }
    }

    fn look_at_all(&mut self) -> Result<(), CommandError> {
        let added = self.follower.conversation()?;
        let items = self.view.update(&added.live, &added.entries);
        self.show(items);
        if added.entries.iter().any(|entry| matches!(entry.event, Event::Idle { .. })) {
            self.awaits = false;
        }
        self.follower.plans()?.iter().for_each(|plan| self.show_plan(plan));
        self.look_at_team()?;
        self.look_for_question()
    }

    pub(super) fn look_at_team(&mut self) -> Result<(), CommandError> {
        if let Some(presence) = &mut self.presence {
            presence.show()?;
        }
        let daemon = self.follower.has_daemon();
        if daemon != std::mem::replace(&mut self.daemon, daemon) {
            self.context.out.note(match daemon {
                true => "the daemon is back",
                false => {
                    "the daemon is gone; messages still arrive, commands do not (`teamd start` starts it)"
                }
            });
        }
        let member = self.follower.member()?;
        let runs = member.as_ref().is_some_and(|(_, runs)| *runs);
        self.look_at_pause(member.as_ref().and_then(|(member, _)| member.waiting.clone()).filter(|_| runs));
        if !runs && self.runs {
            let how = member.map_or("forgotten", |(member, _)| match member.status {
                status if status.is_ended() => status.as_str(),
                _ => MemberStatus::Crashed.as_str(),
            });
            self.context.out.note(format_args!("{} has ended ({how})", self.target.name));
            self.context.out.hint(match self.target.is_lead() {
                true => "your next message starts it again; /quit leaves",
                false => "/quit leaves",
            });
            self.awaits = false;
        }
        self.runs = runs;
        Ok(())
    }

    /// Shows that the agent waits for the service of its model, once for each pause.
    fn look_at_pause(&mut self, pause: Option<Waiting>) {
        if pause == self.pause {
            return;
        }
        match &pause {
            Some(pause) => {
                let line = format!("{}: {}", self.target.name, pause.describe(wall()));
                self.screen.passing(&escape::line(&line));
            }
            None => self.screen.passed(),
        }
        self.pause = pause;
    }

    pub(super) fn show(&self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Answer(text) => self.screen.stream(&text),
                Item::End => self.screen.end_line(),
                Item::Aside(line) => self.context.out.aside(paint(DIM, escape::line(&line))),
                Item::Failure(line) => self.context.out.aside(paint(BAD, escape::line(&line))),
            }
        }
    }
}
