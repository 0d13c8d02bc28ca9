//! What connections and processes report, passed on to home.

use std::collections::BTreeSet;

use teamd_shared::control::DialledHome;
use teamd_shared::control::{
    Command, Done, FromWorker, Refusal, RefusalCode, TaggedCommand, ToWorker,
};
use teamd_shared::inbox::{HOME, last_via, owner_of};
use teamd_shared::link::{
    FromHost, HostHello, LINK_PROTOCOL, given_to_hosts, settings_given_to_hosts,
};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::watch::Changes;

use super::daemon::HostDaemon;
use super::frames::{hosted_end, report, whose};
use super::links::HomeLink;
use super::mail::Submission;
use super::state::{Exited, HostRecord};
use super::workers::{Stage, Workers};
use crate::core::caller::ReplyTo;
use crate::core::event::{Ended, Event};
use crate::core::incarnation::Incarnation;
use crate::io::input::{ConnectedWorker, Input};
use crate::io::workers::Reaped;

impl HostDaemon {
    /// Takes what a connection reports.
    pub(super) fn intake(&mut self, input: Input) {
        match input {
            Input::ClientConnected { connection, client } => {
                self.workers.connections.add_client(connection, *client);
            }
            Input::ClientAsks {
                connection,
                request,
            } => self.client_asks(connection, request),
            Input::WorkerGreeted { incarnation } => self.greeted(&incarnation),
            Input::WorkerConnected(worker) => self.worker_connected(*worker),
            Input::WorkerSays {
                connection,
                incarnation,
                frame,
            } => {
                let connections = &self.workers.connections;
                if connections.is_present(&incarnation, connection) {
                    self.worker_says(&incarnation, frame);
                }
            }
            Input::LinkConnected {
                connection,
                outbound,
                dials,
            } => self.link_connected(HomeLink::new(connection, outbound, dials)),
            Input::LinkSays { connection, line } => self.home_says(connection, &line),
            Input::Gone { connection } => self.gone(connection),
            Input::Measured(vitals) => self.links.say(&FromHost::Vitals(*vitals)),
            Input::NoFile { name, why } => self.links.say(&FromHost::NoFile { name, why }),
            Input::Link { .. }
            | Input::JobStep(_)
            | Input::HostedJobEnded { .. }
            | Input::Dialled(_) => {
                tracing::warn!("a host daemon has no hosts");
            }
        }
    }

    /// Answers a command. All but one are home's.
    fn client_asks(&mut self, connection: u64, TaggedCommand { tag, command }: TaggedCommand) {
        let client = ReplyTo {
            connection,
            tag,
            agent: false,
        };
        let answer = match command {
            Command::Ping => Ok(Done::Pong {
                pid: std::process::id(),
                team_name: self.team_name.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                stopping: false,
                trouble: None,
            }),
            _ => Err(
                Refusal::new(RefusalCode::Conflict, "a host daemon decides nothing")
                    .hint("give the command where the team's own daemon runs"),
            ),
        };
        self.workers.connections.reply(client, answer);
    }

    fn greeted(&mut self, incarnation: &Incarnation) {
        let Some(live) = self.workers.live.get_mut(incarnation) else {
            return;
        };
        live.stage = Stage::Greeted;
        self.links.say(&FromHost::Greeted(whose(incarnation)));
    }

    /// Checks a worker that has connected: its process must be the one that was started for that
    /// incarnation.
    fn worker_connected(&mut self, worker: ConnectedWorker) {
        let workers = &mut self.workers;
        if !workers.supervisor.recognizes(&worker, "this host") {
            return;
        }
        let ConnectedWorker {
            connection,
            incarnation,
            environment,
            state,
            outbound,
            ..
        } = worker;
        if let Some(live) = workers.live.get_mut(&incarnation) {
            live.stage = Stage::Welcomed;
            live.needs_waking = false;
        }
        workers
            .connections
            .add_worker(incarnation.clone(), connection, outbound);
        workers.needs_waking(&incarnation, state.needs_waking);
        let read = self.mail.line_read(&incarnation.name, state.read);
        let home = self
            .links
            .present
            .as_ref()
            .and_then(|link| link.dials.as_ref());
        let variables = environment.as_ref().map(|environment| match home {
            // No key crosses a cluster of others, in neither direction.
            Some(DialledHome::Nats(_)) => settings_given_to_hosts(environment),
            _ => given_to_hosts(environment),
        });
        self.links.say(&FromHost::Connected {
            variables: variables.unwrap_or_default(),
            of: whose(&incarnation),
            state: Box::new(report(state, read)),
        });
    }

    fn worker_says(&mut self, incarnation: &Incarnation, frame: FromWorker) {
        let of = whose(incarnation);
        match frame {
            FromWorker::State(state) => {
                self.workers.needs_waking(incarnation, state.needs_waking);
                let read = self.mail.line_read(&incarnation.name, state.read);
                let state = Box::new(report(state, read));
                self.links.say(&FromHost::State { of, state });
            }
            FromWorker::Submitted {
                request_id,
                offset,
                len,
            } => {
                // Without a link it is submitted again: the worker connects anew with the next one.
                let outboxes = self.links.present.as_mut();
                let outboxes = outboxes.and_then(|link| link.outboxes.as_mut());
                let submission = Submission {
                    of: incarnation.clone(),
                    request_id,
                    offset,
                    len,
                };
                match outboxes {
                    Some(outboxes) => outboxes.submit(submission),
                    None => self.submitted_early.push(submission),
                }
            }
            frame => {
                if frame == FromWorker::Leaving {
                    self.left(incarnation);
                }
                let frame = Box::new(frame);
                self.links.say(&FromHost::Says { of, frame });
            }
        }
    }

    fn left(&mut self, incarnation: &Incarnation) {
        if let Some(live) = self.workers.live.get_mut(incarnation) {
            live.left = true;
        }
    }

    fn link_connected(&mut self, link: HomeLink) {
        let process = match Identity::of_self() {
            Ok(process) => process,
            Err(error) => {
                tracing::error!("cannot read its own identity: {error}");
                return;
            }
        };
        link.outbound.say(&FromHost::Hello(HostHello {
            protocol: LINK_PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process,
            weakness: self.weakness.clone(),
        }));
        self.links.newcomer = Some(link);
    }

    fn gone(&mut self, connection: u64) {
        self.links.drop_link(connection);
        if self.links.present.is_none() {
            self.jobs.end_all();
        }
        if let Some(incarnation) = self.workers.connections.remove(connection) {
            if let Some(live) = self.workers.live.get_mut(&incarnation) {
                live.stage = Stage::Away;
            }
            self.links.say(&FromHost::Disconnected(whose(&incarnation)));
        }
    }

    /// Handles the end of a process.
    pub(super) fn process_exited(&mut self, number: u64) {
        let (incarnation, how) = match self.workers.supervisor.reap(number) {
            Some(Reaped::Worker(incarnation, how)) => (incarnation, how),
            Some(Reaped::Job(process, how)) => {
                self.job_process_ended(process, how);
                return;
            }
            None => return,
        };
        if let Some(spawned) = self.log.state.running(&incarnation) {
            self.workers.wait_until_empty(spawned, how);
        } else {
            // It could not be recorded, so it was killed.
            self.workers.connections.forget(&incarnation);
            self.workers.live.remove(&incarnation);
            drop(self.workers.supervisor.leave(&incarnation));
        }
    }

    /// Takes what the reaper has found.
    pub(super) fn incarnation_ended(&mut self, event: Event) {
        let Workers {
            reaper, supervisor, ..
        } = &mut self.workers;
        match reaper.on_empty(event, supervisor) {
            Some(Event::Leaving { incarnation }) => self.left(&incarnation),
            Some(Event::Ended { incarnation, ended }) => self.ended(&incarnation, ended),
            _ => {}
        }
    }

    /// Records an end, and then tells it.
    fn ended(&mut self, incarnation: &Incarnation, ended: Ended) {
        self.workers.connections.forget(incarnation);
        let live = self.workers.live.remove(incarnation).unwrap_or_default();
        let position = ended.inbox;
        let name = &incarnation.name;
        let inbox = last_via(&self.dir, name, HOME, Some(position.offset));
        let inbox = inbox.unwrap_or_else(|error| {
            tracing::warn!("cannot see which mail {name} had: {error}");
            None
        });
        let exited = Exited {
            of: whose(incarnation),
            end: hosted_end(ended, inbox, live.left),
            inbox: position,
        };
        let record = exited.clone();
        if !self.record(HostRecord::Exited(Box::new(record))) {
            return;
        }
        tracing::info!("{name} (incarnation {}) has ended", incarnation.number);
        self.say_end(exited);
        if !self.team.owners.contains(name) {
            self.archive_unknown();
        }
    }

    /// Tells home of an end, behind the last mail of the incarnation.
    pub(super) fn say_end(&mut self, exited: Exited) {
        let Some(link) = &mut self.links.present else {
            return;
        };
        link.ends.push(exited);
    }

    /// Wakes the workers whose inboxes have grown and that do not watch them; what is for others is
    /// sent.
    pub(super) fn inboxes_changed(&mut self, changes: &Changes) {
        let outboxes = self.links.present.as_mut();
        let mut outboxes = outboxes.and_then(|link| link.outboxes.as_mut());
        let grown: Option<BTreeSet<Name>> = match changes {
            Changes::Files(files) => Some(files.iter().filter_map(|file| owner_of(file)).collect()),
            Changes::Anything => None,
        };
        match (&grown, &mut outboxes) {
            (Some(grown), Some(outboxes)) => grown.iter().for_each(|owner| outboxes.grown(owner)),
            (None, Some(outboxes)) => outboxes.all_grown(),
            (_, None) => {}
        }
        let live = self.workers.live.iter();
        let waiting = live.filter(|(_, live)| live.needs_waking);
        let waiting = waiting.map(|(incarnation, _)| incarnation);
        let to_wake: Vec<Incarnation> = waiting
            .filter(|it| grown.as_ref().is_none_or(|grown| grown.contains(&it.name)))
            .cloned()
            .collect();
        for incarnation in to_wake {
            self.workers.say(&incarnation, ToWorker::Wake);
        }
    }
}
