//! What may be written is what it was when an incarnation began, and no lock of a command holds up
//! another process.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use super::{With, attack, has, python, works};

#[test]
fn a_workspace_that_is_replaced_leads_to_nothing_else() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let nested = team.root().join("nested");
        std::fs::create_dir(&nested).unwrap();
        let home = team.root().parent().unwrap().join("home");
        team.teamctl([
            "spawn",
            "bob",
            "--restart",
            "never",
            "--workspace",
            nested.to_str().unwrap(),
        ])
        .ok();
        assert_eq!(
            team.does("bob", "/bash echo x > new && cat new")[0]["content"],
            "x",
            "{with:?}"
        );
        // What a teammate whose workspace lies above can do between two calls.
        works(&team, &["mv nested gone && mkdir nested"]);
        let refused =
            team.does("bob", "/bash echo x > new && echo BROKEN")[0]["content"].to_string();
        assert!(
            refused.contains("another directory has taken its place"),
            "{with:?} {refused}"
        );
        std::fs::remove_dir(&nested).unwrap();
        symlink(&home, &nested).unwrap();
        let refused =
            team.does("bob", "/bash echo x > planted && echo BROKEN")[0]["content"].to_string();
        assert!(
            refused.contains("a link has taken its place"),
            "{with:?} {refused}"
        );
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
fn a_lease_makes_no_process_wait() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let Some(leases) = python(&team, "leases.py", LEASES) else {
            return;
        };
        attack(&team, &[&format!("{leases} leases.py")]);
    }
}

#[test]
fn what_one_command_makes_is_not_the_users_for_another() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        let common = team.root().join(".git/commondir");
        std::fs::create_dir_all(team.root().join(".git/hooks")).unwrap();
        let make = "echo ../evil > .git/commondir; chmod 555 .git; until [ -e first ]; do sleep 0.01; done";
        team.does(
            "alice",
            &format!(
                "/bash {}",
                json!({"command": make, "run_in_background": true})
            ),
        );
        team.until("it to be made", || common.exists());
        // This one begins when it is there, and goes on when the first has ended.
        let again = "touch second; until [ -e last ]; do echo ../evil > .git/commondir; sleep 0.01; done 2> /dev/null";
        team.does(
            "alice",
            &format!(
                "/bash {}",
                json!({"command": again, "run_in_background": true})
            ),
        );
        team.until("the second to run", || team.root().join("second").exists());
        team.write("first", "");
        team.write("last", "");
        team.until("it to be put aside", || !common.exists());
        assert!(
            common
                .with_file_name("commondir.put-aside-by-teamd")
                .exists(),
            "{with:?}"
        );
        // The user's own stays, and is not written.
        std::fs::set_permissions(team.root().join(".git"), PermissionsExt::from_mode(0o755))
            .unwrap();
        team.write(".git/commondir", "mine\n");
        attack(
            &team,
            &[
                "echo ../evil > .git/commondir && echo BROKEN",
                "rm .git/commondir && echo BROKEN",
            ],
        );
        assert_eq!(
            std::fs::read_to_string(&common).unwrap(),
            "mine\n",
            "{with:?}"
        );
    }
}

#[test]
fn what_is_put_aside_is_told() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    std::fs::create_dir_all(team.root().join(".git/hooks")).unwrap();
    // The folder of the notes may be deleted at any time.
    std::fs::remove_dir_all(team.path("run")).unwrap();
    let said = works(&team, &["echo ../evil > .git/commondir; echo done"]);
    assert!(
        said[0].starts_with("done\n[commondir was made while this command ran"),
        "{said:?}"
    );
    assert!(
        team.file("log/alice.log")
            .contains("it is commondir.put-aside-by-teamd now")
    );
}

/// A repository whose branches differ in `team.toml`: what a tool call could not check out while a
/// mount guarded that file.
#[test]
fn settings_that_a_repository_tracks_are_switched_reset_and_cleaned() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        if !has(&team, "git") {
            return;
        }
        let git = "git -c user.name=u -c user.email=u@example.org -c init.defaultBranch=main";
        let said = works(
            &team,
            &[
                &format!(
                    "{git} init -q . && echo 'grace = 1' > team.toml && git add team.toml && {git} commit -qm one"
                ),
                &format!(
                    "git switch -qc other && echo 'grace = 2' > team.toml && {git} commit -qam two && git switch -q main && cat team.toml"
                ),
                "echo broken > team.toml && git reset -q --hard && cat team.toml",
                &format!(
                    "git rm -q team.toml && {git} commit -qm gone && git switch -q other && git switch -q main; ls team.toml 2>&1; true"
                ),
                "touch team.toml left && git clean -qfd -e .team && ls",
            ],
        );
        assert_eq!(said[1..3], ["grace = 1", "grace = 1"], "{with:?} {said:?}");
        assert!(said[3].contains("No such file"), "{with:?} {said:?}");
        assert!(
            !said[4].contains("team.toml") && !said[4].contains("left"),
            "{with:?} {said:?}"
        );
    }
}

#[test]
fn no_directory_takes_the_place_of_settings_while_a_command_runs() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let runs = json!({"command": "ls > seen; sleep 600", "run_in_background": true});
        team.does("alice", &format!("/bash {runs}"));
        team.until("the command to have looked", || {
            team.made("seen") && !team.text("seen").is_empty()
        });
        assert!(!team.text("seen").contains("team.toml"), "{with:?}");
        assert!(!team.made("team.toml"), "{with:?}");
        // The user writes it, and reads it, meanwhile.
        team.write("team.toml", "grace = 1\n");
        team.teamctl(["lint", "team.toml"]).ok();
    }
}
