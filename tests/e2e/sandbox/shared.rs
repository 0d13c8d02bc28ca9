//! What all processes of a machine share is out of reach without namespaces, too: queues, shared memory, terminals, and how
//! the machine treats other processes.

use super::{With, attack, has, python};

const SHARED: &str = r#"
import ctypes, ctypes.util, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    def attempt():
        if getattr(libc, name)(*arguments) == -1:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    tried(name, attempt)
call("shmget", 0x7eadd, 4096, 0o1600)
call("semget", 0x7eadd, 1, 0o1600)
call("msgget", 0x7eadd, 0o1600)
call("msgrcv", 0, ctypes.create_string_buffer(64), 8, 0, 0o4000)
call("mq_open", b"/teamd-was-here", os.O_CREAT | os.O_RDWR, 0o600, None)
other = os.getppid()
tried("affinity", lambda: os.sched_setaffinity(other, os.sched_getaffinity(0)))
tried("priority", lambda: os.setpriority(os.PRIO_PROCESS, other, 19))
tried("priority of all", lambda: os.setpriority(os.PRIO_USER, 0, 19))
call("syscall", 251, 3, 0, (2 << 13) | 7) if os.uname().machine == "x86_64" else None
tried("scheduler", lambda: os.sched_setscheduler(other, os.SCHED_IDLE, os.sched_param(0)))
for terminal in ("/dev/ptmx", "/dev/tty1", "/dev/console", "/dev/ttyS0"):
    tried(terminal, lambda: os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
# What every program does with itself.
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1); open("/dev/urandom", "rb").read(1)
print("went on")
"#;

#[test]
fn without_namespaces_queues_terminals_and_other_processes_are_left_alone() {
    let Some(team) = With::Bare.team(&[]) else { return };
    let Some(python) = python(&team, "shared.py", SHARED) else { return };
    let said = attack(&team, &[&python]);
    assert!(said[0].ends_with("went on"), "{said:?}");
    if has(&team, "nice") {
        attack(&team, &["nice -n 1 true || echo BROKEN"]);
    }
}
