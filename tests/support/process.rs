//! What the kernel knows of a process, for tests that look from outside.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::poll_until;

/// The fields of `/proc/PID/stat` from the third on: `[0]` is the state, `[1]` the parent, `[3]`
/// the session, `[4]` the terminal, `[19]` the start ticks. None once it is gone.
pub(crate) fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    stat(pid)?[1].parse().ok()
}

/// Clock ticks between the boot and the start of a process.
pub(crate) fn start_ticks(pid: i32) -> u64 {
    stat(pid).unwrap()[19].parse().unwrap()
}

/// The children of a process, those of all its threads.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let listed = threads
        .filter_map(Result::ok)
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    listed
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The command line of a process, its arguments parted by spaces; empty once it is gone.
pub(crate) fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Where a descriptor of a process leads; none where the kernel does not tell (only root sees into
/// teamd).
pub(crate) fn descriptor(pid: i32, fd: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()
}

/// How many descriptors a process has open; none where the kernel does not tell.
pub(crate) fn descriptors(pid: i32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// Whether the tests run as root: some things only root can try.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Sees to it that what is started can be interrupted. A shell script that runs the tests in the
/// background has SIGINT ignored in all of them, and what is ignored stays so in every program that
/// is started; what is caught does not.
pub(crate) fn hear_interrupts() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .unwrap()
            .trim();
        if u64::from_str_radix(ignored, 16).unwrap() & (1 << (nix::libc::SIGINT - 1)) == 0 {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let interrupt = tokio::signal::unix::SignalKind::interrupt();
        drop(
            runtime
                .block_on(async { tokio::signal::unix::signal(interrupt) })
                .unwrap(),
        );
    });
}

/// How often the threads of a process have begun to run after they had waited for something.
pub(crate) fn wakes(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |path: PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .unwrap();
        count.trim().parse::<u64>().unwrap()
    };
    threads
        .map(|thread| of_thread(thread.unwrap().path()))
        .sum()
}

/// Lets time pass where the test is that nothing happens in it.
pub(crate) fn let_pass(time: Duration) {
    let began = Instant::now();
    assert!(poll_until(&mut || began.elapsed() >= time));
}

/// Whether a process is an agent of others.
pub(crate) fn is_agent(pid: i32) -> bool {
    let line = command_line(pid);
    let speaks = [
        "stream-json",
        "app-server",
        "-stub.py acp",
        "opencode acp",
        "-agent-acp",
        "gemini --acp",
    ];
    !line.starts_with("team-")
        && !line.starts_with("sh ")
        && speaks.iter().any(|protocol| line.contains(protocol))
}

/// All that descends from a process.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut all = children(pid);
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        next += 1;
        all.extend(children(parent));
    }
    all
}
