//! How a run ends: the report, for people, for programs and for CI.

use std::collections::BTreeMap;

use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{escape, task};
use teamd_client::read::{roster, tasks};
use teamd_shared::journal::Record;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::task::{Task, TaskEvent, TaskId, TaskStatus};

use super::report::{ReportFile, RunReport, TaskLine};
use super::{RunEnding, TeamRun};

impl TeamRun<'_> {
    /// Prints and writes the outcome of the run.
    pub(super) fn conclude(&mut self, ended: RunEnding, file: Option<ReportFile>) -> CommandResult {
        self.spent.observe(&roster::load(self.dir)?);
        let (report, code) = self.report(&ended)?;
        // A task without a check has no log.
        let written = file.map_or(Ok(()), |file| {
            file.write(&report, |id| match tasks::read_log(self.dir, id) {
                Ok(output) => output.unwrap_or_default(),
                Err(error) => error.to_string(),
            })
        });
        let out = &self.context.out;
        if out.is_json() {
            out.json(&report)?;
        } else {
            if !report.tasks.is_empty() {
                out.text(format!(
                    "\n{}",
                    report.table(task::style).render(out.width())
                ))?;
            }
            out.text(report.summary())?;
            self.explain(&report);
        }
        written?;
        if let RunEnding::Failed(error) = ended {
            Err(error)
        } else {
            Ok(code)
        }
    }

    /// Explains why not all is done, and what to do next.
    fn explain(&self, report: &RunReport) {
        let out = &self.context.out;
        for obstacle in &report.obstacles {
            let what = obstacle
                .task
                .map_or("the goal".to_owned(), |id| format!("task {id}"));
            out.note(escape::line(&format!("{what} is stuck: {}", obstacle.why)));
        }
        if report
            .obstacles
            .iter()
            .any(|obstacle| !obstacle.requests.is_empty())
        {
            out.hint("`teamctl run --keep` leaves the team running: then `teamctl approve ID` or `reject ID` answers, and `teamctl run` continues");
        }
        if report.count(TaskStatus::Failed) > 0 {
            out.hint("`teamctl task log ID` shows the output of a check, `teamctl task retry ID` opens a task again");
        }
        match report.limit {
            Some(limit) => out.note(format_args!("the limit of {limit} is reached")),
            None if report.outcome == "interrupted" => {
                out.note("interrupted; `teamctl run` continues with what is left")
            }
            None => {}
        }
    }

    fn report(&self, ended: &RunEnding) -> Result<(RunReport, ExitCode), CommandError> {
        let mut claimed_at: BTreeMap<TaskId, f64> = BTreeMap::new();
        let team = load(self.dir, Since::Start, |_, line| {
            if let Record::Task(record) = &line.record
                && record.event == TaskEvent::Claimed
            {
                claimed_at.entry(record.task.id).or_insert(line.at);
            }
        })?;
        let tasks: Vec<Task> = tasks::all(self.dir, &team)?
            .into_iter()
            .filter(|task| self.scope.has(task.id))
            .collect();
        let all_done = tasks
            .iter()
            .all(|task| task.status == TaskStatus::Completed);
        let (outcome, limit, code) = match ended {
            RunEnding::Over(obstacles) if obstacles.is_empty() && all_done => {
                ("completed", None, ExitCode::Done)
            }
            RunEnding::Over(_) => ("unfinished", None, ExitCode::Rejected),
            RunEnding::Limit(limit) => ("limit", Some(*limit), ExitCode::TimedOut),
            RunEnding::Signal(code) => ("interrupted", None, *code),
            RunEnding::Failed(error) => ("failed", None, error.code()),
        };
        let obstacles = if let RunEnding::Over(obstacles) = ended {
            obstacles.clone()
        } else {
            Vec::new()
        };
        let (usage, cost) = self.spent.sum(&self.prices, |_| true);
        let report = RunReport {
            team_name: team.team_name.clone(),
            outcome,
            limit,
            exit_code: code.number(),
            began_at: self.began.1,
            seconds: self.began.0.elapsed().as_secs_f64(),
            usage,
            cost,
            obstacles,
            tasks: tasks
                .iter()
                .map(|task| {
                    TaskLine::of(
                        task,
                        &claimed_at,
                        self.spent
                            .sum(&self.prices, |purpose| purpose.task == Some(task.id)),
                    )
                })
                .collect(),
        };
        Ok((report, code))
    }
}
