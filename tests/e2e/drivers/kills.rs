//! Kills, counted: a worker, a daemon, a wrapper or an agent is killed in any phase of the life of a
//! teammate, and what is left is counted (`scripts/test-agents --kills N`).

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::real::{REAL_CLAUDE_ACP, REAL_OPENCODE, Real, is_turn};
use super::{ACP, SETS, Stub, team_of};
use crate::support::cgroup::note;
use crate::support::model_server::{ModelServer, Reply};
use crate::support::process::{command_line, descendants, is_agent};
use crate::support::running::{Running, poll_for};
use crate::support::{Team, is_alive, signal};

/// What is killed.
const VICTIMS: [&str; 4] = ["worker", "agent", "wrapper", "daemon"];

/// In which phase.
const PHASES: [&str; 4] = ["start", "turn", "idle", "shutdown"];

/// How long a victim may take to be there, in the phase in which it may never be.
const MOMENT: Duration = Duration::from_secs(1);

/// How long what is left may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often something is killed, in all.
fn wanted() -> u64 {
    std::env::var("TEAM_AGENT_KILLS").map_or(20, |kills| kills.parse().unwrap())
}

/// The command of an agent in team.toml, behind a shell that waits for it, or directly.
fn table(stub: &Stub, command: &[String], is_wrapped: bool) -> String {
    let wrapped = [
        "sh".to_owned(),
        "-c".to_owned(),
        format!("{}; true", command.join(" ")),
    ];
    let command = if is_wrapped { &wrapped } else { command };
    let (agent, protocol) = (stub.agent, stub.protocol);
    format!("[agents.{agent}]\ncommand = {command:?}\nprotocol = '{protocol}'\n")
}

/// A team whose agent is killed.
struct Hunt<'a> {
    team: &'a Team,
    agent: &'a str,
    flags: &'a [&'a str],
    /// What makes a turn that does not end, with a process that outlives it; and one that ends.
    long: &'a str,
    short: &'a str,
    is_wrapped: bool,
    killed: u64,
    left: u64,
}

impl Hunt<'_> {
    fn worker(&self) -> Option<i32> {
        let roster = self.team.roster();
        let members = roster["members"].as_array()?;
        let pid = members.first()?["pid"].as_i64()?;
        let pid = i32::try_from(pid).unwrap();
        (pid > 0 && is_alive(pid)).then_some(pid)
    }

    fn victim(&self, what: &str) -> Option<i32> {
        if what == "daemon" {
            return Some(self.team.daemon_pid());
        }
        let worker = self.worker()?;
        let mut below = descendants(worker).into_iter();
        match what {
            "worker" => Some(worker),
            "agent" => below.find(|&pid| is_agent(pid)),
            // Without a shell around the agent, there is the shim.
            _ => below.find(|&pid| {
                let line = command_line(pid);
                line.starts_with("sh -c") || line.starts_with("team-") && !self.is_wrapped
            }),
        }
    }

    /// Kills one of them, each time another, in another phase, and counts what is left of all.
    fn kill(&mut self, round: u64) {
        let pick = |of: [&'static str; 4], at: u64| of[usize::try_from(at % 4).unwrap()];
        let what = pick(VICTIMS, round);
        let phase = pick(PHASES, round / 4);
        let team = self.team;
        let long = phase == "turn" || phase == "shutdown" && round % 8 < 4;
        let prompt = if long { self.long } else { self.short };
        let before = team.notices("carol").len();
        drop(std::fs::remove_file(team.root().join("ready")));
        let spawn = ["spawn", "carol", "--agent", self.agent];
        let more = ["--restart", "never", "--prompt", prompt];
        let began = Instant::now();
        let spawning = team.start_teamctl(spawn.iter().chain(&more).chain(self.flags));
        let moment = Duration::from_millis(round * 37 % 300);
        let mut leaving = None;
        if phase == "start" {
            team.until("the moment", || began.elapsed() >= moment);
            poll_for(MOMENT, &mut || self.victim(what).is_some());
        } else {
            let ready = || team.made("ready") || team.notices("carol").len() > before;
            team.until("its turn", ready);
            if !long {
                team.until_finished("carol", before + 1);
            }
            if phase == "shutdown" {
                leaving =
                    Some(team.start_teamctl(["shutdown", "carol", "--decide-within", "0.1s"]));
                let asked = Instant::now();
                team.until("the moment", || asked.elapsed() >= moment / 6);
            }
        }
        if let Some(pid) = self.victim(what) {
            signal(pid, Signal::SIGKILL);
            self.killed += 1;
            team.until("its end", || !is_alive(pid));
        }
        if what == "daemon" {
            drop(team.teamd(["start"]));
        }
        drop(spawning.finish());
        drop(leaving.map(Running::finish));
        drop(team.teamctl(["shutdown", "carol", "--force", "--timeout", "0.1s"]));
        if !poll_for(PATIENCE, &mut || team.processes().len() <= 1) {
            let daemon = team.daemon_pid();
            for pid in team.processes().into_iter().filter(|&pid| pid != daemon) {
                note(&format!(
                    "{phase}, {what}: left {pid} {}",
                    command_line(pid)
                ));
                self.left += 1;
                signal(pid, Signal::SIGKILL);
            }
        }
    }

    /// Kills again and again; returns how often, after what was left is none.
    fn all(mut self, rounds: u64, what: &str) {
        for round in 0..rounds {
            self.kill(round);
        }
        note(&format!(
            "{what}: {} processes were left after {} kills",
            self.left, self.killed
        ));
        assert_eq!(self.left, 0);
    }
}

fn of_the_stub(is_wrapped: bool) {
    for layers in SETS {
        let Some(team) = team_of(&[&ACP], layers) else {
            return;
        };
        let stub = team.root().join("opencode-stub.py").display().to_string();
        let command = ["python3", "-S", &stub, "acp"].map(str::to_owned);
        team.write("team.toml", &table(&ACP, &command, is_wrapped));
        team.trust();
        let hunt = Hunt {
            team: &team,
            agent: ACP.agent,
            flags: &[],
            long: "forks\n$ touch ready; sleep 600",
            short: "forks\nsay well",
            is_wrapped,
            killed: 0,
            left: 0,
        };
        let way = if is_wrapped { "sh -c" } else { "direct" };
        hunt.all(wanted() / 4, &format!("the stub, {way}, {layers}"));
    }
}

#[test]
#[ignore = "scripts/test-agents"]
fn of_the_stub_nothing_is_left() {
    of_the_stub(false);
}

#[test]
#[ignore = "scripts/test-agents"]
fn of_the_stub_behind_a_shell_nothing_is_left() {
    of_the_stub(true);
}

fn of_a_real_one(real: &Real) {
    let Ok(program) = std::env::var(real.variable) else {
        note(&format!("SKIPPED: {} is not installed", real.stub.agent));
        return;
    };
    let bash = real.bash;
    let server = ModelServer::answering_any_client(move |request| {
        if is_turn(request) && request.mentions("the long work") {
            bash("(setsid sleep 3999 &) ; touch ready; sleep 600")
        } else {
            Reply::text("done")
        }
    });
    for is_wrapped in [false, true] {
        let team = server.team();
        let mut command = vec![program.clone()];
        command.extend(real.arguments.iter().map(|&argument| argument.to_owned()));
        team.write("team.toml", &table(&real.stub, &command, is_wrapped));
        team.trust();
        let hunt = Hunt {
            team: &team,
            agent: real.stub.agent,
            flags: real.flags,
            long: "the long work",
            short: "the short work",
            is_wrapped,
            killed: 0,
            left: 0,
        };
        let way = if is_wrapped { "sh -c" } else { "direct" };
        // Each takes seconds to start.
        let rounds = (wanted() / 25).max(4);
        hunt.all(rounds, &format!("{}, {way}", real.stub.agent));
    }
}

#[test]
#[ignore = "scripts/test-agents"]
fn of_the_real_opencode_nothing_is_left() {
    of_a_real_one(&REAL_OPENCODE);
}

#[test]
#[ignore = "scripts/test-agents"]
fn of_the_real_claude_acp_nothing_is_left() {
    of_a_real_one(&REAL_CLAUDE_ACP);
}
