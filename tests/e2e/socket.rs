//! The control socket, and peers that say nonsense, nothing, or too much.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::json;
use teamd_shared::control::{Connection, Greeting, PROTOCOL, Peer, WorkerState, pair};
use teamd_shared::name::Name;

use crate::support::cgroup::note;
use crate::support::process::descriptors;
use crate::support::{Team, is_alive, read_piece, signal};

/// A frame: its length, and so many bytes.
pub(super) fn frame(bytes: &[u8]) -> Vec<u8> {
    [
        &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..],
        bytes,
    ]
    .concat()
}

/// The greeting of a command: protocol 1, `Peer::Client`.
pub(super) const GREETING: &[u8] = &[1, 0];

/// A request: its number, and `Command::Ping`.
pub(super) const PING: &[u8] = &[7, 0];

pub(super) fn connect(team: &Team) -> UnixStream {
    // Long paths are tested elsewhere.
    let stream = UnixStream::connect(team.path("run/teamd.sock")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

/// Waits until the other side has closed a connection.
fn until_closed(mut stream: UnixStream) {
    let mut bytes = [0; 4096];
    loop {
        match read_piece(&mut stream, &mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("it is still open: {error}"),
        }
    }
}

/// The bytes in which the worker of the first incarnation of a teammate greets the daemon.
fn greeting_of_worker(name: &str) -> Vec<u8> {
    let name = Name::new(name).unwrap();
    let state = Box::new(WorkerState::default());
    let peer = Peer::Worker {
        name,
        incarnation: 1,
        environment: None,
        state,
    };
    let (ours, theirs) = pair().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut sending = Connection::from_fd(ours).unwrap();
        sending
            .send(&Greeting {
                protocol: PROTOCOL,
                peer,
            })
            .await
            .unwrap();
    });
    let mut bytes = Vec::new();
    UnixStream::from(theirs).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Greets as a worker that this process is not: it is told so, and nothing else.
fn is_told_to_leave(team: &Team, greeting: &[u8]) {
    let mut stream = connect(team);
    stream.write_all(greeting).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    let heard = String::from_utf8_lossy(&heard);
    assert!(
        heard.ends_with("the journal knows no such incarnation of alice"),
        "{heard:?}"
    );
}

#[test]
fn garbage_on_the_control_socket_ends_that_connection_and_nothing_else() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.daemon_pid();
    let huge = [&[1_u8, 253][..], &(1_u64 << 45).to_le_bytes()].concat();
    let greeted = |frame_of: &[u8]| [frame(GREETING), frame(frame_of)].concat();
    let hostile: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        u32::MAX.to_be_bytes().to_vec(),
        ((4 << 20) + 1_u32).to_be_bytes().to_vec(),
        frame(b""),
        frame(&[0xff; 300]),
        frame(&huge),
        frame(&[GREETING, b"more"].concat()),
        greeted(b""),
        greeted(&[0xff; 300]),
        greeted(&[7, 250]),
        greeted(&huge),
        greeted(&[PING, b"more"].concat()),
    ];
    for bytes in hostile {
        let mut stream = connect(&team);
        stream.write_all(&bytes).unwrap();
        until_closed(stream);
    }
    // An unknown worker is told to leave, whatever it says it is.
    is_told_to_leave(&team, &greeting_of_worker("alice"));
    assert_eq!(team.json(["status"])["daemon"]["pid"], pid);
    assert_eq!(team.status("alice"), "idle");
    team.teamctl(["shutdown", "alice"]).ok();
}

#[test]
fn stalled_connections_hold_up_no_command() {
    let team = Team::started();
    team.spawn("alice", "");
    // One says nothing, one half a length, one half a frame, one half a request.
    let mut silent = connect(&team);
    silent.write_all(b"").unwrap();
    let mut half_a_length = connect(&team);
    half_a_length.write_all(&[0, 0]).unwrap();
    let mut half_a_frame = connect(&team);
    half_a_frame.write_all(&[0, 0, 0, 2, 1]).unwrap();
    let mut half_a_request = connect(&team);
    half_a_request
        .write_all(&[frame(GREETING), vec![0, 0, 1, 0, 7]].concat())
        .unwrap();
    // One asks and asks, and never reads: it is cut off.
    let mut deaf = connect(&team);
    deaf.write_all(&frame(GREETING)).unwrap();
    let pings = frame(PING).repeat(1000);
    let cut_off = (0..1000).any(|_| deaf.write_all(&pings).is_err());
    assert!(cut_off, "a million requests, and not one reply was read");
    team.spawn("bob", "");
    team.teamctl(["shutdown", "alice", "bob"]).ok();
    // A connection that does not greet is closed; one that has greeted may take its time.
    for item in [silent, half_a_length, half_a_frame] {
        until_closed(item);
    }
    half_a_request.set_nonblocking(true).unwrap();
    let still_open = half_a_request.read(&mut [0]).unwrap_err();
    assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = hard.min(4096);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).unwrap();
    }
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.daemon_pid();
    let before = descriptors(pid);
    let connections: Vec<_> = (0..1000)
        .map(|number| {
            let mut stream = connect(&team);
            match number % 3 {
                0 => {}
                1 => stream.write_all(&frame(GREETING)).unwrap(),
                _ => stream
                    .write_all(&[frame(GREETING), frame(PING)].concat())
                    .unwrap(),
            }
            stream
        })
        .collect();
    team.json(["status"]);
    team.spawn("bob", "");
    drop(connections);
    team.teamctl(["shutdown", "bob"]).ok();
    if before.is_some() {
        team.until("the daemon to have closed them", || {
            descriptors(pid) <= before
        });
    }
    assert_eq!(team.daemon_pid(), pid);
}

/// Bytes, as perl writes them in a text.
fn in_perl(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// A worker has the marks of the daemon that began it: the next one may have fewer.
#[test]
fn a_worker_that_a_more_confined_daemon_began_is_heard_by_the_next_one() {
    let team = Team::new();
    let confined = ["--no-new-privs", env!("CARGO_BIN_EXE_teamd"), "start"];
    let Ok(started) = team.command("setpriv", confined).output() else {
        return note("no daemon is more confined than the next one: there is no setpriv");
    };
    assert!(started.status.success(), "{started:?}");
    team.spawn("alice", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    assert_eq!(
        team.teamd(["--json", "start"]).ok().json()["adopted"],
        json!(["alice"])
    );
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!is_alive(pid));
    assert_eq!(team.status("alice"), "shutdown");
}

/// What it says counts for nothing: it is not the process of the journal.
#[test]
fn a_confined_process_that_says_that_it_is_a_worker_is_none() {
    let team = Team::started();
    team.spawn("alice", "");
    let greeting = in_perl(&greeting_of_worker("alice"));
    let program = format!(
        r#"use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, pack_sockaddr_un($ARGV[0])) or die;
           syswrite($s, "{greeting}"); my $said = ""; sysread($s, $said, 4096); print $said;"#
    );
    let socket = team.path("run/teamd.sock");
    let made = team
        .command("setpriv", ["--no-new-privs", "perl", "-e", &program])
        .arg(socket)
        .output();
    match made {
        Ok(made) if made.status.success() => {
            let said = String::from_utf8_lossy(&made.stdout);
            assert!(
                said.contains("the journal knows no such incarnation of alice"),
                "{said:?}"
            );
        }
        // There is no setpriv, or no perl.
        Err(no_setpriv) => {
            return note(&format!(
                "no confined process greets: setpriv: {no_setpriv}"
            ));
        }
        Ok(made) => {
            assert!(made.status.code() == Some(127), "{made:?}");
            return note("no confined process greets: there is no perl");
        }
    }
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
}

/// A connection can outlive the process that made it, and a pid can be given again: a process that
/// is gone has no rights. Failure 25 (A, B, C; mcp_agent_mail#99).
#[test]
fn a_connection_whose_maker_is_gone_is_no_worker() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let greeting = greeting_of_worker("alice");
    // From a process that is still there it is understood, and answered.
    is_told_to_leave(&team, &greeting);
    let greeting = in_perl(&greeting);
    // Its child greets when the maker of the connection is gone, and the daemon has not accepted it
    // yet.
    let program = format!(
        r#"use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, pack_sockaddr_un($ARGV[0])) or die;
           exit 0 if fork; close STDOUT; close STDERR; syswrite($s, "{greeting}"); my $said = ""; my $more = "";
           $said .= $more while sysread($s, $more, 4096);
           open(my $out, ">", "heard.new"); print $out $said; close $out; rename("heard.new", "heard");"#
    );
    signal(daemon, Signal::SIGSTOP);
    let socket = team.path("run/teamd.sock");
    let made = team.command("perl", ["-e", &program]).arg(socket).output();
    signal(daemon, Signal::SIGCONT);
    match made {
        Ok(made) => assert!(made.status.success(), "{made:?}"),
        Err(no_perl) => {
            return note(&format!(
                "no process greets for one that is gone: perl: {no_perl}"
            ));
        }
    }
    team.until("the connection to be closed", || {
        team.root().join("heard").exists()
    });
    let heard = std::fs::read(team.root().join("heard")).unwrap();
    assert!(
        heard.is_empty(),
        "no process is welcomed, and none told to leave: {heard:?}"
    );
    // The worker has its own connection still.
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
}

/// A worker that is stopped does not read what is said to it: it is cut off before the queue grows
/// without end, and hears all again when it goes on.
#[test]
fn a_stopped_worker_is_cut_off_and_comes_back() {
    // More than may wait for a worker; so many at once that the asking command is not cut off, too.
    const INTERRUPTS: (usize, usize) = (12, 500);
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    // `Command::Interrupt` of alice, again and again; here the replies are read.
    let mut stream = connect(&team);
    stream.write_all(&frame(GREETING)).unwrap();
    let interrupt = frame(&[&[7, 5, 5], &b"alice"[..], &[0, 0]].concat());
    let mut length = [0; 4];
    for _ in 0..INTERRUPTS.0 {
        stream.write_all(&interrupt.repeat(INTERRUPTS.1)).unwrap();
        for _ in 0..INTERRUPTS.1 {
            stream.read_exact(&mut length).unwrap();
            stream
                .read_exact(&mut vec![0; u32::from_be_bytes(length) as usize])
                .unwrap();
        }
    }
    team.until("it to be said", || {
        team.file("log/teamd.log").contains("does not listen")
    });
    signal(pid, Signal::SIGCONT);
    team.until("alice to be back", || {
        team.file("log/alice.log").contains("the daemon is back")
    });
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(
        (team.pid("alice"), team.status("alice")),
        (0, "shutdown".to_owned())
    );
}
