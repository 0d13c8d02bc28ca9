//! Gathering: what connections, processes and inboxes report becomes events. Nothing is decided
//! here.

use teamd_shared::control::{
    Command, Done, FromWorker, PlanApproval, Refusal, RefusalCode, TaggedCommand, TaskOrder,
    ToWorker,
};
use teamd_shared::member::Doing;
use teamd_shared::name::Name;
use teamd_shared::watch::Changes;

use super::EventLoop;
use super::sources::Sources;
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::Event;
use crate::core::incarnation::Incarnation;
use crate::core::io::Io;
use crate::io::input::{ConnectedWorker, Input};
use crate::io::links::AwaitedVitals;

/// How many inputs one batch takes at the most.
const BATCH: usize = 512;

impl EventLoop {
    /// Takes everything else that is ready.
    pub(super) fn gather(&mut self, sources: &mut Sources, events: &mut Vec<Event>) {
        for _ in 0..BATCH {
            let Ok(input) = sources.inputs.try_recv() else {
                break;
            };
            events.extend(self.take_input(input));
        }
        while let Ok(number) = sources.exited.try_recv() {
            events.extend(self.process_exited(number));
        }
        while let Ok(event) = sources.empty.try_recv() {
            events.extend(self.incarnation_ended(event));
        }
        events.extend(self.overdue_measurements());
        if self.lead.has_more() {
            events.push(self.lead.read());
        }
        if let Some(watch) = &sources.inboxes {
            events.extend(self.inboxes_changed(&watch.take()));
        }
    }

    /// Turns what a connection or a link reports into events.
    pub(super) fn take_input(&mut self, input: Input) -> Vec<Event> {
        match input {
            Input::Link {
                host,
                connection,
                news,
            } => self.link_news(&host, connection, news),
            Input::JobStep(step) => {
                let (jobs, mut means) = self.resources.jobs();
                jobs.step(*step, &mut means);
                Vec::new()
            }
            Input::Dialled(dialled) => {
                self.resources.links.dialled_in(*dialled);
                Vec::new()
            }
            Input::HostedJobEnded { job, ended } => {
                let (jobs, mut means) = self.resources.jobs();
                jobs.hosted_job_ended(job, ended, &mut means)
            }
            input => {
                let event = self.intake(input);
                event
                    .and_then(|event| self.place(event))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Turns what a connection reports into events.
    fn intake(&mut self, input: Input) -> Option<Event> {
        match input {
            Input::ClientConnected { connection, client } => {
                self.resources.connections.add_client(connection, *client);
                None
            }
            Input::ClientAsks {
                connection,
                request,
            } => {
                let client = ReplyTo {
                    connection,
                    tag: request.tag,
                    agent: self.resources.connections.is_lead(connection),
                };
                self.command(client, request.command)
            }
            Input::WorkerGreeted { incarnation } => Some(Event::Greeted { incarnation }),
            Input::WorkerConnected(worker) => self.worker_connected(*worker),
            Input::WorkerSays {
                connection,
                incarnation,
                frame,
            } => {
                if !self
                    .resources
                    .connections
                    .is_present(&incarnation, connection)
                {
                    return None;
                }
                self.worker_says(connection, incarnation, frame)
            }
            // `take_input` has taken them.
            Input::Link { .. }
            | Input::JobStep(_)
            | Input::HostedJobEnded { .. }
            | Input::Dialled(_) => None,
            // Only a host daemon has this measured, or carries files so.
            Input::Measured(_) | Input::NoFile { .. } => None,
            // Only a host daemon serves links: the end of the input closes the connection.
            Input::LinkConnected { connection, .. } | Input::LinkSays { connection, .. } => {
                tracing::warn!("connection {connection} is a link, and this is no host daemon");
                None
            }
            Input::Gone { connection } => {
                self.dispatcher.waiters.drop_connection(connection);
                self.resources.codes.forget(connection);
                self.resources.links.drop_client(connection);
                let incarnation = self.resources.connections.remove(connection);
                self.resources.connections.end_waits(connection);
                let incarnation = incarnation?;
                Some(Event::Disconnected { incarnation })
            }
        }
    }

    /// Turns what a worker says on its present connection into an event.
    pub(super) fn worker_says(
        &mut self,
        connection: u64,
        incarnation: Incarnation,
        frame: FromWorker,
    ) -> Option<Event> {
        match frame {
            FromWorker::State(state) => {
                // The worker was not woken for mail that came before this was known.
                if self
                    .dispatcher
                    .runtime
                    .needs_waking(&incarnation, state.needs_waking)
                {
                    self.resources.connections.say(&incarnation, ToWorker::Wake);
                }
                // Only what is idle is given work, or reminded of it.
                if state.doing == Doing::Idle {
                    let has_unread = self.resources.has_unread(&incarnation.name, state.read);
                    self.dispatcher
                        .runtime
                        .record_unread(&incarnation, has_unread);
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
            FromWorker::McpServers(servers) => {
                let connections = &mut self.resources.connections;
                connections.record_servers(&incarnation, servers);
                None
            }
            FromWorker::RunsCommands(run) => {
                let now = self.now();
                self.dispatcher.runs_commands(&incarnation, run, now);
                None
            }
            FromWorker::Compacted { id, outcome } => Some(Event::Compacted {
                incarnation,
                id,
                outcome,
            }),
            FromWorker::OtherModels(models, all) => Some(Event::OtherModels {
                incarnation,
                models,
                all,
            }),
            FromWorker::Asks(TaggedCommand { tag, command }) => {
                let client = ReplyTo {
                    connection,
                    tag,
                    agent: true,
                };
                Some(Event::Command(
                    client,
                    Actor::Member(incarnation.name),
                    command,
                ))
            }
        }
    }

    /// Turns the command of a person, or of a lead that is connected by MCP, into an event. A command about the process, and not the team,
    /// is answered here.
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
                self.resources.connections.reply(client, Ok(pong));
                None
            }
            Command::Leads => {
                let leads = self.resources.connections.leads();
                self.resources
                    .connections
                    .reply(client, Ok(Done::Leads(leads)));
                None
            }
            Command::McpServers => {
                let servers = self.resources.connections.mcp_servers();
                self.resources
                    .connections
                    .reply(client, Ok(Done::McpServers(servers)));
                None
            }
            Command::LeadRead { place } => {
                let connections = &mut self.resources.connections;
                let recorded = connections.record_read(client.connection, place);
                let answer = recorded
                    .map(|is_news| Done::LeadRead { is_news })
                    .ok_or_else(no_lead);
                connections.reply(client, answer);
                None
            }
            Command::AwaitEvents => {
                let connections = &mut self.resources.connections;
                if !connections.let_wait_for_lead(client) {
                    connections.reply(client, Err(no_lead()));
                }
                None
            }
            Command::ShowCodes => {
                let shown = self.codes_for(client.connection);
                self.resources.connections.reply(client, shown);
                None
            }
            Command::GiveCode(given) => self.take_code(client, &given),
            Command::Hosts if !client.agent => {
                self.measure_hosts(AwaitedVitals::List(client));
                None
            }
            Command::HostLog { name, from } if !client.agent => {
                self.read_host_log(client, &name, from);
                None
            }
            Command::AwaitDelivery { name, offset } => {
                self.await_delivery(client, name, offset);
                None
            }
            command @ (Command::Answer { .. } | Command::ApprovePlan(_)) if client.agent => {
                let lead = self.resources.connections.described_lead(client.connection);
                let by = lead.map_or_else(|| Actor::Member(Name::lead()), Actor::LeadAnswers);
                Some(Event::Command(client, by, command))
            }
            command if client.agent => {
                let lead = Actor::Member(Name::lead());
                Some(Event::Command(client, lead, command))
            }
            Command::HandOver(successor) => {
                self.begin_to_hand_over(client, successor);
                None
            }
            Command::Answer { ref request_id, .. }
            | Command::ApprovePlan(PlanApproval { ref request_id, .. }) => {
                let by = self.answerer(client.connection, request_id);
                Some(Event::Command(client, by, command))
            }
            command @ (Command::Task(TaskOrder::Import { .. })
            | Command::ForgetMemory { .. }
            | Command::TakeHost { .. }) => {
                let lead = self.resources.connections.lead_above(client.connection);
                let by = lead.map_or(Actor::Person, |lead| Actor::RunByLead(lead.shown()));
                Some(Event::Command(client, by, command))
            }
            command => Some(Event::Command(client, Actor::Person, command)),
        }
    }

    /// Returns what cannot be written now. Where nothing waits for the journal, the roster tells,
    /// which is tried until it is written.
    fn trouble(&self) -> Option<&str> {
        let roster = self.resources.roster_trouble.as_deref();
        let waits = roster.is_some() || self.dispatcher.has_undecided();
        if waits {
            self.dispatcher.trouble().or(roster)
        } else {
            roster
        }
    }

    /// Checks a worker that has connected: its process must be the one that the journal holds for
    /// that incarnation.
    fn worker_connected(&mut self, worker: ConnectedWorker) -> Option<Event> {
        let supervisor = &self.resources.supervisor;
        if !supervisor.recognizes(&worker, "the journal") {
            return None;
        }
        let ConnectedWorker {
            connection,
            incarnation,
            environment,
            state,
            outbound,
            ..
        } = worker;
        self.resources
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
            if let Some(host) = &member.terms.host {
                self.resources.links.pump(host, &owner);
            }
            if matches!(changes, Changes::Files(_)) {
                self.dispatcher.mail_arrived(&incarnation, self.now());
            }
            if self
                .dispatcher
                .runtime
                .of(&incarnation)
                .is_some_and(|worker| worker.state.needs_waking)
            {
                self.resources.connections.say(&incarnation, ToWorker::Wake);
            }
        }
        events
    }
}

fn no_lead() -> Refusal {
    Refusal::new(RefusalCode::Conflict, "no connected lead runs this command")
        .hint("`teamctl mcp` connects the agent that starts it")
}
