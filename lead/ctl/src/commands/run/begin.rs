//! How a run begins: the members, the tasks, the goal; and how it recognizes what an earlier run
//! has begun.

use std::time::{Duration, Instant};

use teamd_client::act::task;
use teamd_client::args::Run;
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::tail::Tail;
use teamd_client::read::{journal, money, roster, tasks};
use teamd_shared::clock::wall;
use teamd_shared::member::MemberStatus;
use teamd_shared::message::{Message, USER};
use teamd_shared::name::Name;
use teamd_shared::spawn::SpawnRequest;
use teamd_shared::task::{Task, TaskFields, TaskId};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::terms::TermsPatch;
use teamd_view::chat::{ChatTarget, LeadOptions};
use teamd_view::model::{JournalFollower, NewLines};

use super::super::up;
use super::spent::RunUsage;
use super::started::RunLock;
use super::{Scope, TeamRun};

/// How long a member may take until it is ready: what prepares its workspace may take minutes.
const READY: Duration = Duration::from_secs(600);

/// What follows the goal in the message to the lead agent.
const WITH_GOAL: &str = "No person is here while you work on this. Make tasks of it with task_create, each with a check that shows \
    whether it is done, and with blocked_by where one needs another. Teammates are given the tasks while they are idle. Then end your turn: \
    you are told what becomes of the tasks. The run ends when no task is left and you are idle.";

pub(super) fn member(name: &Name) -> SpawnRequest<'_> {
    let flags = TermsPatch {
        auto: Some(true),
        ..TermsPatch::default()
    };
    SpawnRequest {
        name,
        flags,
        ca: None,
        resume: false,
    }
}

/// Refuses a run with nothing to do.
pub(super) fn has_work(dir: Option<&TeamDir>, is_given: bool) -> Result<(), CommandError> {
    let team = dir.map(journal::fold).transpose()?.unwrap_or_default();
    if is_given || team.has_open_tasks() {
        return Ok(());
    }
    let why = match team.last_task {
        0 => "there is nothing to do: there is no task, and no GOAL is given",
        _ => "there is nothing to do: every task is finished, and no GOAL is given",
    };
    let error = CommandError::new(ExitCode::Usage, why).hint(
        "`teamctl run --tasks FILE` makes tasks first; `teamctl run 'fix the failing test'` has the lead agent make them",
    );
    let retry = "`teamctl task retry ID` opens a task again that has failed or was cancelled";
    Err(if team.last_task > 0 {
        error.hint(retry)
    } else {
        error
    })
}

impl<'a> TeamRun<'a> {
    pub(super) fn begin(
        context: &'a Context,
        dir: &'a TeamDir,
        args: &'a Run,
        started: &'a mut RunLock,
    ) -> Result<Self, CommandError> {
        let mut journal = JournalFollower::begin(dir)?;
        journal.read(&mut NewLines::default())?;
        let team = &journal.team;
        let open = team
            .tasks
            .values()
            .filter(|task| !task.status.is_finished())
            .map(|task| task.id);
        let roster = roster::load(dir)?;
        Ok(Self {
            context,
            dir,
            args,
            started,
            began: (Instant::now(), wall()),
            prices: money::prices(context),
            scope: Scope {
                open: open.collect(),
                since: team.last_task + 1,
            },
            has_goal: false,
            starting: None,
            spent: RunUsage::since(&roster),
            shown: team.seq,
            journal,
        })
    }

    /// Starts the members, and gives them what is to be done, unless an earlier run has.
    pub(super) async fn prepare(
        &mut self,
        names: &[Name],
        tasks: Vec<TaskFields>,
        goal: Option<String>,
    ) -> Result<(), CommandError> {
        for name in names {
            self.starting = Some(name.clone());
            let started =
                up::start(self.context, self.dir, member(name), (READY, |_, _| Ok(()))).await;
            // For a run, this exit code would mean something else.
            let is_new = started.map_err(|error| match error.code() {
                ExitCode::TimedOut | ExitCode::Conflict | ExitCode::NotFound => {
                    let failed = CommandError::new(ExitCode::Failed, error.message());
                    error
                        .next_step()
                        .into_iter()
                        .fold(failed, CommandError::hint)
                }
                _ => error,
            })?;
            if is_new {
                self.started.member(name)?;
            }
            self.starting = None;
        }
        self.require_prices()?;
        let all = tasks::all(self.dir, &journal::fold(self.dir)?)?;
        match under_way(&all, &tasks) {
            Some(first) => {
                self.scope.since = first;
                self.context.out.note(format_args!(
                    "these tasks were imported before, from task {first} on: the run continues with them"
                ));
            }
            None if !tasks.is_empty() => drop(task::make(self.context, tasks, true).await?),
            None => {}
        }
        match goal {
            Some(goal) => self.give_goal(&goal).await,
            None => Ok(()),
        }
    }

    /// Refuses a limit of cost where a price is not known.
    fn require_prices(&self) -> Result<(), CommandError> {
        if self.args.max_cost.is_none() {
            return Ok(());
        }
        let roster = roster::load(self.dir)?;
        for member in &roster.members {
            if roster::runs(&roster, member) && member.model != "script" {
                self.prices.require(&money::model(member))?;
                if let Some(fallback) = &member.fallback_model {
                    self.prices.require(fallback)?;
                }
            }
        }
        Ok(())
    }

    /// Gives the goal to the lead agent, unless it is already working on it.
    async fn give_goal(&mut self, goal: &str) -> Result<(), CommandError> {
        self.has_goal = true;
        let target = ChatTarget {
            name: Name::lead(),
            start: Some(LeadOptions::default()),
        };
        self.starting = Some(target.name.clone());
        if target.ensure(self.context, self.dir, false).await? {
            self.started.member(&target.name)?;
        }
        self.starting = None;
        self.require_prices()?;
        let text = format!("{}\n\n{}", goal.trim(), WITH_GOAL);
        let team = journal::fold(self.dir)?;
        let roster = roster::load(self.dir)?;
        let busy = match roster.member(&target.name) {
            Some(lead) => lead.status != MemberStatus::Idle || !roster::is_at_rest(self.dir, lead)?,
            None => false,
        };
        if (busy || team.has_open_tasks())
            && let Some(at) = sent_at(self.dir, &text)?
        {
            let made = tasks::all(self.dir, &team)?
                .into_iter()
                .find(|task| task.created_at >= at);
            self.scope.since = made.map_or(self.scope.since, |task| task.id.min(self.scope.since));
            self.context
                .out
                .note("the lead agent was given this goal before: the run continues with it");
            return Ok(());
        }
        target.send(self.context, self.dir, &text).map(drop)
    }
}

/// Finds the tasks of a file that an earlier run has made, if they are not all finished; returns
/// the first.
fn under_way(all: &[Task], tasks: &[TaskFields]) -> Option<TaskId> {
    if tasks.is_empty() {
        return None;
    }
    let earlier = all.windows(tasks.len()).find(|run| {
        run.iter().zip(tasks).all(|(task, fields)| {
            fields.subject.as_deref().map(str::trim) == Some(task.subject.as_str())
                && fields.description.as_deref().unwrap_or_default().trim()
                    == task.description.trim()
        }) && run.iter().any(|task| !task.status.is_finished())
    });
    earlier.and_then(|run| run.first()).map(|task| task.id)
}

/// Returns when a person last sent this to the lead agent, in seconds since 1970.
fn sent_at(dir: &TeamDir, text: &str) -> Result<Option<f64>, CommandError> {
    let lines = Tail::new(dir, TeamPath::inbox(&Name::lead())).read_all()?;
    let messages = lines
        .iter()
        .filter_map(|line| Message::from_json(serde_json::from_slice(line).ok()?).ok());
    let sent = messages.filter(|message| message.from == USER && message.content == text);
    Ok(sent.filter_map(|message| message.timestamp).next_back())
}
