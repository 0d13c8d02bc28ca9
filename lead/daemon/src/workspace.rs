//! Whether a teammate can work in its workspace again, before the daemon starts its next
//! incarnation.
//!
//! The command that spawns resolves the workspace, and the record holds the real path
//! ([`teamd_shared::spawn`]). Nothing here follows a link. A network file system that is
//! gone can block an open for as long as it likes, so a thread does it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use teamd_shared::name::Name;
use teamd_shared::spawn::can_work;
use tokio::sync::oneshot;

use super::io::signals;

/// How long the end of an incarnation waits for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns why the next incarnation cannot work where the last one has worked.
pub(super) async fn unworkable(name: Name, workspace: PathBuf) -> Option<String> {
    let (answer, answered) = oneshot::channel();
    let no_answer = format!(
        "the workspace {} cannot be used: it does not answer",
        workspace.display()
    );
    // An answer that comes too late is dropped.
    if let Err(error) = in_a_thread(move || drop(answer.send(can_work(&name, &workspace)))) {
        tracing::warn!("cannot look at a workspace before an incarnation begins there: {error}");
        return None;
    }
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(answer) => answer.ok()?.err(),
        Err(_) => Some(no_answer),
    }
}

/// Runs in a thread that may block for ever: not even the end of the daemon waits for it.
fn in_a_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name("workspace".to_owned())
        .spawn(move || {
            signals::hold_back();
            run();
        })
        .map(drop)
}
