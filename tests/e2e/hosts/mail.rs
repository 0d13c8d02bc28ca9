//! Mail between machines.

use std::path::Path;

use nix::sys::signal::Signal;

use super::Hosts;
use crate::support::{is_alive, signal};

#[test]
fn what_is_sent_while_a_link_is_cut_arrives_once_and_in_order() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    hosts.send("alice", "/bash echo 0 >> order.txt");
    hosts.until_made("box", "order.txt");
    let pid = hosts.host_pid("alice");
    hosts.cut("box");
    hosts.team.until("status to say so", || {
        let shown = hosts.team.json(["status"]);
        shown.to_string().contains("unreachable")
    });
    let sent = hosts.team.teamctl(["send", "alice", "/bash true"]).ok();
    let waiting = "waiting for box (unreachable since ";
    assert!(sent.stdout.contains(waiting), "{sent:?}");
    let sent = hosts.team.json(["send", "alice", "/bash true"]);
    assert_eq!(sent["delivery"], "waiting");
    for number in 1..20 {
        hosts.send("alice", &format!("/bash echo {number} >> order.txt"));
    }
    assert!(is_alive(pid), "a worker outlives its link");
    hosts.mend("box");
    let file = hosts.far.join("box/work/order.txt");
    let wanted: String = (0..20).map(|number| format!("{number}\n")).collect();
    let mut last = String::new();
    hosts.team.until("all lines", || {
        last = std::fs::read_to_string(&file).unwrap();
        last.lines().count() >= 20
    });
    assert_eq!(last, wanted);
    assert_eq!(hosts.host_pid("alice"), pid);
}

#[test]
fn what_is_said_to_be_sent_is_in_the_inbox_on_the_host() {
    let hosts = Hosts::begin();
    hosts.add("gpu").ok();
    hosts.spawn("alice", "box").ok();
    hosts.spawn("bob", "gpu").ok();
    let there = |host: &str, name: &str, text: &str| {
        let inbox = hosts.inbox_there(host, name);
        std::fs::read_to_string(inbox).unwrap().contains(text)
    };
    for number in 0..5 {
        let text = format!("/bash echo {number}.");
        let sent = hosts.team.json(["send", "alice", &text]);
        assert!(there("box", "alice", &text), "{sent}");
        assert!(sent.get("delivery").is_none(), "{sent}");
    }
    let told = hosts.team.json(["broadcast", "/bash echo all."]);
    assert!(told.get("waiting").is_none(), "{told}");
    assert!(there("box", "alice", "echo all."));
    assert!(there("gpu", "bob", "echo all."));
    hosts.cut("box");
    hosts.until_link("gpu", "up");
    let told = hosts.team.teamctl(["broadcast", "/bash echo more."]).ok();
    assert!(told.stdout.contains("sent to bob"), "{told:?}");
    let waiting = "waiting for box (unreachable since ";
    assert!(told.stdout.contains(waiting), "{told:?}");
    let told = hosts.team.json(["broadcast", "/bash echo more."]);
    assert_eq!(told["waiting"], serde_json::json!(["alice"]), "{told}");
    assert_eq!(told["to"], serde_json::json!(["alice", "bob"]), "{told}");
    // Without a daemon at home no link carries anything.
    hosts.team.kill_daemon();
    let sent = hosts.team.json(["send", "bob", "/bash echo late."]);
    assert_eq!(sent["delivery"], "waiting");
}

#[test]
fn a_host_that_does_not_say_what_it_has_leaves_a_message_waiting() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    let stopped = hosts.pids("--host-of");
    for pid in &stopped {
        signal(*pid, Signal::SIGSTOP);
    }
    let sent = hosts
        .team
        .teamctl(["send", "alice", "/bash touch made.txt"]);
    for pid in &stopped {
        signal(*pid, Signal::SIGCONT);
    }
    let sent = sent.ok();
    assert!(sent.stdout.contains("waiting for box: alice"), "{sent:?}");
    hosts.until_made("box", "made.txt");
}

#[test]
fn teammates_of_two_hosts_and_of_home_write_to_each_other() {
    let hosts = Hosts::begin();
    hosts.add("gpu").ok();
    hosts.spawn("alice", "box").ok();
    hosts.spawn("bob", "gpu").ok();
    hosts
        .team
        .teamctl(["spawn", "carol", "--model", "script"])
        .ok();
    hosts.send("alice", "/send_message bob one\n/send_message carol two");
    hosts.team.until("the message at home", || {
        !hosts.team.inbox("carol").is_empty()
    });
    let line = hosts.team.inbox("carol").remove(0);
    assert_eq!(line["via"]["host"], "box", "{line}");
    let there = hosts.inbox_there("gpu", "bob");
    hosts.team.until("the message on the other host", || {
        std::fs::read_to_string(&there).is_ok_and(|text| text.contains("\"home\""))
    });
    hosts.send("carol", "/send_message alice three");
    let there = hosts.inbox_there("box", "alice");
    hosts.team.until("the answer on the host", || {
        std::fs::read_to_string(&there).is_ok_and(|text| text.contains("three"))
    });
}

/// Takes the last lines of an inbox, as a loss of power does with what was not synced. Returns them.
fn loses_power(inbox: &Path, lines: usize) -> Vec<String> {
    let text = std::fs::read_to_string(inbox).unwrap();
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let kept = all.len() - lines;
    let length: usize = all[..kept].iter().map(|line| line.len()).sum();
    let file = std::fs::OpenOptions::new().write(true).open(inbox).unwrap();
    file.set_len(length as u64).unwrap();
    all[kept..].iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn what_a_loss_of_power_takes_from_an_inbox_comes_again_and_counts_once() {
    let hosts = Hosts::begin();
    hosts.spawn("alice", "box").ok();
    for number in 0..5 {
        hosts.send(
            "alice",
            &format!("/bash echo {number} >> order.txt\n/send_message lead said {number}"),
        );
    }
    let file = hosts.far.join("box/work/order.txt");
    let done = |count: usize| {
        std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() >= count)
    };
    hosts.team.until("five lines", || done(5));
    hosts.team.until("five answers", || {
        let told = hosts.told_by("alice");
        told.iter().filter(|it| it.starts_with("said")).count() == 5
    });
    // The host: all that ran there is gone, and so is what it had not synced of its inbox.
    let there = hosts.inbox_there("box", "alice");
    let pid = hosts.host_pid("alice");
    hosts.cut("box");
    let daemons = hosts.pids("--host-of");
    for it in daemons.iter().chain([&pid]) {
        signal(*it, Signal::SIGKILL);
    }
    hosts.team.until("all there to be gone", || {
        !is_alive(pid) && hosts.pids("--host-of").is_empty()
    });
    let lost = loses_power(&there, 2);
    assert!(lost.iter().all(|line| line.contains("\"via\"")), "{lost:?}");
    hosts.send("alice", "/bash echo 5 >> order.txt");
    // Home, in the same way.
    hosts.team.kill_daemon();
    let lost = loses_power(&hosts.team.path("inbox/lead.jsonl"), 1);
    assert!(lost.iter().all(|line| line.contains("\"via\"")), "{lost:?}");
    hosts.team.teamd(["start"]).ok();
    hosts.mend("box");
    hosts.team.teamctl(["spawn", "alice", "--resume"]);
    hosts.team.until("six lines", || done(6));
    let wanted: String = (0..6).map(|number| format!("{number}\n")).collect();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), wanted);
    let id = serde_json::from_str::<serde_json::Value>(&lost[0]).unwrap()["id"].clone();
    hosts.team.until("the line at home", || {
        let lead = hosts.team.inbox("lead");
        lead.iter().filter(|line| line["id"] == id).count() == 1
    });
    hosts.team.teamctl(["shutdown", "alice"]).ok();
    let lead = hosts.team.inbox("lead");
    let offsets: Vec<u64> = lead
        .iter()
        .filter_map(|line| line["via"]["offset"].as_u64())
        .collect();
    assert!(offsets.is_sorted_by(|one, next| one < next), "{offsets:?}");
}
