//! `teamctl doctor`: a dry run of a start, the promises of the sandbox, and what else is wrong with
//! this machine and this team directory.
//!
//! It reads files and `/proc`, tries no lock but that of the daemon, and changes nothing without
//! [`fix`]. What a daemon keeps in order itself (the roster, the files of tasks, the processes) is
//! examined only while none runs: nothing that is in progress looks like a mistake.

mod access;
mod config;
mod files;
mod finding;
mod fix;
pub(super) mod hosts;
mod leftovers;
mod machine;
mod mcp;
mod memory;
mod orphans;
mod prices;
mod sandbox;
mod slots;
mod snapshot;
mod start;

use std::sync::Arc;

use serde::Serialize;
use teamd_client::args::Doctor;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{escape, render};
use teamd_shared::environment::{CLAUDE_TOKEN, Environment};
use teamd_shared::register::Register;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::user_config::UserConfig;

use self::finding::{CheckFinding, DoctorCheck, Severity};
use self::fix::Fixes;
use self::sandbox::Confined;
use self::snapshot::Snapshot;

/// A check of a team directory. Returns what to report if it finds nothing.
type Examination = fn(&Snapshot, &mut DoctorCheck) -> Option<String>;

/// The checks of a team directory, in the order in which they are reported.
const CHECKS: [(&str, Examination); 11] = [
    ("daemon", start::daemon),
    ("hosts", hosts::hosts),
    ("file system", machine::file_system),
    ("disk", machine::disk),
    ("journal", start::journal),
    ("inboxes", files::inboxes),
    ("transcripts", files::transcripts),
    ("tasks", files::tasks),
    ("access", access::access),
    ("leftovers", leftovers::leftovers),
    ("programs", sandbox::programs),
];

/// The checks of what a running daemon keeps in order.
const CHECKS_WITHOUT_DAEMON: [(&str, Examination); 4] = [
    ("roster", start::roster),
    ("tasks", files::files_of_tasks),
    ("locks", orphans::locks),
    ("orphans", orphans::orphans),
];

/// What the command reports to programs.
#[derive(Serialize)]
struct DoctorReport {
    findings: Vec<CheckFinding>,
    #[serde(flatten)]
    fixes: Fixes,
    #[serde(flatten)]
    confined: Confined,
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Doctor) -> CommandResult {
    let opened = context.dir().map(Arc::new);
    let confined = sandbox::attack(opened.as_deref().ok());
    let mut findings = confined.findings();
    findings.extend(machine::examine(context.settings.cgroup));
    findings.extend(finding::run("slots", |_| {
        slots::examine(&context.settings.machine, &Environment::of_self())
    }));
    findings.extend(finding::run("memory", |_| {
        memory::examine(&context.settings.machine, &Environment::of_self())
    }));
    findings.extend(finding::run("prices", |check| {
        prices::examine(check, teamd_shared::clock::wall())
    }));
    findings.extend(finding::run("config", |check| {
        let config = UserConfig::load(|name| std::env::var_os(name));
        let has_token = std::env::var_os(CLAUDE_TOKEN).is_some();
        config::examine(check, config, has_token)
    }));
    // What is wrong with the file itself is told before.
    if let Ok(file) = context.team_file() {
        findings.extend(finding::run("mcp", |check| {
            mcp::examine(check, file, &Environment::of_self())
        }));
    }
    findings.extend(finding::run("register", |check| {
        register(check, &context.register)
    }));
    let mut fixes = Fixes::default();
    match &opened {
        Ok(dir) => {
            let mut of_team = examine(dir);
            if args.fix && of_team.iter().any(|finding| finding.fix.is_some()) {
                fixes = fix::all(dir, &of_team);
                of_team = examine(dir);
            }
            findings.extend(of_team);
        }
        Err(error) => findings.extend(finding::run("team", |check| {
            unusable(context, error, check)
        })),
    }
    let report = DoctorReport {
        findings,
        fixes,
        confined,
    };
    print(context, &report, args.verbose)?;
    let has_problem = report
        .findings
        .iter()
        .any(|finding| finding.severity == Severity::Problem);
    Ok(if has_problem || !report.fixes.failed.is_empty() {
        ExitCode::Failed
    } else {
        ExitCode::Done
    })
}

/// Reports why no command can use the team directory. That there is none is in order.
fn unusable(context: &Context, error: &CommandError, check: &mut DoctorCheck) -> Option<String> {
    if context.is_missing() {
        let path = context.path.display();
        return Some(format!("there is no team directory at {path}"));
    }
    let next = error.next_step().unwrap_or_default();
    check.problem(error.to_string(), "no command works here", next);
    None
}

/// Judges the register: the team directories in it are used, and hidden from tools.
fn register(check: &mut DoctorCheck, register: &Register) -> Option<String> {
    const MEANS: &str = "a team directory is not used, and not hidden from tools";
    match register.all() {
        Ok((directories, unread)) => {
            for why in unread {
                let next =
                    "remove that file, and enter the directory with `teamd start --adopt DIR`";
                check.problem(why.to_string(), MEANS, next);
            }
            let teams = render::count(directories.len().saturating_sub(1), "team");
            Some(format!("{teams} in {}", register.state().root().display()))
        }
        Err(error) => {
            let next = "make the state directory yours again (`ls -ld`), or set XDG_STATE_HOME to another one";
            check.problem(error.to_string(), MEANS, next);
            None
        }
    }
}

/// Examines a team directory.
fn examine(dir: &Arc<TeamDir>) -> Vec<CheckFinding> {
    let snapshot = Snapshot::take(dir);
    let mut checks = CHECKS.to_vec();
    if !snapshot.locked {
        checks.extend(CHECKS_WITHOUT_DAEMON);
    }
    checks
        .iter()
        .flat_map(|(name, examination)| finding::run(name, |check| examination(&snapshot, check)))
        .collect()
}

fn print(context: &Context, report: &DoctorReport, verbose: bool) -> Result<(), CommandError> {
    let out = &context.out;
    if out.is_json() {
        return out.json(report);
    }
    out.wrapped(&finding::show(&report.findings, verbose))?;
    for why in &report.confined.missing {
        out.note(format_args!("missing: {why}"));
    }
    for fixed in &report.fixes.fixed {
        out.text(format_args!("fixed: {}", escape::line(fixed)))?;
    }
    for why in &report.fixes.failed {
        out.note(format_args!("not fixed: {}", escape::line(why)));
    }
    out.text(finding::verdict(&report.findings))?;
    let fixable = report
        .findings
        .iter()
        .filter(|finding| finding.fix.is_some())
        .count();
    if fixable > 0 {
        out.hint(format_args!(
            "`teamctl doctor --fix` sets {fixable} of these right, and deletes no data"
        ));
    }
    Ok(())
}
