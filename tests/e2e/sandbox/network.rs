//! `[sandbox] network` and `ports`: what a list lets through, for the commands of the built-in
//! agent as for a whole agent.

use std::net::TcpListener;

use serde_json::json;

use super::agents::{ordered, runs, shell_of};
use super::{With, works};
use crate::support::Team;

/// A service of this machine, which says SERVED to who connects; returns its port.
fn service() -> u16 {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in service.incoming().map_while(Result::ok) {
            drop(std::io::Write::write_all(&mut stream, b"SERVED\n"));
        }
    });
    port
}

/// Asks the proxy for a host, and prints the status, or why it refuses.
fn connect(host: &str, port: u16) -> String {
    format!(
        "(exec 9<>/dev/tcp/127.0.0.1/4141; printf 'CONNECT {host}:{port} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n' >&9; \
         timeout 5 cat <&9 | tr -d '\\r' | grep -ao -e 'HTTP/1.1 [0-9]*' -e SERVED -e 'gate is closed' -e 'not among' -e 'leads into')"
    )
}

/// Connects to a port without a proxy.
fn dial(port: u16) -> String {
    format!(
        "{{ (timeout 5 head -n 1 < /dev/tcp/127.0.0.1/{port} | grep .) 2>/dev/null || echo UNREACHABLE; }}"
    )
}

/// A team whose `team.toml` begins with this table; its teammate alice is the built-in agent.
fn listed(sandbox: &str) -> Option<Team> {
    let team = With::All.team(&[])?;
    team.shutdown("alice", &[], 0);
    team.write("team.toml", sandbox);
    team.trust();
    team.teamctl(["spawn", "alice"]).ok();
    Some(team)
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

const LISTED: &str = "SERVED UNREACHABLE HTTP/1.1 200 SERVED HTTP/1.1 403 not among HTTP/1.1 403 not among http://127.0.0.1:4141";

/// What is listed is reached behind an open gate alone; and what is not listed never.
#[test]
fn a_host_and_a_port_that_are_listed_are_reached_behind_an_open_gate_alone() {
    let port = service();
    let other = service();
    let table = format!("[sandbox]\nnetwork = ['localhost', '*.example.org']\nports = [{port}]\n");
    let asks = [
        dial(port),
        dial(other),
        connect("localhost", other),
        connect("127.0.0.1", other),
        connect("example.com", 443),
        "echo $HTTPS_PROXY".to_owned(),
    ];
    let asks = asks.join("; ");
    let Some(team) = listed(&table) else { return };
    assert_eq!(words(&works(&team, &[&asks])[0]), words(LISTED));
    let Some(team) = shell_of(team, &table, &[]) else {
        return;
    };
    assert_eq!(
        words(runs(&team, &asks)["content"].as_str().unwrap()),
        words(LISTED)
    );
    team.teamctl(["request-plan", "carol", &ordered(&asks)])
        .ok();
    let id = team.until_planned("carol");
    let closed = "UNREACHABLE UNREACHABLE HTTP/1.1 403 gate is closed HTTP/1.1 403 gate is closed HTTP/1.1 403 gate is closed \
        http://127.0.0.1:4141";
    let plan = team.request(&id)["payload"]["plan"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(words(&plan), words(closed));
}

/// No name and no address leads into the machine or its network, whatever stands for all public
/// hosts.
#[test]
fn what_is_not_public_is_refused_unless_it_is_listed_itself() {
    let port = service();
    let hosts = "localhost 127.0.0.1 127.1 2130706433 0.0.0.0 169.254.169.254 10.0.0.1 192.168.1.1 100.64.0.1 [::1] [::ffff:127.0.0.1] [fe80::1]";
    let asks: Vec<_> = hosts.split(' ').map(|host| connect(host, port)).collect();
    let refused = "HTTP/1.1 403 leads into ".repeat(asks.len());
    let asks = asks.join("; ");
    let Some(team) = listed("[sandbox]\nnetwork = ['*']\n") else {
        return;
    };
    assert_eq!(words(&works(&team, &[&asks])[0]), words(&refused));
    let Some(team) = shell_of(team, "[sandbox]\nnetwork = true\n", &[]) else {
        return;
    };
    assert_eq!(
        words(runs(&team, &asks)["content"].as_str().unwrap()),
        words(&refused)
    );
    // A name that is listed, and is made to lead to this machine, is refused; an address that is
    // listed is reached.
    let Some(team) = listed("[sandbox]\nnetwork = ['127.1', '127.0.0.1']\n") else {
        return;
    };
    let asks = format!("{}; {}", connect("127.1", port), connect("127.0.0.1", port));
    assert_eq!(
        words(&works(&team, &[&asks])[0]),
        words("HTTP/1.1 403 leads into HTTP/1.1 200 SERVED")
    );
}

/// A command in the background has the list for as long as it runs. Without network, and behind a
/// closed gate, there is neither proxy nor port.
#[test]
fn a_background_command_reaches_what_is_listed_and_without_network_nothing_is() {
    let port = service();
    let Some(team) = listed(&format!(
        "[sandbox]\nnetwork = ['localhost']\nports = [{port}]\n"
    )) else {
        return;
    };
    let dials = format!(
        "until [ -e go ]; do sleep 0.01; done; {} > told; mv told heard",
        dial(port)
    );
    team.does(
        "alice",
        &format!(
            "/bash {}",
            json!({"command": dials, "run_in_background": true})
        ),
    );
    team.write("go", "");
    team.until("what it has heard", || team.made("heard"));
    assert_eq!(team.text("heard"), "SERVED\n");
    let asks = format!("{}; {}; echo [$HTTPS_PROXY]", dial(port), dial(4141));
    for (name, flag) in [
        ("bob", "--no-network"),
        ("eve", "--plan"),
        ("dora", "--sandbox=read-only"),
    ] {
        team.teamctl(["spawn", name, flag]).ok();
        let told = team.does(name, &format!("/bash {}", json!({"command": asks})));
        assert_eq!(
            words(told[0]["content"].as_str().unwrap()),
            ["UNREACHABLE", "UNREACHABLE", "[]"],
            "{flag}"
        );
    }
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        shown.contains(&format!(
            "workspace-write, network: localhost, ports: {port}\n"
        )),
        "{shown}"
    );
}

/// Where nothing can hold a list, a teammate is refused that has one.
#[test]
fn a_list_that_nothing_can_hold_is_refused() {
    for with in [With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        team.write(
            "team.toml",
            "[sandbox]\nnetwork = ['example.org']\n[members.dave]\nsandbox.network = true\n",
        );
        team.trust();
        let refused = team.teamctl(["spawn", "carol"]).exits(1).stderr;
        assert!(
            refused.contains("`network` lists hosts") && refused.contains("--no-network"),
            "{with:?} {refused}"
        );
        team.teamctl(["spawn", "carol", "--no-network"]).ok();
        team.teamctl(["spawn", "dave"]).ok();
    }
}
