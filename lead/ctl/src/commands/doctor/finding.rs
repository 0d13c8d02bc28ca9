//! What a check found: how bad it is, what it means, what to do next, and what sets it right. Pure.

use std::path::PathBuf;

use anstyle::Style;
use serde::Serialize;
use teamd_client::print::escape;
use teamd_client::print::output::paint;
use teamd_client::print::render::{BAD, BOLD, DIM, count};
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
    /// What is so, in one line. Two looks are compared by it: it holds no age and no other figure
    /// that changes by itself.
    pub(super) what: String,
    /// What follows from it; empty where that is plain.
    pub(super) means: String,
    /// What to do next; empty where nothing has to be done.
    next: String,
    /// Whether `--fix` sets it right.
    pub(super) fixable: bool,
    #[serde(skip)]
    pub(super) fix: Option<Fix>,
}

/// What sets something right, and deletes no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// Takes the permissions of other users away from a file or folder; none: from the team
    /// directory itself.
    Close(Option<TeamPath>),
    /// Removes an empty cgroup.
    Cgroup(PathBuf),
    /// Ends an orphan.
    End(Identity),
}

/// A check that is under way: it collects what it finds.
pub(super) struct Check {
    name: &'static str,
    found: Vec<CheckFinding>,
}

/// Runs a check: what it found, else what it returns for "all is well", if it has something to say.
pub(super) fn run(
    name: &'static str,
    look: impl FnOnce(&mut Check) -> Option<String>,
) -> Vec<CheckFinding> {
    let mut check = Check {
        name,
        found: Vec::new(),
    };
    let fine = look(&mut check);
    if check.found.is_empty()
        && let Some(fine) = fine
    {
        check.add(Severity::Ok, fine, "", "");
    }
    check.found
}

impl Check {
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
        self.add(
            severity,
            what,
            means,
            &format!("`teamctl doctor --fix` {fix}"),
        );
        if let Some(finding) = self.found.last_mut() {
            finding.fixable = true;
            finding.fix = Some(fix);
        }
    }

    /// Adds a finding.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        means: &str,
        next: &str,
    ) {
        let what = what.into();
        let means = means.to_owned();
        let next = next.to_owned();
        self.found.push(CheckFinding {
            check: self.name,
            severity,
            what,
            means,
            next,
            fixable: false,
            fix: None,
        });
    }
}

impl std::fmt::Display for Fix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Close(_) => "takes the permissions away",
            Self::Cgroup(_) => "removes it",
            Self::End(_) => "ends it",
        })
    }
}

/// Keeps of a later look what an earlier one had found too: the rest was work in progress.
pub(super) fn found_again(earlier: &[CheckFinding], later: Vec<CheckFinding>) -> Vec<CheckFinding> {
    let before = |finding: &CheckFinding| {
        earlier
            .iter()
            .any(|it| (it.check, &it.what) == (finding.check, &finding.what))
    };
    later
        .into_iter()
        .filter(|finding| finding.severity == Severity::Ok || before(finding))
        .collect()
}

/// Says in one line how it stands.
pub(super) fn verdict(findings: &[CheckFinding]) -> String {
    let number = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    match (number(Severity::Problem), number(Severity::Note)) {
        (0, 0) => format!(
            "all is well ({}; `-v` shows each)",
            count(findings.len(), "check")
        ),
        (0, notes) => format!("no problem, {}", count(notes, "note")),
        (problems, 0) => count(problems, "problem"),
        (problems, notes) => format!("{}, {}", count(problems, "problem"), count(notes, "note")),
    }
}

/// Lays findings out for people, those of what is well only with `verbose`: the check, how it
/// stands, and below each that is not as it should be what it means and what to do next.
pub(super) fn show(findings: &[CheckFinding], verbose: bool) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.check.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for finding in findings
        .iter()
        .filter(|it| verbose || it.severity != Severity::Ok)
    {
        let (style, state) = match finding.severity {
            Severity::Ok => (Style::new(), "ok"),
            Severity::Note => (BOLD, "note"),
            Severity::Problem => (BAD, "problem"),
        };
        let what = (
            finding.check,
            paint(style, format_args!("{state:<7}")),
            &finding.what,
        );
        let means = ("", paint(DIM, "means  "), &finding.means);
        let next = ("", paint(DIM, "next   "), &finding.next);
        for (check, label, said) in [what, means, next]
            .into_iter()
            .filter(|(_, _, said)| !said.is_empty())
        {
            text.push_str(&format!(
                "{check:width$}  {label}  {}\n",
                escape::line(said)
            ));
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the severity and the text of what a check finds.
    pub(crate) fn told(look: impl FnOnce(&mut Check) -> Option<String>) -> Vec<(Severity, String)> {
        run("test", look)
            .into_iter()
            .map(|it| (it.severity, it.what))
            .collect()
    }

    #[test]
    fn what_was_found_once_is_no_finding() {
        let at = |offset: u64| {
            run("inboxes", |check| {
                check.note(format!("a torn tail at {offset}"), "", "");
                None
            })
        };
        let fine = || run("journal", |_| Some("42 lines".to_owned()));
        assert_eq!(found_again(&at(7), [at(9), fine()].concat()), fine());
        assert_eq!(found_again(&[at(7), fine()].concat(), at(7)), at(7));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_it_means_and_what_to_do() {
        let findings = [
            run("disk", |_| Some("4 MiB are free".to_owned())),
            run("journal", |check| {
                check.problem("line 3 cannot be \x1b read", "no daemon starts", "mend it");
                Some("not told".to_owned())
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
