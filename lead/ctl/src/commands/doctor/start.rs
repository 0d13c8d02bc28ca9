//! What a start would find: the daemon, the journal, the roster, and the workers that it would
//! adopt.

use std::time::Duration;

use teamd_client::connection::{Client, is_locked};
use teamd_client::context::block_on;
use teamd_client::print::render::count;
use teamd_client::read::processes::ProcessEntry;
use teamd_shared::config::{ConfigError, VERSION};
use teamd_shared::control::{Command, Done};

use super::finding::Severity::{self, Note, Problem};
use super::finding::{Check, CheckFinding, run};
use super::seen::Seen;

/// How long a daemon may take to say that it runs.
const ANSWER: Duration = Duration::from_secs(3);
/// What to do while a daemon runs that mends its own files.
const MENDED_SOON: &str = "the daemon writes it anew within 10 seconds: run this again";
/// Likewise for lines of other programs in the journal.
const SET_ASIDE: &str = "the daemon sets it aside in journal.torn before it writes again";

/// Judges the daemon: it answers if it holds the lock, and no worker waits for it if it does not
/// run.
pub(super) fn daemon(seen: &Seen) -> Vec<CheckFinding> {
    run("daemon", |check| {
        if seen.locked {
            return daemon_that_runs(seen, check);
        }
        let daemon = seen.team()?.daemon.as_ref();
        let processes = seen.running().filter_map(|member| member.process.as_ref());
        let alive = processes.filter(|process| seen.is_alive(process)).count();
        if seen.is_copied() {
            let what =
                "no daemon runs, and the last one served another directory: this is a copy of it";
            let means = "the processes in the journal are those of the original: `teamd start` touches none of them";
            check.note(what, means, "`teamd start`");
        } else if alive > 0 {
            let verb = if alive == 1 { "is" } else { "are" };
            let what = format!(
                "no daemon runs, and {} {verb} alive",
                count(alive, "worker")
            );
            let means = "their work goes on; no teammate can be spawned, shut down or approved";
            check.problem(what, means, "`teamd start` adopts them");
        } else if let Some(daemon) = daemon {
            let what = format!(
                "no daemon runs; the last one (pid {}) was killed",
                daemon.process.pid
            );
            check.note(
                what,
                "the next start does what it had decided and not done",
                "`teamd start`",
            );
        }
        Some("no daemon runs, and no worker waits for one".to_owned())
    })
}

fn daemon_that_runs(seen: &Seen, check: &mut Check) -> Option<String> {
    if let Some((pid, version)) = ping(seen) {
        return Some(format!("teamd {version} runs (pid {pid})"));
    }
    if !is_locked(&seen.dir) {
        return Some("it has just ended".to_owned());
    }
    // The kernel names the process that took the lock: for a daemon, the command that started it.
    let recorded = seen
        .team()
        .and_then(|team| Some(&team.daemon.as_ref()?.process));
    let recorded = recorded
        .filter(|daemon| daemon.is_alive())
        .map(|daemon| daemon.pid);
    let root = rustix::fs::fstat(&*seen.dir)
        .map(|stat| (stat.st_dev, stat.st_ino))
        .ok();
    let by_kernel = root.into_iter().flat_map(|root| seen.holders(root));
    let holder = recorded
        .into_iter()
        .chain(by_kernel)
        .find_map(|pid| seen.processes.get(pid));
    let holder = holder.map_or_else(
        || "a process that cannot be seen".to_owned(),
        ProcessEntry::describe,
    );
    let what = format!("{holder} holds the lock of the team directory, and no daemon answers");
    let next =
        "see log/teamd.log; `kill -9` a daemon that hangs: `teamd start` then adopts its workers";
    check.problem(what, "no daemon can start as long as that is so", next);
    None
}

/// Asks the daemon for its pid and version.
fn ping(seen: &Seen) -> Option<(u32, String)> {
    let ask = async {
        let call = async {
            Client::connect(&seen.dir)
                .await
                .ok()?
                .call(Command::Ping)
                .await
                .ok()
        };
        match tokio::time::timeout(ANSWER, call).await {
            Ok(Some(Done::Pong { pid, version, .. })) => Ok(Some((pid, version))),
            _ => Ok(None),
        }
    };
    block_on(ask).ok().flatten()
}

/// Judges the journal: a start accepts each line.
pub(super) fn journal(seen: &Seen, check: &mut Check) -> Option<String> {
    let journal = match &seen.journal {
        Ok(journal) => journal,
        Err(error) => {
            let means = "`teamd start` refuses, unless a snapshot follows";
            check.problem(error.to_string(), means, error.next_step());
            return None;
        }
    };
    let shows_members = matches!(&seen.roster, Ok(Some(roster)) if !roster.members.is_empty());
    match (journal.exists, seen.locked) {
        (false, true) => {
            check.problem(
                "there is no journal.jsonl, and a daemon runs",
                "",
                MENDED_SOON,
            );
        }
        (false, false) if shows_members => {
            let means = "`teamd start` begins with an empty roster, and keeps config.json aside";
            check.problem(
                "there is no journal.jsonl, and config.json has members",
                means,
                "put a copy of it back",
            );
        }
        _ => {}
    }
    if let Some(length) = journal.torn {
        let bytes = count(length, "byte");
        let what = format!("the last line of journal.jsonl is torn ({bytes} without a newline)");
        let died =
            "a daemon died while it wrote: what the line would have decided never took effect";
        if seen.locked {
            check.problem(what, "another program has written there", SET_ASIDE)
        } else {
            check.problem(what, died, "`teamd start` sets it aside in journal.torn")
        }
    }
    let pending = journal
        .team
        .requests
        .values()
        .filter(|request| request.is_pending())
        .count();
    let lines = count(
        usize::try_from(journal.team.seq).unwrap_or(usize::MAX),
        "line",
    );
    let members = count(journal.team.members.len(), "member");
    Some(format!(
        "{lines} without a gap; {members}, {} pending",
        count(pending, "request")
    ))
}

/// Judges the roster: it says what the journal says.
pub(super) fn roster(seen: &Seen, check: &mut Check) -> Option<String> {
    let next = if seen.locked {
        MENDED_SOON
    } else {
        "`teamd start` writes it from the journal"
    };
    let mut rewritten =
        |severity: Severity, what: String, means: &str| check.add(severity, what, means, next);
    let roster = match &seen.roster {
        Ok(Some(roster)) => roster,
        Ok(None) => {
            if seen.team().is_some_and(|team| team.seq > 0) {
                rewritten(
                    Problem,
                    "there is no config.json, and the journal has members".to_owned(),
                    "",
                );
            }
            return Some("none yet".to_owned());
        }
        Err(ConfigError::Dir(error)) => {
            check.problem(
                error.to_string(),
                "`teamd start` refuses",
                "look at its permissions",
            );
            return None;
        }
        Err(error @ ConfigError::Malformed(_)) => {
            rewritten(
                Problem,
                error.to_string(),
                "nothing is lost with it: the journal has it all",
            );
            return None;
        }
    };
    if roster.version > VERSION {
        let what = format!(
            "config.json has version {}, this program knows {VERSION}",
            roster.version
        );
        let means = "a newer teamd wrote it: `teamd start` refuses, and never writes over it";
        check.problem(what, means, "use the newer teamd that wrote it");
        return None;
    }
    let journal = seen.journal.as_ref().ok()?;
    if journal.exists && roster.seq != journal.team.seq {
        let (severity, means) = if roster.seq > journal.team.seq {
            (
                Problem,
                "lines of the journal are lost: if there is a copy of it, put that back first",
            )
        } else {
            (
                Note,
                "the daemon was killed before it wrote it, or could not write it",
            )
        };
        let what = format!(
            "config.json shows line {} of the journal, not the last",
            roster.seq
        );
        rewritten(severity, what, means);
    }
    Some(format!(
        "config.json is as of the last line of the journal ({})",
        count(roster.members.len(), "member")
    ))
}

/// Judges the workers: each member that has not ended in the journal has its process.
pub(super) fn workers(seen: &Seen, check: &mut Check) -> Option<String> {
    const RECORDS: &str =
        "`teamd start` records it, and restarts the teammate if its policy says so";
    seen.team()?;
    let mut alive = 0;
    for member in seen.running() {
        let name = &member.name;
        match &member.process {
            Some(process) if seen.is_alive(process) => alive += 1,
            None if seen.locked => alive += 1,
            // Its shims are ending what it had started: `locks` tells of them.
            Some(_) if seen.locked && seen.is_held(name) => {}
            None => {
                let what = format!("the start of {name} was not finished: the daemon was killed");
                check.note(what, "", RECORDS);
            }
            Some(process) => {
                let what = format!(
                    "the process of {name} ({}) is gone, and the journal does not say so",
                    process.pid
                );
                if seen.locked {
                    check.problem(
                        what,
                        "the daemon should have recorded that",
                        "see `teamctl log teamd`",
                    )
                } else {
                    check.note(what, "it ended while no daemon ran", RECORDS)
                };
            }
        }
    }
    Some(format!(
        "{} alive, as the journal says",
        count(alive, "worker")
    ))
}
