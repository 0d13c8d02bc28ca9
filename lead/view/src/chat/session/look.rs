//! What is new in a chat, read and shown: answers, plans, the team, the daemon, the pauses of a
//! model call.

use std::collections::BTreeSet;
use std::time::Instant;

use teamd_shared::clock::wall;
use teamd_shared::config::RosterMember;
use teamd_shared::member::MemberStatus;
use teamd_shared::transcript::{Entry, Event};

use super::{AWAY, ChatSession};
use crate::chat::log::LogBlock;
use crate::model::{line, rows};
use crate::terminal::title;
use teamd_client::error::CommandError;
use teamd_client::print::table::{cut, width};
use teamd_client::print::{escape, tokens};
use teamd_client::read::roster;

impl ChatSession<'_> {
    /// Shows what is new. A failure to read is shown once.
    pub(super) fn look(&mut self) {
        let trouble = self.look_at_all().err();
        if trouble != self.seen.trouble {
            for error in trouble.iter() {
                self.context.out.error(error);
            }
            self.seen.trouble = trouble;
        }
    }

    fn look_at_all(&mut self) -> Result<(), CommandError> {
        // What the agent says about a plan comes after it.
        for plan in self.follower.plans()?.iter() {
            self.show_plan(plan);
        }
        let added = self.follower.conversation()?;
        let parts = self.view.update(&added.live, &added.entries);
        // What was printed earlier comes first.
        self.take_printed();
        for part in parts {
            self.log.push(LogBlock::Part(part));
        }
        self.ring_for(&added.entries);
        if added
            .entries
            .iter()
            .any(|entry| matches!(entry.event, Event::Idle { .. }))
        {
            self.seen.awaits = false;
        }
        self.look_at_team()
    }

    pub(super) fn look_at_team(&mut self) -> Result<(), CommandError> {
        if let Some(presence) = &mut self.presence {
            presence.show()?;
        }
        let daemon = self.follower.has_daemon();
        if daemon != std::mem::replace(&mut self.seen.has_daemon, daemon) {
            self.context.out.note(if daemon { "the daemon is back" } else {
                    "the daemon is gone; messages still arrive, commands do not (`teamd start` starts it)"
                });
        }
        let roster = roster::load(self.dir)?;
        let member = roster.member(&self.target.name);
        let runs = member.is_some_and(|member| roster::runs(&roster, member));
        if !runs && self.seen.runs {
            let how = member.map_or("forgotten", |member| match member.status {
                status if status.is_ended() => status.as_str(),
                _ => MemberStatus::Crashed.as_str(),
            });
            self.context
                .out
                .note(format_args!("{} has ended ({how})", self.target.name));
            self.context.out.hint(if self.target.is_lead() {
                "your next message starts it again; /quit leaves"
            } else {
                "/quit leaves"
            });
            self.seen.awaits = false;
        }
        self.seen.runs = runs;
        self.look_at_work(member);
        self.seen.model = member.map(RosterMember::mind).unwrap_or_default();
        self.look_at_row(member);
        Ok(())
    }

    /// Says who the agent is, and what it has used.
    fn look_at_row(&mut self, member: Option<&RosterMember>) {
        let mut running = BTreeSet::new();
        if self.seen.runs {
            running.extend(member.map(|member| member.name.clone()));
        }
        let rows = rows(member, &running, self.follower.team(), &self.prices);
        let Some(row) = rows.first() else {
            self.seen.title = self.target.name.to_string();
            return;
        };
        self.seen.title = title(row);
        let usage = row.member.usage;
        let tokens = tokens::all(&usage);
        let cost = row.cost.map(|cost| format!(" {cost}")).unwrap_or_default();
        self.seen.spent = if usage.is_nothing() {
            String::new()
        } else {
            format!("{tokens} tokens{cost}")
        };
    }

    /// Notices what the agent does.
    fn look_at_work(&mut self, member: Option<&RosterMember>) {
        let pause = member
            .and_then(|member| member.waiting.as_ref())
            .filter(|pause| pause.is_outage());
        let activity = member
            .filter(|it| it.status == MemberStatus::Working)
            .map(|it| it.activity.as_str());
        let doing = match (pause, activity) {
            (Some(pause), _) => format!(": {}", pause.describe(wall())),
            _ if !self.view.live().is_empty() => " is writing…".to_owned(),
            (None, None | Some("" | "thinking")) => " is thinking…".to_owned(),
            (None, Some(activity)) => format!(": {}", line(activity)),
        };
        let since = match self.seen.doing.take() {
            Some((before, since)) if before == doing || pause.is_some() => since,
            _ => Instant::now(),
        };
        self.seen.doing = if self.is_busy() {
            Some((doing, since))
        } else {
            None
        };
    }

    /// Tells whether the agent works.
    pub(super) fn is_busy(&self) -> bool {
        self.seen.runs && (self.seen.awaits || self.view.in_turn())
    }

    /// Says what the agent does, and since when; nothing while it waits for the person.
    pub(super) fn status(&self) -> Option<WorkStatus> {
        let is_shown = self.is_busy() && !self.is_awaited();
        let (doing, since) = is_shown.then(|| {
            self.seen
                .doing
                .clone()
                .unwrap_or_else(|| (" is thinking…".to_owned(), Instant::now()))
        })?;
        let what = format!("{}{}", self.target.name, escape::line(&doing));
        let time = match since.elapsed().as_secs() {
            // The text of an outage includes how long it takes.
            _ if doing.contains("waiting") => String::new(),
            seconds @ 0..60 => format!(" {seconds} s"),
            seconds => format!(" {} min {} s", seconds / 60, seconds % 60),
        };
        Some(WorkStatus { what, time })
    }

    /// Rings where the person is needed, or waits for the end of the work and looks elsewhere.
    fn ring_for(&mut self, entries: &[Entry]) {
        for entry in entries {
            match &entry.event {
                Event::Messages { messages }
                    if messages.iter().any(|value| {
                        value["type"] == "shutdown_response" && value["approve"] == false
                    }) =>
                {
                    self.ring("a teammate rejects its shutdown");
                }
                Event::Idle { .. } if self.pressed.elapsed() >= AWAY => {
                    self.ring(&format!("{} has ended its work", self.target.name));
                }
                _ => {}
            }
        }
    }

    /// Takes what was printed into the log.
    pub(super) fn take_printed(&mut self) {
        while let Some(text) = self.console.printed.take() {
            self.log.push(LogBlock::Printed(text));
        }
    }
}

/// What the agent does.
#[derive(PartialEq)]
pub(super) struct WorkStatus {
    what: String,
    time: String,
}

impl WorkStatus {
    /// Writes it in one line: always with the time, and with the key if there is room.
    pub(super) fn line(&self, columns: usize) -> String {
        let line = cut(&self.what, Some(columns.saturating_sub(width(&self.time)))) + &self.time;
        let hint = " · Esc interrupts";
        if width(&line) + width(hint) <= columns {
            line + hint
        } else {
            line
        }
    }
}
