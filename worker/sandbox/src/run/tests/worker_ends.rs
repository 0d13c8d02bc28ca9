//! Commands whose worker is killed.

use super::*;

#[tokio::test]
async fn a_shim_holds_the_liveness_lock_until_its_call_is_over() {
    let mut scratch = Scratch::new();
    let running = scratch.start("echo $$ >> pids; sleep 1000");
    scratch.pids(1).await;
    // As if the worker were gone: its own descriptors are closed, the lifeline is not.
    let folder = scratch.folder;
    drop(scratch.runner);
    let another = || File::open(transcript(folder.path())).unwrap();
    assert!(another().try_lock().is_err());
    timeout(LIMIT, running.cancel("enough")).await.unwrap();
    // What another test starts has all descriptors of this process for a moment.
    until(|| another().try_lock().is_ok()).await;
}

/// No test by itself: the worker that the next test kills.
#[tokio::test]
async fn worker_entry() {
    let mut arguments = std::env::args()
        .skip_while(|argument| argument != "as-worker")
        .skip(1);
    let Some(folder) = arguments.next() else {
        return;
    };
    let stops_its_shim = arguments.next().as_deref() == Some("stopped");
    // A worker has a session of its own.
    rustix::process::setsid().unwrap();
    let mut runner = runner_in(Path::new(&folder));
    let stop = if stops_its_shim {
        "kill -STOP $PPID;"
    } else {
        ""
    };
    let command = format!("{SURVIVORS} {stop} echo $$ >> pids; sleep 1000");
    let background =
        "echo $$ >> pids; setsid bash -c 'echo $$ >> pids; sleep 1000' & sleep 1000".to_owned();
    let mut running = runner.start(&bash(&command, None, false), Gate::Open);
    runner.start(&bash(&background, None, true), Gate::Open);
    running.finish().await;
}

/// Starts the worker above.
fn worker_in(folder: &Path, how: &str) -> std::process::Child {
    let mut command = Command::new("/proc/self/exe");
    command.args([
        "run::tests::worker_ends::worker_entry",
        "--exact",
        "--nocapture",
        "--test-threads=1",
        "--",
    ]);
    command
        .arg("as-worker")
        .arg(folder)
        .arg(how)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn everything_ends_with_a_worker_that_is_killed() {
    for how in ["running", "stopped"] {
        let folder = tempfile::tempdir().unwrap();
        let mut worker = worker_in(folder.path(), how);
        let pids = folder.path().join("pids");
        let read = || fs::read_to_string(&pids).unwrap_or_default();
        until(|| read().lines().count() >= SURVIVOR_COUNT + 3).await;
        let lock = || File::open(transcript(folder.path())).unwrap();
        assert!(lock().try_lock().is_err());
        kill_process(Pid::from_child(&worker), Signal::KILL).unwrap();
        worker.wait().unwrap();
        // The lock is free only when all is gone, not the other way round.
        until(|| lock().try_lock().is_ok()).await;
        for pid in read().lines() {
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            assert!(is_gone(pid), "{pid:?} has survived its worker ({how})");
        }
    }
}
