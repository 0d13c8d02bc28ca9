//! The jobservers of commands: that programs reach them in every sandbox, that slots are shared and
//! come back whatever is killed, and that no command reaches the slots themselves.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::json;

use super::ordinary::{package, toolchain};
use super::{With, attack, works};
use crate::checkouts::until;
use crate::support::{Team, signal};

/// Opens the jobserver that a command is told of, as a client in either form does: tokens are read
/// at 8 and written at 9.
pub(crate) const OPEN: &str = "auth=${CARGO_MAKEFLAGS##*--jobserver-auth=}; \
    case $auth in fifo:*) exec 8<>\"${auth#fifo:}\" 9>&8 ;; *) exec 8<&\"${auth%,*}\" 9>&\"${auth#*,}\" ;; esac";

/// Takes a token; waits for it.
pub(crate) const TAKE: &str = "read -rN1 -u8 token && echo \"took $token\"";

/// A folder for `PATH` with the programs of the tests, and a GNU make that knows paths.
fn folder_with_a_new_make(team: &Team) -> PathBuf {
    let folder = team.home().join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    for program in [
        "bash", "sh", "env", "cat", "sleep", "touch", "ls", "git", "python3", "rm",
    ] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|at| at.join(program))
            .find(|file| file.is_file());
        if let Some(found) = found {
            std::os::unix::fs::symlink(found, folder.join(program)).unwrap();
        }
    }
    team.write("make", "knows --jobserver-style");
    std::fs::rename(team.root().join("make"), folder.join("make")).unwrap();
    folder
}

/// A team of two slots.
pub(crate) fn team_of_two(form: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", "[machine]\nslots = 2\n");
    if form == "fifo:" {
        let folder = folder_with_a_new_make(&team);
        return team.with("PATH", folder.to_str().unwrap());
    }
    // A make that is not known to be new is taken for an old one.
    let old = team.home().join("old");
    std::fs::create_dir_all(&old).unwrap();
    team.write("make", "");
    std::fs::rename(team.root().join("make"), old.join("make")).unwrap();
    let path = std::env::var("PATH").unwrap();
    team.with("PATH", &format!("{path}:{}", old.display()))
}

#[test]
fn a_command_takes_and_returns_tokens_in_every_sandbox_and_form() {
    for with in [With::All, With::NoLandlock, With::Bubblewrap, With::Bare] {
        for form in ["fifo:", "--jobserver-fds="] {
            let Some(team) = with.confine(team_of_two(form), &[]) else {
                continue;
            };
            let both = format!("{OPEN}; {TAKE}; printf + >&9; {TAKE}; echo $TEAM_SLOTS");
            let said = works(&team, &[&both, "echo \"$CARGO_MAKEFLAGS\"", &both]);
            for said in [&said[0], &said[2]] {
                assert_eq!(said, "took +\ntook +\n2", "{with:?} {form}");
            }
            assert!(said[1].contains(form), "{with:?} {form}: {said:?}");
        }
    }
}

#[test]
fn the_plan_of_a_closed_gate_may_build_too() {
    let Some(team) = With::All.confine(team_of_two("fifo:"), &["--plan"]) else {
        return;
    };
    let said = works(&team, &[&format!("{OPEN}; {TAKE}")]);
    assert_eq!(said, ["took +"]);
}

/// What holds the slots is killed: they come back to a command that waits.
#[test]
fn what_a_killed_worker_held_goes_to_others() {
    for killed in ["worker", "command"] {
        let Some(team) =
            With::All.confine(team_of_two("--jobserver-fds="), &["--restart", "never"])
        else {
            return;
        };
        let holds = format!("/bash {OPEN}; {TAKE}; echo $$ > holds; sleep 1000");
        team.teamctl(["send", "alice", &holds]).ok();
        team.until("a token is taken", || team.made("holds"));
        team.spawn("bob", "");
        let waits = format!("/bash {OPEN}; touch waits; {TAKE} > got");
        team.teamctl(["send", "bob", &waits]).ok();
        team.until("the other command", || team.made("waits"));
        if killed == "worker" {
            signal(team.pid("alice"), Signal::SIGKILL);
        } else {
            team.teamctl(["interrupt", "alice"]).ok();
        }
        team.until("its token", || {
            std::fs::read_to_string(team.root().join("got")).is_ok_and(|got| got == "took +\n")
        });
    }
}

#[test]
fn the_slots_themselves_are_out_of_reach() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let team = Team::new();
        let session = team.home().join("session");
        std::fs::create_dir_all(&session).unwrap();
        let team = team.with("XDG_RUNTIME_DIR", session.to_str().unwrap());
        let Some(team) = with.confine(team, &[]) else {
            continue;
        };
        let at = session.join("teamd/slots");
        let at = at.display();
        attack(
            &team,
            &[
                &format!("true < {at} && echo BROKEN"),
                &format!("true <> {at} && echo BROKEN"),
                &format!("rm {at} && echo BROKEN"),
                &format!("mv {at} . && echo BROKEN"),
            ],
        );
        assert!(session.join("teamd/slots").exists(), "{with:?}");
    }
}

#[test]
fn cargo_takes_tokens_without_a_word() {
    let Some(team) = With::All.confine(team_of_two("--jobserver-fds="), &[]) else {
        return;
    };
    let Some(environment) = toolchain(&team) else {
        return;
    };
    package(&team);
    let said = works(
        &team,
        &[&format!("{environment} cargo build --offline 2>&1")],
    );
    let is_silent = !said[0].contains("jobserver") && !said[0].contains("warning");
    assert!(said[0].contains("Finished") && is_silent, "{said:?}");
}

#[test]
fn a_check_has_a_jobserver_too() {
    let Some(team) = With::All.confine(team_of_two("fifo:"), &["--auto"]) else {
        return;
    };
    let check = format!("{OPEN}; {TAKE} && test \"$TEAM_SLOTS\" = 2");
    team.teamctl(["task", "add", "x", "--check", &check]).ok();
    until(&team, 1, "completed");
}

#[test]
fn a_user_switches_slots_off_and_on_for_all_their_teams() {
    let team = team_of_two("--jobserver-fds=");
    let folder = team.home().join(".config/teamd");
    std::fs::create_dir_all(&folder).unwrap();
    team.write("config", "[machine]\nslots = 'off'\n");
    std::fs::rename(team.root().join("config"), folder.join("config.toml")).unwrap();
    let Some(team) = With::All.confine(team, &[]) else {
        return;
    };
    let said = works(&team, &["echo \"[$CARGO_MAKEFLAGS]$TEAM_SLOTS\""]);
    assert_eq!(said, ["[]"]);
    let doctor = team.teamctl(["doctor", "-v"]);
    assert!(
        doctor.stdout.contains("off: a setting says so"),
        "{doctor:?}"
    );
}

/// `make = true`: a plain `make` takes tokens, too, where none on `PATH` would fail at a path.
#[test]
fn make_is_told_where_a_person_wants_it_and_no_old_one_is_there() {
    for (form, expected, said_by_doctor) in [
        ("fifo:", "k -s TOLD", "make and ninja too"),
        (
            "--jobserver-fds=",
            "k -s",
            "`make = true` does nothing here:",
        ),
    ] {
        let team = team_of_two(form).with("MAKEFLAGS", "k -s");
        team.write("team.toml", "[machine]\nslots = 2\nmake = true\n");
        let Some(team) = With::All.confine(team, &["--auto"]) else {
            return;
        };
        let told = "echo \"${MAKEFLAGS/$CARGO_MAKEFLAGS/TOLD}\"";
        assert_eq!(works(&team, &[told]), [expected], "{form}");
        let check = format!("test \"$({told})\" = '{expected}'");
        team.teamctl(["task", "add", "x", "--check", &check]).ok();
        until(&team, 1, "completed");
        let doctor = team.teamctl(["doctor", "-v"]);
        assert!(doctor.stdout.contains(said_by_doctor), "{doctor:?}");
    }
}

#[test]
fn a_wrong_number_of_slots_is_refused_where_it_stands() {
    let team = Team::new();
    team.write("team.toml", "[machine]\nslots = 0\n");
    let refused = team.teamd(["start"]).exits(2);
    assert!(
        refused.stderr.contains("team.toml:2")
            && refused
                .stderr
                .contains("\"off\" or a number from 1 to 1024"),
        "{refused:?}"
    );
    let lookup = json!({"slots": "many"}).to_string();
    team.write("team.toml", "");
    let refused = team.with("TEAM_MACHINE", &lookup).teamd(["start"]).exits(2);
    assert!(refused.stderr.contains("TEAM_MACHINE"), "{refused:?}");
}
