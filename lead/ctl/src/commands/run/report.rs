//! What came of a run: for people a table, for programs JSON, for CI a JUnit file.
//!
//! **Who writes** the report file: this command alone. It is emptied when the run begins, so that
//! no earlier report is taken for this one, and written when the run has ended. **When the command
//! dies** before, the file is empty.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use teamd_client::error::{CommandError, io_hint};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::render::count;
use teamd_client::print::table::{Cell, Table};
use teamd_client::print::{clock, tokens};
use teamd_shared::control::Obstacle;
use teamd_shared::price::Dollars;
use teamd_shared::task::{CheckResult, Task, TaskId, TaskStatus};
use teamd_shared::transcript::Usage;
use teamd_shared::visible::is_hidden;

/// What came of a run, as it is printed and written. Its schema is `teamctl schema run`.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    pub(super) team_name: String,
    /// `completed`, `unfinished`, `limit` or `interrupted`.
    pub(super) outcome: &'static str,
    /// The limit that was reached: `time`, `tokens` or `cost`.
    pub(super) limit: Option<&'static str>,
    pub(super) exit_code: u8,
    /// Seconds since 1970.
    pub(super) began_at: f64,
    pub(super) seconds: f64,
    pub(super) usage: Usage,
    /// In dollars; null if a price is not known.
    pub(super) cost: Option<Dollars>,
    pub(super) obstacles: Vec<Obstacle>,
    pub(super) tasks: Vec<TaskLine>,
}

/// What came of a task.
#[derive(Debug, Serialize)]
pub(super) struct TaskLine {
    pub(super) id: TaskId,
    pub(super) subject: String,
    pub(super) status: TaskStatus,
    /// How far the result is known to be right; null if it is not completed.
    pub(super) verified: Option<&'static str>,
    /// The teammate that holds it, or that has submitted it last.
    pub(super) owner: Option<String>,
    pub(super) attempts: u32,
    /// How often the work was sent back without a failed check: by a review, or because it could
    /// not be merged.
    pub(super) returns: u32,
    /// From the first claim to the last change; null if it was never claimed.
    pub(super) seconds: Option<f64>,
    pub(super) usage: Usage,
    pub(super) cost: Option<Dollars>,
    pub(super) check: Option<CheckResult>,
    /// The commit of the integration branch that brought it in, of a teammate with a checkout.
    pub(super) commit: Option<String>,
}

impl TaskLine {
    pub(super) fn of(
        task: &Task,
        claimed_at: &BTreeMap<TaskId, f64>,
        (usage, cost): (Usage, Option<Dollars>),
    ) -> Self {
        let result = task.result.as_ref();
        let by = task.submission.as_ref().map(|submission| &submission.by);
        Self {
            id: task.id,
            subject: task.subject.clone(),
            status: task.status,
            verified: if task.status == TaskStatus::Completed {
                result.map(|result| result.verified())
            } else {
                None
            },
            owner: task.owner.as_ref().or(by).map(ToString::to_string),
            attempts: task.attempts,
            returns: task.returns,
            seconds: claimed_at
                .get(&task.id)
                .map(|at| (task.updated_at - at).max(0.0)),
            usage,
            cost,
            check: result.and_then(|result| result.check.clone()),
            commit: result.and_then(|result| result.merged.clone()),
        }
    }
}

impl RunReport {
    /// Counts the tasks with a status.
    pub(super) fn count(&self, status: TaskStatus) -> usize {
        self.tasks
            .iter()
            .filter(|task| task.status == status)
            .count()
    }

    /// Lays the tasks out for people, without the columns that have nothing to show.
    pub(super) fn table(&self, style: fn(TaskStatus) -> anstyle::Style) -> Table {
        let titles = [
            "TASK", "STATUS", "VERIFIED", "OWNER", "ATTEMPTS", "TIME", "TOKENS", "COST", "COMMIT",
            "SUBJECT",
        ];
        let mut table = Table::new(&titles);
        let mut shown = [true; 10];
        shown[6] = !self.usage.is_nothing();
        shown[7] = !money(self.cost).is_empty();
        shown[8] = self.tasks.iter().any(|task| task.commit.is_some());
        for task in &self.tasks {
            let used = if task.usage.is_nothing() {
                String::new()
            } else {
                tokens::count(task.usage.billed())
            };
            table.row(vec![
                Cell::new(task.id.to_string()),
                Cell::styled(task.status.as_str(), style(task.status)),
                Cell::new(task.verified.unwrap_or_default()),
                Cell::new(task.owner.as_deref().unwrap_or_default()),
                Cell::new(if task.attempts == 0 {
                    String::new()
                } else {
                    task.attempts.to_string()
                }),
                Cell::new(task.seconds.map(clock::span).unwrap_or_default()),
                Cell::new(used),
                Cell::new(money(task.cost)),
                Cell::new(
                    task.commit
                        .as_deref()
                        .and_then(|commit| commit.get(..8))
                        .unwrap_or_default(),
                ),
                Cell::new(&task.subject),
            ]);
        }
        table.only(
            &(0..titles.len())
                .filter(|&column| shown[column])
                .collect::<Vec<_>>(),
        )
    }

    /// Sums everything up in one line.
    pub(super) fn summary(&self) -> String {
        let completed = self.count(TaskStatus::Completed);
        let mut summary = format!(
            "{completed} of {} completed in {}",
            count(self.tasks.len(), "task"),
            clock::span(self.seconds)
        );
        if !self.usage.is_nothing() {
            summary += &format!("; {}", tokens::cost(&self.usage));
            summary += &self
                .cost
                .filter(|cost| *cost > Dollars::default())
                .map(|cost| format!("; {cost}"))
                .unwrap_or_default();
        }
        summary
    }

    /// Returns the report as JUnit XML, which CI systems show: a task is a test case. `log` reads
    /// the output of a check.
    fn junit(&self, log: impl Fn(TaskId) -> String) -> String {
        let mut cases = String::new();
        let mut failures = 0;
        let mut errors = 0;
        let mut skipped = 0;
        for task in &self.tasks {
            let obstacle = self
                .obstacles
                .iter()
                .find(|obstacle| obstacle.task == Some(task.id));
            let inside = match (task.status, &task.check) {
                (TaskStatus::Completed, _) => String::new(),
                (TaskStatus::Failed, check) => {
                    failures += 1;
                    let command = check
                        .as_ref()
                        .map_or("it was not submitted", |check| &check.check.command);
                    element(
                        "failure",
                        &format!(
                            "failed after {}: {command}",
                            count(task.attempts as usize, "attempt")
                        ),
                        &log(task.id),
                    )
                }
                (TaskStatus::Cancelled, _) => {
                    skipped += 1;
                    element("skipped", "cancelled", "")
                }
                _ => {
                    errors += 1;
                    let reason = obstacle.map_or_else(
                        || task.status.as_str().replace('_', " "),
                        |it| it.why.clone(),
                    );
                    element("error", &reason, "")
                }
            };
            let time = task.seconds.unwrap_or_default();
            let name = xml(&format!("{}. {}", task.id, task.subject));
            let owner = xml(task.owner.as_deref().unwrap_or("task"));
            let verified = xml(task.verified.unwrap_or("no"));
            cases += &format!(
                "  <testcase classname=\"{owner}\" name=\"{name}\" time=\"{time:.3}\"><properties><property name=\"verified\" value=\"{verified}\"/></properties>{inside}</testcase>\n"
            );
        }
        let name = xml(&self.team_name);
        let tests = self.tasks.len();
        let seconds = self.seconds;
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n{cases} </testsuite>\n</testsuites>\n"
        )
    }
}

/// Escapes a text for XML; characters that XML does not allow, and invisible ones, are replaced.
fn xml(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\n' | '\t' => format!("&#{};", u32::from(c)),
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}'.to_string(),
            c if is_hidden(c) => '\u{fffd}'.to_string(),
            c => c.to_string(),
        })
        .collect()
}

/// The file that the report goes to.
pub(super) struct ReportFile {
    file: File,
    path: PathBuf,
    is_xml: bool,
}

impl ReportFile {
    /// Makes the file, and empties one that is there.
    ///
    /// # Errors
    /// [`ExitCode::Usage`] if its name ends neither with `.json` nor with `.xml`, or it cannot be
    /// written.
    pub(super) fn create(path: &Path) -> Result<Self, CommandError> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let Some(is_xml) = extension
            .filter(|it| ["json", "xml"].contains(it))
            .map(|it| it == "xml")
        else {
            return Err(usage_error(format!(
                "--report {}: it is neither .json nor .xml",
                path.display()
            ))
            .hint("name a file such as report.json, or report.xml for JUnit"));
        };
        let file = File::create(path).map_err(|error| {
            let failed = usage_error(format!(
                "--report {} cannot be written: {error}",
                path.display()
            ));
            io_hint(&error, Some(path))
                .into_iter()
                .fold(failed, CommandError::hint)
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            is_xml,
        })
    }

    /// Writes the report. `log` reads the output of a task's check.
    ///
    /// # Errors
    /// [`ExitCode::Failed`] if the system refuses.
    pub(super) fn write(
        mut self,
        report: &RunReport,
        log: impl Fn(TaskId) -> String,
    ) -> Result<(), CommandError> {
        let text = if self.is_xml {
            Ok(report.junit(log))
        } else {
            serde_json::to_string_pretty(report)
                .map(|text| text + "\n")
                .map_err(std::io::Error::from)
        };
        let written = text.and_then(|text| self.file.write_all(text.as_bytes()));
        written.map_err(|error| {
            CommandError::refused(
                &format!("cannot write the report {}", self.path.display()),
                &error,
            )
        })
    }
}

/// Shows a cost; nothing if there was none.
fn money(cost: Option<Dollars>) -> String {
    match cost {
        Some(cost) if cost > Dollars::default() => cost.to_string(),
        _ => String::new(),
    }
}

fn element(tag: &str, message: &str, text: &str) -> String {
    format!("<{tag} message=\"{}\">{}</{tag}>", xml(message), xml(text))
}

fn usage_error(message: String) -> CommandError {
    CommandError::new(ExitCode::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::task::TaskFields;

    fn report() -> RunReport {
        let task = |id, subject: &str, status: &str| {
            let fields = TaskFields {
                subject: Some(subject.to_owned()),
                ..TaskFields::default()
            };
            let status = serde_json::from_value(json!(status)).unwrap();
            let task = Task {
                status,
                updated_at: 65.0,
                ..fields.create(id, "user", 1.0).unwrap()
            };
            TaskLine::of(&task, &BTreeMap::from([(1, 5.0)]), (Usage::default(), None))
        };
        let tasks = vec![
            task(1, "a < b & \"c\"\u{1b}\u{202e}", "completed"),
            task(2, "two", "failed"),
            task(3, "three", "pending"),
            task(4, "four", "cancelled"),
        ];
        let obstacles = vec![Obstacle {
            task: Some(3),
            why: "it is blocked by 2 (failed)".to_owned(),
            requests: Vec::new(),
        }];
        let team_name = "web".to_owned();
        let usage = Usage::default();
        let cost = None;
        RunReport {
            team_name,
            outcome: "unfinished",
            limit: None,
            exit_code: 3,
            began_at: 1.0,
            seconds: 61.5,
            usage,
            cost,
            obstacles,
            tasks,
        }
    }

    #[test]
    fn each_task_is_a_test_case_and_no_text_of_others_is_markup() {
        let xml = report().junit(|id| format!("output of {id} ]]> </failure>"));
        insta::assert_snapshot!(xml, @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
         <testsuite name="web" tests="4" failures="1" errors="1" skipped="1" time="61.500">
          <testcase classname="task" name="1. a &lt; b &amp; &quot;c&quot;��" time="60.000"><properties><property name="verified" value="no"/></properties></testcase>
          <testcase classname="task" name="2. two" time="0.000"><properties><property name="verified" value="no"/></properties><failure message="failed after 0 attempts: it was not submitted">output of 2 ]]&gt; &lt;/failure&gt;</failure></testcase>
          <testcase classname="task" name="3. three" time="0.000"><properties><property name="verified" value="no"/></properties><error message="it is blocked by 2 (failed)"></error></testcase>
          <testcase classname="task" name="4. four" time="0.000"><properties><property name="verified" value="no"/></properties><skipped message="cancelled"></skipped></testcase>
         </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn the_table_leaves_out_what_no_task_has() {
        let table = report().table(|_| anstyle::Style::new());
        let shown = anstream::adapter::strip_str(&table.render(Some(80))).to_string();
        insta::assert_snapshot!(shown + &report().summary(), @r#"
        TASK  STATUS     VERIFIED  OWNER  ATTEMPTS  TIME  SUBJECT
        1     completed                             1m    a < b & "c"\u{1b}\u{202e}
        2     failed                                      two
        3     pending                                     three
        4     cancelled                                   four
        1 of 4 tasks completed in 1m
        "#);
    }
}
