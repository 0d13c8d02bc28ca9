//! What a teammate costs whose mind is an agent of others, beside the same agent that is started
//! and written to by hand.
//!
//! With the stubs of Claude Code and of an agent by ACP, and with Claude Code and Codex themselves where they are found
//! (`TEAM_REAL_CLAUDE`, else `claude` in `PATH`, and `TEAM_REAL_CODEX`, else `codex`), which then
//! ask a fake service. A request is what the stub is told to make: it opens a pipe.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::json;
use uuid::Uuid;

use crate::Effort;
use crate::figure::{Figure, Sample};
use crate::hand::Hand;
use crate::idle::memory_of;
use crate::lifecycle::{once, run};
use crate::peer::wall_clock;
use crate::support::model_server::{KEY, ModelServer, Reply};
use crate::support::process::{children, command_line, descendants, is_agent, let_pass};
use crate::support::{PATIENCE, Team, is_alive, signal};

/// Before each measurement: so long that everything sleeps again.
const PAUSE: Duration = Duration::from_millis(60);

/// How many teammates the memory of each is taken from.
const TEAM: u32 = 10;

/// An agent, and how its requests are seen.
pub(crate) struct Subject {
    name: &'static str,
    /// The agent, which is also its protocol, and what names a model that does not exist.
    pub(crate) agent: &'static str,
    flags: &'static [&'static str],
    pub(crate) team: Team,
    pub(crate) command: Vec<String>,
    /// What it is told to make a request.
    order: String,
    requests: Receiver<Instant>,
    /// The service of a real one.
    _server: Option<ModelServer>,
}

/// Measures all agents that there are.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    if in_path("python3").is_none() {
        println!("note: the stubs of agents need python3");
        return Vec::new();
    }
    let claude = include_str!("../fixtures/claude-stub.py");
    let acp = include_str!("../fixtures/acp-stub.py");
    let mut figures = Subject::stub(("stub", "claude"), claude, &[]).measure(effort);
    figures.extend(Subject::stub(("stub by ACP", "opencode"), acp, &["acp"]).measure(effort));
    for (name, agent, variable, flags) in [
        ("Claude Code", "claude", "TEAM_REAL_CLAUDE", [].as_slice()),
        (
            "Codex",
            "codex",
            "TEAM_REAL_CODEX",
            &["--model", "openai:fake"],
        ),
    ] {
        match std::env::var(variable)
            .ok()
            .map(PathBuf::from)
            .or_else(|| in_path(agent))
        {
            Some(program) => {
                figures.extend(Subject::real((name, agent, flags), &program).measure(effort))
            }
            None => println!("note: {name} is not measured: {variable} does not name it"),
        }
    }
    figures
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

impl Subject {
    fn stub(
        (name, agent): (&'static str, &'static str),
        program: &str,
        arguments: &[&str],
    ) -> Self {
        let team = Team::new().with("ANTHROPIC_API_KEY", KEY);
        team.write("agent-stub.py", program);
        team.write("orders.py", include_str!("../fixtures/orders.py"));
        let stub = team.root().join("agent-stub.py");
        let pipe = team.root().join("requests");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let (asks, requests) = channel();
        let order = format!("ping {}", pipe.display());
        std::thread::spawn(move || {
            // It is opened when the other end is.
            while File::open(&pipe).is_ok_and(|_| asks.send(Instant::now()).is_ok()) {
                let_pass(Duration::from_millis(5));
            }
        });
        let mut command = vec!["python3".to_owned(), stub.to_str().unwrap().to_owned()];
        command.extend(arguments.iter().map(|it| (*it).to_owned()));
        Self {
            name,
            agent,
            flags: &[],
            team,
            command,
            order,
            requests,
            _server: None,
        }
        .started()
    }

    fn real(
        (name, agent, flags): (&'static str, &'static str, &'static [&'static str]),
        program: &Path,
    ) -> Self {
        let (asks, requests) = channel();
        let server = ModelServer::answering_any_client(move |request| {
            if request.body["tools"]
                .as_array()
                .is_some_and(|tools| !tools.is_empty())
            {
                asks.send(request.at).unwrap_or(());
            }
            Reply::text("done")
        });
        let team = server.team();
        let order = "go on".to_owned();
        let command = vec![program.to_str().unwrap().to_owned()];
        Self {
            name,
            agent,
            flags,
            team,
            command,
            order,
            requests,
            _server: Some(server),
        }
        .started()
    }

    fn started(self) -> Self {
        let command = json!(self.command);
        let agent = self.agent;
        let protocol = if agent == "opencode" { "acp" } else { agent };
        self.team.write(
            "team.toml",
            &format!("[agents.{agent}]\ncommand = {command}\nprotocol = '{protocol}'\n"),
        );
        self.team.trust();
        self.team.teamd(["start"]).ok();
        self
    }

    fn measure(&self, effort: Effort) -> Vec<Figure> {
        let mut figures = self.life(effort);
        self.spawn();
        figures.push(self.message(effort));
        figures.push(self.memory());
        figures.push(self.kill(effort));
        if self.name == "stub" {
            figures.extend(self.gate(effort));
        }
        self.team.teamd(["stop", "--force"]).ok();
        figures
    }

    fn spawn(&self) {
        run(
            &self.team,
            &[&["spawn", "alice", "--agent", self.agent], self.flags].concat(),
        );
    }

    /// From `teamctl spawn` until it is ready, and from `teamctl shutdown` until nothing is left.
    fn life(&self, effort: Effort) -> Vec<Figure> {
        let [mut above, mut alone, mut shutdown] = [(); 3].map(|()| Sample::default());
        let mut asked = 0;
        for _ in 0..effort.of(30).max(3) {
            let mut hand = None;
            let by_hand = once(|| hand = Some(Hand::start(self))).0;
            drop(hand);
            let spawned = once(|| self.spawn()).0;
            alone.add(by_hand);
            above.add(spawned.saturating_sub(by_hand));
            self.team.wait_for("alice", "idle");
            asked += self.requests.try_iter().count();
            shutdown.add(once(|| run(&self.team, &["shutdown", "alice"])).0);
            asked += self.requests.try_iter().count();
            self.team.teamctl(["forget", "alice"]).ok();
        }
        vec![
            Figure {
                name: format!(
                    "{}: spawn until ready, above its own start, p50 of pairs",
                    self.name
                ),
                measured: above.to_string(),
                limit: format!("its own start: {alone}"),
                ratio: None,
                aim: "≤ 60 ms",
                met: above.p50() <= Duration::from_millis(60),
            },
            Figure {
                name: format!("{}: idle shutdown, whole `teamctl`, p50", self.name),
                measured: format!("{shutdown}, {asked} requests"),
                limit: String::new(),
                ratio: None,
                aim: "≤ 80 ms, 0 requests",
                met: shutdown.p50() <= Duration::from_millis(80) && asked == 0,
            },
        ]
    }

    /// From a line in the inbox to the request of its model, above a line on its pipe.
    fn message(&self, effort: Effort) -> Figure {
        let mut above = Sample::default();
        let mut alone = Sample::default();
        let hand = Hand::start(self);
        let before = self.team.notices("alice").len();
        let mut inbox = OpenOptions::new()
            .append(true)
            .open(self.team.path("inbox/alice.jsonl"))
            .unwrap();
        for round in 1..=effort.of(100).max(3) {
            let_pass(PAUSE);
            let by_hand = self.until_request(|| hand.say(&self.order));
            hand.until_the_end_of_the_turn();
            let_pass(PAUSE);
            let line = json!({"id": Uuid::now_v7(), "type": "message", "from": "user", "content": self.order});
            let took =
                self.until_request(|| inbox.write_all(format!("{line}\n").as_bytes()).unwrap());
            self.team.until_finished("alice", before + round);
            // The first ones make what all others find.
            if round > 1 {
                alone.add(by_hand);
                above.add(took.saturating_sub(by_hand));
            }
        }
        Figure {
            name: format!(
                "{}: line in the inbox → request of its model, above a line on its pipe, p50 of pairs",
                self.name
            ),
            measured: above.to_string(),
            limit: format!("its pipe: {alone}"),
            ratio: None,
            aim: "≤ 5 ms",
            met: above.p50() <= Duration::from_millis(5),
        }
    }

    fn until_request(&self, what: impl FnOnce()) -> Duration {
        while self.requests.try_recv().is_ok() {}
        let began = Instant::now();
        what();
        self.requests.recv_timeout(PATIENCE).unwrap() - began
    }

    /// What our processes take beside one agent, and beside each of a team: workers and shims run
    /// from one copy of the program, whose pages the first of them pays alone.
    fn memory(&self) -> Figure {
        let alone = Self::memory_beside(self.team.pid("alice"));
        let others: Vec<String> = (2..=TEAM).map(|number| format!("other{number}")).collect();
        for other in &others {
            let spawn = ["spawn", other, "--agent", self.agent];
            run(&self.team, &[&spawn, self.flags].concat());
            self.team.wait_for(other, "idle");
        }
        let workers = others.iter().map(|other| self.team.pid(other));
        let of_all: f64 = workers
            .chain([self.team.pid("alice")])
            .map(Self::memory_beside)
            .sum();
        let each = of_all / f64::from(TEAM);
        for other in &others {
            run(&self.team, &["shutdown", other]);
        }
        let name = format!("{}: our memory beside it, worker and shim, PSS", self.name);
        Figure {
            name,
            measured: format!("{each:.2} MB, each of {TEAM}"),
            limit: format!("one alone: {alone:.2} MB"),
            ratio: None,
            aim: "≤ 4 MB",
            met: each <= 4.0,
        }
    }

    /// Returns the PSS of a worker and the shim of its agent, in megabytes.
    fn memory_beside(worker: i32) -> f64 {
        let is_shim = |pid: &i32| command_line(*pid).contains(" shim ");
        let shim = children(worker).into_iter().find(is_shim);
        let of = |pid: Option<i32>| memory_of(pid.into_iter()).1.unwrap_or(f64::NAN);
        of(Some(worker)) + of(shim)
    }

    /// From a message right after a kill of the idle agent to its request.
    fn kill(&self, effort: Effort) -> Figure {
        let mut sample = Sample::default();
        let before = self.team.notices("alice").len();
        for round in 1..=effort.of(20).max(3) {
            let agent = self.agent();
            sample.add(self.until_request(|| {
                signal(agent, Signal::SIGKILL);
                run(&self.team, &["send", "alice", &self.order]);
            }));
            self.team.until_finished("alice", before + round);
            assert!(!is_alive(agent));
        }
        Figure {
            name: format!(
                "{}: kill -9 → first request of its next process, p50",
                self.name
            ),
            measured: sample.to_string(),
            limit: String::new(),
            ratio: None,
            aim: "≤ 1 s",
            met: sample.p50() <= Duration::from_secs(1),
        }
    }

    fn agent(&self) -> i32 {
        descendants(self.team.pid("alice"))
            .into_iter()
            .find(|&pid| is_agent(pid))
            .unwrap()
    }

    /// From the line of the journal to the mount of the agent.
    fn gate(&self, effort: Effort) -> Vec<Figure> {
        let mut closes = Sample::default();
        let mut opens = Sample::default();
        for _ in 0..effort.of(30).max(3) {
            let_pass(PAUSE);
            let asks = [
                "request-plan",
                "alice",
                "\n@plan_approval {\"plan\": \"more\"}\n",
            ];
            closes.add(self.until_mounted("ro", || run(&self.team, &asks)));
            let id = self.team.until_planned("alice");
            let_pass(PAUSE);
            opens.add(self.until_mounted("rw", || run(&self.team, &["approve", &id])));
            self.team.wait_for("alice", "idle");
        }
        let figure = |what: &str, sample: &Sample| Figure {
            name: format!("gate of an agent that runs: journal → {what}, p50"),
            measured: sample.to_string(),
            limit: String::new(),
            ratio: None,
            aim: "≤ 5 ms",
            met: sample.p50() <= Duration::from_millis(5),
        };
        vec![figure("closed", &closes), figure("open", &opens)]
    }

    /// Runs a command, and returns how long after the line of the journal that decides it the
    /// workspace of the agent was so.
    fn until_mounted(&self, wanted: &str, what: impl FnOnce()) -> Duration {
        let agent = self.agent();
        let root = self.team.root().to_str().unwrap();
        let is_so = || {
            let mounts = std::fs::read_to_string(format!("/proc/{agent}/mountinfo")).unwrap();
            let workspace = mounts
                .lines()
                .rfind(|line| line.split(' ').nth(4) == Some(root))
                .unwrap();
            workspace.split(' ').nth(5).unwrap().starts_with(wanted)
        };
        let set = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let began = Instant::now();
                while !is_so() {
                    assert!(began.elapsed() < PATIENCE, "the gate never is {wanted}");
                    std::hint::spin_loop();
                }
                wall_clock()
            });
            what();
            looks.join().unwrap()
        });
        let decided = self
            .team
            .journal()
            .into_iter()
            .rfind(|line| line["event"] == "gate_closed" || line["event"] == "approved")
            .unwrap()["at"]
            .as_f64()
            .unwrap();
        set.saturating_sub(Duration::from_secs_f64(decided))
    }
}
