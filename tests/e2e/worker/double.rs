//! The double of the daemon: it says what a test makes it say, and checks nothing by itself.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use teamd_shared::control::{
    Connection, Directive, FromWorker, Greeting, Listener, Peer, PendingShutdown, ToWorker,
    Welcome, WorkerState, pair,
};
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::inbox;
use teamd_shared::locks;
use teamd_shared::member::{Doing, Gate, Limits, Sandbox, SandboxMode, Terms};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::testing::roster_member;
use teamd_shared::transcript::{Entry, Event};
use tokio::runtime::Runtime;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call that runs until [`Team::go`].
pub(super) const UNTIL_GO: &str = "/bash until [ -e go ]; do sleep 0.01; done";

/// A team directory with a lead, alice, and bob who is idle.
pub(super) struct Team {
    scratch: tempfile::TempDir,
    pub(super) dir: Arc<TeamDir>,
    runtime: Runtime,
}

/// What an incarnation begins with.
pub(super) struct Begin<'a> {
    pub(super) incarnation: u32,
    pub(super) conversation: u32,
    pub(super) prompt: Option<&'a str>,
    pub(super) gate: Gate,
    pub(super) watch: bool,
}

impl Default for Begin<'_> {
    fn default() -> Self {
        Self {
            incarnation: 1,
            conversation: 1,
            prompt: None,
            gate: Gate::Open,
            watch: true,
        }
    }
}

pub(super) fn id(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

impl Team {
    pub(super) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        for owner in ["lead", "alice", "bob"] {
            inbox::create(&dir, &Name::of_inbox(owner).unwrap()).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let team = Self {
            scratch,
            dir,
            runtime,
        };
        team.roster(&[("alice", "idle"), ("bob", "idle")]);
        team
    }

    pub(super) fn roster(&self, members: &[(&str, &str)]) {
        let members: Vec<Value> = members
            .iter()
            .map(|(name, status)| roster_member(&json!({"name": name, "status": status})))
            .collect();
        let roster = json!({"version": 1, "seq": 1, "team_name": "t", "members": members});
        teamd_shared::fs::replace(
            &self.dir,
            &TeamPath::config(),
            roster.to_string().as_bytes(),
        )
        .unwrap();
    }

    pub(super) fn workspace(&self) -> &Path {
        self.scratch.path()
    }

    /// Appends raw bytes to alice's inbox, as any program can.
    pub(super) fn echo(&self, line: &str) {
        let path = self.dir.path(&TeamPath::inbox(&alice()));
        let line = format!("{line}\n");
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }

    /// Sends alice a message of the user.
    pub(super) fn write(&self, content: &str) {
        self.echo(&json!({"type": "message", "from": "user", "content": content}).to_string());
    }

    pub(super) fn lines(&self, owner: &str) -> Vec<Value> {
        let bytes = self
            .dir
            .read(&TeamPath::inbox(&Name::of_inbox(owner).unwrap()))
            .unwrap();
        let lines = bytes
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    /// The lines of one type in the lead's inbox.
    pub(super) fn lead(&self, kind: &str) -> Vec<Value> {
        self.lines("lead")
            .into_iter()
            .filter(|line| line["type"] == kind)
            .collect()
    }

    pub(super) fn transcript(&self) -> Vec<Entry> {
        let bytes = self.dir.read(&TeamPath::transcript(&alice())).unwrap();
        let lines = bytes
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    /// The names of the transcript's entries, in order.
    pub(super) fn entries(&self) -> Vec<String> {
        self.transcript()
            .into_iter()
            .map(|entry| {
                serde_json::to_value(entry).unwrap()["entry"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }

    /// The results in the transcript: text, and whether it is an error.
    pub(super) fn results(&self) -> Vec<(String, bool)> {
        self.transcript()
            .into_iter()
            .filter_map(|entry| match entry.event {
                Event::Result {
                    content, is_error, ..
                } => Some((content, is_error)),
                _ => None,
            })
            .collect()
    }

    /// Waits for a condition that makes no event here.
    pub(super) fn until(&self, what: &str, mut met: impl FnMut() -> bool) {
        self.wait(what, async {
            while !met() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }

    /// Lets the call end that waits as [`UNTIL_GO`] says.
    pub(super) fn go(&self) {
        File::create(self.workspace().join("go")).unwrap();
    }

    fn wait<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let log = || {
            String::from_utf8_lossy(&self.dir.read(&TeamPath::log("alice")).unwrap_or_default())
                .into_owned()
        };
        let waited = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, future).await });
        waited.unwrap_or_else(|_| panic!("waited in vain for {what}; her log:\n{}", log()))
    }

    /// Starts a worker, and hears nothing of it yet.
    pub(super) fn start(&self, incarnation: u32) -> Worker<'_> {
        let (ours, theirs) = pair().unwrap();
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.dir.path(&TeamPath::log("alice")))
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_team-worker"));
        command
            .args(["run", "--name", "alice", "--incarnation"])
            .arg(incarnation.to_string())
            .arg("--team-dir")
            .arg(self.dir.root());
        command
            .env_clear()
            .env("TEAM_DURABILITY", "process")
            .env("TEAM_LOG", "debug");
        command
            .stdin(theirs)
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log));
        let child = command.spawn().unwrap();
        drop(command);
        let connection = self
            .runtime
            .block_on(async { Connection::from_fd(ours) })
            .unwrap();
        Worker {
            team: self,
            child,
            connection: Some(connection),
            directive: Directive {
                seq: 1,
                gate: Gate::Open,
                shutdown: None,
                release: false,
                plan: None,
                verdict: None,
                permissions: Default::default(),
                settles: 0,
                checking: None,
            },
            state: WorkerState::default(),
        }
    }

    /// Starts a worker and hears its greeting; it is not welcomed yet.
    pub(super) fn bear(&self, incarnation: u32) -> Worker<'_> {
        let mut worker = self.start(incarnation);
        let greeting: Greeting = worker.receive("the greeting");
        let Peer::Worker {
            name,
            incarnation: said,
            environment,
            state,
        } = greeting.peer
        else {
            panic!()
        };
        assert_eq!(
            (name, said, environment.is_some()),
            (alice(), incarnation, false)
        );
        assert_eq!(*state, WorkerState::default());
        worker
    }

    /// Starts an incarnation and welcomes it.
    pub(super) fn begin(&self, begin: &Begin<'_>) -> Worker<'_> {
        let mut worker = self.bear(begin.incarnation);
        worker.directive.gate = begin.gate;
        let path = std::env::var_os("PATH").unwrap().into_encoded_bytes();
        let welcome = Welcome {
            terms: Terms {
                role: "coder".to_owned(),
                // These tests are about the worker: the sandbox has its own, with the real
                // programs.
                sandbox: Sandbox {
                    mode: SandboxMode::Off,
                    ..Sandbox::default()
                },
                limits: Limits {
                    max_turns: Some(12),
                    ..Limits::default()
                },
                ..Terms::of_workspace(self.workspace().to_str().unwrap().to_owned())
            },
            conversation: begin.conversation,
            begins_at: Position::START,
            prompt: begin.prompt.map(str::to_owned),
            watch: begin.watch,
            environment: Environment {
                variables: vec![(b"PATH".to_vec(), path)],
                secrets: Vec::new(),
                umask: 0o027,
            },
            territory: Vec::new(),
            memory: None,
            directive: worker.directive.clone(),
        };
        worker.send(ToWorker::Welcome(Box::new(welcome)));
        worker.state_where("ready", |state| state.doing != Doing::Starting);
        worker
    }

    /// An incarnation with a prompt.
    pub(super) fn work(&self, prompt: &str) -> Worker<'_> {
        self.begin(&Begin {
            prompt: Some(prompt),
            ..Begin::default()
        })
    }

    /// The next incarnation of the first conversation.
    pub(super) fn resume(&self) -> Worker<'_> {
        self.begin(&Begin {
            incarnation: 2,
            ..Begin::default()
        })
    }

    /// Listens as a daemon does that was started again.
    pub(super) fn listen(&self) -> Listener {
        self.runtime
            .block_on(async { Listener::bind(&self.dir) })
            .unwrap()
    }
}

pub(super) fn alice() -> Name {
    Name::new("alice").unwrap()
}

/// A worker, seen from its daemon.
pub(super) struct Worker<'t> {
    team: &'t Team,
    child: Child,
    connection: Option<Connection>,
    pub(super) directive: Directive,
    /// What it said last of itself.
    pub(super) state: WorkerState,
}

impl Worker<'_> {
    fn receive<T: serde::de::DeserializeOwned>(&mut self, what: &str) -> T {
        let connection = self.connection.as_mut().unwrap();
        let frame = self.team.wait(what, connection.receive()).unwrap();
        frame.unwrap_or_else(|| panic!("the connection was closed before {what}"))
    }

    pub(super) fn send(&mut self, frame: ToWorker) {
        let connection = self.connection.as_mut().unwrap();
        self.team
            .wait("a frame to be taken", connection.send(&frame))
            .unwrap();
    }

    /// Reads frames until one is the expected one.
    fn receive_until<T>(
        &mut self,
        what: &str,
        mut expected: impl FnMut(FromWorker) -> Option<T>,
    ) -> T {
        loop {
            let frame = self.receive::<FromWorker>(what);
            if let FromWorker::State(state) = &frame {
                assert_ne!(*state, self.state, "a state was said twice");
                self.state = state.clone();
            }
            if let Some(found) = expected(frame) {
                return found;
            }
        }
    }

    /// Waits for a state; the one that was said last counts.
    pub(super) fn state_where(
        &mut self,
        what: &str,
        mut expected: impl FnMut(&WorkerState) -> bool,
    ) {
        if !expected(&self.state) {
            self.receive_until(what, |frame| {
                matches!(frame, FromWorker::State(state) if expected(&state)).then_some(())
            });
        }
    }

    pub(super) fn idle(&mut self) {
        self.state_where("idle", |state| {
            state.doing == Doing::Idle && state.awaits.is_none()
        });
    }

    pub(super) fn doing(&mut self, activity: &str) {
        self.state_where(activity, |state| state.activity == activity);
    }

    /// Waits until it runs what begins with [`UNTIL_GO`].
    pub(super) fn waits_for_go(&mut self) {
        self.state_where("the call that waits", |state| {
            state.activity.starts_with("bash: until [ -e go ]")
        });
    }

    /// Waits until it reports that it has applied the last directive.
    pub(super) fn acts(&mut self) {
        let seq = self.directive.seq;
        self.state_where("the directive to be applied", |state| {
            state.applied_seq == seq
        });
    }

    /// Says a new directive, as the old one but for a change.
    pub(super) fn directive(&mut self, change: impl FnOnce(&mut Directive)) {
        self.directive.seq += 1;
        change(&mut self.directive);
        self.send(ToWorker::Directive(self.directive.clone()));
    }

    pub(super) fn ask_to_leave(&mut self, decide_within: f64) {
        let shutdown = PendingShutdown {
            request_id: id("5d0c0ffe"),
            reason: "tidy up".to_owned(),
            decide_within,
        };
        self.directive(|directive| directive.shutdown = Some(shutdown));
    }

    /// Waits for a submitted line, and reads it.
    pub(super) fn submitted(&mut self) -> (RequestId, Value) {
        let (request_id, offset, len) =
            self.receive_until("a submitted line", |frame| match frame {
                FromWorker::Submitted {
                    request_id,
                    offset,
                    len,
                } => Some((request_id, offset, len)),
                _ => None,
            });
        let line = inbox::read_line_at(&self.team.dir, &Name::lead(), offset, len).unwrap();
        (request_id, serde_json::from_slice(&line).unwrap())
    }

    pub(super) fn record_plan(&mut self, request_id: &RequestId, status: Status) {
        self.send(ToWorker::Recorded {
            request_id: request_id.clone(),
            status,
        });
    }

    /// Records an answer to the pending shutdown.
    pub(super) fn record_answer(&mut self, approve: bool) {
        self.directive(|directive| {
            directive.shutdown = None;
            directive.release = approve;
        });
    }

    /// Records the approval of a shutdown that the worker names.
    pub(super) fn release(&mut self) -> Value {
        let (request_id, line) = self.submitted();
        assert_eq!(
            (request_id.as_str(), &line["approve"]),
            ("5d0c0ffe", &json!(true))
        );
        self.record_answer(true);
        line
    }

    /// Waits for the answer to a question.
    pub(super) fn answers(&mut self, number: u64) {
        self.receive_until("a pong", |frame| {
            (frame == FromWorker::Pong { number }).then_some(())
        });
    }

    pub(super) fn leaves_with_a_word(&mut self) {
        self.receive_until("its leave", |frame| {
            (frame == FromWorker::Leaving).then_some(())
        });
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Ends the connection, as a daemon that was killed.
    pub(super) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Takes the connection that the worker makes to a daemon that was started again.
    pub(super) fn welcome_back(&mut self, listener: &Listener) -> Option<Environment> {
        let mut connection = self
            .team
            .wait("a new connection", listener.accept())
            .unwrap();
        let greeting: Greeting = self
            .team
            .wait("a greeting", connection.receive())
            .unwrap()
            .unwrap();
        let Peer::Worker {
            environment, state, ..
        } = greeting.peer
        else {
            panic!()
        };
        self.state = *state;
        self.connection = Some(connection);
        environment
    }

    /// Waits for the end of the process.
    pub(super) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        let team = self.team;
        let child = &mut self.child;
        team.until("the end of the worker", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(super) fn ends_well(&mut self) {
        let status = self.end();
        assert!(status.success(), "{status}");
    }

    pub(super) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it, and waits until nothing of it is left.
    pub(super) fn crash(mut self) {
        self.signal(Signal::SIGKILL);
        let transcript = self
            .team
            .dir
            .identity(&TeamPath::transcript(&alice()))
            .unwrap()
            .unwrap();
        // Before it is reaped: in a container, the list leaves out the locks of who is gone. To try
        // the lock would take it.
        self.team.until("the liveness lock", || {
            !locks::list()
                .unwrap()
                .iter()
                .any(|held| held.is_of(transcript))
        });
        self.end();
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // Either has ended already, or a test has failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
