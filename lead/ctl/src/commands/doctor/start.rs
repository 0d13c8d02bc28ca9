//! What a start would find: the daemon, the journal, the roster, and the workers that it would
//! adopt.

use std::time::Duration;

use teamd_client::connection::Client;
use teamd_client::context::block_on;
use teamd_client::daemon_lock::is_locked;
use teamd_client::print::render::count;
use teamd_client::read::processes::ProcessEntry;
use teamd_shared::config::{ConfigError, VERSION};
use teamd_shared::control::{Command, Done};

use super::finding::DoctorCheck;
use super::snapshot::Snapshot;

/// How long a daemon may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Judges the daemon: it answers if it holds the lock, and no worker waits for it if it does not
/// run.
pub(super) fn daemon(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    if snapshot.locked {
        return running_daemon(snapshot, check);
    }
    let daemon = snapshot.team()?.daemon.as_ref();
    let alive = snapshot.workers_alive();
    if snapshot.is_copied() {
        let what =
            "no daemon runs, and the last one served another directory: this is a copy of it";
        let means = "the processes in the journal are those of the original: `teamd start` touches none of them";
        check.note(what, means, "`teamd start`");
    } else if alive > 0 {
        let verb = if alive == 1 { "is" } else { "are" };
        let workers = count(alive, "worker");
        let what = format!("no daemon runs, and {workers} {verb} alive");
        let means = "their work continues; no teammate can be spawned, shut down or approved";
        check.problem(what, means, "`teamd start` adopts them");
    } else if let Some(daemon) = daemon {
        let pid = daemon.process.pid;
        let what = format!("no daemon runs; the last one (pid {pid}) was killed");
        let means = "the next start does what it had decided and not done";
        check.note(what, means, "`teamd start`");
    }
    Some("no daemon runs, and no worker waits for one".to_owned())
}

fn running_daemon(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    if let Some((pid, version)) = ping(snapshot) {
        return Some(format!("teamd {version} runs (pid {pid})"));
    }
    if !is_locked(&snapshot.dir) {
        return Some("it has just ended".to_owned());
    }
    let recorded = snapshot.team().and_then(|team| team.daemon.as_ref());
    let holder = recorded
        .map(|daemon| &daemon.process)
        .filter(|process| process.is_alive())
        .and_then(|process| snapshot.processes.get(process.pid))
        .map_or_else(|| "an unknown process".to_owned(), ProcessEntry::describe);
    let what = format!("{holder} holds the lock of the team directory, and no daemon answers");
    let means = "no daemon can start while the lock is held";
    let next =
        "see log/teamd.log; `kill -9` a daemon that hangs: `teamd start` then adopts its workers";
    check.problem(what, means, next);
    None
}

/// Asks the daemon for its pid and version.
fn ping(snapshot: &Snapshot) -> Option<(u32, String)> {
    let answer = block_on(async {
        let call = async {
            let mut client = Client::connect(&snapshot.dir).await.ok()?;
            client.call(Command::Ping).await.ok()
        };
        Ok(tokio::time::timeout(ANSWER, call).await.ok().flatten())
    });
    match answer {
        Ok(Some(Done::Pong { pid, version, .. })) => Some((pid, version)),
        _ => None,
    }
}

/// Judges the journal: a start accepts each line.
pub(super) fn journal(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let journal = match &snapshot.journal {
        Ok(journal) => journal,
        Err(error) => {
            let means = "`teamd start` refuses, unless a snapshot follows";
            check.problem(error.to_string(), means, error.next_step());
            return None;
        }
    };
    // A daemon that runs sets aside what other programs have written.
    if let Some(length) = journal.torn
        && !snapshot.locked
    {
        let bytes = count(length, "byte");
        let what = format!("the last line of journal.jsonl is torn ({bytes} without a newline)");
        let means =
            "a daemon died while it wrote: what the line would have decided never took effect";
        check.problem(what, means, "`teamd start` sets it aside in journal.torn");
    }
    let pending = journal
        .team
        .requests
        .values()
        .filter(|request| request.is_pending())
        .count();
    let lines = usize::try_from(journal.team.seq).unwrap_or(usize::MAX);
    Some(format!(
        "{} without a gap; {}, {} pending",
        count(lines, "line"),
        count(journal.team.members.len(), "member"),
        count(pending, "request")
    ))
}

/// Judges the roster: a start accepts it, and it shows no more than the journal.
pub(super) fn roster(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    const WRITTEN: &str = "`teamd start` writes it from the journal";
    let journal = snapshot.journal.as_ref().ok();
    let roster = match &snapshot.roster {
        Ok(Some(roster)) => roster,
        Ok(None) => {
            if journal.is_some_and(|journal| journal.team.seq > 0) {
                let what = "there is no config.json, and the journal has members";
                check.problem(what, "", WRITTEN);
            }
            return Some("none yet".to_owned());
        }
        Err(ConfigError::Dir(error)) => {
            let means = "`teamd start` refuses";
            check.problem(error.to_string(), means, "look at its permissions");
            return None;
        }
        Err(error @ ConfigError::Malformed(_)) => {
            let means = "nothing is lost with it: the journal has it all";
            check.problem(error.to_string(), means, WRITTEN);
            return None;
        }
    };
    if roster.version > VERSION {
        let version = roster.version;
        let what = format!("config.json has version {version}, this program knows {VERSION}");
        let means = "a newer teamd wrote it: `teamd start` refuses, and never writes over it";
        check.problem(what, means, "use the newer teamd that wrote it");
        return None;
    }
    let journal = journal?;
    if !journal.exists && !roster.members.is_empty() {
        let what = "there is no journal.jsonl, and config.json has members";
        let means = "`teamd start` begins with an empty roster, and keeps config.json aside";
        check.problem(what, means, "put a copy of it back");
    } else if roster.seq > journal.team.seq {
        let seq = roster.seq;
        let what = format!("config.json shows line {seq} of the journal, which has fewer");
        let means = "lines of the journal are lost: if there is a copy of it, put that back first";
        check.problem(what, means, WRITTEN);
    }
    Some(count(roster.members.len(), "member"))
}
