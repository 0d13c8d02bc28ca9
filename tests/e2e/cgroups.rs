//! A cgroup for each incarnation: what it is for holds with and without, and nothing that is
//! another's is touched.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::cgroup::{members, note};
use crate::support::process::{children, command_line};
use crate::support::{Run, Team, is_alive, signal};

/// A command that leaves a process which neither its parent nor its session leads to.
const DAEMONISES: &str =
    "/bash setsid --fork sleep 600; (setsid sleep 600 &) ; touch begun; sleep 600";

/// A started team in which each incarnation gets a cgroup; none where the machine has none to give,
/// which is told.
fn team() -> Option<Team> {
    let team = Team::new();
    if !team.has_cgroups() {
        return None;
    }
    team.teamd(["start"]).ok();
    Some(team)
}

/// A started team with cgroups, where there are some, and one without.
fn both() -> impl Iterator<Item = Team> {
    ["auto", "off"].into_iter().map(|wanted| {
        let team = Team::new().with("TEAM_CGROUP", wanted);
        team.teamd(["start"]).ok();
        team
    })
}

/// Spawns a teammate that is not started again and runs a command without a sandbox, until that has
/// begun.
fn spawn_daemonising(team: &Team, name: &str) {
    team.teamctl([
        "spawn",
        name,
        "--restart",
        "never",
        "--sandbox",
        "off",
        "--prompt",
        DAEMONISES,
    ])
    .ok();
    team.until("the command to have begun", || {
        team.made("begun") && sleeping(team).len() == 3
    });
}

fn sleeping(team: &Team) -> Vec<i32> {
    team.processes()
        .into_iter()
        .filter(|&pid| command_line(pid).starts_with("sleep 600"))
        .collect()
}

fn exit(team: &Team, name: &str) -> Value {
    team.member(name)["exit"].clone()
}

fn shim_of(worker: i32) -> i32 {
    children(worker)
        .into_iter()
        .find(|&pid| command_line(pid).contains(" shim "))
        .unwrap()
}

/// Kills a worker and its shim so that neither sees the other's end. The shim first: with its
/// worker's end its group is orphaned, and the kernel lets what is stopped in such a group go on
/// (`setpgid(2)`).
fn kill_together(worker: i32) {
    let both = [shim_of(worker), worker];
    for which in [Signal::SIGSTOP, Signal::SIGKILL] {
        for &pid in both.iter() {
            signal(pid, which);
        }
    }
}

#[test]
fn each_incarnation_has_a_cgroup_for_all_its_processes_until_its_end() {
    let Some(team) = team() else { return };
    spawn_daemonising(&team, "alice");
    team.spawn("bob", "");
    let alice = team.cgroup_of("alice");
    let bob = team.cgroup_of("bob");
    assert_eq!(alice, team.cgroup().unwrap().join("alice.1"));
    team.until("bob to be in its cgroup", || {
        members(&bob) == [team.pid("bob")]
    });
    let inside = members(&alice);
    for pid in [team.pid("alice"), shim_of(team.pid("alice"))]
        .into_iter()
        .chain(sleeping(&team))
    {
        assert!(inside.contains(&pid), "{pid}: {inside:?}");
    }
    assert!(!inside.contains(&team.daemon_pid()));
    let text = team.teamctl(["status", "bob"]).ok().stdout;
    assert!(text.contains(bob.to_str().unwrap()), "{text}");
    team.kill_and_wait_for_restart("bob");
    assert_eq!(
        (bob.exists(), team.cgroup_of("bob")),
        (false, bob.with_file_name("bob.2"))
    );
    team.teamctl(["shutdown", "--all", "--force", "--timeout", "0"])
        .ok();
    assert_eq!(
        (
            exit(&team, "alice")["emptied"].clone(),
            team.member("alice")["cgroup"].clone()
        ),
        (json!("cgroup"), Value::Null)
    );
    assert!(!alice.exists());
    team.teamd(["stop"]).ok();
    assert!(!team.cgroup().unwrap().exists());
}

/// Whatever a command had started ends with its worker, with and without a cgroup.
fn all_is_ended(kill: impl Fn(i32)) {
    for team in both() {
        spawn_daemonising(&team, "alice");
        kill(team.pid("alice"));
        team.wait_for("alice", "crashed");
        assert_eq!(team.processes(), [team.daemon_pid()]);
        let exit = exit(&team, "alice");
        assert_eq!(exit["emptied"], team.emptied(json!("tree")), "{exit}");
    }
}

#[test]
fn the_whole_tree_of_a_killed_worker_is_ended_with_and_without_a_cgroup() {
    all_is_ended(|worker| signal(worker, Signal::SIGKILL));
}

#[test]
fn orphans_of_a_killed_worker_and_shim_end_with_and_without_a_cgroup() {
    all_is_ended(kill_together);
}

#[test]
fn what_a_check_leaves_ends_with_it_though_its_job_and_shim_are_killed() {
    let Some(team) = team() else { return };
    team.teamctl([
        "spawn",
        "alice",
        "--restart",
        "never",
        "--sandbox",
        "off",
        "--auto",
    ])
    .ok();
    let check = "setsid --fork sleep 600; exec sleep 600";
    team.teamctl(["task", "add", "x", "--check", check]).ok();
    team.until("the check to run", || sleeping(&team).len() == 2);
    let below = team
        .cgroup()
        .unwrap()
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path());
    let folder = below
        .into_iter()
        .find(|it| {
            it.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("check-")
        })
        .unwrap();
    let inside = members(&folder);
    assert!(
        sleeping(&team).iter().all(|pid| inside.contains(pid)),
        "{inside:?}"
    );
    assert!(
        !inside.contains(&team.pid("alice")) && !team.teamctl(["doctor"]).stdout.contains("check-")
    );
    let job = inside
        .iter()
        .copied()
        .find(|&pid| command_line(pid).contains(" job "))
        .unwrap();
    let first = sleeping(&team);
    kill_together(job);
    // It did not say how the check ended: that is tried again, in a cgroup of its own.
    team.until("nothing of it to be left", || {
        !folder.exists() && sleeping(&team).iter().all(|pid| !first.contains(pid))
    });
    team.teamctl(["task", "cancel", "1"]).ok();
    team.until("the task to be let go", || sleeping(&team).is_empty());
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamd(["stop"]).ok();
    assert!(!team.cgroup().unwrap().exists());
}

#[test]
fn a_forced_shutdown_ends_the_whole_tree_with_and_without_a_cgroup() {
    for team in both() {
        spawn_daemonising(&team, "alice");
        let result = team.shutdown("alice", &["--force", "--timeout", "0"], 0);
        assert_eq!(result["outcome"], "killed", "{result}");
        assert_eq!(team.processes(), [team.daemon_pid()]);
        assert_eq!(exit(&team, "alice")["emptied"], team.emptied(json!("tree")));
    }
}

#[test]
fn an_adopted_life_keeps_its_cgroup_and_what_died_while_no_daemon_ran_is_emptied() {
    let Some(team) = team() else { return };
    spawn_daemonising(&team, "alice");
    team.teamctl(["spawn", "bob", "--restart", "never"]).ok();
    let alice = team.cgroup_of("alice");
    let bob = team.cgroup_of("bob");
    team.kill_daemon();
    kill_together(team.pid("alice"));
    // To the daemon they would have come; now only their cgroup leads to them.
    team.until_gone("alice", team.pid("alice"));
    assert_eq!(sleeping(&team).len(), 3);
    let started = team.teamd(["--json", "start"]).ok().json();
    assert_eq!(
        (&started["adopted"], &started["ended"]),
        (&json!(["bob"]), &json!(["alice"])),
        "{started}"
    );
    team.wait_for("alice", "crashed");
    assert_eq!((sleeping(&team), alice.exists()), (Vec::new(), false));
    assert_eq!(exit(&team, "alice")["emptied"], "cgroup");
    assert_eq!(team.cgroup_of("bob"), bob);
    team.teamctl(["shutdown", "bob"]).ok();
    assert_eq!(
        (exit(&team, "bob")["emptied"].clone(), bob.exists()),
        (json!("cgroup"), false)
    );
}

#[test]
fn a_daemon_that_took_the_place_of_another_empties_its_cgroups() {
    let Some(team) = team() else { return };
    spawn_daemonising(&team, "alice");
    let alice = team.cgroup_of("alice");
    team.teamd(["start", "--replace", "--cgroup", "off"]).ok();
    team.spawn("bob", "");
    assert_eq!(
        team.member("bob")["cgroup"],
        Value::Null,
        "it is off for who begins now"
    );
    kill_together(team.pid("alice"));
    team.wait_for("alice", "crashed");
    let ended = exit(&team, "alice");
    assert_eq!(
        (&ended["emptied"], sleeping(&team), alice.exists()),
        (&json!("cgroup"), Vec::new(), false)
    );
    team.teamctl(["shutdown", "bob"]).ok();
    assert_eq!(exit(&team, "bob")["emptied"], "tree");
}

/// Runs `teamd start` in a cgroup of its own, which is marked as a service manager does. None if
/// that may not be made.
fn start_elsewhere(team: &Team) -> Option<(Run, PathBuf)> {
    let folder = team
        .cgroup()?
        .with_file_name(format!("elsewhere-{}", std::process::id()));
    std::fs::create_dir(&folder).ok()?;
    let marked = rustix::fs::setxattr(
        &folder,
        "trusted.delegate",
        b"1",
        rustix::fs::XattrFlags::empty(),
    );
    if let Err(errno) = marked {
        note(&format!("a cgroup cannot be marked: {errno}"));
        std::fs::remove_dir(&folder).unwrap();
        return None;
    }
    let script = format!(
        "echo $$ > {}/cgroup.procs; exec \"$0\" start",
        folder.display()
    );
    Some((
        team.run_program("bash", ["-c", &script, env!("CARGO_BIN_EXE_teamd")]),
        folder,
    ))
}

#[test]
fn a_daemon_in_another_cgroup_finds_the_workers_of_the_one_before() {
    let Some(team) = team() else { return };
    spawn_daemonising(&team, "alice");
    let before = team.cgroup_of("alice");
    team.kill_daemon();
    let Some((run, elsewhere)) = start_elsewhere(&team) else {
        return;
    };
    run.ok();
    team.spawn("bob", "");
    assert!(
        team.cgroup_of("bob").starts_with(&elsewhere),
        "{}",
        team.member("bob")
    );
    kill_together(team.pid("alice"));
    team.wait_for("alice", "crashed");
    assert_eq!(exit(&team, "alice")["emptied"], "cgroup");
    assert_eq!(
        (sleeping(&team), before.parent().unwrap().exists()),
        (Vec::new(), false)
    );
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
    // Whatever of the team was there is gone: else it could not be removed.
    team.until("the other cgroup to be empty", || {
        std::fs::remove_dir(&elsewhere).is_ok()
    });
}

/// Runs `teamd start` where cgroups can be read only. None if they cannot be mounted so.
fn start_reading_only(team: &Team) -> Option<Run> {
    let folder = team.cgroup()?;
    let mount = format!(
        "mount -o remount,bind,ro $(stat -c %m {})",
        folder.parent()?.display()
    );
    let tried = team.run_program("unshare", ["-m", "bash", "-c", &mount]);
    if tried.code != Some(0) {
        note(&format!(
            "cgroups cannot be mounted for reading only: {}",
            tried.stderr
        ));
        return None;
    }
    let script = format!("{mount}; exec \"$0\" start");
    Some(team.run_program(
        "unshare",
        ["-m", "bash", "-c", &script, env!("CARGO_BIN_EXE_teamd")],
    ))
}

#[test]
fn where_cgroups_are_read_only_the_kernel_still_says_that_none_is_left() {
    let Some(team) = team() else { return };
    spawn_daemonising(&team, "alice");
    team.kill_daemon();
    kill_together(team.pid("alice"));
    let Some(run) = start_reading_only(&team) else {
        return;
    };
    run.ok();
    team.spawn("bob", "");
    assert_eq!(team.member("bob")["cgroup"], Value::Null);
    // The daemon can end nothing by this cgroup, but it can see that processes are left.
    assert_eq!(
        (team.member("alice")["exit"].clone(), sleeping(&team).len()),
        (Value::Null, 3)
    );
    for pid in sleeping(&team) {
        signal(pid, Signal::SIGKILL);
    }
    team.wait_for("alice", "crashed");
    assert_eq!(exit(&team, "alice")["emptied"], "cgroup");
}

#[test]
fn the_daemon_of_a_copied_team_directory_touches_no_cgroup_of_the_original() {
    let Some(team) = team() else { return };
    spawn_daemonising(&team, "alice");
    let worker = team.pid("alice");
    let alice = team.cgroup_of("alice");
    let copy = team.root().parent().unwrap().join("copy");
    std::fs::create_dir(&copy).unwrap();
    // It renames what it writes, and `cp` fails at what is gone.
    signal(team.daemon_pid(), Signal::SIGSTOP);
    team.run_program(
        "cp",
        [
            "-a",
            team.path("").to_str().unwrap(),
            copy.join(".team").to_str().unwrap(),
        ],
    )
    .ok();
    signal(team.daemon_pid(), Signal::SIGCONT);
    let there = |args: &[&str]| {
        let dir = copy.join(".team");
        let args = [&["--team-dir", dir.to_str().unwrap()], args].concat();
        team.teamd(args)
    };
    let adopted = copy.join(".team");
    team.teamd(["start", "--adopt", adopted.to_str().unwrap()])
        .ok();
    let roster = || -> Value {
        serde_json::from_slice(&std::fs::read(copy.join(".team/config.json")).unwrap()).unwrap()
    };
    team.until("it to be over in the copy", || {
        roster()["members"][0]["status"] == "crashed"
    });
    assert_eq!(
        roster()["members"][0]["exit"]["emptied"],
        Value::Null,
        "in the copy"
    );
    there(&["stop"]).ok();
    assert!(is_alive(worker) && members(&alice).contains(&worker));
    assert_eq!(sleeping(&team).len(), 3);
}

#[test]
fn where_cgroups_are_off_none_is_made_and_a_flag_goes_before_the_variable() {
    let team = Team::new().with("TEAM_CGROUP", "off");
    let has_them = Team::new().with("TEAM_CGROUP", "auto").has_cgroups();
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    assert_eq!(team.member("alice")["cgroup"], Value::Null);
    let told = team.teamctl(["doctor"]).stdout;
    assert!(told.contains("off: a setting says so"), "{told}");
    team.teamd(["stop"]).ok();
    team.teamd(["start", "--cgroup", "auto"]).ok();
    team.spawn("bob", "");
    assert_eq!(team.member("bob")["cgroup"].is_object(), has_them);
    team.teamd(["start", "--cgroup", "never"]).exits(2);
    let wrong = Team::new()
        .with("TEAM_CGROUP", "maybe")
        .teamd(["start"])
        .run_failed();
    assert!(
        wrong
            .stderr
            .contains("TEAM_CGROUP=\"maybe\" is not auto or off"),
        "{wrong:?}"
    );
}

#[test]
fn empty_cgroups_of_a_daemon_that_was_killed_are_removed_by_the_next_one() {
    let Some(team) = team() else { return };
    team.spawn("alice", "");
    team.kill_daemon();
    let left = team.cgroup().unwrap().join("bob.7");
    std::fs::create_dir(&left).unwrap();
    team.teamd(["start"]).ok();
    assert_eq!(
        (left.exists(), team.cgroup_of("alice").exists()),
        (false, true)
    );
}

#[test]
fn the_cgroup_of_a_team_goes_with_its_daemon_and_the_empty_ones_in_it() {
    let Some(team) = team() else { return };
    let folder = team.cgroup().unwrap();
    team.teamd(["stop"]).ok();
    std::fs::create_dir_all(folder.join("alice.1")).unwrap();
    std::fs::create_dir(folder.join("daemon")).unwrap();
    team.teamd(["start"]).ok();
    team.teamd(["stop"]).ok();
    assert!(!folder.exists());
}

#[test]
fn commands_of_a_teammate_with_a_limit_of_memory_go_before_its_worker() {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "alice",
        "--memory",
        "1G",
        "--prompt",
        "/bash cat /proc/self/oom_score_adj > score",
    ])
    .ok();
    team.until("the command to end", || team.text("score").ends_with('\n'));
    assert_eq!(team.text("score"), "500\n");
    let own = std::fs::read_to_string(
        Path::new("/proc")
            .join(team.pid("alice").to_string())
            .join("oom_score_adj"),
    );
    assert_eq!(
        own.unwrap(),
        std::fs::read_to_string("/proc/self/oom_score_adj").unwrap()
    );
}
