//! What `sandbox.hidden` and `--hidden` name is read by no tool, whatever the layers.

use serde_json::{Value, json};

use super::{Case, With, cases, teams};
use crate::support::Team;

/// What a teammate says to each of these lines.
pub(super) fn said(team: &Team, name: &str, lines: &[String]) -> Vec<Value> {
    let results = team.does(name, &lines.join("\n"));
    assert_eq!(results.len(), lines.len(), "{results:?}");
    results
}

fn bash(command: &str) -> String {
    format!("/bash {}", json!({ "command": command }))
}

fn is_broken(results: &[Value]) -> bool {
    results
        .iter()
        .any(|result| result["content"].as_str().unwrap().contains("BROKEN"))
}

#[test]
fn what_is_hidden_by_name_is_read_by_no_command_and_no_file_tool() {
    for case @ Case { with, user } in cases(&With::EACH) {
        let team = Team::of(user);
        for file in ["private/key", "keep/key", "later/beside", "notes"] {
            let file = format!("../home/{file}");
            team.make_dir(file.rsplit_once('/').unwrap().0);
            team.write(&file, "hush");
        }
        team.write(
            "team.toml",
            "sandbox.hidden = ['~/private']\nroles.coder.sandbox.hidden = ['~/later/key']\nmembers.alice.role = 'coder'\n",
        );
        let keep = team.root().parent().unwrap().join("home/keep");
        let flags = ["--hidden", keep.to_str().unwrap(), "--sandbox", "read-only"];
        let Some(team) = with.confine(team, &flags) else {
            continue;
        };
        let home = keep.parent().unwrap().canonicalize().unwrap();
        let hidden = ["keep", "later/key", "private"].map(|path| home.join(path));
        let mut recorded: Vec<_> = team.member("alice")["sandbox"]["hidden"]
            .as_array()
            .unwrap()
            .clone();
        recorded.sort_by_key(ToString::to_string);
        assert_eq!(json!(recorded), json!(hidden), "{case:?}");
        let shown = team.teamctl(["status", "alice"]).ok().stdout;
        assert!(
            shown.contains("hidden: ") && shown.contains("/private"),
            "{case:?} {shown}"
        );
        let tries = "cat ~/private/key ~/keep/key ~/later/key 2> /dev/null | grep -q hush && echo BROKEN; ls ~/private ~/keep";
        let results = said(
            &team,
            "alice",
            &[bash(tries), bash("cat ~/notes ~/later/beside")],
        );
        // Without mounts the names are seen.
        let names = results[0]["content"].as_str().unwrap().contains("key");
        assert!(
            !is_broken(&results) && names != with.has_mounts(),
            "{case:?} {results:?}"
        );
        assert_eq!(results[1]["content"], "hushhush", "{case:?}");
        // What was missing is hidden when it is there; a restart changes nothing.
        team.write("../home/later/key", "hush");
        for _ in 0..2 {
            let results = said(&team, "alice", &[bash(tries), bash("cat ~/later/beside")]);
            assert!(
                !is_broken(&results) && results[1]["content"] == "hush",
                "{case:?} {results:?}"
            );
            team.kill_and_wait_for_restart("alice");
        }
    }
}

#[test]
fn a_linked_dot_file_is_read_where_it_lies_and_what_lies_beside_that_is_not() {
    for case @ Case { with, user } in cases(&With::EACH) {
        let team = Team::of(user);
        for folder in [
            ".dotfiles/cargo",
            "../outside",
            ".config",
            ".amp",
            "dot/git",
            "dot/own",
        ] {
            team.make_dir(&format!("../home/{folder}"));
        }
        for file in [
            ".dotfiles/key",
            ".dotfiles/cargo/config.toml",
            "../outside/key",
            ".amp/key",
            "dot/git/ignore",
            "dot/own/more",
        ] {
            team.write(&format!("../home/{file}"), "hush\n");
        }
        team.write(
            "../home/.dotfiles/gitconfig",
            "# hush\n[include]\n\tpath = ~/.config/own/more\n",
        );
        let home = team.root().parent().unwrap().join("home");
        for (to, from) in [
            (".dotfiles/gitconfig", ".gitconfig"),
            (".dotfiles/cargo", ".cargo"),
            (".dotfiles/profile", ".profile"),
            ("../outside", ".linkapp"),
            ("../dot/git", ".config/git"),
            ("../dot/own", ".config/own"),
        ] {
            let at = home.join(from);
            drop(std::fs::remove_file(&at));
            std::os::unix::fs::symlink(to, at).unwrap();
        }
        let Some(team) = with.confine(team, &[]) else {
            continue;
        };
        let tries = "cat ~/.dotfiles/key ~/.linkapp/key 2> /dev/null | grep -q hush && echo BROKEN";
        let results = said(
            &team,
            "alice",
            &[
                bash(
                    "cat ~/.gitconfig ~/.cargo/config.toml ~/.config/{git/ignore,own/more} | grep -c hush",
                ),
                bash(tries),
            ],
        );
        assert!(
            !is_broken(&results) && results[0]["content"] == "4",
            "{case:?} {results:?}"
        );
        // A link of the user leads where a command works, and that puts another behind it.
        team.teamctl(["spawn", "bob", "--workspace", "../home/.dotfiles"])
            .ok();
        let tries = "cat ~/.profile ~/.amp/key 2> /dev/null | grep -q hush && echo BROKEN";
        let results = said(
            &team,
            "bob",
            &[bash("ln -s ../.amp/key profile"), bash(tries)],
        );
        assert!(
            !is_broken(&results) && results[0]["is_error"] != true,
            "{case:?} {results:?}"
        );
    }
}

#[test]
fn what_is_hidden_in_a_workspace_is_neither_read_nor_written_nor_moved() {
    for (case, team) in teams(
        &With::EACH,
        &[
            "--hidden", "sub/.env", "--hidden", "keys", "--hidden", "later",
        ],
    ) {
        team.make_dir("sub");
        team.make_dir("keys");
        for file in ["sub/.env", "keys/id", "notes"] {
            team.write(file, "hush");
        }
        let files = [
            "/read_file {\"path\": \"sub/.env\"}",
            "/read_file {\"path\": \"keys/id\"}",
            "/write_file sub/.env x",
            "/write_file keys/new x",
            "/write_file later x",
            "/write_file later/x x",
            "/edit_file {\"path\":\"sub/.env\",\"old_text\":\"hush\",\"new_text\":\"x\"}",
        ];
        let results = said(&team, "alice", &files.map(str::to_owned));
        for result in &results {
            let content = result["content"].as_str().unwrap();
            assert!(
                result["is_error"] == true && content.contains("is hidden from tools"),
                "{case:?} {result}"
            );
        }
        let tries = "grep -rs hush sub keys && echo BROKEN; mv sub gone && echo BROKEN; mv sub/.env x && echo BROKEN; \
            rm -f sub/.env && echo BROKEN; echo x > sub/.env && cat sub/.env | grep x && echo BROKEN; mv keys gone && echo BROKEN; \
            ln keys/id link && echo BROKEN; rm -rf keys && echo BROKEN; true";
        let results = said(
            &team,
            "alice",
            &[bash(tries), bash("cat notes; echo y > new; cat new")],
        );
        assert!(!is_broken(&results), "{case:?} {results:?}");
        let seen = results[1]["content"].as_str().unwrap();
        if case.with.has_mounts() {
            assert_eq!(seen, "hushy", "{case:?}");
        } else {
            // Only mounts part what is read from what may be written around it.
            assert!(
                seen.starts_with("not run:")
                    && seen.contains("is hidden from commands, but lies in what it may write"),
                "{seen}"
            );
        }
        for file in ["sub/.env", "keys/id"] {
            assert_eq!(team.text(file), "hush", "{case:?} {file}");
        }
    }
}

#[test]
fn what_a_teammate_needs_cannot_be_hidden_from_it() {
    let team = Team::started();
    team.make_dir("sub");
    let cache = team.make_dir("../cache/deep");
    let cache = cache.to_str().unwrap();
    let root = team.root().canonicalize().unwrap();
    for flags in [
        &["--hidden", "."][..],
        &["--hidden", ".."],
        &["--hidden", "/"],
        &["--workspace", "sub", "--hidden", "."],
    ] {
        let refused = team
            .teamctl(["spawn", "bob"].iter().chain(flags))
            .exits(2)
            .stderr;
        assert!(
            refused.contains("bob cannot be kept from ") && refused.contains(": it works in"),
            "{flags:?} {refused}"
        );
        assert!(
            refused.contains("hint: hide what lies beside or below that"),
            "{refused}"
        );
    }
    let refused = team
        .teamctl(["spawn", "bob", "--writable", cache, "--hidden", "../cache"])
        .exits(2)
        .stderr;
    assert!(refused.contains(": it may write "), "{refused}");
    team.write("team.toml", "sandbox.hidden = ['.']\n");
    let refused = team.teamctl(["spawn", "bob"]).exits(2).stderr;
    assert!(
        refused.contains(&format!("cannot be kept from {}", root.display())),
        "{refused}"
    );
    assert_eq!(
        team.events("spawning"),
        0,
        "nothing is recorded of what is refused"
    );
    team.write("team.toml", "");
    let said = team
        .teamctl(["spawn", "bob", "--hidden", "later"])
        .ok()
        .stderr;
    assert!(
        said.contains("yet: it is hidden from bob when it appears"),
        "{said}"
    );
}

#[test]
fn what_is_hidden_from_the_lead_agent_is_hidden_from_its_teammates() {
    let team = Team::started();
    team.write("secret", "hush");
    let hidden = team
        .root()
        .canonicalize()
        .unwrap()
        .join("secret")
        .to_str()
        .unwrap()
        .to_owned();
    team.start_lead_with(|order| order.terms.sandbox.hidden = vec![hidden.clone()]);
    let spawn =
        json!({"name": "alice", "role": "coder", "prompt": "/read_file {\"path\": \"secret\"}"});
    team.lead_does(&format!("/spawn_teammate {spawn}"));
    team.until_finished("alice", 1);
    assert_eq!(team.member("alice")["sandbox"]["hidden"], json!([hidden]));
    assert!(
        team.results("alice")[0]["content"]
            .as_str()
            .unwrap()
            .contains("is hidden from tools")
    );
}
