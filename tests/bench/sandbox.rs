//! What confining costs a command: `bash -c true` under its shim in each sandbox, beside
//! `bash -c true` alone, and beside `bwrap`, which makes the namespaces and mounts and nothing
//! else: no filter, no shim.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};

use crate::Effort;
use crate::figure::{Figure, Sample, time};

/// The sandboxes: name, namespaces, what may be added to a bare spawn.
const SANDBOXES: [(&str, &str, &str, Duration); 3] = [
    (
        "namespaces, Landlock, seccomp",
        "own",
        "≤ 3 ms added",
        Duration::from_millis(3),
    ),
    (
        "bubblewrap, Landlock, seccomp",
        "bubblewrap",
        "≤ 6 ms added",
        Duration::from_millis(6),
    ),
    (
        "Landlock, seccomp",
        "none",
        "≤ 3 ms added",
        Duration::from_millis(3),
    ),
];

/// Measures all of them, in turns.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    // Not in `/tmp`: where there are no mounts of one's own, each file beside what is hidden costs
    // something.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let workspace = scratch.path().canonicalize().unwrap();
    for folder in [
        "work",
        "work/.team",
        "work/.git",
        "work/.git/hooks",
        "temp",
        "home",
        "home/.ssh",
    ] {
        std::fs::create_dir(workspace.join(folder)).unwrap();
    }
    let has_bwrap = Command::new("bwrap").arg("--version").output().is_ok();
    let mut bare = Sample::default();
    let mut peer = Sample::default();
    let sandboxes = SANDBOXES
        .iter()
        .filter(|(_, namespaces, ..)| has_bwrap || *namespaces != "bubblewrap");
    let mut confined: Vec<_> = sandboxes
        .map(|sandbox| (sandbox, Sample::default()))
        .collect();
    for _ in 0..effort.of(300) {
        bare.add(timed(alone("bash").args(["-c", "true"])));
        if has_bwrap {
            peer.add(timed(&mut bwrap(&workspace)));
        }
        for ((_, namespaces, ..), sample) in &mut confined {
            sample.add(supervise(&workspace, namespaces));
        }
    }
    let added = |sample: &Sample| sample.p50().saturating_sub(bare.p50());
    let peer = if has_bwrap {
        format!("; `bwrap` alone adds {}", time(added(&peer)))
    } else {
        String::new()
    };
    let figures = confined
        .iter()
        .map(|((name, _, aim, most), sample)| Figure {
            name: format!("a command confined by {name}, p50"),
            measured: format!("{sample}: {} added", time(added(sample))),
            limit: format!("`bash -c true`: {bare}{peer}"),
            ratio: Some(sample.ratio(&bare)),
            aim,
            met: added(sample) <= *most,
        });
    figures.collect()
}

/// Begins a command line as a shim's begins: with no variables but the path.
fn alone(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

/// The namespaces and the mounts of such a command, by `bwrap` and nothing else.
fn bwrap(workspace: &Path) -> Command {
    let at = |name: &str| workspace.join(name).into_os_string().into_string().unwrap();
    let mut command = alone("bwrap");
    command.args([
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--die-with-parent",
    ]);
    command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    for (option, name) in [
        ("--bind", "temp"),
        ("--bind", "work"),
        ("--bind", "work/.git"),
    ] {
        command.args([option, &at(name), &at(name)]);
    }
    for hidden in ["home/.ssh", "work/.team"] {
        command.args(["--tmpfs", &at(hidden), "--remount-ro", &at(hidden)]);
    }
    command.args([
        "--ro-bind",
        &at("work/.git/hooks"),
        &at("work/.git/hooks"),
        "bash",
        "-c",
        "true",
    ]);
    command
}

/// Starts a shim as a worker does, and waits until all is gone.
fn supervise(workspace: &Path, namespaces: &str) -> Duration {
    let at = |name: &str| workspace.join(name);
    let writable = |name: &str| json!({"place": {"path": at(name), "inode": null}, "at": at(name), "plain": false});
    let order = json!({"timeout": null, "program": "Bash", "jobserver": [], "bounds": {}, "policy": {
        "layers": {"namespaces": namespaces, "landlock": 7, "seccomp": true},
        "network": true,
        "temp": writable("temp"),
        "writable": [writable("work")],
        "shown": [],
        "protected": [{"path": at("work/.git/hooks"), "if_missing": "MakeEmpty"}],
        "hidden": [
            {"path": at("home/.ssh"), "is_of_team": false},
            {"path": at("work/.team"), "is_of_team": true},
        ],
        "notes": at("work/.team"),
    }});
    let mut file = File::from(memfd_create("order", MemfdFlags::empty()).unwrap());
    file.write_all(format!("{order}\n").as_bytes()).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut shim = Command::new(env!("CARGO_BIN_EXE_team-worker"));
    shim.args(["shim", &file.as_raw_fd().to_string()])
        .arg(at("work"))
        .arg("true");
    shim.env_clear().current_dir("/");
    shim.stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::null());
    let took = timed(&mut shim);
    drop(shim);
    // A command that was refused is quick, too.
    let mut report = String::new();
    ours.read_to_string(&mut report).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        report,
        json!({"code": 0, "signal": null, "cause": "exited"}),
        "{namespaces}"
    );
    took
}

fn timed(command: &mut Command) -> Duration {
    let began = std::time::Instant::now();
    let status = command.status().unwrap();
    let took = began.elapsed();
    assert!(status.success(), "{command:?}");
    took
}
