//! The jobs of a simulated daemon: what each does to the world, and what it reports. Those for one
//! place run one after the other; none outlives its daemon, and what it has done by then stays.

use std::collections::BTreeMap;

use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::checkout::Checkout;
use teamd_shared::fingerprint::Baseline;
use teamd_shared::job::{GitOrder, GitStep, JobOrder, JobReport};
use teamd_shared::merged::Merged;
use teamd_shared::name::Name;
use teamd_shared::task::{TaskId, TaskStatus};

use super::super::promises::check;
use super::daemon::Daemon;
use super::world::World;
use crate::core::event::Event;

/// A job that waits or runs.
pub(super) struct SimJob {
    number: u64,
    order: JobOrder,
    is_wanted: bool,
}

/// The checkouts that are there, and the task whose branch each is at.
pub(in super::super) type Checkouts = BTreeMap<Name, Option<TaskId>>;

impl SimJob {
    fn check(&self) -> Option<&CheckOrder> {
        match &self.order {
            JobOrder::Check(check) => Some(check),
            JobOrder::Git(git) => match &git.step {
                GitStep::Prepare(prepare) => Some(&prepare.check),
                _ => None,
            },
            JobOrder::Protected { .. } => None,
        }
    }

    /// Returns the task that it checks.
    fn task(&self) -> Option<TaskId> {
        Some(self.check()?.task)
    }

    /// Returns the teammate whose checkout it makes.
    pub(super) fn makes(&self) -> Option<&Name> {
        match &self.order {
            JobOrder::Git(git) if matches!(git.step, GitStep::Make(_)) => Some(&git.name),
            _ => None,
        }
    }

    fn shares_its_place(&self, other: &Self) -> bool {
        match (&self.order, &other.order) {
            (JobOrder::Check(_), JobOrder::Check(_)) => true,
            (JobOrder::Git(one), JobOrder::Git(other)) => one.name == other.name,
            _ => false,
        }
    }
}

impl World {
    pub(super) fn begins_job(&mut self, daemon: &mut Daemon, number: u64, order: &JobOrder) {
        let job = SimJob {
            number,
            order: order.clone(),
            is_wanted: true,
        };
        if let Some(order) = job.check() {
            let status = self
                .promises
                .fold
                .tasks
                .get(&order.task)
                .map(|it| it.status);
            let checked = check(status == Some(TaskStatus::InReview), || {
                format!("task {} is checked, and is {status:?}", order.task)
            });
            self.check(checked);
            self.looks_at_its_author(order.task, "begins");
        }
        daemon.jobs.push(job);
    }

    /// Ends a job. It may have ended by itself just before, which is heard later.
    pub(super) fn ends_job(daemon: &mut Daemon, number: u64) {
        for job in &mut daemon.jobs {
            job.is_wanted &= job.number != number;
        }
    }

    /// Returns the places in the queue of the jobs that run.
    pub(super) fn running_jobs(daemon: &Daemon) -> Vec<usize> {
        let first = |&place: &usize| {
            let (before, rest) = daemon.jobs.split_at(place);
            !before.iter().any(|job| job.shares_its_place(&rest[0]))
        };
        (0..daemon.jobs.len()).filter(first).collect()
    }

    /// Lets a job end: it has done what it was to do, could not, or was not run.
    pub(super) fn a_job_ends(&mut self, daemon: &mut Daemon) -> Option<Event> {
        let mut running = Self::running_jobs(daemon);
        // An end that is heard late comes when the task was submitted again.
        let overtaken = running.iter().copied().find(|&place| {
            let job = &daemon.jobs[place];
            let later = &daemon.jobs[place + 1..];
            !job.is_wanted && job.task().is_some() && later.iter().any(|it| it.task() == job.task())
        });
        if !self.calm && !self.rng.one_in(4) {
            running.retain(|&place| daemon.jobs[place].is_wanted);
        }
        let place = overtaken.or_else(|| self.rng.pick(&running))?;
        let job = daemon.jobs.remove(place);
        let fails = !self.calm && self.rng.one_in(6) || !job.is_wanted && self.rng.one_in(2);
        let ended = if fails {
            Err("no room".to_owned())
        } else {
            Ok(self.does_job(&job))
        };
        self.note(|| format!("job {} ends: {ended:?}", job.number));
        Some(Event::JobEnded {
            job: job.number,
            ended,
        })
    }

    /// Loses the jobs with their daemon. What they have done by then stays.
    pub(super) fn loses_jobs(&mut self, daemon: &mut Daemon) {
        for place in Self::running_jobs(daemon) {
            if self.rng.one_in(2) {
                let job = &daemon.jobs[place];
                let lost = self.effect_of(job);
                self.note(|| format!("  job {} was done, and is lost: {lost:?}", job.number));
            }
        }
        daemon.jobs.clear();
    }

    fn does_job(&mut self, job: &SimJob) -> JobReport {
        let Some(order) = job.check() else {
            return self.effect_of(job);
        };
        self.looks_at_its_author(order.task, "ends");
        let passed = self.rng.below(5) > 1;
        let of = (order.task, order.number);
        self.promises.tasks.check_ended(of, passed);
        let commit = self.next_commit();
        let is_merged = matches!(job.order, JobOrder::Git(_));
        let merged = is_merged.then(|| Merged {
            commit,
            old: "0".repeat(40),
        });
        JobReport::Checked(CheckReport {
            exit: Some(i32::from(!passed)),
            seconds: 1.0,
            starved: !passed && self.rng.one_in(4),
            merged,
            ..CheckReport::default()
        })
    }

    fn effect_of(&mut self, job: &SimJob) -> JobReport {
        match &job.order {
            JobOrder::Git(git) => self.works_with_git(git),
            JobOrder::Check(_) => JobReport::Checked(CheckReport::default()),
            JobOrder::Protected { .. } => JobReport::Protected(Baseline::Hash(String::new())),
        }
    }

    fn works_with_git(&mut self, git: &GitOrder) -> JobReport {
        let name = &git.name;
        match &git.step {
            GitStep::Make(_) => {
                self.checkouts.entry(name.clone()).or_default();
                let root = format!("/home/u/web.team/{name}");
                let workspace = root.clone();
                let checkout = Checkout {
                    root,
                    ..Checkout::default()
                };
                JobReport::Made {
                    checkout,
                    workspace,
                }
            }
            GitStep::Branch { task, .. } => {
                let checked = self.promises.branches(name, *task);
                self.check(checked);
                self.checkouts.insert(name.clone(), Some(*task));
                JobReport::Branched(Vec::new())
            }
            GitStep::Keep { task, submit, .. } => {
                let commit = self.next_commit();
                if let Some(task) = task.filter(|_| *submit) {
                    self.promises
                        .commits
                        .insert(commit.clone(), (name.clone(), task));
                }
                JobReport::Kept {
                    commit,
                    reference: None,
                }
            }
            GitStep::Integrate { .. } => JobReport::Integrated(self.calm || !self.rng.one_in(4)),
            GitStep::Remove { .. } => {
                self.checkouts.remove(name);
                JobReport::Removed
            }
            _ => JobReport::Text(String::new()),
        }
    }

    fn next_commit(&mut self) -> String {
        self.commits += 1;
        format!("{:040x}", self.commits)
    }

    /// Looks whether the author of work that is checked where it works changes something.
    fn looks_at_its_author(&mut self, task: TaskId, when: &str) {
        let task = self.promises.fold.tasks.get(&task);
        let Some(author) = task.and_then(|task| task.checked_in_place()) else {
            return;
        };
        let changes = self
            .processes
            .values()
            .any(|worker| worker.incarnation.name == *author && worker.changes());
        let checked = check(!changes, || {
            format!("a check {when} while {author} changes something")
        });
        self.check(checked);
    }
}
