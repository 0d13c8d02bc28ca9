//! The simulated disk: the journal, and what follows from its lines.

use teamd_shared::id::Ids;
use teamd_shared::journal::{Line, MemberEvent, Record};
use teamd_shared::name::Name;

use super::super::mutants::Mutant;
use super::super::promises::Facts;
use super::daemon::{Batch, Daemon, End, RETRY};
use super::recovery::fold;
use super::worker::Worker;
use super::world::World;
use crate::daemon::effects::messages;
use crate::daemon::event::Event;

impl World {
    /// Appends lines: from now on they hold.
    pub(super) fn append(&mut self, daemon: &Daemon, lines: &[Line]) {
        for line in lines {
            self.note(|| format!("  {} {}", line.seq, told(&line.record)));
            let facts = self.facts(daemon, line);
            let kept = self.promises.line(line, &facts);
            self.promise(kept);
            self.disk.journal.push(line.clone());
        }
    }

    fn facts(&self, daemon: &Daemon, line: &Line) -> Facts {
        let monotonic = self.clocks.monotonic;
        let name = match &line.record {
            Record::Member(record) => Some(record.member.name.clone()),
            Record::Request(record) => Name::new(record.request.member()).ok(),
            Record::Team(_) => None,
        };
        let Some(name) = name else { return Facts { monotonic, ..Facts::default() } };
        let call = self.disk.transcripts.get(&name).and_then(|transcript| transcript.plan.as_ref());
        Facts {
            monotonic,
            environment: daemon.environments.get(&name).cloned(),
            waits_for: call.map(|call| call.named.clone()).unwrap_or_default(),
        }
    }

    /// Nothing of the batch holds.
    pub(super) fn not_written(&mut self, daemon: &mut Daemon, batch: Batch) -> Result<(), End> {
        self.note(|| "  the journal cannot be written".to_owned());
        daemon.team = fold(&self.disk.journal);
        for event in batch.events {
            match event {
                Event::Command(..) | Event::Spawn(..) | Event::Deadline => {}
                Event::Terminate if daemon.live.terminations > 1 => return Err(End::Left),
                Event::Terminate => {}
                other => daemon.backlog.push_back(other),
            }
        }
        let until = self.since(daemon) + RETRY;
        daemon.live.postpone(until);
        daemon.retry_at = Some(until);
        Ok(())
    }

    /// Does the effects of the lines that are not done yet, oldest first.
    pub(super) fn complete(
        &mut self,
        daemon: &mut Daemon,
        first: bool,
        dies_at: Option<u32>,
    ) -> Result<(), End> {
        let mut at = 0;
        while let Some(line) = daemon.team.undone.front().cloned() {
            if dies_at == Some(at) {
                return Err(End::Killed);
            }
            at += 1;
            if !self.calm && self.rng.one_in(60) {
                self.note(|| format!("  the effects of {} cannot be completed", line.seq));
                daemon.retry_at.get_or_insert(self.clocks.monotonic - daemon.began + RETRY);
                return Ok(());
            }
            self.effects(&line, !first);
            daemon.team.mark_done(line.seq);
        }
        daemon.team.mark_done(daemon.team.seq);
        if dies_at.is_some() { Err(End::Killed) } else { Ok(()) }
    }

    fn effects(&mut self, line: &Line, again: bool) {
        if let Record::Member(record) = &line.record
            && record.event == MemberEvent::Forgotten
        {
            let name = &record.member.name;
            let present = self.promises.fold.members.get(name).map(|state| state.record.incarnation);
            let lives =
                |worker: &Worker| worker.life.name == *name && Some(worker.life.incarnation) == present;
            let lives = self.processes.values().any(lives);
            let kept = !(lives && self.disk.inboxes.contains_key(name));
            self.promise(
                kept.then_some(()).ok_or_else(|| format!("the files of {name} are archived while it runs")),
            );
            self.disk.inboxes.remove(name);
            self.disk.transcripts.remove(name);
        }
        for (to, mut message) in messages(line) {
            let known = |inbox: &Vec<_>| inbox.contains(&message);
            if again && self.disk.inboxes.get(&to).is_some_and(known) {
                continue;
            }
            if again && self.is(Mutant::OtherIdsWhenDoneAgain) {
                message.id = Some(self.ids.message());
            }
            let Some(inbox) = self.disk.inboxes.get_mut(&to) else {
                self.promises.has_no_inbox(&message);
                continue;
            };
            inbox.push(message.clone());
            let kept = self.promises.told(&to, &message);
            self.promise(kept);
        }
    }
}

/// What a line says, in short.
fn told(record: &Record) -> String {
    match record {
        Record::Team(record) => format!("team {:?}", record.event),
        Record::Member(record) => {
            let member = &record.member;
            let because = if record.because.is_some() { " (told)" } else { "" };
            format!(
                "{} {}: {:?}{because}, {:?}, gate {:?}, expired {:?}",
                member.name, member.incarnation, record.event, member.phase, member.gate, record.expired
            )
        }
        Record::Request(record) => {
            let (request, because) = (&record.request, if record.because.is_some() { " (told)" } else { "" });
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
