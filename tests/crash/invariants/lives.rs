//! Lives, as the journal tells them: each is run once, ends as somebody wanted or crashes, and one that crashed is started
//! again unless there is a reason why not.

use std::collections::{HashMap, HashSet};

use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Record, RequestRecord, TeamEvent};
use teamd_shared::member::{Ending, MemberStatus as Ended, Restart};
use teamd_shared::message::AnsweredBy;
use teamd_shared::process::Identity;
use teamd_shared::request::{Kind, Status};

use crate::stage::{Checked, ENVIRONMENT, Stage, Victim, hold};

/// How often the policy starts somebody again, within a time that no run lasts.
pub(crate) const RESTARTS: usize = 3;

type Life = (String, u32);

/// A life that has not ended.
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

struct Lives<'a> {
    stage: &'a Stage,
    daemons: usize,
    /// When the present daemon began.
    daemon: f64,
    stopping: bool,
    alive: HashMap<Life, Alive>,
    asked: HashSet<Life>,
    agreed: HashSet<Life>,
    /// Who had a shutdown that did not end with an approval: a model that rejects one need not reject the next.
    answered: HashSet<String>,
}

/// Checks the lives that have begun and ended so far; whoever was let go has gone.
pub(super) fn check(stage: &Stage) -> Checked {
    let (alive, asked, agreed) = (HashMap::new(), HashSet::new(), HashSet::new());
    let answered = HashSet::new();
    let mut lives = Lives { stage, daemons: 0, daemon: 0.0, stopping: false, alive, asked, agreed, answered };
    for line in stage.journal() {
        lives.follow(&line)?;
    }
    nobody_is_turned_away(stage)?;
    let environment = stage.team.text("environment");
    let other = environment.lines().find(|&value| value != ENVIRONMENT.1);
    hold(other.is_none(), || format!("a command ran in another environment: {other:?}"))?;
    let stays = lives.agreed.iter().find(|life| lives.alive.contains_key(life));
    hold(stays.is_none(), || format!("{stays:?} agreed to leave, and lives"))
}

/// No life leaves that was spawned because a daemon does not know it: nobody alive is buried. (One whose beginning was not
/// recorded is told so when it comes, before it begins.)
fn nobody_is_turned_away(stage: &Stage) -> Checked {
    for line in stage.journal() {
        let Record::Member(record) = &line.record else { continue };
        if record.event != MemberEvent::Spawned {
            continue;
        }
        let (name, life) = (record.member.name.as_str(), record.member.incarnation);
        let left = stage.team.transcript(name).into_iter().find(|entry| {
            entry["entry"] == "left" && entry["incarnation"] == life && entry["by_signal"] != true
        });
        let away = left.filter(|left| left["reason"] != "the shutdown is approved");
        hold(away.is_none(), || {
            format!("{name}, who was spawned as life {life}, was turned away: {away:?}")
        })?;
    }
    Ok(())
}

impl Lives<'_> {
    fn follow(&mut self, line: &Line) -> Checked {
        match &line.record {
            Record::Team(record) => {
                if record.event == TeamEvent::Started {
                    self.daemons += 1;
                    self.daemon = record.daemon.as_ref().map_or(0.0, |daemon| daemon.started_at);
                }
                self.stopping = match record.event {
                    TeamEvent::Stopping => true,
                    TeamEvent::Read | TeamEvent::ModesRestored => self.stopping,
                    TeamEvent::Started | TeamEvent::Staying | TeamEvent::Stopped => false,
                };
                Ok(())
            }
            Record::Request(record) if record.request.kind == Kind::Shutdown => self.shutdown(record),
            Record::Member(record) if record.derived_from.is_none() => self.member(record),
            Record::Request(_) | Record::Member(_) | Record::Snapshot(_) => Ok(()),
        }
    }

    fn shutdown(&mut self, record: &RequestRecord) -> Checked {
        let request = &record.request;
        let life = (request.member().to_owned(), request.incarnation);
        let refuses = self.stage.ledger.refuses.contains(&life.0) && !self.answered.contains(&life.0);
        let approved_itself =
            request.status == Status::Approved && request.answered_by == Some(AnsweredBy::Model);
        hold(!(refuses && approved_itself), || format!("{life:?} has refused, and agreed: {request:?}"))?;
        match request.status {
            Status::Pending => drop(self.asked.insert(life)),
            Status::Approved => drop(self.agreed.insert(life)),
            Status::Rejected | Status::Expired => {
                self.answered.insert(life.0.clone());
                self.asked.remove(&life);
            }
        }
        let wanted = self.stage.ledger.asked_to_leave.iter().any(|name| name == request.member());
        hold(wanted, || format!("nobody wanted {} to leave: {request:?}", request.member()))
    }

    fn member(&mut self, record: &MemberRecord) -> Checked {
        let member = &record.member;
        let life = (member.name.to_string(), member.incarnation);
        match record.event {
            MemberEvent::Spawning => {
                let others: Vec<&Life> = self.alive.keys().filter(|(name, _)| *name == life.0).collect();
                hold(others.is_empty(), || format!("{life:?} begins while {others:?} live"))?;
                self.begin(life, 0);
            }
            MemberEvent::Spawned => {
                let Some(alive) = self.alive.get_mut(&life) else {
                    return hold(false, || format!("{life:?} was spawned, and had not begun"));
                };
                hold(alive.process.is_none(), || format!("{life:?} was spawned twice"))?;
                alive.process.clone_from(&member.process);
            }
            MemberEvent::Adopted => {
                let known = self.alive.get(&life).map(|alive| &alive.process);
                hold(known == Some(&member.process), || {
                    format!("{life:?} is {known:?}, and {:?} was adopted", member.process)
                })?;
            }
            MemberEvent::Ending => {
                let name = &life.0;
                let forced = member.ending == Some(Ending::Force);
                hold(!forced || self.stage.ledger.forced.contains(name), || {
                    format!("nobody wanted {name} to be forced")
                })?;
                if let Some(alive) = self.alive.get_mut(&life) {
                    let unsaid = member.ending == Some(Ending::Hung) && !alive.silent;
                    hold(!unsaid, || {
                        format!("{life:?} was ended as hung, and the lead was not told before")
                    })?;
                    alive.ending = member.ending;
                }
            }
            MemberEvent::Silent | MemberEvent::Answering => {
                if let Some(alive) = self.alive.get_mut(&life) {
                    alive.silent = record.event == MemberEvent::Silent;
                }
            }
            MemberEvent::Exited => self.exited(record)?,
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, life: Life, restarts: usize) {
        let daemon = self.daemons;
        self.alive.insert(life, Alive { process: None, ending: None, silent: false, daemon, restarts });
    }

    /// How a life ended is what the journal before says (rule 11): by a signal that was announced, as agreed, or by itself.
    fn exited(&mut self, record: &MemberRecord) -> Checked {
        let member = &record.member;
        let life = (member.name.to_string(), record.ended_incarnation.unwrap_or(member.incarnation));
        let Some(alive) = self.alive.remove(&life) else {
            return hold(false, || format!("{life:?} ended, and did not live"));
        };
        let by_journal = match alive.ending {
            Some(Ending::Hung) => Ended::Crashed,
            Some(_) => Ended::Killed,
            None if self.agreed.contains(&life) => Ended::Shutdown,
            None => Ended::Crashed,
        };
        hold(member.phase.ended_as() == by_journal, || {
            format!("{life:?} ended as {:?}: by the journal it is {by_journal:?}", member.phase)
        })?;
        let wanted = self.stage.ledger.asked_to_leave.contains(&life.0);
        hold(wanted || by_journal == Ended::Crashed, || {
            format!("nobody wanted {life:?} to leave, and it is {by_journal:?}")
        })?;
        let why_not = self.why_not(record, &life, &alive);
        if record.ended_incarnation.is_some() {
            hold(why_not.is_none() && by_journal == Ended::Crashed, || {
                format!("{life:?} was started again, and should not be ({why_not:?}, {by_journal:?})")
            })?;
            self.begin((life.0, member.incarnation), alive.restarts + 1);
            return Ok(());
        }
        hold(by_journal != Ended::Crashed || why_not.is_some(), || {
            format!("{life:?} crashed and was not started again: {:?}", member.exit)
        })
    }

    /// Why a life that crashed now is not started again; none if it must be.
    fn why_not(&self, record: &MemberRecord, life: &Life, alive: &Alive) -> Option<&'static str> {
        // A daemon that was refused something may not be able to start it at all.
        let unable = self.stage.is_victim(Victim::Daemon) && self.stage.is_refused_something();
        let started_again = record.ended_incarnation.is_some();
        let given_back = started_again || self.stage.has_heard(self.daemon, &life.0, life.1);
        match () {
            () if record.member.terms.restart == Restart::Never => Some("the policy says so"),
            () if self.stopping => Some("the team stops"),
            () if self.asked.contains(life) => Some("its shutdown was asked for"),
            () if alive.restarts >= RESTARTS => Some("it was too often"),
            () if alive.process.is_none() && unable && !started_again => Some("it could not be run"),
            // With its environment, unless the worker has given that back: with the first that it says to a daemon.
            () if self.daemons > alive.daemon && !given_back => Some("the daemon that knew how is gone"),
            () => None,
        }
    }
}
