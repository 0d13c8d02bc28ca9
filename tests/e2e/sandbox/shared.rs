//! What all processes of a machine share is out of reach without namespaces, too: queues, shared
//! memory, terminals, and how the machine treats other processes.

use super::{With, attack, has, python, teams, works};

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
fn without_namespaces_queues_terminals_and_processes_are_left_alone() {
    let Some(team) = With::Bare.team(&[]) else {
        return;
    };
    let Some(python) = python(&team, "shared.py", SHARED) else {
        return;
    };
    let said = attack(&team, &[&python]);
    assert!(said[0].ends_with("went on"), "{said:?}");
    if has(&team, "nice") {
        attack(&team, &["nice -n 1 true || echo BROKEN"]);
    }
}

/// What is counted for a user over all its programs: as much of it as a command gets.
const COUNTED: &str = r#"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def most(attempt, limit):
    for n in range(limit):
        if attempt() < 0:
            return n
    return limit
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
value = ctypes.c_void_p(0)
print(most(lambda: libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), value), 5000))
print(most(lambda: libc.inotify_init1(0), 500))
print(most(lambda: 1 if os.fork() else os._exit(0), 1))
"#;

#[test]
fn a_command_leaves_the_user_most_of_the_kernels_shared_resources() {
    let granted = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let granted: u32 = granted.trim().parse().unwrap();
    for (case, team) in teams(&With::EACH, &[]) {
        let Some(counted) = python(&team, "counted.py", COUNTED) else {
            return;
        };
        let said = works(&team, &[&counted]);
        let counts: Vec<u32> = said[0].lines().map(|line| line.parse().unwrap()).collect();
        assert!(
            (100..=1024).contains(&counts[0]),
            "{case:?} signals: {counts:?}"
        );
        // In a user namespace of its own alone; the documents say so.
        if matches!(case.with, With::All | With::NoLandlock) {
            assert!(
                (1..=granted / 4).contains(&counts[1]),
                "{case:?} inotify of {granted}: {counts:?}"
            );
        }
        assert_eq!(counts[2], 1);
    }
}

#[test]
fn shared_memory_is_bounded_as_memory_is() {
    for (case, team) in teams(&[With::All, With::NoLandlock], &["--memory", "64M"]) {
        let fill = "head -c 100M /dev/zero > /dev/shm/x 2>/dev/null; stat -c %s /dev/shm/x";
        let taken: u64 = works(&team, &[fill])[0].parse().unwrap();
        assert_eq!(taken, 64 << 20, "{case:?}");
    }
}
