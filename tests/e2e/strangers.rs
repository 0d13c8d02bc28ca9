//! Processes that are not those of the journal: reused pids, another boot, a copied team directory.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process::start_ticks;
use crate::support::{Team, is_alive, poll_until, signal};

/// A stranger: a process that belongs to no team, and is gone when the test is over.
struct Stranger(std::process::Child);

impl Stranger {
    fn start() -> Self {
        let child = std::process::Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // Not before it is what it will be: start ticks outlive the exec, and so they may be read.
        Self(child)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A change of what a line of the journal says of a process.
type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;

/// Ends a team as a loss of power does, with alice alive in the journal, and changes what it says
/// of her process.
fn bury_alive(change: impl Fn(&mut Value)) -> Team {
    let team = Team::new().with("TEAM_GRACE", "100ms");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    signal(pid, Signal::SIGKILL);
    team.until_gone("alice", pid);
    let journal: String = team
        .journal()
        .into_iter()
        .map(|mut line| {
            if line["record"] == "member" && line["pid"] == pid {
                change(&mut line);
            }
            format!("{line}\n")
        })
        .collect();
    team.put("journal.jsonl", &journal);
    team
}

/// Failure 19 (CC#30098, CC#72898, gastown#923).
#[test]
fn a_stranger_with_a_recorded_pid_is_neither_adopted_nor_signalled() {
    let stranger = Stranger::start();
    let pid = stranger.pid();
    let ticks = start_ticks(stranger.pid());
    let changes: [(&str, Change); 3] = [
        ("another start", Box::new(|line| line["pid"] = json!(pid))),
        (
            "another boot",
            Box::new(|line| {
                line["pid"] = json!(pid);
                line["start_ticks"] = json!(ticks);
                line["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
            }),
        ),
        (
            "the very process, but without the liveness lock",
            Box::new(|line| {
                line["pid"] = json!(pid);
                line["start_ticks"] = json!(ticks);
            }),
        ),
    ];
    for (what, change) in changes {
        let team = bury_alive(change);
        // The files alone deceive no command that looks.
        let status = team.json(["status", "alice"]);
        assert_eq!(status["daemon"]["running"], false, "{what}");
        team.teamd(["start"]).ok();
        team.wait_for("alice", "crashed");
        assert_eq!(team.events("adopted"), 0, "{what}");
        team.teamctl(["shutdown", "alice", "--force", "--timeout", "0"])
            .exits(7);
        team.teamd(["stop", "--force"]).ok();
        assert!(is_alive(pid), "{what}");
    }
}

/// Something holds the liveness lock, but it is not the process of the journal: a shim that still
/// ends a call, or a person's own lock. No process is signalled, nothing is said to be over,
/// nothing hangs.
#[test]
fn a_held_liveness_lock_is_waited_for_and_its_holder_not_signalled() {
    let stranger = Stranger::start();
    let pid = stranger.pid();
    let ticks = start_ticks(stranger.pid());
    let team = bury_alive(|line| {
        line["pid"] = json!(pid);
        line["start_ticks"] = json!(ticks - 1);
    });
    let lock = std::fs::File::open(team.path("transcript/alice.jsonl")).unwrap();
    lock.lock().unwrap();
    team.teamd(["start"]).ok();
    team.teamctl([
        "shutdown",
        "alice",
        "--force",
        "--timeout",
        "0",
        "--no-wait",
    ])
    .ok();
    // The daemon serves others meanwhile.
    team.spawn("bob", "");
    team.teamctl(["shutdown", "bob"]).ok();
    team.until("it to be said", || {
        team.file("log/teamd.log").contains("liveness lock")
    });
    assert!(
        !["crashed", "killed", "shutdown"].contains(&team.status("alice").as_str()),
        "{}",
        team.member("alice")
    );
    assert!(is_alive(pid));
    drop(lock);
    assert!(poll_until(
        &mut || ["crashed", "killed"].contains(&team.status("alice").as_str())
    ));
    assert!(is_alive(pid));
}

/// `cp -a` of a project with a live team: the copy adopts, and kills, the original's workers.
#[test]
fn a_copied_team_directory_adopts_and_kills_no_process() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "/plan_approval drop the cache");
    team.until_planned("bob");
    let daemon = team.daemon_pid();
    let alice = team.pid("alice");
    let bob = team.pid("bob");
    // Nothing is written any more: the daemon renames what it writes, and `cp` fails at what is
    // gone.
    team.until("the roster to show all of it", || {
        team.roster()["seq"] == team.journal().last().unwrap()["seq"].clone()
            && team.member("bob")["activity"] == "waiting for approval"
    });
    let copy = Team::new();
    let copied = team
        .command("cp", ["-a"])
        .arg(team.path(""))
        .arg(copy.root())
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    // It is not believed, unless the user says so.
    assert!(
        copy.teamctl(["status"])
            .exits(6)
            .stderr
            .contains("was not created by `teamd start`")
    );
    copy.teamd(["start"]).exits(3);
    assert_eq!(
        copy.teamctl(["doctor"])
            .exits(1)
            .stdout
            .matches("--adopt")
            .count(),
        1
    );
    copy.register();
    // The copy says what is true of it: no daemon runs there.
    assert_eq!(copy.json(["status"])["daemon"]["running"], false);
    let refused = copy.teamctl(["send", "alice", "are you here?"]).exits(7);
    assert!(
        refused.stderr.contains("alice is not running"),
        "{refused:?}"
    );
    let found = copy.teamctl(["doctor"]).stdout;
    assert!(
        found.contains("this is a copy of it") && !found.contains("adopts them"),
        "{found}"
    );
    copy.teamd(["start"]).ok();
    copy.wait_for("alice", "crashed");
    copy.wait_for("bob", "crashed");
    assert_ne!(copy.daemon_pid(), daemon);
    copy.teamctl(["shutdown", "alice", "--force", "--timeout", "0"])
        .exits(7);
    assert_eq!(copy.json(["plans"]), json!([]));
    copy.teamctl(["spawn", "alice"]).ok();
    copy.teamd(["stop"]).ok();
    assert!([daemon, alice, bob].iter().all(|&pid| is_alive(pid)));
    assert_eq!(
        (team.pid("alice"), team.status("alice")),
        (alice, "idle".to_owned())
    );
    team.teamctl(["shutdown", "alice", "bob"]).ok();
}

/// `cp -al`, or a backup that is made so: the files of both are the same ones.
#[test]
fn a_copy_of_hard_links_does_not_start() {
    let team = Team::started();
    team.spawn("alice", "");
    let copied = || {
        let copy = Team::new();
        let made = team
            .command("cp", ["-al"])
            .arg(team.path(""))
            .arg(copy.root())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        copy
    };
    let is_refused = |copy: &Team| {
        let run = copy.teamd(["start", "--adopt", ".team"]).exits(1);
        let said = ["(hard links)", "hint: make a copy of its own"];
        assert!(
            said.iter().all(|words| run.stderr.contains(words)),
            "{run:?}"
        );
    };
    let copy = copied();
    is_refused(&copy);
    // The team itself goes on, over its own death too.
    team.spawn("bob", "");
    team.kill_daemon();
    let run = team.teamd(["start"]).ok();
    assert_eq!(
        run.stdout.lines().nth(1),
        Some("adopted alice, bob"),
        "{run:?}"
    );
    // Nor does a copy of a team that has stopped.
    team.teamd(["stop"]).ok();
    is_refused(&copied());
    team.teamd(["start"]).ok();
}
