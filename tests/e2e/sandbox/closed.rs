//! A closed gate, and no network: what reads works, what writes and what reaches out fails.

use std::net::{TcpListener, UdpSocket};

use serde_json::json;

use super::{BROKEN, TRIED, With, attack, has, python, works};
use crate::support::Team;

const NETWORK: &str = r#"
import socket, sys
host, tcp, udp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def connect():
    s = socket.socket(); s.settimeout(3); s.connect((host, tcp))
def send():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hush", ("192.0.2.1", udp))
def v6():
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"hush", ("2001:db8::1", udp))
def ping():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b"\x08\0\0\0\0\0\0\0", ("192.0.2.1", 0))
def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
def name():
    socket.getaddrinfo("example.org", 80)
for attempt in (connect, send, v6, ping, raw, packet, name):
    tried(attempt.__name__, attempt)
"#;

/// A server of the machine itself must not be reached either.
fn no_network(team: &Team) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    let ports = (
        tcp.local_addr().unwrap().port(),
        udp.local_addr().unwrap().port(),
    );
    attack(
        team,
        &[&format!(
            "echo x > /dev/tcp/127.0.0.1/{} && echo BROKEN",
            ports.0
        )],
    );
    if let Some(network) = python(team, "network.py", NETWORK) {
        attack(
            team,
            &[&format!("{network} 127.0.0.1 {} {}", ports.0, ports.1)],
        );
    }
    assert!(tcp.accept().is_err(), "a connection came");
}

#[test]
fn without_network_nothing_is_reached() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&["--no-network"]) else {
            continue;
        };
        no_network(&team);
        works(&team, &["echo x > new && cat new"]);
    }
}

#[test]
fn what_one_command_starts_can_talk_to_itself_without_network() {
    let Some(team) = With::All.team(&["--no-network"]) else {
        return;
    };
    let Some(echo) = python(&team, "echo.py", super::ordinary::LOCALHOST) else {
        return;
    };
    assert_eq!(works(&team, &[&echo]), ["heard hello"]);
}

/// A teammate that has no plan approved yet carries these out; `bash` is not refused, and changes
/// nothing.
fn behind_a_closed_gate(with: With) {
    let Some(team) = with.team(&[]) else { return };
    team.write("old.txt", "a");
    team.write("network.py", &format!("{TRIED}{NETWORK}"));
    let attacks = [
        "echo x > old.txt && echo BROKEN",
        "echo x > new.txt && echo BROKEN",
        "rm old.txt && echo BROKEN",
        "mkdir new && echo BROKEN",
        "mv old.txt new.txt && echo BROKEN",
        "truncate -s 0 old.txt && echo BROKEN",
        "ln old.txt new.txt && echo BROKEN",
        "sed -i s/a/b/ old.txt && echo BROKEN",
        "(setsid bash -c 'sleep 0.1; echo x > new.txt') & true",
        "echo x > .team/planted && echo BROKEN",
        "echo x > /dev/tcp/127.0.0.1/1 && echo BROKEN",
    ];
    let calls = attacks
        .iter()
        .map(|command| format!("/bash {}", json!({ "command": command })));
    let background = format!(
        "/bash {}",
        json!({ "command": "echo x > new.txt", "run_in_background": true })
    );
    let reads = [
        "/bash cat old.txt; echo x > $TMPDIR/x && cat $TMPDIR/x",
        "/write_file new.txt x",
    ];
    let orders: Vec<String> = calls
        .chain([background])
        .chain(reads.map(str::to_owned))
        .collect();
    team.teamctl(["spawn", "carol", "--plan", "--prompt", &orders.join("\n")])
        .ok();
    team.until_finished("carol", 1);
    let results = team.results("carol");
    let said: Vec<&str> = results
        .iter()
        .map(|result| result["content"].as_str().unwrap())
        .collect();
    assert!(!said.iter().any(|said| said.contains(BROKEN)), "{said:#?}");
    assert!(said[attacks.len()].contains("gate is closed"), "{said:#?}");
    assert_eq!(said[attacks.len() + 1], "ax");
    assert!(
        said[attacks.len() + 2].contains("gate is closed"),
        "{said:#?}"
    );
    if with.has_mounts() {
        assert!(said[0].contains("Read-only file system"), "{said:#?}");
    }
    assert_eq!(team.text("old.txt"), "a");
    assert!(!team.made("new.txt") && !team.made("new") && !team.path("planted").exists());
}

#[test]
fn behind_a_closed_gate_bash_changes_nothing() {
    behind_a_closed_gate(With::All);
}

#[test]
fn behind_a_closed_gate_bash_changes_nothing_through_bubblewrap() {
    behind_a_closed_gate(With::Bubblewrap);
}

#[test]
fn behind_a_closed_gate_bash_changes_nothing_without_namespaces() {
    behind_a_closed_gate(With::Bare);
}

#[test]
fn a_closed_gate_keeps_shared_memory_and_terminals_out_of_reach() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&["--sandbox", "read-only"]) else {
            continue;
        };
        let Ok(shared) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            return;
        };
        let terminal = nix::pty::openpty(None, None).unwrap();
        let name = rustix::termios::ttyname(&terminal.slave, Vec::new())
            .unwrap()
            .into_string()
            .unwrap();
        rustix::io::write(&terminal.master, b"typed\n").unwrap();
        let shared = shared.path().display();
        let new = format!("/dev/shm/teamd-test-{}", std::process::id());
        attack(
            &team,
            &[
                &format!("echo x >> {shared}"),
                &format!("echo x > {new}"),
                &format!("echo shown > {name} && echo BROKEN"),
                &format!("timeout 1 head -n 1 {name} && echo BROKEN"),
            ],
        );
        assert!(!std::path::Path::new(&new).exists(), "{with:?}");
        assert_eq!(std::fs::read(shared.to_string()).unwrap(), b"", "{with:?}");
        // What was typed is still there for the program that it was typed for.
        let mut typed = [0; 16];
        assert_eq!(
            rustix::io::read(&terminal.slave, &mut typed),
            Ok(6),
            "{with:?}"
        );
    }
}

#[test]
fn behind_a_closed_gate_a_repository_can_be_read() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&["--sandbox", "read-only"]) else {
            continue;
        };
        if !has(&team, "git") {
            return;
        }
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=u", "-c", "user.email=u@example.org"];
            assert!(
                team.command("git", identity.iter().chain(args))
                    .output()
                    .unwrap()
                    .status
                    .success()
            );
        };
        team.write("notes.txt", "to be found\n");
        git(&["init", "-q"]);
        git(&["add", "notes.txt"]);
        git(&["commit", "-qm", "the first"]);
        let said = works(
            &team,
            &[
                "git log --oneline && git status --short && git diff",
                "grep -rn found --include=*.txt .",
            ],
        );
        assert!(
            said[0].contains("the first") && said[1].contains("to be found"),
            "{said:?}"
        );
        attack(
            &team,
            &[
                "git commit --allow-empty -qm second && echo BROKEN",
                "git checkout -qb new && echo BROKEN",
            ],
        );
        no_network(&team);
    }
}

#[test]
fn behind_a_closed_gate_cargo_tells_of_a_package() {
    let Some(team) = With::All.team(&["--sandbox", "read-only"]) else {
        return;
    };
    let Some(environment) = super::ordinary::toolchain(&team) else {
        return;
    };
    super::ordinary::package(&team);
    let said = works(
        &team,
        &[&format!(
            "{environment} cargo metadata --offline --no-deps --format-version 1"
        )],
    );
    assert!(said[0].contains("\"name\":\"tiny\""), "{said:?}");
}
