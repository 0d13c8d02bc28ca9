//! The simulated disk: the journal, and what follows from its lines.

use std::collections::BTreeSet;

use teamd_shared::id::Ids;
use teamd_shared::journal::{Line, MemberEvent, Record};
use teamd_shared::name::Name;

use super::super::mutants::Mutant;
use super::super::promises::Facts;
use super::daemon::{Daemon, Killed};
use super::disk::in_bytes;
use super::worker::Worker;
use super::world::World;
use crate::daemon::core::event::Incarnation;
use crate::daemon::core::notices::messages;

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
    pub(super) fn appends(&mut self, daemon: &mut Daemon, lines: &[Line]) -> Result<(), Killed> {
        self.signals_first(daemon, lines);
        self.does_effects_first(lines);
        match self.fate(lines) {
            Fate::Well if self.is(Mutant::SyncIsForgotten) => daemon.unsynced.extend_from_slice(lines),
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
                    let journal = Ok(self.disk.fold());
                    daemon.batcher.not_written("the disk is full", journal, self.now(daemon));
                    if self.is(Mutant::BacklogIsForgotten) {
                        daemon.batcher.forget_undecided();
                    }
                    return Ok(());
                }
            }
            Fate::Unsynced(some) => {
                self.note(|| "  the sync is refused".to_owned());
                self.journals(daemon, &lines[..some]);
                let unknown = Err("the disk cannot be trusted".to_owned());
                daemon.batcher.not_written("no sync", unknown, self.now(daemon));
                return Ok(());
            }
        }
        daemon.batcher.appended(self.now(daemon));
        Ok(())
    }

    /// Takes in that lines are in the journal: from now on they hold.
    pub(super) fn journals(&mut self, daemon: &Daemon, lines: &[Line]) {
        for line in lines {
            self.note(|| format!("  {} {}", line.seq, told(&line.record)));
            let facts = self.facts(daemon, line);
            let checked = self.promises.line(line, &facts);
            self.check(checked);
            let checked = self.promises.quarantines(line, &self.disk.bad);
            self.check(checked);
            self.disk.writes(line);
        }
    }

    fn facts(&self, daemon: &Daemon, line: &Line) -> Facts {
        let monotonic = self.clocks.monotonic;
        let name = match &line.record {
            Record::Member(record) => Some(record.member.name.clone()),
            Record::Request(record) => Name::of_inbox(record.request.member()).ok(),
            Record::Team(_) | Record::Snapshot(_) => None,
        };
        let Some(name) = name else { return Facts { monotonic, ..Facts::default() } };
        let incarnation = self.promises.fold.members.get(&name).map_or(0, |state| state.record.incarnation);
        let transcript = self.disk.transcripts.get(&name);
        let call = transcript.and_then(|transcript| transcript.plan.as_ref());
        let written = transcript.is_some_and(|it| it.left_by_signal == Some(incarnation));
        Facts {
            monotonic,
            environment: daemon.heard.environments.get(&name).cloned(),
            farewell: written
                || daemon.heard.farewells.contains(&Incarnation { name: name.clone(), number: incarnation }),
            waits_for: call.map(|call| call.submitted.clone()).unwrap_or_default(),
        }
    }

    /// Does the effects that are not there yet, oldest first.
    pub(super) fn completes(&mut self, daemon: &mut Daemon, again: bool) -> Result<(), Killed> {
        let forgets = again && self.is(Mutant::NothingIsDoneAgain);
        let due = daemon.completion.due(&daemon.batcher.team, again);
        let due: Vec<(Line, bool)> = due.into_iter().map(|(line, again)| (line.clone(), again)).collect();
        let mut failed = false;
        for (line, again) in &due {
            if !self.calm && self.rng.one_in(100) {
                return Err(Killed);
            }
            let all = forgets || self.effects(line, *again, &mut daemon.completion.stuck);
            daemon.completion.tried(line, all);
            failed |= !all;
        }
        if failed {
            daemon.batcher.try_again_later(self.now(daemon));
        }
        Ok(())
    }

    /// Syncs the effects: from now on the journal counts them as done.
    pub(super) fn settles(&mut self, daemon: &mut Daemon) {
        let team = &daemon.batcher.team;
        let early = self.is(Mutant::DoneIsSaidTooEarly);
        let done = if early { team.seq } else { daemon.completion.up_to(team) };
        daemon.batcher.settled(done);
    }

    /// Does the effects of a line. Returns true if they are all there.
    pub(in super::super) fn effects(&mut self, line: &Line, again: bool, stuck: &mut BTreeSet<Name>) -> bool {
        if let Record::Member(record) = &line.record
            && record.event == MemberEvent::Forgotten
        {
            self.archive(&record.member.name);
        }
        let mut all = true;
        for (to, mut message) in messages(line) {
            let fails = !self.calm && self.rng.one_in(60);
            if fails || stuck.contains(&to) {
                self.note(|| format!("  {to} cannot be told of line {}", line.seq));
                stuck.insert(to);
                all = false;
                continue;
            }
            let known = |inbox: &Vec<_>| inbox.contains(&message);
            if again && self.disk.inboxes.get(&to).is_some_and(known) {
                continue;
            }
            if again && self.is(Mutant::OtherIdsWhenDoneAgain) {
                message.id = Some(self.ids.message());
            }
            if !self.disk.inboxes.contains_key(&to) {
                self.promises.has_no_inbox(&to, &message);
                continue;
            }
            self.sends(&to, message.clone());
            let checked = self.promises.told(&to, &message);
            self.check(checked);
        }
        all
    }

    fn archive(&mut self, name: &Name) {
        let present = self.promises.fold.members.get(name).map(|state| state.record.incarnation);
        let runs =
            |worker: &Worker| worker.incarnation.name == *name && Some(worker.incarnation.number) == present;
        let runs = self.processes.values().any(runs);
        let checked = !(runs && self.disk.inboxes.contains_key(name));
        self.check(
            checked.then_some(()).ok_or_else(|| format!("the files of {name} are archived while it runs")),
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
        Record::Member(record) => {
            let member = &record.member;
            let because = if record.derived_from.is_some() { " (told)" } else { "" };
            format!(
                "{} {}: {:?}{because}, {:?}, gate {:?}, expired {:?}",
                member.name, member.incarnation, record.event, member.phase, member.gate, record.expired
            )
        }
        Record::Request(record) => {
            let (request, because) =
                (&record.request, if record.derived_from.is_some() { " (told)" } else { "" });
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
