//! The workers of a host, as far as they are no files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use teamd_shared::control::ToWorker;
use teamd_shared::environment::Environment;
use teamd_shared::member::{Member, Restart};
use teamd_shared::process::How;

use super::state::Spawned;
use crate::core::incarnation::Incarnation;
use crate::io::connections::Connections;
use crate::io::input::Inputs;
use crate::io::reaper::{Beginning, ExitContext, Reaper};
use crate::io::resources::start_worker;
use crate::io::workers::{StartedWorker, Supervisor};

/// How many workers may take an inotify instance of their own, as at home.
const WATCHERS: usize = 32;

/// The processes, their connections, and what is known of each.
pub(super) struct Workers {
    pub(super) supervisor: Supervisor,
    pub(super) connections: Connections,
    /// Where connections report to.
    pub(super) inputs: Inputs,
    pub(super) reaper: Reaper,
    /// Those of which something is left.
    pub(super) live: BTreeMap<Incarnation, Live>,
}

/// What is known of an incarnation.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// For its welcome. An adopted one has its own.
    environment: Option<Environment>,
    pub(super) stage: Stage,
    /// Whether it may take an inotify instance.
    watches: bool,
    /// Whether it must be woken when its inbox grows.
    pub(super) needs_waking: bool,
    /// Whether it says that SIGTERM ends it.
    pub(super) left: bool,
    /// When it is killed, if home does not have it any more.
    pub(super) kill_at: Option<Instant>,
}

/// How far the connection of a worker is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Away,
    /// It was started, and has not greeted.
    Begins,
    /// It waits for its welcome.
    Greeted,
    /// It works.
    Welcomed,
}

impl Workers {
    /// Starts a process.
    pub(super) fn start(
        &mut self,
        member: &Member,
        environment: Environment,
    ) -> Result<StartedWorker, String> {
        let Self {
            supervisor,
            connections,
            inputs,
            ..
        } = self;
        let started = start_worker(supervisor, connections, inputs, member, &environment)?;
        let watching = self.live.values().filter(|live| live.watches).count();
        let live = Live {
            environment: Some(environment),
            stage: Stage::Begins,
            watches: watching < WATCHERS,
            ..Live::default()
        };
        self.live.insert(Incarnation::of(member), live);
        Ok(started)
    }

    /// Takes the environment for the welcome of a worker that waits for it, and whether it may
    /// watch its inbox itself. Once.
    pub(super) fn take_welcome(
        &mut self,
        incarnation: &Incarnation,
    ) -> Option<(Environment, bool)> {
        let live = self.live.get_mut(incarnation)?;
        if live.stage != Stage::Greeted {
            return None;
        }
        let environment = live.environment.take()?;
        live.stage = Stage::Welcomed;
        Some((environment, live.watches))
    }

    /// Says something to a worker, if it is connected.
    pub(super) fn say(&mut self, incarnation: &Incarnation, frame: ToWorker) {
        self.connections.say(incarnation, frame);
    }

    /// Records whether a worker relies on being woken. From when it does, it is woken for what came
    /// before.
    pub(super) fn needs_waking(&mut self, incarnation: &Incarnation, wants: bool) {
        let Some(live) = self.live.get_mut(incarnation) else {
            return;
        };
        let did_before = std::mem::replace(&mut live.needs_waking, wants);
        if wants && !did_before {
            self.say(incarnation, ToWorker::Wake);
        }
    }

    /// Has the workers connect again, which then say all that holds for them. Returns those that
    /// wait for their welcome, on the connection that they were born with.
    pub(super) fn begin_anew(&mut self) -> Vec<Incarnation> {
        let mut waiting = Vec::new();
        for (incarnation, live) in &mut self.live {
            match live.stage {
                Stage::Welcomed => {
                    live.stage = Stage::Away;
                    self.connections.forget(incarnation);
                }
                Stage::Greeted => waiting.push(incarnation.clone()),
                Stage::Away | Stage::Begins => {}
            }
        }
        waiting
    }

    /// Asks a process to end that home does not have any more, and kills it later.
    pub(super) fn end(&mut self, incarnation: &Incarnation, grace: Duration) {
        let Some(live) = self.live.get_mut(incarnation) else {
            return;
        };
        if live.kill_at.is_none() {
            live.kill_at = Some(Instant::now() + grace);
            self.supervisor.terminate(incarnation);
        }
    }

    /// Kills what should have ended by now.
    pub(super) fn kill_overdue(&mut self) {
        let now = Instant::now();
        for (incarnation, live) in &mut self.live {
            if live.kill_at.is_some_and(|at| at <= now) {
                // Once more if that comes to nothing.
                live.kill_at = Some(now + Duration::from_secs(1));
                self.supervisor.kill(incarnation);
            }
        }
    }

    /// Returns when the next one is killed.
    pub(super) fn next_kill(&self) -> Option<Instant> {
        self.live.values().filter_map(|live| live.kill_at).min()
    }

    /// Has the end of an incarnation reported once nothing of it is left.
    pub(super) fn wait_until_empty(&mut self, spawned: &Spawned, how: How) {
        let member = &spawned.member;
        let may_begin_again = member.terms.restart == Restart::OnFailure;
        let workspace = PathBuf::from(&member.terms.workspace);
        let context = ExitContext {
            how,
            beginning: Beginning::of(member, spawned.returned_up_to),
            next_works_in: may_begin_again.then_some(workspace),
        };
        self.reaper.process_exited(
            Incarnation::of(member),
            context,
            &mut self.connections,
            &mut self.supervisor,
        );
    }
}
