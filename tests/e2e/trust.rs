//! Keys of `team.toml` that widen what a team may do count only when the user has trusted them.

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::terminal::Terminal;

const OFF: &str = "[members.alice]\nsandbox.mode = 'off'\n";

fn settled(text: &str) -> Team {
    let team = Team::started();
    team.write("team.toml", text);
    team
}

#[test]
fn starting_needs_trust_and_reading_says_what_is_ignored() {
    let team = settled(OFF);
    for refused in [team.teamd(["start"]), team.teamctl_with(["chat"], "hello")] {
        let refused = refused.exits(3);
        assert!(
            refused
                .stderr
                .contains("members.alice.sandbox.mode = \"off\""),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("`teamd trust`"), "{refused:?}");
    }
    let refused = team.teamctl(["--json", "spawn", "alice"]).exits(3);
    let error: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(error["error"]["code"], "rejected");
    assert_eq!(
        error["error"]["candidates"],
        json!(["members.alice.sandbox.mode = \"off\""])
    );
    assert_eq!(team.member("alice"), Value::Null);
    let status = team.teamctl(["status"]).ok();
    assert_eq!(
        status.stderr.matches("without effect").count(),
        1,
        "{status:?}"
    );
    team.trust();
    team.teamctl(["spawn", "alice"]).ok();
    assert_eq!(team.member("alice")["sandbox"]["mode"], "off");
    assert!(
        !team
            .teamctl(["status"])
            .ok()
            .stderr
            .contains("without effect")
    );
    // What is trusted are the values, and no others.
    team.write("team.toml", &format!("# a comment\nmax_turns = 9\n{OFF}"));
    team.teamctl(["spawn", "bob"]).ok();
    team.write("team.toml", &format!("sandbox.writable = ['/var']\n{OFF}"));
    let refused = team.teamctl(["spawn", "carol"]).exits(3).stderr;
    assert!(
        refused.contains("\"/var\"") && !refused.contains("alice"),
        "{refused}"
    );
    team.teamd(["trust", "--revoke"]).ok();
    team.write("team.toml", OFF);
    team.teamctl(["spawn", "carol"]).exits(3);
}

#[test]
fn what_reaches_no_command_is_said_once_and_not_whenever_a_teammate_begins() {
    let team = Team::started().with("SOME_DATABASE", "x");
    let spawn = |options: &[&str]| {
        let spawned = team.teamctl([&["spawn", "alice"], options].concat()).ok();
        spawned.stderr.contains("reach no command")
    };
    assert!(spawn(&[]));
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!spawn(&["--resume"]));
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!spawn(&[]));
}

#[test]
fn what_is_trusted_is_shown_and_taken_back() {
    let team = settled("[sandbox]\nwritable = ['/var/cache', 'own']\nenv = ['GH_TOKEN']\n");
    let shown = team.teamd(["trust", "--show"]).ok().stdout;
    assert_eq!(shown.matches("not trusted").count(), 3, "{shown}");
    let recorded = team.teamd(["--json", "trust"]).ok().json();
    assert_eq!(recorded["keys"].as_array().unwrap().len(), 3);
    assert!(
        recorded["keys"]
            .as_array()
            .unwrap()
            .iter()
            .all(|key| key["trusted"] == true),
        "{recorded}"
    );
    assert!(recorded["path"].as_str().unwrap().ends_with("/team.toml"));
    team.write("team.toml", "sandbox.env = ['GH_TOKEN']\n");
    let shown = team.teamd(["trust", "--show"]).ok().stdout;
    assert_eq!(shown.matches("is not in the file").count(), 2, "{shown}");
    let revoked = team.teamd(["--json", "trust", "--revoke"]).ok().json();
    assert_eq!(revoked["keys"][0]["trusted"], false);
    team.teamctl(["spawn", "alice"]).exits(3);
    team.write("team.toml", "model = 'script'\n");
    assert!(
        team.teamd(["trust"])
            .ok()
            .stderr
            .contains("no key of team.toml needs trust")
    );
}

#[test]
fn who_reviews_protected_files_needs_trust_and_what_has_gone_of_what_narrows_is_named_at_a_start() {
    let team = settled("[work]\nprotect = ['tests/**']\nprotect_review = 'lead'\n");
    let refused = team.teamctl(["spawn", "alice"]).exits(3);
    assert!(
        refused.stderr.contains("work.protect_review = \"lead\""),
        "{refused:?}"
    );
    let narrow = "max_turns = 9\n[work]\nprotect = ['tests/**']\n";
    team.write("team.toml", narrow);
    team.trust();
    assert!(
        !team
            .teamctl(["spawn", "alice"])
            .ok()
            .stderr
            .contains("narrows")
    );
    team.write("team.toml", "max_turns = 40\n");
    let said = team.teamctl(["spawn", "bob"]).ok().stderr;
    assert!(
        said.contains("narrows the team less") && said.contains("max_turns = 9, work.protect"),
        "{said}"
    );
    let shown = team.teamd(["--json", "trust", "--show"]).ok().json();
    assert_eq!(shown["gone"].as_array().unwrap().len(), 2, "{shown}");
    std::fs::remove_file(team.root().join("team.toml")).unwrap();
    assert!(
        team.teamctl(["spawn", "carol"])
            .ok()
            .stderr
            .contains("max_turns = 9, work.protect")
    );
    // What is trusted anew is the file as it is.
    team.write("team.toml", "max_turns = 40\n");
    team.trust();
    assert!(
        !team
            .teamctl(["spawn", "dave"])
            .ok()
            .stderr
            .contains("narrows")
    );
}

#[test]
fn a_named_file_is_trusted_at_the_path_that_names_it() {
    let team = Team::started();
    team.write("other.toml", OFF);
    team.write("team.toml", OFF);
    team.trust();
    std::os::unix::fs::symlink("other.toml", team.root().join("link.toml")).unwrap();
    let team = team.with("TEAM_FILE", "link.toml");
    team.teamctl(["spawn", "alice"]).exits(3);
    let recorded = team.teamd(["--json", "trust"]).ok().json();
    assert!(
        recorded["path"].as_str().unwrap().ends_with("/link.toml"),
        "{recorded}"
    );
    team.teamctl(["spawn", "alice"]).ok();
}

/// A command puts a link to a file that is trusted elsewhere in the place of its own.
#[test]
fn trust_in_one_file_is_not_taken_over_by_a_link_to_it() {
    let trusted = settled(OFF);
    trusted.trust();
    let other = Team::of_the_same_user(&trusted);
    other.teamd(["start"]).ok();
    std::os::unix::fs::symlink(
        trusted.root().join("team.toml"),
        other.root().join("team.toml"),
    )
    .unwrap();
    let refused = other.teamctl(["spawn", "alice"]).exits(3);
    assert!(
        refused.stderr.contains("members.alice.sandbox.mode"),
        "{refused:?}"
    );
    // Nor is the link, once it is trusted, trust in another file behind it.
    other.trust();
    other.teamctl(["spawn", "alice"]).ok();
    std::fs::remove_file(other.root().join("team.toml")).unwrap();
    other.write("team.toml", OFF);
    other.teamctl(["spawn", "bob"]).exits(3);
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let team = settled(OFF);
    for (answer, code) in [("", 3), ("n", 3), ("y", 0)] {
        let mut terminal = Terminal::teamctl(&team, &["spawn", "alice"]);
        terminal.until("Trust this? [y/N]");
        assert!(
            terminal
                .shown()
                .contains("members.alice.sandbox.mode = \"off\""),
            "{}",
            terminal.shown()
        );
        terminal.line(answer);
        assert_eq!(terminal.finish(), Some(code), "{answer:?}");
    }
    assert_eq!(team.status("alice"), "idle");
    // Once.
    team.teamctl(["spawn", "bob"]).ok();
}

/// A command could have changed the file since the person read it.
#[test]
fn at_a_terminal_what_is_about_to_be_trusted_is_shown_first() {
    let team = settled(OFF);
    for (answer, code) in [("n", 3), ("y", 0)] {
        let mut terminal = Terminal::teamd(&team, &["trust"]);
        terminal.until("Trust this? [y/N]");
        assert!(
            terminal
                .shown()
                .contains("members.alice.sandbox.mode = \"off\""),
            "{}",
            terminal.shown()
        );
        terminal.line(answer);
        assert_eq!(terminal.finish(), Some(code), "{answer:?}");
        team.teamctl(["spawn", "alice"]).exits(code);
    }
}

#[test]
fn the_lead_agent_spawns_by_no_key_that_is_not_trusted() {
    let team = Team::started();
    team.start_lead();
    let spawn = "/spawn_teammate {\"name\":\"alice\",\"role\":\"coder\",\"prompt\":\"/bash true\"}";
    team.write("team.toml", OFF);
    let refused = team.lead_does(spawn);
    assert_eq!(refused[0]["is_error"], true, "{refused:?}");
    assert!(
        refused[0]["content"]
            .as_str()
            .unwrap()
            .contains("`teamd trust`"),
        "{refused:?}"
    );
    assert_eq!(team.member("alice"), Value::Null);
    team.trust();
    assert_eq!(team.lead_does(spawn)[0]["is_error"], false);
}
