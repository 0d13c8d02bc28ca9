//! The orders of jobs that work with `git`: for the checkouts of teammates, and the team
//! repository.

use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::check::CheckOrder;
use teamd_shared::checkout::{Checkout, CheckoutSettings};
use teamd_shared::control::SpawnOrder;
use teamd_shared::environment::Environment;
use teamd_shared::job::{GitOrder, GitStep, JobOrder, MakeOrder, PrepareOrder};
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::place::follow;
use teamd_shared::settings::Settings;
use teamd_shared::state::StateDir;
use teamd_shared::task::{Task, TaskId};
use teamd_shared::team_dir::TeamDir;

use super::jobs::{Job, Key, Purpose};
use super::owned::Owned;
use crate::core::event::SpawnFacts;

/// Where the daemon keeps what is `git`'s of this team, and how checkouts are made.
#[derive(Debug, Default)]
pub(crate) struct Checkouts {
    /// Below the state directory, which is hidden from tools.
    home: String,
    /// Where checkouts lie if nothing can be made beside the repository.
    otherwise: String,
    at: Option<String>,
    settings: CheckoutSettings,
}

impl Checkouts {
    /// Says where they are; nothing is made.
    pub(crate) fn of(dir: &TeamDir, settings: &Settings) -> Self {
        let state = StateDir::of_process().ok().map(StateDir::real);
        let text = |of: &dyn Fn(&StateDir) -> PathBuf| {
            state
                .as_ref()
                .map(of)
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        Self {
            home: text(&|state| state.of_git(dir)),
            otherwise: text(&|state| {
                state
                    .root()
                    .with_file_name("teamd.checkouts")
                    .join(StateDir::name_of_team(dir))
            }),
            at: settings.checkouts.clone(),
            settings: settings.checkout.clone(),
        }
    }
}

impl Owned {
    /// Has a job done that works with `git`, unless the same one waits or runs.
    pub(crate) fn add_git_job(&mut self, team: &Team, job: GitJob) {
        let GitJob {
            name,
            environment,
            step,
            purpose,
            task,
            visible,
        } = job;
        let visible = see(team, (&name, &step), visible);
        let order = GitOrder {
            name: name.clone(),
            home: self.checkouts.home.clone(),
            environment: environment.unwrap_or_else(Environment::of_self),
            territory: team
                .territory()
                .map(|(path, _)| path.to_string_lossy().into_owned())
                .collect(),
            visible,
            copied: self.checkouts.settings.copy.clone(),
            timeout: team.work.timeout().as_secs_f64(),
            step,
        };
        let own = if name == Name::lead() {
            Key::Integration
        } else {
            Key::Checkout(name)
        };
        let keys = [own].into_iter().chain(task.map(Key::Task)).collect();
        self.add_job(Job {
            keys,
            order: JobOrder::Git(Box::new(order)),
            purpose,
        });
    }

    /// Has the user's repository worked with, or the integration branch.
    pub(crate) fn add_integration_job(&mut self, team: &Team, step: GitStep, purpose: Purpose) {
        let name = Name::lead();
        let task = match purpose {
            Purpose::Check { task, .. } | Purpose::Integrate { task, .. } => Some(task),
            _ => None,
        };
        self.add_git_job(
            team,
            GitJob {
                name,
                environment: None,
                step,
                purpose,
                task,
                visible: Vec::new(),
            },
        );
    }

    /// Has submitted work merged and checked.
    pub(crate) fn prepare(
        &mut self,
        team: &Team,
        (task, commit): (&Task, &str),
        check: CheckOrder,
        purpose: Purpose,
    ) {
        let summary = task
            .submission
            .as_ref()
            .map(|it| it.summary.as_str())
            .unwrap_or_default();
        let id = task.id;
        let subject = &task.subject;
        let title = format!("Merge task {id}: {subject}");
        let trailer = format!("Task: {id}");
        let text = [&title, summary.trim(), &trailer];
        let prepare = PrepareOrder {
            commit: commit.to_owned(),
            message: text
                .iter()
                .filter(|part| !part.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join("\n\n"),
            check,
            settings: self.checkouts.settings.clone(),
            cache: team.work.cache.clone(),
        };
        self.add_integration_job(team, GitStep::Prepare(Box::new(prepare)), purpose);
    }

    /// Has a job done.
    pub(crate) fn add_job(&mut self, job: Job) {
        self.ended_jobs
            .extend(self.jobs.add(job, &mut self.supervisor));
    }

    /// Has the checkout of a teammate made that is spawned.
    pub(crate) fn make_checkout(
        &mut self,
        team: &Team,
        before: Option<&Checkout>,
        purpose: (
            SpawnOrder,
            SpawnFacts,
            impl FnOnce(Box<SpawnOrder>, Box<SpawnFacts>) -> Purpose,
        ),
    ) {
        let (order, facts, purpose) = purpose;
        let recorded = if order.resume {
            team.members
                .get(&order.name)
                .map(|state| &state.record.terms)
        } else {
            None
        };
        let named = order
            .terms
            .workspace
            .clone()
            .filter(|it| recorded.is_none_or(|terms| terms.workspace != *it));
        let source = named.or_else(|| before.map(|it| it.source.clone()));
        let terms = recorded.cloned().unwrap_or_default().with(&order.terms);
        let step = GitStep::Make(Box::new(MakeOrder {
            source: source.unwrap_or_else(|| facts.default_workspace.clone()),
            at: self.checkouts.at.clone(),
            otherwise: self.checkouts.otherwise.clone(),
            settings: self.checkouts.settings.clone(),
            sandbox: terms.sandbox,
            bounds: terms.bounds,
        }));
        let name = order.name.clone();
        let environment = Some(order.environment.clone());
        let purpose = purpose(Box::new(order), Box::new(facts));
        self.add_git_job(
            team,
            GitJob {
                name,
                environment,
                step,
                purpose,
                task: None,
                visible: Vec::new(),
            },
        );
    }
}

/// A job that works with `git`, as far as the team does not say it.
pub(crate) struct GitJob {
    pub(crate) name: Name,
    /// The environment of the teammate, if it is known.
    pub(crate) environment: Option<Environment>,
    pub(crate) step: GitStep,
    pub(crate) purpose: Purpose,
    /// The task that it is about.
    pub(crate) task: Option<TaskId>,
    /// What is seen of the home beside what the teammates see of it.
    pub(crate) visible: Vec<String>,
}

/// Returns what a job sees of the home beside what tools need: what its teammate sees, or for the
/// lead what any of them does. A path on which a link stands that a teammate can have made is left
/// out.
fn see(team: &Team, (name, step): (&Name, &GitStep), more: Vec<String>) -> Vec<String> {
    let mut named = more;
    if let GitStep::Make(make) = step {
        named.extend(make.sandbox.visible.iter().cloned());
    }
    for (member, state) in &team.members {
        if member == name || *name == Name::lead() {
            named.extend(state.record.terms.sandbox.visible.iter().cloned());
        }
    }
    let mut seen: Vec<_> = named
        .iter()
        .filter_map(|path| {
            let found = follow(Path::new(path), |link| {
                if team.territory().any(|(above, _)| link.starts_with(above)) {
                    Err(io::Error::from(io::ErrorKind::PermissionDenied))
                } else {
                    Ok(())
                }
            });
            found.ok()?.into_os_string().into_string().ok()
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

/// Returns the checkout of a teammate, if it has one.
pub(crate) fn checkout_of<'a>(team: &'a Team, name: &Name) -> Option<&'a Checkout> {
    team.members.get(name)?.record.terms.checkout.as_ref()
}
