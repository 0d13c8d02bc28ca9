//! Incarnations, as the journal tells them: each is run once, and ends as the user wanted or
//! crashes. After a crash the next one begins, unless there is a reason why not.

use std::collections::{HashMap, HashSet};

use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Record, RequestRecord, TeamEvent};
use teamd_shared::member::{Ending, MemberStatus as Ended, Restart};
use teamd_shared::message::AnsweredBy;
use teamd_shared::process::Identity;
use teamd_shared::request::{Kind, Status};

use crate::stage::{Checked, ENVIRONMENT, Stage, Victim, hold};

/// How often the policy restarts a teammate, within a time that no run lasts.
pub(crate) const RESTARTS: usize = 3;

type Incarnation = (String, u32);

/// An incarnation that has not ended.
struct Alive {
    process: Option<Identity>,
    ending: Option<Ending>,
    /// Whether the lead was told that it does not answer, and not that it does again.
    silent: bool,
    /// Which daemon began it, counted.
    daemon: usize,
    /// How often the policy had started its conversation again.
    restarts: usize,
}

struct Incarnations<'a> {
    stage: &'a Stage,
    daemons: usize,
    /// When the present daemon began.
    daemon: f64,
    stopping: bool,
    alive: HashMap<Incarnation, Alive>,
    asked: HashSet<Incarnation>,
    agreed: HashSet<Incarnation>,
    /// The teammates with a shutdown that did not end with an approval: a model that rejects one
    /// need not reject the next.
    answered: HashSet<String>,
}

/// Checks the incarnations that have begun and ended so far. An incarnation that was released has
/// left.
pub(super) fn check(stage: &Stage) -> Checked {
    let alive = HashMap::new();
    let asked = HashSet::new();
    let agreed = HashSet::new();
    let answered = HashSet::new();
    let mut incarnations = Incarnations {
        stage,
        daemons: 0,
        daemon: 0.0,
        stopping: false,
        alive,
        asked,
        agreed,
        answered,
    };
    for line in stage.journal() {
        incarnations.follow(&line)?;
    }
    no_incarnation_is_turned_away(stage)?;
    let environment = stage.team.text("environment");
    let other = environment.lines().find(|&value| value != ENVIRONMENT.1);
    hold(other.is_none(), || {
        format!("a command ran in another environment: {other:?}")
    })?;
    let stays = incarnations
        .agreed
        .iter()
        .find(|incarnation| incarnations.alive.contains_key(incarnation));
    hold(stays.is_none(), || {
        format!("{stays:?} agreed to leave, and still runs")
    })
}

/// No spawned incarnation leaves because a daemon does not know it: a live one does not count as
/// ended. (One whose beginning was not recorded is told so when it connects, before it begins.)
fn no_incarnation_is_turned_away(stage: &Stage) -> Checked {
    for line in stage.journal() {
        let Record::Member(record) = &line.record else {
            continue;
        };
        if record.event != MemberEvent::Spawned {
            continue;
        }
        let name = record.member.name.as_str();
        let incarnation = record.member.incarnation;
        let left = stage.transcript(name).into_iter().find(|entry| {
            entry["entry"] == "left"
                && entry["incarnation"] == incarnation
                && entry["by_signal"] != true
        });
        let away = left.filter(|left| left["reason"] != "the shutdown is approved");
        hold(away.is_none(), || {
            format!(
                "{name}, who was spawned as incarnation {incarnation}, was turned away: {away:?}"
            )
        })?;
    }
    Ok(())
}

impl Incarnations<'_> {
    fn follow(&mut self, line: &Line) -> Checked {
        match &line.record {
            Record::Team(record) => {
                if record.event == TeamEvent::Started {
                    self.daemons += 1;
                    self.daemon = record
                        .daemon
                        .as_ref()
                        .map_or(0.0, |daemon| daemon.started_at);
                }
                self.stopping = match record.event {
                    TeamEvent::Stopping => true,
                    TeamEvent::Read | TeamEvent::Restored | TeamEvent::Noted | TeamEvent::Hosts => {
                        self.stopping
                    }
                    TeamEvent::Started | TeamEvent::Staying | TeamEvent::Stopped => false,
                };
                Ok(())
            }
            Record::Request(record) if record.request.kind == Kind::Shutdown => {
                self.shutdown(record)
            }
            Record::Member(record) if record.derived_from.is_none() => self.member(record),
            Record::Request(_) | Record::Member(_) | Record::Task(_) | Record::Snapshot(_) => {
                Ok(())
            }
        }
    }

    fn shutdown(&mut self, record: &RequestRecord) -> Checked {
        let request = &record.request;
        let incarnation = (request.member().to_owned(), request.incarnation);
        let refuses = self.stage.ledger.refuses.contains(&incarnation.0)
            && !self.answered.contains(&incarnation.0);
        let approved_itself =
            request.status == Status::Approved && request.answered_by == Some(AnsweredBy::Model);
        hold(!(refuses && approved_itself), || {
            format!("{incarnation:?} has refused, and agreed: {request:?}")
        })?;
        match request.status {
            Status::Pending => drop(self.asked.insert(incarnation)),
            Status::Approved => drop(self.agreed.insert(incarnation)),
            Status::Rejected | Status::Expired => {
                self.answered.insert(incarnation.0.clone());
                self.asked.remove(&incarnation);
            }
        }
        let wanted = self
            .stage
            .ledger
            .asked_to_leave
            .iter()
            .any(|name| name == request.member());
        hold(wanted, || {
            format!(
                "the user did not want {} to leave: {request:?}",
                request.member()
            )
        })
    }

    fn member(&mut self, record: &MemberRecord) -> Checked {
        let member = &record.member;
        let incarnation = (member.name.to_string(), member.incarnation);
        match record.event {
            MemberEvent::Spawning => {
                let others: Vec<&Incarnation> = self
                    .alive
                    .keys()
                    .filter(|(name, _)| *name == incarnation.0)
                    .collect();
                hold(others.is_empty(), || {
                    format!("{incarnation:?} begins while {others:?} run")
                })?;
                self.begin(incarnation, 0);
            }
            MemberEvent::Spawned => {
                let Some(alive) = self.alive.get_mut(&incarnation) else {
                    return hold(false, || {
                        format!("{incarnation:?} was spawned, and had not begun")
                    });
                };
                hold(alive.process.is_none(), || {
                    format!("{incarnation:?} was spawned twice")
                })?;
                alive.process.clone_from(&member.process);
            }
            MemberEvent::Adopted => {
                let known = self.alive.get(&incarnation).map(|alive| &alive.process);
                hold(known == Some(&member.process), || {
                    format!(
                        "{incarnation:?} is {known:?}, and {:?} was adopted",
                        member.process
                    )
                })?;
            }
            MemberEvent::Ending => {
                let name = &incarnation.0;
                let forced = member.ending == Some(Ending::Force);
                hold(!forced || self.stage.ledger.forced.contains(name), || {
                    format!("the user did not want {name} to be forced")
                })?;
                if let Some(alive) = self.alive.get_mut(&incarnation) {
                    let unsaid = member.ending == Some(Ending::Hung) && !alive.silent;
                    hold(!unsaid, || {
                        format!(
                            "{incarnation:?} was ended as hung, and the lead was not told before"
                        )
                    })?;
                    alive.ending = member.ending;
                }
            }
            MemberEvent::Silent | MemberEvent::Answering => {
                if let Some(alive) = self.alive.get_mut(&incarnation) {
                    alive.silent = record.event == MemberEvent::Silent;
                }
            }
            MemberEvent::Exited => self.exited(record)?,
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, incarnation: Incarnation, restarts: usize) {
        let daemon = self.daemons;
        self.alive.insert(
            incarnation,
            Alive {
                process: None,
                ending: None,
                silent: false,
                daemon,
                restarts,
            },
        );
    }

    /// An incarnation ended as the journal before says (rule 11): by a signal that was announced,
    /// as agreed, or by itself.
    fn exited(&mut self, record: &MemberRecord) -> Checked {
        let member = &record.member;
        let incarnation = (
            member.name.to_string(),
            record.ended_incarnation.unwrap_or(member.incarnation),
        );
        let Some(alive) = self.alive.remove(&incarnation) else {
            return hold(false, || format!("{incarnation:?} ended, and did not run"));
        };
        let by_journal = match alive.ending {
            Some(Ending::Hung) => Ended::Crashed,
            Some(_) => Ended::Killed,
            None if self.agreed.contains(&incarnation) => Ended::Shutdown,
            None => Ended::Crashed,
        };
        hold(member.phase.ended_as() == by_journal, || {
            format!(
                "{incarnation:?} ended as {:?}: by the journal it is {by_journal:?}",
                member.phase
            )
        })?;
        let wanted = self.stage.ledger.asked_to_leave.contains(&incarnation.0);
        hold(wanted || by_journal == Ended::Crashed, || {
            format!("the user did not want {incarnation:?} to leave, and it is {by_journal:?}")
        })?;
        let why_not = self.why_not(record, &incarnation, &alive);
        if record.ended_incarnation.is_some() {
            hold(why_not.is_none() && by_journal == Ended::Crashed, || {
                format!(
                    "{incarnation:?} was started again, and should not be ({why_not:?}, {by_journal:?})"
                )
            })?;
            self.begin((incarnation.0, member.incarnation), alive.restarts + 1);
            return Ok(());
        }
        hold(by_journal != Ended::Crashed || why_not.is_some(), || {
            format!(
                "{incarnation:?} crashed and was not started again: {:?}",
                member.exit
            )
        })
    }

    /// Why an incarnation that crashed now is not started again; none if it must be.
    fn why_not(
        &self,
        record: &MemberRecord,
        incarnation: &Incarnation,
        alive: &Alive,
    ) -> Option<&'static str> {
        // A daemon that was refused something may not be able to start it at all.
        let unable = self.stage.is_victim(Victim::Daemon) && self.stage.is_refused_something();
        let started_again = record.ended_incarnation.is_some();
        let given_back = started_again
            || self
                .stage
                .has_heard(self.daemon, &incarnation.0, incarnation.1);
        match () {
            () if record.member.terms.restart == Restart::Never => Some("the policy says so"),
            () if self.stopping => Some("the team stops"),
            () if self.asked.contains(incarnation) => Some("its shutdown was asked for"),
            () if alive.restarts >= RESTARTS => Some("it was too often"),
            () if alive.process.is_none()
                && self.stage.is_hosted(&incarnation.0)
                && !started_again =>
            {
                Some("its host had not heard of it")
            }
            () if alive.process.is_none() && unable && !started_again => {
                Some("it could not be run")
            }
            // With its environment, unless the worker has given that back: with the first that it
            // says to a daemon.
            () if self.daemons > alive.daemon && !given_back => {
                Some("the daemon that knew how is gone")
            }
            () => None,
        }
    }
}
