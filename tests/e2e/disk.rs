//! A disk that is full, for the daemon or for all.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::cgroup::note;
use crate::support::{Team, is_alive, signal};

/// Limits how large a file the daemon may write: what a full disk or a quota does, for it alone.
pub(crate) fn limit_files(pid: i32, bytes: Option<usize>) {
    let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
    let done = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--fsize={limit}:")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Tries everything that needs the journal while it cannot be written, and again when it can.
fn fails_and_recovers(team: &Team, fill: impl Fn(), free: impl Fn()) {
    team.spawn("alice", "");
    team.spawn("bob", "/plan_approval drop the cache");
    team.wait_for("bob", "awaiting_approval");
    let plan = team.last_request("plan_approval");
    let daemon = team.daemon_pid();
    let pids = (team.pid("alice"), team.pid("bob"));
    let before = team.file("journal.jsonl");
    fill();
    for command in [
        &["spawn", "carol"][..],
        &["shutdown", "alice"],
        &["approve", &plan],
        &["request-plan", "alice"],
    ] {
        let said = team.teamctl(command).exits(1);
        assert!(
            said.stderr.contains("cannot write the journal") && said.stderr.contains("hint: "),
            "{said:?}"
        );
    }
    // Nothing has changed, and everything still answers.
    assert_eq!(team.file("journal.jsonl"), before, "no half line");
    let status = team.json(["status"]);
    assert_eq!(status["daemon"]["pid"], daemon);
    assert_eq!(status["members"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!((team.pid("alice"), team.pid("bob")), pids);
    assert_eq!(team.status("alice"), "idle");
    // What the world does meanwhile is not forgotten.
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until("alice to be gone", || !is_alive(pids.0));
    free();
    team.until("alice to be started again", || {
        team.member("alice")["incarnation"] == 2 && team.status("alice") == "idle"
    });
    team.spawn("carol", "/write_file carol.txt hi");
    team.teamctl(["approve", &plan]).ok();
    team.wait_for("bob", "idle");
    team.until("carol to have worked", || {
        team.root().join("carol.txt").exists()
    });
    // The journal folds.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    for name in ["alice", "bob", "carol"] {
        team.wait_for(name, "idle");
    }
    assert!(!team.path("journal.torn").exists());
    team.teamd(["stop"]).ok();
    let seqs: Vec<_> = team
        .journal()
        .iter()
        .map(|line| line["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
    team.until_no_process_is_left();
}

/// ENOSPC: a short write, the daemon stays, space returns, and the next line is glued to the torn
/// one.
#[test]
fn a_full_disk_changes_nothing_and_the_daemon_recovers() {
    let team = Team::started();
    let pid = team.daemon_pid();
    let journal = team.path("journal.jsonl");
    fails_and_recovers(
        &team,
        // A few bytes fit: the write comes up short.
        || {
            limit_files(
                pid,
                Some(usize::try_from(journal.metadata().unwrap().len()).unwrap() + 9),
            )
        },
        || limit_files(pid, None),
    );
}

/// Where not one byte fits below the limit, the kernel sends SIGXFSZ, which ends a process that is
/// not prepared.
#[test]
fn a_stop_that_could_not_be_recorded_goes_on_when_it_can_be() {
    let team = Team::started();
    team.teamd(["stop"]).ok();
    let journal = team.file("journal.jsonl");
    let stopping = journal.lines().rev().nth(1).unwrap().len();
    team.teamd(["start"]).ok();
    let pid = team.daemon_pid();
    // The line that it is about to end fits, the one that it has does not.
    limit_files(pid, Some(team.file("journal.jsonl").len() + stopping + 20));
    let stop = team.start_teamd(["stop"]);
    team.until("it to fail", || {
        team.file("log/teamd.log")
            .contains("cannot write the journal")
    });
    limit_files(pid, None);
    stop.finish().ok();
    assert!(
        team.file("journal.jsonl")
            .lines()
            .last()
            .unwrap()
            .contains("stopped")
    );
}

/// A person can end processes whatever can be written.
#[test]
fn on_a_full_disk_force_ends_a_teammate_and_the_team() {
    let team = Team::started();
    team.spawn("alice", "/bash sleep 1000");
    team.spawn("bob", "/bash sleep 1000");
    team.until("both to work", || team.processes().len() > 4);
    let daemon = team.daemon_pid();
    let alice = team.pid("alice");
    let bob = team.pid("bob");
    limit_files(daemon, Some(team.file("journal.jsonl").len()));
    let said = team
        .teamctl(["shutdown", "alice", "--force", "--timeout", "0s"])
        .exits(1);
    assert!(
        said.stderr.contains("its process was killed all the same"),
        "{said:?}"
    );
    team.until("alice to be gone", || !is_alive(alice));
    assert!(is_alive(bob) && is_alive(daemon));
    limit_files(daemon, None);
    team.until("her end to be recorded", || {
        team.status("alice") == "killed"
    });
    limit_files(daemon, Some(team.file("journal.jsonl").len()));
    let said = team.teamd(["stop", "--force"]).exits(1);
    assert!(
        said.stderr
            .contains("every teammate was killed, and the daemon ends"),
        "{said:?}"
    );
    team.until_no_process_is_left();
    team.teamd(["start"]).ok();
    // No record says that he was to end.
    team.until("his end to be recorded", || team.status("bob") == "crashed");
}

#[test]
fn what_is_done_stays_done_when_the_line_after_it_cannot_be_written() {
    let team = Team::started();
    let pid = team.daemon_pid();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    limit_files(pid, Some(team.file("journal.jsonl").len() + 9));
    team.teamctl(["spawn", "alice"]).exits(1);
    limit_files(pid, None);
    // Her files are in the archive, and no output says that they are not.
    team.teamctl(["spawn", "alice"]).ok();
}

#[test]
fn a_socket_that_could_be_made_is_served_whatever_else_could_not() {
    let team = Team::started();
    let pid = team.daemon_pid();
    limit_files(pid, Some(0));
    std::fs::remove_dir_all(team.path("run")).unwrap();
    team.teamd(["status"]).ok();
    assert!(!team.path("run/teamd.pid").exists());
    limit_files(pid, None);
    team.spawn("alice", "");
}

#[test]
fn a_limit_on_the_size_of_files_does_not_end_the_daemon() {
    let team = Team::started();
    let pid = team.daemon_pid();
    let journal = team.path("journal.jsonl");
    fails_and_recovers(
        &team,
        || {
            limit_files(
                pid,
                Some(usize::try_from(journal.metadata().unwrap().len()).unwrap()),
            )
        },
        || limit_files(pid, None),
    );
}

/// It says what went wrong, as it does on a full disk, and the half of a line that it left does no
/// harm.
#[test]
fn a_file_size_limit_ends_no_command_or_worker_without_a_reason() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["send", "alice", "one"]).ok();
    team.until_finished("alice", 1);
    let inbox = team.path("inbox/alice.jsonl").metadata().unwrap().len();
    for room in [0, 9] {
        let limit = format!("--fsize={}:", inbox + room);
        let all = [
            &*limit,
            env!("CARGO_BIN_EXE_teamctl"),
            "send",
            "alice",
            "two",
        ];
        let said = team.run_program("prlimit", all);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.stderr.contains("error: ") && said.stderr.contains("hint: "),
            "{said:?}"
        );
    }
    // Her transcript has no room: she ends, and says why; the next incarnation takes the message
    // in.
    let pid = team.pid("alice");
    limit_files(
        pid,
        Some(
            usize::try_from(
                team.path("transcript/alice.jsonl")
                    .metadata()
                    .unwrap()
                    .len(),
            )
            .unwrap(),
        ),
    );
    // She may end at it before her end can be looked up.
    let sent = team.teamctl(["send", "alice", "/write_file three.txt 3"]);
    assert!(
        sent.is_done() || sent.code == Some(7) && sent.stderr.contains("is not known"),
        "{sent:?}"
    );
    team.until("her next incarnation", || {
        team.member("alice")["incarnation"] == 2 && team.root().join("three.txt").exists()
    });
    assert!(
        team.file("log/alice.log")
            .contains("cannot write the transcript")
    );
    let taken = team
        .transcript("alice")
        .iter()
        .filter(|entry| entry["entry"] == "messages")
        .count();
    assert_eq!(taken, 2, "what could not be sent is in no inbox");
    // What is printed into a file is written there, too.
    for command in ["start", "status", "stop"] {
        let into_file = [
            "--fsize=0:",
            "sh",
            "-c",
            r#"exec "$0" "$1" >said"#,
            env!("CARGO_BIN_EXE_teamd"),
            command,
        ];
        let said = team.run_program("prlimit", into_file);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.stderr.contains("error: ") && said.stderr.contains("hint: "),
            "{said:?}"
        );
    }
}

/// A small file system of its own, unmounted when the test is over.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Fails with the reason where it may not be mounted.
    pub(crate) fn mount(at: &Path, size: &str) -> Result<Self, String> {
        let mounted = std::process::Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=700"),
                "none",
            ])
            .arg(at)
            .output()
            .map_err(|error| error.to_string())?;
        if mounted.status.success() {
            Ok(Self(at.to_owned()))
        } else {
            Err(String::from_utf8_lossy(&mounted.stderr).into_owned())
        }
    }

    pub(crate) fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        while filler.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    /// Leaves this much space, in bytes.
    pub(crate) fn leave(&self, space: u64) {
        let filler = std::fs::File::options()
            .write(true)
            .open(self.0.join("filler"))
            .unwrap();
        filler
            .set_len(filler.metadata().unwrap().len() - space)
            .unwrap();
    }

    /// Leaves room for this many files more; none: as many as there may be.
    pub(crate) fn leave_files(&self, more: Option<u64>) {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        let files = more.map_or(0, |more| found.f_files - found.f_ffree + more);
        let options = format!("remount,nr_inodes={files}");
        let mounted = std::process::Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .output()
            .unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
    }

    pub(crate) fn make_read_only(&self) {
        let mounted = std::process::Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(&self.0)
            .output()
            .unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(
            std::process::Command::new("umount")
                .arg("-l")
                .arg(&self.0)
                .output(),
        );
    }
}

/// The whole disk is full: for the daemon, the workers and the commands.
#[test]
fn a_disk_that_is_full_for_all_loses_nothing_that_was_acknowledged() {
    let team = Team::new();
    std::fs::create_dir(team.path("")).unwrap();
    let disk = match SmallDisk::mount(&team.path(""), "512k") {
        Ok(disk) => disk,
        Err(why) => {
            return note(&format!(
                "no disk is full for all: a small one cannot be mounted: {why}"
            ));
        }
    };
    team.teamd(["start", "--adopt", ".team"]).ok();
    team.spawn("alice", "");
    team.spawn("bob", "");
    disk.fill();
    // What is in no page yet has none: grow the files up to the end of theirs.
    let said = (0..400).find_map(|_| {
        let said = team.teamctl(["send", "alice", &"x".repeat(300)]);
        (said.code != Some(0)).then_some(said)
    });
    let said = said.unwrap();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("hint: free some space"), "{said:?}");
    let said = (0..40).find_map(|number| {
        let said = team.teamctl(["spawn", &format!("m{number}"), "--timeout", "1s"]);
        (said.code != Some(0)).then_some(said)
    });
    // The journal has no room for it, or the roster has none for what the journal had room for.
    let said = said.unwrap();
    assert!(matches!(said.code, Some(1 | 5)), "{said:?}");
    assert_eq!(team.json(["status"])["daemon"]["running"], true);
    disk.free();
    team.until("all to be well", || {
        let spawned = team
            .teamctl(["spawn", "late", "--prompt", "/write_file late.txt hi"])
            .code;
        spawned == Some(0) || team.status("late") == "idle"
    });
    team.until("late to have worked", || {
        team.root().join("late.txt").exists()
    });
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.wait_for("late", "idle");
    team.teamd(["stop", "--force"]).ok();
    team.until_no_process_is_left();
    drop(disk);
}

/// What keeps a worker from being ready reaches the command at once, by whichever way is left.
#[test]
fn a_spawn_on_a_full_disk_says_why_at_once_and_so_does_the_status() {
    let team = Team::new();
    std::fs::create_dir(team.path("")).unwrap();
    let disk = match SmallDisk::mount(&team.path(""), "512k") {
        Ok(disk) => disk,
        Err(why) => {
            return note(&format!(
                "no disk is full for a spawn: a small one cannot be mounted: {why}"
            ));
        }
    };
    team.teamd(["start", "--adopt", ".team"]).ok();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    disk.fill();
    // What fails first depends on how much room the last page of each file has.
    let mut failed = Vec::new();
    for command in [
        &["spawn", "bob"][..],
        &["spawn", "alice", "--resume"],
        &["spawn", "carol"],
    ] {
        let began = Instant::now();
        let said = team.teamctl(command);
        if said.code == Some(0) {
            continue;
        }
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{command:?} waited: {said:?}"
        );
        assert_eq!(said.code, Some(1), "{said:?}");
        let stderr = said.stderr.to_lowercase();
        assert!(
            stderr.contains("no space left") && stderr.contains("hint: "),
            "{command:?}: {said:?}"
        );
        failed.push(command);
    }
    assert!(!failed.is_empty());
    let said = team.teamctl(["status"]).ok();
    assert!(
        said.stderr.to_lowercase().contains("no space left"),
        "{said:?}"
    );
    let trouble = team.json(["status"])["daemon"]["trouble"].clone();
    assert!(
        trouble
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("no space left"),
        "{trouble}"
    );
    disk.free();
    team.until("the daemon to write again", || {
        team.json(["status"])["daemon"]["trouble"].is_null()
    });
    team.teamd(["stop", "--force"]).ok();
    team.until_no_process_is_left();
    drop(disk);
}

/// Before its welcome a worker has nothing but its connection: its log may be what it cannot write.
#[test]
fn a_worker_that_cannot_begin_says_why() {
    let team = Team::started();
    let disk = match SmallDisk::mount(&team.path("transcript"), "64k") {
        Ok(disk) => disk,
        Err(why) => {
            return note(&format!(
                "no transcript is read-only: nothing can be mounted: {why}"
            ));
        }
    };
    disk.make_read_only();
    let said = team
        .teamctl(["spawn", "alice", "--restart", "never"])
        .exits(1);
    let first = said.stderr.lines().next().unwrap();
    assert!(
        first.starts_with("error: alice ended before it was ready: "),
        "{said:?}"
    );
    assert!(
        first.contains("transcript/alice.jsonl: Read-only file system"),
        "{said:?}"
    );
    let note = team.member("alice")["exit"]["note"].clone();
    assert!(
        note.as_str()
            .is_some_and(|note| note.contains("Read-only file system")),
        "{note}"
    );
    // One that is started again says it as well.
    let said = team.teamctl(["spawn", "bob"]).exits(1);
    assert!(
        said.stderr
            .contains("transcript/bob.jsonl: Read-only file system"),
        "{said:?}"
    );
    team.wait_for("bob", "crashed");
    let note = team.member("bob")["exit"]["note"].clone();
    let note = note.as_str().unwrap().to_owned();
    assert!(
        note.contains("Read-only file system") && note.contains("not started again"),
        "{note}"
    );
    drop(disk);
}

/// The roster and `run/teamd.pid` still name the daemon before; the lock and the journal tell.
#[test]
fn a_daemon_that_starts_on_a_full_disk_is_seen_to_run() {
    let team = Team::new();
    std::fs::create_dir(team.path("")).unwrap();
    let disk = match SmallDisk::mount(&team.path(""), "512k") {
        Ok(disk) => disk,
        Err(why) => {
            return note(&format!(
                "no disk is full: a small one cannot be mounted: {why}"
            ));
        }
    };
    team.teamd(["start", "--adopt", ".team"]).ok();
    team.spawn("alice", "");
    let before = team.daemon_pid();
    disk.fill();
    team.kill_daemon();
    // The journal has room in its last page.
    let said = team.teamd(["start"]).ok();
    assert!(said.stdout.contains("adopted alice"), "{said:?}");
    assert_eq!(
        team.roster()["daemon"]["pid"],
        before,
        "it cannot be written"
    );
    let daemon = team.json(["status"])["daemon"].clone();
    assert_eq!(daemon["running"], true, "{daemon}");
    assert_ne!(daemon["pid"], before);
    assert_ne!(team.file("run/teamd.pid").trim(), before.to_string());
    disk.free();
    let pid = daemon["pid"].to_string();
    team.until("its pid", || team.file("run/teamd.pid").trim() == pid);
    team.teamd(["stop", "--force"]).ok();
    team.until_no_process_is_left();
    drop(disk);
}
