//! What only this run of the daemon knows: connections, what workers said, deadlines. Pure.
//!
//! Nothing in here needs a journal line: after a restart the workers report everything again.

use std::collections::BTreeMap;
use std::time::Duration;

use teamd_shared::control::{Command, TaskOrder, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::job::JobReport;
use teamd_shared::journal::Team;
use teamd_shared::member::{Doing, Ending, Member, Phase, RestartLimit};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload};
use teamd_shared::task::TaskId;
use teamd_shared::transcript::Usage;

use crate::core::event::{Actor, Event, Incarnation, Now, ReplyTo};
use crate::core::job::{Jobs, Then};
use crate::core::watchdog::{LookResult, Should, Watch};

/// How many workers take an inotify instance of their own; the daemon wakes the others. Linux
/// grants 128 to a user, and other programs need some (`inotify(7)`, `max_user_instances`).
const WATCHERS: usize = 32;

/// Longer than any deadline, and still a time that can be added to another one.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 4);

/// How many characters of a reason are kept that a worker gives.
const MOST_OF_A_REASON: usize = 500;

/// The settings that decisions rest on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Between the steps of the termination ladder.
    pub(crate) grace: Duration,
    /// How long a permission question waits for its answer.
    pub(crate) permission_timeout: Duration,
    /// How often a crashed teammate is started again.
    pub(crate) restart: RestartLimit,
    /// How long a worker that should answer may be silent; none: no worker is asked.
    pub(crate) watchdog: Option<Duration>,
    /// How many lines of the journal stand between two snapshots at least.
    pub(crate) snapshot_lines: u64,
}

/// The volatile state.
#[derive(Debug, Default)]
pub(crate) struct Live {
    members: BTreeMap<Name, Alive>,
    pub(crate) jobs: Jobs,
    /// How often in a row the check of a task, or its integration, could not be run.
    fruitless_checks: BTreeMap<TaskId, u32>,
    /// How often the daemon was told by a signal to end.
    pub(crate) terminations: u32,
}

/// What is known of a live worker.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    pub(crate) incarnation: u32,
    pub(crate) connected: bool,
    /// Whether it was started, and has not greeted yet.
    pub(crate) is_awaited: bool,
    pub(crate) environment: Option<Environment>,
    /// When it was started again by the policy: by the wall clock, as its record has it, and since
    /// the daemon began.
    restarts: Vec<(f64, Duration)>,
    pub(crate) said: WorkerState,
    /// Why it cannot begin or go on, as it has said. Its end follows.
    pub(crate) unable: Option<String>,
    /// Whether it has worked, and is idle since.
    pub(crate) became_idle: bool,
    /// Whether its inbox held mail that it had not read when it said something last.
    pub(crate) has_unread: bool,
    /// How often in a row no branch could be begun.
    pub(crate) refusals: u32,
    /// Whether that was so when it was idle last: it is offered nothing before it has worked again.
    pub(crate) is_refused: bool,
    /// Why, the last time.
    pub(crate) refusal: String,
    /// Whether it has said that it is ready.
    pub(crate) ready: bool,
    /// Whether it may take an inotify instance.
    pub(crate) watches: bool,
    deadlines: Deadlines,
    /// Whether its end is only waited for, since SIGKILL was sent or its process has ended: no step
    /// of the ladder is due.
    is_ending: bool,
    watch: Watch,
    /// How old the incarnation was when this daemon took it over.
    adopted_age: Duration,
}

/// The steps that are due some time, since the daemon began: those of the termination ladder, and
/// of a question.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Deadlines {
    /// `--force`: then signals end it.
    forced: Option<Duration>,
    /// It was released: then it counts as overdue.
    overdue: Option<Duration>,
    /// SIGTERM was sent: then SIGKILL follows.
    kill: Option<Duration>,
    /// Its time limit.
    limit: Option<Duration>,
    /// It has asked for a permission: then that is refused.
    permission: Option<Duration>,
}

/// A step that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// SIGTERM, for this reason.
    Terminate(Ending),
    /// SIGKILL.
    Kill,
    /// Its permission question is refused.
    Refuse,
}

impl Live {
    /// Takes in what an event says, before anything is decided on it.
    pub(crate) fn observe(&mut self, team: &Team, event: &Event) {
        match event {
            Event::Connected {
                incarnation,
                environment,
                state,
            } if is_present(team, incarnation) => {
                let alive = self.enter(incarnation);
                alive.connected = true;
                alive.watch.connected();
                if let Some(environment) = environment
                    && !mutant::is_on("environment-dropped")
                {
                    alive.environment = Some(environment.clone());
                }
                alive.take(state);
            }
            Event::Greeted { incarnation } => {
                if let Some(alive) = self.of_mut(incarnation) {
                    alive.is_awaited = false;
                }
            }
            Event::Said { incarnation, state } => {
                if let Some(alive) = self.of_mut(incarnation) {
                    alive.take(state);
                    alive.watch.heard();
                }
            }
            Event::Pong {
                incarnation,
                number,
            } => {
                if let Some(alive) = self.of_mut(incarnation) {
                    alive.watch.pong(*number);
                }
            }
            Event::Unable { incarnation, why } => {
                if let Some(alive) = self.of_mut(incarnation) {
                    alive.unable = Some(first_line(why));
                }
            }
            Event::Disconnected { incarnation } => {
                if let Some(alive) = self.of_mut(incarnation) {
                    alive.connected = false;
                }
            }
            // If it could not be journaled at once, the member may have another incarnation by now.
            Event::Started {
                incarnation,
                process: Ok(_),
                ..
            } if is_present(team, incarnation) => {
                let watchers = self.members.values().filter(|alive| alive.watches).count();
                let alive = self.enter(incarnation);
                alive.watches = watchers < WATCHERS;
                alive.connected = true;
                alive.is_awaited = true;
                alive.watch.connected();
            }
            Event::Ended { incarnation, .. } => {
                if let Some(alive) = self.of_mut(incarnation) {
                    // The usage is recorded with the end, and why it could not go on.
                    let said = WorkerState {
                        usage: alive.said.usage,
                        ..WorkerState::default()
                    };
                    let unable = alive.unable.take();
                    *alive = Alive {
                        said,
                        unable,
                        ..alive.next(alive.incarnation)
                    };
                }
            }
            Event::Command(_, by, command) if changes_tasks(by, command) => self.forget_refusals(),
            Event::Terminate => self.terminations += 1,
            _ => {}
        }
    }

    /// Takes in that a job has ended, after what follows from it is journaled. What cannot be
    /// journaled is decided again, and counts once.
    pub(crate) fn job_ended(&mut self, job: u64, ended: &Result<JobReport, String>) {
        let Some(then) = self.jobs.end(job) else {
            return;
        };
        let why = match ended {
            Ok(JobReport::Refused(refusal)) => Some(&refusal.message),
            Ok(_) => None,
            Err(why) => Some(why),
        };
        match then {
            Then::Check { task, .. } | Then::Integrate { task, .. } => {
                self.check_ended(task, why.is_none());
            }
            Then::Offer { incarnation, .. } => {
                if let Some(alive) = self.of_mut(&incarnation) {
                    alive.is_refused = why.is_some();
                    alive.refusals = why.map_or(0, |_| alive.refusals + 1);
                    alive.refusal = why.cloned().unwrap_or_default();
                }
            }
            Then::Command(asked) if changes_tasks(&asked.by, &asked.command) => {
                self.forget_refusals();
            }
            _ => {}
        }
    }

    fn forget_refusals(&mut self) {
        for alive in self.members.values_mut() {
            alive.is_refused = false;
            alive.refusals = 0;
        }
    }

    fn check_ended(&mut self, task: TaskId, was_run: bool) {
        if was_run {
            self.fruitless_checks.remove(&task);
        } else {
            *self.fruitless_checks.entry(task).or_default() += 1;
        }
    }

    /// Returns how often in a row the check of a task, or its integration, could not be run.
    pub(crate) fn fruitless_checks(&self, task: TaskId) -> u32 {
        self.fruitless_checks
            .get(&task)
            .copied()
            .unwrap_or_default()
    }

    /// Notes whether a worker relies on the daemon to wake it for its mail. Returns true if it does
    /// so from now on: the daemon then wakes it for what came before.
    pub(crate) fn needs_waking(&mut self, incarnation: &Incarnation, wants: bool) -> bool {
        let said = self
            .of_mut(incarnation)
            .map(|alive| &mut alive.said.needs_waking);
        said.is_some_and(|said| !std::mem::replace(said, wants) && wants)
    }

    /// Takes in whether the inbox of a worker holds mail that it has not read, as far as it has
    /// said.
    pub(crate) fn note_unread(&mut self, incarnation: &Incarnation, has_unread: bool) {
        if let Some(alive) = self.of_mut(incarnation) {
            alive.has_unread = has_unread;
        }
    }

    /// Takes in the environment of an incarnation whose spawn is journaled now. Before that, the
    /// order could still be refused.
    pub(crate) fn ordered(&mut self, incarnation: &Incarnation, environment: Environment) {
        self.enter(incarnation).environment = Some(environment);
    }

    /// Takes in a restart that is journaled now, by the monotonic clock too: a wall clock that
    /// jumps removes no restart.
    pub(crate) fn restarted(&mut self, member: &Member, now: Now) {
        let alive = self.enter(&Incarnation::of(member));
        alive
            .restarts
            .retain(|(at, _)| member.restarts.contains(at));
        alive
            .restarts
            .extend(member.restarts.last().map(|&at| (at, now.monotonic)));
    }

    /// Returns when the restart with this time of day happened, since the daemon began; none if an
    /// earlier daemon did it.
    pub(crate) fn restarted_at(&self, name: &Name, wall: f64) -> Option<Duration> {
        let restarts = &self.members.get(name)?.restarts;
        restarts
            .iter()
            .rfind(|(at, _)| *at == wall)
            .map(|(_, at)| *at)
    }

    /// Takes over what a worker last reported to an earlier daemon, until it reports again.
    pub(crate) fn recall(&mut self, incarnation: &Incarnation, doing: Doing, usage: Usage) {
        let said = &mut self.enter(incarnation).said;
        said.doing = doing;
        said.usage = usage;
    }

    /// Takes over the age of an incarnation that an earlier daemon started.
    pub(crate) fn aged(&mut self, incarnation: &Incarnation, age: Duration) {
        self.enter(incarnation).adopted_age = age;
    }

    /// Takes in that mail has come for an incarnation: its worker should react.
    pub(crate) fn mail_arrived(
        &mut self,
        team: &Team,
        incarnation: &Incarnation,
        now: Now,
        rules: Rules,
    ) {
        if let Some(alive) = self.of_mut(incarnation).filter(|alive| alive.ready) {
            alive.watch.mail_arrived();
            alive.arm_watch(team, &incarnation.name, now, rules);
        }
    }

    /// Looks at the workers that should answer, as far as that is due.
    pub(crate) fn look(
        &mut self,
        team: &Team,
        now: Now,
        rules: Rules,
    ) -> Vec<(Incarnation, LookResult)> {
        let Some(patience) = rules.watchdog else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, alive) in &mut self.members {
            if alive.watch.next().is_none_or(|next| next > now.monotonic) {
                continue;
            }
            let should = should_answer(team, name, alive);
            if let Some(finding) = alive
                .watch
                .look(should, (now.monotonic, now.wall), patience)
            {
                found.push((
                    Incarnation {
                        name: name.clone(),
                        number: alive.incarnation,
                    },
                    finding,
                ));
            }
        }
        found
    }

    /// Returns the usage of a member's conversation: as its worker last said, else as it was when
    /// the incarnation before ended.
    pub(crate) fn usage(&self, member: &Member) -> Usage {
        let incarnation = Incarnation::of(member);
        let said = self
            .of(&incarnation)
            .map(|alive| alive.said.usage)
            .filter(|usage| !usage.is_nothing());
        let goes_on = member.phase.is_ended() || member.conversation != member.incarnation;
        said.or_else(|| {
            if goes_on {
                member.exit.as_ref().map(|exit| exit.usage)
            } else {
                None
            }
        })
        .unwrap_or_default()
    }

    /// Returns what is known of an incarnation; none if another one has taken its place.
    pub(crate) fn of(&self, incarnation: &Incarnation) -> Option<&Alive> {
        self.members
            .get(&incarnation.name)
            .filter(|alive| alive.incarnation == incarnation.number)
    }

    fn of_mut(&mut self, incarnation: &Incarnation) -> Option<&mut Alive> {
        self.members
            .get_mut(&incarnation.name)
            .filter(|alive| alive.incarnation == incarnation.number)
    }

    /// Returns what is known of a member, whichever incarnation it is.
    pub(crate) fn member(&self, name: &Name) -> Option<&Alive> {
        self.members.get(name)
    }

    /// Returns the command that an event is, or the outcome of: it must be answered.
    pub(crate) fn client(&self, event: &Event) -> Option<ReplyTo> {
        if let Event::JobEnded { job, .. } = event {
            self.jobs.then(*job)?.client()
        } else {
            event.client()
        }
    }

    fn enter(&mut self, incarnation: &Incarnation) -> &mut Alive {
        let alive = self.members.entry(incarnation.name.clone()).or_default();
        if alive.incarnation != incarnation.number {
            *alive = alive.next(incarnation.number);
        }
        alive
    }

    /// Sets or clears the deadlines of a member, as the state of the team wants them now.
    pub(crate) fn arm(&mut self, team: &Team, name: &Name, now: Now, rules: Rules) {
        let grace = rules.grace;
        let member = team.members.get(name).map(|state| &state.record);
        let Some(member) = member.filter(|member| !member.phase.is_ended()) else {
            // Its environment is forgotten with it.
            self.members.remove(name);
            return;
        };
        let alive = self.enter(&Incarnation::of(member));
        alive.arm_watch(team, name, now, rules);
        if alive.is_ending {
            alive.deadlines = Deadlines::default();
            return;
        }
        let deadlines = &mut alive.deadlines;
        let most = if member.phase == Phase::Running {
            member.terms.bounds.max_time
        } else {
            None
        };
        if member.ending.is_none()
            && team.release(name).is_none()
            && let Some(most) = most
        {
            let left = Duration::from_secs(most)
                .min(FOREVER)
                .saturating_sub(alive.adopted_age);
            deadlines.limit.get_or_insert(now.monotonic + left);
        } else {
            deadlines.limit = None;
        }
        if team.pending(name, Kind::Permission).is_some() {
            deadlines
                .permission
                .get_or_insert(now.monotonic + rules.permission_timeout);
        } else {
            deadlines.permission = None;
        }
        if member.ending.is_some() {
            deadlines.kill.get_or_insert(now.monotonic + grace);
            deadlines.forced = None;
            deadlines.overdue = None;
        } else if let Some(request) = team.shutdown_of(name) {
            if team.release(name).is_some() {
                deadlines.overdue.get_or_insert(now.monotonic + grace);
            }
            if let Payload::Shutdown {
                force_after: Some(seconds),
                ..
            } = request.payload
            {
                let due =
                    Duration::try_from_secs_f64(seconds).map_or(FOREVER, |due| due.min(FOREVER));
                let due = now.monotonic + due;
                deadlines.forced = Some(deadlines.forced.map_or(due, |before| before.min(due)));
            }
        }
    }

    /// Returns when the next step is due, since the daemon began.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.members
            .values()
            .filter_map(|alive| {
                alive
                    .deadlines
                    .steps()
                    .map(|(at, _)| at)
                    .chain(alive.watch.next())
                    .min()
            })
            .min()
    }

    /// Returns the steps that are due.
    pub(crate) fn due(&self, now: Now) -> Vec<(Incarnation, Due)> {
        self.members
            .iter()
            .filter_map(|(name, alive)| {
                let (_, due) = alive
                    .deadlines
                    .steps()
                    .find(|(at, _)| *at <= now.monotonic)?;
                Some((
                    Incarnation {
                        name: name.clone(),
                        number: alive.incarnation,
                    },
                    due,
                ))
            })
            .collect()
    }

    /// Takes in that the process of an incarnation has ended: no step of the ladder is due any
    /// more, however long the processes that it started take to end.
    pub(crate) fn process_exited(&mut self, incarnation: &Incarnation) {
        self.enter(incarnation);
        self.killed(incarnation);
    }

    /// Takes in that SIGKILL was sent: only the end of this incarnation is awaited now.
    pub(crate) fn killed(&mut self, incarnation: &Incarnation) {
        if let Some(alive) = self.of_mut(incarnation) {
            alive.is_ending = true;
            alive.deadlines = Deadlines::default();
        }
    }
}

/// Tells whether a person or the lead says something about tasks that may change why a branch could
/// not be begun.
fn changes_tasks(by: &Actor, command: &Command) -> bool {
    let changes = matches!(command, Command::Task(order) if !matches!(order, TaskOrder::List(_)));
    changes && !by.is_teammate()
}

/// Returns what a status has room for: the journal keeps it.
fn first_line(why: &str) -> String {
    why.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(MOST_OF_A_REASON)
        .collect()
}

fn is_present(team: &Team, incarnation: &Incarnation) -> bool {
    team.members
        .get(&incarnation.name)
        .is_some_and(|state| state.record.incarnation == incarnation.number)
}

/// Tells whether a worker should answer now: it is at work, or something was said to it that it has
/// not reacted to.
fn should_answer(team: &Team, name: &Name, alive: &Alive) -> Should {
    let Some(state) = team.members.get(name) else {
        return Should::Rest;
    };
    let member = &state.record;
    if member.phase != Phase::Running || member.incarnation != alive.incarnation {
        return Should::Rest;
    }
    // Signals end it anyway, and a released worker says nothing more.
    if member.ending.is_some() || team.release(name).is_some() {
        return Should::Rest;
    }
    if !alive.connected {
        return Should::Connect;
    }
    let reacts = alive.said.doing == Doing::Working
        || alive.said.applied_seq < state.seq
        || alive.watch.has_mail()
        || member.silent_since.is_some()
        || !alive.watch.silence().is_zero();
    if alive.ready && reacts {
        Should::Answer
    } else {
        Should::Rest
    }
}

impl Alive {
    /// Takes over what the next incarnation of a member needs of the one before.
    fn next(&mut self, incarnation: u32) -> Self {
        let environment = self.environment.take();
        let restarts = std::mem::take(&mut self.restarts);
        Self {
            incarnation,
            environment,
            restarts,
            ..Self::default()
        }
    }

    /// Returns how long it has been silent although it should answer, as far as that is counted.
    pub(crate) fn silence(&self) -> Duration {
        self.watch.silence()
    }

    /// Tells whether it was asked on its present connection, and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.connected && self.watch.is_open()
    }

    /// Returns when that silence began, in seconds since 1970.
    pub(crate) fn silent_since(&self) -> f64 {
        self.watch.since()
    }

    /// Tells whether a time is set at which signals end it.
    pub(crate) fn will_be_forced(&self) -> bool {
        self.deadlines.forced.is_some()
    }

    fn arm_watch(&mut self, team: &Team, name: &Name, now: Now, rules: Rules) {
        let Some(patience) = rules.watchdog else {
            return;
        };
        let should = should_answer(team, name, self);
        self.watch.arm(should, now.monotonic, patience);
    }

    fn take(&mut self, state: &WorkerState) {
        self.ready |= state.doing != Doing::Starting;
        self.is_refused &= state.doing != Doing::Working;
        self.became_idle =
            state.doing == Doing::Idle && (self.became_idle || self.said.doing == Doing::Working);
        self.said = state.clone();
    }
}

impl Deadlines {
    /// Returns when each step is due, the one that counts most first.
    fn steps(self) -> impl Iterator<Item = (Duration, Due)> {
        let steps = [
            (self.kill, Due::Kill),
            (self.forced, Due::Terminate(Ending::Force)),
            (self.overdue, Due::Terminate(Ending::Overdue)),
            (self.limit, Due::Terminate(Ending::Limit)),
            (self.permission, Due::Refuse),
        ];
        steps.into_iter().filter_map(|(at, due)| Some((at?, due)))
    }
}

#[cfg(test)]
mod tests {
    use teamd_shared::fingerprint::Baseline;

    use super::*;
    use crate::core::job::Asked;

    #[test]
    fn a_worker_that_hears_of_its_mail_no_more_is_rung_once_for_what_came_before() {
        let mut live = Live::default();
        let incarnation = Incarnation {
            name: Name::new("alice").unwrap(),
            number: 1,
        };
        assert!(!live.needs_waking(&incarnation, true), "it is not known");
        live.recall(&incarnation, Doing::Idle, Usage::default());
        let told =
            [false, true, true, false, true].map(|wants| live.needs_waking(&incarnation, wants));
        assert_eq!(told, [false, true, false, false, true]);
        let next = Incarnation {
            number: 2,
            ..incarnation
        };
        assert!(!live.needs_waking(&next, true), "another incarnation");
    }

    #[test]
    fn a_teammate_is_offered_work_again_when_a_person_has_changed_a_task() {
        let mut live = Live::default();
        let name = Name::new("alice").unwrap();
        let alice = Incarnation {
            name: name.clone(),
            number: 1,
        };
        live.recall(&alice, Doing::Idle, Usage::default());
        let client = ReplyTo {
            connection: 1,
            tag: 1,
            agent: false,
        };
        let retry = || Command::Task(TaskOrder::Retry(1, Box::default()));
        let member = Actor::Member(name.clone());
        for (by, needs_job, is_freed) in [
            (Actor::Person, false, true),
            (Actor::Person, true, true),
            (member, true, false),
        ] {
            let offer = Then::Offer {
                incarnation: alice.clone(),
                task: 1,
            };
            let job = live.jobs.begin(offer).unwrap();
            let ended = Err("no branch".to_owned());
            live.job_ended(job, &ended);
            if needs_job {
                let asked = Asked {
                    client,
                    by,
                    incarnation: 1,
                    author: None,
                    command: retry(),
                };
                let job = live.jobs.begin(Then::Command(Box::new(asked))).unwrap();
                let looked = JobReport::Protected(Baseline::Unknown("x".to_owned()));
                live.job_ended(job, &Ok(looked));
            } else {
                let event = Event::Command(client, by, retry());
                live.observe(&Team::default(), &event);
            }
            let member = live.member(&name).unwrap();
            assert_eq!(
                (!member.is_refused, member.refusals == 0),
                (is_freed, is_freed),
                "{needs_job}"
            );
        }
    }
}
