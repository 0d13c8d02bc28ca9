//! No approval, spawn or shutdown comes from a tool: it makes no Unix socket, and the daemon serves
//! no confined process.

use std::os::unix::net::{UnixDatagram, UnixListener};

use super::{With, attack, python};
use crate::support::Team;

/// Every way to a Unix socket that does not need another program's help.
const SOCKETS: &str = r#"
import os, socket, sys
def connect(to, kind=socket.SOCK_STREAM):
    def attempt():
        s = socket.socket(socket.AF_UNIX, kind)
        s.connect(to)
    return attempt
at = ".team/run/teamd.sock"
tried("path", connect(at))
tried("absolute", connect(os.path.abspath(at)))
tried("datagram", connect(at, socket.SOCK_DGRAM))
tried("packets", connect(at, socket.SOCK_SEQPACKET))
tried("abstract", connect("\0teamd"))
os.symlink(at, "link.sock")
tried("link", connect("link.sock"))
tried("proc", connect("/proc/self/cwd/" + at))
tried("outside", connect(sys.argv[1]))
tried("bind", lambda: socket.socket(socket.AF_UNIX).bind("own.sock"))
tried("bind abstract", lambda: socket.socket(socket.AF_UNIX).bind("\0own"))
def by_pair():
    a, b = socket.socketpair()
    a.connect(at)
tried("a pair", by_pair)
def datagrams(kind):
    def attempt():
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        a.sendto(b"x", sys.argv[2])
    return attempt
flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | flags):
    tried("datagrams of a pair, %d" % kind, datagrams(kind))
def inherited():
    for fd in os.listdir("/proc/self/fd"):
        s = socket.socket(fileno=int(fd))
        if s.family == socket.AF_UNIX:
            s.connect(at)
            return
    raise OSError("none of them")
tried("inherited", inherited)
for family in (40, 38, 17, 44):
    tried("family %d" % family, lambda: socket.socket(family, socket.SOCK_DGRAM))
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b"x")
    print("a pair works", b.recv(1))
"#;

fn no_socket(with: With) {
    let Some(team) = with.team(&[]) else { return };
    let listening = team.root().parent().unwrap().join("home/other.sock");
    let _listener = UnixListener::bind(&listening).unwrap();
    let service = listening.with_extension("datagrams");
    let heard = UnixDatagram::bind(&service).unwrap();
    heard.set_nonblocking(true).unwrap();
    let Some(sockets) = python(&team, "sockets.py", SOCKETS) else {
        return;
    };
    let said = attack(
        &team,
        &[&format!(
            "{sockets} {} {}",
            listening.display(),
            service.display()
        )],
    );
    assert!(heard.recv(&mut [0; 8]).is_err(), "a service heard a tool");
    assert!(said[0].contains("a pair works"), "{said:?}");
}

#[test]
fn a_tool_makes_no_unix_socket() {
    no_socket(With::All);
}

#[test]
fn a_tool_makes_no_unix_socket_without_namespaces_either() {
    no_socket(With::Bare);
}

fn no_command(with: With) {
    let Some(team) = with.team(&[]) else { return };
    team.teamctl([
        "spawn",
        "bob",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache",
    ])
    .ok();
    let id = team.until_planned("bob");
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let commands: Vec<String> = [
        format!("approve {id}"),
        format!("reject {id} --feedback no"),
        "spawn mallory".to_owned(),
        "shutdown bob".to_owned(),
        "shutdown bob --force".to_owned(),
        "interrupt bob".to_owned(),
        "request-plan bob".to_owned(),
        "forget bob".to_owned(),
        "send bob x".to_owned(),
    ]
    .into_iter()
    .map(|command| format!("timeout 5 {teamctl} {command} && echo BROKEN"))
    .chain([format!(
        "timeout 5 {} stop --force && echo BROKEN",
        env!("CARGO_BIN_EXE_teamd")
    )])
    .collect();
    attack(
        &team,
        &commands.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(team.request(&id)["status"], "pending");
    assert_eq!(
        (team.status("bob").as_str(), team.events("spawned")),
        ("awaiting_approval", 2)
    );
    team.teamctl(["approve", &id]).ok();
}

#[test]
fn a_tool_cannot_give_commands() {
    no_command(With::All);
}

#[test]
fn a_tool_cannot_give_commands_through_bubblewrap_either() {
    no_command(With::Bubblewrap);
}

#[test]
fn a_tool_cannot_give_commands_without_namespaces_either() {
    no_command(With::Bare);
}

/// The second lock: a process that reaches the socket all the same is known by its marks.
#[test]
fn the_daemon_serves_no_confined_process() {
    let team = Team::started();
    team.spawn("alice", "");
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let confined = ["--no-new-privs", teamctl, "shutdown", "alice"];
    let tried = team.command("setpriv", confined).output();
    let Ok(output) = tried else {
        return println!("skipped: there is no setpriv here");
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("this process is confined"),
        "{said}"
    );
    assert!(said.contains("hint: "), "{said}");
    assert_eq!(team.status("alice"), "idle");
    team.teamctl(["shutdown", "alice"]).ok();
}
