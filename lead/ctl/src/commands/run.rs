//! `teamctl run`: a team works unattended until nothing is left to do, and the exit code says what
//! came of it.
//!
//! The command only leads: it starts, adds, watches and shuts down by the same orders as other
//! commands. It keeps no state but what it is to end ([`started`]), so one that was killed is run
//! again, and continues. The daemon decides when nothing more happens.

mod begin;
mod conclude;
mod report;
mod spent;
mod started;
mod view;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use teamd_client::act::waiting::{Early, within};
use teamd_client::act::{auto_start, spawn, stop};
use teamd_client::args::Run;
use teamd_client::connection::{CallError, Client, not_running, unexpected};
use teamd_client::context::{Context, block_on};
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::render::event;
use teamd_client::print::{clock, tokens};
use teamd_client::read::wake::Wake;
use teamd_client::read::{roster, text};
use teamd_shared::clock::since_boot;
use teamd_shared::config::Roster;
use teamd_shared::control::{Command, Done, Obstacle, RefusalCode, ShutdownOrder};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::journal::{MemberEvent, Record, TeamEvent};
use teamd_shared::name::Name;
use teamd_shared::price::Prices;
use teamd_shared::request::Kind;
use teamd_shared::task::{TaskFields, TaskId};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_view::model::{JournalFollower, NewLines};
use tokio::signal::unix::{SignalKind, signal};

use super::{task, up};
use begin::{has_work, member};
use report::ReportFile;
use spent::RunUsage;
use started::{RunLock, ToEnd};

/// Seconds after which signals end a member that the run ends.
const FORCE_AFTER: f64 = 10.0;

/// The tasks that a run is about: those that were open when it began, and those that were made
/// since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Scope {
    open: BTreeSet<TaskId>,
    since: TaskId,
}

impl Scope {
    /// Tells whether a task is one of them.
    fn has(&self, id: TaskId) -> bool {
        id >= self.since || self.open.contains(&id)
    }

    /// Returns the lowest id that one of them can have.
    fn first(&self) -> TaskId {
        self.open
            .first()
            .map_or(self.since, |&open| open.min(self.since))
    }
}

/// Why a run has ended.
enum RunEnding {
    /// Nothing more happens by itself.
    Over(Vec<Obstacle>),
    /// A limit is reached.
    Limit(&'static str),
    /// A signal, with its exit code.
    Signal(ExitCode),
    /// The run could not continue.
    Failed(CommandError),
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Run) -> CommandResult {
    let goal = args.goal.as_deref().map(text::given).transpose()?;
    let goal = goal.map(|goal| text::not_blank(goal, "goal")).transpose()?;
    let tasks = args
        .tasks
        .as_deref()
        .map(|file| task::import::read(context, file))
        .transpose()?
        .unwrap_or_default();
    let file = context.team_file()?;
    let names = if file.members.is_empty() {
        Vec::new()
    } else {
        up::teammates(file, &[])?
    };
    let check = |dir: Option<&TeamDir>| {
        has_work(dir, goal.is_some() || !tasks.is_empty())?;
        names
            .iter()
            .try_for_each(|name| spawn::check(context, dir, member(name)))
    };
    let existing = TeamDir::open(&context.path).ok();
    let held = existing.as_ref().map(RunLock::lock).transpose()?;
    let report = args.report.as_deref().map(ReportFile::create).transpose()?;
    let is_new = auto_start::ensure_daemon(context, false, |dir| {
        if names.is_empty() && goal.is_none() {
            return Err(CommandError::new(ExitCode::Usage, "team.toml names no member: no teammate would work on the tasks")
                .hint("write `[members.NAME]` into team.toml beside the team directory, or give a GOAL to the lead agent"));
        }
        check(dir)
    })?;
    let dir = context.dir()?;
    check(Some(&dir))?;
    let mut started = held.map_or_else(|| RunLock::lock(&dir), Ok)?;
    started.begin(&roster::load(&dir)?, is_new)?;
    let mut work = TeamRun::begin(context, &dir, args, &mut started)?;
    let ended = block_on(work.follow(&names, tasks, goal));
    let ended = ended.unwrap_or_else(|error| match error.code() {
        ExitCode::Interrupted => RunEnding::Signal(ExitCode::Interrupted),
        ExitCode::NotRunning => RunEnding::Failed(
            error.hint("run `teamctl run` again: it starts the daemon and continues"),
        ),
        _ => RunEnding::Failed(error),
    });
    let is_over = matches!(ended, RunEnding::Over(_));
    let left = match args.keep && is_over {
        _ if !is_locked(&dir) => Ok(()),
        true => work.started.ended(),
        false => block_on(work.shut_down(!is_over)),
    };
    let concluded = work.show_changes().and_then(|()| {
        context.out.passed();
        work.conclude(ended, report)
    });
    concluded.and_then(|code| left.map(|()| code))
}

/// A run.
struct TeamRun<'a> {
    context: &'a Context,
    dir: &'a TeamDir,
    args: &'a Run,
    started: &'a mut RunLock,
    began: (Instant, f64),
    prices: Prices,
    scope: Scope,
    has_goal: bool,
    /// The member whose start was ordered last, until it is ready.
    starting: Option<Name>,
    spent: RunUsage,
    journal: JournalFollower<'a>,
    /// The last line of the journal that was shown.
    shown: u64,
}

impl TeamRun<'_> {
    /// Has the team work until the run has ended.
    async fn follow(
        &mut self,
        names: &[Name],
        tasks: Vec<TaskFields>,
        goal: Option<String>,
    ) -> Result<RunEnding, CommandError> {
        let left = self
            .args
            .timeout
            .map(|timeout| timeout.saturating_sub(self.began.0.elapsed()));
        let work = async {
            self.prepare(names, tasks, goal).await?;
            self.watch().await
        };
        match interruptible(left, work).await? {
            Ok(ending) => Ok(ending),
            Err(None) => Ok(RunEnding::Limit("time")),
            Err(Some(code)) => Ok(RunEnding::Signal(code)),
        }
    }

    async fn watch(&mut self) -> Result<RunEnding, CommandError> {
        let dir = self.dir;
        let [mut records, mut members] = [TeamPath::journal(), TeamPath::config()]
            .map(|at| Wake::new(dir, &at, self.context.settings.poll));
        let mut quiet = pin!(quiet(dir, self.has_goal.then(|| self.scope.first())));
        let mut over = None;
        loop {
            self.show_changes()?;
            let roster = roster::load(dir)?;
            self.spent.observe(&roster);
            self.draw(&roster);
            if let Some(limit) = self.limit() {
                return Ok(RunEnding::Limit(limit));
            }
            if let Some(obstacles) = over {
                return Ok(RunEnding::Over(obstacles));
            }
            tokio::select! {
                obstacles = &mut quiet => over = Some(obstacles?),
                () = records.changed() => {}
                () = members.changed() => {}
            }
        }
    }

    /// Ends what the run has started, as `teamctl down --force` does: each member is asked, and one
    /// that rejects is ended by signals. Another signal to this command ends the waiting. With
    /// `interrupts`, turns end then: they would only cost more.
    async fn shut_down(&mut self, interrupts: bool) -> Result<(), CommandError> {
        let dir = self.dir;
        let out = &self.context.out;
        let starting = self.starting.take();
        starting
            .iter()
            .try_for_each(|name| self.started.member(name))?;
        let ToEnd {
            mut members,
            daemon,
            stay,
        } = self.started.to_end(&roster::load(dir)?);
        let mut interrupt_commands = Vec::new();
        if interrupts {
            interrupt_commands.extend(members.iter().map(|name| Command::Interrupt {
                name: name.clone(),
                asked_at: since_boot(),
            }));
        }
        // The roster does not show one whose checkout is still being made.
        if let Some(name) = starting.filter(|name| !members.contains(name)) {
            members.push(name);
        }
        let ending = async {
            if daemon {
                stop::request_stop(dir, true, &interrupt_commands)
                    .await
                    .map(drop)
            } else {
                self.end_members(&members, interrupt_commands).await
            }
        };
        if interruptible(None, ending).await?.is_err() {
            out.note("the team is still shutting down; `teamctl status` shows how far it is");
            return Ok(());
        }
        if !daemon {
            let stay: Vec<&str> = stay.iter().map(Name::as_str).collect();
            let stay = if stay.is_empty() {
                "the daemon".to_owned()
            } else {
                stay.join(", ")
            };
            out.note(format_args!(
                "left running, because they were running before this run: {stay}"
            ));
            out.hint("`teamctl down` ends the whole team");
        }
        self.started.ended()
    }

    fn end_member(&self, name: &Name) -> Command {
        Command::Shutdown(ShutdownOrder {
            request_id: RandomIds.request(),
            name: name.clone(),
            reason: "the run has ended".to_owned(),
            decide_within: self.context.settings.decide_within.as_secs_f64(),
            force_after: Some(FORCE_AFTER),
            wait: true,
        })
    }

    /// Ends members. All are asked, and `then` is sent, before the first is waited for.
    async fn end_members(&self, names: &[Name], then: Vec<Command>) -> Result<(), CommandError> {
        let orders: Vec<Command> = names.iter().map(|name| self.end_member(name)).collect();
        let mut then: Vec<Command> = orders.iter().skip(1).cloned().chain(then).collect();
        let mut client = Client::connect(self.dir).await?;
        for order in orders {
            match client.call_first(order, &std::mem::take(&mut then)).await {
                Ok(_) => {}
                // It has ended meanwhile, unless the daemon could not record the request.
                Err(CallError::Refused(refusal)) if refusal.code != RefusalCode::Failed => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the limit that is reached.
    fn limit(&self) -> Option<&'static str> {
        let (usage, cost) = self.spent.sum(&self.prices, |_| true);
        if self
            .args
            .max_tokens
            .is_some_and(|most| usage.billed() >= most)
        {
            return Some("tokens");
        }
        // What has no known price may have cost anything.
        self.args
            .max_cost
            .is_some_and(|most| cost.is_none_or(|cost| cost >= most))
            .then_some("cost")
    }

    /// Prints the new lines of the journal that show progress.
    fn show_changes(&mut self) -> Result<(), CommandError> {
        let mut new = NewLines::default();
        let read = self.journal.read(&mut new);
        // A journal that was put back is read again from its beginning.
        for line in new.lines.iter().filter(|line| line.seq > self.shown) {
            if let Record::Task(record) = &line.record {
                self.spent.task(&record.task);
            }
            match shows_progress(&line.record) {
                true if self.context.out.is_json() => self.context.out.json(line)?,
                true => self.context.out.wrapped(&(event::of_line(line) + "\n"))?,
                false => {}
            }
        }
        self.shown = self.journal.team.seq;
        read
    }

    fn draw(&self, roster: &Roster) {
        let Some(columns) = self.context.out.width() else {
            return;
        };
        let team = &self.journal.team;
        let (usage, cost) = self.spent.sum(&self.prices, |_| true);
        let time = self.began.0.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a bar has few cells")]
        let tokens = (
            usage.billed() as f64,
            self.args.max_tokens.map(|most| most as f64),
        );
        let timeout = self.args.timeout.map(|most| most.as_secs_f64());
        let max_cost = self.args.max_cost.map(f64::from);
        let mut bars = vec![
            view::tasks(team, &self.scope),
            view::used("time", (time, timeout), clock::span),
        ];
        if tokens.1.is_some() || !usage.is_nothing() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it was a number of tokens"
            )]
            bars.push(view::used("tokens", tokens, |tokens| {
                tokens::count(tokens as u64)
            }));
        }
        if let Some(cost) = cost
            .map(f64::from)
            .filter(|cost| max_cost.is_some() || *cost > 0.0)
        {
            bars.push(view::used("cost", (cost, max_cost), |dollars| {
                format!("${dollars:.2}")
            }));
        }
        let lines = view::lines(bars, team, roster, columns.saturating_sub(1));
        self.context.out.passing_lines(&lines);
    }
}

/// Tells whether a line of the journal shows progress.
fn shows_progress(record: &Record) -> bool {
    match record {
        Record::Task(record) => record.derived_from.is_none(),
        Record::Request(record) => record.request.kind != Kind::Shutdown,
        Record::Member(record) => {
            matches!(
                record.event,
                MemberEvent::Spawned
                    | MemberEvent::Exited
                    | MemberEvent::Silent
                    | MemberEvent::Answering
            )
        }
        Record::Team(record) => record.event == TeamEvent::Noted,
        Record::Snapshot(_) => false,
    }
}

/// Waits for something; ends early when the time is over (none), or at a signal (its code).
async fn interruptible<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<Result<T, Option<ExitCode>>, CommandError> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| CommandError::refused("cannot watch for signals", &error))?;
    tokio::select! {
        done = within(timeout, work) => Ok(done?.map_err(|early| match early {
            Early::TimedOut => None,
            Early::Interrupted => Some(ExitCode::Interrupted),
        })),
        Some(()) = terminate.recv() => Ok(Err(Some(ExitCode::Terminated))),
    }
}

/// Waits until nothing more happens by itself. Returns what is stuck.
async fn quiet(dir: &TeamDir, goal: Option<TaskId>) -> Result<Vec<Obstacle>, CommandError> {
    match Client::connect(dir)
        .await?
        .call_and_wait(Command::AwaitQuiet { goal })
        .await
    {
        Ok(Done::Quiet(obstacles)) => Ok(obstacles),
        Ok(other) => Err(unexpected(&other)),
        Err(CallError::Lost(_) | CallError::Stopped) => Err(not_running(dir)),
        Err(error) => Err(error.into()),
    }
}
