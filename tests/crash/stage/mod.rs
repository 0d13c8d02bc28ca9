//! One run: a team, a victim, and the user, who starts again what is gone and repeats what failed.

mod agent;
mod commands;
mod daemon;
mod host;
mod look;
mod waits;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

pub(crate) use commands::ENVIRONMENT;
pub(crate) use host::{BOX, lines_of};

use crate::far::Far;
use crate::faults::Fault;
use crate::ledger::Ledger;
use crate::support::process::{self, let_pass};
use crate::support::running::poll_for;
use crate::support::{Team, signal};
use crate::tracer::{Point, Tracer};
use crate::wrapper;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);
/// How often the user tries again.
const ATTEMPTS: usize = 6;

/// What must not be.
#[derive(Debug, Clone)]
pub(crate) struct Violation(pub(crate) String);

pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Fails with a text unless a condition holds.
pub(crate) fn hold(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Violation(what()))
    }
}

/// The processes whose system calls, or steps, are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Daemon,
    Worker,
    Ctl,
    /// The agent of alice, at each of its own steps.
    Agent,
    /// Its shim, at the same steps.
    Shim,
    /// The host daemon.
    Host,
    /// What carries the link to the host.
    Link,
}

impl Victim {
    pub(crate) const ALL: [Self; 7] = [
        Self::Daemon,
        Self::Worker,
        Self::Ctl,
        Self::Agent,
        Self::Shim,
        Self::Host,
        Self::Link,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Worker => "worker",
            Self::Ctl => "teamctl",
            Self::Agent => "agent",
            Self::Shim => "shim",
            Self::Host => "host",
            Self::Link => "link",
        }
    }
}

/// One run.
pub(crate) struct Stage {
    pub(crate) team: Team,
    pub(crate) ledger: Ledger,
    pub(crate) tracer: Tracer,
    victim: Victim,
    point: Option<Point>,
    scratch: PathBuf,
    daemon: i32,
    had_victim: bool,
    /// Whether the user has started a crashed teammate again.
    pub(crate) revived: bool,
    runs: u32,
    marked: bool,
    /// Whether the agent, or its shim, was killed, or was gone at its point.
    struck: Cell<bool>,
    /// Daemons that run in the foreground: children of this process.
    children: Vec<std::process::Child>,
    /// The teammates that are started again with `--resume` when found crashed.
    wanted: Vec<&'static str>,
    /// The teammates that live on the host.
    hosted: Vec<&'static str>,
    /// The host, once there is one.
    far: Option<Far>,
    /// What `config.json` was once that is no roster.
    unreadable: RefCell<Option<String>>,
    /// Whether `config.json` was there once: it stays.
    has_roster: Cell<bool>,
    /// The names and numbers of the incarnations that a daemon (by when it began) was seen to have
    /// heard of from their workers.
    heard: RefCell<HashSet<(String, u64, u64)>>,
}

impl Stage {
    /// A workspace without a team yet, and a tracer that waits for the victim.
    pub(crate) fn new(victim: Victim, point: Option<Point>, behind: Option<&'static str>) -> Self {
        let team = Team::new();
        let scratch = team.root().parent().unwrap().to_owned();
        let tracer = Tracer::new(&scratch, victim, point, behind);
        let team = match victim {
            Victim::Worker => {
                let program = scratch.join(wrapper::WORKER);
                std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &program).unwrap();
                team.with("TEAM_WORKER", program.to_str().unwrap())
            }
            _ => team,
        };
        Self {
            team,
            ledger: Ledger::default(),
            tracer,
            victim,
            point,
            scratch,
            daemon: 0,
            had_victim: false,
            revived: false,
            runs: 0,
            marked: false,
            struck: Cell::new(false),
            children: Vec::new(),
            wanted: Vec::new(),
            hosted: Vec::new(),
            far: None,
            unreadable: RefCell::new(None),
            has_roster: Cell::new(false),
            heard: RefCell::default(),
        }
    }

    /// From here on calls are counted.
    pub(crate) fn mark(&mut self) {
        self.marked = true;
        self.tracer.mark();
    }

    /// A teammate that the user starts again when it has crashed for good.
    pub(crate) fn want(&mut self, name: &'static str) {
        self.wanted.push(name);
    }

    pub(crate) fn unwant(&mut self, name: &str) {
        self.wanted.retain(|wanted| *wanted != name);
    }

    /// Whether it is this one that something happens to.
    pub(crate) fn is_victim(&self, victim: Victim) -> bool {
        self.victim == victim
    }

    /// Stops alice's worker until the journal has a word, and for some time more; a traced one is
    /// not to be stopped.
    pub(crate) fn stop_her_until(&self, word: &'static str, and_for: Duration) {
        if self.is_victim(Victim::Worker) {
            return;
        }
        let pid = self.team.pid(wrapper::NAME);
        let until = self.until_journaled(word, and_for);
        signal(pid, Signal::SIGSTOP);
        std::thread::spawn(move || {
            until();
            signal(pid, Signal::SIGCONT);
        });
    }

    /// Holds the one shim of alice's worker until the journal has a word, and for some time more:
    /// what it keeps goes on, and does not end before. Her worker would wake it up with a signal if
    /// it were only stopped.
    pub(crate) fn hold_her_shim_until(&self, word: &'static str, and_for: Duration) -> Checked {
        self.hold_her_shim(self.until_journaled(word, and_for))
    }

    /// Holds it while this waits.
    pub(crate) fn hold_her_shim(&self, wait: impl FnOnce() + Send + 'static) -> Checked {
        let children = process::children(self.team.pid(wrapper::NAME));
        let mut shims = children
            .into_iter()
            .filter(|&pid| process::command_line(pid).contains(" shim "));
        let shim = shims
            .next()
            .ok_or_else(|| Violation("her command has no shim".to_owned()))?;
        let shim = Pid::from_raw(shim);
        let (held, is_held) = channel();
        std::thread::spawn(move || {
            let seized = ptrace::seize(shim, ptrace::Options::empty())
                .and_then(|()| ptrace::interrupt(shim))
                .and_then(|()| waitpid(shim, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)));
            let _heard = held.send(seized);
            wait();
            // It goes on when this thread ends, too; or it is killed.
            let _killed = ptrace::detach(shim, None);
        });
        match is_held.recv() {
            // A shim lets only root trace it: for others it is a race of milliseconds.
            Ok(Ok(_) | Err(Errno::EPERM)) => Ok(()),
            other => Err(Violation(format!("her shim cannot be held: {other:?}"))),
        }
    }

    fn until_journaled(
        &self,
        word: &'static str,
        and_for: Duration,
    ) -> impl FnOnce() + Send + use<> {
        let journal = self.team.path("journal.jsonl");
        move || {
            poll_for(PATIENCE, &mut || {
                std::fs::read_to_string(&journal).is_ok_and(|text| text.contains(word))
            });
            let_pass(and_for);
        }
    }

    /// Whether the worker that can be the victim is killed.
    pub(crate) fn kills_the_worker(&self) -> bool {
        self.victim == Victim::Worker || self.point.is_some_and(|point| point.fault == Fault::Both)
    }

    /// Whether the victim is killed.
    pub(crate) fn is_killed(&self) -> bool {
        self.point.is_some_and(|point| point.fault.kills())
    }

    /// Whether something else than a death happens.
    pub(crate) fn is_refused_something(&self) -> bool {
        self.point.is_some_and(|point| !point.fault.kills())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tracer.unmark();
        for child in &mut self.children {
            drop(child.kill());
        }
        // The tracer's listener is woken, and ends.
        drop(std::os::unix::net::UnixStream::connect(
            self.scratch.join(wrapper::SOCKET),
        ));
    }
}
