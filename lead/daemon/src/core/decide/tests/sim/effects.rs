//! The simulated disk: the journal, and what follows from its lines.

use teamd_shared::id::Ids;
use teamd_shared::journal::{Line, Record, Team};
use teamd_shared::name::Name;

use super::super::mutants::Mutant;
use super::super::promises::Facts;
use super::daemon::{Daemon, Killed};
use super::disk::in_bytes;
use super::worker::Worker;
use super::world::World;
use crate::core::effect_queues::{Effect, PendingEffect, addressed};
use crate::core::incarnation::Incarnation;
use crate::core::io::{IoFailed, NotWritten};

/// How an append fares.
enum Fate {
    Well,
    /// Killed when so many of its lines were written, and perhaps a piece of the next.
    Cut(usize),
    /// The disk is full: nothing is written.
    Full,
    /// The sync is refused: so many lines are there, and the daemon does not know.
    Unsynced(usize),
}

impl World {
    fn fate(&mut self, lines: &[Line]) -> Fate {
        if self.calm || !self.rng.one_in(30) {
            return Fate::Well;
        }
        let some = self.rng.below(u32::try_from(lines.len()).unwrap() + 1) as usize;
        match self.rng.below(8) {
            0..=3 => Fate::Cut(some),
            4 => Fate::Unsynced(some),
            _ => Fate::Full,
        }
    }

    /// Appends lines to the journal, and says how that went.
    pub(super) fn appends(
        &mut self,
        daemon: &mut Daemon,
        lines: &[Line],
    ) -> Result<Result<(), NotWritten>, Killed> {
        self.signals_first(daemon, lines);
        self.does_effects_first(lines);
        match self.fate(lines) {
            Fate::Well if self.is(Mutant::SyncIsForgotten) => {
                daemon.unsynced.extend_from_slice(lines)
            }
            Fate::Well => self.journals(daemon, lines),
            Fate::Cut(some) => {
                self.journals(daemon, &lines[..some]);
                let piece = lines.get(some).map(in_bytes).unwrap_or_default();
                let piece = self.some_of(&piece);
                self.disk.tears(&piece);
                return Err(Killed);
            }
            Fate::Full => {
                self.note(|| "  the disk is full".to_owned());
                if !self.is(Mutant::FailuresAreForgotten) {
                    let journal = Ok(Box::new(self.disk.fold()));
                    return Ok(Err(NotWritten {
                        why: "the disk is full".to_owned(),
                        journal,
                    }));
                }
            }
            Fate::Unsynced(some) => {
                self.note(|| "  the sync is refused".to_owned());
                self.journals(daemon, &lines[..some]);
                let journal = Err("the disk cannot be trusted".to_owned());
                return Ok(Err(NotWritten {
                    why: "no sync".to_owned(),
                    journal,
                }));
            }
        }
        Ok(Ok(()))
    }

    /// Takes in that lines are in the journal: from now on they hold.
    pub(super) fn journals(&mut self, daemon: &Daemon, lines: &[Line]) {
        for line in lines {
            self.note(|| format!("  {} {}", line.seq, told(&line.record)));
            if let Record::Task(record) = &line.record {
                let checked = self.promises.fits_checkouts(record, &self.checkouts);
                self.check(checked);
            }
            let facts = self.facts(daemon, line);
            let checked = self.promises.line(line, &facts);
            self.check(checked);
            let checked = self.promises.quarantines(line, &self.disk.bad);
            self.check(checked);
            self.disk.writes(line);
            if let Record::Member(record) = &line.record {
                self.disk.unread.line(record);
            }
        }
    }

    fn facts(&self, daemon: &Daemon, line: &Line) -> Facts {
        let monotonic = self.clocks.monotonic;
        let name = match &line.record {
            Record::Member(record) => Some(record.member.name.clone()),
            Record::Request(record) => Name::of_inbox(record.request.member()).ok(),
            Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => None,
        };
        let Some(name) = name else {
            return Facts {
                monotonic,
                ..Facts::default()
            };
        };
        let incarnation = self
            .promises
            .fold
            .members
            .get(&name)
            .map_or(0, |state| state.record.incarnation);
        let transcript = self.disk.transcripts.get(&name);
        let call = transcript.and_then(|transcript| transcript.plan.as_ref());
        let written = transcript.is_some_and(|it| it.left_by_signal == Some(incarnation));
        Facts {
            monotonic,
            environment: daemon.heard.environments.get(&name).cloned(),
            farewell: written
                || daemon.heard.farewells.contains(&Incarnation {
                    name: name.clone(),
                    number: incarnation,
                }),
            host: self.facts_of_host(&name, incarnation),
            mail: self.disk.unread.seen(&Incarnation {
                name,
                number: incarnation,
            }),
            waits_for: call.map(|call| call.submitted.clone()).unwrap_or_default(),
        }
    }

    /// Does the effects that a command or a worker waits for.
    pub(super) fn completes(
        &mut self,
        daemon: &mut Daemon,
        team: &Team,
        again: bool,
    ) -> Result<Result<(), IoFailed>, Killed> {
        daemon.effects.take_in(team, again);
        if again && self.is(Mutant::NothingIsDoneAgain) {
            while let Some((_, effects)) = daemon.effects.next() {
                daemon.effects.done(&effects);
            }
        }
        let mut all = Ok(());
        while let Some((to, effects)) = daemon.effects.next_urgent() {
            all = self.performs(daemon, to, effects)?.and(all);
        }
        Ok(all)
    }

    /// Does the other effects, and syncs all: from now on the journal counts them as done.
    pub(super) fn finishes_effects(
        &mut self,
        daemon: &mut Daemon,
    ) -> Result<Result<u64, IoFailed>, Killed> {
        let mut all = Ok(());
        while let Some((to, effects)) = daemon.effects.next() {
            all = self.performs(daemon, to, effects)?.and(all);
        }
        let early = self.is(Mutant::DoneIsSaidTooEarly);
        let written = u64::try_from(self.disk.journal.len()).unwrap();
        Ok(all.map(|()| {
            if early {
                written
            } else {
                daemon.effects.up_to()
            }
        }))
    }

    /// Does effects for a member, in their order.
    fn performs(
        &mut self,
        daemon: &mut Daemon,
        to: Name,
        effects: Vec<PendingEffect>,
    ) -> Result<Result<(), IoFailed>, Killed> {
        for (at, effect) in effects.iter().enumerate() {
            if !self.calm && self.rng.one_in(100) {
                return Err(Killed);
            }
            if !self.calm && self.rng.one_in(60) {
                self.note(|| format!("  line {} cannot be completed for {to}", effect.seq));
                daemon.effects.failed(to, effects[at..].to_vec());
                return Ok(Err(IoFailed));
            }
            self.does(&to, effect);
            daemon.effects.done(std::slice::from_ref(effect));
        }
        Ok(Ok(()))
    }

    pub(in super::super) fn does(
        &mut self,
        to: &Name,
        PendingEffect { effect, again, .. }: &PendingEffect,
    ) {
        let message = match effect {
            Effect::Quarantine { .. } => return,
            Effect::Archive => return self.archive(to),
            Effect::Tell(message) => message,
        };
        let mut message = addressed(message, to);
        if *again
            && self
                .disk
                .inboxes
                .get(to)
                .is_some_and(|inbox| inbox.contains(&message))
        {
            return;
        }
        if *again && self.is(Mutant::OtherIdsWhenDoneAgain) {
            message.id = Some(self.ids.message());
        }
        if !self.disk.inboxes.contains_key(to) {
            self.promises.has_no_inbox(to, &message);
            return;
        }
        self.sends(to, message.clone());
        let checked = self.promises.told(to, &message);
        self.check(checked);
    }

    fn archive(&mut self, name: &Name) {
        let present = self
            .promises
            .fold
            .members
            .get(name)
            .map(|state| state.record.incarnation);
        let runs = |worker: &Worker| {
            worker.incarnation.name == *name && Some(worker.incarnation.number) == present
        };
        let runs = self.processes.values().any(runs);
        let checked = !(runs && self.disk.inboxes.contains_key(name));
        self.check(
            checked
                .then_some(())
                .ok_or_else(|| format!("the files of {name} are archived while it runs")),
        );
        if *name != Name::lead() {
            self.disk.inboxes.remove(name);
        }
        self.disk.transcripts.remove(name);
    }
}

/// Returns what a line says, in short.
fn told(record: &Record) -> String {
    match record {
        Record::Team(record) => format!("team {:?}", record.event),
        Record::Snapshot(_) => "snapshot".to_owned(),
        Record::Task(record) => format!(
            "task {} {:?} {:?}",
            record.task.id, record.event, record.task.owner
        ),
        Record::Member(record) => {
            let member = &record.member;
            let because = if record.derived_from.is_some() {
                " (told)"
            } else {
                ""
            };
            format!(
                "{} {}: {:?}{because}, {:?}, gate {:?}, expired {:?}",
                member.name,
                member.incarnation,
                record.event,
                member.phase,
                member.gate,
                record.expired
            )
        }
        Record::Request(record) => {
            let request = &record.request;
            let because = if record.derived_from.is_some() {
                " (told)"
            } else {
                ""
            };
            format!(
                "{} {:?} of {} {}: {:?}{because}, {:?}, expired {:?}",
                request.request_id,
                request.kind,
                request.member(),
                request.incarnation,
                record.event,
                request.status,
                record.expired
            )
        }
    }
}
