//! What may be written is what it was when a life began, and no lock of a command holds anybody up.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::{With, attack, python, works};

#[test]
fn a_workspace_that_is_replaced_leads_to_nothing_else() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let nested = team.root().join("nested");
        std::fs::create_dir(&nested).unwrap();
        let home = team.root().parent().unwrap().join("home");
        team.teamctl(["spawn", "bob", "--restart", "never", "--workspace", nested.to_str().unwrap()]).ok();
        assert_eq!(team.does("bob", "/bash echo x > new && cat new")[0]["content"], "x", "{with:?}");
        // What a teammate whose workspace lies above can do between two calls.
        works(&team, &["mv nested gone && mkdir nested"]);
        let refused = team.does("bob", "/bash echo x > new && echo BROKEN")[0]["content"].to_string();
        assert!(refused.contains("another directory has taken its place"), "{with:?} {refused}");
        std::fs::remove_dir(&nested).unwrap();
        symlink(&home, &nested).unwrap();
        let refused = team.does("bob", "/bash echo x > planted && echo BROKEN")[0]["content"].to_string();
        assert!(refused.contains("a link has taken its place"), "{with:?} {refused}");
        assert!(!home.join("planted").exists(), "{with:?}");
    }
}

const LEASES: &str = r#"
import fcntl, sys
for path in sys.argv[1:]:
    for command, value in ((fcntl.F_SETLEASE, fcntl.F_RDLCK), (fcntl.F_NOTIFY, 0xff), (1040, fcntl.F_RDLCK)):
        try: fcntl.fcntl(open(path), command, value)
        except PermissionError: continue
        except OSError as error: print("BROKEN" if command != fcntl.F_NOTIFY else "", error)
        else: print("BROKEN", command)
"#;

#[test]
fn nobody_is_made_to_wait_by_a_lease() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let Some(leases) = python(&team, "leases.py", LEASES) else { return };
        attack(&team, &[&format!("{leases} leases.py")]);
    }
}

const LOCKS: &str = r#"
import fcntl, os, sys, time
held = []
for path in sys.argv[1:]:
    for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        try: held.append(os.open(path, os.O_RDONLY)); fcntl.flock(held[-1], how | fcntl.LOCK_NB)
        except OSError as error: print(path, error)
open(os.environ["TMPDIR"] + "/held", "w").close()
time.sleep(600)
"#;

#[test]
fn a_lock_on_what_holds_a_place_makes_nobody_wait() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        let Some(locks) = python(&team, "locks.py", LOCKS) else { return };
        team.teamctl(["spawn", "bob", "--sandbox", "read-only"]).ok();
        // Alice's command holds the place while bob's opens and locks it.
        let hold = json!({"command": "sleep 600", "run_in_background": true});
        team.does("alice", &format!("/bash {hold}"));
        team.until("the place to be held", || team.root().join("team.toml").is_dir());
        let lock = json!({
            "command": format!("{locks} team.toml"), "run_in_background": true
        });
        let wait = "/bash until [ -e $TMPDIR/held ]; do sleep 0.01; done";
        let results = team.does("bob", &format!("/bash {lock}\n{wait}"));
        assert_eq!(results[1]["is_error"], false, "{with:?} {results:?}");
        assert_eq!(works(&team, &["echo on"]), ["on"], "{with:?}");
        attack(&team, &["echo x > team.toml && echo BROKEN", "rmdir team.toml && echo BROKEN"]);
    }
}

/// What a reader sees of a placeholder it can lock, and keep locked when no keeper holds it any more.
#[test]
fn a_lock_that_outlives_the_command_keeps_nobody_from_the_next() {
    let Some(team) = With::All.team(&[]) else { return };
    std::fs::create_dir(team.root().join("team.toml")).unwrap();
    let locked = std::fs::File::open(team.root().join("team.toml")).unwrap();
    locked.try_lock().unwrap();
    assert_eq!(works(&team, &["echo on"]), ["on"]);
    attack(&team, &["echo x > team.toml && echo BROKEN", "rmdir team.toml && echo BROKEN"]);
}

#[test]
fn two_teams_beside_one_file_of_settings_hold_its_place_together() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        let second = |program: &str, args: &[&str]| {
            let all: Vec<_> = ["--team-dir", ".team2"].into_iter().chain(args.iter().copied()).collect();
            if program == "teamd" { team.teamd(all) } else { team.teamctl(all) }.ok();
        };
        second("teamd", &["start"]);
        second("teamctl", &["spawn", "zoe"]);
        let make = "until [ -e go ]; do echo x > team.toml && touch BROKEN; sleep 0.01; done 2> /dev/null";
        team.does("alice", &format!("/bash {}", json!({"command": make, "run_in_background": true})));
        team.until("the place to be held", || team.root().join("team.toml").is_dir());
        // The other team's keeper comes, and goes.
        second("teamctl", &["send", "zoe", "/bash echo x > came"]);
        team.until("the other to be done", || team.root().join("came").exists());
        second("teamctl", &["shutdown", "zoe"]);
        assert!(team.root().join("team.toml").is_dir(), "{with:?}");
        team.write("go", "");
        team.until("the place to be given up", || !team.root().join("team.toml").exists());
        assert!(!team.root().join("BROKEN").exists(), "{with:?}");
        second("teamd", &["stop"]);
    }
}

#[test]
fn what_one_command_makes_is_not_the_users_for_another() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        let common = team.root().join(".git/commondir");
        std::fs::create_dir_all(team.root().join(".git/hooks")).unwrap();
        let make = "echo ../evil > .git/commondir; chmod 555 .git; until [ -e first ]; do sleep 0.01; done";
        team.does("alice", &format!("/bash {}", json!({"command": make, "run_in_background": true})));
        team.until("it to be made", || common.exists());
        // This one begins when it is there, and goes on when the first has ended.
        let again = "touch second; until [ -e last ]; do echo ../evil > .git/commondir; sleep 0.01; done 2> /dev/null";
        team.does("alice", &format!("/bash {}", json!({"command": again, "run_in_background": true})));
        team.until("the second to run", || team.root().join("second").exists());
        team.write("first", "");
        team.write("last", "");
        team.until("it to be put aside", || !common.exists());
        assert!(common.with_file_name("commondir.put-aside-by-teamd").exists(), "{with:?}");
        // The user's own stays, and is not written.
        team.write(".git/commondir", "mine\n");
        attack(&team, &["echo ../evil > .git/commondir && echo BROKEN", "rm .git/commondir && echo BROKEN"]);
        assert_eq!(std::fs::read_to_string(&common).unwrap(), "mine\n", "{with:?}");
    }
}

#[test]
fn what_is_put_aside_is_told() {
    let Some(team) = With::All.team(&[]) else { return };
    std::fs::create_dir_all(team.root().join(".git/hooks")).unwrap();
    // The folder of the notes may be deleted at any time.
    std::fs::remove_dir_all(team.path("run")).unwrap();
    let said = works(&team, &["echo ../evil > .git/commondir; echo done"]);
    assert!(said[0].starts_with("done\n[commondir was made while this command ran"), "{said:?}");
    assert!(team.file("log/alice.log").contains("it is commondir.put-aside-by-teamd now"));
}

#[test]
fn settings_that_are_a_link_are_not_left_to_commands() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        team.write("../home/settings", "");
        symlink("../home/settings", team.root().join("team.toml")).unwrap();
        let refused = team.does("alice", "/bash rm team.toml && echo BROKEN")[0]["content"].to_string();
        assert!(refused.contains("put the file itself there"), "{with:?} {refused}");
        assert!(team.root().join("team.toml").is_symlink(), "{with:?}");
    }
}
