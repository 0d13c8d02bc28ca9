//! The gateway as an agent meets it: over sockets, with a service behind TLS.

use std::io::{Read, Write};
use std::net::TcpListener as StdListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use teamd_shared::member::{Gate, Sandbox};
use teamd_worker_core::state::Budget;
use teamd_worker_sandbox::{Gateway, Vendor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::*;

const KEY: &str = "sk-real-0123456789";

fn sandbox(hosts: &[&str], ports: &[u16]) -> Sandbox {
    let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
    Sandbox {
        hosts,
        ports: ports.to_vec(),
        ..Sandbox::default()
    }
}

fn with_service(base: &str, ca: &str) -> Environment {
    let variables = [("ANTHROPIC_BASE_URL", base), ("TEAM_CA", ca)];
    let bytes = |(name, value): (&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let secrets = vec![bytes(("ANTHROPIC_API_KEY", KEY))];
    Environment {
        variables: variables.map(bytes).into(),
        secrets,
        umask: 0o22,
    }
}

/// Serves an agent; returns its gateway, the ports of the listeners, and its gate. It ends with the
/// test.
fn serve(
    sandbox: &Sandbox,
    environment: &Environment,
) -> (Arc<Gateway>, Vec<u16>, watch::Sender<Gate>) {
    let meter = Meter::default();
    meter.allow(Some(Budget {
        turns: 99,
        asks_itself: true,
        tokens: None,
        cost: None,
        total: Default::default(),
    }));
    serve_gateway(Gateway::new(sandbox, true).with_models(upstreams(environment, meter)))
}

/// As [`serve`], with this gateway.
fn serve_gateway(gateway: Gateway) -> (Arc<Gateway>, Vec<u16>, watch::Sender<Gate>) {
    let gateway = Arc::new(gateway);
    let listeners: Vec<_> = gateway
        .ports()
        .iter()
        .map(|_| StdListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports = listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect();
    let (gate, wanted) = watch::channel(Gate::Open);
    tokio::spawn(Arc::clone(&gateway).serve(listeners, wanted));
    (gateway, ports, gate)
}

/// Reads until a text has come; returns all that has.
async fn read_until(from: &mut TcpStream, text: &str) -> String {
    let mut heard = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&heard).contains(text) {
            if from.read_buf(&mut heard).await.unwrap_or(0) == 0 {
                break;
            }
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), read).await;
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(in_time.is_ok(), "{text:?} does not come: {heard}");
    heard
}

async fn ask(port: u16, request: &str) -> TcpStream {
    let mut agent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    agent.write_all(request.as_bytes()).await.unwrap();
    agent
}

/// What the service saw.
enum Seen {
    Request(String),
    /// Its client went away in the middle of the answer.
    Cancelled,
}

/// A service behind TLS with a certificate of `openssl`: it answers one request with an endless
/// stream, and sends the next piece when it is told so; none where there is no such program.
fn tls_service(
    scratch: &std::path::Path,
) -> Option<(u16, mpsc::Receiver<Seen>, mpsc::SyncSender<()>)> {
    let make = "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out ca.pem -subj /CN=localhost \
                -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
    let mut openssl = Command::new("openssl");
    openssl
        .args(make.split_whitespace())
        .current_dir(scratch)
        .stderr(Stdio::null());
    if !openssl.status().is_ok_and(|status| status.success()) {
        return None;
    }
    drop(rustls::crypto::ring::default_provider().install_default());
    let certificate = CertificateDer::from_pem_file(scratch.join("ca.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(scratch.join("key.pem")).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sees, seen) = mpsc::channel();
    let (go, next) = mpsc::sync_channel(0);
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut heard = Vec::new();
        let mut piece = [0; 4096];
        while !heard.ends_with(b"the end of it\"}") {
            let read = stream.read(&mut piece).unwrap();
            heard.extend_from_slice(&piece[..read]);
        }
        sees.send(Seen::Request(String::from_utf8(heard).unwrap()))
            .unwrap();
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .unwrap();
        for number in 0_u64.. {
            // The test ends before the client does: that is no cancel.
            if next.recv().is_err() {
                break;
            }
            let event = format!("data: {number}\n\n");
            let sent =
                write!(stream, "{:x}\r\n{event}\r\n", event.len()).and_then(|()| stream.flush());
            if sent.is_err() {
                break;
            }
        }
        // Whatever comes of the read, the connection is over then.
        drop(stream.read(&mut piece));
        drop(sees.send(Seen::Cancelled));
    });
    Some((port, seen, go))
}

/// `GATEWAY_PIECES` pieces, each a moment after the one before: a stream of minutes is tried by
/// hand.
#[tokio::test]
async fn a_long_stream_comes_piece_by_piece_with_the_key_added_and_a_cancel_reaches_the_service() {
    let scratch = tempfile::tempdir().unwrap();
    let Some((tls, seen, go)) = tls_service(scratch.path()) else {
        return;
    };
    let ca = scratch.path().join("ca.pem").display().to_string();
    let environment = with_service(&format!("https://localhost:{tls}"), &ca);
    let (gateway, ports, _gate) = serve(&sandbox(&[], &[]), &environment);
    let variables = gateway.variables(ports[0]);
    let of = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(
        of("ANTHROPIC_BASE_URL"),
        format!("http://127.0.0.1:{}/anthropic", ports[0])
    );
    assert!(variables.iter().all(|(_, value)| !value.contains(KEY)));
    let body = format!(
        "{{\"prompt\": \"{}ü, to the end of it\"}}",
        "long ".repeat(40_000)
    );
    let request = format!(
        "POST /anthropic/v1/messages?beta=true HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nanthropic-version: 2023-06-01\r\n\
         anthropic-beta: a-b\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        of("ANTHROPIC_API_KEY"),
        body.len()
    );
    let mut agent = ask(ports[0], &request).await;
    let (asked, seen) = tokio::task::spawn_blocking(move || (seen.recv(), seen))
        .await
        .unwrap();
    let Ok(Seen::Request(asked)) = asked else {
        panic!("no request")
    };
    let (head, sent) = asked.split_once("\r\n\r\n").unwrap();
    assert!(sent == body, "the body is sent as it is");
    let mut lines: Vec<_> = head
        .lines()
        .map(str::to_ascii_lowercase)
        .filter(|line| !line.starts_with("user-agent"))
        .collect();
    lines[1..].sort();
    let expected = [
        "post /v1/messages?beta=true http/1.1".to_owned(),
        "accept: */*".to_owned(),
        "anthropic-beta: a-b".to_owned(),
        "anthropic-version: 2023-06-01".to_owned(),
        format!("content-length: {}", body.len()),
        "content-type: application/json".to_owned(),
        format!("host: localhost:{tls}"),
        format!("x-api-key: {KEY}"),
    ];
    assert_eq!(lines, expected);
    let pieces = std::env::var("GATEWAY_PIECES").map_or(40, |pieces| pieces.parse().unwrap());
    for number in 0..pieces {
        // The next one is not sent before this one has come.
        go.send(()).unwrap();
        read_until(&mut agent, &format!("data: {number}\n")).await;
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    drop(agent);
    let cancelled = tokio::task::spawn_blocking(move || {
        // It notices when it sends, or reads.
        while seen.try_recv().is_err() && go.send(()).is_ok() {}
    });
    tokio::time::timeout(Duration::from_secs(30), cancelled)
        .await
        .expect("the service was told")
        .unwrap();
}

/// A service that gives each request one answer; it tells what it was asked.
fn service(answers: Vec<Vec<u8>>) -> (u16, mpsc::Receiver<String>) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sees, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = Vec::new();
            let mut piece = [0; 4096];
            while !heard.ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut piece).unwrap();
                heard.extend_from_slice(&piece[..read]);
            }
            sees.send(String::from_utf8(heard).unwrap().to_ascii_lowercase())
                .unwrap();
            stream.write_all(&answer).unwrap();
        }
    });
    (port, seen)
}

/// Errors and answers are read by the gateway: none is asked for in an encoding. What a service
/// encodes nevertheless is not shown.
#[tokio::test]
async fn no_service_is_asked_for_an_encoding() {
    let packed = b"\x1f\x8b\x08\0packed\xff";
    let answer = |status: &str, encoding: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 {status}\r\n{encoding}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let gzip = "content-encoding: gzip\r\n";
    let leaks = format!("{{\"error\": \"no such key: {KEY}\"}}");
    let (port, seen) = service(vec![
        answer("200 OK", "", b"plain"),
        answer("200 OK", gzip, packed),
        answer(
            "400 Bad Request",
            "content-encoding: identity\r\n",
            leaks.as_bytes(),
        ),
        answer("429 Too Many Requests", gzip, packed),
    ]);
    let environment = with_service(&format!("http://127.0.0.1:{port}"), "embedded");
    let (gateway, ports, _gate) = serve(&sandbox(&[], &[]), &environment);
    let token = gateway.variables(1)[1].1.clone();
    let request = format!(
        "GET /anthropic/v1/models HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\naccept-encoding: gzip, br, zstd\r\n\
         te: trailers\r\nconnection: close\r\n\r\n"
    );
    let mut answers = Vec::new();
    for _ in 0..4 {
        let mut heard = Vec::new();
        ask(ports[0], &request)
            .await
            .read_to_end(&mut heard)
            .await
            .unwrap();
        let asked = seen.recv().unwrap();
        assert!(
            !asked.contains("encoding") && !asked.contains("trailers"),
            "{asked}"
        );
        answers.push(heard);
    }
    let text = |number: usize| String::from_utf8_lossy(&answers[number]).into_owned();
    assert!(text(0).ends_with("\r\n\r\nplain"), "{}", text(0));
    assert!(
        text(1).starts_with("HTTP/1.1 502") && text(1).contains("not asked for"),
        "{}",
        text(1)
    );
    assert!(
        text(2).starts_with("HTTP/1.1 400") && text(2).contains("no such key: "),
        "{}",
        text(2)
    );
    assert!(
        text(3).starts_with("HTTP/1.1 429") && text(3).contains("not asked for (gzip)"),
        "{}",
        text(3)
    );
    assert!(
        !text(2).contains(KEY) && !text(3).contains(gzip),
        "{} {}",
        text(2),
        text(3)
    );
}

#[tokio::test]
async fn a_request_without_the_token_is_refused_and_so_is_what_no_table_lists() {
    let (gateway, ports, _gate) = serve(
        &sandbox(&[], &[]),
        &with_service("http://127.0.0.1:1", "embedded"),
    );
    let token = gateway.variables(1)[1].1.clone();
    let get = |path: &str, key: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n")
    };
    for (request, answer) in [
        (get("/anthropic/v1/models", "wrong"), "401"),
        (get("/anthropic/v1/models", ""), "401"),
        (get("/anthropic/v1/files", &token), "404"),
        (get("/openai/models", &token), "404"),
        (get("/anthropic/v1/models", &token), "502"),
        (
            "CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
            "403",
        ),
        ("NONSENSE\r\n\r\n".to_owned(), "400"),
    ] {
        let response = read_until(&mut ask(ports[0], &request).await, "\r\n\r\n").await;
        assert_eq!(
            response.split(' ').nth(1),
            Some(answer),
            "{request} {response}"
        );
        assert!(!response.contains(KEY));
    }
}

/// Starts a service that sends back what it gets; returns its port.
async fn echo() -> u16 {
    let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = echo.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut reads, mut writes) = stream.split();
                tokio::io::copy(&mut reads, &mut writes).await
            });
        }
    });
    port
}

/// An agent that logs in itself has its model there, whatever the gate; and nothing else.
#[tokio::test]
async fn the_service_of_a_vendor_is_reached_behind_a_closed_gate_and_no_other() {
    let port = echo().await;
    let other = echo().await;
    let vendor = Vendor {
        host: "localhost",
        port,
    };
    for has_network in [false, true] {
        let gateway = Gateway::new(&sandbox(&["localhost"], &[]), has_network);
        let (gateway, ports, gate) = serve_gateway(gateway.with_vendor(Some(vendor)));
        let variables = gateway.variables(1);
        assert!(variables.contains(&("HTTPS_PROXY", "http://127.0.0.1:1".to_owned())));
        assert!(!variables.iter().any(|(name, _)| name.contains("KEY")));
        let connect = |port: u16| format!("CONNECT LOCALHOST:{port} HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut tunnel = ask(ports[0], &connect(port)).await;
        let answer = read_until(&mut tunnel, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        gate.send_replace(Gate::Closed);
        tunnel.write_all(b"hello").await.unwrap();
        assert_eq!(read_until(&mut tunnel, "hello").await, "hello");
        let mut again = ask(ports[0], &connect(port)).await;
        let answer = read_until(&mut again, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let answer = read_until(&mut ask(ports[0], &connect(other)).await, "}}").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
}

#[tokio::test]
async fn tunnels_and_ports_need_an_open_gate_and_a_gate_that_closes_cuts_them() {
    let port = echo().await;
    let (_gateway, ports, gate) = serve(&sandbox(&["localhost"], &[port]), &Environment::default());
    let connect = format!("CONNECT localhost:{port} HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut tunnel = ask(ports[0], &connect).await;
    assert!(
        read_until(&mut tunnel, "\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200")
    );
    let mut service = ask(ports[1], "").await;
    for stream in [&mut tunnel, &mut service] {
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(read_until(stream, "hello").await, "hello");
    }
    gate.send_replace(Gate::Closed);
    assert_eq!(
        (
            read_until(&mut tunnel, "never").await,
            read_until(&mut service, "never").await
        ),
        Default::default()
    );
    let refused = read_until(&mut ask(ports[0], &connect).await, "the gate is closed").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert_eq!(
        read_until(&mut ask(ports[1], "hello").await, "hello").await,
        ""
    );
    gate.send_replace(Gate::Open);
    assert_eq!(
        read_until(&mut ask(ports[1], "hello").await, "hello").await,
        "hello"
    );
}

/// Some services repeat what they were sent, also where they do not fail.
#[tokio::test]
async fn no_answer_shows_the_key() {
    let (first, second) = KEY.split_at(7);
    let whole = format!(
        "HTTP/1.1 200 OK\r\nx-echo: {KEY}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n[{KEY}]",
        KEY.len() + 2
    );
    let stream = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
         {:x}\r\ndata: {first}\r\n{:x}\r\n{second} end\n\n\r\n0\r\n\r\n",
        first.len() + 6,
        second.len() + 6,
    );
    let (port, seen) = service(vec![whole.into_bytes(), stream.into_bytes()]);
    let environment = with_service(&format!("http://127.0.0.1:{port}"), "embedded");
    let (gateway, ports, _gate) = serve(&sandbox(&[], &[]), &environment);
    let token = gateway.variables(1)[1].1.clone();
    for end in ["]", " end"] {
        let request = format!(
            "GET /anthropic/v1/models HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\nconnection: close\r\n\r\n"
        );
        let mut heard = Vec::new();
        ask(ports[0], &request)
            .await
            .read_to_end(&mut heard)
            .await
            .unwrap();
        assert!(seen.recv().unwrap().contains(KEY), "it was sent");
        let heard = String::from_utf8(heard).unwrap();
        assert!(
            heard.contains("200 OK") && heard.contains(end) && heard.contains("****"),
            "{heard}"
        );
        assert!(!heard.contains(KEY) && !heard.contains(second), "{heard}");
    }
}
