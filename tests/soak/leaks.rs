//! What would grow if anything leaked, looked at whenever everything rests.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::Soak;

/// How much more of something there may be at the end than at the first look.
const MORE_DESCRIPTORS: usize = 8;

/// What was there at one moment of rest.
pub(crate) struct Sample {
    at: Duration,
    daemon: Usage,
    /// The mean of all workers.
    worker: Usage,
    workers: usize,
    processes: usize,
    run: usize,
    tmp: usize,
    journal: u64,
    lines: usize,
    sent: usize,
}

#[derive(Default, Clone, Copy)]
struct Usage {
    kilobytes: usize,
    descriptors: usize,
    cpu: Duration,
}

impl Usage {
    fn of(pid: i32) -> Self {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        // Of its own: what it shares with others (the pages of its program) is divided by how many
        // they are just now.
        let kilobytes = read("smaps_rollup")
            .lines()
            .find_map(|line| {
                line.strip_prefix("Pss_Anon:").map(|text| {
                    text.split_whitespace()
                        .next()
                        .and_then(|it| it.parse().ok())
                        .unwrap_or(0)
                })
            })
            .unwrap_or(0);
        let stat = read("stat");
        let fields = stat
            .rsplit_once(") ")
            .map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
        let ticks = |at: usize| {
            fields
                .get(at)
                .and_then(|it: &&str| it.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let cpu = Duration::from_millis((ticks(11) + ticks(12)) * 10);
        Self {
            kilobytes,
            descriptors: count(Path::new(&format!("/proc/{pid}/fd"))),
            cpu,
        }
    }
}

/// Counts the entries of a folder and of those below it.
fn count(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    entries
        .map(|entry| {
            1 + if entry.file_type().is_ok_and(|it| it.is_dir()) {
                count(&entry.path())
            } else {
                0
            }
        })
        .sum()
}

impl Sample {
    pub(crate) fn take(soak: &Soak, at: Duration) -> Self {
        let workers: Vec<Usage> = soak.team.workers().into_keys().map(Usage::of).collect();
        let mean = |value: fn(&Usage) -> usize| {
            workers.iter().map(value).sum::<usize>() / workers.len().max(1)
        };
        let worker = Usage {
            kilobytes: mean(|it| it.kilobytes),
            descriptors: mean(|it| it.descriptors),
            cpu: workers.iter().map(|it| it.cpu).sum(),
        };
        let journal = std::fs::read(soak.team.path("journal.jsonl")).unwrap_or_default();
        Self {
            at,
            daemon: soak.team.daemon_pid().map(Usage::of).unwrap_or_default(),
            worker,
            workers: workers.len(),
            processes: soak.team.processes().len(),
            run: count(&soak.team.path("run")),
            tmp: count(&soak.team.root().join("tmp")),
            journal: journal.len() as u64,
            lines: journal.iter().filter(|&&byte| byte == b'\n').count(),
            sent: soak.ledger.all_sent().len(),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            daemon,
            worker,
            workers,
            processes,
            run,
            tmp,
            journal,
            lines,
            sent,
        } = self;
        write!(
            f,
            "{:>5} s: daemon {} kB {} fd {:?} cpu; {workers} workers, each {} kB {} fd, together {:?} cpu; {processes} \
             processes, {run} in run/, {tmp} in TMPDIR; journal {lines} lines, {} kB; {sent} messages",
            at.as_secs(),
            daemon.kilobytes,
            daemon.descriptors,
            daemon.cpu,
            worker.kilobytes,
            worker.descriptors,
            worker.cpu,
            journal / 1024,
        )
    }
}

/// Compares the first look with the last one: at both the same processes rest.
pub(crate) fn judge(soak: &Soak, samples: &[Sample]) {
    let Some(first) = samples.first() else { return };
    let Some(last) = samples.last() else { return };
    let grown = |what: &str, before: usize, now: usize, allowed: usize| {
        if now > before + allowed {
            soak.ledger
                .violation(format!("{what} has grown from {before} to {now}"));
        }
    };
    grown(
        "the number of descriptors of the daemon",
        first.daemon.descriptors,
        last.daemon.descriptors,
        MORE_DESCRIPTORS,
    );
    grown(
        "the number of descriptors of a worker",
        first.worker.descriptors,
        last.worker.descriptors,
        MORE_DESCRIPTORS,
    );
    grown(
        "the number of processes",
        first.processes,
        last.processes,
        0,
    );
    grown(
        "the number of files in run/",
        first.run,
        last.run,
        MORE_DESCRIPTORS,
    );
    grown(
        "the number of files in TMPDIR",
        first.tmp,
        last.tmp,
        2 * last.workers,
    );
    // Requests and journal are kept: what the daemon holds may grow with them, and not much faster.
    let journal =
        usize::try_from(last.journal.saturating_sub(first.journal) / 1024).unwrap_or(usize::MAX);
    grown(
        "the memory of the daemon (kB)",
        first.daemon.kilobytes,
        last.daemon.kilobytes,
        4096 + 2 * journal,
    );
    grown(
        "the memory of a worker (kB)",
        first.worker.kilobytes,
        last.worker.kilobytes,
        4096,
    );
}
