//! What the tests of commands share: a runner of their own, and commands that try to outlive their
//! call.

mod background;
mod results;
mod survivors;
mod worker_ends;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use teamd_shared::environment::Environment;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use tokio::time::{sleep, timeout};

use super::*;
use teamd_shared::sandbox::Layers;

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A runner with a workspace of its own, which holds the team directory.
struct Scratch {
    folder: tempfile::TempDir,
    runner: Runner,
}

fn transcript(workspace: &Path) -> PathBuf {
    workspace.join(".team/transcript/alice.jsonl")
}

fn runner_in(workspace: &Path) -> Runner {
    let team_dir = Arc::new(TeamDir::create(&workspace.join(".team")).unwrap());
    let name = Name::new("alice").unwrap();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
    let liveness_lock = team_dir
        .open_file(&TeamPath::transcript(&name), flags)
        .unwrap();
    liveness_lock.try_lock().unwrap();
    let environment = Environment {
        variables: vec![
            (b"PATH".to_vec(), b"/usr/bin:/bin".to_vec()),
            (b"COLOUR".to_vec(), b"b l\xfce".to_vec()),
        ],
        secrets: vec![(b"OPENAI_API_KEY".to_vec(), b"sk-secret".to_vec())],
        umask: 0o22,
    };
    runner_with(workspace, team_dir, (name, liveness_lock), environment)
}

/// As the next incarnation has it; the lock is not taken.
fn runner_of_next_incarnation(workspace: &Path) -> Runner {
    let team_dir = Arc::new(TeamDir::open(&workspace.join(".team")).unwrap());
    let liveness_lock = File::open(transcript(workspace)).unwrap();
    runner_with(
        workspace,
        team_dir,
        (Name::new("alice").unwrap(), liveness_lock),
        Environment::default(),
    )
}

/// These tests are about shims: the sandbox has its own, with the real programs.
fn runner_with(
    workspace: &Path,
    team_dir: Arc<TeamDir>,
    (name, liveness_lock): (Name, File),
    environment: Environment,
) -> Runner {
    let sandbox = Sandbox {
        mode: SandboxMode::Off,
        ..Sandbox::default()
    };
    let confinement = ConfinementArgs {
        layers: Layers::default(),
        weak: false,
        programs: Vec::new(),
        config: None,
    };
    // A plain directory plays the cgroup.
    let cgroup = Some(workspace.join("cgroup"))
        .filter(|folder| folder.exists())
        .map(OwnCgroup::begin);
    let workspace = workspace.to_owned();
    let territory = Vec::new();
    let temp_name = name.to_string();
    let config = RunnerConfig {
        temp_name,
        territory,
        workspace,
        team_dir,
        name,
        incarnation: 1,
        liveness_lock,
        environment,
        shown: Vec::new(),
        sealed: Vec::new(),
        sandbox,
        confinement,
        bounds: Default::default(),
        cgroup,
        keeps: Keeps::Nothing,
        machine: Default::default(),
    };
    Runner::new(config).unwrap()
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runner = runner_in(folder.path());
        Self { folder, runner }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a command in the background is told to write.
    fn log_of(&self, outcome: &Outcome) -> PathBuf {
        let behind = outcome.content.split_once("its output goes to ").unwrap().1;
        behind.split_once(" (").unwrap().0.into()
    }

    fn start(&mut self, command: &str) -> StartedCommand {
        self.start_with(command, None)
    }

    fn start_with(&mut self, command: &str, timeout: Option<f64>) -> StartedCommand {
        self.runner
            .start(&bash(command, timeout, false), Gate::Open)
    }

    async fn background(&mut self, command: &str) -> Outcome {
        self.runner
            .start(&bash(command, None, true), Gate::Open)
            .finish()
            .await
    }

    async fn run(&mut self, command: &str) -> Outcome {
        timeout(LIMIT, self.start(command).finish()).await.unwrap()
    }

    /// Waits until a command has written `count` pids into the file `pids`.
    async fn pids(&self, count: usize) -> Vec<Pid> {
        let read = || fs::read_to_string(self.path("pids")).unwrap_or_default();
        until(|| read().lines().count() >= count).await;
        let pids: Vec<Pid> = read()
            .lines()
            .map(|line| Pid::from_raw(line.trim().parse().unwrap()).unwrap())
            .collect();
        assert_eq!(pids.len(), count);
        pids
    }
}

fn bash(command: &str, timeout: Option<f64>, run_in_background: bool) -> Bash {
    Bash {
        command: command.to_owned(),
        timeout,
        run_in_background,
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LIMIT, waited).await.unwrap();
}

/// A process that has ended, but is not reaped, is gone.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')')
        .is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Survivors of every sort: plain, `nohup`, `setsid`, a double fork, both, and one that ignores
/// every signal.
const SURVIVORS: &str = r#"
    touch pids
    note() { echo "$BASHPID" >> pids; }
    ( note; exec sleep 1000 ) &
    ( trap '' HUP; note; exec nohup sleep 1000 ) > /dev/null 2>&1 &
    setsid bash -c 'echo $$ >> pids; exec sleep 1000' &
    ( ( note; exec sleep 1000 ) & )
    ( setsid bash -c '( echo $BASHPID >> pids; exec sleep 1000 ) & ' & )
    ( trap '' TERM INT HUP QUIT USR1 USR2; note; while :; do sleep 1000; done ) &
    while [ "$(wc -l < pids)" -lt 6 ]; do sleep 0.01; done
"#;
const SURVIVOR_COUNT: usize = 6;

fn write(path: &Path, content: &str) {
    File::create(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .unwrap();
}

#[tokio::test]
async fn no_command_begins_before_the_worker_is_in_its_cgroup() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cgroup")).unwrap();
    let runner = runner_in(folder.path());
    let mut scratch = Scratch { folder, runner };
    let procs = scratch.path("cgroup/cgroup.procs");
    let refused = scratch.run("touch begun").await;
    assert!(
        refused.is_error && refused.content.contains("cannot enter"),
        "{refused:?}"
    );
    assert!(!scratch.path("begun").exists());
    write(&procs, "");
    assert!(!scratch.run("touch begun").await.is_error);
    assert_eq!(fs::read_to_string(&procs).unwrap(), "0");
    assert!(scratch.path("begun").exists());
}
