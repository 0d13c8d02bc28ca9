//! The jobs on hosts: each is a task, which has its steps done one after the other ([`super::steps`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use teamd_shared::bundle::MAX_BULK;
use teamd_shared::control::Refusal;
use teamd_shared::job::{GitOrder, JobReport};
use teamd_shared::link::ToHost;
use teamd_shared::name::Name;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::steps::{HostedJob, unreachable};
use super::{JobMeans, JobProcess, MOST};
use crate::core::runtime::first_line;
use crate::io::input::JobStep;
use crate::io::links::Links;

type Reply = oneshot::Sender<Result<JobReport, String>>;

/// The longest path and the most notes that a host may say of a checkout.
const MAX_PATH: usize = 4096;
const MAX_NOTES: usize = 16;
/// How much of a text is taken, in characters.
const MAX_TEXT: usize = 8000;

/// All jobs on hosts.
#[derive(Debug)]
pub(crate) struct HostedJobs {
    tasks: BTreeMap<u64, JoinHandle<()>>,
    /// The steps at home, by the number of the process.
    here: BTreeMap<u64, StepHere>,
    /// The steps on hosts, by the number that the host was told.
    there: BTreeMap<u64, StepThere>,
    told: u64,
    /// For each host, whose copy is brought up to date by one job at a time.
    turns: BTreeMap<Name, Arc<Mutex<()>>>,
    /// The places for steps at home.
    places: Arc<Semaphore>,
}

impl Default for HostedJobs {
    fn default() -> Self {
        Self {
            tasks: BTreeMap::new(),
            here: BTreeMap::new(),
            there: BTreeMap::new(),
            told: 0,
            turns: BTreeMap::new(),
            places: Arc::new(Semaphore::new(MOST)),
        }
    }
}

#[derive(Debug)]
pub(super) struct StepHere {
    pub(super) job: u64,
    pub(super) process: JobProcess,
    pub(super) reply: Reply,
}

#[derive(Debug)]
struct StepThere {
    job: u64,
    host: Name,
    reply: Reply,
}

impl HostedJobs {
    /// Begins a job on a host.
    ///
    /// # Errors
    /// If the host cannot be reached.
    pub(super) fn begin(
        &mut self,
        job: u64,
        host: &Name,
        order: &GitOrder,
        means: &JobMeans<'_>,
    ) -> Result<(), Refusal> {
        let channel = means.links.bulk(host).ok_or_else(|| unreachable(host))?;
        let turn = self.turns.entry(host.clone()).or_default();
        let hosted = HostedJob {
            job,
            host: host.clone(),
            order: order.clone(),
            inputs: means.inputs.clone(),
            channel,
            turn: Arc::clone(turn),
            places: Arc::clone(&self.places),
        };
        self.tasks.insert(job, tokio::spawn(hosted.run()));
        Ok(())
    }

    /// Tells whether a job is still wanted.
    pub(super) fn is_wanted(&self, job: u64) -> bool {
        self.tasks.contains_key(&job)
    }

    /// Records a step that has begun at home.
    pub(super) fn begun_here(&mut self, number: u64, step: StepHere) {
        self.here.insert(number, step);
    }

    /// Returns the step at home whose process has ended.
    pub(super) fn ended_here(&mut self, number: u64) -> Option<StepHere> {
        self.here.remove(&number)
    }

    /// Has a host do a step.
    pub(super) fn begin_there(&mut self, host: Name, step: JobStep, links: &mut Links) {
        let JobStep {
            job, order, reply, ..
        } = step;
        // Without a reply, the job hears that the link broke.
        if !links.has_said(&host) {
            return;
        }
        self.told += 1;
        let number = self.told;
        let order = Box::new(order);
        links.say(&host, ToHost::Job { number, order });
        self.there.insert(number, StepThere { job, host, reply });
    }

    /// Passes on what a host reports of a step.
    pub(crate) fn ended_there(
        &mut self,
        host: &Name,
        number: u64,
        ended: Result<JobReport, String>,
    ) {
        let is_its = |step: &StepThere| step.host == *host;
        if !self.there.get(&number).is_some_and(is_its) {
            tracing::warn!("{host} reports a job that it does not have");
            return;
        }
        let Some(step) = self.there.remove(&number) else {
            return;
        };
        let ended = checked(host, ended);
        // A job that is not wanted does not listen any more.
        drop(step.reply.send(ended));
    }

    /// Ends the steps on a host whose link has broken: their jobs hear of it.
    pub(crate) fn link_broke(&mut self, host: &Name) {
        self.there.retain(|_, step| step.host != *host);
    }

    /// Ends a job that is not wanted any more. Returns whether it was there.
    pub(super) fn end(&mut self, job: u64, links: &mut Links) -> bool {
        let Some(task) = self.tasks.remove(&job) else {
            return false;
        };
        task.abort();
        for step in self.here.values().filter(|step| step.job == job) {
            step.process.input.abort();
        }
        for (number, step) in &self.there {
            if step.job == job {
                let number = *number;
                links.say(&step.host, ToHost::EndJob { number });
            }
        }
        self.there.retain(|_, step| step.job != job);
        true
    }

    /// Forgets a job that has done its last step. Returns whether it was still wanted.
    pub(super) fn ended(&mut self, job: u64) -> bool {
        self.tasks.remove(&job).is_some()
    }
}

/// Returns what a host reports, as far as a host may say it: its texts are short, its paths are
/// paths, and nothing that it says is larger than a file may be.
fn checked(host: &Name, ended: Result<JobReport, String>) -> Result<JobReport, String> {
    let report = ended.map_err(|why| format!("{host}: {}", short(&why)))?;
    match report {
        JobReport::Refused(refusal) => {
            let Refusal {
                code,
                message,
                hint,
            } = refusal;
            let refusal = Refusal::new(code, format!("{host}: {}", short(&message)));
            Ok(JobReport::Refused(match hint {
                Some(hint) => refusal.hint(short(&hint)),
                None => refusal,
            }))
        }
        JobReport::Made {
            mut checkout,
            workspace,
        } => {
            let paths = [&checkout.root, &checkout.repository, &workspace];
            if !paths.into_iter().all(|path| is_path(path)) {
                return Err(format!("{host} names no path of a checkout"));
            }
            checkout.notes.truncate(MAX_NOTES);
            for note in &mut checkout.notes {
                *note = first_line(note);
            }
            Ok(JobReport::Made {
                checkout,
                workspace,
            })
        }
        JobReport::Packed(packed) => {
            let length = packed.pack.as_ref().map_or(0, |pack| pack.file.length);
            if length > MAX_BULK {
                return Err(format!(
                    "{host} has packed {length} bytes, which is too much"
                ));
            }
            Ok(JobReport::Packed(packed))
        }
        JobReport::CheckedThere { mut report, log } => {
            report.output = short(&report.output);
            report.how = first_line(&report.how);
            report.touched_protected = report.touched_protected.as_deref().map(first_line);
            report.conflicts.truncate(MAX_NOTES);
            Ok(JobReport::CheckedThere { report, log })
        }
        JobReport::Branched(kept) => Ok(JobReport::Branched(
            kept.iter()
                .take(MAX_NOTES)
                .map(|name| first_line(name))
                .collect(),
        )),
        report => Ok(report),
    }
}

/// Tells whether what a host says is a path.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= MAX_PATH && !path.contains(char::is_control)
}

/// Returns a text of another machine without what a terminal would obey. It may have lines: the output
/// of a setup has.
fn short(text: &str) -> String {
    let visible = text.chars().filter(|it| *it == '\n' || !it.is_control());
    let text: String = visible.take(MAX_TEXT).collect();
    // No line of it passes for one of ours.
    text.replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_of_a_checkout_is_a_path() {
        let host = Name::new("box").unwrap();
        let made = |root: &str| {
            let checkout = teamd_shared::checkout::Checkout {
                root: root.to_owned(),
                source: String::new(),
                repository: "/far/team.git".to_owned(),
                notes: vec!["one\ntwo".to_owned(); 20],
            };
            let workspace = "/far/work".to_owned();
            checked(
                &host,
                Ok(JobReport::Made {
                    checkout,
                    workspace,
                }),
            )
        };
        let Ok(JobReport::Made { checkout, .. }) = made("/far/work") else {
            panic!("it is refused");
        };
        assert_eq!(checkout.notes.len(), MAX_NOTES);
        assert!(!checkout.notes[0].contains('\n'));
        for bad in ["", "work", "/a\n/b", &format!("/{}", "x".repeat(MAX_PATH))] {
            assert!(made(bad).is_err(), "{bad}");
        }
    }
}
