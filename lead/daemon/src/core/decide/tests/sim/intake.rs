//! What a simulated daemon hears of, in any order that its sources allow.

use teamd_shared::control::{FromWorker, ToWorker};
use teamd_shared::journal::RejectedLine;
use teamd_shared::member::Emptied;
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::watch::SLOW_TICK;

use super::super::mutants::Mutant;
use super::daemon::Daemon;
use super::machine::Up;
use super::world::World;
use crate::core::event::{Ended, Event};
use crate::core::incarnation::Incarnation;

impl World {
    /// Takes in one thing that is ready; each source keeps its order.
    pub(super) fn takes_in(&mut self, daemon: &mut Daemon) -> Option<Event> {
        let readable = self
            .links
            .iter()
            .filter(|(_, link)| link.daemon_open || !link.worker_open);
        let readable = readable.filter(|(_, link)| !link.up.is_empty() || !link.worker_open);
        // Connections are accepted in their order: the greeting on a later one overtakes none.
        let waits = |number: &u64, incarnation: &Incarnation| {
            self.links
                .range(..number)
                .any(|(_, older)| older.incarnation == *incarnation && older.greets())
        };
        let readable: Vec<u64> = readable
            .filter(|(number, link)| !waits(number, &link.incarnation))
            .filter(|(_, link)| self.is_carried(daemon, &link.incarnation.name, link.far))
            .map(|(number, _)| *number)
            .collect();
        let gone = daemon
            .supervised
            .iter()
            .filter(|(_, pid)| !self.processes.contains_key(pid));
        let gone: Vec<Incarnation> = gone.map(|(incarnation, _)| incarnation.clone()).collect();
        let early = self.is(Mutant::EndsBeforeTheLockIsFree);
        let over = daemon
            .reaping
            .iter()
            .filter(|incarnation| early || !self.lock_is_held(&incarnation.name));
        let over: Vec<Incarnation> = over.cloned().collect();
        let sources = [
            readable.len(),
            gone.len(),
            over.len(),
            daemon.commands.len().min(1),
            daemon.jobs.len().min(1),
            usize::from(self.has_heard_from_far(daemon)),
        ];
        let at = self.rng.pick(
            &(0..6)
                .filter(|&source| sources[source] > 0)
                .collect::<Vec<_>>(),
        )?;
        match at {
            0 => self
                .rng
                .pick(&readable)
                .and_then(|number| self.reads(daemon, number)),
            1 => {
                let incarnation = self.rng.pick(&gone)?;
                daemon.supervised.remove(&incarnation);
                // What it said last may still be in its connection: the end of that comes first.
                if daemon.connections.contains_key(&incarnation) {
                    daemon.exited.insert(incarnation);
                } else {
                    daemon.reaping.push(incarnation);
                }
                None
            }
            2 => {
                let incarnation = self.rng.pick(&over)?;
                let transcript = self.disk.transcripts.get(&incarnation.name);
                let by_signal =
                    transcript.is_some_and(|it| it.left_by_signal == Some(incarnation.number));
                if by_signal && daemon.heard.farewells.insert(incarnation.clone()) {
                    return Some(Event::Leaving { incarnation });
                }
                daemon.reaping.retain(|other| *other != incarnation);
                let left = self.lock_is_held(&incarnation.name)
                    || self
                        .processes
                        .values()
                        .any(|it| it.begun && it.incarnation == incarnation);
                let checked = if left {
                    Err(format!(
                        "{} is recorded as ended, and something of it is left",
                        incarnation.name
                    ))
                } else {
                    Ok(())
                };
                self.check(checked);
                let inbox = Position {
                    offset: u64::from(self.rng.below(9)),
                    tail: 0,
                };
                let unread = u64::from(self.rng.below(3));
                let ended = Ended {
                    code: None,
                    signal: None,
                    inbox,
                    unread,
                    mail: Some(self.unread_at_end(&incarnation)),
                    more_mail: 0,
                    emptied: Some(Emptied::Tree),
                    unworkable: None,
                };
                Some(Event::Ended { incarnation, ended })
            }
            3 => daemon.commands.pop_front(),
            4 => self.a_job_ends(daemon),
            _ => self.hears_from_far(daemon),
        }
    }

    fn reads(&mut self, daemon: &mut Daemon, number: u64) -> Option<Event> {
        let link = self.links.get_mut(&number)?;
        let incarnation = link.incarnation.clone();
        let pid = link.pid;
        let Some(up) = link.up.pop_front() else {
            self.links.remove(&number);
            if !self.is(Mutant::AnswersFollowTheIncarnation) {
                daemon.dispatcher.waiters.drop_connection(number);
            }
            if daemon.connections.get(&incarnation) != Some(&number) {
                return None;
            }
            daemon.connections.remove(&incarnation);
            if daemon.exited.remove(&incarnation) {
                daemon.reaping.push(incarnation.clone());
            }
            return Some(Event::Disconnected { incarnation });
        };
        match up {
            Up::StartedWorker => {
                if self.host_of(&incarnation.name).is_some() {
                    if !self.is_present_at_home(daemon, &incarnation) {
                        return None;
                    }
                    daemon.connections.insert(incarnation.clone(), number);
                }
                Some(Event::Greeted { incarnation })
            }
            Up::Back(environment, state) => {
                let is_there = self.host_of(&incarnation.name).is_some();
                let is_known = if is_there {
                    self.is_known_there(&incarnation, pid)
                } else {
                    daemon.supervised.get(&incarnation) == Some(&pid)
                };
                if is_there && is_known && !self.is_present_at_home(daemon, &incarnation) {
                    return None;
                }
                let link = self.links.get_mut(&number)?;
                if !is_known {
                    link.down.push_back(ToWorker::Stranger {
                        why: "no such incarnation".to_owned(),
                    });
                    return None;
                }
                daemon.connections.insert(incarnation.clone(), number);
                daemon
                    .heard
                    .environments
                    .insert(incarnation.name.clone(), environment.clone());
                let state = if self.is(Mutant::StatesAreNotHeard) {
                    Default::default()
                } else {
                    state
                };
                Some(Event::Connected {
                    incarnation,
                    environment: Some(environment),
                    state,
                })
            }
            Up::Says(FromWorker::Asks(request)) if self.is(Mutant::EveryConnectionIsHeard) => {
                Some(self.agent_asks(daemon, (&incarnation, number), request))
            }
            Up::Says(_) if daemon.connections.get(&incarnation) != Some(&number) => None,
            Up::Says(FromWorker::Asks(request)) => {
                Some(self.agent_asks(daemon, (&incarnation, number), request))
            }
            Up::Says(FromWorker::Pong { number }) => {
                self.promises.ponged(&incarnation, number);
                (number == 0 || !self.is(Mutant::PongsAreNotHeard)).then_some(Event::Pong {
                    incarnation,
                    number,
                })
            }
            Up::Says(FromWorker::State(_)) if self.is(Mutant::StatesAreNotHeard) => None,
            Up::Says(FromWorker::State(state)) => Some(Event::Said { incarnation, state }),
            Up::Says(FromWorker::Leaving) => {
                daemon.heard.farewells.insert(incarnation.clone());
                Some(Event::Leaving { incarnation })
            }
            Up::Says(
                FromWorker::McpServers(_)
                | FromWorker::RunsCommands(_)
                | FromWorker::OtherModels(..)
                | FromWorker::Compacted { .. },
            ) => None,
            Up::Says(FromWorker::Unable { why }) => Some(Event::Unable { incarnation, why }),
            Up::Says(FromWorker::Submitted {
                request_id, offset, ..
            }) => {
                let line = self.line_of_the_lead(offset);
                Some(Event::Submitted {
                    incarnation,
                    request_id,
                    line,
                })
            }
        }
    }

    /// Looks at the lead's inbox: when it is woken, when there was more, and on the slow tick.
    pub(super) fn looks_at_its_inbox(&mut self, daemon: &mut Daemon) -> Option<Event> {
        let woken = std::mem::take(&mut self.disk.woken);
        let ticks = daemon.tick <= self.clocks.monotonic;
        if ticks {
            daemon.tick = self.clocks.monotonic + SLOW_TICK;
        }
        let ticks = ticks && !self.is(Mutant::OnlyRingsAreHeard);
        let looks = woken || ticks || daemon.lead_has_more;
        looks.then(|| self.reads_its_inbox(daemon))
    }

    /// Reads a piece of the lead's inbox.
    pub(super) fn reads_its_inbox(&mut self, daemon: &mut Daemon) -> Event {
        let from = daemon.lead;
        let end = self.disk.lead_lines();
        let to = if self.calm {
            end
        } else {
            end.min(from + u64::from(self.rng.below(8)))
        };
        let bad = self.disk.bad.range(from..to).map(|&offset| RejectedLine {
            offset,
            reason: "no JSON".to_owned(),
            line: "{".to_owned(),
        });
        let position = Position {
            offset: to,
            tail: 0,
        };
        let rejected = bad.collect();
        daemon.lead = to;
        daemon.lead_has_more = to < end;
        if self.is(Mutant::PositionOvertakes) {
            daemon.dispatcher.lead = position;
        }
        Event::LeadRead { position, rejected }
    }

    fn line_of_the_lead(&mut self, offset: u64) -> Result<Box<Message>, String> {
        if !self.calm && self.rng.one_in(60) {
            return Err("cannot read it".to_owned());
        }
        let inbox = self.disk.inboxes.get(&Name::lead());
        let line = inbox.and_then(|inbox| inbox.get(usize::try_from(offset).unwrap()));
        line.cloned()
            .map(Box::new)
            .ok_or_else(|| "there is no such line".to_owned())
    }
}
