//! `teamctl doctor`: what is wrong with this machine and this team directory, and what to do about it.
//!
//! It looks, and judges what it saw (each check is a file of its own). What runs meanwhile is looked at again before it is
//! called wrong: only what stays is a finding. It reads files and `/proc`, tries no lock but that of the daemon, and
//! changes nothing, unless it is told to ([`fix`]).

mod access;
mod cgroups;
mod disk;
mod finding;
mod fix;
mod inboxes;
mod journal;
mod leftovers;
mod machine;
mod processes;
mod report;
mod roster;
mod sandbox;
mod seen;
mod strays;
mod transcripts;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use teamd_shared::register::Register;
use teamd_shared::state::StateError;
use teamd_shared::team_dir::TeamDir;

use self::finding::{Finding, Severity};
use self::fix::Fixed;
use self::sandbox::Confined;
use self::seen::Seen;
use crate::ctl::args::Doctor;
use crate::ctl::context::Context;
use crate::ctl::escape;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;
use crate::upkeep::TakeLock;

/// Between the looks at a team that is at work: what is in progress is over by then.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(1)];

/// The checks of a team directory, in the order in which they are told.
const CHECKS: [fn(&Seen) -> Vec<Finding>; 13] = [
    |seen| disk::Disk::look(&seen.dir).map(|disk| disk.findings()).unwrap_or_default(),
    |seen| disk::clock(seen.journal.last_at, seen.journal.boot.as_deref()),
    journal::judge,
    roster::judge,
    roster::judge_lives,
    cgroups::judge_lives,
    inboxes::judge,
    inboxes::judge_cursors,
    transcripts::judge,
    strays::judge_locks,
    strays::judge_orphans,
    |seen| [access::judge(seen), leftovers::judge(seen)].concat(),
    sandbox::judge_programs,
];

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Doctor, take_lock: TakeLock) -> CommandResult {
    let opened = context.dir().map(Arc::new);
    let confined = sandbox::look(opened.as_deref().ok());
    let mut findings = confined.findings();
    findings.extend(machine::Machine::look(&processes::list(), context.settings.cgroup).findings());
    findings.extend(register(&context.register));
    let mut fixed = Fixed::default();
    match &opened {
        Ok(dir) => {
            let mut of_team = examine(dir);
            if args.fix && of_team.iter().any(|finding| finding.fix.is_some()) {
                fixed = fix::all(dir, &of_team, take_lock);
                of_team = examine(dir);
            }
            findings.extend(of_team);
        }
        Err(_) if context.is_missing() => {
            let here = format!("there is no team directory at {}", context.path.display());
            findings.push(Finding::ok("team", here));
        }
        Err(error) => {
            let finding = Finding::problem("team", error.to_string()).means("no command works here");
            findings.push(finding.next(error.next_step().unwrap_or_default()));
        }
    }
    tell(context, &confined, &findings, &fixed)?;
    let worst = findings.iter().map(|finding| finding.severity).max();
    let failed = worst == Some(Severity::Problem) || !fixed.failed.is_empty();
    Ok(if failed { ExitCode::Failed } else { ExitCode::Done })
}

/// Judges the register: what is in it is believed, and hidden from tools.
fn register(register: &Register) -> Vec<Finding> {
    let bad = |why: StateError, next: &str| {
        let means = "a team directory is not believed, and not hidden from tools";
        Finding::problem("register", why.to_string()).means(means).next(next)
    };
    let of_an_entry = "remove that file, and enter the directory with `teamd start --adopt DIR`";
    let of_all = "make the state directory yours again (`ls -ld`), or set XDG_STATE_HOME to another one";
    match register.all() {
        Ok((found, unread)) if unread.is_empty() => {
            let teams = finding::count(found.len().saturating_sub(1), "team");
            vec![Finding::ok("register", format!("{teams} in {}", register.state().root().display()))]
        }
        Ok((_, unread)) => unread.into_iter().map(|why| bad(why, of_an_entry)).collect(),
        Err(error) => vec![bad(error, of_all)],
    }
}

/// Looks at a team directory, until what it finds is there to stay.
fn examine(dir: &Arc<TeamDir>) -> Vec<Finding> {
    let mut seen = Seen::look(dir);
    let mut findings = judge(&seen);
    for pause in PAUSES {
        if !seen.is_at_work() || findings.iter().all(|finding| finding.severity == Severity::Ok) {
            break;
        }
        wait(pause);
        seen = Seen::look(dir);
        findings = finding::seen_again(&findings, judge(&seen));
    }
    // Once: a daemon that does not answer takes its time.
    findings.insert(0, strays::judge_daemon(&seen));
    findings
}

fn judge(seen: &Seen) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(seen)).collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is in progress is given the time to end; nothing tells when"
)]
fn wait(pause: Duration) {
    std::thread::sleep(pause);
}

fn tell(
    context: &Context,
    confined: &Confined,
    findings: &[Finding],
    fixed: &Fixed,
) -> Result<(), CommandError> {
    let out = &context.out;
    if out.is_json() {
        let mut report = json!({"findings": findings, "fixed": fixed.done, "failed": fixed.failed});
        if let (Value::Object(report), Value::Object(sandbox)) = (&mut report, confined.to_json()) {
            report.extend(sandbox);
        }
        return out.json(&report);
    }
    if let Some(table) = confined.table() {
        out.text(table.render(out.width()))?;
        out.text("\n")?;
    }
    out.text(report::show(findings))?;
    confined.missing().iter().for_each(|why| out.note(format_args!("missing: {why}")));
    for done in &fixed.done {
        out.text(format_args!("fixed: {}", escape::line(done)))?;
    }
    for why in &fixed.failed {
        out.note(format_args!("not fixed: {}", escape::line(why)));
    }
    let fixable = findings.iter().filter(|finding| finding.fixable).count();
    if fixable > 0 {
        out.hint(format_args!("`teamctl doctor --fix` sets {fixable} of these right, and deletes no data"));
    }
    Ok(())
}
