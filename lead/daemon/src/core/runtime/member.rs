//! What the daemon knows of the worker of one member.

use std::collections::BTreeMap;
use std::time::Duration;

use teamd_shared::control::WorkerState;
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::member::Doing;
use teamd_shared::usage::OtherModels;

use super::gate::ConfirmedGate;
use super::ladder::Ladder;
use super::refusals::BranchRefusals;
use crate::core::watchdog::ResponseWatch;

/// What is known of the worker of a member.
#[derive(Debug, Default)]
pub(crate) struct MemberRuntime {
    pub(crate) incarnation: u32,
    pub(crate) link: WorkerLink,
    pub(crate) environment: Option<Environment>,
    /// When it was started again by the policy: by the wall clock, as its record has it, and since
    /// the daemon began.
    pub(super) restarts: Vec<(f64, Duration)>,
    /// Its last report.
    pub(crate) state: WorkerState,
    /// Its last report of other models than the recorded one.
    pub(crate) other_models: OtherModels,
    /// What came of the summaries of its conversation that were asked for.
    pub(crate) compacted: BTreeMap<RequestId, Result<(), String>>,
    /// Why it cannot begin or continue, by its own report. Its end follows.
    pub(crate) unable: Option<String>,
    /// Whether it has worked, and is idle since.
    pub(crate) became_idle: bool,
    /// Whether its inbox held mail that it had not read at its last report.
    pub(crate) has_unread: bool,
    /// Until when it may wait for its commands in the background; none: none runs.
    pub(crate) commands_until: Option<Duration>,
    /// The branches that could not be begun for it.
    pub(crate) refusals: BranchRefusals,
    /// Whether it has reported that it is ready.
    pub(crate) ready: bool,
    /// Whether it may take an inotify instance.
    pub(crate) watches: bool,
    pub(super) ladder: Ladder,
    pub(super) watch: ResponseWatch,
    /// The gate, as it has confirmed it.
    pub(crate) gate: ConfirmedGate,
    /// How old the incarnation was when this daemon took it over.
    pub(super) adopted_age: Duration,
}

/// The connection with a worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerLink {
    /// There is none.
    #[default]
    Closed,
    /// The worker was started with it, and has not greeted yet.
    Inherited,
    /// The worker has greeted, or has connected again.
    Open,
}

impl MemberRuntime {
    /// Tells whether there is a connection with its worker.
    pub(crate) fn is_connected(&self) -> bool {
        self.link != WorkerLink::Closed
    }

    /// Takes over what the next incarnation of a member needs of the one before.
    pub(super) fn next(&mut self, incarnation: u32) -> Self {
        let environment = self.environment.take();
        let restarts = std::mem::take(&mut self.restarts);
        Self {
            incarnation,
            environment,
            restarts,
            ..Self::default()
        }
    }

    /// Forgets what ends with the process. Its usage, and why it could not continue, are recorded
    /// with the end.
    pub(super) fn end(&mut self) {
        let state = WorkerState {
            usage: self.state.usage,
            ..WorkerState::default()
        };
        let unable = self.unable.take();
        let mut other_models = std::mem::take(&mut self.other_models);
        other_models.answers = None;
        *self = Self {
            state,
            other_models,
            unable,
            ..self.next(self.incarnation)
        };
    }

    /// Records a report of the worker.
    pub(super) fn report(&mut self, state: &WorkerState) {
        self.ready |= state.doing != Doing::Starting;
        // What it does without a connection is seen by what it has read meanwhile: it was told of
        // the refusal.
        let has_worked = state.doing == Doing::Working || state.read > self.state.read;
        self.refusals.is_current &= !has_worked;
        self.became_idle =
            state.doing == Doing::Idle && (self.became_idle || self.state.doing == Doing::Working);
        self.gate.confirm(state.applied_seq);
        self.state = state.clone();
    }
}
