//! The order for a job and its report. A job is a process of its own (`team-worker job`), for
//! everything that takes time. Each is one JSON text: on standard input, which stays open while the
//! job is wanted, and on standard output.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bundle::{Bundle, BundleOrder, Bundled, KnownCommits, Pack, Packed, SeenAtHome};
use crate::check::{CheckOrder, CheckReport};
use crate::checkout::{Checkout, CheckoutSettings};
use crate::control::Refusal;
use crate::environment::Environment;
use crate::fingerprint::Baseline;
use crate::id::TaskId;
use crate::member::{Agent, Bounds, Sandbox};
use crate::merged::{Landed, Merged};
use crate::name::Name;
use crate::terms::McpServer;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobOrder {
    /// Run the check of a task.
    Check(Box<CheckOrder>),
    /// Work on the team repository, or on a checkout.
    Git(Box<GitOrder>),
    /// Take the fingerprint of the protected files.
    Protected {
        /// The directory that the patterns count from.
        root: String,
        /// Which files.
        patterns: Vec<String>,
    },
}

impl JobOrder {
    /// Returns the limits of the commands that it runs for the team, if it runs any.
    pub fn bounds(&self) -> Option<&Bounds> {
        match self {
            Self::Check(check) => Some(&check.bounds),
            Self::Git(order) => match &order.step {
                GitStep::Make(make) => Some(&make.bounds),
                GitStep::Prepare(prepare) => Some(&prepare.check.bounds),
                GitStep::CheckMerged(merged) => Some(&merged.prepare.check.bounds),
                _ => None,
            },
            Self::Protected { .. } => None,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobReport {
    /// How a check ended.
    Checked(CheckReport),
    /// What the protected files are.
    Protected(Baseline),
    /// The checkout is there.
    Made {
        /// Where.
        checkout: Checkout,
        /// The directory in it that the teammate works in.
        workspace: String,
    },
    /// The branch is there; earlier work on the task is kept under these names.
    Branched(Vec<String>),
    /// The work is in the team repository: this commit, under this name.
    Kept {
        /// The commit.
        commit: String,
        /// The name; none if nothing was added.
        reference: Option<String>,
    },
    /// Whether the integration branch contains the commit now.
    Integrated(bool),
    /// What a commit or a checkout changes.
    Text(String),
    /// What a copy of the team repository has.
    Known(KnownCommits),
    /// What the copy of a host lacks is in a file.
    Bundled(Bundled),
    /// The copy of the team repository is what it is at home.
    Received,
    /// What a teammate on a host has committed is in a file there.
    Packed(Packed),
    /// What came of a merge that a host is to check.
    Merged {
        /// What was found out without running a command.
        report: CheckReport,
        /// The directory in the repository that the team works in.
        prefix: String,
    },
    /// How a check on a host ended, and what its commands have put out.
    CheckedThere {
        /// How it ended.
        report: CheckReport,
        /// The end of its log.
        log: String,
    },
    /// The output of a check is kept.
    Logged,
    /// The user's branch is in the team repository: its name, and its commit; none if that is
    /// integrated already.
    Synced {
        /// The branch.
        branch: String,
        /// The commit.
        commit: Option<String>,
        /// Under which name the user is shown what is integrated: `team/integration`.
        shown: String,
    },
    /// A branch of the user.
    Landed(Landed),
    /// The checkout is gone, or never was.
    Removed,
    /// What is wrong, and what to do next: trying again does not help.
    Refused(Refusal),
    /// What a teammate needs beside its checkout is there.
    CanMake,
}

/// Work with `git`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GitOrder {
    /// The teammate whose checkout it is.
    pub name: Name,
    /// Where the daemon keeps the repositories of this team, below the state directory.
    pub home: String,
    /// Variables and umask, of which `git` gets few.
    pub environment: Environment,
    /// Where commands of the team may or once could write.
    pub territory: Vec<String>,
    /// The parts of the home that are visible in addition to what tools need.
    pub visible: Vec<String>,
    /// The paths beneath the repository that are copied into checkouts and never committed.
    pub copied: Vec<String>,
    /// Seconds that it may take.
    pub timeout: f64,
    /// The host that it is done on; none: home. The team repository of a host is a copy of home's,
    /// which alone says what is in it.
    pub host: Option<Name>,
    /// What is to be done.
    pub step: GitStep,
}

/// What is done with `git`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GitStep {
    /// Make the team repository and the checkout, unless they exist; then prepare the checkout.
    Make(Box<MakeOrder>),
    /// Begin the branch of a task.
    Branch {
        /// The checkout.
        root: String,
        /// The task.
        task: TaskId,
    },
    /// Put the work on a task into the team repository.
    Keep {
        /// The checkout.
        root: String,
        /// The task; none: the one whose branch is checked out.
        task: Option<TaskId>,
        /// Whether it is submitted: then all is committed, and something is added.
        submit: bool,
    },
    /// Merge a commit with the integration branch, and check the result.
    Prepare(Box<PrepareOrder>),
    /// Move the integration branch to a commit that was checked, from where it was then; and show
    /// that to the user.
    Integrate {
        /// The task.
        task: TaskId,
        /// What was checked.
        merged: Merged,
        /// The parts of the scratch clone that the next check begins with.
        cache: Vec<String>,
    },
    /// Show what a commit changes, or else a checkout.
    Diff {
        /// The commit, in the team repository.
        commit: Option<String>,
        /// The checkout.
        root: String,
    },
    /// Take the user's branch into the team repository.
    Sync {
        /// The branch; none: the one that is checked out.
        into: Option<String>,
    },
    /// Fast-forward a branch of the user to the integration branch.
    Land {
        /// The branch; none: the one that is checked out.
        into: Option<String>,
    },
    /// Remove the checkout.
    Remove {
        /// The checkout.
        root: String,
        /// Whether work is discarded with it that exists nowhere else.
        discard: bool,
    },
    /// Say what the copy of the team repository on this host has.
    Know,
    /// Write into a file what the copy of a host lacks.
    Bundle(Box<BundleOrder>),
    /// Make the copy of the team repository on this host what the file says.
    Receive(Bundle),
    /// Write what a teammate on this host has committed into a file.
    Pack {
        /// The checkout.
        root: String,
        /// The task; none: the one whose branch is checked out.
        task: Option<TaskId>,
        /// Whether it is submitted.
        submit: bool,
        /// What the file is called.
        name: Uuid,
    },
    /// Take what a teammate on a host has committed into the team repository.
    Take(Pack),
    /// Merge a commit with the integration branch; the commands of the check run on a host.
    Merge(Box<PrepareOrder>),
    /// Run the commands of a check on this host, on what was merged at home.
    CheckMerged(Box<MergedOrder>),
    /// Keep what a check on a host has put out.
    Log {
        /// The task.
        task: TaskId,
        /// The output.
        text: String,
    },
    /// Say whether a teammate with such a checkout could start on this host, before anything takes
    /// long. The host daemon answers by itself.
    CanMake(Box<MakeOrder>),
}

/// What is merged and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareOrder {
    /// The commit that was submitted.
    pub commit: String,
    /// The message of the merge.
    pub message: String,
    /// The check; it runs in the scratch clone.
    pub check: CheckOrder,
    /// How the scratch clone is prepared.
    pub settings: CheckoutSettings,
    /// The files of the last integrated check that it begins with.
    pub cache: Vec<String>,
}

/// What was merged at home and is checked on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergedOrder {
    /// As for a check at home.
    pub prepare: PrepareOrder,
    /// What was merged.
    pub merged: Merged,
    /// The directory in the repository that the team works in.
    pub prefix: String,
}

/// How a checkout is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MakeOrder {
    /// Where the teammate would work without one: in the user's repository.
    pub source: String,
    /// Where checkouts lie, if that is set.
    pub at: Option<String>,
    /// Where they lie if nothing can be made beside the repository.
    pub otherwise: String,
    /// How it is prepared.
    pub settings: CheckoutSettings,
    /// How commands of the teammate are confined, and so its setup.
    pub sandbox: Sandbox,
    /// The limits of its setup.
    pub bounds: Bounds,
    /// On a host: what home has seen of the repository. At home it is looked up.
    pub seen: Option<SeenAtHome>,
    /// The conversation that goes on in it, if one does.
    #[serde(default)]
    pub conversation: Option<u32>,
    /// What the spawn order itself names to be written. An earlier version does not say.
    #[serde(default)]
    pub asked: Vec<String>,
    /// The agent that is to work in it. An earlier version does not say.
    #[serde(default)]
    pub program: Option<Agent>,
    /// Its MCP servers. An earlier version does not say.
    #[serde(default)]
    pub mcp: Vec<McpServer>,
}
