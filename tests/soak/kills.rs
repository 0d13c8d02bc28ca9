//! Death and standstill: of workers, of what they started, of the daemon.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::Soak;
use crate::support::process::{children, is_agent};
use crate::support::{is_alive, signal};
use crate::team::Rng;

/// Does one of them harm.
pub(crate) fn act(soak: &Soak, rng: &mut Rng) {
    rng.pause(Duration::from_millis(1500));
    match rng.below(24) {
        0..6 => {
            if let Some(pid) = any_worker(soak, rng) {
                soak.ledger.count("kill -9 of a worker");
                signal(pid, Signal::SIGKILL);
            }
        }
        6..9 => kill_a_shim(soak, rng),
        9..12 => {
            if let Some(pid) = any_worker(soak, rng) {
                stop_for_a_while(soak, rng, pid, "SIGSTOP and SIGCONT of a worker");
            }
        }
        12 => {
            if let Some(pid) = any_worker(soak, rng) {
                soak.ledger.count("SIGTERM to a worker");
                signal(pid, Signal::SIGTERM);
            }
        }
        13 => {
            if let Some(pid) = soak.team.daemon_pid() {
                stop_for_a_while(soak, rng, pid, "SIGSTOP and SIGCONT of the daemon");
            }
        }
        14 => {
            // Two at once: the second one says that it runs.
            soak.ledger.count("teamd start, twice at once");
            std::thread::scope(|scope| {
                scope.spawn(|| soak.team.start_daemon(soak));
                soak.team.start_daemon(soak);
            });
        }
        15 if rng.once_in(10) => restart_in_order(soak),
        16 | 17 => kill_worker_and_daemon(soak, rng),
        20..24 => kill_an_agent(soak, rng),
        _ => kill_the_daemon(soak, rng),
    }
}

fn any_worker(soak: &Soak, rng: &mut Rng) -> Option<i32> {
    let workers: Vec<i32> = soak.team.workers().into_keys().collect();
    (!workers.is_empty()).then(|| workers[rng.below(workers.len())])
}

/// What a worker started is killed, or what that has started.
fn kill_a_shim(soak: &Soak, rng: &mut Rng) {
    for worker in soak.team.workers().into_keys() {
        let mut started = children(worker);
        let deeper: Vec<i32> = started.iter().flat_map(|&pid| children(pid)).collect();
        started.extend(deeper);
        if !started.is_empty() {
            soak.ledger.count("kill -9 of a shim or its command");
            return signal(started[rng.below(started.len())], Signal::SIGKILL);
        }
    }
}

fn kill_an_agent(soak: &Soak, rng: &mut Rng) {
    let mut agents = soak.team.processes();
    agents.retain(|&pid| is_agent(pid));
    if !agents.is_empty() {
        soak.ledger.count("kill -9 of an agent");
        signal(agents[rng.below(agents.len())], Signal::SIGKILL);
    }
}

fn stop_for_a_while(soak: &Soak, rng: &mut Rng, pid: i32, what: &'static str) {
    soak.ledger.count(what);
    signal(pid, Signal::SIGSTOP);
    rng.pause(Duration::from_secs(2));
    signal(pid, Signal::SIGCONT);
}

fn kill_the_daemon(soak: &Soak, rng: &mut Rng) {
    if let Some(pid) = soak.team.daemon_pid() {
        soak.ledger.count("kill -9 of the daemon");
        signal(pid, Signal::SIGKILL);
    }
    rng.pause(Duration::from_millis(1500));
    soak.team.start_daemon(soak);
}

/// A worker dies while no daemon sees it.
fn kill_worker_and_daemon(soak: &Soak, rng: &mut Rng) {
    let Some(pid) = soak.team.daemon_pid() else {
        return;
    };
    soak.ledger
        .count("kill -9 of the daemon and of a worker without one");
    signal(pid, Signal::SIGKILL);
    rng.pause(Duration::from_millis(100));
    if let Some(worker) = any_worker(soak, rng) {
        signal(worker, Signal::SIGKILL);
    }
    rng.pause(Duration::from_millis(300));
    soak.team.start_daemon(soak);
}

/// All teammates leave, and come back.
fn restart_in_order(soak: &Soak) {
    soak.ledger.count("teamd stop --force, and start");
    let before = soak.team.daemon_pid();
    if soak.team.run(soak, "teamd", &["stop", "--force"]).is_done() {
        if let Some(pid) = before.filter(|&pid| is_alive(pid)) {
            soak.ledger.violation(format!(
                "teamd stop ended with 0 while the daemon {pid} runs"
            ));
        }
        let left = soak.team.workers();
        // Another thread cannot have spawned them: there was no daemon.
        if !left.is_empty() && soak.team.daemon_pid().is_none() {
            soak.ledger.violation(format!(
                "teamd stop ended with 0 while workers live: {left:?}"
            ));
        }
    }
    soak.team.start_daemon(soak);
}
