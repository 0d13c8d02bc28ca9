//! Gathering: what connections, processes and inboxes report becomes events, with the facts that a
//! decision rests on. Nothing is decided here.

use teamd_shared::control::{
    Command, Done, FromWorker, Refusal, RefusalCode, SpawnOrder, TaggedCommand, ToWorker,
};
use teamd_shared::inbox::{ReadError, last_lines};
use teamd_shared::member::Doing;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::Changes;

use super::{EventLoop, Sources};
use crate::core::event::{Actor, Event, Incarnation, ReplyTo, SpawnFacts};
use crate::core::owners::Owners;
use crate::io::connections::{ConnectedWorker, Input};
use crate::io::lock::liveness_lock_holder;

/// How many inputs one batch takes at the most.
const BATCH: usize = 512;

impl EventLoop {
    /// Takes everything else that is ready.
    pub(super) fn gather(&mut self, sources: &mut Sources, events: &mut Vec<Event>) {
        for _ in 0..BATCH {
            let Ok(input) = sources.inputs.try_recv() else {
                break;
            };
            events.extend(self.intake(input));
        }
        while let Ok(number) = sources.exited.try_recv() {
            self.process_exited(number);
        }
        while let Ok(event) = sources.empty.try_recv() {
            events.extend(self.incarnation_ended(event));
        }
        if self.lead.has_more() {
            events.push(self.lead.read());
        }
        if let Some(watch) = &sources.inboxes {
            events.extend(self.inboxes_changed(&watch.take()));
        }
    }

    /// Turns what a connection reports into events.
    pub(super) fn intake(&mut self, input: Input) -> Option<Event> {
        match input {
            Input::ClientConnected {
                connection,
                replies,
            } => {
                self.owned.connections.add_client(connection, replies);
                None
            }
            Input::ClientAsks {
                connection,
                request,
            } => {
                let client = ReplyTo {
                    connection,
                    tag: request.tag,
                    agent: false,
                };
                match request.command {
                    Command::Task(order) => self.task_asked(client, Actor::Person, order),
                    other => self.command(client, other),
                }
            }
            Input::WorkerGreeted { incarnation } => Some(Event::Greeted { incarnation }),
            Input::WorkerConnected(here) => self.worker_connected(*here),
            Input::WorkerSays {
                connection,
                incarnation,
                frame,
            } => {
                if !self.owned.connections.is_present(&incarnation, connection) {
                    return None;
                }
                match frame {
                    FromWorker::State(state) => {
                        // The worker was not woken for mail that came before this was known.
                        if self
                            .dispatcher
                            .live
                            .needs_waking(&incarnation, state.needs_waking)
                        {
                            self.owned.connections.say(&incarnation, ToWorker::Wake);
                        }
                        // Only what is idle is given work, or reminded of it.
                        if state.doing == Doing::Idle {
                            let has_unread = self.owned.has_unread(&incarnation.name, state.read);
                            self.dispatcher.live.note_unread(&incarnation, has_unread);
                        }
                        Some(Event::Said { incarnation, state })
                    }
                    FromWorker::Submitted {
                        request_id,
                        offset,
                        len,
                    } => Some(Event::Submitted {
                        incarnation,
                        request_id,
                        line: self.lead.submitted(offset, len),
                    }),
                    FromWorker::Leaving => Some(Event::Leaving { incarnation }),
                    FromWorker::Unable { why } => Some(Event::Unable { incarnation, why }),
                    FromWorker::Pong { number } => Some(Event::Pong {
                        incarnation,
                        number,
                    }),
                    FromWorker::Asks(TaggedCommand { tag, command }) => {
                        let client = ReplyTo {
                            connection,
                            tag,
                            agent: true,
                        };
                        self.agent_asks(&incarnation, client, command)
                    }
                }
            }
            Input::Gone { connection } => {
                self.dispatcher.waiters.drop_connection(connection);
                let incarnation = self.owned.connections.remove(connection)?;
                Some(Event::Disconnected { incarnation })
            }
        }
    }

    /// Takes in a request over a worker's own connection: the lead agent asks there as a person
    /// does, and no other worker is heard.
    fn agent_asks(
        &mut self,
        incarnation: &Incarnation,
        client: ReplyTo,
        command: Command,
    ) -> Option<Event> {
        match (may_ask(incarnation, &command), command) {
            (Ok(()), Command::Task(order)) => {
                self.task_asked(client, Actor::Member(incarnation.name.clone()), order)
            }
            (Ok(()), command) => self.command(client, command),
            (Err(refusal), _) => {
                tracing::warn!("{} is not heard: {}", incarnation.name, refusal.message);
                self.owned.connections.reply(client, Err(refusal));
                None
            }
        }
    }

    fn command(&mut self, client: ReplyTo, command: Command) -> Option<Event> {
        match command {
            Command::Ping => {
                let pid = std::process::id();
                let team_name = self.dispatcher.team.team_name.clone();
                let version = env!("CARGO_PKG_VERSION").to_owned();
                let stopping = self.dispatcher.is_stopping();
                let trouble = self.trouble().map(str::to_owned);
                let pong = Done::Pong {
                    pid,
                    team_name,
                    version,
                    stopping,
                    trouble,
                };
                self.owned.connections.reply(client, Ok(pong));
                None
            }
            Command::Spawn { id, order } => match self.spawn_facts(&order) {
                Ok(facts) => self.spawn_asked(client, id, order, facts),
                Err(refusal) => {
                    self.owned.connections.reply(client, Err(refusal));
                    None
                }
            },
            Command::Integration(order) => self.integration_asked(client, order),
            Command::Shutdown(order) => self.shutdown_asked(client, order),
            Command::Forget { name, discard } => self.forget_asked(client, name, discard),
            Command::HandOver(successor) => {
                self.begin_to_hand_over(client, successor);
                None
            }
            other => Some(Event::Command(client, other)),
        }
    }

    /// Returns what cannot be written now. Where nothing waits for the journal, the roster tells,
    /// which is tried until it is written.
    fn trouble(&self) -> Option<&str> {
        let roster = self.owned.roster_trouble.as_deref();
        let waits = roster.is_some() || self.dispatcher.has_undecided();
        self.dispatcher.trouble().filter(|_| waits).or(roster)
    }

    fn spawn_facts(&self, order: &SpawnOrder) -> Result<SpawnFacts, Refusal> {
        let lead_inbox = lead_begins_at(&self.owned.dir, order)?;
        let before = self
            .dispatcher
            .team
            .members
            .get(&order.name)
            .map(|state| &state.record);
        let ended = before.is_none_or(|member| member.phase.is_ended());
        let recorded = if order.resume {
            before.map(|member| member.terms.clone())
        } else {
            None
        };
        self.owned
            .supervisor
            .can_confine(&recorded.unwrap_or_default().with(&order.terms))?;
        Ok(SpawnFacts {
            held: ended
                .then(|| liveness_lock_holder(&self.owned.dir, &order.name))
                .flatten(),
            default_workspace: default_workspace(&self.owned.dir),
            lead_inbox,
            checkout: None,
        })
    }

    /// Checks a worker that has connected: its process must be the one that the journal holds for
    /// that incarnation.
    fn worker_connected(&mut self, here: ConnectedWorker) -> Option<Event> {
        let ConnectedWorker {
            connection,
            incarnation,
            environment,
            state,
            process,
            outbound,
        } = here;
        if Some(&process) != self.owned.supervisor.identity(&incarnation) {
            let Incarnation { name, number } = incarnation;
            tracing::warn!("a stranger says that it is {name} (incarnation {number})");
            let why = format!("the journal knows no such incarnation of {name}");
            outbound.say(ToWorker::Stranger { why });
            return None;
        }
        self.owned
            .connections
            .add_worker(incarnation.clone(), connection, outbound);
        Some(Event::Connected {
            incarnation,
            environment,
            state,
        })
    }

    /// Reads the lead's inbox, and wakes the workers that do not watch theirs, if those inboxes
    /// have grown.
    pub(super) fn inboxes_changed(&mut self, changes: &Changes) -> Vec<Event> {
        let owners: Vec<Name> = match changes {
            Changes::Files(files) => files
                .iter()
                .filter_map(|file| teamd_shared::inbox::owner_of(file))
                .collect(),
            Changes::Anything => {
                let members = self
                    .dispatcher
                    .team
                    .members
                    .keys()
                    .filter(|name| **name != Name::lead())
                    .cloned();
                members.chain(std::iter::once(Name::lead())).collect()
            }
        };
        let mut events = Vec::new();
        for owner in owners {
            if owner == Name::lead() {
                events.push(self.lead.read());
            }
            let Some(member) = self
                .dispatcher
                .team
                .members
                .get(&owner)
                .map(|state| &state.record)
            else {
                continue;
            };
            let incarnation = Incarnation::of(member);
            if matches!(changes, Changes::Files(_)) {
                self.dispatcher.mail_arrived(&incarnation, self.now());
            }
            if self
                .dispatcher
                .live
                .of(&incarnation)
                .is_some_and(|alive| alive.said.needs_waking)
            {
                self.owned.connections.say(&incarnation, ToWorker::Wake);
            }
        }
        events
    }
}

/// Tells whether a worker may ask for something over its own connection: the lead agent may what
/// its tools do.
pub(crate) fn may_ask(incarnation: &Incarnation, command: &Command) -> Result<(), Refusal> {
    let refuse =
        |message: &str, hint: &str| Err(Refusal::new(RefusalCode::Conflict, message).hint(hint));
    if matches!(command, Command::Task(_)) {
        return Ok(());
    }
    if incarnation.name != Name::lead() {
        return refuse(
            "only the lead agent asks for something",
            "write to the lead",
        );
    }
    match command {
        Command::Shutdown(order) if order.force_after.is_some() => refuse(
            "the lead agent ends no teammate by force",
            "a person does with `teamctl shutdown NAME --force`",
        ),
        Command::Spawn { .. }
        | Command::Shutdown(_)
        | Command::Answer { .. }
        | Command::RequestPlan { .. }
        | Command::AwaitVerdict { .. } => Ok(()),
        Command::Ping
        | Command::HandOver(_)
        | Command::Interrupt { .. }
        | Command::Forget { .. }
        | Command::Integration(_)
        | Command::Task(_)
        | Command::AwaitQuiet { .. }
        | Command::Stop { .. } => refuse(
            "that is not for the lead agent to do",
            "a person does it with `teamctl` or `teamd`",
        ),
    }
}

/// Returns where a fresh lead agent begins to read: it must not consume what was told to people for
/// months. None for others, and for one that goes on.
fn lead_begins_at(dir: &TeamDir, order: &SpawnOrder) -> Result<Option<Position>, Refusal> {
    if order.name != Name::lead() || order.resume {
        return Ok(None);
    }
    match last_lines(dir, &Name::lead(), 0) {
        Ok(last) => Ok(Some(last.position)),
        Err(ReadError::NoInbox(_)) => Ok(Some(Position::START)),
        Err(error) => {
            let message = format!("cannot see where the inbox of the lead ends: {error}");
            Err(Refusal::new(RefusalCode::Failed, message).hint("repair that file, and try again"))
        }
    }
}

/// Returns the directory that holds the team directory, or the link to it.
fn default_workspace(dir: &TeamDir) -> String {
    dir.workspace().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use teamd_shared::control::ShutdownOrder;
    use teamd_shared::environment::Environment;
    use teamd_shared::team_dir::TeamPath;

    use teamd_shared::id::RequestId;

    use super::*;

    #[test]
    fn a_fresh_lead_agent_begins_where_its_inbox_ends_or_not_at_all() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let order = |who: &str, resume| SpawnOrder {
            resume,
            ..SpawnOrder::new(Name::of_inbox(who).unwrap(), Environment::default())
        };
        let begins = |who, resume| lead_begins_at(&dir, &order(who, resume));
        assert_eq!(
            begins("lead", false),
            Ok(Some(Position::START)),
            "there is no mail"
        );
        teamd_shared::fs::replace(&dir, &TeamPath::inbox(&Name::lead()), b"{}\n{}\n").unwrap();
        assert_eq!(begins("lead", false).unwrap().unwrap().offset, 6);
        dir.remove(&TeamPath::inbox(&Name::lead())).unwrap();
        std::fs::create_dir(dir.path(&TeamPath::inbox(&Name::lead()))).unwrap();
        let refusal = begins("lead", false).unwrap_err();
        assert!(
            refusal
                .message
                .starts_with("cannot see where the inbox of the lead ends"),
            "{refusal:?}"
        );
        assert_eq!(
            (begins("lead", true), begins("alice", false)),
            (Ok(None), Ok(None))
        );
    }

    fn asks(who: &str, command: &Command) -> Option<(RefusalCode, String)> {
        let incarnation = Incarnation {
            name: Name::of_inbox(who).unwrap(),
            number: 1,
        };
        let refusal = may_ask(&incarnation, command).err()?;
        assert!(refusal.hint.is_some(), "no next step: {refusal:?}");
        Some((refusal.code, refusal.message))
    }

    fn alice() -> Name {
        Name::new("alice").unwrap()
    }

    fn shutdown(force_after: Option<f64>) -> Command {
        let request_id = RequestId::from_bits(1);
        let name = alice();
        let reason = String::new();
        let decide_within = 30.0;
        let wait = true;
        Command::Shutdown(ShutdownOrder {
            request_id,
            name,
            reason,
            decide_within,
            force_after,
            wait,
        })
    }

    #[test]
    fn only_the_lead_agent_is_heard_over_its_own_connection() {
        let id = RequestId::from_bits(1);
        for command in [
            shutdown(None),
            Command::RequestPlan {
                id: id.clone(),
                name: alice(),
                content: "x".to_owned(),
                wait: false,
            },
            Command::AwaitVerdict { request_id: id },
        ] {
            assert_eq!(asks("lead", &command), None, "{command:?}");
            let refused = (
                RefusalCode::Conflict,
                "only the lead agent asks for something".to_owned(),
            );
            assert_eq!(asks("alice", &command), Some(refused), "{command:?}");
        }
    }

    #[test]
    fn what_a_person_alone_may_do_is_refused_to_the_lead_agent() {
        for command in [
            shutdown(Some(0.0)),
            Command::Stop { force: false },
            Command::Forget {
                name: alice(),
                discard: false,
            },
            Command::Interrupt {
                name: alice(),
                asked_at: Duration::ZERO,
            },
        ] {
            assert!(asks("lead", &command).is_some(), "{command:?}");
        }
    }
}
