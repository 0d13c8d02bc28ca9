//! Over a real `sshd`: the team lives where it is reached by ssh alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::mcp_client::McpClient;
use crate::support::process::command_line;
use crate::support::sshd::{BOX, Sshd};
use crate::support::terminal::Terminal;
use crate::support::{PATIENCE, Running, Team, is_alive, poll_until, signal};

/// A team on another machine, and this one.
struct Apart {
    sshd: Sshd,
    there: Team,
    here: Team,
    /// What `-H` is given.
    at: String,
}

impl Apart {
    fn begin() -> Option<Self> {
        let there = Team::new();
        let sshd = Sshd::of(&there)?;
        let here = sshd.reached_from(Team::new());
        let at = format!("{BOX}:{}", there.root().display());
        Some(Self {
            sshd,
            there,
            here,
            at,
        })
    }

    fn words<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [&["-H", self.at.as_str()], args].concat()
    }

    /// The `teamctl` that runs there with this command.
    fn far_pid(&self, command: &str) -> Option<i32> {
        let mut all = self.there.processes().into_iter();
        all.find(|pid| {
            let line = command_line(*pid);
            line.starts_with("teamctl") && line.contains(command)
        })
    }

    fn until_far(&self, command: &str) -> i32 {
        assert!(
            poll_until(&mut || self.far_pid(command).is_some()),
            "{command}"
        );
        self.far_pid(command).unwrap()
    }
}

#[test]
fn a_command_runs_on_the_team_there_and_only_there() {
    let Some(apart) = Apart::begin() else { return };
    let run = |args: &[&str]| apart.here.teamctl(apart.words(args));
    run(&["spawn", "alice", "--model", "script"]).ok();
    let text = "/bash printf '%s|' 'it'\\''s' \"$(echo a\\\\b)\" '!x'\ndone";
    run(&["send", "alice", text]).ok();
    run(&["wait", "alice"]).ok();
    let stdin = "/bash pwd > where.txt";
    let send = apart.words(&["send", "alice", "-"]);
    apart.here.teamctl_with(send, stdin).ok();
    run(&["wait", "alice"]).ok();
    assert!(apart.there.made("where.txt"));
    let inbox = run(&["--json", "inbox"]).ok();
    let shown = inbox.json();
    assert_eq!(shown.as_array().unwrap().len(), 2, "{shown}");
    let results = apart.there.results("alice");
    assert!(
        results[0].to_string().contains("it's|a\\\\b|!x|"),
        "{results:?}"
    );
    run(&["send", "bob", "hi"]).exits(4);
    run(&["shutdown", "alice"]).ok();
    run(&["down"]).ok();
    run(&["send", "alice", "hi"]).run_failed();
    assert!(!apart.here.path("").exists());
    apart.there.until_no_process_is_left();
}

#[test]
fn a_view_is_drawn_here_at_the_size_of_this_terminal() {
    let Some(apart) = Apart::begin() else { return };
    if !apart.sshd.has_terminals() {
        return;
    }
    apart.there.spawn("alice", "/bash echo hello from there");
    let mut top = Terminal::teamctl_at(&apart.here, &apart.words(&["top"]), (80, 24));
    top.until_screen("the teammate", |screen| {
        screen.contains("hello from there") && screen.contains("q quit")
    });
    assert_eq!(top.wrapped_rows(), 0);
    top.resize((60, 15));
    top.until_screen("the smaller size", |screen| {
        screen.lines().count() == 15 && screen.contains("alice")
    });
    top.press("q");
    assert_eq!(top.finish(), Some(0));
    let mut chat = Terminal::teamctl(&apart.here, &apart.words(&["attach", "alice"]));
    chat.until("alice (script) is here");
    chat.line("/bash echo typed here");
    chat.until_screen("the answer", |screen| screen.contains("↳ typed here"));
    chat.press("\u{4}");
    assert_eq!(chat.finish(), Some(0));
    let status = Terminal::teamctl_at(&apart.here, &apart.words(&["status"]), (80, 24));
    status.until_styled("alice", true, None);
    assert_eq!(status.finish(), Some(0));
    // A question is asked at the terminal here.
    apart
        .there
        .write("team.toml", "[sandbox]\nwritable = ['/var/tmp']\n");
    let mut spawn = Terminal::teamctl(&apart.here, &apart.words(&["spawn", "bob"]));
    spawn.until("Trust this? [y/N]");
    spawn.line("n");
    assert_eq!(spawn.finish(), Some(3));
}

#[test]
fn what_waits_there_ends_with_what_waits_here() {
    let Some(mut apart) = Apart::begin() else {
        return;
    };
    apart.there.teamd(["start"]).ok();
    for which in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        for command in [&["wait", "--events"][..], &["events", "--follow"], &["mcp"]] {
            let running = apart.here.start_teamctl(apart.words(command));
            let far = apart.until_far(command.last().unwrap());
            running.signal(which);
            drop(running.finish());
            assert!(poll_until(&mut || !is_alive(far)), "{which} {command:?}");
        }
    }
    let follows = apart.words(&["events", "--follow"]);
    let mut running = apart.here.start_teamctl(follows);
    let far = apart.until_far("--follow");
    drop(running.stdout());
    running.finish().ok();
    assert!(poll_until(&mut || !is_alive(far)));
    // The machine is gone.
    let waits = apart.here.start_teamctl(apart.words(&["wait", "--events"]));
    let far = apart.until_far("--events");
    apart.sshd.disconnect();
    let run = waits.finish().exits(1);
    assert!(run.stderr.contains("has lost it"), "{run:?}");
    assert!(poll_until(&mut || !is_alive(far)));
}

#[test]
fn a_view_ends_with_the_connection_and_leaves_the_terminal_as_it_was() {
    let Some(mut apart) = Apart::begin() else {
        return;
    };
    if !apart.sshd.has_terminals() {
        return;
    }
    apart.there.teamd(["start"]).ok();
    let top = Terminal::teamctl(&apart.here, &apart.words(&["top"]));
    top.until_screen("the view", |screen| screen.contains("q quit"));
    let far = apart.until_far("top");
    apart.sshd.disconnect();
    top.until_screen("the error on the usual screen", |screen| {
        screen.contains("has lost it") && !screen.contains("q quit")
    });
    assert_eq!(top.finish(), Some(1));
    assert!(poll_until(&mut || !is_alive(far)));
}

#[test]
fn an_agent_leads_through_the_pipe() {
    let Some(apart) = Apart::begin() else { return };
    let words = apart.words(&["mcp"]);
    let command = apart.here.command(env!("CARGO_BIN_EXE_teamctl"), words);
    let mut client = McpClient::run(command);
    assert_eq!(client.initialized["serverInfo"]["name"], "teamd");
    let input = json!({"name": "alice", "role": "coder", "prompt": "hi"});
    client.call("spawn_teammate", input).ok();
    apart.there.wait_for("alice", "idle");
    let far = apart.until_far("mcp");
    drop(client);
    assert!(poll_until(&mut || !is_alive(far)));
}

/// An agent that leads is known by the process that has run `teamctl mcp`: what a person runs is not
/// below it, although `ssh` shares a connection.
#[test]
fn over_a_shared_connection_a_person_stays_a_person_and_commands_end() {
    let Some(apart) = Apart::begin() else { return };
    let has_terminals = apart.sshd.has_terminals();
    apart.sshd.share_connections();
    let run = |args: &[&str]| apart.here.teamctl(apart.words(args));
    run(&[
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Drop it",
    ])
    .ok();
    let command = apart
        .here
        .command(env!("CARGO_BIN_EXE_teamctl"), apart.words(&["mcp"]));
    let client = McpClient::run(command);
    let id = apart.there.until_planned("alice");
    run(&["approve", &id]).ok();
    drop(client);
    for which in [Signal::SIGKILL, Signal::SIGTERM] {
        let running = apart.here.start_teamctl(apart.words(&["wait", "--events"]));
        let far = apart.until_far("--events");
        running.signal(which);
        assert!(poll_until(&mut || !is_alive(far)), "{which}");
        drop(running.finish());
        if !has_terminals {
            continue;
        }
        let mut top = Terminal::teamctl(&apart.here, &apart.words(&["top"]));
        top.until_screen("the view", |screen| screen.contains("q quit"));
        let far = apart.until_far("top");
        top.signal(which);
        top.ended();
        assert!(poll_until(&mut || !is_alive(far)), "{which}");
    }
    let page = Page::of(&apart, &[]);
    let port = page.port;
    page.running.signal(Signal::SIGKILL);
    drop(page.running.finish());
    assert!(poll_until(
        &mut || TcpStream::connect(("127.0.0.1", port)).is_err()
    ));
}

/// A page that is served there.
struct Page {
    running: Running,
    port: u16,
    key: String,
}

impl Page {
    fn of(apart: &Apart, args: &[&str]) -> Self {
        let args = [&["web"], args].concat();
        let mut running = apart.here.start_teamctl(apart.words(&args));
        let mut url = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut url)
            .unwrap();
        let address = url.trim().strip_prefix("http://127.0.0.1:");
        let (port, key) = address.unwrap().split_once("/#").unwrap();
        Self {
            running,
            port: port.parse().unwrap(),
            key: key.to_owned(),
        }
    }

    /// The first line of what is answered on a port to a request that names a host.
    fn answer(&self, port: u16, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let key = &self.key;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

#[test]
fn the_page_is_reached_by_the_forwarded_address_alone_and_ends_with_either_side() {
    let Some(apart) = Apart::begin() else { return };
    apart.there.spawn("alice", "");
    let view = "/view?view=overview";
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    let taken = apart.words(&["web", "--port"]);
    let taken_port = port.to_string();
    let taken = [taken, vec![&taken_port]].concat();
    apart.here.teamctl(taken).exits(1);
    drop(free);
    for (round, which) in [Signal::SIGINT, Signal::SIGKILL, Signal::SIGTERM]
        .into_iter()
        .enumerate()
    {
        let page = match round {
            0 => Page::of(&apart, &["--port", &port.to_string(), "--read-only"]),
            _ => Page::of(&apart, &[]),
        };
        assert!(round > 0 || page.port == port);
        let far = apart.until_far("web");
        let line = command_line(far);
        assert!(
            line.contains(&format!("--forwarded-port={}", page.port)),
            "{line}"
        );
        assert_eq!(
            page.answer(page.port, &format!("127.0.0.1:{}", page.port), view),
            "HTTP/1.1 200 OK"
        );
        for other in ["evil.example", "127.0.0.1", "127.0.0.1:1", "box"] {
            let answer = page.answer(page.port, other, view);
            assert_eq!(answer, "HTTP/1.1 403 Forbidden", "{other}");
        }
        let port = page.port;
        page.running.signal(which);
        drop(page.running.finish());
        assert!(poll_until(&mut || !is_alive(far)), "{which}");
        assert!(
            poll_until(&mut || TcpStream::connect(("127.0.0.1", port)).is_err()),
            "{which}"
        );
    }
    let page = Page::of(&apart, &[]);
    signal(apart.until_far("web"), Signal::SIGKILL);
    let run = page.running.finish().exits(1);
    assert!(run.stderr.contains("has lost it"), "{run:?}");
    let left = std::fs::read_dir(apart.here.temp()).unwrap().count();
    assert_eq!(left, 0, "sockets are left");
}
