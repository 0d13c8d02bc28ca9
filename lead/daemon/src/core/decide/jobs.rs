//! Jobs: the order of each, and the decision that continues with its report.

use teamd_shared::check::CheckOrder;
use teamd_shared::checkout::Checkout;
use teamd_shared::control::{Command, Refusal, RefusalCode, SpawnOrder, TaskOrder};
use teamd_shared::environment::Environment;
use teamd_shared::fingerprint::Baseline;
use teamd_shared::id::Ids;
use teamd_shared::job::{GitOrder, GitStep, JobOrder, JobReport, MakeOrder, PrepareOrder};
use teamd_shared::member::{Member, Sandbox, Terms};
use teamd_shared::name::Name;
use teamd_shared::task::{Submission, Task, TaskId, Verified};
use teamd_shared::work::FinalCheck;

use super::{Decision, DecisionView, conflict, or_refuse};
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::Action;
use crate::core::host_link::HostLink;
use crate::core::incarnation::Incarnation;
use crate::core::job::{Job, SuspendedCommand, Then};

impl DecisionView<'_> {
    /// Continues the decision that a job was begun for. The report of an unwanted job has no
    /// effect.
    pub(super) fn job_ended(
        &self,
        job: u64,
        ended: &Result<JobReport, String>,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some(then) = self.runtime.jobs.then(job) else {
            return Decision::default();
        };
        let decision = self.follows(then, ended, ids);
        // While the branch was begun, the task was offered to no other teammate.
        match then.branch() {
            Some(_) => decision.and(self.offer_later()),
            None => decision,
        }
    }

    fn follows(
        &self,
        then: &Then,
        ended: &Result<JobReport, String>,
        ids: &mut dyn Ids,
    ) -> Decision {
        match (then, ended) {
            (Then::CalledOff(_), _) => Decision::default(),
            (Then::Command(suspended), _) => self.go_on(suspended, ended, ids),
            (Then::Spawn(client, id, order, facts), _) => {
                let decision = reported(ended)
                    .and_then(|report| self.with(&report).spawn(*client, (id, order), facts, ids));
                or_refuse(*client, decision)
            }
            (Then::Check { task, number, .. }, Ok(JobReport::Checked(report))) => {
                self.checked(*task, *number, report, ids)
            }
            (Then::Integrate { task, number }, Ok(JobReport::Integrated(moved))) => {
                self.integrated(*task, *number, *moved, ids)
            }
            (Then::Check { task, number, .. } | Then::Integrate { task, number }, _) => {
                self.not_checked(*task, *number, &why(ended), ids)
            }
            (Then::Offer { incarnation, .. }, _) if self.present(incarnation).is_none() => {
                Decision::default()
            }
            (Then::Offer { incarnation, task }, Ok(JobReport::Branched(kept))) => {
                self.offered(&incarnation.name, *task, kept, ids)
            }
            (Then::Offer { incarnation, .. }, _) if self.is_away(&incarnation.name) => {
                Decision::default()
            }
            (Then::Offer { incarnation, task }, _) => {
                self.not_offered(incarnation, *task, &refusal(ended).message, ids)
            }
            (Then::Keep { .. }, Ok(JobReport::Kept { .. })) => Decision::default(),
            (Then::Keep { name }, _) => {
                let why = refusal(ended).message;
                let text = format!(
                    "{name}'s commits could not be saved: {why}. They are still in {name}'s checkout, which is kept"
                );
                self.notify(Name::lead(), text, ids)
            }
        }
    }

    /// Continues a command. An incarnation that has begun since does not know of it.
    fn go_on(
        &self,
        suspended: &SuspendedCommand,
        ended: &Result<JobReport, String>,
        ids: &mut dyn Ids,
    ) -> Decision {
        let SuspendedCommand {
            client,
            by,
            incarnation,
            author,
            command,
        } = suspended;
        if let Actor::Member(name) = by {
            let asker = Incarnation {
                name: name.clone(),
                number: *incarnation,
            };
            if self.present(&asker).is_none() {
                return Decision::default();
            }
        }
        let present = self.author_of(command);
        if let (Some(before), Some(present)) = (author, &present)
            && before != present
        {
            return or_refuse(*client, Err(has_another_author(before, present)));
        }
        let report = match ended {
            Err(why) if sets_work(by, command) => {
                Ok(JobReport::Protected(Baseline::Unknown(why.clone())))
            }
            other => reported(other),
        };
        let decision =
            report.and_then(|report| self.with(&report).command(*client, by, command, ids));
        or_refuse(*client, decision)
    }

    /// Returns how a command continues once a job for it has ended.
    pub(super) fn then(&self, client: ReplyTo, by: &Actor, command: Command) -> Then {
        let member = match by {
            Actor::Member(name) => self.team.members.get(name),
            Actor::Person
            | Actor::RunByLead(_)
            | Actor::PersonAnswers { .. }
            | Actor::LeadAnswers(_) => None,
        };
        Then::Command(Box::new(SuspendedCommand {
            client,
            by: by.clone(),
            incarnation: member.map_or(0, |state| state.record.incarnation),
            author: self.author_of(&command),
            command,
        }))
    }

    /// Returns the incarnation whose work a command submits, in the present state of the team.
    fn author_of(&self, command: &Command) -> Option<Incarnation> {
        let Command::Task(TaskOrder::Submit(id, _)) = command else {
            return None;
        };
        let owner = self.team.tasks.get(id)?.owner.as_ref()?;
        let state = self.team.members.get(owner)?;
        Some(Incarnation::of(&state.record))
    }

    fn with<'a>(&'a self, report: &'a JobReport) -> DecisionView<'a> {
        DecisionView {
            prepared: Some(report),
            ..*self
        }
    }

    /// Returns the checkout of a teammate, if it has one.
    pub(super) fn checkout_of(&self, name: &Name) -> Option<&Checkout> {
        self.team.members.get(name)?.record.terms.checkout.as_ref()
    }

    /// Tells whether a teammate is on a host that cannot be reached now.
    pub(super) fn is_away(&self, name: &Name) -> bool {
        let member = self.team.members.get(name).map(|state| &state.record);
        member.is_some_and(|member| self.runtime.unreachable_since(member).is_some())
    }

    fn host_of(&self, name: &Name) -> Option<Name> {
        self.team.members.get(name)?.record.terms.host.clone()
    }

    /// Begins the branch of a task in a checkout.
    pub(super) fn begin_branch(&self, member: &Member, task: TaskId, then: Then) -> Decision {
        let Some(checkout) = &member.terms.checkout else {
            return Decision::default();
        };
        let root = checkout.root.clone();
        self.in_checkout(&member.name, GitStep::Branch { root, task }, then)
    }

    /// Returns the job that keeps a teammate's commits in the team repository: for a task that it
    /// no longer holds, or if none is named for the one whose branch is checked out. None for a
    /// teammate without a checkout.
    pub(in crate::core) fn keep(&self, name: &Name, task: Option<TaskId>) -> Option<Job> {
        let root = self.checkout_of(name)?.root.clone();
        let step = GitStep::Keep {
            root,
            task,
            submit: false,
        };
        Some(Job {
            order: self.git(name, None, step),
            then: Then::Keep { name: name.clone() },
        })
    }

    /// Begins a job in the checkout of a teammate, with its environment if that is known. What a host
    /// says of one there counts for nothing at home.
    pub(super) fn in_checkout(&self, name: &Name, step: GitStep, then: Then) -> Decision {
        let worker = self.runtime.member(name);
        let worker = worker.filter(|_| self.host_of(name).is_none());
        let environment = worker.and_then(|worker| worker.environment.clone());
        begin_job(self.git(name, environment, step), then)
    }

    /// Begins a job in the integration branch or the user's repository.
    pub(super) fn in_repository(&self, step: GitStep, then: Then) -> Decision {
        begin_job(self.git(&Name::lead(), None, step), then)
    }

    /// Begins to make the checkout in which a teammate starts.
    pub(super) fn make_checkout(&self, order: &SpawnOrder, then: Then) -> Decision {
        let recorded = self.resumed(order).map(|member| &member.terms);
        let named = order
            .terms
            .workspace
            .clone()
            .filter(|it| recorded.is_none_or(|terms| terms.workspace != *it));
        let before = recorded.and_then(|terms| terms.checkout.as_ref());
        let source = named
            .or_else(|| before.map(|checkout| checkout.source.clone()))
            .unwrap_or_else(|| self.places.workspace.clone());
        let terms = self.terms_of(order);
        let mut visible = terms.sandbox.visible.clone();
        let step = GitStep::Make(Box::new(MakeOrder {
            source,
            at: self.places.checkouts.clone(),
            otherwise: self.places.otherwise.clone(),
            settings: self.places.settings.clone(),
            sandbox: terms.sandbox,
            bounds: terms.bounds,
            // A host learns it from what is found out at home.
            seen: None,
            conversation: self.resumed(order).map(|member| member.conversation),
            asked: order.terms.sandbox.writable.clone(),
            program: terms.program,
            mcp: terms.mcp,
        }));
        let mut git = self.git_order(&order.name, Some(order.environment.clone()), step);
        git.host = terms.host;
        git.visible.append(&mut visible);
        begin_job(JobOrder::Git(Box::new(git)), then)
    }

    /// Begins to land work on a branch of the user. Its filters run as they would by hand.
    pub(super) fn land(
        &self,
        into: Option<String>,
        environment: Option<Environment>,
        visible: &[String],
        then: Then,
    ) -> Decision {
        let mut git = self.git_order(&Name::lead(), environment, GitStep::Land { into });
        git.visible.extend_from_slice(visible);
        begin_job(JobOrder::Git(Box::new(git)), then)
    }

    /// Begins a job that reads the protected files as they are now.
    pub(super) fn look_at_protected(&self, then: Then) -> Decision {
        let order = JobOrder::Protected {
            root: self.places.workspace.clone(),
            patterns: self.team.work.protect.clone(),
        };
        begin_job(order, then)
    }

    /// Returns the job that checks a submission: where its author works, or merged with what is
    /// integrated.
    pub(in crate::core) fn check(&self, task: &Task) -> Option<Job> {
        let submission = task.submission.as_ref()?;
        let check = self.check_order(task, submission);
        let mut host = None;
        let order = match &submission.commit {
            None => JobOrder::Check(Box::new(check)),
            Some(commit) => {
                let prepare = PrepareOrder {
                    commit: commit.clone(),
                    message: merge_message(task, submission),
                    check,
                    settings: self.places.settings.clone(),
                    cache: self.team.work.cache.clone(),
                };
                let step = GitStep::Prepare(Box::new(prepare));
                let mut git = self.git_order(&Name::lead(), None, step);
                host = self.host_that_checks(task);
                git.host.clone_from(&host);
                JobOrder::Git(Box::new(git))
            }
        };
        let then = Then::Check {
            task: task.id,
            number: submission.number,
            host,
        };
        Some(Job { order, then })
    }

    /// Returns the host that is to check a submission: the one with the fewest checks of those that
    /// are linked. None if home is to do it.
    fn host_that_checks(&self, task: &Task) -> Option<Name> {
        if self.is_checked_at_home_next(task) {
            return None;
        }
        let hosts = self.team.work.check_hosts.iter();
        let is_up = |host: &&Name| {
            let link = self.runtime.link_to(host);
            link.is_some_and(HostLink::is_up)
        };
        let least = hosts
            .filter(is_up)
            .min_by_key(|host| self.runtime.jobs.checks_on(host));
        least.cloned()
    }

    /// Tells whether work that has passed its check on a host is to pass it at home, too.
    pub(super) fn is_checked_at_home_next(&self, task: &Task) -> bool {
        let number = task.submission.as_ref().map(|it| it.number);
        let passed = task.result.as_ref().filter(|result| {
            Some(result.submission) == number && result.verified == Verified::Checked
        });
        let check = passed.and_then(|result| result.check.as_ref());
        let on_host = check.is_some_and(|check| check.host.is_some());
        on_host && self.team.work.final_check == FinalCheck::Home
    }

    fn check_order(&self, task: &Task, submission: &Submission) -> CheckOrder {
        let author = self.team.members.get(&submission.by);
        let workspace = self.places.workspace.clone();
        let terms = author.map(|state| state.record.terms.clone());
        let mut terms = terms.unwrap_or_else(|| Terms::of_workspace(workspace.clone()));
        let mut worker = self.runtime.member(&submission.by);
        if terms.host.is_some() {
            // Its paths and its environment are those of another machine.
            terms.workspace.clone_from(&workspace);
            terms.checkout = None;
            terms.sandbox.visible.clear();
            worker = None;
        }
        let environment = worker.and_then(|worker| worker.environment.clone());
        let commands = submission.checks.iter();
        CheckOrder {
            task: task.id,
            number: submission.number,
            commands: commands.map(|check| check.command.clone()).collect(),
            workspace: terms.workspace,
            checkout: terms.checkout,
            timeout: self.team.work.timeout().as_secs_f64(),
            environment: environment.unwrap_or_else(|| self.places.environment.clone()),
            sandbox: Sandbox {
                writable: Vec::new(),
                no_network: !self.team.work.check_network,
                ..terms.sandbox
            },
            bounds: terms.bounds,
            territory: self.territory(),
            protect: self.team.work.protect.clone(),
            protect_in: workspace,
            protected: task.protected.clone(),
            alone: submission.starved,
        }
    }

    fn territory(&self) -> Vec<String> {
        self.team
            .territory()
            .map(|(path, _)| path.to_string_lossy().into_owned())
            .collect()
    }

    pub(super) fn git(
        &self,
        name: &Name,
        environment: Option<Environment>,
        step: GitStep,
    ) -> JobOrder {
        JobOrder::Git(Box::new(self.git_order(name, environment, step)))
    }

    /// Returns an order that is carried out with `git`. The job sees the parts of the home that its
    /// teammate sees. A job for the lead sees all parts that any teammate sees.
    fn git_order(&self, name: &Name, environment: Option<Environment>, step: GitStep) -> GitOrder {
        let members = self.team.members.values().map(|state| &state.record);
        let seeing = members.filter(|member| member.name == *name || *name == Name::lead());
        let visible = seeing.flat_map(|member| member.terms.sandbox.visible.iter().cloned());
        GitOrder {
            name: name.clone(),
            home: self.places.git.clone(),
            environment: environment.unwrap_or_else(|| self.places.environment.clone()),
            territory: self.territory(),
            visible: visible.collect(),
            copied: self.places.settings.copy.clone(),
            timeout: self.team.work.timeout().as_secs_f64(),
            host: self.host_of(name),
            step,
        }
    }
}

/// Begins a job.
pub(super) fn begin_job(order: JobOrder, then: Then) -> Decision {
    Decision::default().act(Action::Begin(Box::new(Job { order, then })))
}

/// Refuses to submit work that was saved for an earlier author.
fn has_another_author(before: &Incarnation, present: &Incarnation) -> Refusal {
    let message = if before.name == present.name {
        format!(
            "{} was started again before its work was saved",
            before.name
        )
    } else {
        format!(
            "{} took the task over from {} before its work was saved",
            present.name, before.name
        )
    };
    conflict(
        message,
        "look at the work, then repeat `teamctl task submit`",
    )
}

/// Returns the message of the commit that merges submitted work.
fn merge_message(task: &Task, submission: &Submission) -> String {
    let id = task.id;
    let title = format!("Merge task {id}: {}", task.subject);
    let trailer = format!("Task: {id}");
    let mut parts = vec![title.as_str(), submission.summary.trim(), &trailer];
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Tells whether a person or the lead says what is to be done. The protected files are recorded as
/// they are at that time.
pub(super) fn sets_work(by: &Actor, command: &Command) -> bool {
    use TaskOrder::{Add, Edit, Import, Retry};
    let sets = matches!(
        command,
        Command::Task(Add { .. } | Import { .. } | Edit(..) | Retry(..))
    );
    sets && !by.is_teammate()
}

/// Returns what a job reports, or why it has not done what it was for.
fn reported(ended: &Result<JobReport, String>) -> Result<JobReport, Refusal> {
    match ended {
        Ok(JobReport::Refused(_)) | Err(_) => Err(refusal(ended)),
        Ok(report) => Ok(report.clone()),
    }
}

/// Returns why a job has not done what it was for, and the next step if that is known.
fn why(ended: &Result<JobReport, String>) -> String {
    if let Err(why) = ended {
        return why.clone();
    }
    let Refusal { message, hint, .. } = refusal(ended);
    match hint {
        Some(hint) => format!("{message}; {hint}"),
        None => message,
    }
}

/// Returns why a job has not done what it was for.
fn refusal(ended: &Result<JobReport, String>) -> Refusal {
    match ended {
        Ok(JobReport::Refused(refusal)) => refusal.clone(),
        Ok(_) => unexpected_report(),
        Err(why) => Refusal::new(RefusalCode::Failed, why.clone())
            .hint("`teamctl log teamd` may say more; fix that, then try again"),
    }
}

/// Refuses to continue with a report of something that was not ordered.
pub(super) fn unexpected_report() -> Refusal {
    Refusal::new(
        RefusalCode::Failed,
        "a job reports something that it was not ordered to do",
    )
}
