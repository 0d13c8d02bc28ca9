//! Jobs: what takes time. Each is a process of its own (`team-worker job`), which ends when its
//! standard input does: so no job outlives the daemon that wants it.
//!
//! Jobs that share a key run one after the other, in the order in which they came: those for one
//! checkout, for one task, and the checks that work in place.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use teamd_shared::control::{SpawnOrder, TaskOrder};
use teamd_shared::id::RequestId;
use teamd_shared::job::{JobOrder, JobReport};
use teamd_shared::name::Name;
use teamd_shared::process::How;
use teamd_shared::task::TaskId;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::workers::Supervisor;
use crate::core::event::{Actor, ReplyTo, SpawnFacts};

/// How many jobs run at once.
const MOST: usize = 8;

/// What no two jobs use at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// The workspaces, in which checks work in place.
    InPlace,
    /// The checkout of a teammate.
    Checkout(Name),
    /// The work on a task.
    Task(TaskId),
    /// The integration branch, and the scratch clone.
    Integration,
}

/// What a job is for.
#[derive(Debug, PartialEq)]
pub(crate) enum Purpose {
    /// The check of a submission.
    Check { task: TaskId, number: u32 },
    /// The checkout of a teammate that is spawned.
    Spawn(ReplyTo, RequestId, Box<SpawnOrder>, Box<SpawnFacts>),
    /// The end of such a job: the member was told to leave before it had started. These wait for
    /// that.
    Withdrawn(Name, Vec<ReplyTo>),
    /// The branch or the commit that an order about a task needs.
    Task(ReplyTo, Actor, TaskOrder),
    /// The branch of a task that an idle teammate is to be given.
    Offer(Name, TaskId),
    /// What a teammate leaves of its work on a task.
    Keep(Name),
    /// The integration of checked work.
    Integrate { task: TaskId, number: u32 },
    /// The user's branch, which is to be integrated.
    Sync(ReplyTo, RequestId),
    /// What a command wants to know or have done, and nothing else.
    Answer(ReplyTo),
    /// The end of the checkout of a teammate that is forgotten.
    Forget(ReplyTo, Name),
}

impl Purpose {
    /// Returns the member that is spawned when the job has ended.
    fn spawns(&self) -> Option<&Name> {
        if let Self::Spawn(_, _, order, _) = self {
            Some(&order.name)
        } else {
            None
        }
    }

    /// Returns the member that was to be spawned, also if it is not any more.
    fn prepares(&self) -> Option<&Name> {
        if let Self::Withdrawn(name, _) = self {
            Some(name)
        } else {
            self.spawns()
        }
    }
}

/// A job that waits or runs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) keys: Vec<Key>,
    pub(crate) order: JobOrder,
    pub(crate) purpose: Purpose,
}

/// A job that has ended, or could not be started.
pub(crate) struct EndedJob {
    pub(crate) purpose: Purpose,
    /// What it reports, or why there is no report.
    pub(crate) ended: Result<JobReport, String>,
}

/// The jobs that run or wait.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    waiting: VecDeque<Job>,
    /// By the number of the process.
    running: BTreeMap<u64, Running>,
    /// The members that were told to leave when there was nothing of them, and when. A start that
    /// was asked for before that can come later: an earlier daemon was told of it.
    pub(crate) called_off: BTreeMap<Name, Duration>,
}

#[derive(Debug)]
struct Running {
    keys: Vec<Key>,
    purpose: Purpose,
    /// Gives it its order, and holds its standard input open. Aborted to end it.
    input: JoinHandle<()>,
    /// Whether it is wanted no more.
    is_ended: bool,
    /// Where it writes its report.
    report: File,
}

impl Jobs {
    /// Has a job done when those before it have ended that use the same. Returns those that could
    /// not be started.
    pub(crate) fn add(&mut self, job: Job, supervisor: &mut Supervisor) -> Vec<EndedJob> {
        // What is checked goes before what is to be checked: else that would be checked against an
        // older state.
        match job.purpose {
            Purpose::Integrate { .. } => self.waiting.push_front(job),
            _ => self.waiting.push_back(job),
        }
        self.start_next(supervisor)
    }

    /// Tells whether a job is under way for this.
    pub(crate) fn has(&self, purpose: &Purpose) -> bool {
        let running = self
            .running
            .values()
            .filter(|it| !it.is_ended)
            .map(|it| &it.purpose);
        running
            .chain(self.waiting.iter().map(|it| &it.purpose))
            .any(|it| it == purpose)
    }

    /// Tells whether the checkout is being made with which this member starts: its spawn is not
    /// decided yet.
    pub(crate) fn spawns(&self, name: &Name) -> bool {
        let running = self.running.values().map(|it| &it.purpose);
        running
            .chain(self.waiting.iter().map(|it| &it.purpose))
            .any(|it| it.spawns() == Some(name))
    }

    /// Ends what prepares the start of a member, also what has just ended: what waits is not begun.
    /// Returns who asked for these starts, and whether there was something: then `client` is
    /// answered when nothing of that is left.
    pub(crate) fn withdraw(
        &mut self,
        name: &Name,
        client: ReplyTo,
        ended: &mut Vec<EndedJob>,
    ) -> (Vec<ReplyTo>, bool) {
        let (withdrawn, waiting): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|job| job.purpose.spawns() == Some(name));
        self.waiting = waiting;
        ended.extend(withdrawn.into_iter().map(|job| EndedJob {
            purpose: job.purpose,
            ended: Err(String::new()),
        }));
        // They share a key: at most one runs, and that ends last.
        let running = self
            .running
            .values_mut()
            .filter(|it| it.purpose.prepares() == Some(name));
        let running = running.map(|it| {
            it.input.abort();
            &mut it.purpose
        });
        let ended = ended
            .iter_mut()
            .map(|it| &mut it.purpose)
            .filter(|it| it.prepares() == Some(name));
        let mut asked = Vec::new();
        let mut client = Some(client);
        for purpose in running.chain(ended) {
            let mut clients: Vec<ReplyTo> = client.take().into_iter().collect();
            match std::mem::replace(purpose, Purpose::Withdrawn(name.clone(), Vec::new())) {
                Purpose::Withdrawn(_, before) => clients.extend(before),
                Purpose::Spawn(of, ..) => asked.push(of),
                _ => {}
            }
            *purpose = Purpose::Withdrawn(name.clone(), clients);
        }
        (asked, client.is_none())
    }

    /// Ends the check of a task. What it has found out counts for nothing.
    pub(crate) fn end_check(&mut self, task: TaskId) {
        let is_it =
            |purpose: &Purpose| matches!(purpose, Purpose::Check { task: of, .. } if *of == task);
        self.waiting.retain(|job| !is_it(&job.purpose));
        for running in self
            .running
            .values_mut()
            .filter(|running| is_it(&running.purpose))
        {
            running.input.abort();
            running.is_ended = true;
        }
    }

    /// Takes in that the process of a job has ended, and starts what has waited for that.
    pub(crate) fn ended(
        &mut self,
        number: u64,
        how: How,
        supervisor: &mut Supervisor,
    ) -> Vec<EndedJob> {
        let Some(Running {
            purpose,
            input,
            is_ended,
            report,
            ..
        }) = self.running.remove(&number)
        else {
            return Vec::new();
        };
        input.abort();
        let mut ended = Vec::new();
        if !is_ended {
            ended.push(EndedJob {
                purpose,
                ended: read_report(report, how),
            });
        }
        ended.extend(self.start_next(supervisor));
        ended
    }

    fn start_next(&mut self, supervisor: &mut Supervisor) -> Vec<EndedJob> {
        let mut unstarted = Vec::new();
        let mut used: Vec<Key> = self
            .running
            .values()
            .flat_map(|it| it.keys.clone())
            .collect();
        for job in std::mem::take(&mut self.waiting) {
            let waits = self.running.len() >= MOST || job.keys.iter().any(|key| used.contains(key));
            used.extend(job.keys.iter().cloned());
            if waits {
                self.waiting.push_back(job);
                continue;
            }
            let Job {
                keys,
                order,
                purpose,
            } = job;
            match start(&order, supervisor) {
                Ok((number, input, report)) => {
                    self.running.insert(
                        number,
                        Running {
                            keys,
                            purpose,
                            input,
                            is_ended: false,
                            report,
                        },
                    );
                }
                Err(why) => unstarted.push(EndedJob {
                    purpose,
                    ended: Err(why),
                }),
            }
        }
        unstarted
    }
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
