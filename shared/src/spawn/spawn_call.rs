//! A call of `spawn_teammate`: it starts its teammates one after the other, whichever lead calls.

use std::vec;

use crate::control::{Command, Done};
use crate::id::RequestId;
use crate::name::Name;
use crate::spawn::Spawner;
use crate::team_dir::TeamDir;
use crate::tools::{SpawnReport, SpawnTeammate};

/// How far a call of `spawn_teammate` is. Its caller asks the daemon for one teammate at a time.
#[derive(Debug)]
pub struct SpawnCall<'a> {
    spawn: &'a SpawnTeammate,
    left: vec::IntoIter<Name>,
    /// The teammate that the daemon is asked for.
    asked: Option<SpawnReport>,
    reports: Vec<String>,
    /// Why the last one has not started.
    failed: Option<String>,
}

impl<'a> SpawnCall<'a> {
    /// Begins a call.
    ///
    /// # Errors
    /// A text for the model: what is wrong with the name or the count.
    pub fn new(spawn: &'a SpawnTeammate) -> Result<Self, String> {
        Ok(Self {
            spawn,
            left: spawn.names()?.into_iter(),
            asked: None,
            reports: Vec::new(),
            failed: None,
        })
    }

    /// Returns what the daemon is asked for next; nothing if no teammate is left, or one has not
    /// started. [`SpawnCall::record`] takes its answer.
    pub fn next(&mut self, spawner: &Spawner, dir: &TeamDir, id: RequestId) -> Option<Command> {
        if self.failed.is_some() {
            return None;
        }
        let name = self.left.next()?;
        match spawner.order(dir, &name, self.spawn) {
            Ok(order) => {
                self.asked = Some(SpawnReport::of(&order));
                let order = Box::new(order);
                Some(Command::Spawn { id, order })
            }
            Err(why) => {
                self.fail(&name, why);
                None
            }
        }
    }

    /// Takes the answer to what was asked for last.
    pub fn record(&mut self, done: Result<Done, String>) {
        let Some(report) = self.asked.take() else {
            return;
        };
        match done.and_then(|done| report.text(done)) {
            Ok(report) => self.reports.push(report),
            Err(why) => self.fail(report.name(), why),
        }
    }

    /// Returns what the call answers. It is an error only if none has started: those that have are
    /// there, and cost something.
    ///
    /// # Errors
    /// A text for the model.
    pub fn finish(self) -> Result<String, String> {
        match self.failed {
            Some(why) if self.reports.is_empty() => Err(why),
            failed => {
                let mut reports = self.reports;
                reports.extend(failed);
                Ok(reports.join("\n"))
            }
        }
    }

    fn fail(&mut self, name: &Name, why: String) {
        self.failed = Some(if self.reports.is_empty() {
            why
        } else {
            format!("{name} has not started, nor any after it: {why}")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Ids, RandomIds};
    use crate::member::MemberStatus;
    use crate::spawn::spawner::tests::{alice, scene};

    fn ready() -> Result<Done, String> {
        Ok(Done::Ready {
            pid: 1,
            incarnation: 1,
            status: MemberStatus::Working,
            skipped: 0,
            notes: Vec::new(),
        })
    }

    /// Carries out a call for three teammates with these answers; returns its own.
    fn answer(answers: Vec<Result<Done, String>>) -> Result<String, String> {
        let (_scratch, dir, spawner) = scene();
        let three = SpawnTeammate {
            count: Some(3),
            ..alice()
        };
        let mut call = SpawnCall::new(&three)?;
        let mut answers = answers.into_iter();
        while let Some(command) = call.next(&spawner, &dir, RandomIds.request()) {
            assert!(matches!(command, Command::Spawn { .. }));
            call.record(answers.next().unwrap());
        }
        assert_eq!(
            answers.next(),
            None,
            "no teammate is asked for after a failure"
        );
        call.finish()
    }

    #[test]
    fn a_call_is_an_error_only_if_no_teammate_has_started() {
        let full = || Err("the team is full".to_owned());
        assert_eq!(answer(vec![full()]).unwrap_err(), "the team is full");
        let report = answer(vec![ready(), full()]).unwrap();
        let lines: Vec<&str> = report.lines().collect();
        assert!(lines[0].starts_with("alice-1 has started"), "{report}");
        assert_eq!(
            lines[1..],
            ["alice-2 has not started, nor any after it: the team is full"]
        );
        let report = answer(vec![ready(), ready(), ready()]).unwrap();
        assert_eq!(report.lines().count(), 3);
    }

    #[test]
    fn a_teammate_that_cannot_be_ordered_ends_the_call() {
        let (_scratch, dir, spawner) = scene();
        let asked = SpawnTeammate {
            workspace: Some("nowhere".to_owned()),
            ..alice()
        };
        let mut call = SpawnCall::new(&asked).unwrap();
        assert_eq!(call.next(&spawner, &dir, RandomIds.request()), None);
        assert!(call.finish().unwrap_err().contains("nowhere"));
    }
}
