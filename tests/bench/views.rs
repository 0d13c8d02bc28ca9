//! What the two live views cost with 1,000 teammates and 100,000 messages, and a review of a large
//! diff.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use teamd_shared::process::Identity;
use teamd_shared::testing::{journal_member, roster_member};

use crate::Effort;
use crate::figure::{Figure, Sample, time};
use crate::idle::scheduled;
use crate::lifecycle::run;
use crate::support::browser::drive;
use crate::support::process::{let_pass, wakes};
use crate::support::terminal::Terminal;
use crate::support::{PATIENCE, Team, poll_until};

const TEAMMATES: usize = 1_000;
/// For each of them.
const MESSAGES: usize = 100;
const ANSWERS: usize = 10;
/// The lines of the diff that is reviewed.
const DIFF: usize = 20_000;
/// What a key of the review may take.
const TASK: Duration = Duration::from_millis(50);
/// How often the screen is looked at.
const LOOK: Duration = Duration::from_micros(500);
/// What was begun before must not be counted.
const SETTLE: Duration = Duration::from_secs(5);
const SIZE: (u16, u16) = (200, 60);

/// Measures both.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let team = team();
    let idle = Duration::from_secs(if effort.quick { 10 } else { 60 });
    let times = effort.of(30);
    let mut figures = Vec::new();
    let mut heads = Vec::new();
    for (view, [paint, update, memory, cpu]) in [
        ("`top`", top(&team, times, idle)),
        ("`web`, the server", web(&team, times, idle)),
    ] {
        heads.extend([
            (view, "first paint", paint),
            (view, "a line is appended → shown", update),
            (view, "memory (RSS)", memory),
            (view, "idle", cpu),
        ]);
    }
    for (view, what, measured) in heads {
        figures.push(row(view, what, measured));
    }
    figures.extend(answers(&team));
    figures.extend(browser(&team, times));
    figures.extend(review(times));
    figures.extend(page_review());
    figures
}

/// The review of a large diff, at the terminal and in `top`.
fn review(times: usize) -> Vec<Figure> {
    let team = crate::work::team("[work]\ncheck = \"true\"\n");
    run(&team, &["task", "add", "sum up", "--review", "person"]);
    let lines = format!("seq {DIFF} | sed 's/.*/let x& = total(&, \"a\");/' > calc.rs");
    let submit = "/task_update {\"task_id\": 1, \"status\": \"completed\"}";
    let work = format!(
        "/claim_task {{\"task_id\": 1}}\n/bash {lines}; git add .; git commit -qm work\n{submit}"
    );
    run(&team, &["send", "alice", &work]);
    team.until("the review", || {
        team.file("tasks/1.json").contains("\"reviewing\"")
    });
    let [mut first, mut in_top, mut longest] = [(); 3].map(|()| Sample::default());
    let is_shown = |screen: &str| screen.contains(&format!("+{DIFF} -0"));
    for _ in 0..times {
        let began = Instant::now();
        let mut terminal = Terminal::teamctl_at(&team, &["review", "1"], SIZE);
        first.add(until(began, &terminal, is_shown));
        longest.add(keys(&mut terminal));
        terminal.press("q");
        terminal.finish();
        let mut terminal = Terminal::teamctl_at(&team, &["top"], SIZE);
        terminal.press("2");
        terminal.until_screen("the request", |screen| screen.contains("▌ alice"));
        let began = Instant::now();
        terminal.press("\r");
        in_top.add(until(began, &terminal, is_shown));
        terminal.press("qq");
        terminal.finish();
    }
    let name = format!("a diff of {DIFF} lines");
    let is_met = longest.p50() <= TASK;
    let mut keys = row(
        "`review`",
        &format!("{name}, the slowest of its keys → shown"),
        longest.to_string(),
    );
    keys.aim = "≤ 50 ms";
    keys.met = is_met;
    vec![
        row(
            "`review`",
            &format!("{name}, first frame"),
            first.to_string(),
        ),
        row(
            "`top`",
            &format!("{name}, Enter → first frame"),
            in_top.to_string(),
        ),
        keys,
    ]
}

/// Presses the keys of a review that move far or lay all out anew. Returns the longest time until
/// one was shown.
fn keys(terminal: &mut Terminal) -> Duration {
    let mut longest = Duration::ZERO;
    for key in ["n", " ", " ", "G", "s", "g", "n", "o", "o", "G"] {
        // Colours come later than the frame that answers the key.
        let before = terminal.screen();
        let began = Instant::now();
        terminal.press(key);
        longest = longest.max(until(began, terminal, |screen| screen != before));
    }
    longest
}

/// Returns how long it takes from then on until the screen is as it should be.
fn until(began: Instant, terminal: &Terminal, is_so: impl Fn(&str) -> bool) -> Duration {
    while !is_so(&terminal.screen()) {
        let screen = terminal.screen();
        assert!(
            began.elapsed() < PATIENCE,
            "in vain; on the screen:\n{screen}"
        );
        std::thread::park_timeout(LOOK);
    }
    began.elapsed()
}

fn row(view: &str, what: &str, measured: String) -> Figure {
    Figure {
        name: format!("{view}: {what}"),
        measured,
        limit: String::new(),
        ratio: None,
        aim: "",
        met: true,
    }
}

fn top(team: &Team, times: usize, idle: Duration) -> [String; 4] {
    let began = Instant::now();
    let mut terminal = Terminal::teamctl_at(team, &["top"], SIZE);
    let paint = until(began, &terminal, |screen| screen.contains("▌ "));
    let paint = time(paint);
    terminal.press("4");
    let_pass(SETTLE);
    let mut sample = Sample::default();
    for n in 0..times {
        let began = append(team, n, 0);
        sample.add(until(began, &terminal, |screen| {
            screen.contains(&text(n, 0))
        }));
        let_pass(Duration::from_millis(100));
    }
    terminal.press("1");
    let rest = at_rest(terminal.pid(), idle);
    terminal.press("q");
    terminal.finish();
    [paint, sample.to_string(), rest.0, rest.1]
}

fn web(team: &Team, times: usize, idle: Duration) -> [String; 4] {
    let began = Instant::now();
    let mut page = Page::of(team);
    let mut events = page.stream("overview");
    next(&mut events);
    let paint = time(began.elapsed());
    let_pass(SETTLE);
    let mut sample = Sample::default();
    for n in 0..times {
        let began = append(team, n, 1);
        while !next(&mut events).contains(&text(n, 1)) {}
        sample.add(began.elapsed());
        let_pass(Duration::from_millis(200));
    }
    // Each view has a reader, and none of them anything to read.
    let others: Vec<_> = VIEWS.iter().map(|view| page.stream(view)).collect();
    let rest = at_rest(page.running.pid(), idle);
    drop((events, others));
    page.end();
    [paint, sample.to_string(), rest.0, rest.1]
}

const VIEWS: [&str; 6] = [
    "requests",
    "board",
    "conversation&name=w1",
    "sequence&last=200&lifelines=13",
    "timeline&seconds=3600",
    "cost",
];

/// The first answer of each view, once all is read: its size, and how long it takes.
fn answers(team: &Team) -> Vec<Figure> {
    let mut page = Page::of(team);
    drop(page.stream("cost"));
    let_pass(SETTLE);
    let mut sizes = String::new();
    for view in ["overview"].iter().chain(&VIEWS) {
        let began = Instant::now();
        let first = next(&mut page.stream(view));
        let name = view.split('&').next().unwrap();
        write!(
            sizes,
            "{name} {} kB in {}; ",
            first.len() / 1000,
            time(began.elapsed())
        )
        .unwrap();
    }
    page.end();
    vec![row(
        "`web`, the server",
        "first answer of a view",
        sizes.trim_end_matches("; ").to_owned(),
    )]
}

fn browser(team: &Team, times: usize) -> Vec<Figure> {
    let page = Page::of(team);
    let file = team.path("inbox/lead.jsonl");
    let said = drive(
        "measure.mjs",
        &[&page.url, file.to_str().unwrap(), &times.to_string()],
    );
    page.end();
    let Some(said) = said else { return Vec::new() };
    let said: Value = serde_json::from_str(&said).unwrap();
    let span = |value: &Value| Duration::from_secs_f64(value.as_f64().unwrap() / 1e3);
    let mut sample = Sample::default();
    for took in said["took"].as_array().unwrap().iter() {
        sample.add(span(took));
    }
    let view = "the page in Chromium";
    vec![
        row(view, "first paint", time(span(&said["paint"]))),
        row(view, "first view", time(span(&said["shown"]))),
        row(view, "a line is appended → shown", sample.to_string()),
        row(
            view,
            "heap",
            format!("{:.1} MB", said["heap"].as_f64().unwrap() / 1e6),
        ),
    ]
}

/// A review of 20,000 lines of source, scrolled through to its end.
fn page_review() -> Vec<Figure> {
    let team = crate::work::team("[work]\ncheck = \"true\"\n");
    let make = "for i in $(seq 20000); do echo \"    let line_$i = \\\"text $i\\\"; // why\"; done > long.rs; git add .; git commit -qm work";
    let submit = r#"/task_update {"task_id": 1, "status": "completed"}"#;
    let work = format!("/claim_task {{\"task_id\": 1}}\n/bash {make}\n{submit}");
    team.teamctl(["task", "add", "work", "--review", "person"])
        .ok();
    team.teamctl(["send", "alice", &work]).ok();
    let mut id = String::new();
    team.until("the review", || {
        let reviews = team.json(["reviews"]);
        let found = reviews[0]["request_id"].as_str();
        id = found.unwrap_or_default().to_owned();
        found.is_some()
    });
    let page = Page::of(&team);
    let said = drive("scroll.mjs", &[&page.url, &id]);
    page.end();
    let Some(said) = said else { return Vec::new() };
    let said: Value = serde_json::from_str(&said).unwrap();
    let view = "the page in Chromium, a diff of 20,000 lines";
    let figure = |what: &str, part: &str| {
        let span = Duration::from_secs_f64(said[part].as_f64().unwrap() / 1e3);
        row(view, what, time(span))
    };
    vec![
        figure("opened → the first lines", "first"),
        figure("opened → all has come", "whole"),
        figure(
            "the longest task while scrolled (0: none over 50 ms)",
            "longest",
        ),
    ]
}

/// Memory, and what the process does while nothing happens.
fn at_rest(pid: i32, idle: Duration) -> (String, String) {
    // What it has begun is done. One that never rests is measured all the same.
    poll_until(&mut || {
        let before = wakes(pid);
        let_pass(Duration::from_secs(2));
        wakes(pid) - before <= 1
    });
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let rss = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kilobytes: f64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    let before = (scheduled(pid).0, wakes(pid));
    let_pass(idle);
    let milliseconds = (scheduled(pid).0 - before.0) as f64 / 1e6;
    let woken = wakes(pid) - before.1;
    (
        format!("{:.1} MB", kilobytes / 1024.0),
        format!(
            "CPU {milliseconds:.1} ms in {} s, woken {woken} times",
            idle.as_secs()
        ),
    )
}

fn text(n: usize, view: usize) -> String {
    format!("measured {view}-{n}.")
}

/// Appends a message to the inbox of the lead, and returns when that began.
fn append(team: &Team, n: usize, view: usize) -> Instant {
    let line = message("w1", "lead", &text(n, view), teamd_shared::clock::wall());
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(team.path("inbox/lead.jsonl"))
        .unwrap();
    let began = Instant::now();
    file.write_all(line.as_bytes()).unwrap();
    began
}

fn message(from: &str, to: &str, content: &str, at: f64) -> String {
    let line = json!({"id": uuid::Uuid::now_v7(), "type": "message", "from": from, "to": to, "content": content, "timestamp": at});
    format!("{line}\n")
}

/// A page that is served.
struct Page {
    running: crate::support::Running,
    url: String,
}

impl Page {
    fn of(team: &Team) -> Self {
        let mut running = team.start_teamctl(["web"]);
        let mut url = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut url)
            .unwrap();
        Self {
            running,
            url: url.trim().to_owned(),
        }
    }

    fn stream(&mut self, view: &str) -> BufReader<TcpStream> {
        let (address, key) = self
            .url
            .strip_prefix("http://")
            .unwrap()
            .split_once("/#")
            .unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET /events?view={view} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\r\n"
        )
        .unwrap();
        BufReader::new(stream)
    }

    fn end(self) {
        self.running.signal(nix::sys::signal::Signal::SIGINT);
        self.running.finish();
    }
}

/// Returns the next event of a stream.
fn next(events: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    line
}

/// A team directory without a daemon: all of its members run (as this process), some wait for an
/// answer, some work.
fn team() -> Team {
    let team = Team::started();
    team.teamd(["stop"]).ok();
    let process = Identity::of_self().unwrap();
    let now = teamd_shared::clock::wall();
    let position = json!({"offset": 0, "tail": "cbf29ce484222325"});
    let usage = json!({"input_tokens": 700, "output_tokens": 200, "cache_read_input_tokens": 9_000, "cache_creation_input_tokens": 0});
    let mut journal = String::new();
    let mut members = Vec::new();
    let mut seq = 0;
    let mut line = |at: f64, record: Value| {
        seq += 1;
        let mut line = json!({"seq": seq, "at": at, "done": 0});
        line.as_object_mut()
            .unwrap()
            .extend(record.as_object().unwrap().clone());
        writeln!(journal, "{line}").unwrap();
    };
    line(
        now - 3600.0,
        json!({"version": 1, "record": "team", "event": "started", "team_name": "big", "daemon": null}),
    );
    for n in 0..TEAMMATES {
        let name = format!("w{n}");
        let at = now - 3000.0 + n as f64 / 10.0;
        line(
            at,
            journal_member(
                &json!({"record": "member", "event": "spawned", "name": name, "role": "coder",
                "model": "anthropic:claude-sonnet-4-5", "begins_at": position, "pid": process.pid,
                "start_ticks": process.start_ticks, "boot_id": process.boot_id, "spawned_at": at, "updated_at": at}),
            ),
        );
        let status = match n % 20 {
            0 => {
                line(
                    at,
                    json!({"record": "request", "event": "asked", "request_id": format!("{n:08x}"), "kind": "plan_approval",
                    "from": name, "to": "lead", "status": "pending", "payload": {"plan": "Move the lexer.\n\n1. First\n2. Second"},
                    "incarnation": 1, "message_id": uuid::Uuid::now_v7(), "created_at": at, "resolved_at": null, "reason": null}),
                );
                "awaiting_approval"
            }
            1..6 => "working",
            _ => "idle",
        };
        let entry = |at: f64, event: Value| {
            let mut entry = json!({"at": at, "inbox": position});
            entry
                .as_object_mut()
                .unwrap()
                .extend(event.as_object().unwrap().clone());
            format!("{entry}\n")
        };
        let mut transcript = entry(
            at,
            json!({"entry": "incarnation", "incarnation": 1, "conversation": 1, "prompt": "go"}),
        );
        for answer in 0..ANSWERS {
            let at = at + 10.0 * answer as f64;
            transcript += &entry(
                at,
                json!({"entry": "answer", "usage": usage, "content": [{"type": "text", "text": "I go on."}]}),
            );
        }
        transcript += &entry(
            at + 200.0,
            json!({"entry": "idle", "idle_reason": "available", "content": "done", "message_id": uuid::Uuid::now_v7()}),
        );
        team.put(&format!("transcript/{name}.jsonl"), &transcript);
        let inbox = (0..MESSAGES).map(|m| {
            message(
                &format!("w{m}"),
                &name,
                "the lexer has a span for each token now",
                at + m as f64,
            )
        });
        team.put(&format!("inbox/{name}.jsonl"), &inbox.collect::<String>());
        let activity = if status == "working" {
            "bash: cargo test"
        } else {
            ""
        };
        members.push(roster_member(&json!({"name": name, "role": "coder", "status": status, "pid": process.pid,
            "start_ticks": process.start_ticks, "model": "anthropic:claude-sonnet-4-5", "usage": usage,
            "updated_at": at, "spawned_at": at, "activity": activity})));
    }
    team.put("inbox/lead.jsonl", &message("w1", "lead", "first", now));
    team.put("journal.jsonl", &journal);
    let roster =
        json!({"version": 1, "seq": 1, "team_name": "big", "daemon": null, "members": members});
    team.put("config.json", &roster.to_string());
    team
}
