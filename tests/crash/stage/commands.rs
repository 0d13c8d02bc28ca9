//! The commands of a run: each is run to its end, and what it said is checked.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::daemon::end_of;
use super::{ATTEMPTS, Checked, PATIENCE, Stage, Victim, Violation};
use crate::invariants::told;
use crate::ledger::Sent;
use crate::support::{Run, is_alive};
use crate::wrapper;

/// After that time the user starts a daemon for a command that waits for one.
const STARTS_AFTER: Duration = Duration::from_millis(150);

/// The variable that each `teamctl` has, and so each teammate; what it is.
pub(crate) const ENVIRONMENT: (&str, &str) = ("CARGO_CRASH_ENV", "x");

impl Stage {
    /// Runs `teamctl`.
    pub(crate) fn ctl(&mut self, args: &[&str]) -> Checked<Run> {
        self.run(env!("CARGO_BIN_EXE_teamctl"), args, false)
    }

    /// Runs the command that a scenario is about: the first one is the victim, if a command is to
    /// be it.
    pub(crate) fn main(&mut self, args: &[&str]) -> Checked<Run> {
        self.main_of(env!("CARGO_BIN_EXE_teamctl"), args)
    }

    pub(super) fn main_of(&mut self, program: &str, args: &[&str]) -> Checked<Run> {
        let traced = self.victim == Victim::Ctl && self.marked && !self.had_victim;
        self.had_victim |= traced;
        self.run(program, args, traced)
    }

    pub(super) fn traced(&self, program: &str, args: &[&str]) -> Command {
        let itself = std::env::current_exe().unwrap();
        let socket = self.scratch.join(wrapper::SOCKET);
        let mut all = vec![wrapper::PROGRAM, socket.to_str().unwrap(), program];
        all.extend(args);
        self.team.command(itself.to_str().unwrap(), all)
    }

    pub(super) fn run(&mut self, program: &str, args: &[&str], traced: bool) -> Checked<Run> {
        let mut command = if traced {
            self.traced(program, args)
        } else {
            self.team.command(program, args)
        };
        if program == env!("CARGO_BIN_EXE_teamctl") {
            // What a teammate is started with, and no daemon has for its own.
            command.env(ENVIRONMENT.0, ENVIRONMENT.1);
        }
        // Only for her agent: a teammate without one that has a key would ask its service.
        if args.contains(&"alice") && self.team.made("stub.py") {
            command.env("ANTHROPIC_API_KEY", "sk-of-a-stub");
        }
        let before = self.incarnation(args.get(1).copied().unwrap_or_default());
        self.runs += 1;
        let number = self.runs;
        let file = |name: &str| self.scratch.join(format!("{name}.{number}"));
        let out = |name: &str| std::fs::File::create(file(name)).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(out("stdout"))
            .stderr(out("stderr"));
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        let mut gone_since = None;
        let code = loop {
            let ended = if traced {
                end_of(&self.tracer, &mut child)
            } else {
                child.try_wait().unwrap().map(|status| status.code())
            };
            if let Some(code) = ended {
                break code;
            }
            self.heal(began);
            if began.elapsed() > PATIENCE {
                child.kill().unwrap();
                return Err(Violation(format!("`{args:?}` hangs; before it")));
            }
            // A command that waits goes on with the next daemon: the user starts it, in another
            // terminal.
            if program == env!("CARGO_BIN_EXE_teamctl")
                && self.daemon != 0
                && !is_alive(self.daemon)
            {
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
            let bytes =
                std::fs::read(self.scratch.join(format!("{name}.{number}"))).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let said = Run {
            code,
            stdout: text("stdout"),
            stderr: text("stderr"),
        };
        self.ledger
            .commands
            .push(format!("{args:?}: {:?} {}", said.code, said.stderr.trim()));
        self.ledger.stderr.push_str(&said.stderr);
        told::check(args, &said, traced && self.is_killed())?;
        told::check_sent(self, args, &said)?;
        if traced && let Some(then) = self.tracer.look().then {
            told::check_done(&then, args, &said, before)?;
        }
        Ok(said)
    }

    /// Does something until it is done or found to be done; tells whether a command has said so.
    pub(crate) fn achieve(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&mut Self, usize) -> Checked<Run>,
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

    /// Spawns a teammate. `{attempt}` is the number of the attempt: a worker that died before it
    /// was ready may have done something.
    pub(crate) fn spawn(&mut self, name: &str, args: &[&str]) -> Checked {
        let before = self.incarnation(name);
        self.achieve(
            &format!("spawn {name}"),
            |stage, number| {
                let args: Vec<_> = args
                    .iter()
                    .map(|arg| arg.replace("{attempt}", &number.to_string()))
                    .collect();
                let args: Vec<_> = ["spawn", name]
                    .into_iter()
                    .chain(args.iter().map(String::as_str))
                    .collect();
                stage.main(&args)
            },
            |stage| stage.incarnation(name) > before && stage.is_running(name),
        )
        .map(drop)
    }

    /// Sends a text that is new: with the number of the attempt.
    pub(crate) fn send(
        &mut self,
        to: &str,
        text: &dyn Fn(usize) -> String,
        options: &[&str],
    ) -> Checked {
        self.achieve(
            &format!("send to {to}"),
            |stage, number| {
                stage.revive()?;
                let text = text(number);
                let at = stage.ledger.sent.len();
                stage.ledger.sent.push(Sent {
                    to: to.to_owned(),
                    text: text.clone(),
                    told: false,
                });
                let said = stage.main(&[&["send", to, &text][..], options].concat())?;
                stage.ledger.sent[at].told = said.is_done();
                Ok(said)
            },
            |_| false,
        )
        .map(drop)
    }
}
