//! The way to a model's service: addresses, proxies, certificates.

use std::net::{TcpListener, TcpStream};

use serde_json::json;

use super::{ended, spawn};
use crate::support::model_server::{Api, ModelServer};
use crate::support::{Running, Team};

#[test]
fn a_bad_base_url_fails_at_once_and_a_closed_port_after_some_attempts() {
    let server = ModelServer::start();
    let team = server.team().with("ANTHROPIC_BASE_URL", "localhost:1");
    let refused = |team: &Team, said: &str| {
        let run = team
            .teamctl(["spawn", "alice", "--model", "anthropic:x", "--prompt", "go"])
            .exits(2);
        assert!(run.stderr.contains(said), "{}", run.stderr);
        assert!(
            team.file("log/alice.log").is_empty(),
            "a worker was started"
        );
    };
    refused(
        &team,
        "ANTHROPIC_BASE_URL=\"localhost:1\" is not the address",
    );
    let team = team.with("ANTHROPIC_BASE_URL", "http://user:PW@host");
    refused(&team, "keys belong into ANTHROPIC_API_KEY");
    let team = team
        .with("ANTHROPIC_BASE_URL", &server.url())
        .with("TEAM_CONTEXT_WINDOW", "abc");
    refused(&team, "TEAM_CONTEXT_WINDOW=\"abc\" is not");
    let team = team
        .with("TEAM_CONTEXT_WINDOW", "8k")
        .with("TEAM_MODEL_TIMEOUT", "abc");
    refused(&team, "TEAM_MODEL_TIMEOUT=\"abc\" is not");
    let team = team.with("TEAM_MODEL_TIMEOUT", "2m");
    let team = team.with("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
    spawn(&team, "bob", "anthropic:x", "go");
    let log = || team.file("log/bob.log");
    team.until("an attempt", || {
        log().contains("attempt 1 failed") && log().contains("refused")
    });
    team.wait_for("bob", "working");
}

#[test]
fn a_proxy_of_the_spawning_shell_is_used_and_no_other() {
    // What the fake server is asked as a proxy, it answers as the service itself.
    let server = ModelServer::start();
    let base = "http://models.invalid";
    let team = server
        .team()
        .with("ANTHROPIC_BASE_URL", base)
        .with("http_proxy", &server.url());
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until_finished("alice", 1);
    assert_eq!(ended(&team, "alice").1, "done");
    assert_eq!(server.last().header("host"), "models.invalid");
    let team = team.with("NO_PROXY", "models.invalid");
    spawn(&team, "bob", Api::Anthropic.model(), "go");
    team.until("an attempt without it", || {
        team.file("log/bob.log").contains("attempt 1 failed")
    });
    assert_eq!(server.requests().len(), 1);
}

/// A server with a certificate of its own, made by `openssl`; none where there is no such program.
fn tls_server(team: &Team) -> Option<(Running, u16)> {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out ca.pem -subj /CN=localhost \
                -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE 2>/dev/null";
    if !team
        .command("bash", ["-c", make])
        .status()
        .is_ok_and(|status| status.success())
    {
        return None;
    }
    let body = json!({"content": [{"type": "text", "text": "safely"}], "stop_reason": "end_turn"})
        .to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    team.write("answer", &answer);
    // It answers the head of each request with the file.
    let serve = format!(
        "coproc openssl s_server -quiet -accept {port} -cert ca.pem -key key.pem
         while IFS= read -r line <&${{COPROC[0]}}; do if [ \"$line\" = $'\\r' ]; then cat answer >&${{COPROC[1]}}; fi; done"
    );
    let running = Running::start(team.command("bash", ["-c", &serve]));
    Some((running, port))
}

#[test]
fn the_root_of_an_organisation_is_trusted_if_it_is_named() {
    let server = ModelServer::start();
    let team = server.team();
    let Some((_tls, port)) = tls_server(&team) else {
        return;
    };
    team.until("the server to listen", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let team = team.with("ANTHROPIC_BASE_URL", &format!("https://localhost:{port}"));
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until_finished("alice", 1);
    let (reason, content) = ended(&team, "alice");
    assert!(
        reason == "failed" && content.contains("TEAM_CA=FILE"),
        "{content}"
    );
    let ca = team.root().join("ca.pem").display().to_string();
    let team = team.with("TEAM_CA", &ca);
    spawn(&team, "bob", Api::Anthropic.model(), "go");
    team.until_finished("bob", 1);
    assert_eq!(
        ended(&team, "bob"),
        ("available".to_owned(), "safely".to_owned())
    );
}
