//! Attacks on the page: what is refused, and who is not kept out by it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::{Page, planned};
use crate::support::{PATIENCE, Team};

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
