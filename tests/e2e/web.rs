//! `teamctl web`: what it answers, to whom, and what a browser makes of it.

mod attacks;
mod browser;
mod detail;
mod hostile;
mod images;
mod orders;
mod review;
mod work;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process::{let_pass, wakes};
use crate::support::{PATIENCE, Run, Running, Team};

/// A page that is served.
struct Page {
    running: Running,
    url: String,
    port: u16,
    key: String,
}

/// What a server answered.
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Page {
    fn of(team: &Team, args: &[&str]) -> Self {
        let mut running = team.start_teamctl(["web"].iter().chain(args));
        let mut url = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut url)
            .unwrap();
        let url = url.trim().to_owned();
        let (address, key) = url.split_once("/#").unwrap();
        let port = address
            .strip_prefix("http://127.0.0.1:")
            .unwrap()
            .parse()
            .unwrap();
        Self {
            running,
            port,
            key: key.to_owned(),
            url,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends what may be no request at all, and reads to the end.
    fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may have closed before it has all.
        drop(stream.write_all(request));
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        Answer {
            code,
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    /// The headers of our page.
    fn headers(&self) -> String {
        let Self { port, key, .. } = self;
        format!(
            "Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\n"
        )
    }

    fn get(&self, path: &str) -> Answer {
        self.raw(format!("GET {path} HTTP/1.1\r\n{}\r\n", self.headers()).as_bytes())
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        let headers = self.headers();
        let length = body.len();
        self.raw(
            format!("POST {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
                .as_bytes(),
        )
    }

    fn view(&self, query: &str) -> Value {
        let answer = self.get(&format!("/view?{query}"));
        assert_eq!(answer.code, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Returns what was changed: the facts and files, and then the pieces of rows.
    fn changes(&self, query: &str) -> Vec<Value> {
        let answer = self.get(&format!("/diff?{query}"));
        assert_eq!(answer.code, 200, "{}", answer.body);
        // Its parts come in chunks, each with its length before it.
        let lines = answer.body.lines();
        let lines = lines.filter(|line| line.starts_with(['{', '[']));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Follows a view: each event, merged into what came before, until it fits.
    fn follow(&self, query: &str, mut then: impl FnMut(), fits: impl Fn(&Value) -> bool) {
        let mut stream = self.connect();
        write!(
            stream,
            "GET /events?{query} HTTP/1.1\r\n{}\r\n",
            self.headers()
        )
        .unwrap();
        let mut state = json!({});
        let mut is_first = true;
        for line in BufReader::new(stream).lines().map(Result::unwrap) {
            let Some(event) = line.strip_prefix("data: ") else {
                continue;
            };
            let event: Value = serde_json::from_str(event).unwrap();
            state
                .as_object_mut()
                .unwrap()
                .extend(event.as_object().unwrap().clone());
            if std::mem::take(&mut is_first) {
                then();
            }
            if fits(&state) {
                return;
            }
        }
        panic!("the stream ended at {state}");
    }

    fn interrupted(self) -> Run {
        self.running.signal(Signal::SIGINT);
        self.running.finish()
    }
}

fn planned(team: &Team, name: &str, plan: &str) -> String {
    team.teamctl([
        "spawn",
        name,
        "--plan",
        "--prompt",
        &format!("/plan_approval {plan}"),
    ])
    .ok();
    team.until_planned(name)
}

#[test]
fn a_view_is_pushed_when_a_file_changes_and_a_verdict_is_for_its_request_alone() {
    let team = Team::started();
    let ana = planned(&team, "ana", "First");
    let bo = planned(&team, "bo", "Second");
    let page = Page::of(&team, &[]);
    let shown = page.view("view=requests");
    assert_eq!(
        (
            &shown["requests"]["count"],
            &shown["requests"]["shown"][0]["id"]
        ),
        (&json!(2), &json!(ana))
    );
    assert_eq!(shown["groups"][0]["count"], 2);
    let verdict = |id: &str, approve: bool, feedback: &str| {
        page.post(
            "/answer",
            &json!({"id": id, "approve": approve, "feedback": feedback}).to_string(),
        )
    };
    // The person that looks at the stream did nothing: another terminal answers.
    page.follow(
        "view=overview",
        || drop(team.teamctl(["approve", &ana]).ok()),
        |state| state["requests"]["count"] == 1 && state["groups"][0]["count"] == 1,
    );
    let refused = verdict(&bo, false, " ");
    assert_eq!(refused.code, 409);
    assert!(
        refused.body.contains("a rejection says why"),
        "{}",
        refused.body
    );
    assert_eq!(verdict("ffffffff", true, "").code, 409);
    assert_eq!(team.request(&bo)["status"], "pending");
    let done = verdict(&bo, false, "keep the cache");
    assert_eq!(
        (done.code, team.request(&bo)["reason"].as_str()),
        (200, Some("keep the cache")),
        "{}",
        done.body
    );
    assert_eq!(verdict(&ana, false, "too late").code, 409);
    let sent = page.post(
        "/send",
        &json!({"to": "ana", "text": "/bash echo hello"}).to_string(),
    );
    assert_eq!(sent.code, 200, "{}", sent.body);
    page.follow(
        "view=conversation&name=ana",
        || {},
        |state| state["parts"].to_string().contains("bash echo hello"),
    );
    let sequence = page.view("view=sequence&last=100&lifelines=13");
    assert_eq!(sequence["lifelines"], json!(["lead", "ana", "bo"]));
    assert!(
        sequence["events"].to_string().contains("approved"),
        "{sequence}"
    );
    // The next daemon is found by its socket.
    team.kill_daemon();
    page.follow(
        "view=overview",
        || drop(team.teamd(["start"]).ok()),
        |state| state["daemon"] == true && state["trouble"].is_null(),
    );
}

#[test]
fn the_page_shows_the_code_of_a_request_and_an_answer_needs_it() {
    let team = Team::new();
    team.write("team.toml", "[team]\napprove_code = true\n");
    team.teamd(["start"]).ok();
    let id = planned(&team, "ana", "First");
    let page = Page::of(&team, &[]);
    let code_in = |state: &Value| state["requests"]["shown"][0]["code"].clone();
    page.follow("view=requests", || {}, |state| code_in(state).is_string());
    let code = code_in(&page.view("view=requests"));
    let answer = |code: &Value| {
        let order = json!({"id": id, "approve": true, "feedback": "", "code": code});
        page.post("/answer", &order.to_string())
    };
    assert_eq!(answer(&Value::Null).code, 409);
    assert_eq!(team.request(&id)["status"], "pending");
    let done = answer(&code);
    assert_eq!(done.code, 200, "{}", done.body);
    assert_eq!(team.request(&id)["status"], "approved");
    let only_read = Page::of(&team, &["--read-only"]);
    planned(&team, "bo", "Second");
    only_read.follow(
        "view=requests",
        || {},
        |state| state["requests"]["count"] == 1 && code_in(state).is_null(),
    );
}

#[test]
fn an_order_goes_by_team_toml_as_it_is_now_and_a_search_looks_through_all_tasks() {
    let team = Team::started();
    let page = Page::of(&team, &[]);
    let spawn = || page.post("/spawn", r#"{"name": "cy"}"#);
    team.write("team.toml", "[team]\nno_such_key = 1\n");
    let refused = spawn();
    assert!(
        refused.code == 409 && refused.body.contains("no_such_key"),
        "{}",
        refused.body
    );
    team.write("team.toml", "[members.cy]\nrole = \"copy editor\"\n");
    let done = spawn();
    assert_eq!(done.code, 200, "{}", done.body);
    assert_eq!(team.member("cy")["role"], "copy editor");
    for number in 0..70 {
        let subject = if number == 3 { "Naïve & slow" } else { "Fast" };
        team.teamctl(["task", "add", subject, "--for", "cy"]).ok();
    }
    let shown = |find: &str| {
        let board = page.view(&format!("view=board&find={find}"));
        let columns = board["columns"].as_array().unwrap().clone();
        let tasks = columns
            .iter()
            .flat_map(|it| it["tasks"].as_array().unwrap());
        let ids: Vec<u64> = tasks.map(|task| task["id"].as_u64().unwrap()).collect();
        (ids, board["tasks"].as_u64().unwrap())
    };
    team.until("all tasks", || shown("").1 == 70);
    assert!(shown("").0.len() < 70);
    assert_eq!(shown("na%C3%AFve%20%26").0, [4]);
    assert_eq!(shown("70").0, [70]);
}

#[test]
fn read_only_refuses_actions_and_metrics_tell_no_names() {
    let team = Team::started();
    let first = planned(&team, "bo", "First");
    team.teamctl(["approve", &first]).ok();
    let id = planned(&team, "ana", "First");
    let page = Page::of(&team, &["--read-only", "--metrics"]);
    let order = json!({"id": id, "approve": true, "feedback": ""}).to_string();
    assert_eq!(page.post("/answer", &order).code, 403);
    assert_eq!(page.post("/send", r#"{"to":"ana","text":"x"}"#).code, 403);
    assert_eq!(team.request(&id)["status"], "pending");
    let metrics = page.raw(
        format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost:{}\r\n\r\n",
            page.port
        )
        .as_bytes(),
    );
    assert!(
        metrics
            .body
            .contains("teamd_members{status=\"awaiting_approval\"} 1"),
        "{}",
        metrics.body
    );
    for metric in [
        "requests_pending 1",
        "handshakes{kind=\"plan\"} 1",
        "handshake_seconds{kind=\"plan\"} ",
        "messages_total ",
    ] {
        assert!(
            metrics.body.contains(&format!("\nteamd_{metric}")),
            "{metric}: {}",
            metrics.body
        );
    }
    assert!(!metrics.body.contains("ana"), "{}", metrics.body);
}

/// Says that a text of the page has nothing in it that a browser or a terminal would obey, or not
/// show.
fn is_harmless(shown: &Value) -> bool {
    let harmless = |text: &str| {
        !text.chars().any(|c| {
            c.is_control() && c != '\n'
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        })
    };
    match shown {
        Value::String(text) => harmless(text),
        Value::Array(all) => all.iter().all(is_harmless),
        Value::Object(all) => all
            .iter()
            .all(|(key, value)| harmless(key) && is_harmless(value)),
        _ => true,
    }
}

const VIEWS: [&str; 8] = [
    "overview",
    "requests",
    "board",
    "conversation&name=ana",
    "sequence&last=200&lifelines=13",
    "timeline&seconds=3600",
    "timeline&seconds=4294967295&until=4294967295",
    "cost",
];

#[test]
fn a_journal_that_is_replaced_is_shown_as_it_is_now() {
    let team = Team::started();
    team.spawn("ana", "");
    team.teamd(["stop", "--force"]).ok();
    let lives = |state: &Value| state["members"][0]["lives"].clone();
    let page = Page::of(&team, &[]);
    let journal = std::fs::read_to_string(team.path("journal.jsonl")).unwrap();
    let replace = |text: &str| {
        team.put("journal.new", text);
        std::fs::rename(team.path("journal.new"), team.path("journal.jsonl")).unwrap();
    };
    let before = page.view("view=timeline&seconds=3600");
    assert!(lives(&before)[0][3].is_array(), "{before}");
    // A line that is none, and then a journal without the end of ana.
    let shorter: String = journal
        .split_inclusive('\n')
        .take_while(|line| !line.contains("\"exited\""))
        .collect();
    page.follow(
        "view=timeline&seconds=3600",
        || replace("{\n"),
        |state| !state["trouble"].is_null(),
    );
    page.follow(
        "view=timeline&seconds=3600",
        || replace(&shorter),
        |state| state["trouble"].is_null() && lives(state)[0][3].is_null(),
    );
}

#[test]
fn a_browser_that_reconnects_a_hundred_times_leaves_nothing_behind() {
    let team = Team::started();
    team.spawn("ana", "");
    let page = Page::of(&team, &[]);
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", page.running.pid()))
            .unwrap()
            .count()
    };
    page.follow("view=overview", || {}, |_| true);
    let before = descriptors();
    for _ in 0..100 {
        page.follow("view=overview", || {}, |state| state["groups"].is_array());
    }
    // As many streams as there may be at once: each place was given back.
    let stream = || {
        let mut stream = page.connect();
        write!(
            stream,
            "GET /events?view=overview HTTP/1.1\r\n{}\r\n",
            page.headers()
        )
        .unwrap();
        let mut lines = BufReader::new(stream);
        let mut status = String::new();
        lines.read_line(&mut status).unwrap();
        (status, lines)
    };
    let mut open = Vec::new();
    team.until("eight streams", || {
        open.clear();
        open.extend((0..8).map(|_| stream()));
        open.iter().all(|(status, _)| status.contains(" 200 "))
    });
    assert!(stream().0.contains(" 503 "), "more than eight are refused");
    drop(open);
    team.until("the descriptors to be closed", || descriptors() <= before);
}

#[test]
fn an_idle_page_is_not_woken() {
    let team = Team::started();
    for name in ["ana", "bo"] {
        team.spawn(name, "");
        team.wait_for(name, "idle");
    }
    let page = Page::of(&team, &[]);
    let mut streams = Vec::new();
    for view in VIEWS {
        let mut stream = page.connect();
        write!(
            stream,
            "GET /events?view={view} HTTP/1.1\r\n{}\r\n",
            page.headers()
        )
        .unwrap();
        let mut lines = BufReader::new(stream).lines();
        lines
            .find(|line| line.as_ref().unwrap().starts_with("data: "))
            .unwrap()
            .unwrap();
        streams.push(lines);
    }
    let pid = page.running.pid();
    team.until("five seconds in which it is not woken once", || {
        let before = wakes(pid);
        let_pass(Duration::from_secs(5));
        wakes(pid) == before
    });
}
