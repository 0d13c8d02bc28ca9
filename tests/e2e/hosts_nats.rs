//! A host that dials home over a NATS cluster: with a real server, whose log has all that crosses it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::checkouts::{REPOSITORY, add, git, until, user};
use crate::support::nats::NatsServer;
use crate::support::{Run, Team, is_alive, signal};

const TEAMD: &str = env!("CARGO_BIN_EXE_teamd");

/// A team, a cluster, and a machine that reaches both by it alone.
struct OverNats {
    team: Team,
    server: NatsServer,
    far: PathBuf,
    /// What `teamctl host invite` has said.
    said: Value,
    link: String,
}

impl OverNats {
    /// A team that has invited `box`, which may use the cluster. None where there is no server.
    fn begin() -> Option<Self> {
        let team = Team::new();
        team.teamd(["start"]).ok();
        Self::of(team)
    }

    fn of(team: Team) -> Option<Self> {
        let mut server = NatsServer::start()?;
        let far = team.temp().join("far");
        std::fs::create_dir_all(far.join("work")).unwrap();
        let credentials = NatsServer::credentials_of_home(&home_of(&team));
        let said = team.json([
            "host",
            "invite",
            "box",
            "--nats",
            &server.url(),
            "--ca",
            &server.ca(&home_of(&team)),
            "--credentials",
            &credentials,
        ]);
        let link = said["home_publishes"].as_str().unwrap();
        let link = link.strip_suffix(".down.>").unwrap().to_owned();
        assert_eq!(said["host_publishes"], format!("{link}.up.>"));
        server.allow(&link);
        NatsServer::credentials_of_host(&far);
        Some(Self {
            team,
            server,
            far,
            said,
            link,
        })
    }

    /// The command that `host invite` has printed, with the files of that machine.
    fn command(&self) -> Command {
        let said = self.said["dial"].as_str().unwrap();
        let credentials = self.far.join(".config/nats/seed.nk");
        let line = said
            .replace("FILE", &credentials.display().to_string())
            .replace("--ca CA", &format!("--ca {}", self.server.ca(&self.far)));
        let words: Vec<&str> = line.strip_prefix("teamd ").unwrap().split(' ').collect();
        let mut command = self.team.command(TEAMD, words);
        command
            .env("HOME", &self.far)
            .env("ANTHROPIC_API_KEY", "key-of-box")
            .current_dir(&self.far)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
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

    /// Dials, without a look whether there is a link.
    fn dial_beside(&self) -> Dialler {
        let notes = std::fs::File::create(self.far.join("notes")).unwrap();
        Dialler(self.command().stderr(notes).spawn().unwrap())
    }

    /// What was said by the last process that dials.
    fn noted(&self) -> String {
        std::fs::read_to_string(self.far.join("notes")).unwrap()
    }

    /// Dials, and fails. Returns what is said.
    fn cannot_dial(&self) -> String {
        let output = self.command().output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
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
        let file = self.far.join("work").join(file);
        self.team.until("the file on the host", || file.exists());
    }

    fn read_there(&self, file: &str) -> String {
        std::fs::read_to_string(self.far.join("work").join(file)).unwrap()
    }
}

/// The process that dials.
struct Dialler(Child);

impl Drop for Dialler {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn home_of(team: &Team) -> PathBuf {
    let command = team.command("true", [""; 0]);
    let home = command
        .get_envs()
        .find(|(name, _)| *name == "HOME")
        .and_then(|(_, value)| value.map(PathBuf::from));
    home.unwrap()
}

#[test]
fn a_host_over_nats_has_teammates_as_any_other() {
    let Some(mut over) = OverNats::begin() else {
        return;
    };
    assert_eq!(over.link()["state"], "unreachable");
    let dialler = over.dial();
    let team = &over.team;
    let list = team.teamctl(["host", "list"]).ok();
    assert!(list.stdout.contains("nats"), "{}", list.stdout);
    over.spawn("alice", &["--workspace", "~/work"]).ok();
    team.teamctl(["send", "alice", "/bash echo one >> said"])
        .ok();
    over.made_there("said");
    team.wait_for("alice", "idle");
    let pid = i32::try_from(team.member("alice")["host_pid"].as_i64().unwrap()).unwrap();
    // The server is killed: she works on, and what waits for her comes once.
    over.server.stop();
    over.until_link("unreachable");
    let team = &over.team;
    let sent = team
        .teamctl(["send", "alice", "/bash echo two >> said"])
        .ok();
    assert!(sent.stdout.contains("waiting for box"), "{}", sent.stdout);
    assert!(is_alive(pid));
    over.server.begin();
    let team = &over.team;
    team.until("the second line", || {
        over.read_there("said") == "one\ntwo\n"
    });
    team.wait_for("alice", "idle");
    // So is what dials.
    drop(dialler);
    let _dialler = over.dial();
    // What listens at home is killed: the host learns of it by its next word.
    let listens = format!("--link {} .* serve ", over.link);
    let killed = Command::new("pkill")
        .args(["-9", "-f", "--", &listens])
        .status();
    assert!(killed.unwrap().success());
    let began = Instant::now();
    over.until_link("unreachable");
    over.until_link("up");
    assert!(began.elapsed() < Duration::from_secs(20));
    // And the daemon.
    signal(team.daemon_pid(), Signal::SIGKILL);
    team.teamd(["start"]).ok();
    over.until_link("up");
    team.teamctl(["send", "alice", "/bash echo three >> said; touch end"])
        .ok();
    over.made_there("end");
    assert_eq!(over.read_there("said"), "one\ntwo\nthree\n");
    assert_eq!(team.incarnation("alice"), 1);
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!is_alive(pid));
}

#[test]
fn work_crosses_over_nats_and_no_key_does() {
    let team = Team::new().with("ANTHROPIC_API_KEY", "key-of-home");
    user(&team, REPOSITORY);
    team.write(
        "team.toml",
        "[work]\ncheck = \"test -e file1\"\n[hosts.box]\nenv = [\"OF_HOME\"]\n",
    );
    team.trust();
    let team = team.with("OF_HOME", "secret-of-home");
    team.teamd(["start"]).ok();
    let Some(over) = OverNats::of(team) else {
        return;
    };
    let team = &over.team;
    let dialler = over.dial();
    over.spawn("alice", &["--checkout", "--auto"]).ok();
    // More than the window of a stream, and nothing that would be packed smaller.
    let orders = |file: &str| {
        format!(
            "/bash head -c 4000000 /dev/urandom > {file}; git add {file}; git commit -qm {file}"
        )
    };
    let described = ["--for", "alice", "--description"];
    add(
        team,
        &[&["one"], &described[..], &[&orders("file1")]].concat(),
    );
    let task = until(team, 1, "completed");
    assert_eq!(task["result"]["verified"], "checked", "{task}");
    add(
        team,
        &[&["two"], &described[..], &[&orders("file2")]].concat(),
    );
    drop(dialler);
    let _dialler = over.dial();
    until(team, 2, "completed");
    let merges = git(
        team,
        &["rev-list", "--count", "--first-parent", "integration"],
    );
    assert_eq!(merges, "3");
    git(team, &["fsck", "--strict"]);
    over.server_has_seen("alice");
    for secret in ["key-of-home", "key-of-box", "secret-of-home"] {
        assert!(!over.server.log().contains(secret), "{secret} has crossed");
    }
}

impl OverNats {
    /// The server has logged what crosses.
    fn server_has_seen(&self, text: &str) {
        self.team
            .until("the log of the server", || self.server.log().contains(text));
    }
}

#[test]
fn credentials_open_their_own_link_alone() {
    let Some(mut over) = OverNats::begin() else {
        return;
    };
    // The cluster lets them do something else.
    over.server.allow("teamd.den.0");
    let said = over.cannot_dial();
    assert!(said.contains("Permissions Violation"), "{said}");
    over.team.until("home to know it, too", || {
        over.link()["state"] == "needs_attention"
    });
    let why = over.link()["why"].clone();
    let why = why.as_str().unwrap();
    assert!(why.contains("Permissions Violation"), "{why}");
    over.server.allow(&over.link.clone());
    over.team.teamctl(["host", "invite", "box"]).ok();
    let _dialler = over.dial();
    // A removed host is not listened for.
    over.team.teamctl(["host", "remove", "box"]).ok();
    let _dialler = over.dial_beside();
    over.team.until("the host to know", || {
        over.noted().contains("home does not listen")
    });
}

#[test]
fn credentials_that_teammates_could_read_are_refused() {
    let Some(over) = OverNats::begin() else {
        return;
    };
    let readable = over.team.root().join("seed.nk").display().to_string();
    over.team.write("seed.nk", "SU");
    let refused = over
        .team
        .teamctl([
            "host",
            "invite",
            "den",
            "--nats",
            "tls://localhost",
            "--credentials",
            &readable,
        ])
        .exits(2);
    assert!(
        refused
            .stderr
            .contains("teammates on this machine could use it"),
        "{}",
        refused.stderr
    );
    let file = over.far.join(".config/nats/seed.nk");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o604);
    std::fs::set_permissions(&file, open).unwrap();
    let said = over.cannot_dial();
    assert!(said.contains("others can read the credentials"), "{said}");
}

#[test]
fn what_others_publish_there_ends_no_link() {
    let Some(over) = OverNats::begin() else {
        return;
    };
    let _dialler = over.dial();
    let team = &over.team;
    over.spawn("alice", &["--workspace", "~/work"]).ok();
    let subject = |id: &str| format!("{}.up.{id:0>32}", over.link);
    let open = |asked: &str| [b"O\0\0\0\0\0\0\0\0", asked.as_bytes()].concat();
    let mut messages = vec![
        (subject("a"), b"".to_vec()),
        (subject("b"), b"garbage of no stream".to_vec()),
        (subject("c"), b"D\0\0\0\0\0\0\0\x05lost".to_vec()),
        (subject("d"), open("sh -c touch$IFS/tmp/x")),
        (subject("e"), open("teamd-file ../../x")),
        (subject("f"), open("teamd-link")),
        (subject("f"), b"D\0\0\0\0\0\0\0\x09a gap".to_vec()),
        (
            format!("{}.down.{:0>32}", over.link, "g"),
            open("teamd-link"),
        ),
        (
            format!("{}.up.{}", over.link, "x".repeat(2000)),
            open("teamd-link"),
        ),
    ];
    // More streams than a host may have, and more data than a stream takes.
    for number in 0..60 {
        messages.push((subject(&number.to_string()), open("teamd-link")));
    }
    for number in 1..200_u8 {
        let mut data = vec![b'D', 0, 0, 0, 0, 0, 0, 0, number];
        data.resize(32 << 10, b'x');
        messages.push((subject("0"), data));
    }
    over.server.spoof(&messages);
    over.server_has_seen("too many streams");
    team.teamctl(["send", "alice", "/bash touch works"]).ok();
    over.made_there("works");
    assert_eq!(over.link()["state"], "up");
}
