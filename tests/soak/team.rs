//! The team that is soaked: its directory, the programs, and what can be seen of it from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;

use crate::Soak;
use crate::support::process::command_line;
use crate::support::{self, Run, Running, is_alive, signal};

/// Longer than any command may take; one that takes longer hangs.
const HANGS: Duration = Duration::from_secs(200);

pub(crate) struct Team {
    files: support::Team,
    programs: Option<PathBuf>,
    size: usize,
    pub(crate) daemon_starts: AtomicUsize,
}

impl Team {
    pub(crate) fn new(programs: Option<&Path>, size: usize) -> Self {
        let programs = programs.map(Path::to_owned);
        let files = support::Team::new().with("ANTHROPIC_API_KEY", "sk-of-a-stub");
        Self {
            files,
            programs,
            size,
            daemon_starts: AtomicUsize::new(0),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.files.root().parent().unwrap()
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.files.path(relative)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.size).map(|number| format!("w{number:03}"))
    }

    pub(crate) fn any(&self, rng: &mut Rng) -> String {
        format!("w{:03}", rng.below(self.size))
    }

    /// Every fourth is spawned afresh and forgotten, so that its unread mail goes; the others
    /// always go on.
    pub(crate) fn is_volatile(name: &str) -> bool {
        name[1..].parse::<usize>().unwrap() % 4 == 3
    }

    /// Every fourth is an agent of others.
    pub(crate) fn is_agent(name: &str) -> bool {
        name[1..].parse::<usize>().unwrap() % 4 == 1
    }

    /// Makes the stub known that is those agents.
    pub(crate) fn bring_agents(&self, soak: &Soak) {
        self.files
            .write("stub.py", include_str!("../fixtures/claude-stub.py"));
        self.files
            .write("orders.py", include_str!("../fixtures/orders.py"));
        let stub = self.files.root().join("stub.py");
        let command = format!(
            "command = [{}, '{}']",
            support::python::STUB,
            stub.display()
        );
        self.files.write(
            "team.toml",
            &format!("[agents.claude]\n{command}\nprotocol = 'claude'\n"),
        );
        self.run(soak, "teamd", &["trust"]);
    }

    fn program(&self, name: &str) -> PathBuf {
        let built = match name {
            "teamd" => env!("CARGO_BIN_EXE_teamd"),
            _ => env!("CARGO_BIN_EXE_teamctl"),
        };
        self.programs
            .as_ref()
            .map_or_else(|| built.into(), |folder| folder.join(name))
    }

    /// Runs a program to its end. A hang, a signal, a panic and an error of usage are violations.
    pub(crate) fn run(&self, soak: &Soak, program: &str, args: &[&str]) -> Run {
        let began = Instant::now();
        let command = self
            .files
            .command(&self.program(program).to_string_lossy(), args);
        let (run, ended) = Running::start(command).ended_within(HANGS);
        if !ended {
            soak.ledger.violation(format!("{program} {args:?} hangs"));
        }
        soak.ledger.ran(program, args, run.code, began.elapsed());
        if !matches!(run.code, Some(0 | 1 | 3..=7)) || run.stderr.contains("panicked") {
            soak.ledger
                .violation(format!("{program} {args:?} ended strangely: {run:?}"));
        }
        run
    }

    pub(crate) fn teamctl(&self, soak: &Soak, args: &[&str]) -> Run {
        self.run(soak, "teamctl", args)
    }

    /// Starts the daemon, which must work whatever the last one left behind.
    pub(crate) fn start_daemon(&self, soak: &Soak) {
        let run = self.run(soak, "teamd", &["start"]);
        self.daemon_starts.fetch_add(1, Ordering::Relaxed);
        if !run.is_done() {
            soak.ledger
                .violation(format!("teamd start failed: {run:?}"));
        }
    }

    pub(crate) fn dir(&self) -> Option<TeamDir> {
        TeamDir::open(&self.path("")).ok()
    }

    pub(crate) fn roster(&self, soak: &Soak) -> Option<Roster> {
        match Roster::load(&self.dir()?) {
            Ok(roster) => roster,
            Err(error) => {
                soak.ledger.violation(format!("config.json: {error}"));
                None
            }
        }
    }

    /// The daemon's pid, if its process is there.
    pub(crate) fn daemon_pid(&self) -> Option<i32> {
        let pid = std::fs::read_to_string(self.path("run/teamd.pid"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        (is_alive(pid) && command_line(pid).contains("teamd")).then_some(pid)
    }

    /// The pid of each live worker of this team, by name.
    pub(crate) fn workers(&self) -> BTreeMap<i32, String> {
        let here = self.path("").display().to_string();
        let here = here.trim_end_matches('/');
        let workers = self.processes().into_iter().filter_map(|pid| {
            let line = command_line(pid);
            let (program, args) = line.split_once(" run --name ")?;
            let ours = program.ends_with("team-worker") && line.contains(here);
            ours.then(|| (pid, args.split(' ').next().unwrap().to_owned()))
        });
        workers.collect()
    }

    /// Every live process that the run has started, directly or not.
    pub(crate) fn processes(&self) -> Vec<i32> {
        self.files.processes()
    }

    /// Ends everything, and puts what it left where it stays to be looked into.
    pub(crate) fn keep(self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("teamd-soak-{}", std::process::id()));
        for pid in self.processes() {
            signal(pid, Signal::SIGKILL);
        }
        std::fs::rename(self.root(), &kept).unwrap();
        kept
    }
}

/// Reads `90`, `15s`, `10m` or `1h`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, "s"),
    };
    let seconds = number.parse::<u64>().ok()?
        * match unit {
            "h" => 3600,
            "m" => 60,
            _ => 1,
        };
    Some(Duration::from_secs(seconds))
}

/// SplitMix64: small, and the same everywhere.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.below(1000) as f64 / 1000.0
    }

    /// Lets some time pass, up to this.
    pub(crate) fn pause(&mut self, most: Duration) {
        std::thread::park_timeout(most.mul_f64(self.unit()));
    }
}
