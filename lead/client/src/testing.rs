//! What the tests of the crates of the lead have in common: a team directory, and a daemon that
//! answers what it is told to.

use teamd_shared::control::{Command, Done, Greeting, Listener, Refusal, Reply, TaggedCommand};
use teamd_shared::team_dir::TeamDir;

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

/// A daemon that takes one connection and says on it what it is told to, in a thread of its own.
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
