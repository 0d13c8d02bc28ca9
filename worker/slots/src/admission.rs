//! Admission by memory: a command or a check that begins while memory is short waits until another
//! one is over.
//!
//! Who runs and who waits are bytes of one file of the user, locked in the kernel, so that all teams
//! share one queue, and what is killed leaves it:
//!
//! | bytes | locked by | means |
//! |---|---|---|
//! | 0 | each check that runs alone (shared) | nothing else begins |
//! | [`CHECKS`] and on | each check that waits | its place in the queue, before all commands |
//! | [`COMMANDS`] and on | each command that waits | its place in the queue |
//! | [`RUNNING`] and on | what was admitted | the pid of its worker or job |
//!
//! Nothing is ever written. What waits looks four times a second; where nothing waits, nothing
//! looks.

mod decision;
mod gauge;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::libc;
use teamd_shared::machine::AdmissionRules;
use tokio::time::{Instant, sleep};

use crate::locks::{is_locked, lock, locked, look_at, open_again};
use decision::{QueueStanding, QueueView};
use gauge::Gauge;

/// The byte of those that run alone.
const ALONE: i64 = 0;

/// The byte of the first place of checks.
const CHECKS: i64 = 1 << 40;

/// The byte of the first place of commands.
const COMMANDS: i64 = 2 << 40;

/// The byte of pid 0 among what runs.
const RUNNING: i64 = 3 << 40;

/// How many places there are of each kind. No queue has ever so many, and no pid is as high.
const PLACES: i64 = 1 << 40;

/// How many numbers are tried for what runs: another process has the same pid only in another
/// namespace.
const TRIES: i64 = 16;

/// How far apart those numbers are: no pid is higher (`PID_MAX_LIMIT`).
const PIDS: i64 = 1 << 22;

/// How often what waits looks.
const LOOKS: Duration = Duration::from_millis(250);

/// How much longer a check waits than a command.
const OF_CHECK: u32 = 10;

/// What asks to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionKind {
    /// A command of a teammate.
    Command,
    /// A check.
    Check,
    /// A check that begins when nothing else runs, and beside which nothing else begins.
    CheckAlone,
}

/// Where the commands and checks of one process ask.
#[derive(Debug)]
pub struct Admissions {
    look: File,
    rules: AdmissionRules,
    gauge: Arc<Gauge>,
}

/// A command or check that was admitted, or waits for that. Dropped, it does neither.
#[derive(Debug)]
pub struct AdmissionTicket {
    file: File,
    gauge: Arc<Gauge>,
    rules: AdmissionRules,
    kind: AdmissionKind,
    asked: Instant,
    /// The byte of its place in the queue.
    place: Option<i64>,
    /// How many are before it; none once it may begin.
    before: Option<u32>,
    /// How long it was held back.
    waited: Option<Duration>,
}

impl Admissions {
    /// Opens the queue at this path. `own`: the cgroup of this process alone, whose limit says
    /// nothing of others.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path, rules: AdmissionRules, own: Option<PathBuf>) -> io::Result<Self> {
        Ok(Self {
            look: look_at(path)?,
            rules,
            gauge: Arc::new(Gauge::new(&rules, own.as_deref())),
        })
    }

    /// Asks whether something may begin.
    ///
    /// # Errors
    /// The system's error.
    pub fn ask(&self, kind: AdmissionKind) -> io::Result<AdmissionTicket> {
        let mut admission = AdmissionTicket {
            file: open_again(&self.look)?,
            gauge: Arc::clone(&self.gauge),
            rules: self.rules,
            kind,
            asked: Instant::now(),
            place: None,
            before: None,
            waited: None,
        };
        // Counted first: of two that ask at once, both see the other one.
        let running = admission.run()?;
        if let QueueStanding::Waits { before } = admission.look()? {
            if let Some(running) = running {
                lock(&admission.file, libc::F_UNLCK, running)?;
            }
            admission.line_up()?;
            admission.before = Some(before);
        } else if kind == AdmissionKind::CheckAlone {
            lock(&admission.file, libc::F_RDLCK, ALONE)?;
        }
        Ok(admission)
    }
}

impl AdmissionTicket {
    /// Returns how many are before it; none if it may begin.
    pub fn before(&self) -> Option<u32> {
        self.before
    }

    /// Returns how long it was held back, if it was.
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }

    /// Waits until it may begin, or another number is before it. May be dropped and called again.
    pub async fn changed(&mut self) {
        while let Some(known) = self.before {
            sleep(LOOKS).await;
            self.before = self.step().unwrap_or_else(|error| {
                tracing::warn!("it is not known who runs: {error}; a command begins");
                None
            });
            if self.before.is_none() {
                self.waited = Some(self.asked.elapsed());
            }
            if self.before != Some(known) {
                return;
            }
        }
    }

    /// Begins if it may, else returns how many are before it.
    fn step(&mut self) -> io::Result<Option<u32>> {
        if let QueueStanding::Waits { before } = self.look()? {
            return Ok(Some(before));
        }
        // Once more, counted: one that asks just now sees this one, or is seen.
        let running = self.run()?;
        if let QueueStanding::Waits { before } = self.look()? {
            if let Some(running) = running {
                lock(&self.file, libc::F_UNLCK, running)?;
            }
            return Ok(Some(before));
        }
        if self.kind == AdmissionKind::CheckAlone {
            lock(&self.file, libc::F_RDLCK, ALONE)?;
        }
        if let Some(place) = self.place.take() {
            lock(&self.file, libc::F_UNLCK, place)?;
        }
        Ok(None)
    }

    fn look(&self) -> io::Result<QueueStanding> {
        let running = locked(&self.file, RUNNING, PLACES)?;
        let mut seen = QueueView {
            waited: self.asked.elapsed(),
            before: self.count_before()?,
            others_run: !running.is_empty(),
            is_short: false,
        };
        if seen.depends_on_memory() {
            seen.is_short = self.kind == AdmissionKind::CheckAlone
                || is_locked(&self.file, ALONE)?
                || self
                    .gauge
                    .is_short(running.iter().map(|byte| pid_of(*byte)));
        }
        let patience = match self.kind {
            AdmissionKind::Command => self.rules.patience,
            AdmissionKind::Check | AdmissionKind::CheckAlone => {
                self.rules.patience.saturating_mul(OF_CHECK)
            }
        };
        Ok(seen.decide(patience))
    }

    /// Counts those that wait before it: checks before all commands, else in order of arrival.
    fn count_before(&self) -> io::Result<u32> {
        let own = self.queue();
        let until = self.place.unwrap_or(own + PLACES);
        let mut before = locked(&self.file, own, until - own)?.len();
        if own == COMMANDS {
            before += locked(&self.file, CHECKS, PLACES)?.len();
        }
        Ok(u32::try_from(before).unwrap_or(u32::MAX))
    }

    fn queue(&self) -> i64 {
        match self.kind {
            AdmissionKind::Command => COMMANDS,
            AdmissionKind::Check | AdmissionKind::CheckAlone => CHECKS,
        }
    }

    /// Takes the place behind all others.
    fn line_up(&mut self) -> io::Result<()> {
        let queue = self.queue();
        let last = locked(&self.file, queue, PLACES)?.pop();
        let next = last.map_or(queue, |last| last + 1);
        // Another one may just have taken it.
        for place in next..next + TRIES {
            if lock(&self.file, libc::F_WRLCK, place)? {
                self.place = Some(place);
                return Ok(());
            }
        }
        Err(io::Error::other("the queue is locked by another program"))
    }

    /// Has others count it; returns the byte, if there was one for it.
    fn run(&self) -> io::Result<Option<i64>> {
        let pid = i64::from(std::process::id());
        for number in 0..TRIES {
            let byte = RUNNING + number * PIDS + pid;
            if lock(&self.file, libc::F_WRLCK, byte)? {
                return Ok(Some(byte));
            }
        }
        Ok(None)
    }
}

/// Returns the pid that the byte of something that runs stands for.
fn pid_of(byte: i64) -> u32 {
    u32::try_from((byte - RUNNING) % PIDS).unwrap_or_default()
}

#[cfg(test)]
mod tests;
