//! A path that a teammate is given, to work in or to write, leads where it led when it was named:
//! no other teammate leads a later incarnation elsewhere, neither at a restart nor at a spawn.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{BROKEN, With, works};
use crate::support::{Team, signal};

fn home(team: &Team) -> PathBuf {
    team.root().parent().unwrap().join("home")
}

/// A directory beside the team's, where no teammate works yet.
fn apart(team: &Team) -> String {
    let path = team.root().parent().unwrap().join("apart");
    std::fs::create_dir_all(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_link_in_place_of_a_writable_path_leads_no_later_incarnation_there() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let cache = team.root().join("cache");
        std::fs::create_dir(&cache).unwrap();
        let cache = cache.to_str().unwrap();
        team.teamctl([
            "spawn",
            "bob",
            "--workspace",
            &apart(&team),
            "--writable",
            cache,
        ])
        .ok();
        assert_eq!(
            team.does(
                "bob",
                &format!("/bash echo x > {cache}/new && cat {cache}/new")
            )[0]["content"],
            "x"
        );
        works(&team, &["rm -rf cache && ln -s ~ cache"]);
        let plant = format!(
            "/bash echo x > ~/planted && echo BROKEN; echo x > {cache}/planted && echo BROKEN; true"
        );
        // No person is asked before an incarnation begins after a crash.
        team.kill_and_wait_for_restart("bob");
        for again in [false, true] {
            if again {
                team.teamctl(["shutdown", "bob"]).ok();
                let said = team.teamctl(["spawn", "bob", "--resume"]).ok().stderr;
                assert!(
                    said.contains(&format!(
                        "may not write {cache} in this incarnation: there is a symbolic link"
                    )),
                    "{said}"
                );
            }
            let said = team.does("bob", &format!("{plant}\n{plant}"));
            let said: Vec<_> = said
                .iter()
                .map(|said| said["content"].as_str().unwrap())
                .collect();
            assert!(
                !said.iter().any(|said| said.contains(BROKEN)),
                "{with:?} {said:?}"
            );
            // It is told, and once.
            let told = format!(
                "[allowed by name, but not writable in this incarnation: {cache} (there is a symbolic link on"
            );
            assert!(
                said[0].starts_with(&told) && !said[1].contains("allowed by name"),
                "{with:?} {said:?}"
            );
            assert!(!home(&team).join("planted").exists(), "{with:?}");
        }
        assert!(
            team.file("log/bob.log").contains("commands will not write"),
            "{with:?}"
        );
    }
}

#[test]
fn a_link_of_a_teammate_does_not_decide_where_another_works_or_writes() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    works(&team, &["mkdir real; ln -s ~ planted; ln -s real to-real"]);
    let before = team.file("journal.jsonl");
    let root = team.root().canonicalize().unwrap();
    let apart = apart(&team);
    let lies = format!(
        "planted is a symbolic link in {}, where the tools of alice may write",
        root.display()
    );
    let refused = |flags: &[&str]| {
        let said = team
            .teamctl(["spawn", "bob"].iter().chain(flags))
            .exits(2)
            .stderr;
        assert!(said.contains(&lies), "{flags:?} {said}");
        assert!(
            said.contains("hint: see where it leads (`readlink -f "),
            "{flags:?} {said}"
        );
    };
    refused(&["--workspace", "planted"]);
    refused(&["--workspace", &apart, "--writable", "planted"]);
    refused(&["--workspace", &apart, "--writable", "real/../planted"]);
    team.write("team.toml", "[members.bob]\nworkspace = 'planted'\n");
    team.trust();
    refused(&[]);
    team.write("team.toml", "sandbox.writable = ['planted/.cache']\n");
    team.trust();
    refused(&["--workspace", &apart]);
    assert_eq!(team.file("journal.jsonl"), before);
    // What it has made stays when no record names it any more.
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    refused(&["--workspace", &apart]);
    team.kill_daemon();
    team.teamd(["start"]).ok();
    refused(&["--workspace", &apart]);
    team.write("team.toml", "");
    team.teamctl(["spawn", "bob", "--workspace", "real"]).ok();
    assert_eq!(
        team.does("bob", "/bash pwd")[0]["content"],
        root.join("real").to_str().unwrap()
    );
}

#[test]
fn a_link_in_the_place_of_a_workspace_lets_no_later_incarnation_begin() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        std::fs::create_dir(team.root().join("sub")).unwrap();
        team.teamctl([
            "spawn",
            "bob",
            "--workspace",
            "sub",
            "--prompt",
            "/bash echo x > new",
        ])
        .ok();
        team.until_finished("bob", 1);
        works(&team, &["mv sub old && ln -s ~ sub"]);
        signal(team.pid("bob"), Signal::SIGKILL);
        team.until("bob to be given up", || {
            team.member("bob")["status"] == "crashed"
        });
        let bob = team.member("bob");
        let note = bob["exit"]["note"].as_str().unwrap().to_owned();
        assert!(
            note.contains("on the way to the workspace"),
            "{with:?} {note}"
        );
        let refused = team
            .teamctl(["spawn", "bob", "--resume"])
            .run_failed()
            .stderr;
        assert!(
            refused.contains("on the way to the workspace"),
            "{with:?} {refused}"
        );
        works(&team, &["rm sub && mv old sub"]);
        team.teamctl(["spawn", "bob", "--resume"]).ok();
        assert_eq!(
            team.does("bob", "/bash cat new")[0]["content"],
            "x",
            "{with:?}"
        );
        assert!(!home(&team).join("new").exists(), "{with:?}");
    }
}

#[test]
fn a_link_of_the_user_is_followed_once_and_a_missing_path_may_come_later() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let home = home(&team);
        let apart = apart(&team);
        let apart = PathBuf::from(apart).canonicalize().unwrap();
        for folder in ["cache", "work", "other"] {
            std::fs::create_dir(apart.join(folder)).unwrap();
        }
        symlink(apart.join("cache"), home.join("cache")).unwrap();
        symlink(apart.join("work"), home.join("work")).unwrap();
        team.write(
            "team.toml",
            "sandbox.writable = ['~/cache/later', '~/cache/later']\n",
        );
        team.trust();
        let cache = home.join("cache");
        let work = home.join("work");
        let named = [
            "--workspace",
            work.to_str().unwrap(),
            "--writable",
            cache.to_str().unwrap(),
        ];
        team.teamctl(["spawn", "bob"].iter().chain(&named)).ok();
        let bob = team.member("bob");
        assert_eq!(bob["workspace"], apart.join("work").to_str().unwrap());
        assert_eq!(
            bob["sandbox"]["writable"],
            json!([apart.join("cache"), apart.join("cache/later")])
        );
        let write = "/bash echo x > ~/cache/new && cat ~/cache/new; pwd";
        let expected = format!("x\n{}", apart.join("work").display());
        assert_eq!(team.does("bob", write)[0]["content"], expected, "{with:?}");
        // The user changes their mind about the link, the teammate does not.
        std::fs::remove_file(&cache).unwrap();
        symlink(apart.join("other"), &cache).unwrap();
        team.teamctl(["shutdown", "bob"]).ok();
        team.teamctl(["spawn", "bob", "--resume"]).ok();
        team.does("bob", "/bash echo x > ~/cache/new; echo y > ../cache/new");
        assert_eq!(
            std::fs::read_to_string(apart.join("cache/new")).unwrap(),
            "y\n",
            "{with:?}"
        );
        assert!(!apart.join("other/new").exists(), "{with:?}");
    }
}

#[test]
fn what_was_missing_may_be_written_once_a_later_incarnation_finds_it() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    team.write("team.toml", "sandbox.writable = ['~/later/deep']\n");
    team.trust();
    let said = team.teamctl(["spawn", "bob"]).ok();
    assert!(!said.stderr.contains("may not write"), "{said:?}");
    let later = home(&team).join("later/deep");
    std::fs::create_dir_all(&later).unwrap();
    let write = "/bash echo x > ~/later/deep/new && echo written";
    assert!(
        !team.does("bob", write)[0]["content"]
            .as_str()
            .unwrap()
            .contains("written")
    );
    team.kill_and_wait_for_restart("bob");
    assert_eq!(team.does("bob", write)[0]["content"], "written");
}
