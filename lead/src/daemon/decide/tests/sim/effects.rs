//! The simulated disk: the journal, and what follows from its lines.

use std::collections::BTreeSet;

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
use crate::daemon::event::{Action, Event, Life};

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
            Record::Request(record) => Name::of_inbox(record.request.member()).ok(),
            Record::Team(_) => None,
        };
        let Some(name) = name else { return Facts { monotonic, ..Facts::default() } };
        let incarnation = self.promises.fold.members.get(&name).map_or(0, |state| state.record.incarnation);
        let transcript = self.disk.transcripts.get(&name);
        let call = transcript.and_then(|transcript| transcript.plan.as_ref());
        let written = transcript.is_some_and(|it| it.left_by_signal == Some(incarnation));
        Facts {
            monotonic,
            environment: daemon.environments.get(&name).cloned(),
            farewell: written || daemon.farewells.contains(&Life { name: name.clone(), incarnation }),
            waits_for: call.map(|call| call.named.clone()).unwrap_or_default(),
        }
    }

    /// Nothing of the batch holds.
    pub(super) fn not_written(&mut self, daemon: &mut Daemon, batch: Batch) -> Result<(), End> {
        self.note(|| "  the journal cannot be written".to_owned());
        daemon.team = fold(&self.disk.journal);
        for event in batch.events {
            match event {
                Event::Command(client, _) | Event::Spawn(client, ..) => {
                    self.refuse_unwritten(daemon, client);
                }
                Event::Deadline | Event::Disconnected { .. } | Event::Silent { .. } | Event::Hung { .. } => {}
                Event::Terminate if daemon.live.terminations > 1 => return Err(End::Left),
                Event::Terminate => {
                    daemon.live.terminations -= 1;
                    daemon.backlog.push_back(Event::Terminate);
                }
                Event::Connected { life, state, .. } => daemon.backlog.push_back(Event::Said { life, state }),
                other => daemon.backlog.push_back(other),
            }
        }
        for action in batch.actions {
            if let Action::Kill(life) = action
                && daemon.team.members.get(&life.name).is_some_and(|state| state.record.ending.is_some())
            {
                self.kill_journaled(daemon, &life);
            }
        }
        let until = self.since(daemon) + RETRY;
        daemon.live.postpone(until);
        daemon.retry_at = Some(until);
        Ok(())
    }

    /// Does the effects that are not there yet, oldest first.
    pub(super) fn complete(
        &mut self,
        daemon: &mut Daemon,
        first: bool,
        dies_at: Option<u32>,
    ) -> Result<(), End> {
        let (begun, tried) = daemon.progress;
        let mut stuck = BTreeSet::new();
        let lines: Vec<Line> = daemon.team.undone.iter().filter(|line| line.seq > begun).cloned().collect();
        let mut all = true;
        for (line, at) in lines.iter().zip(0..) {
            if dies_at == Some(at) {
                return Err(End::Killed);
            }
            all &= self.effects(line, !first || line.seq <= tried, &mut stuck);
            daemon.progress.1 = daemon.progress.1.max(line.seq);
            if all {
                daemon.progress.0 = line.seq;
            }
        }
        if !all {
            daemon.retry_at.get_or_insert(self.clocks.monotonic - daemon.began + RETRY);
        }
        if dies_at.is_some() { Err(End::Killed) } else { Ok(()) }
    }

    /// Makes the effects last: from now on the journal counts them as done.
    pub(super) fn settle_effects(&mut self, daemon: &mut Daemon) -> Result<(), End> {
        if !self.calm && self.rng.one_in(200) {
            return Err(End::Killed);
        }
        if self.calm || !self.rng.one_in(20) {
            let waits = daemon.team.undone.iter().any(|line| line.seq > daemon.progress.0);
            daemon.team.mark_done(if waits { daemon.progress.0 } else { daemon.team.seq });
        }
        Ok(())
    }

    /// True if they are all there.
    fn effects(&mut self, line: &Line, again: bool, stuck: &mut BTreeSet<Name>) -> bool {
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
            let Some(inbox) = self.disk.inboxes.get_mut(&to) else {
                self.promises.has_no_inbox(&to, &message);
                continue;
            };
            inbox.push(message.clone());
            let kept = self.promises.told(&to, &message);
            self.promise(kept);
        }
        all
    }

    fn archive(&mut self, name: &Name) {
        let present = self.promises.fold.members.get(name).map(|state| state.record.incarnation);
        let lives = |worker: &Worker| worker.life.name == *name && Some(worker.life.incarnation) == present;
        let lives = self.processes.values().any(lives);
        let kept = !(lives && self.disk.inboxes.contains_key(name));
        self.promise(
            kept.then_some(()).ok_or_else(|| format!("the files of {name} are archived while it runs")),
        );
        if *name != Name::lead() {
            self.disk.inboxes.remove(name);
        }
        self.disk.transcripts.remove(name);
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
