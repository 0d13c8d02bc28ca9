//! Teammates on another machine. The `ssh` here is a stub: it runs the words in another home, which
//! has a host daemon of its own. A link is cut by killing what carries it.

mod crashes;
mod mail;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::support::process::command_line;
use crate::support::sshd::{BOX, Sshd, make_program};
use crate::support::terminal::Terminal;
use crate::support::{Run, Team, is_alive, signal};

/// Runs the words in the home of that machine, unless it is down, or asks something first.
const STUB: &str = r#"#!/bin/sh
options=$*
while [ "$1" != -- ]; do shift; done
shift
echo "$1" >> "$FAR/calls"
if [ -e "$FAR/$1.asks" ]; then
    case $options in
    *BatchMode*)
        echo "Host key verification failed." >&2
        exit 255
        ;;
    esac
    printf 'Do you know it? ' >&2
    read -r answer
    [ "$answer" = yes ] || exit 255
    rm "$FAR/$1.asks"
fi
if [ -e "$FAR/$1.down" ]; then
    echo "ssh: connect to host $1 port 22: Connection refused" >&2
    exit 255
fi
mkdir -p "$FAR/$1/work"
cd "$FAR/$1" || exit 1
HOME=$FAR/$1
unset XDG_DATA_HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR TEAM_DIR TEAM_FILE
PATH=$HOME/bin:${PATH#*/only-at-home:}
[ -e "$FAR/$1.bare" ] || PATH=$FAR_BIN:$PATH
[ ! -e "$FAR/$1.env" ] || . "$FAR/$1.env"
case $2 in
*--give*)
    [ ! -e "$FAR/noisy" ] || head -c 100000 /dev/zero | tr '\0' x >&2
    while [ -e "$FAR/holds" ]; do sleep 0.02; done
    if [ -e "$FAR/spoils" ]; then
        sh -c "$2" | tr 'P' 'Q'
        exit
    fi
    ;;
esac
if [ -e "$FAR/listens" ]; then
    tee -a "$FAR/said" | sh -c "$2"
    exit
fi
exec sh -c "$2"
"#;

/// A team with a machine that it can reach.
pub(crate) struct Hosts {
    pub(crate) team: Team,
    pub(crate) far: PathBuf,
}

impl Hosts {
    /// A team whose daemon runs, and which has the host `box`.
    fn begin() -> Self {
        let hosts = Self::without();
        hosts.team.teamd(["start"]).ok();
        hosts.add("box").ok();
        hosts
    }

    pub(crate) fn without() -> Self {
        Self::of(Team::new())
    }

    pub(crate) fn of(team: Team) -> Self {
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

    pub(crate) fn add(&self, name: &str) -> Run {
        self.team.teamctl(["host", "add", name])
    }

    fn spawn(&self, name: &str, host: &str) -> Run {
        let words = ["spawn", name, "--host", host, "--workspace", "~/work"];
        self.team
            .teamctl([&words[..], &["--model", "script"]].concat())
    }

    pub(crate) fn send(&self, to: &str, text: &str) {
        self.team.teamctl(["send", to, text]).ok();
    }

    /// The processes whose command line contains these words.
    pub(crate) fn pids(&self, words: &str) -> Vec<i32> {
        let mut pids = self.team.processes();
        pids.retain(|pid| command_line(*pid).contains(words));
        pids
    }

    /// The process of a teammate on a host.
    pub(crate) fn host_pid(&self, name: &str) -> i32 {
        let pid = self.team.member(name)["host_pid"].as_i64().unwrap();
        i32::try_from(pid).unwrap()
    }

    /// Cuts the link to a host, and lets it be dialled in vain.
    pub(crate) fn cut(&self, host: &str) {
        std::fs::File::create(self.far.join(format!("{host}.down"))).unwrap();
        for pid in self.pids("teamd host ") {
            signal(pid, Signal::SIGKILL);
        }
        self.until_link(host, "unreachable");
    }

    /// Lets the host be reached again.
    pub(crate) fn mend(&self, host: &str) {
        std::fs::remove_file(self.far.join(format!("{host}.down"))).unwrap();
        self.until_link(host, "up");
    }

    pub(crate) fn until_link(&self, host: &str, state: &str) {
        self.team
            .until(&format!("the link to {host} to be {state}"), || {
                let hosts = self.team.json(["host", "list"]);
                let hosts = hosts.as_array().unwrap();
                let link = hosts.iter().find(|it| it["name"] == host);
                link.is_some_and(|it| it["link"]["state"] == state)
            });
    }

    pub(crate) fn until_made(&self, host: &str, file: &str) {
        let file = self.far.join(host).join("work").join(file);
        self.team.until("the file on the host", || file.exists());
    }

    /// The inbox of a member on a host.
    pub(crate) fn inbox_there(&self, host: &str, name: &str) -> PathBuf {
        let teams = self.far.join(host).join(".local/share/teamd/hosts");
        let team = std::fs::read_dir(teams).unwrap().next().unwrap().unwrap();
        team.path().join(format!(".team/inbox/{name}.jsonl"))
    }

    /// What has crossed to the hosts, in which none of these texts is, also not byte by byte.
    pub(crate) fn said_without(&self, texts: &[&str]) -> String {
        let said = std::fs::read(self.far.join("said")).unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        for text in texts {
            let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
            assert!(!said.contains(text), "{text}");
            assert!(!said.contains(&bytes.join(",")), "{text}");
        }
        said
    }

    /// The machines that `ssh` was run for, one for each process.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.far.join("calls")).unwrap();
        calls.lines().map(str::to_owned).collect()
    }

    /// The names of the hosts of the team.
    fn names(&self) -> Vec<String> {
        let hosts = self.team.json(["host", "list"]);
        let hosts = hosts.as_array().unwrap().iter();
        hosts
            .map(|host| host["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The texts in the lead's inbox from a teammate.
    pub(crate) fn told_by(&self, name: &str) -> Vec<String> {
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
fn a_first_contact_takes_one_ssh() {
    let hosts = Hosts::without();
    hosts.team.teamd(["start"]).ok();
    hosts.add("box").ok();
    assert_eq!(hosts.calls(), ["box"]);
}

#[test]
fn a_host_that_cannot_be_looked_at_is_not_added_or_stays_where_it_was() {
    let hosts = Hosts::begin();
    std::fs::File::create(hosts.far.join("gpu.down")).unwrap();
    let away = hosts.add("gpu").run_failed().stderr;
    assert!(away.contains("Connection refused"), "{away}");
    assert!(away.contains("ssh could not connect to gpu"), "{away}");
    assert!(away.contains("try `ssh gpu true` first"), "{away}");
    assert_eq!(hosts.names(), ["box"]);
    let moved = ["host", "add", "box", "--ssh", "gpu"];
    hosts.team.teamctl(moved).run_failed();
    hosts.until_link("box", "up");
    let listed = hosts.team.json(["host", "list"]);
    assert_eq!(listed[0]["ssh"], "box", "{listed}");
    // The daemon is asked first, which needs no terminal.
    assert_eq!(hosts.calls(), ["box", "gpu", "gpu", "gpu"]);
}

#[test]
fn what_ssh_asks_is_asked_in_the_terminal_of_the_person() {
    let hosts = Hosts::without();
    hosts.team.teamd(["start"]).ok();
    std::fs::File::create(hosts.far.join("box.asks")).unwrap();
    let mut terminal = Terminal::teamctl(&hosts.team, &["host", "add", "box"]);
    terminal.until("Do you know it?");
    assert!(hosts.names().is_empty(), "it is not added yet");
    terminal.line("no");
    terminal.until("ssh could not connect to box");
    assert_eq!(terminal.finish(), Some(1));
    assert!(hosts.names().is_empty());
    let mut terminal = Terminal::teamctl(&hosts.team, &["host", "add", "box"]);
    terminal.until("Do you know it?");
    terminal.line("yes");
    terminal.until("box is linked");
    assert_eq!(terminal.finish(), Some(0));
    // In a pipe there is nothing that it could ask.
    std::fs::File::create(hosts.far.join("gpu.asks")).unwrap();
    let asks = hosts.add("gpu").run_failed().stderr;
    assert!(asks.contains("ssh could not connect to gpu"), "{asks}");
}

#[test]
fn the_list_of_hosts_fits_its_terminal_and_one_that_is_silent_hides_no_other() {
    let hosts = Hosts::begin();
    let place = "someone@a-machine-with-a-long-name";
    hosts
        .team
        .teamctl(["host", "add", "gpu", "--ssh", place])
        .ok();
    let list = || {
        let terminal = Terminal::teamctl_at(&hosts.team, &["host", "list"], (80, 24));
        terminal.until("gpu");
        let screen = terminal.screen();
        assert_eq!(terminal.wrapped_rows(), 0, "{screen}");
        assert_eq!(terminal.finish(), Some(0));
        screen
    };
    let screen = list();
    assert!(screen.contains("MEMORY"), "{screen}");
    assert!(screen.contains("LOAD"), "{screen}");
    let daemon = hosts.pids("--host-of");
    let silent = daemon[0];
    signal(silent, Signal::SIGSTOP);
    let listed = hosts.team.json(["host", "list"]);
    let shown = list();
    signal(silent, Signal::SIGCONT);
    let listed = listed.as_array().unwrap();
    let with_vitals = listed.iter().filter(|host| host["vitals"].is_object());
    assert_eq!(with_vitals.count(), 1, "{listed:?}");
    let rows = shown.lines().filter(|row| row.contains(" of "));
    assert_eq!(rows.count(), 1, "{shown}");
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
    let said = hosts.said_without(&["secret-of-home", "editor-of-home"]);
    assert!(
        said.contains("welcome") || said.contains("Welcome"),
        "{said}"
    );
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
fn what_an_unreachable_host_holds_up_is_named() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    hosts.send("alice", "/bash touch made.txt");
    hosts.until_made("box", "made.txt");
    hosts.team.wait_for("alice", "idle");
    let gate = || hosts.team.member("alice")["gate"].clone();
    let waiting = "waiting for box (unreachable since ";
    hosts.cut("box");
    let asked = hosts.team.teamctl(["request-plan", "alice", "how?"]);
    let asked = asked.exits(5);
    assert!(asked.stderr.contains(waiting), "{asked:?}");
    assert!(asked.stderr.contains("still open"), "{asked:?}");
    assert_eq!(gate(), "open", "it is the gate that the worker has");
    hosts.team.kill_daemon();
    hosts.team.teamd(["start"]).ok();
    hosts.until_link("box", "unreachable");
    assert_eq!(gate(), "open");
    hosts.mend("box");
    hosts
        .team
        .until("the gate to be closed", || gate() == "closed");
    hosts.cut("box");
    let asked = ["request-plan", "alice", "how again?"];
    let asked = hosts.team.json(asked);
    assert_eq!(asked["gate"], "closed", "{asked}");
    assert_eq!(asked["delivery"], "waiting", "{asked}");
    let left = hosts.team.teamctl(["shutdown", "alice", "--timeout", "1s"]);
    let left = left.exits(5).stderr;
    assert!(left.contains(&format!("note: {waiting}")), "{left}");
    assert!(
        left.contains("alice has not left within 1s: wait"),
        "{left}"
    );
    let down = hosts.team.teamctl(["down", "--timeout", "1s"]).exits(5);
    let down = down.stderr;
    assert!(down.contains(&format!("note: {waiting}")), "{down}");
    assert!(down.contains(&format!("alice ({waiting}")), "{down}");
    // The daemon, which was asked to stop, ends once alice has left.
    std::fs::remove_file(hosts.far.join("box.down")).unwrap();
    hosts.team.until("the team to be down", || {
        hosts.team.teamctl(["down", "--timeout", "1s"]).code == Some(0)
    });
}

#[test]
fn hosts_say_what_they_have_to_give_and_what_they_do_not_promise() {
    let hosts = Hosts::without();
    let logind = "#!/bin/sh\necho KillUserProcesses=yes\necho KillExcludeUsers=nemo\n";
    make_program(&hosts.far.join("near/loginctl"), logind);
    hosts.team.teamd(["start"]).ok();
    let added = hosts.add("box").ok();
    assert!(added.stderr.contains("KillUserProcesses"), "{added:?}");
    let listed = hosts.team.json(["host", "list"]);
    let vitals = &listed[0]["vitals"];
    assert!(vitals["memory_available"].as_u64().unwrap() > 0, "{listed}");
    assert!(vitals["processors"].as_u64().unwrap() > 0, "{listed}");
    assert_eq!(vitals["ends_at_logout"], true, "{listed}");
    let shown = hosts.team.teamctl(["host", "list"]).ok().stdout;
    assert!(
        shown.contains("STATE") && shown.contains("MEMORY"),
        "{shown}"
    );
    assert!(shown.contains("connected"), "{shown}");
    let doctor = hosts.team.teamctl(["doctor", "-v"]).stdout;
    assert!(doctor.contains("box ends the daemons"), "{doctor}");
    hosts.cut("box");
    let listed = hosts.team.json(["host", "list"]);
    assert!(listed[0].get("vitals").is_none(), "{listed}");
    let doctor = hosts.team.teamctl(["doctor", "-v"]).stdout;
    assert!(doctor.contains("box cannot be reached for"), "{doctor}");
}

#[test]
fn a_spawn_on_any_host_takes_one_that_is_reached_and_stays_there() {
    let hosts = Hosts::without();
    hosts.team.teamd(["start"]).ok();
    let none = hosts.spawn("alice", "any").run_failed();
    assert!(none.stderr.contains("the team has no hosts"), "{none:?}");
    hosts.add("box").ok();
    hosts.add("gpu").ok();
    hosts.cut("box");
    hosts.until_link("gpu", "up");
    hosts.spawn("alice", "any").ok();
    assert_eq!(hosts.team.member("alice")["host"], "gpu");
    hosts.team.teamctl(["shutdown", "alice"]).ok();
    hosts.mend("box");
    hosts.cut("gpu");
    hosts.until_link("box", "up");
    let away = hosts.spawn("alice", "any").run_failed();
    assert!(away.stderr.contains("gpu cannot be reached"), "{away:?}");
    hosts.spawn("bob", "any").ok();
    assert_eq!(hosts.team.member("bob")["host"], "box");
    hosts.team.teamctl(["shutdown", "bob"]).ok();
    hosts.cut("box");
    let none = hosts.spawn("carol", "any").run_failed();
    assert!(
        none.stderr.contains("box: it cannot be reached"),
        "{none:?}"
    );
    assert!(
        none.stderr.contains("gpu: it cannot be reached"),
        "{none:?}"
    );
}

#[test]
fn a_host_of_team_toml_needs_trust_and_gives_its_terms_to_those_who_name_it() {
    let mut hosts = Hosts::without();
    hosts.team = hosts.team.with("CUDA_HOME", "/opt/cuda");
    let file = "[hosts.box]\nmax = 1\nworkspace = '~/work'\nenv = ['CUDA_HOME']\n";
    hosts.team.write("team.toml", file);
    hosts.team.teamd(["start"]).run_failed();
    hosts.team.teamd(["trust"]).ok();
    hosts.team.teamd(["start"]).ok();
    let spawn = |name: &str, host: &str| {
        let words = ["spawn", name, "--host", host, "--model", "script"];
        hosts.team.teamctl(words)
    };
    spawn("alice", "box").ok();
    assert_eq!(hosts.team.member("alice")["workspace"], "~/work");
    hosts.send("alice", "/bash echo $CUDA_HOME > env.txt");
    hosts.until_made("box", "env.txt");
    let env = hosts.far.join("box/work/env.txt");
    hosts.team.until("the variable", || {
        std::fs::read_to_string(&env).unwrap() == "/opt/cuda\n"
    });
    for host in ["box", "any"] {
        let full = spawn("bob", host).run_failed().stderr;
        assert!(full.contains("it has 1 of 1 teammates"), "{full}");
    }
    // What the file says later is recorded with the next use.
    let file = "[hosts.box]\nmax = 2\nworkspace = '~/work'\n[hosts.gpu]\n";
    hosts.team.write("team.toml", file);
    hosts.team.teamd(["trust"]).ok();
    spawn("bob", "box").ok();
    let bob = spawn("carol", "gpu").run_failed().stderr;
    assert!(bob.contains("no directory on gpu is named"), "{bob}");
    hosts.send("alice", "/bash touch still.txt");
    hosts.until_made("box", "still.txt");
}

#[test]
fn the_log_of_a_teammate_on_a_host_is_read_over_the_link() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let inbox = hosts.inbox_there("box", "alice");
    let log = inbox.with_file_name("../log/alice.log");
    let mut file = std::fs::File::options().append(true).open(&log).unwrap();
    writeln!(file, "one\ntwo").unwrap();
    let shown = hosts.team.teamctl(["logs", "alice"]).ok().stdout;
    assert_eq!(shown, std::fs::read_to_string(&log).unwrap());
    let last = hosts.team.json(["logs", "alice", "--last", "1"]);
    let wanted = serde_json::json!([{"name": "alice", "line": "two"}]);
    assert_eq!(last, wanted);
    let mut follows = hosts
        .team
        .start_teamctl(["logs", "-f", "--last", "1", "alice"]);
    let mut lines = BufReader::new(follows.stdout()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    writeln!(file, "three").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    follows.signal(Signal::SIGINT);
    follows.finish();
    let both = hosts.team.teamctl(["logs", "alice", "teamd"]).run_failed();
    assert!(
        both.stderr.contains("the log of alice is on box"),
        "{both:?}"
    );
    hosts.cut("box");
    let away = hosts.team.teamctl(["logs", "alice"]).run_failed();
    assert!(
        away.stderr.contains("box, which cannot be reached"),
        "{away:?}"
    );
}

#[test]
fn programs_are_installed_on_a_host_that_has_none() {
    let hosts = Hosts::without();
    hosts.team.teamd(["start"]).ok();
    std::fs::File::create(hosts.far.join("box.bare")).unwrap();
    let bare = hosts.add("box").run_failed();
    assert!(bare.stderr.contains("there is no teamd"), "{bare:?}");
    assert!(bare.stderr.contains("--install"), "{bare:?}");
    let install = ["host", "add", "box", "--install"];
    // For a machine of another kind, programs must be named.
    let uname = hosts.far.join("near/uname");
    make_program(&uname, "#!/bin/sh\n[ $1 = -s ] && echo Linux || echo vax\n");
    let other = hosts.team.teamctl(install).run_failed();
    assert!(other.stderr.contains("box is Linux vax"), "{other:?}");
    assert!(other.stderr.contains("--programs DIR"), "{other:?}");
    std::fs::remove_file(uname).unwrap();
    let installed = hosts.team.teamctl(install).ok();
    assert!(
        installed.stderr.contains("is installed at box"),
        "{installed:?}"
    );
    assert!(installed.stdout.contains("box is linked"), "{installed:?}");
    hosts.spawn("alice", "box").ok();
    hosts.send("alice", "/bash touch made.txt");
    hosts.until_made("box", "made.txt");
    let again = hosts.team.teamctl(install).ok();
    assert!(again.stderr.contains("is at box already"), "{again:?}");
    let folders = std::fs::read_dir(hosts.far.join("box/.local/share/teamd")).unwrap();
    let names: Vec<String> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "hosts")
        .collect();
    assert_eq!(names.len(), 1, "nothing unfinished is left: {names:?}");
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
        "is of the repository of this team",
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
