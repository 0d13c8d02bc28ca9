//! The programs of the team lie where commands may write (a build folder, `~/.cargo/bin`): no
//! command replaces one, and whatever stands at their paths, only what the daemon has opened is
//! run.

use nix::sys::signal::Signal;

use super::{BROKEN, Case, With, attack, cases, works};
use crate::support::{Team, signal};

const FOLDER: &str = "target/release";

/// A team that works in the tree where its programs were built.
fn team(case: Case) -> Option<Team> {
    case.with
        .confine(Team::of(case.user).with_programs_in(FOLDER), &[])
}

#[test]
fn a_command_replaces_no_program_of_the_team() {
    for case in cases(&[With::All, With::NoLandlock, With::Bubblewrap]) {
        let Some(team) = team(case) else { continue };
        let attacks = [
            "cd target/release && mv team-worker .tw && echo BROKEN",
            "cd target/release && echo '#!/bin/sh' > .new && mv .new team-worker && echo BROKEN",
            "cd target/release && ln -f /bin/true teamctl && echo BROKEN",
            "cp /bin/true target/release/teamd && echo BROKEN",
            "echo x >> target/release/team-worker && echo BROKEN",
            "rm -rf target; [ -e target/release/teamd ] || echo BROKEN",
            "mv target gone && echo BROKEN",
            "mv target/release gone && echo BROKEN",
            "chmod 777 target/release/teamd && echo BROKEN",
        ];
        attack(&team, &attacks);
        let written = team.does("alice", "/write_file target/release/team-worker x");
        assert_eq!(written[0]["is_error"], true, "{case:?} {written:?}");
        // The rest of the folder is the teammate's.
        works(
            &team,
            &["echo x > target/release/other && rm target/release/other"],
        );
        team.kill_and_wait_for_restart("alice");
        works(&team, &["true"]);
    }
}

#[test]
fn without_namespaces_no_command_runs_that_could_replace_our_programs() {
    for case in cases(&[With::Bare]) {
        let Some(team) = team(case) else { continue };
        let results = team.does(
            "alice",
            "/bash true\n/write_file target/release/team-worker x",
        );
        let said = results[0]["content"].as_str().unwrap();
        assert!(
            said.starts_with("not run: ") && said.contains("is a program of the team"),
            "{case:?} {said}"
        );
        assert_eq!(results[1]["is_error"], true, "{case:?} {results:?}");
        // What changes nothing is run.
        team.teamctl(["spawn", "bob", "--sandbox", "read-only"])
            .ok();
        assert_eq!(
            team.does("bob", "/bash echo on")[0]["content"],
            "on",
            "{case:?}"
        );
    }
}

/// As a program does that is confined by nothing.
#[test]
fn a_worker_runs_what_the_daemon_has_opened_whatever_stands_at_the_path() {
    for replace in [
        "mv -f evil target/release/team-worker",
        "cat evil > target/release/team-worker",
    ] {
        for case in cases(&[With::All]) {
            let Some(team) = team(case) else { continue };
            team.write(
                "evil",
                &format!(
                    "#!/bin/sh\ntouch {}/{BROKEN}\nexit 1\n",
                    team.root().display()
                ),
            );
            let replaced = team
                .command("sh", ["-c", &format!("chmod +x evil && {replace}")])
                .status()
                .unwrap();
            assert!(replaced.success(), "{case:?} {replace}");
            team.kill_and_wait_for_restart("alice");
            assert_eq!(works(&team, &["echo on"]), ["on"]);
            team.teamctl(["spawn", "bob"]).ok();
            signal(team.pid("bob"), Signal::SIGTERM);
            team.wait_for("bob", "killed");
            assert!(!team.made(BROKEN), "{case:?} {replace}");
        }
    }
}

/// As `cargo build` leaves them: linked from `target/release/deps`.
#[test]
fn that_a_program_can_be_changed_by_another_name_is_told() {
    let Some(team) = cases(&[With::All]).find_map(team) else {
        return;
    };
    let told = |run: &str| run.contains("has another name");
    assert!(!told(&team.teamctl(["doctor"]).stdout));
    let linked = team
        .command("ln", ["target/release/teamctl", "target/other-name"])
        .status()
        .unwrap();
    assert!(linked.success());
    let spawned = team.teamctl(["spawn", "bob"]).ok();
    assert!(
        told(&spawned.stderr)
            && spawned
                .stderr
                .contains("hint: install the programs elsewhere"),
        "{spawned:?}"
    );
    let report = team.teamctl(["--json", "doctor"]).json();
    let findings = report["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|it| it["check"] == "programs" && told(it["what"].as_str().unwrap())),
        "{report}"
    );
    // Where it writes elsewhere, nothing is to be said.
    let elsewhere = team.make_dir("../elsewhere");
    let spawned = team
        .teamctl(["spawn", "carol", "--workspace", elsewhere.to_str().unwrap()])
        .ok();
    assert!(!told(&spawned.stderr), "{spawned:?}");
}

/// What the user has installed for agents: each teammate reads it, and none writes it, whatever it
/// may write around it.
#[test]
fn no_command_writes_what_is_installed_for_agents() {
    for with in With::EACH {
        let Some(team) = with.team(&[]) else { continue };
        let home = team.home();
        let tools = "../home/.local/share/teamd/tools";
        team.make_dir(&format!("{tools}/agent-1.0.0"));
        team.write(&format!("{tools}/agent-1.0.0/agent"), "genuine");
        let attacks = "/bash cd ~/.local/share; ( echo x >> teamd/tools/agent-1.0.0/agent ) 2> /dev/null && echo BROKEN; \
            mkdir teamd/tools/new 2> /dev/null && echo BROKEN; mv teamd/tools/agent-1.0.0 teamd/tools/other 2> /dev/null && echo BROKEN; \
            mv teamd/tools teamd/old 2> /dev/null && echo BROKEN; mv teamd old 2> /dev/null && echo BROKEN; \
            rm -rf teamd 2> /dev/null; cat teamd/tools/agent-1.0.0/agent";
        let share = home.join(".local/share");
        let share = share.to_str().unwrap();
        let installed = format!("{share}/teamd/tools/agent-1.0.0");
        for (name, writable) in [
            ("bob", None),
            ("carol", Some(share)),
            ("dan", Some(&*installed)),
        ] {
            let flags = writable.map(|path| ["--writable", path]);
            team.teamctl(["spawn", name].iter().chain(flags.iter().flatten()))
                .ok();
            let results = team.does(name, attacks);
            let said = results[0]["content"].as_str().unwrap();
            let is_refused = said.starts_with("not run: ") && name == "carol";
            assert!(
                said == "genuine" || with == With::Bare && is_refused,
                "{with:?} {name} {said}"
            );
        }
        let kept = std::fs::read_to_string(format!("{installed}/agent")).unwrap();
        assert_eq!(kept, "genuine", "{with:?}");
    }
}

/// Nothing is installed yet, and a command makes no folder in which something seems to be.
#[test]
fn no_command_makes_the_folder_of_what_is_installed() {
    for with in With::EACH {
        let Some(team) = with.team(&[]) else { continue };
        let share = team.make_dir("../home/.local/share");
        team.teamctl(["spawn", "bob", "--writable", share.to_str().unwrap()])
            .ok();
        let results = team.does(
            "bob",
            "/bash cd ~/.local/share; mkdir -p teamd/tools/x 2> /dev/null && echo BROKEN; true",
        );
        let said = results[0]["content"].as_str().unwrap();
        assert!(!said.contains(BROKEN), "{with:?} {said}");
    }
}
