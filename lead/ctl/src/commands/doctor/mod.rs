//! `teamctl doctor`: a dry run of a start, and what else is wrong with this machine and this team
//! directory.
//!
//! It reads files and `/proc`, tries no lock but that of the daemon, and changes nothing, unless it
//! is told to ([`fix`]). While a daemon or a worker runs it looks again before it calls something
//! wrong: only what stays is a finding.

mod access;
mod files;
mod finding;
mod fix;
mod leftovers;
mod machine;
mod orphans;
mod prices;
mod sandbox;
mod seen;
mod start;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use teamd_client::args::Doctor;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{escape, render};
use teamd_shared::register::Register;
use teamd_shared::team_dir::TeamDir;

use self::finding::{Check, CheckFinding, Severity};
use self::fix::Fixed;
use self::sandbox::Confined;
use self::seen::Seen;

/// Between the looks at a team that is at work: what is in progress is over by then.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
];

/// A check of a team directory. Returns what it says if it finds nothing.
type Look = fn(&Seen, &mut Check) -> Option<String>;

/// The checks of a team directory, in the order in which they are told.
const CHECKS: [(&str, Look); 14] = [
    ("file system", machine::file_system),
    ("disk", machine::disk),
    ("journal", start::journal),
    ("roster", start::roster),
    ("workers", start::workers),
    ("cgroup", machine::workers_without_cgroup),
    ("inboxes", files::inboxes),
    ("transcripts", files::transcripts),
    ("tasks", files::tasks),
    ("locks", orphans::locks),
    ("orphans", orphans::orphans),
    ("access", access::access),
    ("leftovers", leftovers::leftovers),
    ("programs", sandbox::programs),
];

/// What the command tells programs.
#[derive(Serialize)]
struct Report {
    findings: Vec<CheckFinding>,
    #[serde(flatten)]
    fixed: Fixed,
    #[serde(flatten)]
    confined: Confined,
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Doctor) -> CommandResult {
    let opened = context.dir().map(Arc::new);
    let confined = sandbox::look(opened.as_deref().ok());
    let mut findings = confined.findings();
    findings.extend(machine::look(context.settings.cgroup));
    findings.extend(finding::run("prices", |check| {
        prices::look(check, teamd_shared::clock::wall())
    }));
    findings.extend(finding::run("register", |check| {
        register(check, &context.register)
    }));
    let mut fixed = Fixed::default();
    match &opened {
        Ok(dir) => {
            let mut of_team = examine(dir);
            if args.fix && of_team.iter().any(|finding| finding.fixable) {
                fixed = fix::all(dir, &of_team);
                of_team = examine(dir);
            }
            findings.extend(of_team);
        }
        Err(error) => findings.extend(finding::run("team", |check| {
            if context.is_missing() {
                return Some(format!(
                    "there is no team directory at {}",
                    context.path.display()
                ));
            }
            let next = error.next_step().unwrap_or_default();
            check.problem(error.to_string(), "no command works here", next);
            None
        })),
    }
    let failed = findings
        .iter()
        .any(|finding| finding.severity == Severity::Problem)
        || !fixed.failed.is_empty();
    print(
        context,
        &Report {
            findings,
            fixed,
            confined,
        },
        args.verbose,
    )?;
    Ok(if failed {
        ExitCode::Failed
    } else {
        ExitCode::Done
    })
}

/// Judges the register: the team directories in it are used, and hidden from tools.
fn register(check: &mut Check, register: &Register) -> Option<String> {
    const MEANS: &str = "a team directory is not used, and not hidden from tools";
    match register.all() {
        Ok((found, unread)) => {
            for why in unread {
                let next =
                    "remove that file, and enter the directory with `teamd start --adopt DIR`";
                check.problem(why.to_string(), MEANS, next);
            }
            let teams = render::count(found.len().saturating_sub(1), "team");
            Some(format!("{teams} in {}", register.state().root().display()))
        }
        Err(error) => {
            let next = "make the state directory yours again (`ls -ld`), or set XDG_STATE_HOME to another one";
            check.problem(error.to_string(), MEANS, next);
            None
        }
    }
}

/// Looks at a team directory, until what it finds is there to stay.
fn examine(dir: &Arc<TeamDir>) -> Vec<CheckFinding> {
    let mut seen = Seen::look(dir);
    let mut findings = judge(&seen);
    for pause in PAUSES {
        if !seen.is_at_work()
            || findings
                .iter()
                .all(|finding| finding.severity == Severity::Ok)
        {
            break;
        }
        wait(pause);
        seen = Seen::look(dir);
        findings = finding::found_again(&findings, judge(&seen));
    }
    // Once: it takes a while to be sure that a daemon does not answer.
    [start::daemon(&seen), findings].concat()
}

fn judge(seen: &Seen) -> Vec<CheckFinding> {
    CHECKS
        .iter()
        .flat_map(|(name, look)| finding::run(name, |check| look(seen, check)))
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is in progress is given the time to end; nothing tells when"
)]
fn wait(pause: Duration) {
    std::thread::sleep(pause);
}

fn print(context: &Context, report: &Report, verbose: bool) -> Result<(), CommandError> {
    let out = &context.out;
    if out.is_json() {
        return out.json(report);
    }
    out.wrapped(&finding::show(&report.findings, verbose))?;
    for why in &report.confined.missing {
        out.note(format_args!("missing: {why}"));
    }
    for done in &report.fixed.done {
        out.text(format_args!("fixed: {}", escape::line(done)))?;
    }
    for why in &report.fixed.failed {
        out.note(format_args!("not fixed: {}", escape::line(why)));
    }
    out.text(finding::verdict(&report.findings))?;
    let fixable = report
        .findings
        .iter()
        .filter(|finding| finding.fixable)
        .count();
    if fixable > 0 {
        out.hint(format_args!(
            "`teamctl doctor --fix` sets {fixable} of these right, and deletes no data"
        ));
    }
    Ok(())
}
