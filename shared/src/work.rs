//! `[work]` in `team.toml`: how the work of a team is checked. It is part of the journal line of
//! each start, because decisions depend on it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amount::{LONGEST, amount, parse_seconds};
use crate::checkout::beneath;
use crate::effects::KeyEffects;
use crate::fingerprint::Patterns;
use crate::member::ApproveBy;
use crate::name::Name;
use crate::task::{Check, Task, TaskResult};

/// How long a check may take by default.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(600);

/// How the work of a team is checked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// The command that must exit with 0 for every task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// How long the checks of a task may take together, in seconds.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "seconds")]
    #[schemars(with = "f64", extend("exclusiveMinimum" = 0, "maximum" = LONGEST))]
    pub check_timeout: Option<u64>,
    /// Whether checks reach the network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub check_network: bool,
    /// The files that decide whether work is done, such as `tests/**`: the result of a task that
    /// changes one says so.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "glob_patterns"
    )]
    pub protect: Vec<String>,
    /// Who must approve work that changes one of them.
    #[serde(skip_serializing_if = "is_person")]
    pub protect_review: ApproveBy,
    /// The files of the last integrated check that a check of merged work begins with, such as
    /// `target`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "beneath")]
    #[schemars(inner(regex(pattern = r"^(?!/)(?!(.*/)?\.\.(/|$))[^\n]+$")))]
    pub cache: Vec<String>,
    /// The hosts on which merged work is checked, while one of them is linked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check_hosts: Vec<Name>,
    /// Where the check runs that decides.
    #[serde(skip_serializing_if = "FinalCheck::is_anywhere")]
    pub final_check: FinalCheck,
}

/// Where the last check of merged work runs, before the integration branch moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinalCheck {
    /// On any machine that checks.
    #[default]
    Any,
    /// At home: what has passed on a host is checked there once more.
    Home,
}

impl FinalCheck {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_anywhere(&self) -> bool {
        *self == Self::Any
    }
}

impl Work {
    /// Says what each key does: what decides whether work is done is not for a teammate to choose.
    pub(crate) fn effects(&self, to: &mut KeyEffects<'_>) {
        let Self {
            check,
            check_timeout,
            check_network,
            protect,
            protect_review,
            cache,
            check_hosts,
            final_check,
        } = self;
        // The command runs, so it widens; without it nothing is checked, so it narrows.
        to.widens("work.check", check);
        to.narrows("work.check", check);
        to.limits(
            "work.check_timeout",
            check_timeout.map(|time| Duration::from_secs(time).as_secs_f64()),
            Some(CHECK_TIMEOUT.as_secs_f64()),
        );
        to.widens("work.check_network", check_network.then_some(true));
        to.narrows("work.protect", protect);
        to.widens(
            "work.protect_review",
            (*protect_review == ApproveBy::Lead).then_some("lead"),
        );
        // Files of earlier work could replace what is checked.
        to.widens("work.cache", cache);
        // The owner of a host decides then what passes.
        let hosts: Vec<String> = check_hosts.iter().map(ToString::to_string).collect();
        to.widens("work.check_hosts", &hosts);
        to.narrows(
            "work.final_check",
            (*final_check == FinalCheck::Home).then_some("home"),
        );
    }

    /// Returns the check of every task.
    pub fn check(&self) -> Option<Check> {
        let command = self
            .check
            .as_ref()
            .filter(|command| !command.trim().is_empty())?;
        Some(Check {
            command: command.clone(),
            set_by: "team.toml".to_owned(),
        })
    }

    /// Returns who must approve the work on a task with this result: a person, if either the task or
    /// a protected file wants that.
    pub fn reviewer(&self, task: &Task, result: &TaskResult) -> Option<ApproveBy> {
        if result.touched_protected.is_none() {
            return task.review;
        }
        match task.review {
            Some(ApproveBy::Person) => Some(ApproveBy::Person),
            Some(ApproveBy::Lead) | None => Some(self.protect_review),
        }
    }

    /// Returns how long the checks of a task may take together.
    pub fn timeout(&self) -> Duration {
        self.check_timeout
            .map_or(CHECK_TIMEOUT, Duration::from_secs)
    }

    /// Tells whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_person(by: &ApproveBy) -> bool {
    *by == ApproveBy::Person
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    amount(deserializer, parse_seconds).map(Some)
}

fn glob_patterns<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let protect = Vec::deserialize(deserializer)?;
    Patterns::new(&protect).map_err(serde::de::Error::custom)?;
    Ok(protect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{TaskFields, Verified};

    #[test]
    fn a_person_reviews_where_either_the_task_or_a_protected_file_wants_it() {
        let person = Some(ApproveBy::Person);
        let lead = Some(ApproveBy::Lead);
        for (review, expected) in [
            (None, [None, person, lead]),
            (person, [person; 3]),
            (lead, [lead, person, lead]),
        ] {
            let fields = TaskFields {
                subject: Some("x".to_owned()),
                ..TaskFields::default()
            };
            let task = Task {
                review,
                ..fields.create(1, "user", 0.0).unwrap()
            };
            let forced = [
                (false, ApproveBy::Person),
                (true, ApproveBy::Person),
                (true, ApproveBy::Lead),
            ];
            let reviewers = forced.map(|(is_touched, protect_review)| {
                let result = TaskResult {
                    submission: 1,
                    summary: String::new(),
                    check: None,
                    verified: Verified::InPlace,
                    touched_protected: is_touched.then(|| "tests/a".to_owned()),
                    commit: None,
                    merged: None,
                };
                let work = Work {
                    protect_review,
                    ..Work::default()
                };
                work.reviewer(&task, &result)
            });
            assert_eq!(reviewers, expected, "{review:?}");
        }
    }
}
