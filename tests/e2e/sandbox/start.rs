//! What cannot be held is never passed over: the daemon does not start, or says so.

use serde_json::Value;

use super::With;
use crate::support::Team;

#[test]
fn where_a_promise_cannot_be_kept_the_daemon_does_not_start() {
    let team = Team::new().with("TEAM_SANDBOX_LAYERS", "seccomp");
    let refused = team.teamd(["start"]).exits(1);
    assert!(
        refused
            .stderr
            .contains("nothing in the team directory can be written"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("hint: ") && refused.stderr.contains("--allow-weak-sandbox"),
        "{}",
        refused.stderr
    );
    team.teamd(["start", "--allow-weak-sandbox"]).ok();
    let status = team.teamctl(["status"]).ok();
    assert!(
        status.stderr.contains("the sandbox is weak"),
        "{}",
        status.stderr
    );
    assert_eq!(team.json(["status"])["sandbox"]["layers"], "seccomp");
    team.spawn("alice", "");
    assert_eq!(team.does("alice", "/bash echo on")[0]["content"], "on");
}

#[test]
fn layers_that_could_not_be_tried_are_not_taken_for_granted() {
    let team = Team::new().with("TEAM_WORKER", "/bin/false");
    let refused = team.teamd(["start"]).exits(1);
    assert!(
        refused.stderr.contains("/bin/false") && refused.stderr.contains("hint: "),
        "{}",
        refused.stderr
    );
    team.teamd(["start", "--allow-weak-sandbox"]).ok();
    let status = team.teamctl(["status"]).ok();
    assert!(
        status.stderr.contains("the sandbox is weak"),
        "{}",
        status.stderr
    );
    assert_eq!(team.json(["status"])["sandbox"]["layers"], "none");
}

#[test]
fn without_namespaces_the_team_directory_is_made_in_the_state_directory() {
    let Some(team) = With::Bare.team(&[]) else {
        return;
    };
    let link = team.root().join(".team");
    assert!(link.is_symlink());
    let state = team
        .root()
        .parent()
        .unwrap()
        .canonicalize()
        .unwrap()
        .join("home/.local/state/teamd");
    assert!(link.canonicalize().unwrap().starts_with(state));
    // It is the team of this workspace all the same.
    let root = team.root().canonicalize().unwrap();
    assert_eq!(team.member("alice")["workspace"].as_str(), root.to_str());
    assert_eq!(team.roster()["team_name"], "work");
    assert_eq!(
        team.does("alice", "/bash pwd")[0]["content"].as_str(),
        root.to_str()
    );
    team.kill_daemon();
    team.teamd(["start"]).ok();
    // A tool can replace the link: a command that comes that way is told.
    std::fs::remove_file(&link).unwrap();
    std::fs::create_dir(&link).unwrap();
    let error = team.teamctl(["status"]).run_failed().stderr;
    assert!(
        error.contains("does not lead to the team directory of this workspace"),
        "{error}"
    );
    assert!(error.contains("hint: "), "{error}");
    std::fs::remove_dir(&link).unwrap();
    // The daemon of this workspace is found again.
    assert!(
        team.teamd(["start"])
            .ok()
            .stdout
            .contains("already running")
    );
    team.teamctl(["shutdown", "alice"]).ok();
}

#[test]
fn without_namespaces_no_command_runs_above_the_team_directory() {
    let Some(team) = With::Bare.team(&[]) else {
        return;
    };
    let home = team.root().parent().unwrap().join("home");
    team.teamctl(["spawn", "bob", "--workspace", home.to_str().unwrap()])
        .ok();
    let results = team.does("bob", "/bash echo x");
    assert_eq!(results[0]["is_error"], true);
    assert!(
        results[0]["content"]
            .as_str()
            .unwrap()
            .starts_with("not run: it cannot be confined"),
        "{results:?}"
    );
}

/// Finding "weaker than doctor says": the team directory was made in the workspace where any
/// promise was broken.
#[test]
fn a_weak_sandbox_parts_the_team_directory_where_it_can() {
    let team = Team::new().with("TEAM_SANDBOX_LAYERS", "landlock");
    team.teamd(["start", "--allow-weak-sandbox"]).ok();
    assert!(team.root().join(".team").is_symlink());
    team.spawn("alice", "");
    let journal =
        "echo x >> .team/journal.jsonl && echo BROKEN; cat .team/config.json && echo BROKEN; true";
    let said = &team.does("alice", &format!("/bash {journal}"))[0]["content"];
    assert!(!said.as_str().unwrap().contains("BROKEN"), "{said}");
}

#[test]
fn the_doctor_holds_nothing_for_kept_that_takes_a_layer_which_is_missing() {
    for (layers, broken) in [
        // A namespace of its own leaves sockets with a path, and those of virtual machines.
        (
            "namespaces,landlock",
            vec!["commands", "agents", "set_id", "network"],
        ),
        // Mounts do not keep a named pipe from being written.
        ("namespaces,seccomp", vec!["pipes"]),
        ("landlock,seccomp", vec!["settings", "metadata"]),
        ("namespaces,landlock,seccomp", vec![]),
    ] {
        let team = Team::new().with("TEAM_SANDBOX_LAYERS", layers);
        let report: Value = team.teamctl(["--json", "doctor"]).json();
        let promises = report["promises"].as_array().unwrap();
        let told: Vec<&str> = promises
            .iter()
            .filter(|promise| promise["held"] == false)
            .map(|promise| promise["promise"].as_str().unwrap())
            .collect();
        assert_eq!(told, broken, "{layers} {report}");
    }
}

#[test]
fn the_doctor_says_what_is_held_and_by_what() {
    let team = Team::new();
    let probed = team.teamctl(["--json", "doctor"]);
    let report: Value = probed.json();
    let promises = report["promises"].as_array().unwrap();
    assert_eq!(promises.len(), 13);
    let held = promises.iter().all(|promise| promise["held"] == true);
    assert_eq!(probed.code, Some(i32::from(!held)));
    let bare = Team::new().with("TEAM_SANDBOX_LAYERS", "landlock,seccomp");
    let run = bare.teamctl(["doctor"]).exits(1);
    assert!(run.stdout.contains("needs namespaces"), "{run:?}");
    assert!(
        run.stderr.contains("taken away by TEAM_SANDBOX_LAYERS"),
        "{run:?}"
    );
}
