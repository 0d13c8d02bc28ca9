//! What needs a job before it is decided, and what has become of jobs. Nothing is decided here.

use std::path::Path;

use teamd_shared::clock::since_boot;
use teamd_shared::control::{
    Command, Done, IntegrationOrder, Refusal, RefusalCode, ShutdownOrder, SpawnOrder, TaskOrder,
};
use teamd_shared::fingerprint::Baseline;
use teamd_shared::id::RequestId;
use teamd_shared::job::{GitReport, GitStep, JobOrder, JobReport};
use teamd_shared::name::Name;
use teamd_shared::repository::cannot_commit;
use teamd_shared::task::TaskStatus;
use teamd_shared::terms::{SandboxMode, Terms};

use super::EventLoop;
use crate::core::event::{Actor, Event, ReplyTo, SpawnFacts};
use crate::io::checkouts::{GitJob, checkout_of};
use crate::io::jobs::{EndedJob, Job, Purpose};
use crate::io::owned::Owned;

impl EventLoop {
    /// Takes in a spawn: a checkout is made before it is decided.
    pub(super) fn spawn_asked(
        &mut self,
        client: ReplyTo,
        id: RequestId,
        order: Box<SpawnOrder>,
        facts: SpawnFacts,
    ) -> Option<Event> {
        if self
            .owned
            .jobs
            .called_off
            .get(&order.name)
            .is_some_and(|at| order.asked_at < *at)
        {
            self.refuse_withdrawn(client, &order.name);
            return None;
        }
        let team = &self.dispatcher.team;
        let before = team.members.get(&order.name).map(|state| &state.record);
        let recorded = if order.resume {
            before.and_then(|it| it.terms.checkout.clone())
        } else {
            None
        };
        let is_wanted = order.terms.checkout.unwrap_or(recorded.is_some());
        // What runs already is refused, or joined.
        let runs = before.is_some_and(|it| !it.phase.is_ended());
        let is_decided =
            runs || facts.held.is_some() || team.stopping || (order.resume && before.is_none());
        if !is_wanted && !is_decided {
            let recorded = if order.resume {
                before.map(|it| it.terms.clone())
            } else {
                None
            };
            if let Some(refusal) = no_commit_in_place(&order, recorded, &facts) {
                self.owned.connections.reply(client, Err(refusal));
                return None;
            }
        }
        if !is_wanted || is_decided {
            return Some(Event::Spawn(client, id, order, facts));
        }
        let purpose = |order, facts| Purpose::Spawn(client, id, order, facts);
        self.owned
            .make_checkout(team, recorded.as_ref(), (*order, facts, purpose));
        None
    }

    /// Takes in an order about a task: of a teammate with a checkout, a claim needs a branch, and a
    /// submission a commit.
    pub(super) fn task_asked(
        &mut self,
        client: ReplyTo,
        by: Actor,
        order: TaskOrder,
    ) -> Option<Event> {
        let team = &self.dispatcher.team;
        let step = match (&order, &by) {
            (TaskOrder::Claim(id), Actor::Member(name)) => {
                checkout_of(team, name).and_then(|checkout| {
                    let member = &team.members.get(name)?.record;
                    let task = match id {
                        Some(id) => team.tasks.get(id)?,
                        None => team.next_for(member, &Default::default())?,
                    };
                    // What is refused in any case needs no branch.
                    let may = task.status == TaskStatus::Pending && task.is_for(member);
                    let may = may && team.blockers(task).is_empty() && team.held_by(name).is_none();
                    may.then(|| {
                        let branch = GitStep::Branch {
                            root: checkout.root.clone(),
                            task: task.id,
                        };
                        (
                            name.clone(),
                            task.id,
                            branch,
                            TaskOrder::Claim(Some(task.id)),
                        )
                    })
                })
            }
            (TaskOrder::Submit(id, _), _) => team.tasks.get(id).and_then(|task| {
                let owner = task
                    .owner
                    .as_ref()
                    .filter(|_| task.status == TaskStatus::InProgress)?;
                let may = !by.is_teammate() || by.as_str() == owner.as_str();
                let root = checkout_of(team, owner).filter(|_| may)?.root.clone();
                let keep = GitStep::Keep {
                    root,
                    task: Some(*id),
                    submit: true,
                };
                Some((owner.clone(), *id, keep, order.clone()))
            }),
            _ => None,
        };
        let Some((name, id, step, order)) = step else {
            if !sets_work(&by, &order) || team.work.protect.is_empty() {
                return Some(Event::Task(client, by, order, None));
            }
            let root = self.owned.dir.workspace().to_string_lossy().into_owned();
            let patterns = team.work.protect.clone();
            let purpose = Purpose::Task(client, by, order);
            self.owned.add_job(Job {
                keys: Vec::new(),
                order: JobOrder::Protected { root, patterns },
                purpose,
            });
            return None;
        };
        let purpose = Purpose::Task(client, by, order);
        let environment = self
            .dispatcher
            .live
            .member(&name)
            .and_then(|it| it.environment.clone());
        self.owned.add_git_job(
            team,
            GitJob {
                name,
                environment,
                step,
                purpose,
                task: Some(id),
                visible: Vec::new(),
            },
        );
        None
    }

    /// Takes in that a member is to leave. One that has not started, as its checkout is still being
    /// made, does not start: so no request waits for what the next daemon would know nothing of.
    pub(super) fn shutdown_asked(
        &mut self,
        client: ReplyTo,
        order: ShutdownOrder,
    ) -> Option<Event> {
        let name = &order.name;
        let runs = self
            .dispatcher
            .team
            .members
            .get(name)
            .is_some_and(|state| !state.record.phase.is_ended());
        if runs {
            return Some(Event::Command(client, Command::Shutdown(order)));
        }
        let Owned {
            jobs, ended_jobs, ..
        } = &mut self.owned;
        let (spawns, was_prepared) = jobs.withdraw(name, client, ended_jobs);
        for spawn in spawns {
            self.refuse_withdrawn(spawn, name);
        }
        if was_prepared {
            return None;
        }
        self.owned
            .jobs
            .called_off
            .insert(name.clone(), since_boot());
        Some(Event::Command(client, Command::Shutdown(order)))
    }

    fn refuse_withdrawn(&mut self, spawn: ReplyTo, name: &Name) {
        let refusal = Refusal::new(
            RefusalCode::Conflict,
            format!("{name} was shut down before it had started"),
        )
        .hint(format!("`teamctl spawn {name}` again starts it"));
        self.owned.connections.reply(spawn, Err(refusal));
    }

    /// Takes in that a teammate is to be forgotten: its checkout goes before.
    pub(super) fn forget_asked(
        &mut self,
        client: ReplyTo,
        name: Name,
        discard: bool,
    ) -> Option<Event> {
        if self.owned.jobs.spawns(&name) {
            let refusal = Refusal::new(RefusalCode::Conflict, format!("{name} is being started"))
                .hint(format!(
                    "wait until it is ready, then `teamctl shutdown {name}` first"
                ));
            self.owned.connections.reply(client, Err(refusal));
            return None;
        }
        let team = &self.dispatcher.team;
        let may = team
            .members
            .get(&name)
            .is_some_and(|state| state.record.phase.is_ended())
            && team.in_review_of(&name).is_none();
        if !may {
            return Some(Event::Command(client, Command::Forget { name, discard }));
        }
        let Some(checkout) = checkout_of(team, &name) else {
            return Some(Event::Command(client, Command::Forget { name, discard }));
        };
        let step = GitStep::Remove {
            root: checkout.root.clone(),
            discard,
        };
        let purpose = Purpose::Forget(client, name.clone());
        self.owned.add_git_job(
            team,
            GitJob {
                name,
                environment: None,
                step,
                purpose,
                task: None,
                visible: Vec::new(),
            },
        );
        None
    }

    /// Takes in what a person wants of the integration branch.
    pub(super) fn integration_asked(
        &mut self,
        client: ReplyTo,
        command: IntegrationOrder,
    ) -> Option<Event> {
        let team = &self.dispatcher.team;
        let (step, purpose) = match command {
            IntegrationOrder::Sync { id, into } => {
                (GitStep::Sync { into }, Purpose::Sync(client, id))
            }
            IntegrationOrder::Land {
                into,
                environment,
                visible,
            } => {
                let step = GitStep::Land { into };
                let purpose = Purpose::Answer(client);
                let job = GitJob {
                    name: Name::lead(),
                    environment,
                    step,
                    purpose,
                    task: None,
                    visible,
                };
                self.owned.add_git_job(team, job);
                return None;
            }
            IntegrationOrder::DiffOfTask(id) => {
                let submission = team
                    .tasks
                    .get(&id)
                    .and_then(|task| task.submission.as_ref());
                let Some(commit) = submission.and_then(|it| it.commit.clone()) else {
                    let refusal = Refusal::new(RefusalCode::NotFound, format!("task {id} has no commit"))
                        .hint("a teammate with a checkout submits commits; `teamctl diff NAME` shows what it has so far");
                    self.owned.connections.reply(client, Err(refusal));
                    return None;
                };
                (
                    GitStep::Diff {
                        commit: Some(commit),
                        root: String::new(),
                    },
                    Purpose::Answer(client),
                )
            }
            IntegrationOrder::DiffOf(name) => {
                let Some(checkout) = checkout_of(team, &name) else {
                    let refusal =
                        Refusal::new(RefusalCode::NotFound, format!("{name} has no checkout"))
                            .hint("`teamctl spawn NAME --checkout` gives a teammate one");
                    self.owned.connections.reply(client, Err(refusal));
                    return None;
                };
                let step = GitStep::Diff {
                    commit: None,
                    root: checkout.root.clone(),
                };
                let purpose = Purpose::Answer(client);
                self.owned.add_git_job(
                    team,
                    GitJob {
                        name,
                        environment: None,
                        step,
                        purpose,
                        task: None,
                        visible: Vec::new(),
                    },
                );
                return None;
            }
        };
        self.owned.add_integration_job(team, step, purpose);
        None
    }

    /// Turns what became of jobs into events, or answers the commands that wait for them.
    pub(super) fn jobs_ended(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for job in std::mem::take(&mut self.owned.ended_jobs) {
            events.extend(self.job_ended(job));
        }
        events
    }

    fn job_ended(&mut self, EndedJob { purpose, ended }: EndedJob) -> Option<Event> {
        match purpose {
            Purpose::Check { task, number } => {
                let ended = match ended {
                    Ok(JobReport::Checked(report)) => Ok(report),
                    other => Err(why(other)),
                };
                Some(Event::Checked {
                    task,
                    number,
                    ended,
                })
            }
            Purpose::Spawn(client, id, mut order, mut facts) => match ended {
                Ok(JobReport::Git(GitReport::Made {
                    checkout,
                    workspace,
                })) => {
                    if Path::new(&workspace) != Path::new(&checkout.root) {
                        order.terms.sandbox.writable.push(checkout.root.clone());
                    }
                    order.terms.workspace = Some(workspace);
                    facts.checkout = Some(checkout);
                    Some(Event::Spawn(client, id, order, *facts))
                }
                other => self.refuse(client, other),
            },
            Purpose::Task(client, by, order) => match ended {
                Ok(report @ (JobReport::Git(_) | JobReport::Protected(_))) => {
                    Some(Event::Task(client, by, order, Some(report)))
                }
                Err(why) if sets_work(&by, &order) => {
                    let unknown = JobReport::Protected(Baseline::Unknown(why));
                    Some(Event::Task(client, by, order, Some(unknown)))
                }
                other => self.refuse(client, other),
            },
            Purpose::Offer(name, task) => {
                let ended = match ended {
                    Ok(JobReport::Git(report)) => Ok(report),
                    other => Err(refusal(other).message),
                };
                Some(Event::Offered { name, task, ended })
            }
            Purpose::Keep(name) => match ended {
                Ok(JobReport::Git(_)) => None,
                other => Some(Event::NotKept {
                    name,
                    why: refusal(other).message,
                }),
            },
            Purpose::Integrate { task, number } => {
                let ended = match ended {
                    Ok(JobReport::Git(GitReport::Integrated(moved))) => Ok(moved),
                    other => Err(why(other)),
                };
                Some(Event::Integrated {
                    task,
                    number,
                    ended,
                })
            }
            Purpose::Sync(client, id) => match ended {
                Ok(JobReport::Git(GitReport::Synced {
                    branch,
                    commit,
                    shown,
                })) => Some(Event::Synced(client, id, (branch, shown), commit)),
                other => self.refuse(client, other),
            },
            Purpose::Answer(client) => match ended {
                Ok(JobReport::Git(GitReport::Text(text))) => {
                    self.owned.connections.reply(client, Ok(Done::Text(text)));
                    None
                }
                Ok(JobReport::Git(GitReport::Landed(landed))) => {
                    Some(Event::Landed(client, landed))
                }
                other => self.refuse(client, other),
            },
            Purpose::Withdrawn(_, clients) => {
                for it in clients {
                    self.owned.connections.reply(it, Ok(Done::Withdrawn));
                }
                None
            }
            Purpose::Forget(client, name) => match ended {
                Ok(JobReport::Git(_)) => Some(Event::Command(
                    client,
                    Command::Forget {
                        name,
                        discard: true,
                    },
                )),
                other => self.refuse(client, other),
            },
        }
    }

    fn refuse(&mut self, client: ReplyTo, ended: Result<JobReport, String>) -> Option<Event> {
        self.owned.connections.reply(client, Err(refusal(ended)));
        None
    }
}

/// Tells whether a person or the lead says what is to be done: the protected files count as they
/// are then.
fn sets_work(by: &Actor, order: &TaskOrder) -> bool {
    use TaskOrder::{Add, Edit, Retry};
    matches!(order, Add { .. } | Edit(..) | Retry(..)) && !by.is_teammate()
}

/// Returns why a job has not done what it was for, and the next step if that is known.
fn why(ended: Result<JobReport, String>) -> String {
    match ended {
        Err(why) => why,
        ended => {
            let Refusal { message, hint, .. } = refusal(ended);
            hint.map_or(message.clone(), |hint| format!("{message}; {hint}"))
        }
    }
}

/// Returns why a job has not done what it was for.
fn refusal(ended: Result<JobReport, String>) -> Refusal {
    match ended {
        Ok(JobReport::Refused(refusal)) => refusal,
        Ok(_) => Refusal::new(
            RefusalCode::Failed,
            "a job reports something else than it was told to do",
        ),
        Err(why) => Refusal::new(RefusalCode::Failed, why)
            .hint("`teamctl log teamd` may say more; fix that, then try again"),
    }
}

/// Refuses a teammate that could write its workspace, and could not commit there: that would be
/// seen when the work is done.
fn no_commit_in_place(
    order: &SpawnOrder,
    recorded: Option<Terms>,
    facts: &SpawnFacts,
) -> Option<Refusal> {
    let terms = recorded.unwrap_or_default().with(&order.terms);
    if terms.sandbox.mode != SandboxMode::WorkspaceWrite {
        return None;
    }
    let workspace = if terms.workspace.is_empty() {
        &facts.default_workspace
    } else {
        &terms.workspace
    };
    let (why, next) = cannot_commit(Path::new(workspace))?;
    let hint = format!(
        "{next}; or spawn {0} with --checkout, or with `--sandbox read-only` if it is to commit nothing",
        order.name
    );
    Some(
        Refusal::new(
            RefusalCode::Conflict,
            format!("no command could commit: {why}"),
        )
        .hint(hint),
    )
}
