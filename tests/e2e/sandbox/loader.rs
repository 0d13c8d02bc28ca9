//! What stands between a teammate and its commands runs outside of the sandbox: no variable of a
//! client, and nothing that lies in the workspace, has a say in how it is loaded.

use std::collections::BTreeSet;

use super::With;
use crate::support::Team;

/// The programs that the loader has started with the variables of the client, as it says itself.
fn loaded(team: &Team) -> BTreeSet<String> {
    let entries = team.root().read_dir().unwrap().map(|entry| entry.unwrap());
    let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("loaded."));
    let mut programs = BTreeSet::new();
    for log in logs {
        let text = String::from_utf8_lossy(&std::fs::read(log.path()).unwrap()).into_owned();
        let named = text
            .lines()
            .filter_map(|line| line.split_once("initialize program: "));
        programs.extend(named.map(|(_, program)| program.rsplit('/').next().unwrap().to_owned()));
    }
    programs
}

fn nothing_outside_is_loaded(team: &Team, mode: &[&str]) {
    let root = team.root().to_str().unwrap();
    let spawn = ["spawn", "bob"].iter().chain(mode);
    let mut spawn = team.command(env!("CARGO_BIN_EXE_teamctl"), spawn);
    // An empty element is the current directory. What is loaded, the loader says in a file for each
    // process.
    spawn
        .env("LD_LIBRARY_PATH", "/nowhere:")
        .env("LD_DEBUG", "libs");
    spawn
        .env("LD_DEBUG_OUTPUT", format!("{root}/loaded"))
        .env("COLORTERM", "turquoise");
    assert!(spawn.output().unwrap().status.success());
    if loaded(team).is_empty() {
        println!("skipped: the loader here says nothing");
        return;
    }
    let results = team.does(
        "bob",
        "/bash pwd; echo $COLORTERM $LD_LIBRARY_PATH; ls /usr > /dev/null",
    );
    let said = format!(
        "{}\nturquoise /nowhere:",
        team.root().canonicalize().unwrap().display()
    );
    assert_eq!(results[0]["content"].as_str(), Some(said.as_str()));
    // Only the client, which the user has started so, and what runs in the sandbox.
    let expected = ["bash", "ls", "teamctl"].map(str::to_owned);
    assert_eq!(loaded(team), expected.into());
}

#[test]
fn no_variable_of_a_client_loads_code_outside_of_a_sandbox() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        nothing_outside_is_loaded(&team, &[]);
    }
}

#[test]
fn no_variable_of_a_client_loads_code_into_a_shim_without_a_sandbox() {
    nothing_outside_is_loaded(&Team::started(), &["--sandbox", "off"]);
}
