//! The findings as people read them. Pure.

use anstyle::Style;

use super::finding::{Finding, Severity};
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, BOLD, DIM};

/// Lays the findings out: what was looked at, how it stands, and below what is not as it should be what that means and
/// what to do next. Nothing is cut: these lines are few, and matter.
pub(super) fn show(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let style = match finding.severity {
            Severity::Ok => Style::new(),
            Severity::Note => BOLD,
            Severity::Problem => BAD,
        };
        let state = paint(style, format_args!("{:<7}", finding.severity.as_str()));
        text.push_str(&format!("{:width$}  {state}  {}\n", finding.check, escape::line(&finding.what)));
        for (label, said) in [("means", &finding.means), ("next", &finding.next)] {
            if finding.severity != Severity::Ok && !said.is_empty() {
                let label = paint(DIM, format_args!("{label:<7}"));
                text.push_str(&format!("{:width$}  {label}  {}\n", "", escape::line(said)));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_what_it_means_and_what_to_do() {
        let findings = [
            Finding::ok("disk", "4 MiB are free").means("not told"),
            Finding::problem("journal", "line 3 cannot be \x1b read")
                .means("no daemon starts")
                .next("mend it"),
            Finding::note("cgroup", "none"),
        ];
        let shown = anstream::adapter::strip_str(&show(&findings)).to_string();
        insta::assert_snapshot!(shown, @r"
        disk     ok       4 MiB are free
        journal  problem  line 3 cannot be \u{1b} read
                 means    no daemon starts
                 next     mend it
        cgroup   note     none
        ");
    }
}
