//! What the daemon tells a job to do, and what the job reports. A job is a process of its own (`team-worker job`): whatever
//! takes time runs in one. One JSON text each: on standard input, which stays open while the job is wanted, and on standard
//! output.

use serde::{Deserialize, Serialize};

use crate::check::{CheckOrder, CheckReport};
use crate::checkout::{Checkout, CheckoutSettings};
use crate::control::Refusal;
use crate::environment::Environment;
use crate::member::{Bounds, Sandbox};
use crate::name::Name;
use crate::task::TaskId;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobOrder {
    /// Run the check of a task.
    Check(Box<CheckOrder>),
    /// Work on the team repository, or on a checkout.
    Git(Box<GitOrder>),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobReport {
    /// How a check ended.
    Checked(CheckReport),
    /// What was done with `git`.
    Git(GitReport),
    /// What is wrong, and what to do next: trying again does not help.
    Refused(Refusal),
}

/// Work with `git`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GitOrder {
    /// The teammate whose checkout it is.
    pub name: Name,
    /// Where the daemon keeps what is `git`'s of this team: below the state directory.
    pub home: String,
    /// Variables and umask, of which `git` is given few.
    pub environment: Environment,
    /// Where commands of the team may or once could write.
    pub territory: Vec<String>,
    /// Seconds that it may take.
    pub timeout: f64,
    /// What is to be done.
    pub step: GitStep,
}

/// What is done with `git`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GitStep {
    /// Make the checkout, and the team repository before, unless they are there; then prepare it.
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
    /// Remove the checkout.
    Remove {
        /// The checkout.
        root: String,
        /// Whether work goes with it that is nowhere else.
        discard: bool,
    },
}

/// How a checkout is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MakeOrder {
    /// Where the teammate would work without one: in the user's repository.
    pub source: String,
    /// Where checkouts lie, if that is said.
    pub at: Option<String>,
    /// Where they lie if nothing can be made beside the repository.
    pub otherwise: String,
    /// How it is prepared.
    pub settings: CheckoutSettings,
    /// How commands of the teammate are confined, and so its setup.
    pub sandbox: Sandbox,
    /// The limits of its setup.
    pub bounds: Bounds,
}

/// What was done with `git`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GitReport {
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
    /// The checkout is gone, or never was.
    Removed,
}
