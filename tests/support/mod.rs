//! A hermetic team for one test: a scratch directory, a cleared environment, the three real
//! programs.
//!
//! Everything that a test starts carries a mark in its environment. A test that ends, however it
//! ends, leaves nothing behind; and a test can ask whether anything is left.

pub(crate) mod acp_client;
pub(crate) mod browser;
pub(crate) mod cgroup;
mod journal;
pub(crate) mod json_rpc;
mod lead;
pub(crate) mod look;
pub(crate) mod mcp_client;
pub(crate) mod model_server;
pub(crate) mod nats;
pub(crate) mod process;
pub(crate) mod python;
pub(crate) mod running;
pub(crate) mod sshd;
pub(crate) mod terminal;
pub(crate) mod user;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use teamd_shared::register::Register;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;

pub(crate) use running::{Run, Running, poll_until, read_piece};

/// The one timeout: far longer than anything takes, so that only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The mark in the environment of everything that a test starts.
const MARK: &str = "TEAMD_TEST_MARK";

/// A team of a test.
pub(crate) struct Team {
    scratch: tempfile::TempDir,
    root: PathBuf,
    mark: String,
    env: Vec<(String, String)>,
    /// The user that everything runs as, if that is not the one of the test.
    user: Option<user::User>,
    /// Where the programs lie, if that user cannot run them where they were built.
    programs: Option<PathBuf>,
}

impl Team {
    /// A workspace without a team yet.
    pub(crate) fn new() -> Self {
        Self::below("")
    }

    /// A workspace without a team yet, at a path below the scratch directory.
    pub(crate) fn below(path: &str) -> Self {
        process::hear_interrupts();
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join(path).join("work");
        std::fs::create_dir_all(&root).unwrap();
        for folder in ["home", "tmp"] {
            std::fs::create_dir_all(scratch.path().join(folder)).unwrap();
        }
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let env = cgroup::setting().into_iter().collect();
        Self {
            scratch,
            root,
            mark,
            env,
            user: None,
            programs: None,
        }
    }

    /// A team whose daemon runs.
    pub(crate) fn started() -> Self {
        let team = Self::new();
        team.teamd(["start"]).ok();
        team
    }

    /// A workspace without a team yet, of the same user as another team: with the same home, and so
    /// the same register.
    pub(crate) fn of_the_same_user(other: &Self) -> Self {
        Self::of(other.user.unwrap_or(user::User::Root))
            .with("HOME", other.home().to_str().unwrap())
    }

    /// The home directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    /// Enters the team directory in the register, without a start.
    pub(crate) fn register(&self) {
        let dir = TeamDir::open(&self.path("")).unwrap();
        Register::new(StateDir::of_home(&self.home()))
            .enter(&dir)
            .unwrap();
    }

    /// Trusts what `team.toml` says by now.
    pub(crate) fn trust(&self) {
        self.teamd(["trust"]).ok();
    }

    /// Adds a variable to the environment of everything that is started from now on.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// As [`Team::with`].
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A path in the team directory.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(".team").join(relative)
    }

    pub(crate) fn teamd<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Run {
        self.run(env!("CARGO_BIN_EXE_teamd"), args, "")
    }

    pub(crate) fn teamctl<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Run {
        self.run(env!("CARGO_BIN_EXE_teamctl"), args, "")
    }

    /// Runs `teamctl` with something on its standard input.
    pub(crate) fn teamctl_with<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        args: I,
        stdin: &str,
    ) -> Run {
        self.run(env!("CARGO_BIN_EXE_teamctl"), args, stdin)
    }

    /// Runs `teamctl --json`, which must end with 0, and reads its result.
    pub(crate) fn json<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Value {
        let args: Vec<_> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        self.teamctl([OsStr::new("--json").to_owned()].into_iter().chain(args))
            .ok()
            .json()
    }

    /// Where its processes put what is temporary.
    pub(crate) fn temp(&self) -> PathBuf {
        self.scratch.path().join("tmp")
    }

    /// A command that will run in the workspace, in the cleared environment.
    pub(crate) fn command<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: I,
    ) -> Command {
        let mut command = self.command_of_user(program);
        command
            .args(args)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.scratch.path().join("home"))
            // What a killed worker leaves there goes with the test.
            .env("TMPDIR", self.temp())
            .env("LC_ALL", "C.UTF-8")
            .env(MARK, &self.mark)
            // A deliberate mistake: `scripts/crash-mutants`.
            .envs(std::env::var_os("TEAMD_MUTANT").map(|mutant| ("TEAMD_MUTANT", mutant)))
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `teamd` or `teamctl` in another directory.
    pub(crate) fn run_in<const N: usize>(&self, directory: &Path, command: [&str; N]) -> Run {
        let program = match command[0] {
            "teamd" => env!("CARGO_BIN_EXE_teamd"),
            _ => env!("CARGO_BIN_EXE_teamctl"),
        };
        let mut command = self.command(program, &command[1..]);
        command.current_dir(directory);
        let mut running = Running::start(command);
        running.feed("");
        running.finish()
    }

    /// Runs a program that is none of ours, or installed elsewhere.
    pub(crate) fn run_program<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: I,
    ) -> Run {
        self.run(program, args, "")
    }

    /// Starts `teamctl` and leaves it running.
    pub(crate) fn start_teamctl<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        args: I,
    ) -> Running {
        Running::start(self.command(env!("CARGO_BIN_EXE_teamctl"), args))
    }

    /// Starts `teamctl chat` without a terminal, tells it something, and leaves it running.
    pub(crate) fn start_chat(&self, said: &str) -> Running {
        let mut running = self.start_teamctl(["chat"]);
        running.feed(said);
        running
    }

    /// Starts `teamd` and leaves it running.
    pub(crate) fn start_teamd<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        args: I,
    ) -> Running {
        Running::start(self.command(env!("CARGO_BIN_EXE_teamd"), args))
    }

    fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: I,
        stdin: &str,
    ) -> Run {
        let mut running = Running::start(self.command(program, args));
        running.feed(stdin);
        running.finish()
    }

    /// Spawns a teammate that is ready when this returns.
    pub(crate) fn spawn(&self, name: &str, prompt: &str) -> Value {
        let mut args = vec!["--json", "spawn", name];
        if !prompt.is_empty() {
            args.extend(["--prompt", prompt]);
        }
        self.teamctl(args).ok().json()
    }

    /// Spawns a teammate that is at work for more than half a minute, and rejects the next shutdown
    /// request with a reason.
    pub(crate) fn spawn_rejecting(&self, name: &str, reason: &str) {
        let work = format!("/reject_shutdown {reason}\n{}", "/sleep 0.1\n".repeat(500));
        self.teamctl(["spawn", name, "--max-turns", "1000", "--prompt", &work])
            .ok();
        self.wait_for(name, "working");
    }

    /// A file of the team directory as text; empty if it is not there.
    pub(crate) fn file(&self, relative: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(relative)).unwrap_or_default())
            .into_owned()
    }

    /// Replaces a file of the team directory.
    pub(crate) fn put(&self, relative: &str, content: &str) {
        std::fs::File::create(self.path(relative))
            .unwrap()
            .write_all(content.as_bytes())
            .unwrap();
    }

    /// `config.json` as it stands.
    pub(crate) fn roster(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("config.json")).unwrap()).unwrap()
    }

    /// A member as it stands in `config.json`; null if it is not there.
    pub(crate) fn member(&self, name: &str) -> Value {
        let members = self.roster()["members"].as_array().unwrap().clone();
        members
            .into_iter()
            .find(|member| member["name"] == name)
            .unwrap_or(Value::Null)
    }

    pub(crate) fn status(&self, name: &str) -> String {
        self.member(name)["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(crate) fn pid(&self, name: &str) -> i32 {
        i32::try_from(self.member(name)["pid"].as_i64().unwrap_or_default()).unwrap()
    }

    pub(crate) fn incarnation(&self, name: &str) -> i64 {
        self.member(name)["incarnation"]
            .as_i64()
            .unwrap_or_default()
    }

    /// Kills a worker, and waits until its next incarnation is idle.
    pub(crate) fn kill_and_wait_for_restart(&self, name: &str) {
        let next = self.incarnation(name) + 1;
        signal(self.pid(name), Signal::SIGKILL);
        self.until("the next incarnation to be idle", || {
            self.incarnation(name) == next && self.status(name) == "idle"
        });
    }

    pub(crate) fn daemon_pid(&self) -> i32 {
        i32::try_from(self.roster()["daemon"]["pid"].as_i64().unwrap()).unwrap()
    }

    /// The whole lines of a JSONL file of the team directory; none if there is no such file.
    pub(crate) fn lines(&self, relative: &str) -> Vec<Value> {
        let bytes = std::fs::read(self.path(relative)).unwrap_or_default();
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines = bytes[..whole]
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    pub(crate) fn inbox(&self, name: &str) -> Vec<Value> {
        self.lines(&format!("inbox/{name}.jsonl"))
    }

    pub(crate) fn transcript(&self, name: &str) -> Vec<Value> {
        self.lines(&format!("transcript/{name}.jsonl"))
    }

    pub(crate) fn journal(&self) -> Vec<Value> {
        self.lines("journal.jsonl")
    }

    /// The number of journal lines with an event.
    pub(crate) fn events(&self, event: &str) -> usize {
        self.journal()
            .iter()
            .filter(|line| line["event"] == event)
            .count()
    }

    /// Whether a file of the workspace is there.
    pub(crate) fn made(&self, file: &str) -> bool {
        self.root.join(file).exists()
    }

    /// A request as the last line of its id in the journal says.
    pub(crate) fn request(&self, id: &str) -> Value {
        self.journal()
            .into_iter()
            .rfind(|line| line["record"] == "request" && line["request_id"] == id)
            .unwrap_or(Value::Null)
    }

    /// The id of the newest request of a kind.
    pub(crate) fn last_request(&self, kind: &str) -> String {
        let line = self
            .journal()
            .into_iter()
            .rfind(|line| line["record"] == "request" && line["kind"] == kind)
            .unwrap_or_else(|| panic!("no {kind} in the journal"));
        line["request_id"].as_str().unwrap().to_owned()
    }

    /// Appends a line to an inbox, as a shell does: one write.
    pub(crate) fn echo(&self, name: &str, line: &str) {
        let mut inbox = std::fs::OpenOptions::new()
            .append(true)
            .open(self.path(&format!("inbox/{name}.jsonl")))
            .unwrap();
        assert_eq!(
            inbox.write(format!("{line}\n").as_bytes()).unwrap(),
            line.len() + 1
        );
    }

    /// Waits until a member has a status.
    pub(crate) fn wait_for(&self, name: &str, status: &str) {
        self.until(&format!("{name} to be {status}"), || {
            self.status(name) == status
        });
    }

    /// Waits until a condition holds; shows the roster and the daemon's log when it never does.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        if !poll_until(&mut holds) {
            let roster = std::fs::read_to_string(self.path("config.json")).unwrap_or_default();
            let log = std::fs::read_to_string(self.path("log/teamd.log")).unwrap_or_default();
            let journal = std::fs::read_to_string(self.path("journal.jsonl")).unwrap_or_default();
            panic!(
                "waited in vain for {what}\n--- config.json\n{roster}\n--- journal\n{journal}\n--- teamd.log\n{log}"
            );
        }
    }

    /// Kills the daemon with SIGKILL and waits until it is gone.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid();
        signal(pid, Signal::SIGKILL);
        // Its main thread is a zombie before its last thread has given up what it held.
        let folder = std::fs::File::open(self.path("")).unwrap();
        self.until("the daemon to be gone", || {
            !is_alive(pid) && folder.try_lock_shared().is_ok()
        });
        folder.unlock().unwrap();
    }

    /// Waits until a process is gone that was the worker of a member.
    pub(crate) fn until_gone(&self, name: &str, pid: i32) {
        // As with the daemon: its last thread releases the liveness lock.
        let transcript =
            std::fs::File::open(self.path(&format!("transcript/{name}.jsonl"))).unwrap();
        self.until(&format!("{name} to be gone"), || {
            !is_alive(pid) && transcript.try_lock_shared().is_ok()
        });
        // Not by its end: what another test starts just then has a copy of this descriptor for a
        // moment.
        transcript.unlock().unwrap();
    }

    /// Every live process that this test has started, directly or not.
    ///
    /// They are known by the mark. Of those that only root can look into (teamd, workers, shims),
    /// by the directory on their command line, or by their parent.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let wanted = format!("{MARK}={}", self.mark);
        let scratch = self.scratch.path().to_str().unwrap();
        let marked = |pid: i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|variable| variable == wanted.as_bytes())
                || process::command_line(pid).contains(scratch)
        };
        let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let all: Vec<i32> = pids.filter(|&pid| is_alive(pid)).collect();
        let mut ours: Vec<i32> = all.iter().copied().filter(|&pid| marked(pid)).collect();
        let mut next = 0;
        while let Some(&parent) = ours.get(next) {
            next += 1;
            let children = all
                .iter()
                .copied()
                .filter(|&pid| process::parent(pid) == Some(parent));
            let new: Vec<i32> = children.filter(|pid| !ours.contains(pid)).collect();
            ours.extend(new);
        }
        ours.sort_unstable();
        ours
    }

    /// Waits until nothing that this test has started is left.
    pub(crate) fn until_no_process_is_left(&self) {
        self.until("every process to be gone", || self.processes().is_empty());
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // A daemon could start a worker between two looks: look until none is there.
        poll_until(&mut || {
            let left = self.processes();
            for &pid in left.iter() {
                signal(pid, Signal::SIGKILL);
            }
            left.is_empty()
        });
        // A daemon that was killed has not removed it; it is empty by now, or another team's.
        if let Some(folder) = self.cgroup() {
            poll_until(&mut || teamd_shared::cgroup::remove(&folder).is_ok());
        }
    }
}

pub(crate) fn signal(pid: i32, which: Signal) {
    assert!(pid > 0, "there is no such process");
    // One that is gone already is no failure of the test.
    if let Err(errno) = kill(Pid::from_raw(pid), which) {
        assert_eq!(errno, nix::errno::Errno::ESRCH, "cannot signal {pid}");
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
