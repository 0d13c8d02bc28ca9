//! Secrets are hidden by every path: where links of the user lead, where variables say, and nothing runs where a secret
//! could not be parted from what is written.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use super::{With, attack, works};
use crate::support::Team;

/// A home directory whose `~/.ssh` and `~/.config` are links to what is kept with the other settings of the user.
fn furnish(team: &Team) -> PathBuf {
    let home = team.root().parent().unwrap().join("home");
    for folder in ["dotfiles/config/gh", "dotfiles/keys", "cargo"] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
    }
    for secret in ["dotfiles/config/gh/hosts.yml", "dotfiles/keys/id", "cargo/credentials.toml"] {
        team.write(&format!("../home/{secret}"), "hush");
    }
    symlink("dotfiles/keys", home.join(".ssh")).unwrap();
    symlink(home.join("dotfiles/config"), home.join(".config")).unwrap();
    home
}

#[test]
fn a_secret_behind_a_link_is_hidden_also_from_who_works_where_it_lies() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&["--sandbox", "read-only"]) else { continue };
        let home = furnish(&team);
        let dotfiles = home.join("dotfiles");
        team.teamctl(["spawn", "bob", "--workspace", dotfiles.to_str().unwrap()]).ok();
        let tried = [
            "grep -rq hush ~/.ssh/ ~/.config/ config keys && echo BROKEN",
            "mv config c; mv keys k; grep -rq hush c k && echo BROKEN",
            "mv keys/id . && echo BROKEN; ln keys/id . && echo BROKEN",
        ];
        let calls: Vec<_> =
            tried.iter().map(|command| format!("/bash {}", json!({ "command": command }))).collect();
        let results = team.does("bob", &calls.join("\n"));
        assert!(results.len() == 3 && !format!("{results:?}").contains("BROKEN"), "{with:?} {results:?}");
        assert!(dotfiles.join("config/gh/hosts.yml").exists() && dotfiles.join("keys/id").exists());
        // Settings that are no secret are read by the same link.
        team.write("../home/dotfiles/config/editor", "tabs");
        assert_eq!(team.does("bob", "/bash cat ~/.config/editor")[0]["content"], "tabs", "{with:?}");
    }
}

#[test]
fn a_variable_says_where_a_secret_is() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let home = furnish(&team);
        let spawn = ["spawn", "bob", "--sandbox", "read-only"];
        let spawned =
            team.command(env!("CARGO_BIN_EXE_teamctl"), spawn).env("CARGO_HOME", home.join("cargo")).status();
        assert!(spawned.unwrap().success());
        let said = team
            .does("bob", "/bash ls $CARGO_HOME; grep -q hush $CARGO_HOME/credentials.toml && echo BROKEN");
        assert!(!said[0]["content"].as_str().unwrap().contains("BROKEN"), "{with:?} {said:?}");
    }
}

#[test]
fn a_link_that_a_command_makes_takes_nothing_from_the_others() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&["--workspace", "../home"]) else { continue };
        works(&team, &["ln -s /usr ~/.vault-token; ln -s . ~/.pgpass; ln -s / ~/.my.cnf"]);
        assert_eq!(works(&team, &["echo on"]), ["on"], "{with:?}");
        team.teamctl(["spawn", "bob", "--workspace", "../home"]).ok();
        // Nor from who works elsewhere.
        team.teamctl(["spawn", "carol"]).ok();
        for name in ["bob", "carol"] {
            assert_eq!(team.does(name, "/bash echo on")[0]["content"], "on", "{name} {with:?}");
        }
    }
}

#[test]
fn without_namespaces_nothing_runs_where_a_secret_could_be_written() {
    let Some(team) = With::Bare.team(&[]) else { return };
    let home = furnish(&team);
    std::fs::create_dir(home.join(".cargo")).unwrap();
    team.write("../home/.cargo/credentials.toml", "hush");
    let cargo = home.join(".cargo");
    team.teamctl(["spawn", "bob", "--writable", cargo.to_str().unwrap()]).ok();
    let refused = &team.does("bob", "/bash cat ~/.cargo/credentials.toml")[0]["content"];
    let refused = refused.as_str().unwrap();
    assert!(
        refused.starts_with("not run:")
            && refused.contains(".cargo/credentials.toml is hidden from commands"),
        "{refused}"
    );
    // Who writes neither, reads neither.
    team.teamctl(["spawn", "carol"]).ok();
    let said = team.does("carol", "/bash cat ~/.cargo/credentials.toml ~/.ssh/id && echo BROKEN");
    assert_eq!(said[0]["is_error"], true, "{said:?}");
    attack(&team, &["cat ~/.cargo/credentials.toml && echo BROKEN"]);
}
