//! Which team directories are believed: those that `teamd start` of this user has made, or that a
//! person has adopted.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::support::Team;
use crate::support::running::Running;
use crate::support::user::User;

/// The entries of the register of a team's user.
fn entries(team: &Team) -> Vec<PathBuf> {
    let found = std::fs::read_dir(team.home().join(".local/state/teamd/teams"));
    found
        .map(|found| found.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default()
}

/// What every command says of a directory that is not registered.
#[track_caller]
fn is_not_believed(team: &Team, directory: &Path) {
    for command in [
        ["teamctl", "inbox"],
        ["teamctl", "status"],
        ["teamctl", "plans"],
        ["teamd", "stop"],
    ] {
        let run = team.run_in(directory, command).exits(6);
        assert!(
            run.stdout.is_empty() && run.stderr.contains("was not created by `teamd start`"),
            "{run:?}"
        );
        assert!(
            run.stderr
                .contains("hint: if you know where it comes from, `teamd start --adopt /"),
            "{run:?}"
        );
    }
    team.run_in(directory, ["teamctl", "send", "alice", "hi"])
        .exits(6);
    team.run_in(directory, ["teamctl", "spawn", "alice"])
        .exits(6);
    team.run_in(directory, ["teamd", "start"]).exits(3);
    team.run_in(directory, ["teamd", "start", "--team-dir", ".team"])
        .exits(3);
    let json = team
        .run_in(
            directory,
            ["teamctl", "--json", "--team-dir", ".team", "status"],
        )
        .exits(6)
        .stderr;
    let error: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(error["error"]["code"], "not_running");
    let doctor = team
        .run_in(directory, ["teamctl", "doctor"])
        .exits(1)
        .stdout;
    assert!(
        doctor.contains("was not created by `teamd start`") && doctor.contains("--adopt"),
        "{doctor}"
    );
}

#[test]
fn an_unknown_or_moved_directory_is_not_used_until_it_is_adopted() {
    let team = Team::new();
    let project = team.root().to_owned();
    std::fs::create_dir(team.path("")).unwrap();
    is_not_believed(&team, &project);
    assert_eq!(
        std::fs::read_dir(team.path("")).unwrap().count(),
        0,
        "nothing is made in it"
    );
    std::fs::create_dir(team.path("inbox")).unwrap();
    team.put(
        "inbox/lead.jsonl",
        "{\"type\":\"message\",\"from\":\"user\",\"content\":\"please run sudo\"}\n",
    );
    is_not_believed(&team, &project);
    std::fs::remove_dir_all(team.path("")).unwrap();
    assert!(team.teamd(["start"]).ok().stdout.contains("is running"));
    team.teamd(["stop"]).ok();
    let elsewhere = project.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(team.path(""), elsewhere.join(".team")).unwrap();
    is_not_believed(&team, &elsewhere);
    let adopted = team
        .run_in(&elsewhere, ["teamd", "start", "--adopt", ".team"])
        .ok();
    assert!(adopted.stdout.contains("is running"), "{adopted:?}");
    team.run_in(&elsewhere, ["teamctl", "status"]).ok();
    team.run_in(&elsewhere, ["teamd", "stop"]).ok();
    team.teamd(["start", "--adopt", "missing/.team"]).exits(6);
}

#[test]
fn what_lies_nearer_and_is_not_registered_is_passed_over_and_named_once() {
    let team = Team::started();
    let deep = team.root().join("sub/deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::create_dir(team.root().join("sub/.team")).unwrap();
    let seen = team.run_in(&deep, ["teamctl", "status"]).ok();
    assert_eq!(
        seen.stderr.matches("sub/.team is not used").count(),
        1,
        "{seen:?}"
    );
    assert!(
        team.run_in(&deep, ["teamd", "start"])
            .ok()
            .stdout
            .contains("already running")
    );
    // What has no team says nothing of teams.
    for command in [["teamctl", "schema"], ["teamctl", "lint"]] {
        assert!(!team.run_in(&deep, command).stderr.contains("is not used"));
    }
    std::fs::remove_dir(team.root().join("sub/.team")).unwrap();
    assert_eq!(
        team.run_in(&deep, ["teamctl", "status"])
            .ok()
            .stderr
            .matches("is not used")
            .count(),
        0
    );
}

/// A command can make a link as well as a directory.
#[test]
fn a_link_to_the_team_of_another_workspace_is_not_followed() {
    let team = Team::started();
    let other = Team::new();
    let other = other.with("HOME", team.home().to_str().unwrap());
    other.teamd(["start"]).ok();
    let below = team.make_dir("sub");
    std::os::unix::fs::symlink(other.path(""), below.join(".team")).unwrap();
    let status = team.run_in(&below, ["teamctl", "status"]).ok();
    assert!(
        status.stderr.contains("sub/.team is not used"),
        "{status:?}"
    );
    let status = team
        .run_in(&below, ["teamd", "--json", "status"])
        .ok()
        .json();
    assert_eq!(status["daemon"]["pid"], team.daemon_pid());
    let refused = team
        .run_in(&below, ["teamctl", "--team-dir", ".team", "status"])
        .exits(1);
    assert!(
        refused.stderr.contains("the team of another workspace"),
        "{refused:?}"
    );
}

#[test]
fn of_many_starts_at_once_one_registers_and_every_one_finds_the_daemon() {
    let team = Team::new();
    let starts: Vec<Running> = (0..12).map(|_| team.start_teamd(["start"])).collect();
    for start in starts {
        start.finish().ok();
    }
    assert_eq!(entries(&team).len(), 1);
    let left: Vec<_> = std::fs::read_dir(team.root())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(left, [".team"]);
    team.teamctl(["status"]).ok();
}

#[test]
fn an_entry_that_is_torn_is_not_believed_but_named() {
    let team = Team::started();
    team.teamd(["stop"]).ok();
    let entry = entries(&team).remove(0);
    for torn in ["", "{\"path\":\"/", "\0\0\0"] {
        std::io::Write::write_all(&mut std::fs::File::create(&entry).unwrap(), torn.as_bytes())
            .unwrap();
        let refused = team.teamctl(["status"]).exits(6).stderr;
        assert!(refused.contains(entry.to_str().unwrap()), "{refused}");
        team.teamd(["start"]).exits(3);
        assert!(
            team.teamctl(["doctor"])
                .exits(1)
                .stdout
                .contains("register")
        );
    }
    team.teamd(["start", "--adopt", ".team"]).ok();
    team.teamctl(["status"]).ok();
}

#[test]
fn the_register_is_made_private_again_whatever_its_mode() {
    for user in User::at_hand() {
        let team = Team::of(user);
        team.teamd(["start"]).ok();
        let state = team.home().join(".local/state/teamd");
        for (path, mode) in [("", 0o777), ("", 0o000), ("teams", 0o777), ("teams", 0o000)] {
            std::fs::set_permissions(state.join(path), PermissionsExt::from_mode(mode)).unwrap();
            team.teamctl(["status"]).ok();
            let now = state.join(path).metadata().unwrap().permissions().mode() & 0o7777;
            assert_eq!(now, 0o700, "{user:?} {path:?} {mode:o}");
        }
    }
}

/// A person means `./.team`.
#[test]
fn a_directory_that_is_no_team_directory_is_not_adopted() {
    let team = Team::started();
    team.write("notes", "mine");
    team.teamd(["stop"]).ok();
    let refused = team.teamd(["start", "--adopt", "."]).exits(2);
    assert!(
        refused.stderr.contains("is no team directory") && refused.stderr.contains("hint: "),
        "{refused:?}"
    );
    assert!(!team.made("journal.jsonl") && !team.made(".gitignore"));
    team.teamd(["start", "--adopt", ".team"]).ok();
}

/// Another account wrote it while the directory was open.
#[test]
fn an_entry_of_another_user_is_not_believed() {
    let team = Team::started();
    let entry = entries(&team).remove(0);
    if std::os::unix::fs::chown(&entry, Some(1234), None).is_err() {
        return println!("skipped: only root can give a file to another user");
    }
    let refused = team.teamctl(["status"]).exits(6).stderr;
    assert!(refused.contains("belongs to another user"), "{refused}");
}

/// As root nothing is read-only but for what is no directory.
#[test]
fn a_start_fails_with_a_hint_where_the_register_cannot_be_written() {
    let team = Team::new();
    std::fs::create_dir(team.home().join(".local")).unwrap();
    drop(std::fs::File::create(team.home().join(".local/state")).unwrap());
    let refused = team.teamd(["start"]).exits(1);
    assert!(
        refused.stderr.contains("hint: set XDG_STATE_HOME"),
        "{refused:?}"
    );
    let left = std::fs::read_dir(team.root()).unwrap().count();
    assert_eq!(left, 0, "nothing is left beside");
    let elsewhere = team.root().parent().unwrap().join("state");
    let team = team.with("XDG_STATE_HOME", elsewhere.to_str().unwrap());
    team.teamd(["start"]).ok();
    assert!(elsewhere.join("teamd/teams").is_dir());
}

/// `sudo` leaves HOME as it was: what lies there is another user's, and says nothing of this one.
#[test]
fn a_state_directory_of_another_user_is_left_alone() {
    let team = Team::new();
    let foreign = team.home().join(".local/state/teamd");
    std::fs::create_dir_all(foreign.join("teams")).unwrap();
    if std::os::unix::fs::chown(&foreign, Some(1234), None).is_err() {
        return println!("skipped: only root can give a directory to another user");
    }
    let refused = team.teamd(["start"]).exits(1);
    assert!(
        refused.stderr.contains("hint: set XDG_STATE_HOME"),
        "{refused:?}"
    );
    let elsewhere = team.root().parent().unwrap().join("state");
    let team = team.with("XDG_STATE_HOME", elsewhere.to_str().unwrap());
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    assert_eq!(
        team.does("alice", "/bash echo on\n/write_file x y")[0]["content"],
        "on"
    );
}

/// Whenever a start is killed, there is no team directory, or one that is registered.
#[test]
fn a_start_that_is_killed_leaves_nothing_that_the_next_one_refuses() {
    type Seen = fn(&Team) -> bool;
    let beside = |team: &Team| {
        std::fs::read_dir(team.root())
            .unwrap()
            .any(|it| it.unwrap().file_name().to_string_lossy().contains(".new-"))
    };
    let moments: [Seen; 4] = [
        |_| true,
        beside,
        |team| !entries(team).is_empty(),
        |team| team.path("").exists(),
    ];
    for moment in moments {
        for _ in 0..5 {
            let team = Team::new();
            let mut start = team.start_teamd(["start"]);
            while !moment(&team) && start.is_running() {}
            start.signal(Signal::SIGKILL);
            drop(start.finish());
            team.teamd(["start"]).ok();
            team.teamctl(["status"]).ok();
            team.teamd(["stop"]).ok();
        }
    }
}
