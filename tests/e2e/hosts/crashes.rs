//! What is killed, replaced, copied or lost, at home and on a host.

use std::path::Path;

use nix::sys::signal::Signal;

use super::Hosts;
use crate::support::{is_alive, signal};

#[test]
fn a_host_that_has_lost_its_files_ends_no_teammate_in_the_journal() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    hosts.cut("box");
    for pid in hosts.pids(".local/share/teamd/hosts") {
        signal(pid, Signal::SIGKILL);
    }
    let files = hosts.far.join("box/.local");
    hosts.team.until("the files to be gone", || {
        std::fs::remove_dir_all(&files).is_ok() || !files.exists()
    });
    std::fs::remove_file(hosts.far.join("box.down")).unwrap();
    hosts.until_link("box", "needs_attention");
    assert_eq!(hosts.team.events("exited"), 0);
    hosts.team.teamctl(["forget", "--lost", "alice"]).ok();
    hosts.team.teamctl(["host", "login", "box"]).ok();
    hosts.until_link("box", "up");
}

#[test]
fn a_copied_team_directory_is_refused_until_a_person_takes_the_host() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    hosts.team.kill_daemon();
    let copy = hosts.team.temp().join("copy");
    copy_files(&hosts.team.path(""), &copy.join(".team"));
    // The daemon of the original starts more often than that of the copy.
    for _ in 0..2 {
        hosts.team.teamd(["start"]).ok();
        hosts.until_link("box", "up");
        hosts.team.kill_daemon();
    }
    let of_copy = |words: &[&str]| {
        let dir = copy.join(".team").display().to_string();
        let words = [&["--team-dir", &dir], words].concat();
        hosts.team.teamctl(words)
    };
    let adopted = copy.join(".team").display().to_string();
    hosts.team.teamd(["start", "--adopt", &adopted]).ok();
    let listed = of_copy(&["host", "list"]).ok().stdout;
    assert!(listed.contains("is a copy"), "{listed}");
    let refused = of_copy(&["host", "login", "box"]).run_failed().stderr;
    assert!(refused.contains("an older copy"), "{refused}");
    assert!(refused.contains("teamctl host take box"), "{refused}");
    assert!(is_alive(pid), "what runs there is not touched");
    let taken = of_copy(&["host", "take", "box"]).ok();
    assert!(taken.stdout.contains("box is linked"), "{taken:?}");
    of_copy(&["send", "alice", "/bash touch made.txt"]).ok();
    hosts.until_made("box", "made.txt");
    assert!(is_alive(pid));
    let unknown = of_copy(&["host", "take", "gpu"]).run_failed();
    assert!(
        unknown.stderr.contains("there is no host gpu"),
        "{unknown:?}"
    );
    of_copy(&["shutdown", "alice"]).ok();
    of_copy(&["down"]).ok();
}

/// Copies the files of a directory, and those in its folders.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy_files(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_replaced_daemon_replaces_its_host_daemons_and_ends_no_teammate() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    let before = hosts.pids("--host-of");
    hosts.team.teamd(["start", "--replace"]).ok();
    hosts.team.until("another host daemon", || {
        let now = hosts.pids("--host-of");
        !now.is_empty() && now.iter().all(|pid| !before.contains(pid))
    });
    hosts.until_link("box", "up");
    hosts.send("alice", "/bash touch made.txt");
    hosts.until_made("box", "made.txt");
    assert_eq!(hosts.host_pid("alice"), pid);
    assert!(is_alive(pid));
}

#[test]
fn kills_on_both_sides_lose_no_teammate() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    hosts.team.kill_daemon();
    assert!(is_alive(pid));
    hosts.team.teamd(["start"]).ok();
    hosts.until_link("box", "up");
    hosts.send("alice", "/bash touch after-home.txt");
    hosts.until_made("box", "after-home.txt");
    for daemon in hosts.pids("--host-of") {
        signal(daemon, Signal::SIGKILL);
    }
    hosts.team.until("the host daemon to be another one", || {
        !hosts.pids("--host-of").is_empty()
    });
    hosts.until_link("box", "up");
    hosts.send("alice", "/bash touch after-host.txt");
    hosts.until_made("box", "after-host.txt");
    assert_eq!(hosts.host_pid("alice"), pid, "it is the same process");
    signal(pid, Signal::SIGKILL);
    hosts.team.until("another incarnation", || {
        hosts.team.incarnation("alice") == 2 && hosts.team.status("alice") == "idle"
    });
    hosts.team.teamctl(["shutdown", "alice"]).ok();
}

#[test]
fn a_teammate_that_is_lost_with_its_host_returns_its_mail_and_its_worker_is_ended() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    let early = hosts
        .team
        .teamctl(["forget", "--lost", "alice"])
        .run_failed();
    assert!(early.stderr.contains("can be reached"), "{early:?}");
    hosts.cut("box");
    hosts.send("alice", "never read");
    let asked = hosts.team.teamctl(["shutdown", "alice", "--timeout", "1s"]);
    asked.exits(5);
    assert!(is_alive(pid), "nothing is ended by a clock at home");
    hosts.team.teamctl(["forget", "--lost", "alice"]).ok();
    assert_eq!(hosts.team.status("alice"), "lost");
    let inbox = hosts.team.inbox("lead");
    let returned = inbox
        .iter()
        .find(|line| line["type"] == "returned")
        .unwrap();
    assert_eq!(returned["text"], "never read");
    assert_eq!(returned["why"], "lost");
    hosts.mend("box");
    hosts
        .team
        .until("its worker to be ended", || !is_alive(pid));
    hosts.team.teamctl(["forget", "alice"]).ok();
    hosts.team.teamctl(["host", "remove", "box"]).ok();
}
