//! The daemon of a run: started, found dead and started again, replaced, stopped.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{ATTEMPTS, Checked, PATIENCE, Stage, Victim, Violation, hold};
use crate::support::{Run, is_alive};
use crate::tracer::{Held, Tracer};

impl Stage {
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

    /// Starts the daemon as users do: by a command that ends when it answers, and may be the
    /// victim.
    pub(crate) fn start_in_the_background(&mut self) -> Checked {
        let said = self.main_of(env!("CARGO_BIN_EXE_teamd"), &["--json", "start"])?;
        if said.is_done() {
            self.daemon = pid_in(&said)?;
            hold(is_alive(self.daemon), || {
                format!("`teamd start` ended with 0, and no daemon runs: {said:?}")
            })?;
        }
        self.ensure_daemon()
    }

    fn start_victim(&mut self) {
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.scratch.join("victim.err"));
        let log = log.unwrap();
        let mut command = self.traced(env!("CARGO_BIN_EXE_teamd"), &["start", "--foreground"]);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().unwrap();
        self.daemon = i32::try_from(child.id()).unwrap();
        self.children.push(child);
        let pid = self.daemon.to_string();
        let path = self.team.path("run/teamd.pid");
        let began = Instant::now();
        while std::fs::read_to_string(&path).unwrap_or_default().trim() != pid
            && is_alive(self.daemon)
            && began.elapsed() < PATIENCE
        {
            std::thread::park_timeout(Duration::from_millis(2));
        }
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
            // What its own death has left unsynced, the one that comes after it must see to.
            if attempt == 0
                && self.is_victim(Victim::Daemon)
                && self.had_victim
                && self.tracer.watches_on()
            {
                self.start_victim();
                continue;
            }
            let said = self.run(env!("CARGO_BIN_EXE_teamd"), &["--json", "start"], false)?;
            if said.is_done() {
                self.daemon = pid_in(&said)?;
            }
        }
        let log = self.team.file("log/teamd.log");
        Err(Violation(format!(
            "the daemon does not start any more: {}\n{log}",
            self.ledger.stderr
        )))
    }

    fn reap(&mut self) {
        let tracer = &self.tracer;
        self.children
            .retain_mut(|child| end_of(tracer, child).is_none());
    }

    /// Kills the daemon, whichever it is.
    pub(crate) fn kill_daemon(&mut self) {
        crate::support::signal(self.daemon, nix::sys::signal::Signal::SIGKILL);
        while is_alive(self.daemon) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.reap();
    }

    /// Lets another program be the daemon, with `teamd start --replace`, until a command says that
    /// it is.
    pub(crate) fn replace(&mut self) -> Checked {
        self.achieve(
            "replace the daemon",
            |stage, _| {
                let said = stage.main_of(
                    env!("CARGO_BIN_EXE_teamd"),
                    &["--json", "start", "--replace"],
                )?;
                if said.is_done() {
                    stage.daemon = pid_in(&said)?;
                }
                Ok(said)
            },
            |_| false,
        )
        .map(drop)
    }

    /// Whether a second `teamd start` says that the daemon runs, and which.
    pub(crate) fn start_again(&mut self) -> Checked {
        let said = self.run(env!("CARGO_BIN_EXE_teamd"), &["--json", "start"], false)?;
        self.ensure_daemon()?;
        let second = pid_in(&said)?;
        let first = self.daemon;
        hold(second == first, || {
            format!("teamd {first} runs, and a second start says {said:?}")
        })
    }

    /// The daemon that runs, as far as the user knows.
    pub(crate) fn daemon(&self) -> i32 {
        self.daemon
    }

    /// Runs `teamd stop` until no process is left.
    pub(crate) fn stop(&mut self, main: bool) -> Checked {
        let members = self.roster()["members"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let names = members
            .iter()
            .filter_map(|member| member["name"].as_str())
            .map(str::to_owned);
        self.ledger.asked_to_leave.extend(names);
        for attempt in 0..ATTEMPTS {
            self.ensure_daemon()?;
            if attempt == 3 {
                self.tracer.unmark();
            }
            let args = ["stop", "--timeout", "20s"];
            let said = if main {
                self.main_of(env!("CARGO_BIN_EXE_teamd"), &args)?
            } else {
                self.run(env!("CARGO_BIN_EXE_teamd"), &args, false)?
            };
            if said.is_done() {
                self.reap();
                return hold(!is_alive(self.daemon), || {
                    "`teamd stop` ended with 0, and teamd still runs".to_owned()
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
        let last = self
            .team
            .journal()
            .into_iter()
            .rfind(|line| line["record"] == "team");
        last.and_then(|line| Some(line["event"].as_str()?.to_owned()))
            .unwrap_or_default()
    }
}

/// The pid that `teamd --json start` names.
fn pid_in(said: &Run) -> Checked<i32> {
    let found: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_default();
    let pid = found["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok());
    pid.filter(|pid| *pid > 0)
        .ok_or_else(|| Violation(format!("`teamd start` names no pid: {said:?}")))
}

/// How a child that calls the tracer has ended, if it has.
pub(super) fn end_of(tracer: &Tracer, child: &mut std::process::Child) -> Option<Option<i32>> {
    match tracer.held(i32::try_from(child.id()).unwrap()) {
        Some(Held::Ended(code)) => Some(code),
        Some(Held::Released) => child.try_wait().unwrap().map(|status| status.code()),
        Some(Held::Yes | Held::Dying) | None => None,
    }
}
