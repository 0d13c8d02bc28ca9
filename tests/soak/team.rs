//! The team that is soaked: its directory, the programs, and what can be seen of it from outside.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;

use crate::Soak;

/// Longer than any command may take; one that takes longer hangs.
const HANGS: Duration = Duration::from_secs(200);

/// The mark in the environment of everything that is started.
const MARK: &str = "TEAMD_SOAK_MARK";

pub(crate) struct Team {
    scratch: PathBuf,
    programs: Option<PathBuf>,
    size: usize,
    mark: String,
    pub(crate) daemon_starts: AtomicUsize,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn is_done(&self) -> bool {
        self.code == Some(0)
    }
}

impl Team {
    pub(crate) fn new(programs: Option<&Path>, size: usize) -> Self {
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let scratch = std::env::temp_dir().join(format!("teamd-soak-{}", &mark[..8]));
        for folder in ["work", "home", "tmp", "out"] {
            std::fs::create_dir_all(scratch.join(folder)).unwrap();
        }
        let programs = programs.map(Path::to_owned);
        Self { scratch, programs, size, mark, daemon_starts: AtomicUsize::new(0) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.scratch
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.scratch.join("work/.team").join(relative)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.size).map(|number| format!("w{number:03}"))
    }

    pub(crate) fn any(&self, rng: &mut Rng) -> String {
        format!("w{:03}", rng.below(self.size))
    }

    /// Every fourth is spawned afresh and forgotten, so that its unread mail goes; the others always go on.
    pub(crate) fn is_volatile(name: &str) -> bool {
        name[1..].parse::<usize>().unwrap() % 4 == 3
    }

    fn program(&self, name: &str) -> PathBuf {
        let built = match name {
            "teamd" => env!("CARGO_BIN_EXE_teamd"),
            _ => env!("CARGO_BIN_EXE_teamctl"),
        };
        self.programs.as_ref().map_or_else(|| built.into(), |folder| folder.join(name))
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.program(program));
        command
            .args(args)
            .current_dir(self.scratch.join("work"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.scratch.join("home"))
            .env("TMPDIR", self.scratch.join("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Runs a program to its end. A hang, a signal, a panic and an error of usage are violations.
    pub(crate) fn run(&self, soak: &Soak, program: &str, args: &[&str]) -> Run {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let out = |which: &str| self.scratch.join(format!("out/{number}.{which}"));
        let make = |which: &str| std::fs::File::create(out(which)).unwrap();
        let mut child = self.command(program, args).stdout(make("out")).stderr(make("err")).spawn().unwrap();
        let began = Instant::now();
        let mut pause = Duration::from_millis(2);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > HANGS {
                soak.ledger.violation(format!("{program} {args:?} hangs"));
                child.kill().unwrap();
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        let take = |which: &str| {
            let text = String::from_utf8_lossy(&std::fs::read(out(which)).unwrap()).into_owned();
            std::fs::remove_file(out(which)).unwrap();
            text
        };
        let run = Run { code: status.code(), stdout: take("out"), stderr: take("err") };
        soak.ledger.ran(program, args, run.code, began.elapsed());
        if !matches!(run.code, Some(0 | 1 | 3..=7)) || run.stderr.contains("panicked") {
            soak.ledger.violation(format!("{program} {args:?} ended strangely: {run:?}"));
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
            soak.ledger.violation(format!("teamd start failed: {run:?}"));
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
        let pid = std::fs::read_to_string(self.path("run/teamd.pid")).ok()?.trim().parse().ok()?;
        (is_alive(pid) && command_line(pid).contains("teamd")).then_some(pid)
    }

    /// The pid of each live worker of this team, by name.
    pub(crate) fn workers(&self) -> BTreeMap<i32, String> {
        let here = self.path("").display().to_string();
        let here = here.trim_end_matches('/');
        let workers = pids().into_iter().filter_map(|pid| {
            let line = command_line(pid);
            let (program, args) = line.split_once(" run --name ")?;
            let ours = program.ends_with("team-worker") && line.contains(here) && is_alive(pid);
            ours.then(|| (pid, args.split(' ').next().unwrap().to_owned()))
        });
        workers.collect()
    }

    /// Every live process that carries the mark or names the directory on its command line.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let wanted = format!("{MARK}={}", self.mark);
        let here = self.scratch.display().to_string();
        let marked = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
                || command_line(*pid).contains(&here)
        };
        let own = i32::try_from(std::process::id()).unwrap();
        pids().into_iter().filter(|pid| *pid != own && is_alive(*pid) && marked(pid)).collect()
    }

    /// Ends everything that is left.
    pub(crate) fn end(&self) {
        loop {
            let left = self.processes();
            left.iter().for_each(|&pid| signal(pid, Signal::SIGKILL));
            if left.is_empty() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    pub(crate) fn remove(&self) {
        std::fs::remove_dir_all(&self.scratch).unwrap();
    }
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(crate) fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn signal(pid: i32, which: Signal) {
    // One that is gone already is as good.
    kill(Pid::from_raw(pid), which).unwrap_or_default();
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
