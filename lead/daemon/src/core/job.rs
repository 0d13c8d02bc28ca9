//! Jobs: what takes time, and what follows from it. Pure.
//!
//! A decision that needs one ends with [`Action::Begin`](super::event::Action::Begin), and
//! continues when its report comes ([`Then`]). The journal has nothing of that: a job ends with its
//! daemon, promises nothing, and can be done again. A command that waits for it is sent again to
//! the next daemon, which decides again what is needed.

use std::collections::BTreeMap;
use std::time::Duration;

use teamd_shared::checkout::CheckoutSettings;
use teamd_shared::control::{Command, SpawnOrder, TaskOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::job::JobOrder;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::sandbox::Layers;
use teamd_shared::task::TaskId;

use super::caller::{Actor, ReplyTo};
use super::incarnation::Incarnation;

/// A job, and what follows from its report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub(crate) order: JobOrder,
    pub(crate) then: Then,
}

/// What a job is for: the decision that continues with its report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Then {
    /// A command. That of a member counts as long as the incarnation is there that gave it.
    Command(Box<SuspendedCommand>),
    /// A spawn, whose facts are known.
    Spawn(ReplyTo, RequestId, Box<SpawnOrder>, SpawnFacts),
    /// Nothing: the spawn of this member was called off, and its job is ending.
    CalledOff(Name),
    /// The judgement of a submission.
    Check {
        task: TaskId,
        number: u32,
        /// The host that it runs on; none: home.
        host: Option<Name>,
    },
    /// The integration of checked work.
    Integrate { task: TaskId, number: u32 },
    /// The claim of a task for an idle teammate.
    Offer {
        incarnation: Incarnation,
        task: TaskId,
    },
    /// A notice, if what a teammate leaves of its work cannot be saved.
    Keep { name: Name },
}

/// What is looked up before a spawn is decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpawnFacts {
    /// Why no incarnation can begin now, if something holds the liveness lock.
    pub(crate) held: Option<String>,
    /// Where the inbox of the lead ends, if it is the lead agent that begins; or why that cannot be
    /// seen.
    pub(crate) lead_inbox: Result<Option<Position>, String>,
    /// Why no command could commit in the workspace, and what to do.
    pub(crate) cannot_commit: Option<(String, String)>,
}

/// A command that continues when its job has ended, and who gave it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SuspendedCommand {
    pub(crate) client: ReplyTo,
    pub(crate) by: Actor,
    /// The incarnation of the member that gave it; 0 for a person.
    pub(crate) incarnation: u32,
    /// The incarnation whose work the command submits, if it submits work.
    pub(crate) author: Option<Incarnation>,
    pub(crate) command: Command,
}

impl Then {
    /// Returns the command that waits for the job.
    pub(crate) fn client(&self) -> Option<ReplyTo> {
        match self {
            Self::Command(suspended) => Some(suspended.client),
            Self::Spawn(client, ..) => Some(*client),
            _ => None,
        }
    }

    /// Returns the member whose start the job prepares, also if that was called off.
    pub(crate) fn prepares(&self) -> Option<&Name> {
        match self {
            Self::Spawn(_, _, order, _) => Some(&order.name),
            Self::CalledOff(name) => Some(name),
            _ => None,
        }
    }

    /// Returns whose work is being kept, since it was submitted, and for which task.
    pub(crate) fn submission(&self) -> Option<(&Incarnation, TaskId)> {
        let Self::Command(suspended) = self else {
            return None;
        };
        match (&suspended.author, &suspended.command) {
            (Some(author), Command::Task(TaskOrder::Submit(task, _))) => Some((author, *task)),
            _ => None,
        }
    }

    /// Returns the member of which something else is shown once the job has ended.
    pub(crate) fn shows(&self) -> Option<&Name> {
        let author = self.submission().map(|(author, _)| &author.name);
        author.or_else(|| self.prepares())
    }

    /// Returns whose checkout gets the branch of which task.
    pub(crate) fn branch(&self) -> Option<(&Name, TaskId)> {
        match self {
            Self::Offer { incarnation, task } => Some((&incarnation.name, *task)),
            Self::Command(suspended) => match (&suspended.by, &suspended.command) {
                (Actor::Member(name), Command::Task(TaskOrder::Claim(Some(task)))) => {
                    Some((name, *task))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Where jobs work, and with which settings. They stay the same while the daemon runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobPlaces {
    /// Where work is done for which no other directory is named.
    pub(crate) workspace: String,
    /// Where the daemon keeps what is `git`'s of this team, hidden from tools.
    pub(crate) git: String,
    /// Where checkouts lie, if that is said.
    pub(crate) checkouts: Option<String>,
    /// Where they lie if nothing can be made beside the repository.
    pub(crate) otherwise: String,
    /// How they are prepared.
    pub(crate) settings: CheckoutSettings,
    /// The environment of the daemon, where none is known that fits better.
    pub(crate) environment: Environment,
    /// What confines commands here.
    pub(crate) layers: Layers,
}

/// The jobs that wait or run.
#[derive(Debug, Default)]
pub(crate) struct PendingJobs {
    begun: u64,
    under_way: BTreeMap<u64, Then>,
    /// The members that were asked to leave while nothing ran of them, and when, by the clock of
    /// [`SpawnOrder::asked_at`]. A spawn that was asked for earlier can come later: its first
    /// daemon has died.
    called_off: BTreeMap<Name, Duration>,
}

impl PendingJobs {
    /// Begins a job. Returns its number; none if the same submission is judged or
    /// integrated already, or a branch is being begun in the same checkout.
    pub(crate) fn begin(&mut self, then: Then) -> Option<u64> {
        let clashes = match &then {
            // Wherever it runs.
            Then::Check { task, number, .. } => self.under_way.values().any(|other| {
                matches!(other, Then::Check { task: checked, number: of, .. } if checked == task && of == number)
            }),
            Then::Integrate { .. } => self.under_way.values().any(|other| *other == then),
            _ => then
                .branch()
                .is_some_and(|(name, _)| self.branch(name).is_some()),
        };
        if clashes {
            return None;
        }
        self.begun += 1;
        self.under_way.insert(self.begun, then);
        Some(self.begun)
    }

    /// Returns what follows from a job; none if it counts for nothing.
    pub(crate) fn then(&self, job: u64) -> Option<&Then> {
        self.under_way.get(&job)
    }

    /// Ends a job, after what follows from it was decided. Returns what it was for.
    pub(crate) fn end(&mut self, job: u64) -> Option<Then> {
        self.under_way.remove(&job)
    }

    /// Drops the check of a task. Returns the jobs that can end.
    pub(crate) fn end_check(&mut self, task: TaskId) -> Vec<u64> {
        let is_its_check =
            |then: &Then| matches!(then, Then::Check { task: checked, .. } if *checked == task);
        let checks = self.under_way.iter();
        let ended: Vec<u64> = checks
            .filter(|(_, then)| is_its_check(then))
            .map(|(job, _)| *job)
            .collect();
        self.under_way.retain(|_, then| !is_its_check(then));
        ended
    }

    /// Returns how many checks wait or run on a host.
    pub(crate) fn checks_on(&self, host: &Name) -> usize {
        let is_there =
            |then: &&Then| matches!(then, Then::Check { host: Some(on), .. } if on == host);
        self.under_way.values().filter(is_there).count()
    }

    /// Tells whether a spawn was ordered before its member was asked to leave.
    pub(crate) fn is_called_off(&self, order: &SpawnOrder) -> bool {
        self.called_off
            .get(&order.name)
            .is_some_and(|at| order.asked_at < *at)
    }

    /// Calls the spawns of a member off that were asked for before now. Returns the jobs that
    /// prepare some, which can end, and who waits for each.
    pub(crate) fn call_off(&mut self, name: &Name, now: Duration) -> Vec<(u64, ReplyTo)> {
        self.called_off.insert(name.clone(), now);
        let mut ended = Vec::new();
        for (job, then) in &mut self.under_way {
            if let Then::Spawn(client, _, order, _) = then
                && order.name == *name
            {
                ended.push((*job, *client));
                *then = Then::CalledOff(name.clone());
            }
        }
        ended
    }

    /// Tells whether the checkout is being made with which a member starts.
    pub(crate) fn spawns(&self, name: &Name) -> bool {
        self.spawning().any(|spawning| spawning == name)
    }

    /// Returns the members whose checkouts are being made, with which they start.
    pub(crate) fn spawning(&self) -> impl Iterator<Item = &Name> {
        self.under_way.values().filter_map(|then| match then {
            Then::Spawn(_, _, order, _) => Some(&order.name),
            _ => None,
        })
    }

    /// Tells whether the checkout of a member is being removed, so that it can be forgotten.
    pub(crate) fn forgets(&self, name: &Name) -> bool {
        self.under_way.values().any(|then| match then {
            Then::Command(suspended) => {
                matches!(&suspended.command, Command::Forget { name: forgotten, .. } if forgotten == name)
            }
            _ => false,
        })
    }

    /// Tells whether something is left of a job whose spawn of this member was called off.
    pub(crate) fn is_ending(&self, name: &Name) -> bool {
        self.under_way
            .values()
            .any(|then| matches!(then, Then::CalledOff(of) if of == name))
    }

    /// Returns the task that an incarnation has submitted, while its work is being kept.
    pub(crate) fn submits(&self, author: &Incarnation) -> Option<TaskId> {
        let mut submissions = self.under_way.values().filter_map(Then::submission);
        let submission = submissions.find(|(of, _)| *of == author);
        submission.map(|(_, task)| task)
    }

    /// Returns the task whose branch is being begun in the checkout of a member.
    pub(crate) fn branch(&self, name: &Name) -> Option<TaskId> {
        let mut branches = self.branches();
        branches.find(|(of, _)| *of == name).map(|(_, task)| task)
    }

    /// Returns in whose checkout the branch of which task is being begun.
    pub(crate) fn branches(&self) -> impl Iterator<Item = (&Name, TaskId)> {
        self.under_way.values().filter_map(Then::branch)
    }
}
