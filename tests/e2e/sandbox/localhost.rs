//! `localhost = "own"`: what a teammate serves there, who reaches it, and what is left of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::json;

use super::agents::{ordered, runs, shell_of};
use super::{With, python, works};
use crate::support::process::{children, command_line};
use crate::support::terminal::Terminal;
use crate::support::{PATIENCE, Running, Team, is_alive, signal};

/// Serves port 3000 of its 127.0.0.1: says who it is, and how it was asked.
const SERVES: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers['Upgrade']:
            self.protocol_version = 'HTTP/1.1'
            self.send_response(101)
            self.send_header('Connection', 'Upgrade')
            self.send_header('Upgrade', 'websocket')
            self.end_headers()
            self.wfile.write(self.rfile.readline())
            self.close_connection = True
            return
        said = f"{sys.argv[1]} asked as {self.headers['Host']} with {self.headers['Cookie']} for {self.path}".encode()
        self.send_response(200)
        self.send_header('Set-Cookie', 'sid=1; Domain=localhost')
        self.send_header('Content-Length', str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *_): pass
http.server.HTTPServer(('127.0.0.1', 3000), Handler).serve_forever()
"#;

/// Waits until something listens on port 3000, and prints who.
const ASKS: &str = "until (exec 9<>/dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done; \
    exec 9<>/dev/tcp/127.0.0.1/3000; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&9; tail -n 1 <&9";

/// A team with teammates that serve port 3000, each on a localhost of its own.
pub(crate) fn serving(network: &str, names: &[&str]) -> Option<Team> {
    let team = With::All.team(&[])?;
    let serves = python(&team, "serves.py", SERVES)?;
    team.shutdown("alice", &[], 0);
    team.write("team.toml", &format!("[sandbox]\nnetwork = {network}\n"));
    team.trust();
    for name in names {
        team.teamctl(["spawn", name, "--localhost", "own"]).ok();
        serve(&team, name, &serves);
    }
    Some(team)
}

fn serve(team: &Team, name: &str, serves: &str) {
    let served = json!({"command": format!("{serves} {name}"), "run_in_background": true});
    team.does(name, &format!("/bash {served}"));
    assert!(does(team, name, ASKS).starts_with(name));
}

fn does(team: &Team, name: &str, command: &str) -> String {
    let results = team.does(name, &format!("/bash {}", json!({"command": command})));
    assert_eq!(results[0]["is_error"], false, "{}", results[0]["content"]);
    results[0]["content"].as_str().unwrap().to_owned()
}

/// The pid of what keeps the localhost of a teammate.
pub(crate) fn keeper(team: &Team, name: &str) -> i32 {
    let all = children(team.pid(name));
    let mut keepers = all.into_iter().filter(|&pid| {
        command_line(pid).ends_with(" localhost") || command_line(pid).contains(" localhost ")
    });
    keepers.next().unwrap()
}

/// Which processes are in a network namespace, or hold it, as far as that can be seen.
fn inside(namespace: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let is_it = |path: std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|it| it.as_os_str() == namespace)
        };
        let held = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut held = held.into_iter().flatten().map_while(Result::ok);
        is_it(format!("/proc/{pid}/ns/net").into()) || held.any(|entry| is_it(entry.path()))
    })
    .collect()
}

/// An address that `teamctl port` serves.
struct Served {
    running: Running,
    url: String,
    host: String,
    port: u16,
}

impl Served {
    fn of(team: &Team, args: &[&str]) -> Self {
        let mut running = team.start_teamctl(["port"].iter().chain(args));
        let mut url = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut url)
            .unwrap();
        let url = url.trim().to_owned();
        let rest = url.strip_prefix("http://").unwrap_or(&url);
        let host = rest.split('/').next().unwrap().to_owned();
        let port = host.rsplit_once(':').unwrap().1.parse().unwrap();
        Self {
            running,
            url,
            host,
            port,
        }
    }

    fn get(&self, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        drop(stream.write_all(request.as_bytes()));
        let mut answer = String::new();
        // A connection that leads nowhere is cut.
        drop(stream.read_to_string(&mut answer));
        answer
    }

    fn as_browser(&self, path: &str, cookies: &str) -> String {
        let host = &self.host;
        self.get(path, &format!("Host: {host}\r\nCookie: {cookies}\r\n"))
    }
}

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Two serve one port; each reaches its own, in each of its commands, and neither the user's.
#[test]
fn teammates_serve_one_port_and_reach_their_own_alone() {
    let Some(team) = serving("false", &["alice", "bob"]) else {
        return;
    };
    let users = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = users.local_addr().unwrap().port();
    let reaches =
        format!("(exec 9<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo BROKEN; echo told");
    for name in ["alice", "bob"] {
        let told = does(&team, name, ASKS);
        assert_eq!(told, format!("{name} asked as None with None for /"));
        assert_eq!(does(&team, name, &reaches), "told");
        assert_eq!(does(&team, name, "grep -c eth /proc/net/dev || true"), "0");
    }
    let seen = |name| does(&team, name, "readlink /proc/self/ns/net");
    assert_eq!(seen("alice"), seen("alice"));
    assert_ne!(seen("alice"), seen("bob"));
    let rights = does(
        &team,
        "alice",
        "grep -c -e 'Cap[A-Z].*:.0000000000000000' /proc/self/status",
    );
    assert_eq!(rights, "5", "no command has any right there");
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        shown.contains("a localhost of its own")
            && shown.contains("3000 (`teamctl port alice 3000` opens it)"),
        "{shown}"
    );
    let shown = team.json(["status", "bob"]);
    assert_eq!(shown["members"][0]["serves"], json!([3000]));
    team.teamctl(["down"]).ok();
    team.until_no_process_is_left();
    assert!(!team.path("run/port-alice.sock").exists());
}

/// A view shows what teammates serve, also what begins while it is open, and waits for no keeper.
#[test]
fn top_shows_what_teammates_serve_and_waits_for_none_to_say_it() {
    let Some(team) = serving("false", &["alice", "bob"]) else {
        return;
    };
    signal(keeper(&team, "bob"), Signal::SIGSTOP);
    let mut top = Terminal::teamctl_at(&team, &["top"], (80, 24));
    let row = |screen: &str, name: &str| {
        let mut lines = screen.lines();
        let found = lines.find(|line| line.trim_start_matches(['▌', ' ']).starts_with(name));
        found.unwrap_or_default().to_owned()
    };
    top.until_screen("what alice serves", |screen| {
        row(screen, "alice").ends_with(" :3000")
    });
    // While bob is asked, keys do what they do.
    for (key, told) in [("3", "There are no tasks"), ("1", " alice ")] {
        top.press(key);
        top.until_screen(told, |screen| screen.contains(told));
    }
    assert!(!row(&top.screen(), "bob").contains(":3000"));
    signal(keeper(&team, "bob"), Signal::SIGCONT);
    top.until_screen("what bob serves", |screen| {
        row(screen, "bob").ends_with(" :3000")
    });
    // Nothing is written when a port is opened.
    let opens = "python3 -c \"import socket, time; s = socket.create_server(('127.0.0.1', 3001)); time.sleep(1000)\"";
    let opens = json!({"command": opens, "run_in_background": true});
    team.does("alice", &format!("/bash {opens}"));
    top.until_screen("both ports", |screen| {
        row(screen, "alice").ends_with(" :3000 :3001")
    });
    top.press("q");
    assert_eq!(top.finish(), Some(0));
}

/// One proxy serves all commands: one after the other, and one in the background.
#[test]
fn what_a_list_lets_through_is_reached_from_each_command() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in service.incoming().map_while(Result::ok) {
            drop(stream.write_all(b"SERVED\n"));
        }
    });
    let network = format!("['localhost']\nports = [{port}]");
    let Some(team) = serving(&network, &["alice"]) else {
        return;
    };
    let asks = format!(
        "head -n 1 < /dev/tcp/127.0.0.1/{port}; (exec 9<>/dev/tcp/127.0.0.1/4141; \
         printf 'CONNECT localhost:{port} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n' >&9; timeout 5 grep -ao SERVED <&9); \
         echo $HTTPS_PROXY"
    );
    for _ in 0..3 {
        let reached = works(&team, &[&asks]);
        assert_eq!(reached[0], "SERVED\nSERVED\nhttp://127.0.0.1:4141");
    }
    // Behind a closed gate a command is alone.
    team.teamctl(["request-plan", "alice", "what is there?"])
        .ok();
    team.until("the gate of alice to be closed", || {
        team.member("alice")["gate"] == "closed"
    });
    let closed = format!(
        "/bash {}",
        json!({"command": format!("(exec 9<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo BROKEN; (exec 9<>/dev/tcp/127.0.0.1/4141) 2>/dev/null && echo BROKEN; echo told")})
    );
    let results = team.does("alice", &closed);
    assert_eq!(results[0]["content"], "told");
}

#[test]
fn nothing_is_left_of_a_localhost_after_any_kill() {
    let Some(team) = serving("false", &["alice"]) else {
        return;
    };
    let namespace = || does(&team, "alice", "readlink /proc/self/ns/net");
    let first = namespace();
    // What keeps it is killed: the next command starts it again, and nothing else has ended.
    let before = keeper(&team, "alice");
    signal(before, Signal::SIGKILL);
    assert_eq!(namespace(), first);
    assert_ne!(keeper(&team, "alice"), before);
    assert!(does(&team, "alice", ASKS).starts_with("alice"));
    // Its socket is removed, as all in that folder may be.
    std::fs::remove_file(team.path("run/port-alice.sock")).unwrap();
    assert_eq!(namespace(), first);
    // The worker is killed, and so is its localhost. The next one can have the same number.
    let before = inside(&first);
    assert!(before.len() > 2, "{before:?}");
    team.kill_and_wait_for_restart("alice");
    team.until("the localhost to be gone", || {
        !before.iter().any(|&pid| is_alive(pid))
    });
    // The daemon is killed: nothing has ended.
    serve(&team, "alice", "python3 serves.py");
    let served = Served::of(&team, &["alice", "3000", "--tcp"]);
    assert!(served.get("/", "").contains("alice asked"));
    team.kill_daemon();
    assert!(served.get("/", "").contains("alice asked"));
    team.teamd(["start"]).ok();
    served.running.signal(Signal::SIGINT);
    served.running.finish().exits(130);
    // All three at once.
    for pid in [team.daemon_pid(), team.pid("alice"), keeper(&team, "alice")] {
        signal(pid, Signal::SIGKILL);
    }
    team.until_no_process_is_left();
}

#[test]
fn a_browser_that_has_the_key_sees_what_a_teammate_serves_and_no_other_does() {
    let Some(team) = serving("false", &["alice", "bob"]) else {
        return;
    };
    let alice = Served::of(&team, &["alice", "3000"]);
    let bob = Served::of(&team, &["bob", "3000"]);
    assert!(alice.host.starts_with("alice-3000-"), "{}", alice.url);
    let (_, key) = alice.url.split_once("/?").unwrap();
    let begun = alice.as_browser(&format!("/a?b=1&{key}"), "");
    assert_eq!(code(&begun), "303", "{begun}");
    let location = format!("location: http://{}/a?b=1\r\n", alice.host);
    assert!(begun.contains(&location), "{begun}");
    let (_, cookie) = begun.split_once("set-cookie: ").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let seen = alice.as_browser("/a?b=1", &format!("{cookie}; sid=2"));
    assert!(
        seen.ends_with("alice asked as localhost:3000 with sid=2 for /a?b=1"),
        "{seen}"
    );
    assert!(seen.contains("set-cookie: sid=1\r\n"), "{seen}");
    let upgrades = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nwhat is said\n",
        alice.host
    );
    let mut stream = TcpStream::connect(("127.0.0.1", alice.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(upgrades.as_bytes()).unwrap();
    let mut echoed = String::new();
    stream.read_to_string(&mut echoed).unwrap();
    assert!(
        echoed.starts_with("HTTP/1.1 101 ") && echoed.ends_with("what is said\n"),
        "{echoed}"
    );
    for (answer, expected) in [
        (alice.as_browser("/", ""), "401"),
        (alice.as_browser("/", "sid=2"), "401"),
        (bob.as_browser("/", cookie), "401"),
        (bob.as_browser(&format!("/?{key}"), ""), "401"),
        (
            alice.get(
                "/",
                &format!("Host: localhost:{}\r\nCookie: {cookie}\r\n", alice.port),
            ),
            "403",
        ),
        (
            alice.get("/", &format!("Host: evil.example\r\nCookie: {cookie}\r\n")),
            "403",
        ),
    ] {
        assert_eq!(code(&answer), expected, "{answer}");
        assert!(!answer.contains("asked as"), "{answer}");
    }
    // Nothing listens there.
    let none = Served::of(&team, &["alice", "3001"]);
    let (_, key) = none.url.split_once("/?").unwrap();
    let begun = none.as_browser(&format!("/?{key}"), "");
    let (_, cookie) = begun.split_once("set-cookie: ").unwrap();
    let seen = none.as_browser("/", cookie.split(';').next().unwrap());
    assert_eq!(code(&seen), "502", "{seen}");
    assert!(
        seen.contains("nothing listens on port 3001 of alice"),
        "{seen}"
    );
    none.running.signal(Signal::SIGINT);
    let told = none.running.finish().exits(130).stderr;
    assert!(told.contains("only 3000 so far"), "{told}");
    // It ends with the teammate.
    team.shutdown("bob", &["--force"], 0);
    assert!(code(&bob.as_browser("/", "x")) == "401");
}

/// A server that is started again is at the address that the browser has, also where its teammate
/// was. Meanwhile nothing of another one is there.
#[test]
fn an_address_goes_on_with_the_next_incarnation() {
    let Some(team) = serving("false", &["alice"]) else {
        return;
    };
    let served = Served::of(&team, &["alice", "3000"]);
    let (_, key) = served.url.split_once("/?").unwrap();
    let begun = served.as_browser(&format!("/?{key}"), "");
    let (_, cookie) = begun.split_once("set-cookie: ").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let seen = || served.as_browser("/", cookie);
    assert!(seen().contains("alice asked as"), "{}", seen());
    team.shutdown("alice", &["--force"], 0);
    let gone = seen();
    assert_eq!(code(&gone), "502", "{gone}");
    assert!(gone.contains("alice is not running"), "{gone}");
    team.teamctl(["spawn", "alice", "--resume"]).ok();
    let serves = python(&team, "serves.py", SERVES).unwrap();
    serve(&team, "alice", &serves);
    let again = seen();
    assert!(again.contains("alice asked as"), "{again}");
}

#[test]
fn what_cannot_have_a_localhost_of_its_own_is_refused_with_the_next_step() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    let refused = |team: &Team, args: &[&str], told: &[&str]| {
        let said = team
            .teamctl(["spawn", "carol", "--localhost", "own"].iter().chain(args))
            .exits(1)
            .stderr;
        for told in told {
            assert!(said.contains(told), "{said}");
        }
    };
    refused(&team, &[], &["network of the machine", "--no-network"]);
    refused(&team, &["--sandbox", "off"], &["takes a sandbox"]);
    let said = team.teamctl(["port", "alice", "3000"]).exits(7).stderr;
    assert!(
        said.contains("no localhost of its own") && said.contains("--localhost own"),
        "{said}"
    );
    team.teamctl(["spawn", "carol", "--localhost", "own", "--no-network"])
        .ok();
    team.shutdown("carol", &[], 0);
    let said = team.teamctl(["port", "carol", "3000"]).exits(7).stderr;
    assert!(said.contains("carol is not running"), "{said}");
    for with in [With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        refused(
            &team,
            &["--no-network"],
            &["namespaces of our own", "teamctl doctor"],
        );
    }
}

/// No tool reaches the socket at which the user asks, and none asks for another teammate.
#[test]
fn no_tool_asks_for_what_a_teammate_serves() {
    let Some(team) = serving("false", &["alice", "bob"]) else {
        return;
    };
    let attack = "import socket, glob\n\
        for family, place in [(socket.AF_UNIX, PLACE), (socket.AF_UNIX, '/proc/1/root' + PLACE)]:\n\
        \x20   tried('connect', lambda: socket.socket(family).connect(place))\n\
        tried('enter', lambda: open('/proc/1/ns/net'))\n";
    let socket = team.path("run/port-alice.sock");
    assert!(socket.exists());
    let attack = format!("PLACE = {:?}\n{attack}", socket.to_str().unwrap());
    let Some(attacks) = python(&team, "asks.py", &attack) else {
        return;
    };
    let told = does(&team, "bob", &attacks);
    assert!(!told.contains("BROKEN"), "{told}");
}

/// An agent has the same localhost in each piece of its work, and its gateway there.
#[test]
fn an_agent_has_a_localhost_of_its_own_whatever_its_network() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    let Some(serves) = python(&team, "serves.py", SERVES) else {
        return;
    };
    let Some(team) = shell_of(team, "", &["--localhost", "own"]) else {
        return;
    };
    let looks =
        "readlink /proc/self/ns/net; (exec 9<>/dev/tcp/127.0.0.1/4141) && echo $HTTPS_PROXY";
    let seen = || {
        let told = runs(&team, looks);
        told["content"].as_str().unwrap().to_owned()
    };
    let first = seen();
    assert!(first.ends_with("\nhttp://127.0.0.1:4141"), "{first}");
    for _ in 0..3 {
        assert_eq!(seen(), first);
    }
    team.send("carol", &ordered(&format!("{serves} carol")));
    let served = Served::of(&team, &["carol", "3000", "--tcp"]);
    team.until("carol to serve", || {
        served.get("/", "").contains("carol asked")
    });
}
