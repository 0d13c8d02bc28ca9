//! Jobs: what takes time. Each is a process of its own (`team-worker job`), which ends when its
//! standard input does: so no job outlives the daemon that wants it.
//!
//! Jobs that share a key run one after the other, in the order in which they came: those for one
//! checkout, for one task, and the checks that work in place.
//!
//! A job for a checkout on a host has several steps, at home and there ([`hosted`]). It holds its keys
//! over all of them.

pub(crate) mod hosted;
pub(crate) mod steps;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use teamd_shared::control::Refusal;
use teamd_shared::job::{GitOrder, GitStep, JobOrder, JobReport};
use teamd_shared::name::Name;
use teamd_shared::process::How;
use teamd_shared::task::TaskId;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use self::hosted::{HostedJobs, StepHere};
use super::input::{Inputs, JobStep};
use super::links::Links;
use super::workers::Supervisor;
use crate::core::event::Event;

/// How many jobs run at once.
pub(crate) const MOST: usize = 8;

/// What no two jobs use at once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum JobKey {
    /// The workspaces, in which checks work in place.
    InPlace,
    /// The checkout of a teammate.
    Checkout(Name),
    /// The work on a task.
    Task(TaskId),
    /// The integration branch, and the scratch clone.
    Integration,
    /// The scratch clone of a host.
    ChecksOn(Name),
}

/// Runs jobs, and holds those that wait for others.
#[derive(Debug, Default)]
pub(crate) struct JobRunner {
    waiting: VecDeque<QueuedJob>,
    /// By the number of the process.
    running: BTreeMap<u64, StartedJob>,
    /// The keys of the jobs on hosts that have begun.
    on_hosts: BTreeMap<u64, Vec<JobKey>>,
    pub(crate) hosted: HostedJobs,
}

/// What starts the processes of jobs.
pub(crate) struct JobMeans<'a> {
    pub(crate) supervisor: &'a mut Supervisor,
    pub(crate) links: &'a mut Links,
    pub(crate) inputs: &'a Inputs,
}

/// Why a job has not begun.
enum Unstarted {
    /// Its host cannot be reached.
    Refused(Refusal),
    /// There is no process for it.
    Failed(String),
}

/// A job that has begun.
enum BegunJob {
    Process(JobProcess),
    OnHost,
}

#[derive(Debug)]
struct QueuedJob {
    job: u64,
    keys: Vec<JobKey>,
    order: JobOrder,
}

#[derive(Debug)]
struct StartedJob {
    job: u64,
    keys: Vec<JobKey>,
    process: JobProcess,
}

/// What the daemon holds of the process of a job.
#[derive(Debug)]
pub(crate) struct JobProcess {
    pub(crate) number: u64,
    /// Gives it its order, and holds its standard input open. Aborted to end it.
    pub(crate) input: JoinHandle<()>,
    /// Where it writes its report.
    pub(crate) report: File,
}

impl JobRunner {
    /// Runs a job when the jobs before it that share one of its keys have ended. Returns the ends
    /// of the jobs that could not be started.
    pub(crate) fn add(
        &mut self,
        job: u64,
        order: JobOrder,
        means: &mut JobMeans<'_>,
    ) -> Vec<Event> {
        let keys = keys(&order);
        let queued = QueuedJob { job, keys, order };
        // Checked work is integrated before other work is checked. Otherwise that work would be
        // checked against an older state.
        if integrates(&queued.order) {
            self.waiting.push_front(queued);
        } else {
            self.waiting.push_back(queued);
        }
        self.begin_next(means)
    }

    /// Ends a job. One that waits is not started. The process of another one ends by itself when
    /// its standard input is closed.
    pub(crate) fn end(&mut self, job: u64, means: &mut JobMeans<'_>) -> Vec<Event> {
        if self.hosted.end(job, means.links) {
            self.on_hosts.remove(&job);
            let mut events = vec![Event::JobEnded {
                job,
                ended: Err("it is no longer wanted".to_owned()),
            }];
            events.extend(self.begin_next(means));
            return events;
        }
        for started in self.running.values() {
            if started.job == job {
                started.process.input.abort();
            }
        }
        let before = self.waiting.len();
        self.waiting.retain(|queued| queued.job != job);
        if self.waiting.len() == before {
            return Vec::new();
        }
        vec![Event::JobEnded {
            job,
            ended: Err("it was not started".to_owned()),
        }]
    }

    /// Returns the end of a job whose process has ended, and starts the jobs that have waited for
    /// it.
    pub(crate) fn process_ended(
        &mut self,
        number: u64,
        how: How,
        means: &mut JobMeans<'_>,
    ) -> Vec<Event> {
        if let Some(step) = self.hosted.ended_here(number) {
            step.process.input.abort();
            // A job that is not wanted does not listen any more.
            drop(step.reply.send(read_report(step.process.report, how)));
            return Vec::new();
        }
        let Some(StartedJob { job, process, .. }) = self.running.remove(&number) else {
            return Vec::new();
        };
        process.input.abort();
        let ended = read_report(process.report, how);
        let mut events = vec![Event::JobEnded { job, ended }];
        events.extend(self.begin_next(means));
        events
    }

    /// Has a step of a job on a host done.
    pub(crate) fn step(&mut self, step: JobStep, means: &mut JobMeans<'_>) {
        if !self.hosted.is_wanted(step.job) {
            return;
        }
        if let Some(host) = step.host.clone() {
            self.hosted.begin_there(host, step, means.links);
            return;
        }
        let JobStep {
            job, order, reply, ..
        } = step;
        match start(&JobOrder::Git(Box::new(order)), means.supervisor) {
            Ok(process) => {
                let number = process.number;
                let step = StepHere {
                    job,
                    process,
                    reply,
                };
                self.hosted.begun_here(number, step);
            }
            // A job that is not wanted does not listen any more.
            Err(why) => drop(reply.send(Err(why))),
        }
    }

    /// Returns the end of a job on a host that has done its last step, and starts the jobs that have
    /// waited for it.
    pub(crate) fn hosted_job_ended(
        &mut self,
        job: u64,
        ended: Result<JobReport, String>,
        means: &mut JobMeans<'_>,
    ) -> Vec<Event> {
        if !self.hosted.ended(job) {
            return Vec::new();
        }
        self.on_hosts.remove(&job);
        let mut events = vec![Event::JobEnded { job, ended }];
        events.extend(self.begin_next(means));
        events
    }

    fn begin_next(&mut self, means: &mut JobMeans<'_>) -> Vec<Event> {
        let mut hosted = std::mem::take(&mut self.hosted);
        let events = self.start_next(|job, order| begin(job, order, &mut hosted, means));
        self.hosted = hosted;
        events
    }

    /// Starts the jobs that can be started now. Returns the ends of those that could not: they hold
    /// no key.
    fn start_next(
        &mut self,
        mut begin: impl FnMut(u64, &JobOrder) -> Result<BegunJob, Unstarted>,
    ) -> Vec<Event> {
        let mut unstarted = Vec::new();
        let mut used: Vec<JobKey> = self
            .running
            .values()
            .map(|started| &started.keys)
            .chain(self.on_hosts.values())
            .flatten()
            .cloned()
            .collect();
        for queued in std::mem::take(&mut self.waiting) {
            let is_used = queued.keys.iter().any(|key| used.contains(key));
            // One on a host may wait for that: it takes the place of no other.
            let is_full = self.running.len() >= MOST && host_of(&queued.order).is_none();
            if is_used || is_full {
                used.extend(queued.keys.iter().cloned());
                self.waiting.push_back(queued);
                continue;
            }
            let QueuedJob { job, keys, order } = queued;
            match begin(job, &order) {
                Ok(BegunJob::OnHost) => {
                    used.extend(keys.iter().cloned());
                    self.on_hosts.insert(job, keys);
                }
                Ok(BegunJob::Process(process)) => {
                    used.extend(keys.iter().cloned());
                    let number = process.number;
                    let started = StartedJob { job, keys, process };
                    self.running.insert(number, started);
                }
                Err(Unstarted::Refused(refusal)) => unstarted.push(Event::JobEnded {
                    job,
                    ended: Ok(JobReport::Refused(refusal)),
                }),
                Err(Unstarted::Failed(why)) => unstarted.push(Event::JobEnded {
                    job,
                    ended: Err(why),
                }),
            }
        }
        unstarted
    }
}

/// Returns the host that a job is done on; none: home.
fn host_of(order: &JobOrder) -> Option<(&Name, &GitOrder)> {
    let JobOrder::Git(order) = order else {
        return None;
    };
    let host = order.host.as_ref()?;
    Some((host, order))
}

fn begin(
    job: u64,
    order: &JobOrder,
    hosted: &mut HostedJobs,
    means: &mut JobMeans<'_>,
) -> Result<BegunJob, Unstarted> {
    match host_of(order) {
        Some((host, order)) => {
            let begun = hosted.begin(job, host, order, means);
            begun.map_err(Unstarted::Refused)?;
            Ok(BegunJob::OnHost)
        }
        None => start(order, means.supervisor)
            .map(BegunJob::Process)
            .map_err(Unstarted::Failed),
    }
}

fn integrates(order: &JobOrder) -> bool {
    matches!(order, JobOrder::Git(git) if matches!(git.step, GitStep::Integrate { .. }))
}

fn keys(order: &JobOrder) -> Vec<JobKey> {
    let git = match order {
        JobOrder::Check(check) => return vec![JobKey::InPlace, JobKey::Task(check.task)],
        JobOrder::Protected { .. } => return Vec::new(),
        JobOrder::Git(git) => git,
    };
    let place = match &git.host {
        Some(host) if git.name == Name::lead() => JobKey::ChecksOn(host.clone()),
        None if git.name == Name::lead() => JobKey::Integration,
        _ => JobKey::Checkout(git.name.clone()),
    };
    let task = match &git.step {
        GitStep::Branch { task, .. } | GitStep::Integrate { task, .. } => Some(*task),
        GitStep::Keep { task, .. } => *task,
        GitStep::Prepare(prepare) => Some(prepare.check.task),
        _ => None,
    };
    std::iter::once(place)
        .chain(task.map(JobKey::Task))
        .collect()
}

/// Starts the process of a job.
///
/// # Errors
/// Why it cannot be started.
pub(crate) fn start(order: &JobOrder, supervisor: &mut Supervisor) -> Result<JobProcess, String> {
    let channels =
        JobChannels::make(order).map_err(|error| format!("cannot start a job: {error}"))?;
    let JobChannels {
        text,
        reader,
        mut writer,
        output,
        report,
    } = channels;
    let number = supervisor.start_job(reader, output, order.bounds())?;
    // An order can be longer than a pipe holds.
    let input = tokio::spawn(async move {
        if let Err(error) = writer.write_all(&text).await {
            tracing::warn!("a job has not read its order: {error}");
        }
        std::future::pending::<()>().await;
    });
    Ok(JobProcess {
        number,
        input,
        report,
    })
}

/// What connects the daemon with the process of a job.
struct JobChannels {
    /// The order, as its process reads it.
    text: Vec<u8>,
    reader: OwnedFd,
    writer: pipe::Sender,
    output: OwnedFd,
    report: File,
}

impl JobChannels {
    fn make(order: &JobOrder) -> io::Result<Self> {
        let report = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
        let (reader, writer) = io::pipe()?;
        Ok(Self {
            text: serde_json::to_vec(order)?,
            reader: reader.into(),
            writer: pipe::Sender::from_owned_fd(writer.into())?,
            output: report.try_clone()?.into(),
            report,
        })
    }
}

/// Reads what a job has reported whose process has ended.
///
/// # Errors
/// Why it has reported nothing.
pub(crate) fn read_report(mut report: File, how: How) -> Result<JobReport, String> {
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

#[cfg(test)]
mod tests {
    use teamd_shared::environment::Environment;

    use super::*;

    fn removes_a_checkout() -> JobOrder {
        JobOrder::Git(Box::new(GitOrder {
            name: Name::new("alice").unwrap(),
            home: String::new(),
            environment: Environment::default(),
            territory: Vec::new(),
            visible: Vec::new(),
            copied: Vec::new(),
            timeout: 1.0,
            host: None,
            step: GitStep::Remove {
                root: String::new(),
                discard: false,
            },
        }))
    }

    #[tokio::test]
    async fn a_job_that_cannot_be_started_keeps_no_job_from_its_checkout() {
        let mut jobs = JobRunner::default();
        for job in 1..=3 {
            let order = removes_a_checkout();
            let keys = keys(&order);
            jobs.waiting.push_back(QueuedJob { job, keys, order });
        }
        let mut attempts = 0;
        let ends = jobs.start_next(|_, _| {
            attempts += 1;
            if attempts == 1 {
                return Err(Unstarted::Failed("no descriptor is left".to_owned()));
            }
            Ok(BegunJob::Process(JobProcess {
                number: attempts,
                input: tokio::spawn(async {}),
                report: tempfile::tempfile().unwrap(),
            }))
        });
        assert_eq!(ends.len(), 1);
        assert!(matches!(
            ends[0],
            Event::JobEnded {
                job: 1,
                ended: Err(_)
            }
        ));
        let running: Vec<u64> = jobs.running.values().map(|started| started.job).collect();
        assert_eq!(running, [2], "the third one waits for the second");
        assert_eq!(jobs.waiting.len(), 1);
    }
}
