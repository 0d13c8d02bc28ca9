//! What others can do to a team from outside: foreign owners, planted links and FIFOs, a hostile
//! peer on the control socket, a full disk.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, chown};
use serde_json::json;

use crate::support::process::is_root;
use crate::support::{Run, Team, is_alive};

/// A user id that no user of this machine has.
const ANOTHER_USER: u32 = 12_345;

/// `teamd start` must fail with a reason and a hint.
#[track_caller]
fn refuses_to_start(team: &Team, reason: &str) -> Run {
    let said = team.teamd(["start"]).exits(1);
    assert!(
        said.stderr.contains("error: ") && said.stderr.contains(reason),
        "{said:?}"
    );
    said
}

#[test]
fn the_team_directory_of_another_user_is_not_served() {
    let team = Team::new();
    let foreign = if is_root() {
        std::fs::create_dir(team.path("")).unwrap();
        chown(&team.path(""), Some(Uid::from_raw(ANOTHER_USER)), None).unwrap();
        team.path("")
    } else {
        PathBuf::from("/")
    };
    let owner = if is_root() { ANOTHER_USER } else { 0 };
    let dir = foreign.to_str().unwrap();
    for said in [
        team.teamd(["--team-dir", dir, "start"]).exits(1),
        team.teamctl(["--team-dir", dir, "send", "alice", "hello"])
            .exits(1),
        team.teamctl(["--team-dir", dir, "status"]).exits(1),
    ] {
        assert!(
            said.stderr.contains(&format!("belongs to user {owner}")),
            "{said:?}"
        );
        assert!(said.stderr.contains("hint: "), "{said:?}");
    }
    if is_root() {
        assert_eq!(
            std::fs::read_dir(&foreign).unwrap().count(),
            0,
            "nothing was made there"
        );
    }
}

#[test]
fn a_file_in_the_place_of_the_team_directory_is_said() {
    let team = Team::new();
    drop(std::fs::File::create(team.root().join(".team")).unwrap());
    for said in [
        team.teamd(["start"]).run_failed(),
        team.teamctl(["--team-dir", ".team", "status"]).run_failed(),
    ] {
        assert!(said.stderr.contains("is not a directory"), "{said:?}");
    }
}

/// A link planted in the team directory must neither be written through nor read through.
#[test]
fn a_planted_link_is_refused_at_the_start_and_never_written_through() {
    for planted in [
        "inbox/lead.jsonl",
        "config.json",
        "journal.jsonl",
        "log/teamd.log",
        "log",
        "run",
        "inbox",
    ] {
        let team = Team::started();
        team.teamd(["stop"]).ok();
        let outside = team.root().join("outside");
        let is_folder = team.path(planted).is_dir();
        if is_folder {
            std::fs::rename(team.path(planted), &outside).unwrap();
        } else {
            std::fs::remove_file(team.path(planted)).unwrap();
            std::fs::File::create(&outside)
                .unwrap()
                .write_all(b"precious")
                .unwrap();
        }
        symlink(&outside, team.path(planted)).unwrap();
        let before = if is_folder {
            listing(&outside)
        } else {
            Vec::new()
        };
        let said = refuses_to_start(&team, "symbolic link");
        assert!(
            said.stderr.contains(planted) && said.stderr.contains("hint: "),
            "{said:?}"
        );
        if is_folder {
            assert_eq!(listing(&outside), before);
        } else {
            assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious");
        }
        team.until_no_process_is_left();
    }
}

fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut listing: Vec<_> = entries
        .map(|entry| (entry.path(), entry.metadata().unwrap().len()))
        .collect();
    listing.sort();
    listing
}

#[test]
fn a_link_planted_while_the_daemon_runs_is_not_followed() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let outside = team.root().join("outside");
    std::fs::File::create(&outside)
        .unwrap()
        .write_all(b"precious\n")
        .unwrap();
    for planted in ["config.json", "inbox/alice.jsonl"] {
        team.plant(planted, |at| symlink(&outside, at).unwrap());
    }
    let said = team.teamctl(["send", "alice", "hello"]).exits(1);
    assert!(said.stderr.contains("symbolic link"), "{said:?}");
    // Bob ends: alice would be told, and the roster is written.
    team.teamctl(["shutdown", "bob"]).ok();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious\n");
    assert_eq!(team.status("bob"), "shutdown");
    assert!(!team.path("config.json").is_symlink());
    // Alice still hears the daemon's word over her connection.
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious\n");
}

pub(crate) fn make_fifo(at: &Path) {
    nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

#[test]
fn a_fifo_in_the_place_of_an_inbox_blocks_no_process() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let fifo = |file: &str| team.plant(file, make_fifo);
    fifo("inbox/alice.jsonl");
    let said = team.teamctl(["send", "alice", "hello"]).exits(1);
    assert!(said.stderr.contains("is not a regular file"), "{said:?}");
    // The daemon has a pending notice for alice (bob's end), cannot write it, and serves on.
    team.teamctl(["shutdown", "bob"]).ok();
    team.spawn("carol", "");
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
    team.teamd(["stop"]).ok();
    // In the place of the lead's, a start says so.
    fifo("inbox/lead.jsonl");
    refuses_to_start(&team, "is not a regular file");
    std::fs::remove_file(team.path("inbox/lead.jsonl")).unwrap();
    fifo("config.json");
    refuses_to_start(&team, "is not a regular file");
}

/// Runs `teamd` as an ordinary user, from a copy that this user can reach.
fn teamd_as_another_user(team: &Team, args: &[&str]) -> std::process::Output {
    let Some(scratch) = team.root().parent() else {
        panic!("no scratch directory")
    };
    let copy = scratch.join("teamd");
    if !copy.exists() {
        // By another process: a descriptor that is open for writing here could be inherited by what
        // another test starts just then, and the copy could not be run.
        let programs = [
            env!("CARGO_BIN_EXE_teamd"),
            env!("CARGO_BIN_EXE_team-worker"),
        ];
        assert!(
            team.command("cp", programs)
                .arg(scratch)
                .status()
                .unwrap()
                .success()
        );
    }
    if !is_root() {
        return team.command(copy.to_str().unwrap(), args).output().unwrap();
    }
    std::fs::set_permissions(scratch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let uid = format!("--reuid={ANOTHER_USER}");
    let gid = format!("--regid={ANOTHER_USER}");
    let mut command = team.command("setpriv", [&uid, &gid, "--clear-groups"]);
    command
        .arg(copy)
        .args(args)
        .env("TMPDIR", "/tmp")
        .output()
        .unwrap()
}

/// Gives a directory to the ordinary user, if the tests run as root.
fn give(path: &Path, mode: u32) {
    if is_root() {
        chown(path, Some(Uid::from_raw(ANOTHER_USER)), None).unwrap();
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_read_only_directory_is_said() {
    let team = Team::new();
    give(&team.home(), 0o755);
    let fails = |team: &Team, reason: &str| {
        let out = teamd_as_another_user(team, &["start", "--adopt", ".team"]);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("error: ") && stderr.contains(".team"),
            "{stderr}"
        );
        assert!(stderr.contains(reason), "{stderr}");
    };
    give(team.root(), 0o555);
    let out = teamd_as_another_user(&team, &["start"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code() == Some(1) && stderr.contains("error: cannot make "),
        "{stderr}"
    );
    assert!(!team.path("").exists());
    // The directory is there, but nothing can be made in it.
    give(team.root(), 0o755);
    std::fs::create_dir(team.path("")).unwrap();
    give(&team.path(""), 0o500);
    fails(&team, "Permission denied");
    // So that the scratch directory can be removed.
    give(&team.path(""), 0o700);
    // And an ordinary user's own directory works.
    let out = teamd_as_another_user(&team, &["start"]);
    assert!(out.status.success(), "{out:?}");
    let out = teamd_as_another_user(&team, &["stop"]);
    assert!(out.status.success(), "{out:?}");
}

#[test]
fn a_deleted_team_directory_ends_all_processes() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let alice = team.pid("alice");
    std::fs::rename(team.path(""), team.root().join("gone")).unwrap();
    // Moved away is not gone: it still runs there, and is believed there when a person says so.
    team.teamctl(["--team-dir", "gone", "status"]).exits(6);
    assert!(
        team.teamd(["start", "--adopt", "gone"])
            .ok()
            .stdout
            .contains("already running")
    );
    let moved = team.json(["--team-dir", "gone", "status"]);
    assert_eq!(moved["daemon"]["pid"], daemon);
    assert_eq!(moved["members"][0]["status"], json!("idle"));
    // A process that still writes there can win against one removal, not against each.
    team.until("the directory to be deleted", || {
        drop(std::fs::remove_dir_all(team.root().join("gone")));
        !team.root().join("gone").exists()
    });
    team.until("all processes to be gone", || {
        !is_alive(daemon) && !is_alive(alice)
    });
    team.until_no_process_is_left();
}
