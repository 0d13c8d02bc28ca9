//! A host that home cannot reach: it dials home. The `ssh` here is a stub that runs the command of
//! its key, as `sshd` does; one test has a real `sshd`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::checkouts::{REPOSITORY, add, git, until, user};
use crate::support::process::command_line;
use crate::support::sshd::{BOX, Sshd, make_program};
use crate::support::{Run, Team, is_alive, poll_until, signal};

const TEAMD: &str = env!("CARGO_BIN_EXE_teamd");

/// Runs the command of the key in the environment of home, whatever is asked for.
const STUB: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do
    [ "$1" != -i ] || key=$2
    shift
done
shift
if [ -e "$FAR/down" ]; then
    echo "ssh: connect to host $1 port 22: Connection refused" >&2
    exit 255
fi
if [ ! -s "$key" ]; then
    echo "$1: Permission denied (publickey)." >&2
    exit 255
fi
SSH_ORIGINAL_COMMAND=$2
export SSH_ORIGINAL_COMMAND
echo "Welcome home"
HOME=$HOME_OF_HOME
unset XDG_DATA_HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR TEAM_DIR TEAM_FILE
cd "$HOME" && exec sh -c "$(cat "$FAR/forced")"
"#;

/// A team, and a machine that dials it.
struct Invited {
    team: Team,
    far: PathBuf,
    /// What `teamctl host invite` has said.
    said: Value,
}

impl Invited {
    /// A team whose daemon runs, and which has invited `box`.
    fn begin() -> Self {
        let team = Team::new();
        team.teamd(["start"]).ok();
        Self::of(team)
    }

    fn of(team: Team) -> Self {
        let far = team.temp().join("far");
        std::fs::create_dir_all(far.join("near")).unwrap();
        std::fs::create_dir_all(far.join("box/work")).unwrap();
        make_program(&far.join("near/ssh"), STUB);
        let said = team.json(["host", "invite", "box"]);
        let invited = Self { team, far, said };
        invited.let_in();
        invited
    }

    /// Does what the invitation says.
    fn let_in(&self) {
        make_program(&self.far.join("forced"), &forced(&self.said));
        std::fs::create_dir_all(self.key().parent().unwrap()).unwrap();
        std::fs::copy(self.key_at_home(), self.key()).unwrap();
    }

    fn key_at_home(&self) -> PathBuf {
        PathBuf::from(self.said["key"].as_str().unwrap())
    }

    /// The key, on that machine.
    fn key(&self) -> PathBuf {
        self.far.join("box/.ssh/key")
    }

    /// A command on that machine.
    fn there(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.team.command(program, args);
        let home = command
            .get_envs()
            .find(|(name, _)| *name == "HOME")
            .and_then(|(_, value)| value.map(std::ffi::OsStr::to_owned))
            .unwrap();
        let path = std::env::var("PATH").unwrap();
        command
            .env("HOME_OF_HOME", home)
            .env("HOME", self.far.join("box"))
            .env("FAR", &self.far)
            .env("PATH", format!("{}/near:{path}", self.far.display()))
            .current_dir(self.far.join("box"))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(self.far.join("noted")).unwrap());
        for name in [
            "TEAM_DIR",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Dials until this is dropped.
    fn dial(&self) -> Dialler {
        let dialler = self.dial_beside();
        self.until_link("up");
        dialler
    }

    /// Dials, without a look whether that is a new link.
    fn dial_beside(&self) -> Dialler {
        let key = self.key().display().to_string();
        let args = ["host", "--dial", "me@home", "--key", &key];
        Dialler(self.there(TEAMD, &args).spawn().unwrap())
    }

    fn link(&self) -> Value {
        let hosts = self.team.json(["host", "list"]);
        hosts[0]["link"].clone()
    }

    fn until_link(&self, state: &str) {
        self.team.until(&format!("the link to be {state}"), || {
            self.link()["state"] == state
        });
    }

    fn spawn(&self, name: &str, more: &[&str]) -> Run {
        let words = ["spawn", name, "--host", "box", "--model", "script"];
        self.team.teamctl([&words[..], more].concat())
    }

    fn made_there(&self, file: &str) {
        let file = self.far.join("box/work").join(file);
        self.team.until("the file on the host", || file.exists());
    }

    /// Runs `ssh` on that machine, with its key.
    fn ssh(&self, asked: &str) -> String {
        let key = self.key().display().to_string();
        let ssh = self.far.join("near/ssh").display().to_string();
        let mut command = self.there("sh", &["-c", "exec \"$@\" 2>&1", "sh", &ssh]);
        command.args(["-i", &key, "--", "me@home", asked]);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The process that dials.
struct Dialler(std::process::Child);

impl Drop for Dialler {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn says(run: &Run, text: &str) {
    assert!(run.stderr.contains(text), "{}", run.stderr);
}

/// The command of the line for `authorized_keys`, as `sshd` reads it.
fn forced(said: &Value) -> String {
    let line = said["authorized_keys"].as_str().unwrap();
    let command = line.strip_prefix("restrict,command=\"").unwrap();
    let end = command.find("\" ssh-ed25519 ").unwrap();
    command[..end].replace("\\\"", "\"")
}

#[test]
fn a_host_that_dials_has_teammates_as_any_other() {
    let invited = Invited::begin();
    let team = &invited.team;
    assert_eq!(invited.link()["why"], "it has not dialled home");
    let dialler = invited.dial();
    let list = team.teamctl(["host", "list"]).ok();
    assert!(list.stdout.contains("it dials"), "{}", list.stdout);
    invited.spawn("alice", &["--workspace", "~/work"]).ok();
    team.teamctl(["send", "alice", "/bash touch one"]).ok();
    invited.made_there("one");
    team.wait_for("alice", "idle");
    let pid = i32::try_from(team.member("alice")["host_pid"].as_i64().unwrap()).unwrap();
    // What dials is killed: she works on, and what waits for her comes once.
    drop(dialler);
    invited.until_link("unreachable");
    team.teamctl(["send", "alice", "/bash echo two >> two"])
        .ok();
    assert!(is_alive(pid));
    let _dialler = invited.dial();
    let two = invited.far.join("box/work/two");
    let written = || std::fs::read_to_string(&two).unwrap_or_default();
    team.until("what was said to alice", || !written().is_empty());
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
    assert!(!is_alive(pid));
    assert_eq!(written(), "two\n");
}

#[test]
fn the_daemon_of_home_is_killed_and_replaced_and_the_host_dials_again() {
    let invited = Invited::begin();
    let team = &invited.team;
    let _dialler = invited.dial();
    invited.spawn("alice", &["--workspace", "~/work"]).ok();
    signal(team.daemon_pid(), Signal::SIGKILL);
    team.teamd(["start"]).ok();
    invited.until_link("up");
    team.teamctl(["send", "alice", "/bash touch one"]).ok();
    invited.made_there("one");
    team.teamd(["start", "--replace"]).ok();
    invited.until_link("up");
    team.teamctl(["send", "alice", "/bash touch two"]).ok();
    invited.made_there("two");
    assert_eq!(team.incarnation("alice"), 1);
    team.teamctl(["shutdown", "alice"]).ok();
}

#[test]
fn work_crosses_on_connections_that_the_host_makes() {
    let team = Team::new();
    user(&team, REPOSITORY);
    team.write("team.toml", "[work]\ncheck = \"test -e file1\"\n");
    team.trust();
    team.teamd(["start"]).ok();
    let invited = Invited::of(team);
    let team = &invited.team;
    let dialler = invited.dial();
    invited.spawn("alice", &["--checkout", "--auto"]).ok();
    let orders =
        |file: &str| format!("/bash echo {file} > {file}; git add {file}; git commit -qm {file}");
    add(
        team,
        &["one", "--for", "alice", "--description", &orders("file1")],
    );
    let task = until(team, 1, "completed");
    assert_eq!(task["result"]["verified"], "checked", "{task}");
    // The link breaks while objects cross or wait: they cross once.
    add(
        team,
        &["two", "--for", "alice", "--description", &orders("file2")],
    );
    drop(dialler);
    let _dialler = invited.dial();
    until(team, 2, "completed");
    let files = git(team, &["ls-tree", "--name-only", "integration"]);
    assert!(
        files.contains("file1") && files.contains("file2"),
        "{files}"
    );
    let merges = git(
        team,
        &["rev-list", "--count", "--first-parent", "integration"],
    );
    assert_eq!(merges, "3");
    git(team, &["fsck", "--strict"]);
}

#[test]
fn the_key_opens_its_link_and_nothing_else() {
    let invited = Invited::begin();
    let team = &invited.team;
    for asked in [
        "touch pwned",
        "teamd-link; touch pwned",
        "teamd-file ../../x",
        "",
    ] {
        let said = invited.ssh(asked);
        assert!(said.contains("this key opens a link for a host"), "{said}");
    }
    assert!(!team.made("pwned") && !team.home().join("pwned").exists());
    let unknown = invited.ssh("teamd-file 00000000-0000-4000-8000-000000000000");
    assert!(unknown.contains("home waits for no such file"), "{unknown}");
    // The line of another host.
    let forced = std::fs::read_to_string(invited.far.join("forced")).unwrap();
    let other = forced.replace(" link box ", " link hut ");
    make_program(&invited.far.join("forced"), &other);
    let said = invited.ssh("teamd-link");
    assert!(
        said.contains("teamd refuses: home has no host hut"),
        "{said}"
    );
    make_program(&invited.far.join("forced"), &forced);
    team.teamctl(["host", "remove", "box"]).ok();
    let said = invited.ssh("teamd-link");
    assert!(
        said.contains("teamd refuses: home has no host box"),
        "{said}"
    );
    team.teamctl(["down"]).ok();
    let said = invited.ssh("teamd-link");
    assert!(said.contains("no daemon runs for"), "{said}");
}

#[test]
fn a_host_says_why_it_has_no_link_and_ends_where_a_person_is_needed() {
    let invited = Invited::begin();
    let noted = || std::fs::read_to_string(invited.far.join("noted")).unwrap();
    let file = invited.far.join("box/.ssh/empty");
    std::fs::File::create(&file).unwrap();
    let file = file.display().to_string();
    let args = ["host", "--dial", "me@home", "--key", &file];
    let ended = invited.there(TEAMD, &args).status().unwrap();
    assert_eq!(ended.code(), Some(1));
    assert!(noted().contains("could not log in"), "{}", noted());
    let args = ["host", "--dial", "-oProxyCommand=touch pwned"];
    let ended = invited.there(TEAMD, &args).status().unwrap();
    assert_eq!(ended.code(), Some(2), "{}", noted());
    let args = ["host", "--dial", "me@home", "--key", "/nowhere"];
    let ended = invited.there(TEAMD, &args).status().unwrap();
    assert_eq!(ended.code(), Some(2));
    assert!(noted().contains("cannot read the key"), "{}", noted());
    let elsewhere = invited.far.join("box/key");
    std::fs::copy(invited.key(), &elsewhere).unwrap();
    let elsewhere = elsewhere.display().to_string();
    let args = ["host", "--dial", "me@home", "--key", &elsewhere];
    let ended = invited.there(TEAMD, &args).status().unwrap();
    assert_eq!(ended.code(), Some(2));
    assert!(
        noted().contains("teammates on this machine could use it"),
        "{}",
        noted()
    );
    // What passes by itself is said once, and tried again.
    std::fs::File::create(invited.far.join("down")).unwrap();
    let key = invited.key().display().to_string();
    let args = ["host", "--dial", "me@home", "--key", &key];
    let dialler = Dialler(invited.there(TEAMD, &args).spawn().unwrap());
    let said = poll_until(&mut || noted().contains("Connection refused"));
    assert!(said, "{}", noted());
    std::fs::remove_file(invited.far.join("down")).unwrap();
    invited.until_link("up");
    let linked = poll_until(&mut || noted().contains("linked to me@home"));
    assert!(linked, "{}", noted());
    assert_eq!(noted().matches("Connection refused").count(), 1);
    drop(dialler);
}

#[test]
fn an_invitation_is_printed_again_and_replaces_no_key() {
    let invited = Invited::begin();
    let team = &invited.team;
    let again = team.json(["host", "invite", "box"]);
    assert_eq!(again, invited.said);
    let mode = std::os::unix::fs::MetadataExt::mode(&invited.key_at_home().metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    team.teamctl(["host", "remove", "box"]).ok();
    let refused = team.teamctl(["host", "invite", "box"]);
    says(&refused.exits(3), "is there already");
    let public = std::fs::read_to_string(invited.key_at_home().with_extension("pub")).unwrap();
    let own = team.json(["host", "invite", "box", "--public-key", &public]);
    assert!(own["key"].is_null(), "{own}");
    let bad = "ssh-ed25519 AAAA\" ssh-rsa";
    let refused = team.teamctl(["host", "invite", "hut", "--public-key", bad]);
    says(&refused.exits(2), "is no public key");
    let refused = team.teamctl(["host", "login", "box"]);
    says(&refused.exits(3), "dials home");
    let refused = team.teamctl(["host", "invite", "any"]);
    says(&refused.exits(2), "meaning of its own");
}

#[test]
fn a_real_sshd_lets_the_key_open_its_link_alone() {
    let home = Team::new();
    let Some(sshd) = Sshd::of(&home) else { return };
    home.teamd(["start"]).ok();
    let said = home.json(["host", "invite", "box"]);
    sshd.authorize(said["authorized_keys"].as_str().unwrap());
    let there = sshd.reached_from(Team::new());
    let key = there.home().join(".ssh/key");
    std::fs::create_dir_all(key.parent().unwrap()).unwrap();
    std::fs::copy(said["key"].as_str().unwrap(), &key).unwrap();
    let key = key.to_str().unwrap();
    let args = ["host", "--dial", BOX, "--key", key];
    let child = there.command(TEAMD, args).spawn().unwrap();
    let dialler = Dialler(child);
    home.until("the link", || {
        home.json(["host", "list"])[0]["link"]["state"] == "up"
    });
    let work = there.root().display().to_string();
    let words = ["spawn", "alice", "--host", "box", "--model", "script"];
    home.teamctl([&words[..], &["--workspace", &work]].concat())
        .ok();
    home.teamctl(["send", "alice", "/bash touch made"]).ok();
    home.until("the file there", || there.made("made"));
    let asked = [
        "-T",
        "-i",
        key,
        "-o",
        "RemoteCommand=none",
        "-o",
        "ClearAllForwardings=yes",
        "--",
        BOX,
        "touch pwned",
    ];
    let mut ssh = there.command("ssh", asked);
    let output = ssh.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("this key opens a link"), "{error}");
    assert!(!home.home().join("pwned").exists());
    home.teamctl(["shutdown", "alice"]).ok();
    drop(dialler);
}

#[test]
fn a_connection_takes_the_place_of_one_that_does_not_answer_and_of_no_other() {
    let invited = Invited::begin();
    let team = &invited.team;
    let first = invited.dial();
    invited.spawn("alice", &["--workspace", "~/work"]).ok();
    // Another process is told so, and takes nothing away.
    let second = invited.dial_beside();
    let noted = || std::fs::read_to_string(invited.far.join("noted")).unwrap();
    let is_told = poll_until(&mut || noted().contains("is linked, by another process"));
    assert!(is_told, "{}", noted());
    drop(second);
    // A connection beside it is refused, as long as the present one answers.
    let said = invited.ssh("teamd-link");
    assert!(said.contains("teamd refuses: box is linked"), "{said}");
    assert_eq!(invited.link()["state"], "up");
    // One that hangs is ended.
    let links = || -> Vec<i32> {
        let mut pids = team.processes();
        pids.retain(|pid| command_line(*pid).contains(" link box "));
        pids
    };
    let hung = links();
    for pid in &hung {
        signal(*pid, Signal::SIGSTOP);
    }
    let dialler = i32::try_from(first.0.id()).unwrap();
    signal(dialler, Signal::SIGKILL);
    let _second = invited.dial_beside();
    team.until("a new link", || {
        invited.link()["state"] == "up" && links().iter().any(|pid| !hung.contains(pid))
    });
    team.teamctl(["send", "alice", "/bash touch one"]).ok();
    invited.made_there("one");
    for pid in hung {
        signal(pid, Signal::SIGKILL);
    }
}

#[test]
fn a_key_that_is_not_invited_any_more_opens_no_link() {
    let mut invited = Invited::begin();
    let dialler = invited.dial();
    drop(dialler);
    invited.until_link("unreachable");
    let removed = invited.team.teamctl(["host", "remove", "box"]).ok();
    says(
        &removed,
        "its line in ~/.ssh/authorized_keys ends in teamd-host-box",
    );
    std::fs::remove_file(invited.key_at_home()).unwrap();
    std::fs::remove_file(invited.key_at_home().with_extension("pub")).unwrap();
    let said = invited.team.json(["host", "invite", "box"]);
    // The line of the first key is still there.
    let told = invited.ssh("teamd-link");
    assert!(
        told.contains("teamd refuses: home has invited box with another key"),
        "{told}"
    );
    invited.said = said;
    invited.let_in();
    let _dialler = invited.dial();
}

#[test]
fn other_terms_cut_no_link_and_another_home_is_taken_with_one_command() {
    let invited = Invited::begin();
    let team = &invited.team;
    let _dialler = invited.dial();
    let since = team.json(["host", "list"])[0]["since"].clone();
    team.write(
        "team.toml",
        "[hosts.box]\nmax = 2\nworkspace = \"~/work\"\n",
    );
    team.trust();
    invited.spawn("alice", &[]).ok();
    let list = team.json(["host", "list"]);
    assert_eq!(list[0]["since"], since, "{list}");
    assert_eq!(list[0]["max"], 2, "{list}");
    let taken = team.teamctl(["host", "take", "box"]).ok();
    assert!(taken.stdout.contains("box is linked"), "{taken:?}");
    team.teamctl(["send", "alice", "/bash touch one"]).ok();
    invited.made_there("one");
    team.write("team.toml", "[hosts.hut]\nssh = \"me@hut\"\n");
    team.trust();
    let refused = team.teamctl(["host", "invite", "hut"]).exits(2);
    says(&refused, "team.toml says where ssh finds hut");
}
