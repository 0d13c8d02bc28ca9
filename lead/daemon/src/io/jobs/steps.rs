//! The steps of jobs on hosts: what each asks of home and of its host, one after the other.
//!
//! Home knows what is in the team repository. So before a checkout is made there or a branch begun,
//! the host's copy is brought up to date; and what a teammate there has committed is taken in here.
//! A step that fails ends the job: each can be done again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use teamd_shared::bundle::{self, BundleOrder, Bundled, KnownCommits, Packed, is_commit_id};
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::environment::Environment;
use teamd_shared::job::{GitOrder, GitStep, JobReport, MakeOrder, MergedOrder, PrepareOrder};
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;
use tokio::sync::{Mutex, Semaphore, oneshot};
use uuid::Uuid;

use crate::io::input::{Input, Inputs, JobStep};
use crate::io::links::BulkChannel;

/// How long a host may take for a step beside its scripts.
const ANSWERS: Duration = Duration::from_secs(60);

/// A job for a checkout on a host.
#[derive(Debug)]
pub(super) struct HostedJob {
    pub(super) job: u64,
    pub(super) host: Name,
    pub(super) order: GitOrder,
    pub(super) inputs: Inputs,
    pub(super) channel: BulkChannel,
    /// Held while the copy of the host is brought up to date: jobs do that one after the other.
    pub(super) turn: Arc<Mutex<()>>,
    /// The places for steps at home.
    pub(super) places: Arc<Semaphore>,
}

/// Why a job ends before its last step.
enum StepFailure {
    /// It makes no sense, or not now.
    Refused(Refusal),
    /// It could not be tried.
    Failed(String),
}

impl HostedJob {
    /// Does all steps, and reports the end to the event loop.
    pub(super) async fn run(self) {
        let ended = match self.perform().await {
            Ok(report) => Ok(report),
            Err(StepFailure::Refused(refusal)) => Ok(JobReport::Refused(refusal)),
            Err(StepFailure::Failed(why)) => Err(why),
        };
        let input = Input::HostedJobEnded {
            job: self.job,
            ended,
        };
        if self.inputs.send(input).await.is_err() {
            tracing::debug!("the event loop has ended before a job");
        }
    }

    async fn perform(&self) -> Result<JobReport, StepFailure> {
        let step = &self.order.step;
        match step {
            GitStep::Make(make) => self.make(make).await,
            GitStep::Branch { .. } => {
                self.bring_up_to_date(None, None).await?;
                self.there_for(step, |report| matches!(report, JobReport::Branched(_)))
                    .await
            }
            GitStep::Keep { root, task, submit } => {
                let packed = self.pack(root, *task, *submit).await?;
                match packed {
                    Some(packed) => self.take(packed).await,
                    None => Err(self.is_gone(root)),
                }
            }
            GitStep::Remove { root, discard } => {
                if !discard {
                    self.save(root).await?;
                }
                self.there_for(step, |report| matches!(report, JobReport::Removed))
                    .await
            }
            GitStep::Diff { .. } => {
                self.there_for(step, |report| matches!(report, JobReport::Text(_)))
                    .await
            }
            GitStep::Prepare(prepare) => self.check(prepare).await.map(JobReport::Checked),
            other => Err(StepFailure::Failed(format!(
                "this is not done on a host: {other:?}"
            ))),
        }
    }

    /// Makes a checkout there. Home alone says of which repository it is.
    async fn make(&self, make: &MakeOrder) -> Result<JobReport, StepFailure> {
        let order = MakeOrder {
            at: None,
            ..make.clone()
        };
        // What is missing there is said before a clone, a bundle and a setup.
        let can_make = GitStep::CanMake(Box::new(order.clone()));
        self.there_for(&can_make, |report| matches!(report, JobReport::CanMake))
            .await?;
        let source = Some(make.source.clone());
        let bundled = self.bring_up_to_date(source, None).await?;
        let order = MakeOrder {
            seen: Some(bundled.seen),
            ..order
        };
        let made = self.there(GitStep::Make(Box::new(order))).await?;
        let JobReport::Made {
            mut checkout,
            workspace,
        } = made
        else {
            return Err(self.unexpected());
        };
        checkout.source.clone_from(&make.source);
        Ok(JobReport::Made {
            checkout,
            workspace,
        })
    }

    /// Saves what a teammate has committed there, and tells the copy that it is saved.
    async fn save(&self, root: &str) -> Result<(), StepFailure> {
        let saved = async {
            if let Some(packed) = self.pack(root, None, false).await? {
                self.take(packed).await?;
                self.bring_up_to_date(None, None).await?;
            }
            Ok(())
        };
        saved.await.map_err(|failure| {
            let StepFailure::Refused(refusal) = failure else {
                return failure;
            };
            let name = &self.order.name;
            let host = &self.host;
            let message = format!(
                "the work in {root} on {host} cannot be saved: {}",
                refusal.message
            );
            let hint = format!(
                "fix that, then try again; `teamctl forget {name} --discard` removes it anyway"
            );
            StepFailure::Refused(Refusal::new(RefusalCode::Conflict, message).hint(hint))
        })
    }

    /// Merges a submission at home, and has the host run the commands of its check on the result.
    /// The host says how they ended; what was merged, and which protected files that touches, home
    /// has seen itself.
    async fn check(&self, prepare: &PrepareOrder) -> Result<CheckReport, StepFailure> {
        let merge = GitStep::Merge(Box::new(prepare.clone()));
        let JobReport::Merged { report, prefix } = self.here(merge).await? else {
            return Err(StepFailure::Failed("nothing was merged".to_owned()));
        };
        let Some(merged) = report.merged.clone() else {
            return Ok(report);
        };
        if prepare.check.commands.is_empty() {
            return Ok(report);
        }
        self.bring_up_to_date(None, Some(merged.commit.clone()))
            .await?;
        let order = MergedOrder {
            prepare: for_host(prepare.clone()),
            merged,
            prefix,
        };
        let checked = self.there(GitStep::CheckMerged(Box::new(order))).await?;
        let JobReport::CheckedThere {
            report: mut checked,
            log,
        } = checked
        else {
            return Err(self.unexpected());
        };
        checked.host = Some(self.host.clone());
        let log = GitStep::Log {
            task: prepare.check.task,
            text: format!("on {}:\n{log}", self.host),
        };
        self.here(log).await?;
        Ok(report.with(checked))
    }

    /// Makes the copy of the host what the team repository is. `source` is where the teammate would
    /// work at home, if the team repository is to be made before; `also` is a commit that is sent,
    /// too.
    async fn bring_up_to_date(
        &self,
        source: Option<String>,
        also: Option<String>,
    ) -> Result<Bundled, StepFailure> {
        let turn = self.turn.lock().await;
        let JobReport::Known(known) = self.there(GitStep::Know).await? else {
            return Err(self.unexpected());
        };
        let sent = self.send(known, source.clone(), also.clone()).await;
        let sent = match sent {
            // The copy may lack what it says that it has: then it gets all.
            Err(StepFailure::Refused(refusal)) if source.is_none() => {
                tracing::info!("{}: {}; all is sent", self.host, refusal.message);
                self.send(KnownCommits::default(), source, also).await
            }
            other => other,
        };
        drop(turn);
        sent
    }

    /// Sends the host what it lacks.
    async fn send(
        &self,
        known: KnownCommits,
        source: Option<String>,
        also: Option<String>,
    ) -> Result<Bundled, StepFailure> {
        let name = Uuid::now_v7();
        let file = OwnFile(bundle::file(self.git_home(), name));
        let order = BundleOrder {
            name,
            known,
            source,
            also,
        };
        let JobReport::Bundled(bundled) = self.here(GitStep::Bundle(Box::new(order))).await? else {
            return Err(StepFailure::Failed("no bundle was made".to_owned()));
        };
        let Some(bundle) = &bundled.bundle else {
            return Ok(bundled);
        };
        let sent = self.channel.send(&file.0, &bundle.file).await;
        drop(file);
        sent.map_err(StepFailure::Failed)?;
        match self.there(GitStep::Receive(bundle.clone())).await? {
            JobReport::Received => Ok(bundled),
            _ => Err(self.unexpected()),
        }
    }

    /// Has the host pack what the teammate has committed. None if there is no checkout.
    async fn pack(
        &self,
        root: &str,
        task: Option<TaskId>,
        submit: bool,
    ) -> Result<Option<Packed>, StepFailure> {
        let name = Uuid::now_v7();
        let step = GitStep::Pack {
            root: root.to_owned(),
            task,
            submit,
            name,
        };
        let packed = match self.there(step).await? {
            JobReport::Packed(packed) => packed,
            JobReport::Removed if !submit => return Ok(None),
            _ => return Err(self.unexpected()),
        };
        let is_asked_for = match &packed.pack {
            Some(pack) => {
                pack.file.name == name
                    && pack.commit == packed.commit
                    && task.is_none_or(|task| task == pack.task)
            }
            // What is submitted adds something.
            None => !submit,
        };
        if is_asked_for && is_commit_id(&packed.commit) {
            Ok(Some(packed))
        } else {
            Err(self.unexpected())
        }
    }

    /// Takes packed work into the team repository.
    async fn take(&self, packed: Packed) -> Result<JobReport, StepFailure> {
        let Packed { commit, pack } = packed;
        let Some(pack) = pack else {
            return Ok(JobReport::Kept {
                commit,
                reference: None,
            });
        };
        let file = OwnFile(bundle::file(self.git_home(), pack.file.name));
        let fetched = self.channel.fetch(&pack.file, &file.0).await;
        fetched.map_err(|why| {
            let name = &self.order.name;
            StepFailure::Failed(format!("the work of {name} could not be fetched: {why}"))
        })?;
        self.here(GitStep::Take(pack)).await
    }

    fn git_home(&self) -> &Path {
        self.order.home.as_ref()
    }

    /// Has a step done at home, when fewer than so many are.
    async fn here(&self, step: GitStep) -> Result<JobReport, StepFailure> {
        let ends = |_| StepFailure::Failed("the daemon ends".to_owned());
        let _place = self.places.acquire().await.map_err(ends)?;
        let order = GitOrder {
            host: None,
            step,
            ..self.order.clone()
        };
        self.ask(None, order).await
    }

    /// Has a step done on the host. What is home's does not go there: its paths mean nothing there,
    /// and its environment is nothing for another machine.
    async fn there(&self, step: GitStep) -> Result<JobReport, StepFailure> {
        let order = GitOrder {
            home: String::new(),
            environment: Environment::default(),
            territory: Vec::new(),
            visible: Vec::new(),
            copied: Vec::new(),
            step,
            ..self.order.clone()
        };
        let longest = longest(&order);
        let asked = self.ask(Some(self.host.clone()), order);
        let in_time = tokio::time::timeout(longest, asked).await;
        in_time.unwrap_or_else(|_| {
            let why = format!("{} has not answered in {} s", self.host, longest.as_secs());
            Err(StepFailure::Failed(why))
        })
    }

    /// The same for the order's own step, which only such a report answers.
    async fn there_for(
        &self,
        step: &GitStep,
        answers: impl Fn(&JobReport) -> bool,
    ) -> Result<JobReport, StepFailure> {
        let report = self.there(step.clone()).await?;
        if answers(&report) {
            Ok(report)
        } else {
            Err(self.unexpected())
        }
    }

    async fn ask(&self, host: Option<Name>, order: GitOrder) -> Result<JobReport, StepFailure> {
        let (reply, ended) = oneshot::channel();
        let step = JobStep {
            job: self.job,
            host,
            order,
            reply,
        };
        let sent = self.inputs.send(Input::JobStep(Box::new(step))).await;
        sent.map_err(|_| StepFailure::Failed("the daemon ends".to_owned()))?;
        match ended.await {
            Ok(Ok(JobReport::Refused(refusal))) => Err(StepFailure::Refused(refusal)),
            Ok(Ok(report)) => Ok(report),
            Ok(Err(why)) => Err(StepFailure::Failed(why)),
            Err(_) => Err(StepFailure::Refused(unreachable(&self.host))),
        }
    }

    fn is_gone(&self, root: &str) -> StepFailure {
        let message = format!("{root} on {} is gone", self.host);
        let hint = format!(
            "put it back there, or `teamctl shutdown {0}` and `teamctl forget {0} --discard`",
            self.order.name
        );
        StepFailure::Refused(Refusal::new(RefusalCode::Conflict, message).hint(hint))
    }

    fn unexpected(&self) -> StepFailure {
        let host = &self.host;
        StepFailure::Failed(format!(
            "{host} reports something that it was not asked for"
        ))
    }
}

/// Says that a host cannot be reached now.
pub(super) fn unreachable(host: &Name) -> Refusal {
    Refusal::new(RefusalCode::Failed, format!("{host} cannot be reached"))
        .hint("try again when it can; `teamctl host list` shows the links")
}

/// Returns how long a step on a host may take: its scripts have limits there, and end by themselves.
fn longest(order: &GitOrder) -> Duration {
    let most_scripts = match order.step {
        GitStep::Make(_) | GitStep::CheckMerged(_) => 6,
        _ => 2,
    };
    let each = Duration::try_from_secs_f64(order.timeout).unwrap_or(ANSWERS);
    each.saturating_mul(most_scripts).saturating_add(ANSWERS)
}

/// Returns the order for a check without what is home's: its paths, and its environment.
fn for_host(mut prepare: PrepareOrder) -> PrepareOrder {
    prepare.check = CheckOrder {
        workspace: String::new(),
        checkout: None,
        environment: Environment::default(),
        territory: Vec::new(),
        protect_in: String::new(),
        protected: None,
        ..prepare.check
    };
    prepare
}

/// A file of this job, which goes when the job does.
struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Err(error) = bundle::remove(&self.0) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}
