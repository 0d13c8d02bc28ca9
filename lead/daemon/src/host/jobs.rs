//! The jobs of this host: those that wait, and those that run. None outlives the link on which it was
//! ordered: home orders it again.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use teamd_shared::bundle;
use teamd_shared::job::{GitOrder, JobOrder, JobReport};
use teamd_shared::process::How;
use uuid::Uuid;

use crate::io::jobs::{JobProcess, MOST, read_report, start};
use crate::io::workers::Supervisor;

/// The jobs of the present link.
#[derive(Debug)]
pub(super) struct HostJobs {
    /// Where the copy of the team repository is, hidden from tools.
    pub(super) git: PathBuf,
    /// Where checkouts are made.
    pub(super) checkouts: PathBuf,
    waiting: VecDeque<HostJob>,
    /// By the number of the process.
    running: BTreeMap<u64, RunningHostJob>,
}

#[derive(Debug)]
struct HostJob {
    /// What home calls it.
    number: u64,
    order: GitOrder,
}

#[derive(Debug)]
struct RunningHostJob {
    /// What home calls it; none if home does not want it any more.
    number: Option<u64>,
    process: JobProcess,
}

impl HostJobs {
    pub(super) fn new(git: PathBuf, checkouts: PathBuf) -> Self {
        Self {
            git,
            checkouts,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// Returns where the file with this name is, or is to be.
    pub(super) fn file(&self, name: Uuid) -> PathBuf {
        bundle::file(&self.git, name)
    }

    /// Lets a job wait for its turn.
    pub(super) fn add(&mut self, number: u64, order: GitOrder) {
        self.waiting.push_back(HostJob { number, order });
    }

    /// Ends a job.
    pub(super) fn end(&mut self, number: u64) {
        self.waiting.retain(|job| job.number != number);
        for running in self.running.values_mut() {
            if running.number == Some(number) {
                running.end();
            }
        }
    }

    /// Ends all jobs, and removes what they have left.
    pub(super) fn end_all(&mut self) {
        if let Err(error) = bundle::tidy(&self.git) {
            tracing::warn!("what an earlier job has left cannot be removed: {error}");
        }
        self.waiting.clear();
        for running in self.running.values_mut() {
            running.end();
        }
    }

    /// Takes the end of a process. Returns the job that has ended with it, if home still wants that,
    /// and how.
    pub(super) fn process_ended(
        &mut self,
        process: u64,
        how: How,
    ) -> Option<(u64, Result<JobReport, String>)> {
        let running = self.running.remove(&process)?;
        running.process.input.abort();
        let number = running.number?;
        Some((number, read_report(running.process.report, how)))
    }

    /// Starts what waits. Returns the jobs that could not be started, each with the reason.
    pub(super) fn start_next(&mut self, supervisor: &mut Supervisor) -> Vec<(u64, String)> {
        let mut unstarted = Vec::new();
        while self.running.len() < MOST {
            let Some(HostJob { number, order }) = self.waiting.pop_front() else {
                break;
            };
            match start(&JobOrder::Git(Box::new(order)), supervisor) {
                Ok(process) => {
                    let running = RunningHostJob {
                        number: Some(number),
                        process,
                    };
                    self.running.insert(running.process.number, running);
                }
                Err(why) => unstarted.push((number, why)),
            }
        }
        unstarted
    }
}

impl RunningHostJob {
    fn end(&mut self) {
        self.number = None;
        // Its process ends when its standard input is closed.
        self.process.input.abort();
    }
}
