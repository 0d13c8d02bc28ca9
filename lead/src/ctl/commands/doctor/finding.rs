//! One thing that was looked at, and what came of it. Pure.

use std::path::PathBuf;

use serde::Serialize;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::TeamPath;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Something is wrong.
    Problem,
}

impl Severity {
    /// Returns it as it is written.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// What came of one look.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    /// What was looked at: `journal`, `inboxes`, `disk` …
    pub(super) check: &'static str,
    /// How bad it is.
    pub(super) severity: Severity,
    /// What is so, in one line.
    pub(super) what: String,
    /// What follows from it; empty where that is plain.
    pub(super) means: String,
    /// What to do next; empty where nothing has to be done.
    pub(super) next: String,
    /// Whether `--fix` sets it right.
    pub(super) fixable: bool,
    /// What it is about, so that two looks can be compared: what was seen once and is gone, or is about something else by
    /// now, was work in progress.
    #[serde(skip)]
    pub(super) about: String,
    /// What sets it right.
    #[serde(skip)]
    pub(super) fix: Option<Fix>,
}

/// What sets something right, without deleting anything that somebody may miss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// Take from others what they may do with a file or folder; none: with the team directory itself.
    Close(Option<TeamPath>),
    /// Set the torn last line of the journal aside, and cut it off.
    Journal,
    /// Write the roster from the journal, and keep the old one aside.
    Roster,
    /// Remove what may be deleted at any time.
    Remove(TeamPath),
    /// Move a file into the archive.
    Archive(TeamPath),
    /// Remove a cgroup in which nobody lives.
    Cgroup(PathBuf),
    /// End a process that is nobody's.
    End(Identity),
}

impl Fix {
    /// Tells whether it may be done only while no daemon runs.
    pub(super) fn needs_rest(&self) -> bool {
        !matches!(self, Self::Close(_))
    }
}

impl Finding {
    fn new(check: &'static str, severity: Severity, what: impl Into<String>) -> Self {
        let what = what.into();
        let (about, empty) = (what.clone(), String::new());
        Self { check, severity, what, means: empty.clone(), next: empty, fixable: false, about, fix: None }
    }

    /// Says that something is as it should be.
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Ok, what)
    }

    /// Says something that is worth knowing.
    pub(super) fn note(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Note, what)
    }

    /// Says that something is wrong.
    pub(super) fn problem(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Problem, what)
    }

    /// Says what follows from it.
    #[must_use]
    pub(super) fn means(mut self, means: impl Into<String>) -> Self {
        self.means = means.into();
        self
    }

    /// Says what to do next.
    #[must_use]
    pub(super) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Says what it is about, where the words for it change from one look to the next.
    #[must_use]
    pub(super) fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// Says what sets it right.
    #[must_use]
    pub(super) fn fix(mut self, fix: Fix) -> Self {
        (self.fixable, self.fix) = (true, Some(fix));
        self
    }
}

/// Says how many there are.
pub(super) fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// Keeps of a later look what an earlier one had seen too. What is as it should be needs no second look.
pub(super) fn seen_again(earlier: &[Finding], later: Vec<Finding>) -> Vec<Finding> {
    let before =
        |finding: &Finding| earlier.iter().any(|it| (it.check, &it.about) == (finding.check, &finding.about));
    later.into_iter().filter(|finding| finding.severity == Severity::Ok || before(finding)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_once_is_no_finding() {
        let at = |offset: u64| {
            Finding::note("inboxes", format!("a torn tail at {offset}")).about(format!("tail {offset}"))
        };
        let fine = || Finding::ok("journal", "42 lines");
        assert_eq!(seen_again(&[at(7)], vec![at(9), fine()]), [fine()]);
        assert_eq!(seen_again(&[at(7), fine()], vec![at(7)]), [at(7)]);
    }
}
