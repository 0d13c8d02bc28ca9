//! What confining costs a command: `bash -c true` under its keeper in each sandbox, beside `bash -c true` alone.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

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
    for folder in ["work", "work/.team", "work/.git", "work/.git/hooks", "temp", "home", "home/.ssh"] {
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
        "known": [], "read_only": [at("work/.git/hooks"), at("work/.git/config")], "placeholders": [at("work/team.toml")],
        "empty": [at("work/.git/hooks")], "absent": [], "read_only_files": [], "place_lock": at("work/.team/places"),
        "pinned": [at("work/.git")], "hidden": [at("home/.ssh"), at("work/.team")], "sealed": [at("work/.team")],
        "network": true,
    });
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut keeper = Command::new(env!("CARGO_BIN_EXE_team-worker"));
    keeper.args(["keeper", "--policy", &policy.to_string(), "--", "true"]).env_clear().current_dir("/");
    keeper.stdin(Stdio::null()).stdout(OwnedFd::from(theirs)).stderr(Stdio::null());
    let took = timed(&mut keeper);
    drop(keeper);
    // A command that was refused is quick, too.
    let mut report = String::new();
    ours.read_to_string(&mut report).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report, json!({"code": 0, "signal": null, "because": "exited"}), "{namespaces}");
    took
}

fn timed(command: &mut Command) -> Duration {
    let began = std::time::Instant::now();
    let status = command.status().unwrap();
    let took = began.elapsed();
    assert!(status.success(), "{command:?}");
    took
}
