//! What a check finds: how bad it is, what it means, what to do next, and what sets it right. Pure.

use anstyle::Style;
use serde::{Serialize, Serializer};
use teamd_client::print::escape;
use teamd_client::print::render::{BAD, BOLD, DIM, count};
use teamd_client::print::style::paint;
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

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CheckFinding {
    /// The check: `journal`, `inboxes`, `disk` …
    check: &'static str,
    pub(super) severity: Severity,
    /// What is so, in one line.
    pub(super) what: String,
    /// What follows from it; empty where that is clear.
    pub(super) means: String,
    /// What to do next; empty where nothing has to be done.
    next: String,
    /// What `--fix` does about it. Programs read whether it does anything.
    #[serde(rename = "fixable", serialize_with = "is_some")]
    pub(super) fix: Option<Fix>,
}

/// What sets something right, and deletes no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// Takes the permissions of other users away from a file or folder; none: from the team
    /// directory itself.
    Close(Option<TeamPath>),
    /// Ends an orphan.
    End(Identity),
}

/// A check in progress: it collects findings.
pub(super) struct DoctorCheck {
    name: &'static str,
    findings: Vec<CheckFinding>,
}

/// Runs a check. Returns its findings; if there are none, what it returns for "all is well", if
/// anything.
pub(super) fn run(
    name: &'static str,
    examine: impl FnOnce(&mut DoctorCheck) -> Option<String>,
) -> Vec<CheckFinding> {
    let mut check = DoctorCheck {
        name,
        findings: Vec::new(),
    };
    let fine = examine(&mut check);
    if check.findings.is_empty()
        && let Some(fine) = fine
    {
        check.ok(fine);
    }
    check.findings
}

impl DoctorCheck {
    /// Adds something that is as it should be.
    pub(super) fn ok(&mut self, what: impl Into<String>) {
        self.add(Severity::Ok, what, "", "");
    }

    /// Adds something that is wrong: what is so, what it means, and what to do next.
    pub(super) fn problem(&mut self, what: impl Into<String>, means: &str, next: &str) {
        self.add(Severity::Problem, what, means, next);
    }

    /// Adds something that is worth knowing.
    pub(super) fn note(&mut self, what: impl Into<String>, means: &str, next: &str) {
        self.add(Severity::Note, what, means, next);
    }

    /// Adds something that `--fix` sets right.
    pub(super) fn fixable(&mut self, severity: Severity, what: String, means: &str, fix: Fix) {
        let next = format!("`teamctl doctor --fix` {fix}");
        let finding = CheckFinding {
            fix: Some(fix),
            ..self.finding(severity, what, means, &next)
        };
        self.findings.push(finding);
    }

    /// Adds a finding.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        means: &str,
        next: &str,
    ) {
        let finding = self.finding(severity, what.into(), means, next);
        self.findings.push(finding);
    }

    fn finding(&self, severity: Severity, what: String, means: &str, next: &str) -> CheckFinding {
        CheckFinding {
            check: self.name,
            severity,
            what,
            means: means.to_owned(),
            next: next.to_owned(),
            fix: None,
        }
    }
}

impl std::fmt::Display for Fix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Close(_) => "takes the permissions away",
            Self::End(_) => "ends it",
        })
    }
}

fn is_some<S: Serializer>(fix: &Option<Fix>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(fix.is_some())
}

/// Sums findings up in one line.
pub(super) fn verdict(findings: &[CheckFinding]) -> String {
    match (
        number(findings, Severity::Problem),
        number(findings, Severity::Note),
    ) {
        (0, 0) => format!(
            "all is well ({}; `-v` shows each)",
            count(findings.len(), "check")
        ),
        (0, notes) => format!("no problem, {}", count(notes, "note")),
        (problems, 0) => count(problems, "problem"),
        (problems, notes) => format!("{}, {}", count(problems, "problem"), count(notes, "note")),
    }
}

fn number(findings: &[CheckFinding], severity: Severity) -> usize {
    findings
        .iter()
        .filter(|finding| finding.severity == severity)
        .count()
}

/// Lays findings out for people: the check and what is so. Below each finding that is not as it
/// should be follow what it means and what to do next. What is in order is shown only with
/// `verbose`.
pub(super) fn show(findings: &[CheckFinding], verbose: bool) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.check.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for finding in findings
        .iter()
        .filter(|finding| verbose || finding.severity != Severity::Ok)
    {
        let label = match finding.severity {
            Severity::Ok => paint(Style::new(), "ok     "),
            Severity::Note => paint(BOLD, "note   "),
            Severity::Problem => paint(BAD, "problem"),
        };
        let check = finding.check;
        let what = escape::line(&finding.what);
        text.push_str(&format!("{check:width$}  {label}  {what}\n"));
        for (label, explanation) in [("means  ", &finding.means), ("next   ", &finding.next)] {
            if !explanation.is_empty() {
                let label = paint(DIM, label);
                let explanation = escape::line(explanation);
                text.push_str(&format!("{:width$}  {label}  {explanation}\n", ""));
            }
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the severity and the text of what a check finds.
    pub(crate) fn summaries(
        examine: impl FnOnce(&mut DoctorCheck) -> Option<String>,
    ) -> Vec<(Severity, String)> {
        run("test", examine)
            .into_iter()
            .map(|finding| (finding.severity, finding.what))
            .collect()
    }

    #[test]
    fn a_problem_is_shown_with_its_meaning_and_the_next_step() {
        let findings = [
            run("disk", |_| Some("4 MiB are free".to_owned())),
            run("journal", |check| {
                check.problem("line 3 cannot be \x1b read", "no daemon starts", "mend it");
                Some("not shown".to_owned())
            }),
            run("cgroup", |check| {
                check.note("none", "", "");
                None
            }),
        ];
        let shown = anstream::adapter::strip_str(&show(&findings.concat(), true)).to_string();
        insta::assert_snapshot!(shown, @r"
        disk     ok       4 MiB are free
        journal  problem  line 3 cannot be \u{1b} read
                 means    no daemon starts
                 next     mend it
        cgroup   note     none
        ");
        assert!(!show(&findings.concat(), false).contains("4 MiB"));
    }
}
