//! One run: a team, a victim, and the user, who starts again what is gone and repeats what failed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use teamd_shared::journal::{self, Team as Fold};

use crate::ledger::{Ledger, Sent};
use crate::support::{Team, is_alive};
use crate::tracer::{Held, Point, Tracer};
use crate::wrapper;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);
/// After that time the user looks after what lasts: frees the disk, say.
const HEALS_AFTER: Duration = Duration::from_secs(3);
/// After that time the user starts a daemon for a command that waits for one.
const STARTS_AFTER: Duration = Duration::from_millis(150);
/// How often the user tries again.
const ATTEMPTS: usize = 6;

/// What must not be.
#[derive(Debug, Clone)]
pub(crate) struct Violation(pub(crate) String);

pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Fails with a text unless a condition holds.
pub(crate) fn hold(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation(what())) }
}

/// Whose system calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Daemon,
    Worker,
    Ctl,
}

impl Victim {
    pub(crate) const ALL: [Self; 3] = [Self::Daemon, Self::Worker, Self::Ctl];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Worker => "worker",
            Self::Ctl => "teamctl",
        }
    }
}

/// How a command ended, and what it said.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn is_done(&self) -> bool {
        self.code == Some(0)
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
    /// Daemons that run in the foreground: children of this process.
    children: Vec<std::process::Child>,
    /// Who is started again with `--resume` when found crashed.
    wanted: Vec<&'static str>,
}

impl Stage {
    /// A workspace without a team yet, and a tracer that waits for the victim.
    pub(crate) fn new(victim: Victim, point: Option<Point>) -> Self {
        let team = Team::new();
        let scratch = team.root().parent().unwrap().to_owned();
        let tracer = Tracer::new(&scratch.join(wrapper::SOCKET), point);
        let team = match victim {
            Victim::Worker => {
                let program = scratch.join(wrapper::WORKER);
                std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &program).unwrap();
                team.with("TEAM_WORKER", program.to_str().unwrap())
            }
            Victim::Daemon | Victim::Ctl => team,
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
            children: Vec::new(),
            wanted: Vec::new(),
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

    /// Starts the daemon; the victim, if the daemon is to be it, and none was before.
    pub(crate) fn start(&mut self) -> Checked {
        if self.victim == Victim::Daemon && !self.had_victim {
            self.had_victim = true;
            self.start_victim();
            return self.ensure_daemon();
        }
        self.start_plain()
    }

    /// Starts a daemon that is no victim.
    pub(crate) fn start_plain(&mut self) -> Checked {
        self.daemon = 0;
        self.ensure_daemon()
    }

    fn start_victim(&mut self) {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.scratch.join("victim.err"));
        let log = log.unwrap();
        let mut command = self.traced(env!("CARGO_BIN_EXE_teamd"), &["start", "--foreground"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        self.daemon = i32::try_from(child.id()).unwrap();
        self.children.push(child);
        let (pid, path) = (self.daemon.to_string(), self.team.path("run/teamd.pid"));
        let began = Instant::now();
        while std::fs::read_to_string(&path).unwrap_or_default().trim() != pid
            && is_alive(self.daemon)
            && began.elapsed() < PATIENCE
        {
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn traced(&self, program: &str, args: &[&str]) -> Command {
        let itself = std::env::current_exe().unwrap();
        let socket = self.scratch.join(wrapper::SOCKET);
        let mut all = vec![wrapper::PROGRAM, socket.to_str().unwrap(), program];
        all.extend(args);
        self.team.command(itself.to_str().unwrap(), all)
    }

    /// Starts the daemon again if it is gone, as often as a person would.
    pub(crate) fn ensure_daemon(&mut self) -> Checked {
        for attempt in 0..ATTEMPTS {
            if self.daemon != 0 && is_alive(self.daemon) {
                return Ok(());
            }
            self.reap();
            if attempt == 2 {
                self.tracer.unmark();
            }
            let said = self.run(env!("CARGO_BIN_EXE_teamd"), &["--json", "start"], false)?;
            if said.is_done() {
                let found: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_default();
                self.daemon = i32::try_from(found["pid"].as_i64().unwrap_or_default()).unwrap_or_default();
                hold(self.daemon > 0, || format!("`teamd start` names no pid: {said:?}"))?;
            }
        }
        let log = self.team.file("log/teamd.log");
        Err(Violation(format!("the daemon does not start any more: {}\n{log}", self.ledger.stderr)))
    }

    fn reap(&mut self) {
        let tracer = &self.tracer;
        self.children.retain_mut(|child| end_of(tracer, child).is_none());
    }

    /// Kills the daemon, whichever it is.
    pub(crate) fn kill_daemon(&mut self) {
        crate::support::signal(self.daemon, nix::sys::signal::Signal::SIGKILL);
        while is_alive(self.daemon) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.reap();
    }

    /// Runs `teamctl`.
    pub(crate) fn ctl(&mut self, args: &[&str]) -> Checked<Said> {
        self.run(env!("CARGO_BIN_EXE_teamctl"), args, false)
    }

    /// Runs the command that a scenario is about: the first one is the victim, if a command is to be it.
    pub(crate) fn main(&mut self, args: &[&str]) -> Checked<Said> {
        self.main_of(env!("CARGO_BIN_EXE_teamctl"), args)
    }

    fn main_of(&mut self, program: &str, args: &[&str]) -> Checked<Said> {
        let traced = self.victim == Victim::Ctl && self.marked && !self.had_victim;
        self.had_victim |= traced;
        self.run(program, args, traced)
    }

    /// Runs `teamd stop` until nobody is left.
    pub(crate) fn stop(&mut self, main: bool) -> Checked {
        for attempt in 0..ATTEMPTS {
            self.ensure_daemon()?;
            if attempt == 3 {
                self.tracer.unmark();
            }
            let args = ["stop", "--timeout", "20s"];
            let said = match main {
                true => self.main_of(env!("CARGO_BIN_EXE_teamd"), &args)?,
                false => self.run(env!("CARGO_BIN_EXE_teamd"), &args, false)?,
            };
            if said.is_done() {
                self.reap();
                return hold(!is_alive(self.daemon), || {
                    "`teamd stop` ended with 0, and teamd lives".to_owned()
                });
            }
            if !is_alive(self.daemon) && self.last_team_event() == "stopped" {
                self.reap();
                return Ok(());
            }
        }
        Err(Violation("the team cannot be stopped".to_owned()))
    }

    fn last_team_event(&self) -> String {
        let last = self.team.journal().into_iter().rfind(|line| line["record"] == "team");
        last.and_then(|line| Some(line["event"].as_str()?.to_owned())).unwrap_or_default()
    }

    fn run(&mut self, program: &str, args: &[&str], traced: bool) -> Checked<Said> {
        let mut command = if traced { self.traced(program, args) } else { self.team.command(program, args) };
        self.runs += 1;
        let number = self.runs;
        let file = |name: &str| self.scratch.join(format!("{name}.{number}"));
        let out = |name: &str| std::fs::File::create(file(name)).unwrap();
        command.stdin(Stdio::null()).stdout(out("stdout")).stderr(out("stderr"));
        let mut child = command.spawn().unwrap();
        let (began, mut pause, mut gone_since) = (Instant::now(), Duration::from_millis(1), None);
        let code = loop {
            let ended = match traced {
                true => end_of(&self.tracer, &mut child),
                false => child.try_wait().unwrap().map(|status| status.code()),
            };
            if let Some(code) = ended {
                break code;
            }
            if began.elapsed() > PATIENCE {
                child.kill().unwrap();
                return Err(Violation(format!("`{args:?}` hangs; before it")));
            }
            // A command that waits goes on with the next daemon: the user starts it, in another terminal.
            if program == env!("CARGO_BIN_EXE_teamctl") && self.daemon != 0 && !is_alive(self.daemon) {
                gone_since.get_or_insert_with(Instant::now);
            }
            if gone_since.is_some_and(|since| since.elapsed() > STARTS_AFTER) {
                gone_since = None;
                self.ensure_daemon()?;
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        };
        let text = |name: &str| {
            let bytes = std::fs::read(self.scratch.join(format!("{name}.{number}"))).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let said = Said { code, stdout: text("stdout"), stderr: text("stderr") };
        self.ledger.commands.push(format!("{args:?}: {:?} {}", said.code, said.stderr.trim()));
        self.ledger.stderr.push_str(&said.stderr);
        crate::invariants::told::check(args, &said, traced)?;
        Ok(said)
    }

    /// Does something until it is done or found to be done; tells whether a command has said so.
    pub(crate) fn achieve(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&mut Self, usize) -> Checked<Said>,
        goal: impl Fn(&Self) -> bool,
    ) -> Checked<bool> {
        for number in 0..ATTEMPTS {
            if number == 3 {
                self.tracer.unmark();
            }
            if attempt(self, number)?.is_done() {
                return Ok(true);
            }
            self.ensure_daemon()?;
            self.settle()?;
            if goal(self) {
                return Ok(false);
            }
        }
        Err(Violation(format!("cannot {what}")))
    }

    /// Waits until nobody is between two states.
    fn settle(&mut self) -> Checked {
        self.until("everybody to be settled", |stage| {
            let roster = stage.roster();
            let members = roster["members"].as_array().cloned().unwrap_or_default();
            !members.iter().any(|member| {
                ["starting", "shutting_down"].contains(&member["status"].as_str().unwrap_or(""))
            })
        })
    }

    /// Waits until a condition holds; starts again meanwhile what is gone.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Checked {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(1));
        while !holds(self) {
            self.ensure_daemon()?;
            self.revive()?;
            if began.elapsed() > HEALS_AFTER {
                self.tracer.unmark();
            }
            if began.elapsed() > PATIENCE {
                return Err(Violation(format!("waited in vain for {what}")));
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(Duration::from_millis(15));
        }
        Ok(())
    }

    fn revive(&mut self) -> Checked {
        for name in self.wanted.clone() {
            if self.status(name) == "crashed" {
                self.revived = true;
                self.ctl(&["spawn", name, "--resume"])?;
            }
        }
        Ok(())
    }

    /// `config.json`, which can be read at every moment once it is there.
    pub(crate) fn roster(&self) -> serde_json::Value {
        let bytes = std::fs::read(self.team.path("config.json")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(crate) fn member(&self, name: &str) -> serde_json::Value {
        let members = self.roster()["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().find(|member| member["name"] == name).unwrap_or_default()
    }

    pub(crate) fn status(&self, name: &str) -> String {
        self.member(name)["status"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn incarnation(&self, name: &str) -> i64 {
        self.member(name)["incarnation"].as_i64().unwrap_or_default()
    }

    pub(crate) fn is_running(&self, name: &str) -> bool {
        ["idle", "working", "awaiting_approval"].contains(&self.status(name).as_str())
    }

    pub(crate) fn has_ended(&self, name: &str) -> bool {
        ["shutdown", "killed", "crashed"].contains(&self.status(name).as_str())
    }

    /// The state that the journal tells.
    pub(crate) fn fold(&self) -> Checked<Fold> {
        let bytes = std::fs::read(self.team.path("journal.jsonl")).unwrap_or_default();
        let mut fold = Fold::default();
        for line in journal::read_lines(&bytes) {
            let (number, line) = line.map_err(|bad| {
                Violation(format!(
                    "journal line {}: {}: {}",
                    bad.number,
                    bad.why,
                    String::from_utf8_lossy(bad.text)
                ))
            })?;
            fold.apply(&line).map_err(|error| Violation(format!("journal line {number}: {error}")))?;
        }
        Ok(fold)
    }

    /// Spawns a teammate.
    pub(crate) fn spawn(&mut self, name: &str, args: &[&str]) -> Checked {
        let all = [&["spawn", name][..], args].concat();
        let before = self.incarnation(name);
        let newer = |stage: &Self| stage.incarnation(name) > before && stage.is_running(name);
        self.achieve(&format!("spawn {name}"), |stage, _| stage.main(&all), newer).map(drop)
    }

    /// Sends a text that nobody has sent before: with the number of the attempt.
    pub(crate) fn send(&mut self, to: &str, text: &dyn Fn(usize) -> String, options: &[&str]) -> Checked {
        let attempt = |stage: &mut Self, number| {
            let text = text(number);
            let at = stage.ledger.sent.len();
            stage.ledger.sent.push(Sent { to: to.to_owned(), text: text.clone(), told: false });
            let said = stage.main(&[&["send", to, &text][..], options].concat())?;
            stage.ledger.sent[at].told = said.is_done();
            Ok(said)
        };
        self.achieve(&format!("send to {to}"), attempt, |_| false).map(drop)
    }

    /// Whether it is this one that something happens to.
    pub(crate) fn is_victim(&self, victim: Victim) -> bool {
        self.victim == victim
    }

    /// The point of this run.
    pub(crate) fn point(&self) -> Option<Point> {
        self.point
    }

    /// What the daemons, and the worker that can be the victim, logged last.
    pub(crate) fn ends_of_logs(&self) -> String {
        let logs = [self.victim_log(), self.team.file("log/teamd.log"), self.team.file("log/alice.log")];
        let end = |log: &String| {
            let lines: Vec<&str> = log.lines().rev().take(12).collect();
            lines.iter().rev().map(|line| format!("    {line}\n")).collect::<String>()
        };
        logs.iter().map(end).collect::<Vec<_>>().join("    --\n")
    }

    pub(crate) fn victim_log(&self) -> String {
        std::fs::read_to_string(self.scratch.join("victim.err")).unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tracer.unmark();
        for child in &mut self.children {
            drop(child.kill());
        }
        // The tracer's listener is woken, and ends.
        drop(std::os::unix::net::UnixStream::connect(self.scratch.join(wrapper::SOCKET)));
    }
}

/// How a child that calls the tracer has ended, if it has.
fn end_of(tracer: &Tracer, child: &mut std::process::Child) -> Option<Option<i32>> {
    match tracer.held(i32::try_from(child.id()).unwrap()) {
        Some(Held::Ended(code)) => Some(code),
        Some(Held::Released) => child.try_wait().unwrap().map(|status| status.code()),
        Some(Held::Yes) | None => None,
    }
}
