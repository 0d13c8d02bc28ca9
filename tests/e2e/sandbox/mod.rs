//! The sandbox of `bash`, attacked from inside by a real teammate, with each set of layers that
//! this machine has.
//!
//! An attack is a command that says BROKEN when it has succeeded. What it aims at is looked at from
//! outside, too.
#![expect(
    clippy::print_stdout,
    reason = "a test that this machine cannot run says so"
)]

pub(crate) mod agents;
mod closed;
mod commands;
mod hidden;
mod linked;
mod loader;
pub(crate) mod localhost;
mod modes;
mod network;
mod ordinary;
mod outside;
mod packages;
mod places;
mod processes;
mod programs;
mod search;
mod secrets;
mod shared;
pub(crate) mod slots;
mod start;
mod team_directory;
mod teams;
mod workspace;

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::cgroup::note;
use crate::support::user::User;

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
    /// No Landlock.
    NoLandlock,
    /// No namespaces but those of `bwrap`.
    Bubblewrap,
    /// No namespaces.
    Bare,
}

impl With {
    /// Each set that a finding is tried with.
    const EACH: [Self; 4] = [Self::All, Self::NoLandlock, Self::Bubblewrap, Self::Bare];

    /// A team with a teammate that is confined by these layers; none, and the reason printed, where
    /// they are not to be had. Teammates are told apart by their flags. It is a team of the user
    /// that runs the tests.
    fn team(self, flags: &[&str]) -> Option<Team> {
        self.confine(Team::new(), flags)
    }

    fn confine(self, team: Team, flags: &[&str]) -> Option<Team> {
        let team = team.with("TEAM_MAX_TURNS", "500");
        let team = match self {
            Self::All => team,
            Self::NoLandlock => team.with("TEAM_SANDBOX_LAYERS", "namespaces,seccomp"),
            Self::Bubblewrap => team.with("TEAM_SANDBOX_LAYERS", "bwrap,landlock,seccomp"),
            Self::Bare => team.with("TEAM_SANDBOX_LAYERS", "landlock,seccomp"),
        };
        let probed = team
            .command(env!("CARGO_BIN_EXE_team-worker"), ["probe"])
            .output()
            .unwrap();
        let probed: Value = serde_json::from_slice(&probed.stdout).unwrap();
        let wanted = match self {
            Self::All | Self::NoLandlock => "own",
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
                is_alone || !has_namespaces(self, &team),
                "{self:?} would be skipped, but is to be had: {probed}"
            );
            note(&format!(
                "skipped: this machine has no sandbox {self:?}: {probed}"
            ));
            return None;
        }
        // It changes nothing where every promise is kept.
        let weak = (self == Self::NoLandlock).then_some("--allow-weak-sandbox");
        team.teamd(["start"].into_iter().chain(weak)).ok();
        team.teamctl(["spawn", "alice"].iter().chain(flags)).ok();
        Some(team)
    }

    /// Whether mounts say what may be written.
    fn has_mounts(self) -> bool {
        self != Self::Bare
    }
}

/// One case of the matrix: a set of layers, and the user whose team it is.
#[derive(Debug, Clone, Copy)]
struct Case {
    with: With,
    user: User,
}

impl Case {
    /// A team with a teammate, as [`With::team`] makes it, of this user.
    fn team(self, flags: &[&str]) -> Option<Team> {
        self.with.confine(Team::of(self.user), flags)
    }
}

/// Each of these sets of layers as an ordinary user; as root the weakest of those that make
/// namespaces of our own, and the one without namespaces. What holds with fewer layers holds with
/// more, so a stronger set shows nothing else of root.
fn cases(sets: &[With]) -> impl Iterator<Item = Case> {
    cases_of_root(sets).filter(|case| case.user == User::Ordinary || case.with != With::Bubblewrap)
}

/// As [`cases`], and bubblewrap as root: for what only root has to hide. Other code than ours makes
/// those mounts.
fn cases_of_root(sets: &[With]) -> impl Iterator<Item = Case> {
    let users = User::at_hand();
    let has_weaker = sets.contains(&With::NoLandlock);
    sets.iter().flat_map(move |&with| {
        let is_shown_by_another = with == With::All && has_weaker;
        let users = users.clone().into_iter();
        users
            .filter(move |user| *user == User::Ordinary || !is_shown_by_another)
            .map(move |user| Case { with, user })
    })
}

/// The case that most people have, and the one that has the least in common with it: for programs
/// that shall work in a sandbox as they do outside.
fn typical_teams() -> impl Iterator<Item = (Case, Team)> {
    let users = User::at_hand();
    let last = users[users.len() - 1];
    let typical = [(With::All, User::Ordinary), (With::Bare, last)];
    typical
        .into_iter()
        .map(|(with, user)| Case { with, user })
        .filter_map(|case| Some((case, case.team(&[])?)))
}

/// A team for each case of the matrix that this machine has, one after the other. It says which it
/// skips. A regression test of a finding is tried with each:
/// `for (case, team) in teams(&With::EACH, &["--no-network"])`.
fn teams(sets: &[With], flags: &[&str]) -> impl Iterator<Item = (Case, Team)> {
    cases(sets).filter_map(|case| Some((case, case.team(flags)?)))
}

/// Whether the machine lets the user of a team, or `bwrap`, make namespaces, as other programs than
/// ours find out.
fn has_namespaces(with: With, team: &Team) -> bool {
    let (program, arguments): (_, &[&str]) = match with {
        With::Bubblewrap => (
            "bwrap",
            &[
                "--unshare-all",
                "--ro-bind",
                "/",
                "/",
                "--proc",
                "/proc",
                "true",
            ],
        ),
        With::All | With::NoLandlock | With::Bare => (
            "unshare",
            &[
                "-U",
                "-m",
                "-p",
                "-n",
                "-f",
                "--map-root-user",
                "--mount-proc",
                "true",
            ],
        ),
    };
    team.command(program, arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A suite that skips itself must not pass for one that has tried.
#[test]
fn no_set_of_layers_is_skipped_that_this_machine_has() {
    for case in cases_of_root(&With::EACH) {
        let Some(team) = case.team(&[]) else { continue };
        let uid = case.user.uid().to_string();
        assert_eq!(works(&team, &["id -u"]), [uid.as_str()], "{case:?}");
        if case.user == User::Ordinary {
            let groups = team.run_program("id", ["-G"]).ok().stdout;
            assert!(
                !groups.split_whitespace().any(|group| group == "0"),
                "{case:?} {groups}"
            );
        }
    }
}

/// Lets a teammate try every attack, each in a call of its own; none may succeed. Returns what each
/// said.
#[track_caller]
fn attack(team: &Team, attacks: &[&str]) -> Vec<String> {
    attack_as(team, "alice", attacks)
}

/// As [`attack`], by a teammate of this name.
#[track_caller]
fn attack_as(team: &Team, name: &str, attacks: &[&str]) -> Vec<String> {
    let calls: Vec<_> = attacks
        .iter()
        .map(|command| format!("/bash {}", json!({ "command": command })))
        .collect();
    let results = team.does(name, &calls.join("\n"));
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
    let calls: Vec<_> = commands
        .iter()
        .map(|command| format!("/bash {}", json!({ "command": command })))
        .collect();
    let results = team.does("alice", &calls.join("\n"));
    assert_eq!(results.len(), commands.len(), "{results:?}");
    for (command, result) in commands.iter().zip(&results) {
        assert_eq!(
            result["is_error"], false,
            "{command}\n{}",
            result["content"]
        );
    }
    results
        .iter()
        .map(|result| result["content"].as_str().unwrap().to_owned())
        .collect()
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

/// A Python program in the workspace, as a command that runs it; none, and the reason printed,
/// without Python.
fn python(team: &Team, name: &str, program: &str) -> Option<String> {
    team.write(name, &format!("{TRIED}{program}"));
    has(team, "python3").then(|| format!("python3 {name}"))
}
