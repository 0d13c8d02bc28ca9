//! Jobs: what takes time. Each is a process of its own (`team-worker job`), which ends when its
//! standard input does: so no job outlives the daemon that wants it.
//!
//! Jobs that share a key run one after the other, in the order in which they came: those for one
//! checkout, for one task, and the checks that work in place.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use teamd_shared::job::{GitStep, JobOrder, JobReport};
use teamd_shared::name::Name;
use teamd_shared::process::How;
use teamd_shared::task::TaskId;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::workers::Supervisor;
use crate::core::event::Event;

/// How many jobs run at once.
const MOST: usize = 8;

/// What no two jobs use at once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    /// The workspaces, in which checks work in place.
    InPlace,
    /// The checkout of a teammate.
    Checkout(Name),
    /// The work on a task.
    Task(TaskId),
    /// The integration branch, and the scratch clone.
    Integration,
}

/// The jobs that run or wait.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    waiting: VecDeque<Waiting>,
    /// By the number of the process.
    running: BTreeMap<u64, Running>,
}

#[derive(Debug)]
struct Waiting {
    job: u64,
    keys: Vec<Key>,
    order: JobOrder,
}

#[derive(Debug)]
struct Running {
    job: u64,
    keys: Vec<Key>,
    /// Gives it its order, and holds its standard input open. Aborted to end it.
    input: JoinHandle<()>,
    /// Where it writes its report.
    report: File,
}

impl Jobs {
    /// Has a job done when those before it have ended that use the same. Returns the ends of those
    /// that could not be started.
    pub(crate) fn add(
        &mut self,
        job: u64,
        order: JobOrder,
        supervisor: &mut Supervisor,
    ) -> Vec<Event> {
        let keys = keys(&order);
        let waiting = Waiting { job, keys, order };
        // What is checked goes before what is to be checked: else that would be checked against an
        // older state.
        if integrates(&waiting.order) {
            self.waiting.push_front(waiting);
        } else {
            self.waiting.push_back(waiting);
        }
        self.start_next(supervisor)
    }

    /// Ends a job: one that waits is not begun, and the process of another one ends by itself.
    pub(crate) fn end(&mut self, job: u64) -> Vec<Event> {
        for running in self.running.values() {
            if running.job == job {
                running.input.abort();
            }
        }
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.job != job);
        if self.waiting.len() == before {
            return Vec::new();
        }
        vec![Event::JobEnded {
            job,
            ended: Err("it was not begun".to_owned()),
        }]
    }

    /// Takes in that the process of a job has ended, and starts what has waited for that.
    pub(crate) fn process_ended(
        &mut self,
        number: u64,
        how: How,
        supervisor: &mut Supervisor,
    ) -> Vec<Event> {
        let Some(Running {
            job, input, report, ..
        }) = self.running.remove(&number)
        else {
            return Vec::new();
        };
        input.abort();
        let ended = read_report(report, how);
        let mut events = vec![Event::JobEnded { job, ended }];
        events.extend(self.start_next(supervisor));
        events
    }

    fn start_next(&mut self, supervisor: &mut Supervisor) -> Vec<Event> {
        let mut unstarted = Vec::new();
        let mut used: Vec<Key> = self
            .running
            .values()
            .flat_map(|it| it.keys.clone())
            .collect();
        for waiting in std::mem::take(&mut self.waiting) {
            let is_used = waiting.keys.iter().any(|key| used.contains(key));
            if is_used || self.running.len() >= MOST {
                used.extend(waiting.keys.iter().cloned());
                self.waiting.push_back(waiting);
                continue;
            }
            let Waiting { job, keys, order } = waiting;
            match start(&order, supervisor) {
                Ok((number, input, report)) => {
                    used.extend(keys.iter().cloned());
                    let running = Running {
                        job,
                        keys,
                        input,
                        report,
                    };
                    self.running.insert(number, running);
                }
                Err(why) => unstarted.push(Event::JobEnded {
                    job,
                    ended: Err(why),
                }),
            }
        }
        unstarted
    }
}

fn integrates(order: &JobOrder) -> bool {
    matches!(order, JobOrder::Git(git) if matches!(git.step, GitStep::Integrate { .. }))
}

fn keys(order: &JobOrder) -> Vec<Key> {
    let git = match order {
        JobOrder::Check(check) => return vec![Key::InPlace, Key::Task(check.task)],
        JobOrder::Protected { .. } => return Vec::new(),
        JobOrder::Git(git) => git,
    };
    let place = if git.name == Name::lead() {
        Key::Integration
    } else {
        Key::Checkout(git.name.clone())
    };
    let task = match &git.step {
        GitStep::Branch { task, .. } | GitStep::Integrate { task, .. } => Some(*task),
        GitStep::Keep { task, .. } => *task,
        GitStep::Prepare(prepare) => Some(prepare.check.task),
        _ => None,
    };
    std::iter::once(place).chain(task.map(Key::Task)).collect()
}

fn start(
    order: &JobOrder,
    supervisor: &mut Supervisor,
) -> Result<(u64, JoinHandle<()>, File), String> {
    let cannot = |error: io::Error| format!("cannot start a job: {error}");
    let report =
        File::from(memfd_create("job", MemfdFlags::CLOEXEC).map_err(|errno| cannot(errno.into()))?);
    let (reader, writer) = io::pipe().map_err(cannot)?;
    let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(cannot)?;
    let text = serde_json::to_vec(order).map_err(|error| cannot(error.into()))?;
    let output: OwnedFd = report.try_clone().map_err(cannot)?.into();
    let number = supervisor.start_job(reader.into(), output, order.bounds())?;
    // An order can be longer than a pipe holds.
    let input = tokio::spawn(async move {
        if let Err(error) = writer.write_all(&text).await {
            tracing::warn!("a job has not taken its order: {error}");
        }
        std::future::pending::<()>().await;
    });
    Ok((number, input, report))
}

fn read_report(mut report: File, how: How) -> Result<JobReport, String> {
    let mut text = String::new();
    let read = report
        .rewind()
        .and_then(|()| report.read_to_string(&mut text));
    read.map_err(|error| format!("cannot read what the job reports: {error}"))?;
    if let Ok(report) = serde_json::from_str(&text) {
        return Ok(report);
    }
    Err(match (text.trim(), how.signal) {
        ("", Some(signal)) => format!("its process was ended by signal {signal}"),
        ("", None) => "its process ended without a report".to_owned(),
        (why, _) => why.to_owned(),
    })
}
