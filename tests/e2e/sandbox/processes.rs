//! Daemon, workers and the tools of others cannot be signalled, traced, or read.

use nix::sys::signal::Signal;

use super::{With, attack, python};
use crate::support::look::HELD;
use crate::support::process::{children, command_line, parent};
use crate::support::{Team, is_alive, signal};

/// The daemon, a worker that is not this tool's, that worker's shim and command, and this tool's
/// own worker.
struct Victims {
    pids: Vec<i32>,
}

impl Victims {
    fn of(team: &Team) -> Self {
        team.teamctl(["spawn", "bob", "--prompt", HELD]).ok();
        team.until_held();
        let bob = team.pid("bob");
        let shim = *children(bob)
            .iter()
            .find(|&&pid| command_line(pid).contains(" shim "))
            .unwrap();
        let mut below = children(shim);
        below.extend(below.clone().into_iter().flat_map(children));
        // What it begins and waits with ends by itself; before its `exec` it is called as the shell
        // that forked it.
        below.retain(|&pid| {
            let line = command_line(pid);
            line.contains("until") && parent(pid).is_some_and(|above| command_line(above) != line)
        });
        let mut pids = vec![team.daemon_pid(), team.pid("alice"), bob, shim];
        pids.extend(below);
        Self { pids }
    }

    fn are_well(&self) {
        for &pid in &self.pids {
            assert!(is_alive(pid), "{pid} {}", command_line(pid));
        }
    }
}

/// The pids as the machine counts them, and then all that a tool can find by itself.
const ALL: &str =
    "for p in PIDS $PPID $(cd /proc && ls -d [0-9]* | grep -vx -e $$ -e $BASHPID); do";

fn attacks(victims: &Victims) -> Vec<String> {
    let pids: Vec<String> = victims.pids.iter().map(ToString::to_string).collect();
    let each = |what: &str| format!("for p in {}; do {what}; done", pids.join(" "));
    let all = ALL.replace("PIDS", &pids.join(" "));
    let mut attacks: Vec<String> = ["KILL", "TERM", "STOP", "0"]
        .iter()
        .map(|name| each(&format!("kill -{name} $p 2>/dev/null && echo BROKEN $p")))
        .collect();
    attacks.extend([
        each("kill -KILL -$p 2>/dev/null && echo BROKEN $p"),
        each("cat /proc/$p/environ 2>/dev/null | grep -q . && echo BROKEN $p"),
        each("cat /proc/$p/maps 2>/dev/null | grep -q . && echo BROKEN $p"),
        each("head -c 1 /proc/$p/mem >/dev/null 2>&1 && echo BROKEN $p"),
        each("ls -l /proc/$p/fd 2>/dev/null | grep -q -e '->' && echo BROKEN $p"),
        each("ls -l /proc/$p/cwd 2>/dev/null | grep -q -e '->' && echo BROKEN $p"),
        each("ls /proc/$p/root/ 2>/dev/null | grep -q . && echo BROKEN $p"),
        each("ls -l /proc/$p/exe 2>/dev/null | grep -q -e '->' && echo BROKEN $p"),
        each("prlimit --pid $p --cpu=1 >/dev/null 2>&1 && echo BROKEN $p"),
        format!(
            "{all} tr '\\0' '\\n' < /proc/$p/environ 2>/dev/null | grep -q 'KEY=' && echo BROKEN $p; done"
        ),
        "kill -KILL $PPID 2>/dev/null; kill -STOP $PPID 2>/dev/null; echo still here".to_owned(),
    ]);
    attacks
}

const TRACE: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
local = iovec(ctypes.cast(buffer, ctypes.c_void_p), 8)
remote = iovec(ctypes.cast(buffer, ctypes.c_void_p), 8)
for pid in [int(p) for p in sys.argv[1:]] + [os.getppid(), 1]:
    if libc.ptrace(16, pid, None, None) == 0: print("BROKEN attach", pid)
    if libc.ptrace(0x4206, pid, None, None) == 0: print("BROKEN seize", pid)
    if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) > 0: print("BROKEN readv", pid)
    if libc.process_vm_writev(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) > 0: print("BROKEN writev", pid)
    if pid in (1, os.getppid()): continue
    pidfd = libc.syscall(434, pid, 0)
    if pidfd >= 0:
        if libc.syscall(424, pidfd, 9, None, 0) == 0: print("BROKEN pidfd signal", pid)
        if libc.syscall(438, pidfd, 0, 0) >= 0: print("BROKEN pidfd getfd", pid)
print("tried")
"#;

fn out_of_reach(with: With) {
    let Some(team) = with.team(&[]) else { return };
    let victims = Victims::of(&team);
    let attacks = attacks(&victims);
    attack(
        &team,
        &attacks.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    if let Some(trace) = python(&team, "trace.py", TRACE) {
        let pids: Vec<String> = victims.pids.iter().map(ToString::to_string).collect();
        let said = attack(&team, &[&format!("{trace} {}", pids.join(" "))]);
        assert!(said[0].contains("tried"), "{said:?}");
    }
    victims.are_well();
    team.release();
    team.until_finished("bob", 1);
}

#[test]
fn other_processes_are_out_of_reach() {
    out_of_reach(With::All);
}

#[test]
fn other_processes_are_out_of_reach_through_bubblewrap() {
    out_of_reach(With::Bubblewrap);
}

#[test]
fn other_processes_are_out_of_reach_without_namespaces() {
    out_of_reach(With::Bare);
}

/// Failure 18, in the sandbox: with the shim too, and by SIGKILL.
#[test]
fn what_a_call_started_is_gone_with_its_shim_and_its_worker() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let command = "trap '' TERM HUP; setsid bash -c 'trap \"\" TERM HUP; sleep 300' & (setsid sleep 301 &) ; touch held; sleep 302";
        team.teamctl([
            "spawn",
            "bob",
            "--restart",
            "never",
            "--prompt",
            &format!("/bash {command}"),
        ])
        .ok();
        team.until_held();
        let bob = team.pid("bob");
        let shim = *children(bob)
            .iter()
            .find(|&&pid| command_line(pid).contains(" shim "))
            .unwrap();
        assert_eq!(parent(shim), Some(bob));
        signal(shim, Signal::SIGKILL);
        signal(bob, Signal::SIGKILL);
        team.wait_for("bob", "crashed");
        team.until("all to be gone", || team.processes().len() == 2);
    }
}
