//! What the tests of the crates of the lead have in common: a team directory, and a daemon that
//! gives prepared answers.

use serde_json::{Value, json};
use teamd_shared::control::{Command, Done, Greeting, Listener, Refusal, Reply, TaggedCommand};
use teamd_shared::process::Identity;
use teamd_shared::register::Register;
use teamd_shared::settings::Settings;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::team_file::TeamFile;
use teamd_shared::testing::{journal_member, roster_member};

use crate::context::{Context, Kept};
use crate::print::output::Output;

pub use crate::print::output::Stored as Captured;

/// Makes a runtime of one thread.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Creates a team directory that is gone with the value.
pub fn scratch() -> (tempfile::TempDir, TeamDir) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
    (scratch, dir)
}

/// A daemon that takes one connection and sends prepared replies on it, in a thread of its own.
pub fn daemon(
    dir: &TeamDir,
    mut answer: impl FnMut(&Command) -> Option<Result<Done, Refusal>> + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let dir = TeamDir::open(dir.root()).unwrap();
    let (bound, is_bound) = std::sync::mpsc::channel();
    let daemon = std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = Listener::bind(&dir).unwrap();
            bound.send(()).unwrap();
            let mut peer = listener.accept().await.unwrap();
            peer.receive::<Greeting>().await.unwrap().unwrap();
            while let Some(TaggedCommand { tag, command }) = peer.receive().await.unwrap() {
                if let Some(result) = answer(&command) {
                    peer.send(&Reply { tag, result }).await.unwrap();
                }
            }
        });
    });
    is_bound.recv().unwrap();
    daemon
}

/// A team directory with this roster.
pub fn team(members: &Value) -> (tempfile::TempDir, TeamDir) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
    write(&dir, members);
    (scratch, dir)
}

/// Writes another roster.
pub fn write(dir: &TeamDir, members: &Value) {
    let roster =
        json!({"version": 1, "seq": 1, "team_name": "default", "daemon": null, "members": members});
    teamd_shared::fs::replace(dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
}

/// A member whose process is this one.
pub fn member(name: &str, status: &str) -> Value {
    let me = Identity::of_self().unwrap();
    roster_member(
        &json!({"name": name, "status": status, "pid": me.pid, "start_ticks": me.start_ticks}),
    )
}

/// One line of a journal that spawns a member.
pub fn spawned(seq: u64, name: &str) -> String {
    let line = journal_member(
        &json!({"seq": seq, "at": 1.0, "done": 0, "record": "member", "event": "spawned", "name": name}),
    );
    format!("{line}\n")
}

/// One line of a journal that asks a request.
pub fn asked(seq: u64, id: &str, kind: &str) -> String {
    let (from, to) = if kind == "shutdown" {
        ("lead", "alice")
    } else {
        ("alice", "lead")
    };
    let payload = match kind {
        "shutdown" => json!({"reason": "done", "decide_within": 30.0, "force_after": null}),
        _ => json!({"plan": "Drop the cache.\nThen rebuild."}),
    };
    let line = json!({"seq": seq, "at": 1.0, "done": 0, "record": "request", "event": "asked", "request_id": id,
        "kind": kind, "from": from, "to": to, "status": "pending", "payload": payload, "incarnation": 1,
        "message_id": "018f0000-0000-7000-8000-000000000000", "created_at": seq, "resolved_at": null,
        "reason": null});
    format!("{line}\n")
}

/// What a command about this team starts from that prints here: stdout, and stderr.
pub fn context(dir: &TeamDir, json: bool) -> (Context, Captured, Captured) {
    let (out, stdout, stderr) = captured(json);
    let settings = Settings::default();
    let file = Ok(TeamFile::default());
    let passed_over = Vec::new();
    let path = dir.root().to_owned();
    // Beside it: each test has a register of its own.
    let register = Register::new(StateDir::of_home(path.parent().unwrap()));
    register.enter(dir).unwrap();
    (
        Context {
            out,
            path,
            settings,
            file,
            register,
            passed_over,
            kept: Kept::default(),
        },
        stdout,
        stderr,
    )
}

/// An output that keeps stdout and stderr for a test.
pub fn captured(json: bool) -> (Output, Captured, Captured) {
    let stdout = Captured::default();
    let stderr = Captured::default();
    let output = Output::to(
        json,
        None,
        Box::new(stdout.clone()),
        Box::new(stderr.clone()),
    );
    (output, stdout, stderr)
}
