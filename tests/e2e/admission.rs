//! Commands and checks that wait for memory: who waits, who is first, and what ends a wait. The
//! memory is pretended, so that the tests fill it with little. What the kernel kills for memory is
//! killed by it here, too.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::checkouts::until;
use crate::support::{Team, signal};

/// The table of a team in whose memory one command fits that takes some, and no second one.
const SMALL: &str = "slots = 'off'\nmemory = '100M'\nreserve = 50\n";

fn team_with(machine: &str) -> Team {
    confine(Team::new(), machine)
}

/// A team whose queue no other test shares.
fn confine(team: Team, machine: &str) -> Team {
    let session = team.home().join("session");
    std::fs::create_dir_all(&session).unwrap();
    let team = team.with("XDG_RUNTIME_DIR", session.to_str().unwrap());
    team.write("team.toml", &format!("[machine]\n{machine}"));
    team.teamd(["start"]).ok();
    team
}

/// A command that takes memory until it is released.
fn takes(name: &str) -> String {
    format!(
        "/bash python3 -c \"import os, time; taken = b'x' * (60 << 20); open('{name}.takes', 'w').close(); \
         exec('while not os.path.exists(\\'{name}.ends\\'): time.sleep(0.02)')\" && touch {name}.ended"
    )
}

/// A teammate whose command takes memory.
fn fills(team: &Team, name: &str) {
    team.spawn(name, "");
    team.send(name, &takes(name));
    team.until("it takes memory", || team.made(&format!("{name}.takes")));
}

/// Ends the command of such a teammate.
fn release(team: &Team, name: &str) {
    team.write(&format!("{name}.ends"), "");
    team.until("it to end", || team.made(&format!("{name}.ended")));
}

/// A teammate whose command waits with so many before it.
fn waits(team: &Team, name: &str, before: &str) {
    team.spawn(name, "");
    let order = json!({ "command": format!("touch {name}.begun"), "timeout": 0.9 });
    team.send(name, &format!("/bash {order}"));
    until_waiting(team, name, before);
}

fn until_waiting(team: &Team, name: &str, before: &str) {
    let activity = format!("waits for memory{before}");
    team.until(&format!("{name} {activity}"), || {
        team.member(name)["activity"] == activity.as_str()
    });
}

fn has_begun(team: &Team, name: &str) -> bool {
    team.made(&format!("{name}.begun"))
}

/// What the model reads of the first command of a teammate.
fn result(team: &Team, name: &str) -> Value {
    team.until(&format!("the result of {name}"), || {
        !team.results(name).is_empty()
    });
    team.results(name).remove(0)
}

#[test]
fn a_command_waits_in_order_is_seen_and_begins_when_there_is_room() {
    let team = team_with(SMALL);
    fills(&team, "alice");
    waits(&team, "bob", "");
    waits(&team, "carol", ", 1 before it");
    let status = team.teamctl(["status"]);
    assert!(
        status.stdout.contains("waits for memory, 1 before it"),
        "{status:?}"
    );
    assert!(!has_begun(&team, "bob") && !has_begun(&team, "carol"));
    // Longer than the command itself may take.
    let begun = std::time::Instant::now();
    team.until("a while", || begun.elapsed().as_millis() > 1000);
    release(&team, "alice");
    for name in ["bob", "carol"] {
        let result = result(&team, name);
        let content = result["content"].as_str().unwrap();
        let waited = content.starts_with("[waited ") && content.contains(" s for memory before");
        assert!(waited && result["is_error"] == false, "{result}");
        assert!(has_begun(&team, name));
        assert_eq!(team.entries(name, "held").len(), 1);
        let admitted = team.entries(name, "admitted").remove(0);
        assert!(admitted["waited"].as_f64() > Some(0.9), "{admitted}");
        let log = team.teamctl(["transcript", name]);
        assert!(log.stdout.contains("waits for memory"), "{log:?}");
    }
}

#[test]
fn a_command_waits_no_longer_than_its_patience() {
    let team = team_with(&format!("{SMALL}patience = 1\n"));
    fills(&team, "alice");
    waits(&team, "bob", "");
    team.until("it begins", || has_begun(&team, "bob"));
    assert!(!team.made("alice.ended"));
}

#[test]
fn nothing_waits_where_no_other_command_runs() {
    let team = team_with(SMALL);
    // What runs in the background neither waits nor counts.
    team.spawn("alice", "");
    let takes = takes("alice");
    let order = json!({ "command": takes.trim_start_matches("/bash "), "run_in_background": true });
    team.does("alice", &format!("/bash {order}"));
    team.until("it takes memory", || team.made("alice.takes"));
    let results = team.does("alice", "/bash true");
    assert_eq!(results[0]["content"], "(no output)");
    fills(&team, "bob");
    waits(&team, "carol", "");
    let order = json!({ "command": "touch erin.begun", "run_in_background": true });
    team.spawn("erin", "");
    team.does("erin", &format!("/bash {order}"));
    team.until("it begins", || has_begun(&team, "erin"));
    assert!(!has_begun(&team, "carol"));
}

#[test]
fn nothing_waits_where_that_is_off() {
    let team = team_with(&format!("{SMALL}admit = 'off'\n"));
    fills(&team, "alice");
    team.spawn("bob", "");
    let results = team.does("bob", "/bash true");
    assert_eq!(results[0]["content"], "(no output)");
    let doctor = team.teamctl(["doctor", "-v"]);
    assert!(
        doctor.stdout.contains("commands do not wait for it"),
        "{doctor:?}"
    );
}

#[test]
fn interrupt_shutdown_and_sigterm_end_a_wait_at_once() {
    let team = team_with(SMALL);
    fills(&team, "alice");
    let ends: [(&str, &[&str], &str); 4] = [
        ("bob", &["interrupt", "bob"], "not run: interrupted"),
        (
            "carol",
            &["shutdown", "carol"],
            "not run: you are asked to leave",
        ),
        ("dave", &[], "not run: interrupted: SIGTERM"),
        (
            "erin",
            &["request-plan", "erin"],
            "not run: your gate is closed",
        ),
    ];
    for (name, command, told) in ends {
        waits(&team, name, "");
        let running = (!command.is_empty()).then(|| team.start_teamctl(command));
        if running.is_none() {
            signal(team.pid(name), Signal::SIGTERM);
        }
        let result = result(&team, name);
        assert!(
            result["content"].as_str().unwrap().starts_with(told),
            "{name}: {result}"
        );
        assert!(!has_begun(&team, name), "{name}");
    }
    team.until("its gate", || team.member("erin")["gate"] == "closed");
    assert!(!team.made("alice.ended"));
}

#[test]
fn a_worker_that_is_killed_while_it_waits_leaves_the_queue_and_its_call_has_not_run() {
    let team = team_with(SMALL);
    fills(&team, "alice");
    waits(&team, "bob", "");
    waits(&team, "carol", ", 1 before it");
    team.kill_and_wait_for_restart("bob");
    let result = result(&team, "bob");
    assert_eq!(
        result["content"],
        "not run: the worker was restarted before it"
    );
    until_waiting(&team, "carol", "");
    assert!(!has_begun(&team, "bob"));
}

#[test]
fn what_waits_begins_when_the_worker_is_killed_that_takes_the_memory() {
    let team = team_with(SMALL);
    fills(&team, "alice");
    waits(&team, "bob", "");
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until("it begins", || has_begun(&team, "bob"));
    assert!(!team.made("alice.ended"));
    let result = &team.results("alice")[0]["content"];
    assert!(
        result.as_str().unwrap().contains("may have run"),
        "{result}"
    );
}

#[test]
fn the_teams_of_a_user_share_one_queue() {
    let team = team_with(SMALL);
    let other = Team::of_the_same_user(&team);
    let session = team.home().join("session");
    let other = other.with("XDG_RUNTIME_DIR", session.to_str().unwrap());
    other.write("team.toml", &format!("[machine]\n{SMALL}"));
    other.teamd(["start"]).ok();
    fills(&team, "alice");
    waits(&other, "bob", "");
    waits(&team, "carol", ", 1 before it");
    release(&team, "alice");
    other.until("it begins", || has_begun(&other, "bob"));
    team.until("it begins", || has_begun(&team, "carol"));
}

#[test]
fn a_check_goes_before_the_commands_that_wait() {
    let team = team_with(SMALL);
    fills(&team, "alice");
    waits(&team, "bob", "");
    team.teamctl(["spawn", "carol", "--auto"]).ok();
    team.teamctl(["task", "add", "x", "--check", "touch checked"])
        .ok();
    until_waiting(&team, "bob", ", 1 before it");
    let log = || std::fs::read_to_string(team.path("log/task-1.log")).unwrap_or_default();
    team.until("the log of the check", || {
        log().contains("[waits for memory]")
    });
    assert!(!team.made("checked"));
    release(&team, "alice");
    until(&team, 1, "completed");
    team.until("it begins", || has_begun(&team, "bob"));
    let said = log();
    assert!(
        said.contains("[waited ") && said.contains("touch checked"),
        "{said}"
    );
}

/// A cgroup with little memory. Dropped, it is gone.
struct LittleMemory(PathBuf);

impl LittleMemory {
    /// Makes one for a team; none where the kernel or the user's rights give none.
    fn of(team: &Team) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let mut places = own.lines().filter_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let at = match controllers {
                "" => Path::new("/sys/fs/cgroup").to_owned(),
                "memory" => Path::new("/sys/fs/cgroup/memory").to_owned(),
                _ => return None,
            };
            let name = format!("teamd-test-{}", team.daemon_pid());
            Some(at.join(path.trim_start_matches('/')).join(name))
        });
        places.find_map(|folder| {
            std::fs::create_dir(&folder).ok()?;
            let made = Self(folder);
            let limits = ["memory.max", "memory.limit_in_bytes"];
            let set = limits.map(|file| made.write(file, &(300 << 20).to_string()));
            // What may be swapped out is not killed for.
            for file in ["memory.swap.max", "memory.swappiness"] {
                made.write(file, "0");
            }
            let entered =
                set.contains(&true) && made.write("cgroup.procs", &team.daemon_pid().to_string());
            entered.then_some(made)
        })
    }

    /// Writes to one of its files; tells whether the kernel took it.
    fn write(&self, file: &str, order: &str) -> bool {
        let file = std::fs::File::options().write(true).open(self.0.join(file));
        file.is_ok_and(|mut file| std::io::Write::write_all(&mut file, order.as_bytes()).is_ok())
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

/// The kernel kills a command: its teammate is told, and it is seen. It kills a check: that runs once
/// more before it counts.
#[test]
fn what_the_kernel_kills_for_memory_says_so_and_a_check_runs_once_more() {
    let team = Team::new();
    team.teamd(["start"]).ok();
    let Some(memory) = LittleMemory::of(&team) else {
        return;
    };
    let takes = "python3 -c \"taken = b'x' * (900 << 20)\"";
    team.spawn("alice", "");
    let killed = team.does("alice", &format!("/bash {takes}")).remove(0);
    let told = killed["content"].as_str().unwrap();
    assert!(
        told.contains("signal 9") && told.contains("killed for memory: the kernel"),
        "{told}"
    );
    assert_ne!(killed["killed_for_memory"], Value::Null, "{killed}");
    let log = team.teamctl(["transcript", "alice"]).ok().stdout;
    assert!(log.contains("killed for memory"), "{log}");
    team.teamctl(["spawn", "bob", "--auto"]).ok();
    let add = |subject: &str, check: &str| {
        let all = [
            "task",
            "add",
            subject,
            "--max-attempts",
            "1",
            "--check",
            check,
        ];
        team.teamctl(all).ok();
    };
    add(
        "once",
        &format!("mkdir once 2>/dev/null || exit 0; {takes}"),
    );
    until(&team, 1, "completed");
    assert_eq!(team.json(["task", "show", "1"])["attempts"], 0);
    // The second time it counts.
    add("always", &format!("echo run >> always; {takes}"));
    until(&team, 2, "failed");
    let runs = std::fs::read_to_string(team.root().join("always")).unwrap();
    assert_eq!(runs, "run\nrun\n");
    let failed = team.json(["task", "show", "2"]);
    assert_eq!(failed["attempts"], 1, "{failed}");
    let events = team.teamctl(["events"]).ok().stdout;
    let stalls = events.lines();
    let stalls =
        stalls.filter(|line| line.contains("while the kernel killed a process for memory"));
    assert_eq!(stalls.count(), 2, "{events}");
    team.teamctl(["down"]).ok();
    team.until_no_process_is_left();
    drop(memory);
}
