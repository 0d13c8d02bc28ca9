//! `teamctl run`: a team works unattended until nothing is left to do, and the exit code says what came of it.
//!
//! The command only leads: it starts, adds, watches and shuts down by the same orders as other commands. It keeps no state, so
//! one that was killed is run again, and goes on. Its end is one state of journal and roster ([`progress`]).

mod begin;
mod conclude;
mod progress;
mod report;
mod spent;
mod view;

use std::time::{Duration, Instant};

use teamd_shared::clock::{since_boot, wall};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::control::Command;
use teamd_shared::journal::{Line, MemberEvent, Record, Team, TeamEvent};
use teamd_shared::member::MemberStatus;
use teamd_shared::price::Prices;
use teamd_shared::request::Kind;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript;
use tokio::signal::unix::{SignalKind, signal};

use super::{down, spawn, task, up};
use crate::client::{Client, is_locked, not_running};
use crate::ctl::args::{Down, Run};
use crate::ctl::context::{Context, block_on};
use crate::ctl::output::{Dock, Screen};
use crate::ctl::render::event;
use crate::ctl::stream::as_it_stands;
use crate::ctl::tail::Tail;
use crate::ctl::waiting::{Early, within};
use crate::ctl::wake::Wake;
use crate::ctl::{auto_start, clock, journal, roster, text, tokens};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

use begin::{has_work, member};
use progress::{Obstacle, Progress, Scope, Seat, Seen, Wait};
use report::ReportFile;
use spent::Spent;

/// How often a member is looked at that is idle, but has mail to read.
const POLL_SETTLING: Duration = Duration::from_millis(20);
/// How long the roster may show a member as it was before its last entry, in seconds. Not each entry changes what it shows.
const ROSTER_FOLLOWS: f64 = 2.0;

/// How long the daemon may take to give an idle member a task that it may claim. Some it gives none, whose checkout is not clean.
const OFFERED: Duration = Duration::from_secs(60);

/// Why a run has ended.
enum Ending {
    /// Nothing more happens by itself.
    Over(Vec<Obstacle>),
    /// A limit is reached.
    Limit(&'static str),
    /// A signal; the code says which.
    Signal(ExitCode),
    /// The run could not go on.
    Failed(CommandError),
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Run) -> CommandResult {
    let goal = args.goal.as_deref().map(text::given).transpose()?;
    let goal = goal.map(|goal| text::not_blank(goal, "goal")).transpose()?;
    let tasks = args.tasks.as_deref().map(task::import::read).transpose()?.unwrap_or_default();
    let file = context.team_file()?;
    let names = if file.members.is_empty() { Vec::new() } else { up::teammates(file, &[])? };
    let check = |dir: Option<&TeamDir>| {
        has_work(dir, goal.is_some() || !tasks.is_empty())?;
        names.iter().try_for_each(|name| spawn::check(context, dir, member(name)))
    };
    let report = args.report.as_deref().map(ReportFile::create).transpose()?;
    auto_start::ensure_daemon(context, false, |dir| {
        if names.is_empty() && goal.is_none() {
            return Err(CommandError::new(ExitCode::Usage, "team.toml names no member: no teammate would work on the tasks")
                .hint("write `[members.NAME]` into team.toml beside the team directory, or give a GOAL to the lead agent"));
        }
        check(dir)
    })?;
    let dir = context.dir()?;
    check(Some(&dir))?;
    let screen = (context.out.width().is_some() && Screen::can_move()).then(Screen::new);
    let drawn = screen.as_ref().map(|screen| context.elsewhere()(screen.output()));
    let context = drawn.as_ref().unwrap_or(context);
    let mut work = Work::begin(context, &dir, (args, screen.as_ref()))?;
    let ended = work.prepare(&names, (tasks, goal)).and_then(|()| block_on(work.follow()));
    let ended = ended.unwrap_or_else(|error| match error.code() {
        ExitCode::Interrupted => Ending::Signal(ExitCode::Interrupted),
        _ => Ending::Failed(error),
    });
    let is_over = matches!(ended, Ending::Over(_));
    let left = match (args.keep && is_over) || !is_locked(&dir) {
        true => Ok(()),
        false => block_on(shut_down(context, &dir, !is_over)),
    };
    let concluded = work.show_changes().and_then(|()| {
        screen.iter().for_each(|screen| screen.dock(Dock::default()));
        work.conclude(ended, report)
    });
    screen.iter().for_each(|screen| _ = screen.flush());
    concluded.and_then(|code| left.map(|()| code))
}

/// A run.
struct Work<'a> {
    context: &'a Context,
    dir: &'a TeamDir,
    args: &'a Run,
    screen: Option<&'a Screen>,
    began: (Instant, f64),
    prices: Prices,
    scope: Scope,
    has_goal: bool,
    spent: Spent,
    journal: Tail<'a>,
}

impl<'a> Work<'a> {
    /// Follows the team until the run has ended.
    async fn follow(&mut self) -> Result<Ending, CommandError> {
        let left = self.args.timeout.map(|timeout| timeout.saturating_sub(self.began.0.elapsed()));
        match interruptible(left, self.watch()).await? {
            Ok(ending) => Ok(ending),
            Err(None) => Ok(Ending::Limit("time")),
            Err(Some(code)) => Ok(Ending::Signal(code)),
        }
    }

    async fn watch(&mut self) -> Result<Ending, CommandError> {
        let [mut records, mut members] = [TeamPath::journal(), TeamPath::config()]
            .map(|at| Wake::new(self.dir, &at, self.context.settings.poll));
        let (mut seemed_over, mut offered) = (None, (0, Instant::now()));
        loop {
            self.show_changes()?;
            // In this order: an inbox that was read later has what followed from the journal.
            let (team, roster) = (journal::fold(self.dir)?, roster::load(self.dir)?);
            self.spent.observe(&roster);
            self.draw(&team, &roster);
            if let Some(limit) = self.limit() {
                return Ok(Ending::Limit(limit));
            }
            if !is_locked(self.dir) {
                return Err(
                    not_running(self.dir).hint("run `teamctl run` again: it starts the daemon and goes on")
                );
            }
            let seat = |member| Ok(Seat { member, rests: self.rests(member)? });
            let seats: Vec<Seat<'_>> =
                roster.members.iter().map(seat).collect::<Result<_, CommandError>>()?;
            let seen = Seen { team: &team, seats: &seats, scope: &self.scope, has_goal: self.has_goal };
            let progress = seen.progress();
            if offered.0 != team.seq || progress != Progress::GoesOn(Wait::Offer) {
                offered = (team.seq, Instant::now());
            }
            match &progress {
                Progress::GoesOn(Wait::Offer) if offered.1.elapsed() > OFFERED => {
                    return Ok(Ending::Over(seen.obstacles()));
                }
                Progress::Over if seemed_over == Some(team.seq) => return Ok(Ending::Over(seen.obstacles())),
                Progress::Over => {
                    // What the journal says may not have its effects yet. A daemon that answers has performed them.
                    seemed_over = Some(team.seq);
                    Client::connect(self.dir).await?.call(Command::Ping).await?;
                    continue;
                }
                Progress::GoesOn(_) => seemed_over = None,
            }
            let changed = async {
                tokio::select! {
                    () = records.changed() => {}
                    () = members.changed() => {}
                }
            };
            match progress {
                Progress::GoesOn(Wait::Mail) => drop(tokio::time::timeout(POLL_SETTLING, changed).await),
                _ => changed.await,
            }
        }
    }

    /// Tells whether an idle member has nothing more to do, and the roster shows it as it is after its last piece of work.
    fn rests(&self, member: &RosterMember) -> Result<bool, CommandError> {
        if member.status != MemberStatus::Idle {
            return Ok(true);
        }
        let last = transcript::last_entry(self.dir, &member.name)?;
        let is_shown = |at| at <= member.updated_at || wall() - at > ROSTER_FOLLOWS;
        Ok(last.is_none_or(|entry| is_shown(entry.at)) && roster::is_at_rest(self.dir, member)?)
    }

    /// Returns the limit that is reached.
    fn limit(&self) -> Option<&'static str> {
        let (usage, cost) = self.spent.sum(&self.prices, |_| true);
        if self.args.max_tokens.is_some_and(|most| usage.billed() >= most) {
            return Some("tokens");
        }
        // What has no known price may have cost anything.
        self.args.max_cost.is_some_and(|most| cost.is_none_or(|cost| cost >= most)).then_some("cost")
    }

    /// Prints the lines of the journal that are new and tell how the work goes.
    fn show_changes(&mut self) -> Result<(), CommandError> {
        loop {
            let lines = self.journal.read()?;
            if lines.is_empty() {
                return Ok(());
            }
            for text in &lines {
                let Ok(line) = serde_json::from_slice::<Line>(text) else { continue };
                if let Record::Task(record) = &line.record {
                    self.spent.task(&record.task);
                }
                match tells(&line.record) {
                    true if self.context.out.is_json() => self.context.out.json(&as_it_stands(text))?,
                    true => self.context.out.wrapped(&(event::event(text) + "\n"))?,
                    false => {}
                }
            }
        }
    }

    fn draw(&self, team: &Team, roster: &Roster) {
        let Some(screen) = self.screen else { return };
        let (usage, cost) = self.spent.sum(&self.prices, |_| true);
        let time = self.began.0.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a bar has few cells")]
        let tokens = (usage.billed() as f64, self.args.max_tokens.map(|most| most as f64));
        let (timeout, max_cost) =
            (self.args.timeout.map(|most| most.as_secs_f64()), self.args.max_cost.map(f64::from));
        let mut bars = vec![view::tasks(team, &self.scope), view::used("time", (time, timeout), clock::span)];
        if tokens.1.is_some() || !usage.is_nothing() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it was a number of tokens"
            )]
            bars.push(view::used("tokens", tokens, |tokens| tokens::count(tokens as u64)));
        }
        if let Some(cost) = cost.map(f64::from).filter(|cost| max_cost.is_some() || *cost > 0.0) {
            bars.push(view::used("cost", (cost, max_cost), |dollars| format!("${dollars:.2}")));
        }
        screen.dock(view::dock(bars, team, roster, screen.columns()));
    }
}

/// Tells whether a line of the journal says how the work goes.
fn tells(record: &Record) -> bool {
    match record {
        Record::Task(record) => record.derived_from.is_none(),
        Record::Request(record) => record.request.kind != Kind::Shutdown,
        Record::Member(record) => {
            matches!(
                record.event,
                MemberEvent::Spawned | MemberEvent::Exited | MemberEvent::Silent | MemberEvent::Answering
            )
        }
        Record::Team(record) => record.event == TeamEvent::Noted,
        Record::Snapshot(_) => false,
    }
}

/// Does something until it is done, the time is over (none), or a signal comes (its code).
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

/// Ends the team as `teamctl down --force` does: each member is asked, and one that rejects is ended by signals. Another signal to
/// this command ends the waiting. With `interrupts`, turns end first: they would only cost more.
async fn shut_down(context: &Context, dir: &TeamDir, interrupts: bool) -> Result<(), CommandError> {
    let roster = roster::load(dir)?;
    let mut client = Client::connect(dir).await?;
    for name in roster::running(&roster).into_iter().map(|it| &it.name).filter(|_| interrupts) {
        let interrupted =
            client.call(Command::Interrupt { name: name.clone(), asked_at: since_boot() }).await;
        // It is asked to leave all the same.
        interrupted.err().inspect(|error| tracing::debug!("{name} is not interrupted: {error:?}"));
    }
    let args = Down { force: true, timeout: Duration::MAX };
    let stopped = interruptible(None, down::request_stop(dir, &args)).await?;
    if stopped.is_err() {
        context.out.note("the team is still shutting down; `teamctl status` shows how far it is");
    }
    Ok(())
}
