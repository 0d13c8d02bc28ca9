//! What only this run of the daemon knows: connections, what workers said, deadlines. Pure.
//!
//! Nothing in here is worth a journal line: after a restart everything is said again.

use std::collections::BTreeMap;
use std::time::Duration;

use teamd_shared::control::WorkerState;
use teamd_shared::environment::Environment;
use teamd_shared::journal::Team;
use teamd_shared::member::{Doing, Member};
use teamd_shared::name::Name;
use teamd_shared::request::Payload;
use teamd_shared::transcript::Usage;

use super::event::{Event, Life, Now};

/// How many workers take an inotify instance of their own; the others are rung. Linux grants 128 to a user,
/// who needs some for other programs (`inotify(7)`, `max_user_instances`).
const WATCHERS: usize = 32;

/// Longer than any deadline, and still a time that can be added to another one.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 4);

/// The volatile state.
#[derive(Debug, Default)]
pub(crate) struct Live {
    members: BTreeMap<Name, Alive>,
    /// How often the daemon was told by a signal to end.
    pub(crate) terminations: u32,
    /// The time of the last event, seconds since 1970; 0 before the first.
    pub(crate) wall: f64,
}

/// What is known of a live worker.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    pub(crate) incarnation: u32,
    pub(crate) connected: bool,
    pub(crate) environment: Option<Environment>,
    pub(crate) said: WorkerState,
    /// Whether it has said that it is ready.
    pub(crate) ready: bool,
    /// Whether it may take an inotify instance.
    pub(crate) watches: bool,
    deadlines: Deadlines,
}

/// The steps of the termination ladder that are due some time, since the daemon began.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Deadlines {
    /// `--force`: then signals end it.
    forced: Option<Duration>,
    /// It was let go: then it counts as overdue.
    overdue: Option<Duration>,
    /// SIGTERM was sent: then SIGKILL follows.
    kill: Option<Duration>,
}

/// A step of the termination ladder that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Force,
    Overdue,
    Kill,
}

impl Live {
    /// Takes in what an event says, before anything is decided on it.
    pub(crate) fn observe(&mut self, team: &Team, event: &Event) {
        match event {
            Event::Spawn(_, order, _) => {
                // A spawn that is refused must not change the environment of a life that goes on.
                let ended =
                    |name: &Name| team.members.get(name).is_none_or(|state| state.record.phase.is_ended());
                if let Some(name) = Some(order.name.clone()).filter(ended) {
                    self.members.entry(name).or_default().environment = Some(order.environment.clone());
                }
            }
            Event::Connected { life, environment, state } if is_present(team, life) => {
                let alive = self.enter(life);
                alive.connected = true;
                if let Some(environment) = environment {
                    alive.environment = Some(environment.clone());
                }
                alive.take(state);
            }
            Event::Said { life, state } => {
                if let Some(alive) = self.of_mut(life) {
                    alive.take(state);
                }
            }
            Event::Disconnected { life } => {
                if let Some(alive) = self.of_mut(life) {
                    alive.connected = false;
                }
            }
            // One that could not be journaled at once may be another life's by now.
            Event::Started { life, process: Ok(_) } if is_present(team, life) => {
                let watchers = self.members.values().filter(|alive| alive.watches).count();
                let alive = self.enter(life);
                alive.watches = watchers < WATCHERS;
                alive.connected = true;
            }
            Event::Ended { life, .. } => {
                if let Some(alive) = self.of_mut(life) {
                    let (incarnation, environment) = (alive.incarnation, alive.environment.take());
                    // It is recorded with the end.
                    let said = WorkerState { usage: alive.said.usage, ..WorkerState::default() };
                    *alive = Alive { incarnation, environment, said, ..Alive::default() };
                }
            }
            Event::Terminate => self.terminations += 1,
            _ => {}
        }
    }

    /// Takes over what the worker of a life last said to the daemon before, until it says it again.
    pub(crate) fn recall(&mut self, life: &Life, doing: Doing, usage: Usage) {
        let said = &mut self.enter(life).said;
        (said.doing, said.usage) = (doing, usage);
    }

    /// Returns what the conversation of a member has cost: as its worker last said, else as it was when the life before
    /// ended.
    pub(crate) fn usage(&self, member: &Member) -> Usage {
        let life = Life { name: member.name.clone(), incarnation: member.incarnation };
        let said = self.of(&life).map(|alive| alive.said.usage).filter(|usage| !usage.is_nothing());
        let goes_on = member.phase.is_ended() || member.conversation != member.incarnation;
        let before = || member.exit.as_ref().filter(|_| goes_on).map(|exit| exit.usage);
        said.or_else(before).unwrap_or_default()
    }

    /// Returns what is known of a life; none if another one has taken its place.
    pub(crate) fn of(&self, life: &Life) -> Option<&Alive> {
        self.members.get(&life.name).filter(|alive| alive.incarnation == life.incarnation)
    }

    fn of_mut(&mut self, life: &Life) -> Option<&mut Alive> {
        self.members.get_mut(&life.name).filter(|alive| alive.incarnation == life.incarnation)
    }

    /// Returns what is known of a member, whichever life it is.
    pub(crate) fn member(&self, name: &Name) -> Option<&Alive> {
        self.members.get(name)
    }

    fn enter(&mut self, life: &Life) -> &mut Alive {
        let alive = self.members.entry(life.name.clone()).or_default();
        if alive.incarnation != life.incarnation {
            let environment = alive.environment.take();
            *alive = Alive { incarnation: life.incarnation, environment, ..Alive::default() };
        }
        alive
    }

    /// Sets or clears the deadlines of a member, as the state of the team wants them now.
    pub(crate) fn arm(&mut self, team: &Team, name: &Name, now: Now, grace: Duration) {
        let member = team.members.get(name).map(|state| &state.record);
        let Some(member) = member.filter(|member| !member.phase.is_ended()) else {
            // With it goes its environment.
            self.members.remove(name);
            return;
        };
        let alive = self.enter(&Life { name: name.clone(), incarnation: member.incarnation });
        let deadlines = &mut alive.deadlines;
        if member.ending.is_some() {
            deadlines.kill.get_or_insert(now.monotonic + grace);
            (deadlines.forced, deadlines.overdue) = (None, None);
        } else if let Some(request) = team.shutdown_of(name) {
            if team.let_go(name).is_some() {
                deadlines.overdue.get_or_insert(now.monotonic + grace);
            }
            if let Payload::Shutdown { force_after: Some(seconds), .. } = request.payload {
                let due = Duration::try_from_secs_f64(seconds).map_or(FOREVER, |due| due.min(FOREVER));
                let due = now.monotonic + due;
                deadlines.forced = Some(deadlines.forced.map_or(due, |before| before.min(due)));
            }
        }
    }

    /// Returns when the next step is due, since the daemon began.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.members.values().filter_map(|alive| alive.deadlines.next()).min()
    }

    /// Returns the steps that are due, and takes them out.
    pub(crate) fn due(&self, now: Now) -> Vec<(Life, Due)> {
        let due = |alive: &Alive| {
            let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now.monotonic);
            let deadlines = alive.deadlines;
            match () {
                () if is_due(deadlines.kill) => Some(Due::Kill),
                () if is_due(deadlines.forced) => Some(Due::Force),
                () if is_due(deadlines.overdue) => Some(Due::Overdue),
                () => None,
            }
        };
        let life = |name: &Name, alive: &Alive| Life { name: name.clone(), incarnation: alive.incarnation };
        self.members.iter().filter_map(|(name, alive)| Some((life(name, alive), due(alive)?))).collect()
    }

    /// Puts off what is due: it could not be journaled.
    pub(crate) fn postpone(&mut self, until: Duration) {
        for alive in self.members.values_mut() {
            let deadlines = &mut alive.deadlines;
            for at in
                [&mut deadlines.forced, &mut deadlines.overdue, &mut deadlines.kill].into_iter().flatten()
            {
                *at = (*at).max(until);
            }
        }
    }

    /// Says that SIGKILL was sent: nothing more is due for this life but its end.
    pub(crate) fn killed(&mut self, life: &Life) {
        if let Some(alive) = self.of_mut(life) {
            alive.deadlines = Deadlines { kill: Some(Duration::MAX), ..Deadlines::default() };
        }
    }
}

fn is_present(team: &Team, life: &Life) -> bool {
    team.members.get(&life.name).is_some_and(|state| state.record.incarnation == life.incarnation)
}

impl Alive {
    fn take(&mut self, state: &WorkerState) {
        self.ready |= state.doing != Doing::Starting;
        self.said = state.clone();
    }
}

impl Deadlines {
    fn next(self) -> Option<Duration> {
        [self.forced, self.overdue, self.kill].into_iter().flatten().min().filter(|&at| at != Duration::MAX)
    }
}
