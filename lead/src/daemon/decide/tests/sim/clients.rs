//! What people do: commands with sense and without.

use std::time::Duration;

use teamd_shared::control::{Await, Command, ShutdownOrder, SpawnOrder};
use teamd_shared::id::RequestId;
use teamd_shared::member::{ApproveBy, Restart, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::request::Kind;

use super::machine::environment;
use super::world::{NAMES, World};
use crate::daemon::event::{Client, Event, SpawnFacts};

impl World {
    /// Somebody runs a command.
    pub(super) fn client_step(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        self.next_client += 1;
        let client = Client { connection: self.next_client, tag: 1, agent: false };
        let event = match self.rng.below(31) {
            0..=8 => self.order_spawn(client),
            9..=23 => Event::Command(client, self.order()),
            24..=29 => Event::Command(client, self.verdict()),
            30 if self.rng.one_in(3) => Event::Command(client, Command::Stop { force: self.rng.one_in(4) }),
            _ => return,
        };
        self.note(|| format!("client {}: {event:?}", client.connection));
        if let Some(daemon) = &mut self.daemon {
            daemon.commands.push_back(event);
        }
    }

    /// A name; mostly of somebody who runs, or of nobody.
    pub(super) fn somebody(&mut self, runs: bool) -> Name {
        let names = ["lead"].iter().chain(&NAMES).map(|name| Name::of_inbox(name).unwrap());
        let names: Vec<Name> = names.collect();
        let fits = |name: &&Name| {
            let member = self.promises.fold.members.get(*name);
            member.is_some_and(|member| !member.record.phase.is_ended()) == runs
        };
        let fitting: Vec<Name> = names.iter().filter(fits).cloned().collect();
        let any = self.rng.pick(&names).unwrap();
        if self.rng.one_in(6) { any } else { self.rng.pick(&fitting).unwrap_or(any) }
    }

    fn order(&mut self) -> Command {
        match self.rng.below(15) {
            0..=5 => {
                let name = self.somebody(true);
                let force_after =
                    self.rng.pick(&[None, None, None, Some(0.0), Some(5.0), Some(30.0)]).flatten();
                let reason = "asked by a person".to_owned();
                Command::Shutdown(ShutdownOrder {
                    name,
                    reason,
                    decide_within: 30.0,
                    force_after,
                    spawned: None,
                })
            }
            6..=9 => {
                Command::RequestPlan { name: self.somebody(true), content: "what will you do?".to_owned() }
            }
            10..=12 => Command::Interrupt { name: self.somebody(true), asked_at: Duration::ZERO },
            13 => Command::Forget { name: self.somebody(false) },
            _ => {
                let (incarnation, what) = (1 + self.rng.below(3), Await::Ready);
                Command::Await { name: self.somebody(true), incarnation, what }
            }
        }
    }

    /// Mostly of a plan that waits for it.
    pub(super) fn verdict(&mut self) -> Command {
        let known: Vec<RequestId> = self.promises.fold.requests.keys().cloned().collect();
        let open = self.promises.fold.requests.values();
        let open = open.filter(|request| request.is_pending() && request.kind == Kind::PlanApproval);
        let open: Vec<RequestId> = open.map(|request| request.request_id.clone()).collect();
        let from = if self.rng.one_in(4) { known } else { open };
        let request_id = self.rng.pick(&from).unwrap_or(RequestId::from_bits(self.rng.below(256)));
        let (approve, feedback) = (!self.rng.one_in(3), "as you like".to_owned());
        Command::Answer { request_id, approve, feedback }
    }

    fn order_spawn(&mut self, client: Client) -> Event {
        let lead = self.promises.fold.members.get(&Name::lead());
        let leads = lead.is_some_and(|lead| !lead.record.phase.is_ended());
        // Without it there is less to see.
        let name = if !leads && self.rng.one_in(2) { Name::lead() } else { self.somebody(false) };
        let before = self.promises.fold.members.get(&name);
        let resume = before.is_some() && self.rng.one_in(2);
        let environment = environment(u32::try_from(client.connection).unwrap());
        let mut order = self.varied(SpawnOrder { resume, ..SpawnOrder::new(name, environment) });
        order.terms.prompt = (!resume).then(|| "begin".to_owned());
        order.terms.restart = self.rng.one_in(4).then_some(Restart::Never);
        let facts = SpawnFacts { held: None, default_workspace: "/home/u/web".to_owned(), lead_inbox: None };
        Event::Spawn(client, Box::new(order), facts)
    }

    /// With a plan or without, answered by a person or by the lead agent, which itself has none.
    pub(super) fn varied(&mut self, order: SpawnOrder) -> SpawnOrder {
        if order.name == Name::lead() && !self.rng.one_in(8) {
            return order;
        }
        let approve_by = self.rng.one_in(2).then_some(ApproveBy::Lead);
        let terms =
            TermsPatch { plan: self.rng.one_in(2).then_some(true), approve_by, ..TermsPatch::default() };
        SpawnOrder { terms, ..order }
    }

    /// SIGTERM, or Ctrl-C.
    pub(super) fn signal_daemon(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        daemon.commands.push_back(Event::Terminate);
        self.note(|| "the daemon is told to end".to_owned());
    }
}
