//! The sandbox of `bash`, attacked from inside by a real teammate, with each set of layers that this machine has.
//!
//! An attack is a command that says BROKEN when it has succeeded. What it aims at is looked at from outside, too.
#![expect(clippy::print_stdout, reason = "a test that this machine cannot run says so")]

mod closed;
mod commands;
mod loader;
mod named;
mod ordinary;
mod outside;
mod places;
mod processes;
mod secrets;
mod shared;
mod start;
mod team_directory;
mod teams;

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Team;

/// What the attacks in Python try with: what the system refuses is told, and nothing else.
const TRIED: &str = r#"
def tried(name, attempt):
    try:
        attempt()
    except OSError as error:
        print(name, error)
    else:
        print("BROKEN", name)
"#;

/// What an attack says that has succeeded.
const BROKEN: &str = "BROKEN";

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    /// All that this machine has.
    All,
    /// No namespaces but those of `bwrap`.
    Bubblewrap,
    /// No namespaces.
    Bare,
}

impl With {
    /// A team with a teammate that is confined by these layers; none, and the reason printed, where they are not to be
    /// had. Teammates are told apart by their flags.
    fn team(self, flags: &[&str]) -> Option<Team> {
        let team = Team::new().with("TEAM_MAX_TURNS", "500");
        let team = match self {
            Self::All => team,
            Self::Bubblewrap => team.with("TEAM_SANDBOX_LAYERS", "bwrap,landlock,seccomp"),
            Self::Bare => team.with("TEAM_SANDBOX_LAYERS", "landlock,seccomp"),
        };
        let probed = team.command(env!("CARGO_BIN_EXE_team-worker"), ["probe"]).output().unwrap();
        let probed: Value = serde_json::from_slice(&probed.stdout).unwrap();
        let wanted = match self {
            Self::All => "own",
            Self::Bubblewrap => "bubblewrap",
            Self::Bare => "none",
        };
        let layers = &probed["layers"];
        let is_alone = self == Self::Bare;
        if layers["namespaces"] != wanted
            || is_alone && layers["landlock"].as_u64() < Some(6)
            || layers["seccomp"] != true
        {
            assert!(
                is_alone || !has_namespaces(self),
                "{self:?} would be skipped, but is to be had: {probed}"
            );
            println!("skipped: this machine has no sandbox {self:?}: {probed}");
            return None;
        }
        team.teamd(["start"]).ok();
        team.teamctl(["spawn", "alice"].iter().chain(flags)).ok();
        Some(team)
    }

    /// Whether mounts say what may be written.
    fn has_mounts(self) -> bool {
        self != Self::Bare
    }
}

/// Whether the machine lets its user, or `bwrap`, make namespaces, as other programs than ours find out.
fn has_namespaces(with: With) -> bool {
    let (program, arguments): (_, &[&str]) = match with {
        With::Bubblewrap => ("bwrap", &["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]),
        With::All | With::Bare => {
            ("unshare", &["-U", "-m", "-p", "-n", "-f", "--map-root-user", "--mount-proc", "true"])
        }
    };
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// A suite that skips itself must not pass for one that has tried.
#[test]
fn no_set_of_layers_is_skipped_that_this_machine_has() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        drop(with.team(&[]));
    }
}

/// Lets a teammate try every attack, each in a call of its own; none may succeed. Returns what each said.
#[track_caller]
fn attack(team: &Team, attacks: &[&str]) -> Vec<String> {
    let calls: Vec<_> =
        attacks.iter().map(|command| format!("/bash {}", json!({ "command": command }))).collect();
    let results = team.does("alice", &calls.join("\n"));
    assert_eq!(results.len(), attacks.len(), "{results:?}");
    let said = |result: &Value| result["content"].as_str().unwrap().to_owned();
    let said: Vec<String> = results.iter().map(said).collect();
    for (command, said) in attacks.iter().zip(&said) {
        assert!(!said.contains(BROKEN), "{command}\n{said}");
        assert!(!said.contains("cannot confine"), "{command}\n{said}");
    }
    said
}

/// Lets a teammate do what must work; returns what each command said.
#[track_caller]
fn works(team: &Team, commands: &[&str]) -> Vec<String> {
    let calls: Vec<_> =
        commands.iter().map(|command| format!("/bash {}", json!({ "command": command }))).collect();
    let results = team.does("alice", &calls.join("\n"));
    assert_eq!(results.len(), commands.len(), "{results:?}");
    for (command, result) in commands.iter().zip(&results) {
        assert_eq!(result["is_error"], false, "{command}\n{}", result["content"]);
    }
    results.iter().map(|result| result["content"].as_str().unwrap().to_owned()).collect()
}

/// Whether a program is there and runs in the environment of a test; says so if it is not.
fn has(team: &Team, program: &str) -> bool {
    let mut command: Command = team.command(program, ["--version"]);
    let found = command.output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no {program} here");
    }
    found
}

/// A Python program in the workspace, as a command that runs it; none, and the reason printed, without Python.
fn python(team: &Team, name: &str, program: &str) -> Option<String> {
    team.write(name, &format!("{TRIED}{program}"));
    has(team, "python3").then(|| format!("python3 {name}"))
}
