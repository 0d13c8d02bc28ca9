//! Teammates on another machine. The `ssh` here is a stub: it runs the words in another home, which
//! has a host daemon of its own. A link is cut by killing what carries it.

use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::support::process::command_line;
use crate::support::sshd::{BOX, Sshd, make_program};
use crate::support::{Run, Team, is_alive, signal};

/// Runs the words in the home of that machine, unless it is down.
const STUB: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
if [ -e "$FAR/$1.down" ]; then
    echo "ssh: connect to host $1 port 22: Connection refused" >&2
    exit 255
fi
mkdir -p "$FAR/$1/work"
cd "$FAR/$1" || exit 1
HOME=$FAR/$1
unset XDG_DATA_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR TEAM_DIR TEAM_FILE
PATH=$FAR_BIN:$PATH
if [ -e "$FAR/listens" ]; then
    tee -a "$FAR/said" | sh -c "$2"
    exit
fi
exec sh -c "$2"
"#;

/// A team with a machine that it can reach.
struct Hosts {
    team: Team,
    far: PathBuf,
}

impl Hosts {
    /// A team whose daemon runs, and which has the host `box`.
    fn begin() -> Self {
        let hosts = Self::without();
        hosts.team.teamd(["start"]).ok();
        hosts.add("box").ok();
        hosts
    }

    fn without() -> Self {
        let team = Team::new();
        let far = team.temp().join("far");
        std::fs::create_dir_all(far.join("near")).unwrap();
        make_program(&far.join("near/ssh"), STUB);
        let path = std::env::var("PATH").unwrap();
        let programs = PathBuf::from(env!("CARGO_BIN_EXE_teamd"));
        let programs = programs.parent().unwrap().display().to_string();
        let near = far.join("near").display().to_string();
        let team = team
            .with("FAR", far.to_str().unwrap())
            .with("FAR_BIN", &programs)
            .with("PATH", &format!("{near}:{path}"));
        Self { team, far }
    }

    fn add(&self, name: &str) -> Run {
        self.team.teamctl(["host", "add", name])
    }

    fn spawn(&self, name: &str, host: &str) -> Run {
        let words = ["spawn", name, "--host", host, "--workspace", "~/work"];
        self.team
            .teamctl([&words[..], &["--model", "script"]].concat())
    }

    fn send(&self, to: &str, text: &str) {
        self.team.teamctl(["send", to, text]).ok();
    }

    /// The processes whose command line contains these words.
    fn pids(&self, words: &str) -> Vec<i32> {
        let mut pids = self.team.processes();
        pids.retain(|pid| command_line(*pid).contains(words));
        pids
    }

    /// The process of a teammate on a host.
    fn host_pid(&self, name: &str) -> i32 {
        let pid = self.team.member(name)["host_pid"].as_i64().unwrap();
        i32::try_from(pid).unwrap()
    }

    /// Cuts the link to a host, and lets it be dialled in vain.
    fn cut(&self, host: &str) {
        std::fs::File::create(self.far.join(format!("{host}.down"))).unwrap();
        for pid in self.pids("teamd host ") {
            signal(pid, Signal::SIGKILL);
        }
        self.until_link(host, "unreachable");
    }

    /// Lets the host be reached again.
    fn mend(&self, host: &str) {
        std::fs::remove_file(self.far.join(format!("{host}.down"))).unwrap();
        self.until_link(host, "up");
    }

    fn until_link(&self, host: &str, state: &str) {
        self.team
            .until(&format!("the link to {host} to be {state}"), || {
                let hosts = self.team.json(["host", "list"]);
                let hosts = hosts.as_array().unwrap();
                let link = hosts.iter().find(|it| it["name"] == host);
                link.is_some_and(|it| it["link"]["state"] == state)
            });
    }

    fn until_made(&self, host: &str, file: &str) {
        let file = self.far.join(host).join("work").join(file);
        self.team.until("the file on the host", || file.exists());
    }

    /// The inbox of a member on a host.
    fn inbox_there(&self, host: &str, name: &str) -> PathBuf {
        let teams = self.far.join(host).join(".local/share/teamd/hosts");
        let team = std::fs::read_dir(teams).unwrap().next().unwrap().unwrap();
        team.path().join(format!(".team/inbox/{name}.jsonl"))
    }

    /// The texts in the lead's inbox from a teammate.
    fn told_by(&self, name: &str) -> Vec<String> {
        let inbox = self.team.inbox("lead");
        let from = inbox.iter().filter(|line| line["from"] == name);
        from.map(|line| line["content"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn a_teammate_on_a_host_works_there_and_leaves_as_one_at_home() {
    let hosts = Hosts::begin();
    let spawned = hosts.spawn("alice", "box").ok();
    assert!(spawned.stdout.contains("alice is"), "{}", spawned.stdout);
    let pid = hosts.host_pid("alice");
    assert!(is_alive(pid));
    let member = hosts.team.member("alice");
    assert_eq!(member["host"], "box");
    assert!(member["pid"].is_null(), "{member}");
    hosts.send("alice", "/bash pwd > where.txt");
    hosts.until_made("box", "where.txt");
    hosts.team.wait_for("alice", "idle");
    let told = hosts.team.inbox("lead");
    let news = told.iter().find(|line| line["from"] == "alice").unwrap();
    assert_eq!(news["via"]["host"], "box", "{news}");
    let status = hosts.team.teamctl(["status"]).ok();
    assert!(status.stdout.contains("box"), "{}", status.stdout);
    hosts.team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(hosts.team.status("alice"), "shutdown");
    assert!(!is_alive(pid), "its process has ended before the command");
    assert_eq!(hosts.team.member("alice")["exit"]["code"], 0);
    hosts.team.teamctl(["forget", "alice"]).ok();
    hosts.spawn("alice", "box").ok();
    assert_eq!(hosts.team.incarnation("alice"), 2);
}

#[test]
fn no_secret_of_home_crosses_a_link() {
    let mut hosts = Hosts::without();
    std::fs::File::create(hosts.far.join("listens")).unwrap();
    hosts.team = hosts
        .team
        .with("GITHUB_TOKEN", "secret-of-home")
        .with("OPENAI_ADMIN_KEY", "secret-of-home")
        .with("EDITOR", "editor-of-home");
    hosts.team.teamd(["start"]).ok();
    hosts.add("box").ok();
    hosts.spawn("alice", "box").ok();
    hosts.send("alice", "/bash touch made.txt");
    hosts.until_made("box", "made.txt");
    let said = std::fs::read_to_string(hosts.far.join("said")).unwrap();
    assert!(
        said.contains("welcome") || said.contains("Welcome"),
        "{said}"
    );
    let as_bytes = |text: &str| {
        let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
        bytes.join(",")
    };
    for text in ["secret-of-home", "editor-of-home"] {
        assert!(!said.contains(text), "{text}");
        assert!(!said.contains(&as_bytes(text)), "{text}");
    }
}

#[test]
fn a_second_name_for_a_machine_takes_no_teammate_away() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    // The stub reaches the same home for both names.
    std::os::unix::fs::symlink(hosts.far.join("box"), hosts.far.join("box2")).unwrap();
    let second = hosts.add("box2").run_failed();
    assert!(
        second.stderr.contains("home knows this machine as box"),
        "{second:?}"
    );
    let moved = ["host", "add", "box", "--ssh", "elsewhere"];
    let moved = hosts.team.teamctl(moved).run_failed();
    assert!(moved.stderr.contains("has teammates: alice"), "{moved:?}");
    hosts.send("alice", "/bash touch still.txt");
    hosts.until_made("box", "still.txt");
    assert_eq!(hosts.host_pid("alice"), pid);
}

#[test]
fn a_host_that_has_lost_its_files_ends_no_teammate_in_the_journal() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    hosts.cut("box");
    for pid in hosts.pids(".local/share/teamd/hosts") {
        signal(pid, Signal::SIGKILL);
    }
    let files = hosts.far.join("box/.local");
    hosts.team.until("the files to be gone", || {
        std::fs::remove_dir_all(&files).is_ok() || !files.exists()
    });
    std::fs::remove_file(hosts.far.join("box.down")).unwrap();
    hosts.until_link("box", "needs_attention");
    assert_eq!(hosts.team.events("exited"), 0);
    hosts.team.teamctl(["forget", "--lost", "alice"]).ok();
    hosts.team.teamctl(["host", "login", "box"]).ok();
    hosts.until_link("box", "up");
}

#[test]
fn a_host_that_does_not_answer_is_unreachable_and_a_resumed_teammate_goes_on_there() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    hosts.team.teamctl(["shutdown", "alice"]).ok();
    hosts.team.teamctl(["spawn", "alice", "--resume"]).ok();
    assert_eq!(hosts.team.member("alice")["host"], "box");
    let stopped = hosts.pids("--host-of");
    for pid in &stopped {
        signal(*pid, Signal::SIGSTOP);
    }
    hosts.send("alice", "/bash touch made.txt");
    hosts.until_link("box", "unreachable");
    for pid in &stopped {
        signal(*pid, Signal::SIGCONT);
    }
    hosts.until_made("box", "made.txt");
}

#[test]
fn a_plan_is_approved_over_the_link() {
    let hosts = Hosts::begin();
    let plan = [
        "spawn",
        "alice",
        "--host",
        "box",
        "--workspace",
        "~/work",
        "--model",
        "script",
        "--plan",
    ];
    hosts.team.teamctl(plan).ok();
    hosts.send(
        "alice",
        "/bash touch early.txt\n/plan_approval make a file\n/bash touch made.txt",
    );
    hosts.team.until("the plan", || {
        hosts.team.status("alice") == "awaiting_approval"
    });
    assert!(!hosts.far.join("box/work/early.txt").exists());
    let id = hosts.team.last_request("plan_approval");
    hosts.team.teamctl(["approve", &id]).ok();
    hosts.until_made("box", "made.txt");
}

#[test]
fn what_is_sent_while_a_link_is_cut_arrives_once_and_in_order() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    hosts.send("alice", "/bash echo 0 >> order.txt");
    hosts.until_made("box", "order.txt");
    let pid = hosts.host_pid("alice");
    hosts.cut("box");
    let shown = hosts.team.json(["status"]);
    assert!(shown.to_string().contains("unreachable"), "{shown}");
    let sent = hosts.team.teamctl(["send", "alice", "/bash true"]).ok();
    assert!(sent.stdout.contains("waiting for box"), "{sent:?}");
    for number in 1..20 {
        hosts.send("alice", &format!("/bash echo {number} >> order.txt"));
    }
    assert!(is_alive(pid), "a worker outlives its link");
    hosts.mend("box");
    let file = hosts.far.join("box/work/order.txt");
    let wanted: String = (0..20).map(|number| format!("{number}\n")).collect();
    let mut last = String::new();
    hosts.team.until("all lines", || {
        last = std::fs::read_to_string(&file).unwrap();
        last.lines().count() >= 20
    });
    assert_eq!(last, wanted);
    assert_eq!(hosts.host_pid("alice"), pid);
}

#[test]
fn kills_on_both_sides_lose_no_teammate() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    hosts.team.kill_daemon();
    assert!(is_alive(pid));
    hosts.team.teamd(["start"]).ok();
    hosts.until_link("box", "up");
    hosts.send("alice", "/bash touch after-home.txt");
    hosts.until_made("box", "after-home.txt");
    for daemon in hosts.pids("--host-of") {
        signal(daemon, Signal::SIGKILL);
    }
    hosts.team.until("the host daemon to be another one", || {
        !hosts.pids("--host-of").is_empty()
    });
    hosts.until_link("box", "up");
    hosts.send("alice", "/bash touch after-host.txt");
    hosts.until_made("box", "after-host.txt");
    assert_eq!(hosts.host_pid("alice"), pid, "it is the same process");
    signal(pid, Signal::SIGKILL);
    hosts.team.until("another incarnation", || {
        hosts.team.incarnation("alice") == 2 && hosts.team.status("alice") == "idle"
    });
    hosts.team.teamctl(["shutdown", "alice"]).ok();
}

#[test]
fn teammates_of_two_hosts_and_of_home_write_to_each_other() {
    let hosts = Hosts::begin();
    hosts.add("gpu").ok();
    hosts.spawn("alice", "box").ok();
    hosts.spawn("bob", "gpu").ok();
    hosts
        .team
        .teamctl(["spawn", "carol", "--model", "script"])
        .ok();
    hosts.send("alice", "/send_message bob one\n/send_message carol two");
    hosts.team.until("the message at home", || {
        !hosts.team.inbox("carol").is_empty()
    });
    let line = hosts.team.inbox("carol").remove(0);
    assert_eq!(line["via"]["host"], "box", "{line}");
    let there = hosts.inbox_there("gpu", "bob");
    hosts.team.until("the message on the other host", || {
        std::fs::read_to_string(&there).is_ok_and(|text| text.contains("\"home\""))
    });
    hosts.send("carol", "/send_message alice three");
    let there = hosts.inbox_there("box", "alice");
    hosts.team.until("the answer on the host", || {
        std::fs::read_to_string(&there).is_ok_and(|text| text.contains("three"))
    });
}

#[test]
fn a_teammate_that_is_lost_with_its_host_returns_its_mail_and_its_worker_is_ended() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let pid = hosts.host_pid("alice");
    let early = hosts
        .team
        .teamctl(["forget", "--lost", "alice"])
        .run_failed();
    assert!(early.stderr.contains("can be reached"), "{early:?}");
    hosts.cut("box");
    hosts.send("alice", "never read");
    let asked = hosts.team.teamctl(["shutdown", "alice", "--timeout", "1s"]);
    asked.exits(5);
    assert!(is_alive(pid), "nothing is ended by a clock at home");
    hosts.team.teamctl(["forget", "--lost", "alice"]).ok();
    assert_eq!(hosts.team.status("alice"), "lost");
    let inbox = hosts.team.inbox("lead");
    let returned = inbox
        .iter()
        .find(|line| line["type"] == "returned")
        .unwrap();
    assert_eq!(returned["text"], "never read");
    assert_eq!(returned["why"], "lost");
    hosts.mend("box");
    hosts
        .team
        .until("its worker to be ended", || !is_alive(pid));
    hosts.team.teamctl(["forget", "alice"]).ok();
    hosts.team.teamctl(["host", "remove", "box"]).ok();
}

#[test]
fn what_cannot_be_done_on_a_host_is_refused_with_a_next_step() {
    let hosts = Hosts::begin();
    let refused = |words: &[&str], part: &str| {
        let run = hosts.team.teamctl(words);
        let said = run.run_failed().stderr;
        assert!(said.contains(part), "{said}");
        assert!(said.contains("hint:"), "{said}");
    };
    refused(
        &["spawn", "a", "--host", "nowhere", "--workspace", "~/work"],
        "there is no host nowhere",
    );
    refused(
        &["spawn", "a", "--host", "box"],
        "no directory on box is named",
    );
    refused(
        &["spawn", "a", "--host", "box", "--workspace", "work"],
        "does not say where on box",
    );
    refused(
        &["spawn", "a", "--host", "box", "--workspace", "~/none"],
        "none",
    );
    refused(
        &[
            "spawn",
            "a",
            "--host",
            "box",
            "--workspace",
            "~/work",
            "--checkout",
        ],
        "cannot have a checkout",
    );
    refused(
        &["host", "add", "x", "--ssh=-oProxyCommand=touch x"],
        "is no [USER@]HOST",
    );
    refused(&["host", "remove", "nowhere"], "there is no host nowhere");
    hosts.spawn("alice", "box").ok();
    refused(&["host", "remove", "box"], "has teammates: a, alice");
    hosts.cut("box");
    refused(
        &["spawn", "bob", "--host", "box", "--workspace", "~/work"],
        "cannot be reached",
    );
    assert!(hosts.told_by("alice").is_empty());
}

/// Takes the last lines of an inbox, as a loss of power does with what was not synced. Returns them.
fn loses_power(inbox: &std::path::Path, lines: usize) -> Vec<String> {
    let text = std::fs::read_to_string(inbox).unwrap();
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let kept = all.len() - lines;
    let length: usize = all[..kept].iter().map(|line| line.len()).sum();
    let file = std::fs::OpenOptions::new().write(true).open(inbox).unwrap();
    file.set_len(length as u64).unwrap();
    all[kept..].iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn what_a_loss_of_power_takes_from_an_inbox_comes_again_and_counts_once() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    for number in 0..5 {
        hosts.send(
            "alice",
            &format!("/bash echo {number} >> order.txt\n/send_message lead said {number}"),
        );
    }
    let file = hosts.far.join("box/work/order.txt");
    let done = |count: usize| {
        std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() >= count)
    };
    hosts.team.until("five lines", || done(5));
    hosts.team.until("five answers", || {
        let told = hosts.told_by("alice");
        told.iter().filter(|it| it.starts_with("said")).count() == 5
    });
    // The host: all that ran there is gone, and so is what it had not synced of its inbox.
    let there = hosts.inbox_there("box", "alice");
    let pid = hosts.host_pid("alice");
    hosts.cut("box");
    let daemons = hosts.pids("--host-of");
    for it in daemons.iter().chain([&pid]) {
        signal(*it, Signal::SIGKILL);
    }
    hosts.team.until("all there to be gone", || {
        !is_alive(pid) && hosts.pids("--host-of").is_empty()
    });
    let lost = loses_power(&there, 2);
    assert!(lost.iter().all(|line| line.contains("\"via\"")), "{lost:?}");
    hosts.send("alice", "/bash echo 5 >> order.txt");
    // Home, in the same way.
    hosts.team.kill_daemon();
    let lost = loses_power(&hosts.team.path("inbox/lead.jsonl"), 1);
    assert!(lost.iter().all(|line| line.contains("\"via\"")), "{lost:?}");
    hosts.team.teamd(["start"]).ok();
    hosts.mend("box");
    hosts.team.teamctl(["spawn", "alice", "--resume"]);
    hosts.team.until("six lines", || done(6));
    let wanted: String = (0..6).map(|number| format!("{number}\n")).collect();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), wanted);
    let id = serde_json::from_str::<serde_json::Value>(&lost[0]).unwrap()["id"].clone();
    hosts.team.until("the line at home", || {
        let lead = hosts.team.inbox("lead");
        lead.iter().filter(|line| line["id"] == id).count() == 1
    });
    hosts.team.teamctl(["shutdown", "alice"]).ok();
    let lead = hosts.team.inbox("lead");
    let offsets: Vec<u64> = lead
        .iter()
        .filter_map(|line| line["via"]["offset"].as_u64())
        .collect();
    assert!(offsets.is_sorted_by(|one, next| one < next), "{offsets:?}");
}

#[test]
fn a_real_ssh_carries_a_link_whatever_the_configuration_says() {
    let there = Team::new();
    let Some(sshd) = Sshd::of(&there) else { return };
    let home = sshd.reached_from(Team::new());
    home.teamd(["start"]).ok();
    home.teamctl(["host", "add", BOX]).ok();
    let work = there.root().display().to_string();
    let spawn = [
        "spawn",
        "alice",
        "--host",
        BOX,
        "--model",
        "script",
        "--workspace",
        &work,
    ];
    home.teamctl(spawn).ok();
    home.teamctl(["send", "alice", "/bash touch made.txt"]).ok();
    home.until("the file there", || there.made("made.txt"));
    let links = there.processes();
    let relays = links
        .iter()
        .filter(|pid| command_line(**pid).contains("teamd host "));
    for relay in relays {
        signal(*relay, Signal::SIGKILL);
    }
    home.teamctl(["send", "alice", "/bash touch again.txt"])
        .ok();
    home.until("the file behind the cut", || there.made("again.txt"));
    home.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(home.status("alice"), "shutdown");
}
