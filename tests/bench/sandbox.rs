//! What confining costs a command: `bash -c true` under its keeper in each sandbox, beside `bash -c true` alone.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::Effort;
use crate::figure::{Figure, Sample, time};

/// The sandboxes: name, namespaces, what may be added to a bare spawn.
const SANDBOXES: [(&str, &str, &str, Duration); 3] = [
    ("namespaces, Landlock, seccomp", "own", "≤ 3 ms added", Duration::from_millis(3)),
    ("bubblewrap, Landlock, seccomp", "bubblewrap", "≤ 6 ms added", Duration::from_millis(6)),
    ("Landlock, seccomp", "none", "≤ 3 ms added", Duration::from_millis(3)),
];

/// Measures all of them, in turns.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let scratch = tempfile::tempdir().unwrap();
    let workspace = scratch.path().canonicalize().unwrap();
    for folder in ["work", "work/.team", "temp", "home", "home/.ssh"] {
        std::fs::create_dir(workspace.join(folder)).unwrap();
    }
    let (mut bare, mut confined) = (Sample::default(), SANDBOXES.map(|_| Sample::default()));
    for _ in 0..effort.of(300) {
        bare.add(timed(Command::new("bash").args(["-c", "true"])));
        for ((_, namespaces, ..), sample) in SANDBOXES.iter().zip(&mut confined) {
            sample.add(keep(&workspace, namespaces));
        }
    }
    let figures = SANDBOXES.iter().zip(&confined).filter(|((_, namespaces, ..), _)| is_there(namespaces));
    figures
        .map(|((name, _, aim, most), sample)| {
            let added = sample.p50().saturating_sub(bare.p50());
            Figure {
                name: format!("a command confined by {name}, p50"),
                measured: format!("{sample}: {} added", time(added)),
                limit: format!("`bash -c true`: {bare}"),
                ratio: Some(sample.ratio(&bare)),
                aim,
                met: added <= *most,
            }
        })
        .collect()
}

fn is_there(namespaces: &str) -> bool {
    namespaces != "bubblewrap" || Command::new("bwrap").arg("--version").output().is_ok()
}

/// Starts a keeper as a worker does, and waits until all is gone.
fn keep(workspace: &Path, namespaces: &str) -> Duration {
    let at = |name: &str| workspace.join(name);
    let policy = json!({
        "layers": {"namespaces": namespaces, "landlock": 7, "seccomp": true},
        "workspace": at("work"), "temp": at("temp"), "private_tmp": false, "writable": [at("temp"), at("work")],
        "read_only": [at("work/.team")], "placeholders": [], "pinned": [], "hidden": [at("home/.ssh")], "network": true,
    });
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let mut keeper = Command::new(env!("CARGO_BIN_EXE_team-worker"));
    keeper.args(["keeper", "--policy", &policy.to_string(), "--", "true"]).current_dir(at("work"));
    timed(keeper.stdin(Stdio::null()).stdout(OwnedFd::from(theirs)).stderr(Stdio::null()))
}

fn timed(command: &mut Command) -> Duration {
    let began = std::time::Instant::now();
    let status = command.status().unwrap();
    let took = began.elapsed();
    assert!(status.success(), "{command:?}");
    took
}
