//! The checks of submitted tasks: one at a time, since they work in place. Each is a process of its own (`team-worker check`),
//! which ends when its standard input does: so no check outlives the daemon that wants it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::process::How;
use teamd_shared::task::TaskId;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::workers::Supervisor;
use crate::daemon::core::event::Event;

/// The checks that run or wait.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    waiting: VecDeque<CheckOrder>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    task: TaskId,
    number: u32,
    /// Gives it its order, and holds its standard input open. Aborted to end it.
    input: JoinHandle<()>,
    /// Whether it is wanted no more.
    is_ended: bool,
    /// Where it writes its report.
    report: File,
}

impl Checks {
    /// Runs a check when those before it have ended, unless it runs or waits already. Returns what became of those that could
    /// not be started.
    pub(crate) fn add(&mut self, order: CheckOrder, supervisor: &mut Supervisor) -> Vec<Event> {
        let wanted = (order.task, order.number);
        let runs = self.running.as_ref().is_some_and(|it| (it.task, it.number) == wanted && !it.is_ended);
        if runs || self.waiting.iter().any(|it| (it.task, it.number) == wanted) {
            return Vec::new();
        }
        self.waiting.push_back(order);
        self.start_next(supervisor)
    }

    /// Ends the check of a task. What it has found out counts for nothing.
    pub(crate) fn end(&mut self, task: TaskId) {
        self.waiting.retain(|order| order.task != task);
        if let Some(running) = self.running.as_mut().filter(|running| running.task == task) {
            running.input.abort();
            running.is_ended = true;
        }
    }

    /// Takes in that the process of the running check has ended, and starts the next one.
    pub(crate) fn ended(&mut self, how: How, supervisor: &mut Supervisor) -> Vec<Event> {
        let Some(Running { task, number, input, is_ended, report }) = self.running.take() else {
            return Vec::new();
        };
        input.abort();
        let mut events = Vec::new();
        if !is_ended {
            events.push(Event::Checked { task, number, ended: read_report(report, how) });
        }
        events.extend(self.start_next(supervisor));
        events
    }

    fn start_next(&mut self, supervisor: &mut Supervisor) -> Vec<Event> {
        let mut events = Vec::new();
        while self.running.is_none()
            && let Some(order) = self.waiting.pop_front()
        {
            let (task, number) = (order.task, order.number);
            match start(&order, supervisor) {
                Ok((input, report)) => {
                    self.running = Some(Running { task, number, input, is_ended: false, report });
                }
                Err(why) => events.push(Event::Checked { task, number, ended: Err(why) }),
            }
        }
        events
    }
}

fn start(order: &CheckOrder, supervisor: &mut Supervisor) -> Result<(JoinHandle<()>, File), String> {
    let cannot = |error: io::Error| format!("cannot start the check: {error}");
    let report =
        File::from(memfd_create("check", MemfdFlags::CLOEXEC).map_err(|errno| cannot(errno.into()))?);
    let (reader, writer) = io::pipe().map_err(cannot)?;
    let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(cannot)?;
    let text = serde_json::to_vec(order).map_err(|error| cannot(error.into()))?;
    let output: OwnedFd = report.try_clone().map_err(cannot)?.into();
    supervisor.start_check(reader.into(), output)?;
    // An order can be longer than a pipe holds.
    let input = tokio::spawn(async move {
        if let Err(error) = writer.write_all(&text).await {
            tracing::warn!("a check has not taken its order: {error}");
        }
        std::future::pending::<()>().await;
    });
    Ok((input, report))
}

fn read_report(mut report: File, how: How) -> Result<CheckReport, String> {
    let mut text = String::new();
    let read = report.rewind().and_then(|()| report.read_to_string(&mut text));
    read.map_err(|error| format!("cannot read what the check reports: {error}"))?;
    if let Ok(report) = serde_json::from_str(&text) {
        return Ok(report);
    }
    Err(match (text.trim(), how.signal) {
        ("", Some(signal)) => format!("its process was ended by signal {signal}"),
        ("", None) => "its process ended without a report".to_owned(),
        (why, _) => why.to_owned(),
    })
}
