//! What is new in a conversation, looked at and shown: answers, the team, the daemon, the pauses of a model call.

use teamd_shared::clock::wall;
use teamd_shared::member::{Status, Waiting};

use super::Session;
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, DIM};
use crate::ctl::talk::follow::Changed;
use crate::ctl::talk::view::Piece;
use crate::error::CommandError;

impl Session<'_> {
    /// Shows what is new.
    pub(super) fn look(&mut self, changed: Changed) -> Result<(), CommandError> {
        let works = self.view.works();
        if let Err(error) = self.look_at(changed) {
            // Once, however often it is looked at.
            if self.trouble.as_ref() != Some(&error) {
                self.tell(&error);
                self.trouble = Some(error);
            }
            return Ok(());
        }
        self.trouble = None;
        if self.view.works() > works && self.awaits {
            self.awaits = false;
            self.ready();
        }
        Ok(())
    }

    fn look_at(&mut self, changed: Changed) -> Result<(), CommandError> {
        let heard = self.follow.conversation()?;
        let pieces = self.view.round(heard.live, &heard.entries);
        self.show(pieces)?;
        self.hear_ends();
        self.answers.changed(self.follow.plans()?);
        self.tell_of_plans()?;
        if changed == Changed::Team {
            self.look_at_team()?;
        }
        self.look_for_question()
    }

    pub(super) fn look_at_team(&mut self) -> Result<(), CommandError> {
        if let Some(presence) = &mut self.presence {
            presence.show()?;
        }
        let daemon = self.follow.has_daemon();
        if daemon != std::mem::replace(&mut self.daemon, daemon) {
            self.context.out.note(match daemon {
                true => "the daemon is back",
                false => "the daemon is gone; what you write still arrives, commands do not (`teamd start` starts it)",
            });
        }
        let member = self.follow.member()?;
        let runs = member.as_ref().is_some_and(|(_, runs)| *runs);
        self.look_at_pause(member.as_ref().and_then(|(member, _)| member.waiting.clone()).filter(|_| runs));
        if !runs && std::mem::replace(&mut self.runs, runs) {
            let how = member.map_or("forgotten", |(member, _)| match member.status {
                status if status.is_ended() => status.as_str(),
                _ => Status::Crashed.as_str(),
            });
            self.context.out.note(format_args!("{} has ended ({how})", self.party.name));
            self.context.out.hint(match self.party.leads() {
                true => "what you write next starts it again; /quit leaves",
                false => "/quit leaves",
            });
            if std::mem::take(&mut self.awaits) {
                self.ready();
            }
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
                let line = format!("{}: {}", self.party.name, pause.told(wall()));
                self.screen.passing(&escape::line(&line));
            }
            None => self.screen.passed(),
        }
        self.pause = pause;
    }

    pub(super) fn show(&self, pieces: Vec<Piece>) -> Result<(), CommandError> {
        for piece in pieces {
            match piece {
                Piece::Answer(text) => self.screen.stream(&text),
                Piece::End => self.screen.end_line(),
                Piece::Aside(line) => self.context.out.aside(paint(DIM, escape::line(&line))),
                Piece::Wrong(line) => self.context.out.aside(paint(BAD, escape::line(&line))),
            }
        }
        Ok(())
    }
}
