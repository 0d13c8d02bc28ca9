//! What people do: commands with sense and without.

use teamd_shared::control::{Await, Command, ShutdownOrder, SpawnOrder};
use teamd_shared::id::RequestId;
use teamd_shared::journal::RejectedLine;
use teamd_shared::member::Restart;
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use super::machine::environment;
use super::world::{NAMES, World};
use crate::daemon::event::{Client, Event, SpawnFacts};

impl World {
    /// Somebody runs a command.
    pub(super) fn client_step(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        let Some(name) = self.rng.pick(&NAMES).and_then(|name| Name::new(name).ok()) else { return };
        self.next_client += 1;
        let client = Client { connection: self.next_client, tag: 1 };
        let event = match self.rng.below(24) {
            0..=6 => self.order_spawn(client, &name),
            7..=10 => {
                let force_after = self.rng.pick(&[None, None, Some(0.0), Some(5.0), Some(30.0)]).flatten();
                let order = ShutdownOrder {
                    name,
                    reason: "asked by a person".to_owned(),
                    decide_within: 30.0,
                    force_after,
                };
                Event::Command(client, Command::Shutdown(order))
            }
            11..=16 => {
                let known: Vec<RequestId> = self.promises.fold.requests.keys().cloned().collect();
                let open = self.promises.fold.requests.values().filter(|request| request.is_pending());
                let open: Vec<RequestId> = open.map(|request| request.request_id.clone()).collect();
                let any = RequestId::from_bits(self.rng.below(256));
                let from = if self.rng.one_in(4) { known } else { open };
                let request_id = self.rng.pick(&from).unwrap_or(any);
                let (approve, feedback) = (!self.rng.one_in(3), "as you like".to_owned());
                Event::Command(client, Command::Answer { request_id, approve, feedback })
            }
            17 | 18 => {
                let content = "what will you do?".to_owned();
                Event::Command(client, Command::RequestPlan { name, content })
            }
            19 => Event::Command(client, Command::Interrupt { name }),
            20 | 21 => Event::Command(client, Command::Forget { name }),
            22 if self.rng.one_in(2) => {
                let force = self.rng.one_in(3);
                Event::Command(client, Command::Stop { force })
            }
            22 => {
                let (incarnation, what) = (1 + self.rng.below(3), Await::Ready);
                Event::Command(client, Command::Await { name, incarnation, what })
            }
            _ => {
                let offset = u64::from(self.next_pid);
                let bad = RejectedLine { offset, reason: "no JSON".to_owned(), line: "{".to_owned() };
                Event::Unreadable { position: Position { offset, tail: 0 }, rejected: vec![bad] }
            }
        };
        self.note(|| format!("client {}: {event:?}", client.connection));
        if let Some(daemon) = &mut self.daemon {
            daemon.commands.push_back(event);
        }
    }

    fn order_spawn(&mut self, client: Client, name: &Name) -> Event {
        let before = self.promises.fold.members.get(name);
        let resume = before.is_some() && self.rng.one_in(2);
        let order = SpawnOrder {
            name: name.clone(),
            role: None,
            prompt: (!resume).then(|| "begin".to_owned()),
            model: self.rng.one_in(12).then(|| "nonsense".to_owned()),
            workspace: None,
            plan: self.rng.one_in(2),
            approve_by: None,
            restart: self.rng.one_in(4).then_some(Restart::Never),
            resume,
            environment: environment(u32::try_from(client.connection).unwrap()),
        };
        let facts = SpawnFacts { held: None, default_workspace: "/home/u/web".to_owned() };
        Event::Spawn(client, Box::new(order), facts)
    }

    /// SIGTERM, or Ctrl-C.
    pub(super) fn signal_daemon(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        daemon.commands.push_back(Event::Terminate);
        self.note(|| "the daemon is told to end".to_owned());
    }
}
