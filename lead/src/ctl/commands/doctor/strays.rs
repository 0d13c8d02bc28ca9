//! Who is there and should not be, with the evidence: the daemon and its lock, life locks in strange hands, workers and
//! keepers that the journal does not know.

use teamd_shared::control::{Command, Done};
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{Found, TeamPath};

use super::finding::{Finding, Fix, count};
use super::processes::Process;
use super::seen::Seen;
use crate::client::{Client, is_locked};
use crate::ctl::clock::span;
use crate::ctl::context::block_on;

/// How long a daemon may take to say that it is there.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(3);

/// Judges the daemon: it answers if it holds the lock, and nobody waits for it if it does not.
pub(super) fn judge_daemon(seen: &Seen) -> Finding {
    const CHECK: &str = "daemon";
    if seen.locked {
        return match ping(seen) {
            Some((pid, version)) => Finding::ok(CHECK, format!("teamd {version} runs (pid {pid})")),
            None if !is_locked(&seen.dir) => Finding::ok(CHECK, "it has just ended"),
            None => silent(seen),
        };
    }
    let Some(team) = seen.team() else {
        return Finding::note(CHECK, "no daemon runs").next("see under `journal`");
    };
    if seen.is_copied() {
        return Finding::note(
            CHECK,
            "no daemon runs, and the last one served another directory: this is a copy of it",
        )
        .means("the processes that are named here are those of the original; nobody works here")
        .next("`teamd start` records that they are not here, and touches none of them");
    }
    let alive = team.members.values().filter(|state| {
        !state.record.phase.is_ended() && state.record.process.as_ref().is_some_and(Identity::is_alive)
    });
    match (alive.count(), &team.daemon) {
        (0, None) => Finding::ok(CHECK, "no daemon runs; none is waited for"),
        (0, Some(daemon)) => Finding::note(
            CHECK,
            format!("no daemon runs; the last one (pid {}) did not end in order", daemon.process.pid),
        )
        .means("it was killed, or the machine stopped; what it had decided is done at the next start")
        .next("`teamd start`"),
        (alive, _) => {
            let verb = if alive == 1 { "is" } else { "are" };
            let what = format!("no daemon runs, and {} {verb} alive", count(alive, "worker"));
            Finding::problem(CHECK, what)
                .means("work and mail go on; nobody can be spawned, asked to leave, or approved")
                .next("`teamd start` adopts them")
        }
    }
}

fn silent(seen: &Seen) -> Finding {
    const CHECK: &str = "daemon";
    let process = holder(seen);
    let who = process.map_or_else(|| "somebody".to_owned(), Process::describe);
    let what = format!("{who} holds the lock of the team directory, and no daemon answers");
    let finding = Finding::problem(CHECK, what);
    if let Some(stranger) = process.filter(|process| !process.is_daemon()) {
        return finding
            .means("no daemon can start as long as that is so")
            .next(format!("end it, if it is yours: `kill {}`", stranger.pid));
    }
    finding.means("a daemon that is stopped, hangs, or only starts or ends").next(
        "look at it with `ps`, and at log/teamd.log; if it hangs, `kill -9` it: `teamd start` then adopts its workers",
    )
}

/// Who holds the daemon's lock. The kernel names whoever took it: for a daemon that was the command that started it.
fn holder(seen: &Seen) -> Option<&Process> {
    let root = rustix::fs::fstat(&*seen.dir).ok().map(|stat| (stat.st_dev, stat.st_ino))?;
    let recorded = seen.team().and_then(|team| team.daemon.as_ref()).map(|daemon| &daemon.process);
    let recorded =
        recorded.filter(|process| process.is_alive()).and_then(|process| seen.process(process.pid));
    let serving = || seen.processes.iter().find(|process| process.serves(seen.dir.root()));
    recorded.or_else(serving).or_else(|| seen.holders(root).find_map(|pid| seen.process(pid)))
}

/// Asks the daemon for its pid and version.
fn ping(seen: &Seen) -> Option<(u32, String)> {
    let ask = async {
        let call = async { Client::connect(&seen.dir).await.ok()?.call(Command::Ping).await.ok() };
        match tokio::time::timeout(ANSWER, call).await {
            Ok(Some(Done::Pong { pid, version, .. })) => Ok(Some((pid, version))),
            _ => Ok(None),
        }
    };
    block_on(ask).ok().flatten()
}

/// Judges who holds the life locks.
pub(super) fn judge_locks(seen: &Seen) -> Vec<Finding> {
    const CHECK: &str = "locks";
    let Some(team) = seen.team() else { return Vec::new() };
    let (mut findings, mut held) = (Vec::new(), 0);
    for found in seen.in_folder(Some("transcript")) {
        let Some(name) = teamd_shared::inbox::owner_of(found.at.file_name()) else { continue };
        for pid in seen.holders(found.identity) {
            match present(team, &name) {
                Some(process) if process.pid == pid && process.is_alive() => held += 1,
                _ => findings.push(strange(seen, &name, pid)),
            }
        }
    }
    findings.extend(unlocked(seen, team));
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{held} life locks are held, each by its worker")));
    }
    findings
}

fn strange(seen: &Seen, name: &Name, pid: u32) -> Finding {
    const CHECK: &str = "locks";
    let about = format!("{name} {pid}");
    let Some(holder) = seen.process(pid) else {
        return Finding::problem(
            CHECK,
            format!("the life lock of {name} is held by what process {pid} left, which has ended"),
        )
        .about(about)
        .means("a keeper still ends a command of that life, which is not over before")
        .next(
            "see what hangs: `ps -eo pid,ppid,stat,lstart,args | grep team-shim`; the life ends when it does",
        );
    };
    Finding::problem(
        CHECK,
        format!("{} holds the life lock of {name}, and the journal does not know it", holder.describe()),
    )
    .about(about)
    .means(format!("{name} cannot be started, and its end cannot be recorded, as long as that is so"))
    .next(format!("end it, if it is yours: `kill {pid}`"))
}

/// A worker that is alive and does not hold its lock. Whether the list shows locks of this file system at all, the lock
/// of the daemon tells.
fn unlocked(seen: &Seen, team: &Team) -> Vec<Finding> {
    let root = rustix::fs::fstat(&*seen.dir).map(|stat| (stat.st_dev, stat.st_ino));
    if !seen.locked || root.is_ok_and(|root| seen.holders(root).next().is_none()) {
        return Vec::new();
    }
    let holds = |name: &Name| {
        let at = TeamPath::transcript(name);
        seen.at(&at).is_some_and(|found: &Found| seen.holders(found.identity).next().is_some())
    };
    let bare = team
        .members
        .keys()
        .filter(|name| present(team, name).is_some_and(Identity::is_alive) && !holds(name));
    bare.map(|name| {
        Finding::problem(
            "locks",
            format!("the worker of {name} runs, and nobody holds the lock of transcript/{name}.jsonl"),
        )
        .about(format!("bare {name}"))
        .means("its transcript was moved or replaced: what it writes stands elsewhere")
        .next(format!("`teamctl shutdown {name}`, put the file back, and `teamctl spawn {name} --resume`"))
    })
    .collect()
}

/// The process of a member that has not ended in the journal.
fn present<'t>(team: &'t Team, name: &Name) -> Option<&'t Identity> {
    let member = &team.members.get(name)?.record;
    member.process.as_ref().filter(|_| !member.phase.is_ended())
}

/// Judges workers and keepers of this team directory that the journal does not know as live.
pub(super) fn judge_orphans(seen: &Seen) -> Vec<Finding> {
    const CHECK: &str = "orphans";
    let Some(team) = seen.team() else { return Vec::new() };
    let root = seen.dir.root();
    let mut findings = Vec::new();
    for process in &seen.processes {
        if let Some((name, incarnation)) = process.life_in(root) {
            if present(team, &name).is_none_or(|known| known.pid != process.pid) {
                findings.push(orphan(seen, process, &format!("a worker of {name} (life {incarnation})")));
            }
        } else if process.keeps_in(root) && !has_worker(seen, process) {
            findings.push(orphan(seen, process, "a keeper whose worker has ended"));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no process of this team directory that the journal does not know"));
    }
    findings
}

fn has_worker(seen: &Seen, keeper: &Process) -> bool {
    seen.process(keeper.parent).is_some_and(|parent| parent.life_in(seen.dir.root()).is_some())
}

/// Tells of a process that nobody knows, with the evidence. It is ended by `--fix` only if nothing speaks for it: it
/// holds no lock anywhere, no lock of a life here is held by somebody who is gone, and no daemon has started it.
fn orphan(seen: &Seen, process: &Process, what: &str) -> Finding {
    const CHECK: &str = "orphans";
    let pid = process.pid;
    let identity = Identity::of(pid).ok();
    let began = identity.as_ref().map_or_else(String::new, |it| {
        format!(", started {} ago (start ticks {})", span(it.age().as_secs_f64()), it.start_ticks)
    });
    let transcripts: Vec<_> = seen.in_folder(Some("transcript")).collect();
    let own = transcripts.iter().find(|found| seen.holders(found.identity).any(|holder| holder == pid));
    let left =
        transcripts.iter().any(|found| seen.holders(found.identity).any(|it| seen.process(it).is_none()));
    let elsewhere = seen.locks.iter().any(|held| held.pid == pid);
    let lock = match own {
        Some(found) => format!("it holds the lock of {}", found.at),
        None if elsewhere => "it holds a lock elsewhere".to_owned(),
        None => "it holds no lock".to_owned(),
    };
    let daemon = seen.process(process.parent).filter(|parent| parent.is_daemon());
    let finding = Finding::problem(
        CHECK,
        format!("{} is {what}; the journal does not know it{began}; {lock}", process.describe()),
    )
    .about(format!("orphan {pid}"));
    let certain = !seen.locked && own.is_none() && !elsewhere && !left && daemon.is_none();
    match identity {
        Some(identity) if certain => finding
            .means("it belongs to no life, and no daemon will ever welcome it")
            .next("`teamctl doctor --fix` ends it")
            .fix(Fix::End(identity)),
        _ if seen.locked => finding
            .means("the daemon tells a worker that it does not know to leave, when it connects")
            .next(format!("if it stays: `kill {pid}`")),
        _ if daemon.is_some() => finding
            .means("a daemon has started it: perhaps of a team directory that was moved away from here")
            .next(format!("look at the daemon (process {}), then `kill {pid}`", process.parent)),
        _ => finding.next(format!("`teamd start` adopts it or sees it off; else `kill {pid}`")),
    }
}
