//! What comes before what: nothing is done or said that is not in the journal, no command is
//! answered before the roster shows it, and the position in the lead's inbox passes nothing that is
//! not consumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use teamd_shared::journal::{Line, Record, Team};
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;

use super::super::sim::Daemon;
use super::{Checked, Promises, check};
use crate::core::caller::Answer;
use crate::core::caller::ReplyTo;
use crate::core::event::{Action, Until};
use crate::core::status::status;

/// How long commands wait for a roster that cannot be written.
const ROSTER_PATIENCE: Duration = Duration::from_secs(5);

/// What a client that gave a command still expects.
#[derive(Debug, Clone)]
pub(in super::super) enum Expected {
    Answer,
    /// When something has happened.
    Wait(Name, Until),
    /// When the attempt to stop has ended.
    Stop,
}

impl Promises {
    /// Checks that the journal holds what is done or said now.
    pub(in super::super) fn is_written(&self, team: &Team, lines: usize) -> Checked {
        check(u64::try_from(lines) == Ok(team.seq), || {
            format!(
                "something follows from line {}, and the journal has {lines}",
                team.seq
            )
        })
    }

    /// Takes in that a command was decided: it is answered once, or waits for something.
    pub(in super::super) fn is_asked(&mut self, client: ReplyTo, actions: &[Action]) -> Checked {
        let expected = actions.iter().filter_map(|action| match action {
            Action::Reply(to, _) if *to == client => Some(Expected::Answer),
            Action::Wait(to, name, until) if *to == client => {
                Some(Expected::Wait(name.clone(), until.clone()))
            }
            Action::WaitForStop(to) if *to == client => Some(Expected::Stop),
            Action::Look(to, ..) if *to == client => Some(Expected::Answer),
            Action::Begin(job) if job.then.client() == Some(client) => Some(Expected::Answer),
            _ => None,
        });
        let expected: Vec<Expected> = expected.collect();
        check(expected.len() == 1, || {
            format!("{} answers to {client:?}", expected.len())
        })?;
        if !client.agent {
            self.people
                .extend(expected.into_iter().map(|expected| (client, expected)));
        }
        Ok(())
    }

    /// Checks that a person who is answered expected that.
    pub(in super::super) fn is_answered(&mut self, client: ReplyTo) -> Checked {
        let expected = self.people.remove(&client);
        check(expected.is_some(), || {
            format!("{client:?} is answered, and expects nothing")
        })
    }

    /// Takes in that the daemon ends by itself.
    pub(in super::super) fn ends(&mut self, stopped: bool) -> Checked {
        let waits = self
            .people
            .values()
            .any(|expected| matches!(expected, Expected::Stop));
        self.people.clear();
        check(!(stopped && waits), || {
            "the daemon has stopped, and did not say so".to_owned()
        })
    }

    /// Checks that the roster shows what a client is told, unless the roster could not be written
    /// for long.
    pub(in super::super) fn is_shown(
        &self,
        daemon: &Daemon,
        answer: &Answer,
        roster: &BTreeMap<Name, MemberStatus>,
        now: Duration,
    ) -> Checked {
        let waited = daemon
            .unwritten
            .is_some_and(|since| now - since >= ROSTER_PATIENCE);
        if waited || answer.is_err() {
            return Ok(());
        }
        let team = &daemon.dispatcher.team;
        let runtime = &daemon.dispatcher.runtime;
        let stands = team
            .members
            .iter()
            .map(|(name, state)| (name, status(team, runtime, &state.record)));
        let stands: BTreeMap<&Name, MemberStatus> = stands.collect();
        let shown: BTreeMap<&Name, MemberStatus> = roster
            .iter()
            .map(|(name, status)| (name, *status))
            .collect();
        check(stands == shown, || {
            format!("{answer:?} is said, and the roster shows {shown:?}, not {stands:?}")
        })
    }

    /// Checks that the position of a line passes no line of the lead's inbox that is no message and
    /// not quarantined.
    pub(in super::super) fn quarantines(&mut self, line: &Line, bad: &BTreeSet<u64>) -> Checked {
        if let Record::Team(record) = &line.record {
            for rejected in &record.rejected {
                let first = self.quarantined.insert(rejected.offset);
                check(first, || {
                    format!("line {} of the lead is quarantined twice", rejected.offset)
                })?;
            }
        }
        let passed = line.lead.map_or(0, |position| position.offset);
        let lost = bad
            .range(..passed)
            .find(|offset| !self.quarantined.contains(offset));
        check(lost.is_none(), || {
            format!("line {lost:?} of the lead is passed, and was never quarantined")
        })
    }

    /// Checks, when everything is read, that every bad line is quarantined.
    pub(in super::super) fn all_is_quarantined(&self, bad: &BTreeSet<u64>) -> Checked {
        let lost = bad.difference(&self.quarantined).next();
        check(lost.is_none(), || {
            format!("line {lost:?} of the lead was never quarantined")
        })
    }
}
