//! Teammates on other machines: mail through deaths and a cut, one teammate over a real `ssh` on
//! loopback, and ten machines of a stub of `ssh`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use teamd_shared::inbox::{Appender, Durability};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use crate::Effort;
use crate::far::{Far, carriers, host_daemons};
use crate::figure::{Figure, Sample, time};
use crate::idle::memory_of;
use crate::lifecycle::{after_a_pause, once, run};
use crate::limit::Log;
use crate::support::process::{descendants, let_pass};
use crate::support::running::poll_for;
use crate::support::sshd::{BOX, Sshd};
use crate::support::{Team, is_alive, signal};

const SENDERS: usize = 4;
const MESSAGES: usize = 5000;
const KILLS: usize = 45;
/// How long the link is cut.
const CUT: Duration = Duration::from_secs(30);
/// Between two deaths.
const BETWEEN: Duration = Duration::from_millis(400);
/// How long what is complete at last may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What `TEAM_BENCH_HOSTED` names: how many teammates each of the ten machines has.
const HOSTED: &str = "TEAM_BENCH_HOSTED";
const MACHINES: usize = 10;

fn row(name: &str, measured: String, limit: String, aim: &'static str, met: bool) -> Figure {
    Figure {
        name: name.to_owned(),
        measured,
        limit,
        ratio: None,
        aim,
        met,
    }
}

/// A team that reaches other machines by the stub.
fn far_team() -> (Team, Far) {
    let mut team = Team::new();
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_teamd"));
    let folder = team.temp().join("far");
    let far = Far::of(&mut team, folder, programs.parent().unwrap());
    team.teamd(["start"]).ok();
    (team, far)
}

fn spawn(team: &Team, name: &str, host: &str, workspace: &Path) {
    let workspace = workspace.to_str().unwrap();
    let words = ["spawn", name, "--model", "script", "--workspace", workspace];
    run(team, &[&words[..], &["--host", host]].concat());
}

/// Four senders write to a teammate on a host, while home, the host daemon and the link die by
/// turns, and then the link is cut.
pub(crate) fn mail(effort: Effort) -> Vec<Figure> {
    let (team, far) = far_team();
    team.teamctl(["host", "add", BOX]).ok();
    spawn(&team, "alice", BOX, team.root());
    let messages = effort.of(MESSAGES);
    let kills = effort.of(KILLS);
    let cut = CUT / if effort.quick { 10 } else { 1 };
    let sent = AtomicUsize::new(0);
    // Half of the messages are written while all die, the others while nothing carries them.
    let is_cut = AtomicBool::new(false);
    let complete = std::thread::scope(|scope| {
        for who in 0..SENDERS {
            let team = &team;
            let sent = &sent;
            let is_cut = &is_cut;
            scope.spawn(move || send_all(team, who, messages, (sent, is_cut)));
        }
        for number in 0..kills {
            let_pass(BETWEEN);
            kill_one(&team, number);
        }
        far.can_be_reached(BOX, false);
        kill_all(&carriers(&team));
        is_cut.store(true, Ordering::Relaxed);
        let_pass(cut);
        let all = SENDERS * messages;
        poll_for(PATIENCE, &mut || sent.load(Ordering::Relaxed) == all);
        far.can_be_reached(BOX, true);
        let began = Instant::now();
        let inbox = far.team_dir(BOX).unwrap().join("inbox/alice.jsonl");
        poll_for(PATIENCE, &mut || count_of(&inbox) >= all);
        began.elapsed()
    });
    team.teamctl(["shutdown", "alice"]).ok();
    let transcript = far.team_dir(BOX).unwrap().join("transcript/alice.jsonl");
    let read = consumed(&transcript);
    let (lost, doubled, reordered) = judged(&read, messages);
    team.teamd(["stop"]).ok();
    let all = SENDERS * messages;
    let figure = row(
        &format!(
            "{all} messages of {SENDERS} senders to a host, {kills} kills, a cut of {} s",
            cut.as_secs()
        ),
        format!(
            "{lost} lost, {doubled} doubled, {reordered} reordered; complete {} after the cut",
            time(complete)
        ),
        String::new(),
        "0 / 0 / 0, ≤ 3 s",
        (lost, doubled, reordered) == (0, 0, 0) && complete <= Duration::from_secs(3),
    );
    vec![figure]
}

/// Writes numbered messages: half of them at once, spread over the deaths, the rest in the cut.
fn send_all(team: &Team, who: usize, count: usize, (sent, is_cut): (&AtomicUsize, &AtomicBool)) {
    let dir = TeamDir::open(&team.path("")).unwrap();
    let alice = Name::new("alice").unwrap();
    let mut inbox = Appender::new(&alice);
    for number in 0..count {
        if number == count / 2 {
            poll_for(PATIENCE, &mut || is_cut.load(Ordering::Relaxed));
        }
        let content = format!("{who} {number}");
        let message = Message::new(Uuid::now_v7(), "lead", "alice", 1.0, Body::Message);
        inbox
            .append(&dir, &message.with_content(content), Durability::Process)
            .unwrap();
        sent.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(50) {
            let_pass(Duration::from_millis(100));
        }
    }
}

/// Kills home, the host daemon or the link. Home is started again, the others come by themselves.
fn kill_one(team: &Team, number: usize) {
    match number % 3 {
        0 => {
            team.kill_daemon();
            team.teamd(["start"]).ok();
        }
        1 => kill_all(&host_daemons(team)),
        _ => kill_all(&carriers(team)),
    }
}

fn kill_all(pids: &[i32]) {
    for pid in pids {
        signal(*pid, Signal::SIGKILL);
        poll_for(PATIENCE, &mut || !is_alive(*pid));
    }
}

/// How many of the messages are in an inbox.
fn count_of(inbox: &Path) -> usize {
    let text = std::fs::read(inbox).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let wanted = b"\"from\":\"lead\"";
    lines
        .filter(|line| line.windows(wanted.len()).any(|part| part == wanted))
        .count()
}

/// The texts that a teammate has consumed, in order.
fn consumed(transcript: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(transcript).unwrap_or_default();
    let entries = text.lines().map(serde_json::from_str::<Value>);
    let entries = entries.filter_map(Result::ok);
    let messages = entries.filter_map(|entry| entry["messages"].as_array().cloned());
    messages
        .flatten()
        .filter_map(|message| message["content"].as_str().map(str::to_owned))
        .collect()
}

/// How many of the messages are missing, came twice, or behind a later one of their sender.
fn judged(read: &[String], messages: usize) -> (usize, usize, usize) {
    let mut counts: HashMap<(usize, usize), usize> = HashMap::new();
    let mut last = [None; SENDERS];
    let mut reordered = 0;
    for text in read {
        let Some((who, number)) = text.split_once(' ') else {
            continue;
        };
        let (Ok(who), Ok(number)) = (who.parse::<usize>(), number.parse::<usize>()) else {
            continue;
        };
        *counts.entry((who, number)).or_default() += 1;
        reordered += usize::from(last[who] > Some(number));
        last[who] = Some(number);
    }
    let lost = SENDERS * messages - counts.len();
    let doubled = counts.values().map(|count| count - 1).sum();
    (lost, doubled, reordered)
}

/// One teammate over a real `ssh` on loopback, beside one at home; none where there is no `sshd`.
pub(crate) fn over_ssh(effort: Effort) -> Vec<Figure> {
    let there = Team::new();
    let Some(sshd) = Sshd::of(&there) else {
        return Vec::new();
    };
    let home = sshd.reached_from(Team::new());
    home.teamd(["start"]).ok();
    let mut log = Log::open(home.root());
    let [mut first, mut bare] = [(); 2].map(|()| Sample::default());
    for _ in 0..effort.of(20).max(3) {
        bare.add(after_a_pause(|| ssh_true(&home)));
        first.add(after_a_pause(|| run(&home, &["host", "add", BOX])));
        run(&home, &["host", "remove", BOX]);
        kill_all(&host_daemons(&there));
    }
    run(&home, &["host", "add", BOX]);
    let daemon = host_daemons(&there);
    let_pass(Duration::from_secs(2));
    let (_, pss) = memory_of(daemon.iter().copied());
    let carries = carriers_pss(&home, &there);
    let [
        mut spawns,
        mut ends,
        mut local_spawns,
        mut local_ends,
        mut syncs,
    ] = [(); 5].map(|()| Sample::default());
    for _ in 0..effort.of(100) {
        local_spawns.add(after_a_pause(|| {
            run(&home, &["spawn", "bob", "--model", "script"])
        }));
        home.wait_for("bob", "idle");
        local_ends.add(after_a_pause(|| run(&home, &["shutdown", "bob"])));
        spawns.add(after_a_pause(|| spawn(&home, "alice", BOX, there.root())));
        home.wait_for("alice", "idle");
        ends.add(after_a_pause(|| run(&home, &["shutdown", "alice"])));
        syncs.add(after_a_pause(|| (0..4).for_each(|_| log.append())));
        home.teamctl(["forget", "alice"]).ok();
        home.teamctl(["forget", "bob"]).ok();
    }
    home.teamd(["stop"]).ok();
    kill_all(&host_daemons(&there));
    let ms = Duration::from_millis;
    vec![
        row(
            "first contact (`host add`), whole process, p50",
            first.to_string(),
            format!("`ssh box true`: {bare}"),
            "≤ that + 60 ms",
            first.p50() <= bare.p50() + ms(60),
        ),
        row(
            "`spawn --host` over a warm link of loopback ssh, p50",
            spawns.to_string(),
            format!("local: {local_spawns}"),
            "≤ local + 5 ms",
            spawns.p50() <= local_spawns.p50() + ms(5),
        ),
        row(
            "shutdown of an idle teammate over loopback ssh, p50",
            ends.to_string(),
            format!("local: {local_ends}; 4 syncs: {}", time(syncs.p50())),
            "≤ local + 4 syncs + 1 ms",
            ends.p50() <= local_ends.p50() + syncs.p50() + ms(1),
        ),
        row(
            "idle host daemon, PSS",
            pss.map_or("only root can see it".to_owned(), |pss| {
                format!("{pss:.2} MB")
            }),
            format!("beside it, RSS: {carries}"),
            "≤ 5 MB",
            pss.is_some_and(|pss| pss <= 5.0),
        ),
    ]
}

fn ssh_true(home: &Team) {
    let mut command: Command = home.command("ssh", ["-T", "-o", "RemoteCommand=none"]);
    command.args(["-o", "ClearAllForwardings=yes", "-o", "RequestTTY=no"]);
    command.args(["--", BOX, "true"]).stdin(Stdio::null());
    assert!(command.status().unwrap().success());
}

/// What the processes between the two daemons take.
fn carriers_pss(home: &Team, there: &Team) -> String {
    let ssh: Vec<i32> = descendants(home.daemon_pid());
    let relay = carriers(there);
    let rss = |pids: Vec<i32>| {
        let (rss, _) = memory_of(pids.into_iter());
        rss.map_or_else(|| "unknown".to_owned(), |rss| format!("{rss:.1} MB"))
    };
    format!("`ssh` {}, relay {}", rss(ssh), rss(relay))
}

/// Ten machines with some teammates each, beside one with all of them.
pub(crate) fn crowd(effort: Effort) -> Vec<Figure> {
    let named = std::env::var(HOSTED).ok().and_then(|it| it.parse().ok());
    let each: usize = named.unwrap_or(effort.of(100));
    let all = each * MACHINES;
    let local = Team::started();
    let here = lives(&local, all, |_| None);
    local.teamd(["stop"]).ok();
    let (team, _far) = far_team();
    for machine in 0..MACHINES {
        team.teamctl(["host", "add", &host(machine)]).ok();
    }
    let there = lives(&team, all, |number| Some(host(number % MACHINES)));
    team.teamd(["stop"]).ok();
    kill_all(&host_daemons(&team));
    let names = ["spawn all", "broadcast, until read", "shut all down"];
    let rows = names.into_iter().zip(here.into_iter().zip(there));
    rows.map(|(what, (here, there))| {
        let ratio = there.as_secs_f64() / here.as_secs_f64();
        Figure {
            ratio: Some(ratio),
            ..row(
                &format!("{MACHINES} hosts × {each} teammates on one machine: {what}"),
                time(there),
                format!("{all} at home: {}", time(here)),
                "≤ 2 ×",
                ratio <= 2.0,
            )
        }
    })
    .collect()
}

fn host(machine: usize) -> String {
    format!("box{machine}")
}

fn lives(
    team: &Team,
    all: usize,
    host_of: impl Fn(usize) -> Option<String> + Sync,
) -> [Duration; 3] {
    let next = AtomicUsize::new(0);
    let spawn_all = || {
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= all {
                            return;
                        }
                        let name = format!("w{number:04}");
                        match host_of(number) {
                            Some(host) => spawn(team, &name, &host, team.root()),
                            None => run(team, &["spawn", &name, "--model", "script"]),
                        }
                    }
                });
            }
        });
    };
    let (spawned, _) = once(spawn_all);
    team.until("all to rest", || {
        let roster = team.roster();
        let members = roster["members"].as_array().unwrap();
        members.iter().filter(|it| it["status"] == "idle").count() == all
    });
    let before = notices(team);
    let (told, _) = once(|| {
        run(team, &["broadcast", "to all"]);
        team.until("all to have read", || notices(team) >= before + all);
    });
    let (ended, _) = once(|| run(team, &["shutdown", "--all"]));
    [spawned, told, ended]
}

/// How often teammates have told the lead that they are idle.
fn notices(team: &Team) -> usize {
    team.file("inbox/lead.jsonl").matches("idle_reason").count()
}
