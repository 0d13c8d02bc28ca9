//! `teamctl web`: what it answers, to whom, and what a browser makes of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use teamd_shared::testing::roster_member;

use crate::support::browser::drive;
use crate::support::cgroup::note;
use crate::support::model_server::{Api, ModelServer};
use crate::support::process::{let_pass, wakes};
use crate::support::{PATIENCE, Run, Running, Team};

mod detail;
mod images;
mod orders;
mod review;
mod work;

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
fn each_attack_on_the_page_is_refused_and_changes_nothing() {
    let team = Team::started();
    let id = planned(&team, "ana", "First");
    let page = Page::of(&team, &[]);
    let port = page.port;
    let key = &page.key;
    let ours = format!("Host: 127.0.0.1:{port}\r\n");
    let order = json!({"id": id, "approve": true, "feedback": ""}).to_string();
    let post = |headers: &str| {
        format!(
            "POST /answer HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{order}",
            order.len()
        )
    };
    let from_here =
        format!("{ours}Origin: http://127.0.0.1:{port}\r\nContent-Type: application/json\r\n");
    let bearer = format!("Authorization: Bearer {key}\r\n");
    let get = |headers: &str| format!("GET /view?view=overview HTTP/1.1\r\n{headers}\r\n");
    for (what, request, code) in [
        ("no key", get(&ours), 401),
        (
            "a guessed key",
            get(&format!(
                "{ours}Authorization: Bearer {}\r\n",
                "0".repeat(64)
            )),
            401,
        ),
        (
            "the key in a cookie",
            get(&format!("{ours}Cookie: teamd-key={key}\r\n")),
            401,
        ),
        (
            "DNS rebinding",
            get(&format!("Host: evil.example:{port}\r\n{bearer}")),
            403,
        ),
        ("no host", get(&bearer), 403),
        (
            "another site",
            post(&format!("{ours}Origin: http://evil.example\r\n{bearer}")),
            403,
        ),
        (
            "another port",
            post(&format!("{ours}Origin: http://127.0.0.1:1\r\n{bearer}")),
            403,
        ),
        (
            "a form",
            post(&format!("{from_here}{bearer}").replace("application/json", "text/plain")),
            415,
        ),
        (
            "no origin",
            post(&format!("{ours}Content-Type: application/json\r\n{bearer}")),
            403,
        ),
        ("no key for an action", post(&from_here), 401),
        (
            "preflight",
            format!("OPTIONS /answer HTTP/1.1\r\n{from_here}\r\n"),
            405,
        ),
        (
            "tunnel",
            format!("CONNECT 127.0.0.1:1 HTTP/1.1\r\n{ours}\r\n"),
            403,
        ),
        (
            "a path out of it",
            format!("GET /../../.team/config.json HTTP/1.1\r\n{ours}{bearer}\r\n"),
            404,
        ),
        (
            "metrics that were not asked for",
            format!("GET /metrics HTTP/1.1\r\n{ours}\r\n"),
            401,
        ),
        (
            "a long head",
            format!("GET / HTTP/1.1\r\n{ours}X: {}\r\n\r\n", "x".repeat(20_000)),
            431,
        ),
        ("no HTTP", "\u{1b}]0;x\r\n\r\n".to_owned(), 400),
    ] {
        let answer = page.raw(request.as_bytes());
        assert_eq!(answer.code, code, "{what}: {}", answer.head);
        assert!(
            !answer.body.contains("ana") && !answer.body.contains(key.as_str()),
            "{what}: {}",
            answer.body
        );
        assert!(
            !answer.head.contains("access-control"),
            "{what}: {}",
            answer.head
        );
    }
    assert_eq!(page.post("/answer", &" ".repeat(70_000)).code, 413);
    assert_eq!(page.post("/answer", "no JSON").code, 400);
    assert_eq!(
        page.post("/answer", &json!({"id": id}).to_string()).code,
        400
    );
    assert_eq!(team.request(&id)["status"], "pending");
    let head = page.get("/").head;
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "cache-control: no-store",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    assert!(!head.contains("set-cookie"), "{head}");
    // On no other address of this machine than 127.0.0.1.
    assert!(TcpStream::connect(("127.0.0.2", port)).is_err());
    assert_eq!(page.interrupted().code, Some(130));
}

/// The page has many files; an order must not be sent over a connection that is being closed.
#[test]
fn a_connection_stays_open_for_the_files_of_the_page_and_for_nothing_else() {
    let team = Team::started();
    let page = Page::of(&team, &[]);
    let mut stream = page.connect();
    let headers = format!("Host: 127.0.0.1:{}\r\n", page.port);
    let asset = format!("GET /server.js HTTP/1.1\r\n{headers}\r\n");
    let view = format!("GET /view?view=overview HTTP/1.1\r\n{}\r\n", page.headers());
    write!(stream, "{asset}{asset}{view}{asset}").unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let files = answers.matches("content-type: text/javascript").count();
    assert_eq!(files, 2, "{answers}");
    assert_eq!(answers.matches("connection: close").count(), 1, "{answers}");
    assert!(answers.ends_with('}'), "the view is the last: {answers}");
    // One that asks for nothing more is closed, too.
    let mut stream = page.connect();
    write!(stream, "{asset}").unwrap();
    stream.read_to_string(&mut answers).unwrap();
}

/// Any process can connect to a port of this machine: only one with the key counts.
#[test]
fn clients_that_have_not_shown_the_key_do_not_keep_others_out() {
    let team = Team::started();
    team.spawn("alice", "");
    let page = Page::of(&team, &[]);
    let mut stream = page.connect();
    write!(
        stream,
        "GET /events?view=overview HTTP/1.1\r\n{}\r\n",
        page.headers()
    )
    .unwrap();
    let mut events = BufReader::new(stream).lines().map(Result::unwrap);
    events.find(|line| line.starts_with("data: ")).unwrap();
    let mut silent = Vec::new();
    for number in 0..600 {
        let client = page.connect();
        match number % 3 {
            0 => {}
            1 => drop((&client).write_all(b"GET / HTTP/1.1\r\nHost:")),
            _ => client.shutdown(Shutdown::Write).unwrap(),
        }
        silent.push(client);
        if number % 50 == 0 {
            let began = std::time::Instant::now();
            page.view("view=overview");
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{number}: {:?}",
                began.elapsed()
            );
        }
    }
    assert_eq!(page.get("/").code, 200);
    // The oldest of them are closed, and the stream is not.
    let mut byte = [0];
    silent[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(silent[0].read(&mut byte), Ok(0) | Err(_)));
    team.spawn("bob", "");
    events.find(|line| line.contains("bob")).unwrap();
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

/// A directory that hostile programs wrote: each field that is a text of others, times of a clock
/// that jumps, a line of a megabyte.
fn hostile(team: &Team) {
    team.teamd(["stop", "--force"]).ok();
    let bad = format!(
        "\u{202e}txt\u{200b}\u{1b}[2J\u{7}<script>{}",
        "x".repeat(1 << 20)
    );
    let exit = json!({"code": null, "signal": 9, "at": 1e300, "request_id": null, "unread": 0,
        "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "note": bad});
    let usage = json!({"input_tokens": u64::MAX, "output_tokens": u64::MAX, "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 0});
    let member = |name: &str, status: &str| {
        roster_member(
            &json!({"name": name, "role": bad, "status": status, "model": bad,
            "updated_at": -1e300, "exit": exit, "activity": bad, "usage": usage, "waiting": {"until": 1e300, "why": bad},
            "silent_since": -1e300}),
        )
    };
    let members = json!([member("ana", "working"), member("bo", "crashed")]);
    team.put(
        "config.json",
        &json!({"version": 1, "seq": 1, "team_name": bad, "daemon": null, "members": members})
            .to_string(),
    );
    let mut lines = String::new();
    for (at, kind) in [
        (1e300, "message"),
        (-1e300, bad.as_str()),
        (0.0, "task_assignment"),
        (5.0, "idle_notification"),
    ] {
        let line = json!({"type": kind, "from": bad, "to": bad, "content": bad, "timestamp": at, "subject": bad, "task_id": 1,
            "summary": bad, "idle_reason": "available"});
        lines += &format!("{line}\n");
    }
    for owner in ["lead", "ana"] {
        team.put(
            &format!("inbox/{owner}.jsonl"),
            &(lines.clone() + "no json\u{1b}[2J\n"),
        );
    }
    let mut entries = String::new();
    for (at, event) in [
        (
            1e300,
            json!({"entry": "incarnation", "incarnation": 1, "conversation": 1, "prompt": bad}),
        ),
        (
            -5.0,
            json!({"entry": "answer", "usage": usage, "content": [{"type": "text", "text": bad},
            {"type": "tool_use", "id": bad, "name": bad, "input": {"command": bad}}]}),
        ),
        (
            3.0,
            json!({"entry": "result", "tool_use_id": bad, "content": bad, "is_error": true}),
        ),
    ] {
        let mut entry = json!({"at": at, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        entry
            .as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        entries += &format!("{entry}\n");
    }
    team.put("transcript/ana.jsonl", &entries);
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
fn hostile_texts_and_times_of_each_field_are_shown_escaped_and_cut() {
    let team = Team::started();
    let id = planned(&team, "ana", "\u{202e}First\u{1b}[2J");
    team.teamctl(["reject", &id, "--feedback", "\u{202e}no\u{200b}"])
        .ok();
    team.teamctl(["task", "add", "\u{202e}subject\u{1b}[2J"])
        .ok();
    hostile(&team);
    let page = Page::of(&team, &[]);
    // What is read meanwhile is told until all is read.
    page.follow(
        "view=cost",
        || {},
        |state| state["reading"] == 0 && state["members"].as_array().unwrap().len() == 2,
    );
    let one = ["task&id=1", "teammate&name=ana", "overview&news=all"];
    let request = format!("request&id={id}");
    for view in VIEWS.iter().chain(&one).copied().chain([request.as_str()]) {
        let shown = page.view(&format!("view={view}"));
        assert!(is_harmless(&shown), "{view}: {shown}");
        assert!(
            shown.to_string().len() < 200_000,
            "{view} has {} bytes",
            shown.to_string().len()
        );
    }
}

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

#[test]
fn a_browser_shows_hostile_texts_as_texts() {
    let team = Team::started();
    let hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>\u{202e}txt\u{200b}\u{1b}[2J \
        [click](javascript:alert(3)) **bold** [out](https://example.org/x)";
    planned(&team, "ana", hostile);
    team.teamctl(["task", "add", hostile]).ok();
    team.teamctl(["spawn", "bo", "--role", "<script>alert(4)</script>"])
        .ok();
    for (to, text) in [
        ("lead", hostile.to_owned()),
        ("bo", hostile.to_owned()),
        ("bo", "x".repeat(1 << 20)),
    ] {
        team.echo(
            to,
            &json!({"type": "message", "from": "ana", "to": to, "content": text}).to_string(),
        );
    }
    team.until("bo to have read", || {
        team.transcript("bo")
            .iter()
            .any(|entry| entry["entry"] == "messages")
    });
    let page = Page::of(&team, &[]);
    let views = [
        "overview",
        "board",
        "conversation/bo",
        "sequence",
        "cost",
        "requests",
    ];
    let keyless = page.url.split_once('#').unwrap().0;
    let mut asked = Vec::new();
    for view in views {
        let name = view.split('/').next().unwrap();
        asked.push(format!("{}/{view}", page.url));
        asked.push(match name {
            "requests" => "<strong>bold</strong>".to_owned(),
            // What it shows has come.
            "cost" => "data-shown=\"cost\"".to_owned(),
            _ => "&lt;img src=x onerror=alert(1)&gt;".to_owned(),
        });
    }
    asked.push(keyless.to_owned());
    asked.push("This page has no key".to_owned());
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let Some(shown) = drive("hostile.mjs", &asked) else {
        return;
    };
    let shown: Vec<String> = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown.len(), views.len() + 1);
    for (view, shown) in views.iter().zip(&shown) {
        for bad in [
            "<img",
            "<script>",
            "href=\"javascript",
            "\u{202e}",
            "\u{200b}",
            "\u{1b}",
        ] {
            assert!(!shown.contains(bad), "{view} has {bad:?}: {shown}");
        }
        assert!(shown.len() < 400_000, "{view} has {} bytes", shown.len());
        assert!(!shown.contains(&page.key), "{view} shows the key");
    }
    let requests = &shown[views.len() - 1];
    assert!(
        requests.contains("&lt;img src=x onerror=alert(1)&gt;"),
        "{requests}"
    );
    assert!(
        requests.contains("<a href=\"https://example.org/x\" rel=\"noopener noreferrer\""),
        "{requests}"
    );
    assert!(requests.contains("\\u{202e}"), "{requests}");
}

#[test]
fn back_closes_a_text_over_the_page_and_leaves_the_view() {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/lead/view/src/web/page/dialog.js"
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/dialog.mjs");
    let Ok(run) = Command::new("node").args([script, source]).output() else {
        return note("skipped: there is no node (apt-get install nodejs)");
    };
    let said = String::from_utf8(run.stdout).unwrap();
    let steps = [
        ("opened twice", 1, 2),
        ("back", 0, 1),
        ("closed", 0, 1),
        ("Escape", 0, 1),
    ];
    let steps = steps
        .map(|(step, open, entries)| format!("{step}: {open} open, {entries} in the history\n"));
    assert_eq!(
        said,
        steps.concat(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
fn what_was_said_earlier_is_shown_page_by_page_and_new_texts_follow() {
    let team = Team::started();
    team.spawn("ana", "");
    team.wait_for("ana", "idle");
    team.teamd(["stop", "--force"]).ok();
    let entry = |n: usize| {
        json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "entry": "answer",
            "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            "content": [{"type": "text", "text": format!("answer {n}")}]})
    };
    let all: String = (0..500).map(|n| format!("{}\n", entry(n))).collect();
    team.put("transcript/ana.jsonl", &all);
    let page = Page::of(&team, &[]);
    let transcript = team.path("transcript/ana.jsonl");
    let next = format!("{}\n", entry(500));
    let Some(shown) = drive(
        "earlier.mjs",
        &[&page.url, transcript.to_str().unwrap(), &next],
    ) else {
        return;
    };
    let counts: Vec<&str> = shown.lines().collect();
    assert_eq!(
        counts,
        [
            "200 from answer 300",
            "400 from answer 100",
            "500 from answer 0",
            "501 from answer 0"
        ]
    );
}

/// Has axe look at each view, light and dark, on a phone and on a desk: a team with a plan, a
/// failure, costs and tasks.
#[test]
fn axe_finds_nothing_serious_on_a_phone_and_on_a_desk_light_and_dark() {
    let server = ModelServer::start();
    server.says("All is **done**: see `src/lex.rs`.");
    let team = server.team();
    let plan = r"/plan_approval # Split the parser\n\n1. Move the `lexer`\n2. **Run** the tests\n\n[why](https://example.org/17)";
    team.teamctl([
        "spawn",
        "ana",
        "--model",
        Api::Anthropic.model(),
        "--prompt",
        "do it",
    ])
    .ok();
    team.until_finished("ana", 1);
    let script = ["--model", "script"];
    team.teamctl(
        ["spawn", "bo", "--plan", "--prompt", plan]
            .iter()
            .chain(&script),
    )
    .ok();
    team.until_planned("bo");
    team.teamctl(["spawn", "cy", "--auto"].iter().chain(&script))
        .ok();
    team.teamctl([
        "task",
        "add",
        "Passes, with a subject of many words",
        "--check",
        "true",
        "--description",
        "/bash true",
    ])
    .ok();
    team.teamctl([
        "task",
        "add",
        "Fails",
        "--check",
        "echo no; false",
        "--description",
        "/bash true",
    ])
    .ok();
    team.teamctl(["task", "add", "Waits", "--after", "2"]).ok();
    team.until("the check to fail", || {
        !team
            .journal()
            .iter()
            .all(|line| line["event"] != "returned")
    });
    let page = Page::of(&team, &[]);
    let Some(findings) = drive("look.mjs", &[&page.url]) else {
        return;
    };
    let serious: Vec<&str> = findings
        .lines()
        .filter(|line| {
            ["serious", "critical"]
                .iter()
                .any(|impact| line.contains(impact))
        })
        .collect();
    assert!(serious.is_empty(), "{serious:#?}");
}
