//! The journal: every line parses, continues the one before, and is no newer than this program.

use teamd_shared::journal::FoldError;

use super::finding::{Finding, Fix, count};
use super::seen::{Bad, Seen};
use crate::error::MEND_JOURNAL;

const CHECK: &str = "journal";

/// Judges it.
pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let journal = &seen.journal;
    if let Some(bad) = &journal.bad {
        return vec![unreadable(bad)];
    }
    if !journal.exists {
        return vec![missing(seen)];
    }
    let mut findings = Vec::new();
    if let Some((offset, length)) = journal.torn {
        let what =
            format!("the last line of journal.jsonl is torn ({} without a newline)", count(length, "byte"));
        let finding = Finding::problem(CHECK, what).about(format!("torn {offset} {length}"));
        findings.push(if seen.locked {
            finding
                .means("its daemon runs and writes whole lines: somebody else has written there")
                .next("look at the end of the file; `teamd stop` and `teamd start` set a torn line aside")
        } else {
            finding
                .means("a daemon died while it wrote: what the line would have decided never took effect")
                .next("`teamctl doctor --fix`, or `teamd start`, sets it aside in journal.torn")
                .fix(Fix::Journal)
        });
    }
    if let Some(team) = seen.team() {
        let pending = team.requests.values().filter(|request| request.is_pending()).count();
        let (lines, members) = (count(journal.lines, "line"), count(team.members.len(), "member"));
        findings.push(Finding::ok(
            CHECK,
            format!("{lines} without a gap; {members}, {} pending", count(pending, "request")),
        ));
    }
    findings
}

fn unreadable(bad: &Bad) -> Finding {
    let means = "no daemon starts here before it is mended, and nothing of it is ever written over";
    match bad {
        Bad::File(why) => {
            Finding::problem(CHECK, why).means(means).next("look at its permissions, and at the disk")
        }
        Bad::Line(number, why) => {
            Finding::problem(CHECK, format!("line {number} of journal.jsonl cannot be read: {why}"))
                .means(means)
                .next(MEND_JOURNAL)
        }
        Bad::Fold(number, FoldError::Newer(version)) => Finding::problem(
            CHECK,
            format!("line {number} of journal.jsonl says that it has version {version}"),
        )
        .means("a newer teamd wrote it; this one does not start here")
        .next("use the newer teamd that wrote it"),
        Bad::Fold(number, why) => {
            Finding::problem(CHECK, format!("line {number} of journal.jsonl does not continue it: {why}"))
                .means(means)
                .next(MEND_JOURNAL)
        }
    }
}

fn missing(seen: &Seen) -> Finding {
    let members = seen.roster.as_ref().ok().and_then(Option::as_ref).map_or(0, |roster| roster.members.len());
    if seen.locked {
        return Finding::problem(CHECK, "there is no journal.jsonl, and a daemon runs")
            .means(
                "somebody deleted it; the daemon writes it anew from what it holds open, within 10 seconds",
            )
            .next("run this again in a moment");
    }
    if members == 0 {
        return Finding::ok(CHECK, "none yet: no daemon ever ran here");
    }
    Finding::problem(CHECK, format!("there is no journal.jsonl, and config.json has {members} members"))
        .means("`teamd start` begins anew with an empty roster, and keeps config.json aside")
        .next("put journal.jsonl back, if there is a copy of it, before a daemon starts")
}
