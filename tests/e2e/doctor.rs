//! `teamctl doctor`: each thing that can be wrong is made wrong, seen, set right where that is
//! safe, and nothing is lost.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Running, Team, is_alive, signal};

/// What the doctor reports of the team directory. What it reports of the machine does not count.
struct Report {
    code: Option<i32>,
    findings: Vec<Value>,
    fixed: Vec<String>,
}

const OF_THE_MACHINE: [&str; 6] = ["sandbox", "inotify", "files", "processes", "cgroup", "disk"];

fn examine(team: &Team, args: &[&str]) -> Report {
    let run = team.teamctl(["--json", "doctor"].iter().chain(args));
    let report = run.json();
    let findings = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| {
            finding["severity"] != "ok"
                && !OF_THE_MACHINE.contains(&finding["check"].as_str().unwrap())
        })
        .cloned()
        .collect();
    let fixed = report["fixed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap().to_owned())
        .collect();
    Report {
        code: run.code,
        findings,
        fixed,
    }
}

impl Report {
    /// There is a finding of this check and severity, whose text holds this.
    #[track_caller]
    fn has(&self, check: &str, severity: &str, text: &str) -> &Value {
        let found = self.findings.iter().find(|finding| {
            finding["check"] == check
                && finding["severity"] == severity
                && finding["what"].as_str().unwrap().contains(text)
        });
        found.unwrap_or_else(|| {
            panic!(
                "no {severity} of {check} with {text:?} in {:#?}",
                self.findings
            )
        })
    }

    #[track_caller]
    fn has_only(&self, check: &str) -> &Self {
        assert!(
            self.findings
                .iter()
                .all(|finding| finding["check"] == check),
            "{:#?}",
            self.findings
        );
        self
    }

    #[track_caller]
    fn is_clean(&self) {
        assert!(self.findings.is_empty(), "{:#?}", self.findings);
    }
}

/// A team with mail and work behind it, in which no process runs.
fn at_rest() -> Team {
    let team = Team::started();
    team.spawn("alice", "/bash echo one\n/bash echo two");
    team.until("the work to be done", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["from"] == "alice")
    });
    team.teamctl(["send", "alice", "hello"]).ok();
    team.until("the mail to be read", || {
        team.has_consumed("alice", "hello")
    });
    team.wait_for("alice", "idle");
    team.teamd(["stop"]).ok();
    team
}

fn append(path: &Path, text: &str) {
    std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_team_that_works_raises_no_alarm() {
    let team = Team::started();
    let work = "/bash true\n/send_message bob hi\n".repeat(10);
    team.spawn("bob", "");
    for name in ["alice", "carol"] {
        team.spawn(name, &work);
    }
    for round in 0..3 {
        let coming = team.start_teamctl(["spawn", "dave"]);
        examine(&team, &[]).is_clean();
        coming.finish().ok();
        let going = team.start_teamctl(["shutdown", "dave"]);
        examine(&team, &[]).is_clean();
        going.finish().ok();
        team.teamctl(["send", "alice", &format!("/bash echo {round}")])
            .ok();
    }
    let report = examine(&team, &["--fix"]);
    report.is_clean();
    assert!(report.fixed.is_empty(), "{:?}", report.fixed);
    assert_eq!(team.status("dave"), "shutdown");
}

#[test]
fn where_nothing_is_wrong_nothing_is_said_and_without_a_team_neither() {
    let team = at_rest();
    examine(&team, &[]).is_clean();
    let short = team.teamctl(["doctor"]).stdout;
    let long = team.teamctl(["doctor", "-v"]).stdout;
    assert!(
        short.starts_with("all is well (") || !short.contains("  ok  "),
        "{short}"
    );
    assert!(
        long.contains("  ok  ") && long.lines().count() > short.lines().count(),
        "{long}"
    );
    let empty = Team::new();
    examine(&empty, &["--fix"]).is_clean();
    assert!(!empty.path("").exists(), "looking makes nothing");
}

#[test]
fn a_killed_daemon_leaves_workers_that_the_next_one_adopts() {
    let team = Team::started();
    team.spawn("alice", "");
    team.kill_daemon();
    let report = examine(&team, &[]);
    assert_eq!(report.code, Some(1));
    report.has("daemon", "problem", "no daemon runs, and 1 worker is alive");
    report.has_only("daemon");
    assert!(is_alive(team.pid("alice")));
    team.teamd(["start"]).ok();
    examine(&team, &[]).is_clean();
}

#[test]
fn a_torn_end_of_the_journal_is_told_and_set_aside_by_a_start() {
    let team = at_rest();
    append(&team.path("journal.jsonl"), "{\"seq\":99,\"at\"");
    let report = examine(&team, &["--fix"]);
    assert_eq!((report.code, report.fixed.len()), (Some(1), 0));
    let finding = report.has("journal", "problem", "14 bytes without a newline");
    assert_eq!(
        finding["next"],
        "`teamd start` sets it aside in journal.torn"
    );
    team.teamd(["start"]).ok();
    assert_eq!(team.file("journal.torn"), "{\"seq\":99,\"at\"\n");
    assert_eq!(team.status("alice"), "shutdown");
}

#[test]
fn a_journal_that_cannot_be_read_further_up_is_named_and_left_alone() {
    let team = at_rest();
    let broken = team
        .file("journal.jsonl")
        .replacen("\"seq\":2,", "\"seq\":2;", 1);
    team.put("journal.jsonl", &broken);
    let report = examine(&team, &["--fix"]);
    let finding = report.has(
        "journal",
        "problem",
        "line 2 of journal.jsonl cannot be read",
    );
    assert!(
        finding["next"]
            .as_str()
            .unwrap()
            .contains("correct that line"),
        "{finding}"
    );
    assert_eq!((report.code, report.fixed.len()), (Some(1), 0));
    assert_eq!(team.file("journal.jsonl"), broken);
    assert!(
        team.teamd(["start"])
            .exits(1)
            .stderr
            .contains("correct that line")
    );
    let gap: String = team
        .file("journal.jsonl")
        .lines()
        .skip(2)
        .map(|line| format!("{line}\n"))
        .collect();
    team.put("journal.jsonl", &gap);
    examine(&team, &[]).has("journal", "problem", "seq 3 follows 0");
    team.put("journal.jsonl", "{\"version\":7,\"what\":\"ever\"}\n");
    examine(&team, &[]).has("journal", "problem", "has version 7");
}

#[test]
fn a_damaged_roster_is_told_and_made_from_the_journal_by_a_start() {
    let team = at_rest();
    let before = team.roster();
    team.put("config.json", "garbage");
    let report = examine(&team, &["--fix"]);
    let finding = report.has("roster", "problem", "is not a roster");
    assert_eq!(finding["next"], "`teamd start` writes it from the journal");
    assert_eq!(team.file("config.json"), "garbage");
    std::fs::remove_file(team.path("config.json")).unwrap();
    examine(&team, &[]).has("roster", "problem", "there is no config.json");
    team.teamd(["start"]).ok();
    assert_eq!(team.roster()["members"], before["members"]);
    team.teamd(["stop"]).ok();
    team.put(
        "config.json",
        &json!({"version": 9, "seq": 1, "team_name": "t", "members": []}).to_string(),
    );
    examine(&team, &[]).has("roster", "problem", "has version 9");
}

#[test]
fn what_others_may_use_is_taken_from_them_beside_a_daemon_too() {
    let team = Team::started();
    team.spawn("alice", "");
    chmod(&team.path("log"), 0o755);
    chmod(&team.path("inbox/alice.jsonl"), 0o666);
    chmod(&team.path(""), 0o750);
    let report = examine(&team, &[]);
    assert_eq!((report.code, report.findings.len()), (Some(1), 3));
    report.has("access", "problem", "inbox/alice.jsonl has mode 0666");
    let fixed = examine(&team, &["--fix"]);
    fixed.is_clean();
    assert_eq!((fixed.code, fixed.fixed.len()), (Some(0), 3));
    let mode = |path: &str| team.path(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("log"), mode("inbox/alice.jsonl"), mode("")),
        (0o700, 0o600, 0o700)
    );
}

#[test]
fn inboxes_that_cannot_be_read_as_they_stand_are_told() {
    let team = at_rest();
    append(
        &team.path("inbox/alice.jsonl"),
        "nonsense\n{\"type\":\"mess",
    );
    let report = examine(&team, &["--fix"]);
    let finding = report.has(
        "inboxes",
        "note",
        "1 line of inbox/alice.jsonl cannot be used",
    );
    assert!(
        finding["means"]
            .as_str()
            .unwrap()
            .contains("still to be read"),
        "{finding}"
    );
    report.has("inboxes", "note", "ends with 13 bytes without a newline");
    report.has_only("inboxes");
    assert!(
        team.file("inbox/alice.jsonl").ends_with("{\"type\":\"mess"),
        "nothing is cut"
    );
    team.put("inbox/zoe.jsonl", "");
    chmod(&team.path("inbox/zoe.jsonl"), 0o600);
    examine(&team, &[]).has("inboxes", "note", "an inbox of zoe");
}

#[test]
fn what_is_no_file_or_leads_elsewhere_is_told() {
    let team = at_rest();
    std::fs::rename(team.path("inbox/alice.jsonl"), team.root().join("kept")).unwrap();
    symlink(team.root().join("kept"), team.path("inbox/alice.jsonl")).unwrap();
    examine(&team, &[]).has("access", "problem", "inbox/alice.jsonl is a symbolic link");
    std::fs::remove_file(team.path("inbox/alice.jsonl")).unwrap();
    nix::unistd::mkfifo(
        &team.path("inbox/alice.jsonl"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    examine(&team, &[]).has(
        "access",
        "problem",
        "inbox/alice.jsonl is not what belongs there",
    );
    std::fs::remove_file(team.path("inbox/alice.jsonl")).unwrap();
    std::fs::rename(team.root().join("kept"), team.path("inbox/alice.jsonl")).unwrap();
    examine(&team, &[]).is_clean();
}

#[test]
fn transcripts_with_a_foreign_hand_in_them_are_told() {
    let team = at_rest();
    let before = team.file("transcript/alice.jsonl");
    let result = before
        .lines()
        .find(|line| line.contains("\"entry\":\"result\""))
        .unwrap()
        .to_owned();
    append(&team.path("transcript/alice.jsonl"), &format!("{result}\n"));
    examine(&team, &[]).has(
        "transcripts",
        "problem",
        "it is the result of no call, or a second one",
    );
    team.put(
        "transcript/alice.jsonl",
        &before.replacen("\"entry\"", "\"entity\"", 1),
    );
    examine(&team, &[]).has("transcripts", "problem", "line 1: missing field `entry`");
    team.put("transcript/alice.jsonl", &format!("{before}{{\"at\":1"));
    examine(&team, &[]).has("transcripts", "note", "ends with 7 bytes without a newline");
}

/// A process that looks like a worker of this team, and that no record names.
fn impostor(team: &Team) -> Running {
    std::fs::File::create(team.root().join("run"))
        .unwrap()
        .write_all(b"read line\n")
        .unwrap();
    let dir = team.path("").canonicalize().unwrap();
    let script = format!(
        "exec -a /opt/team-worker bash run --name ghost --incarnation 4 --team-dir {}",
        dir.display()
    );
    let running = Running::start(team.command("bash", ["-c", &script]));
    team.until("it to be there", || {
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", running.pid()));
        line.unwrap_or_default().starts_with("/opt/team-worker")
    });
    running
}

#[test]
fn an_unknown_worker_is_named_and_ended_only_on_request_without_a_daemon() {
    let team = at_rest();
    let mut ghost = impostor(&team);
    let report = examine(&team, &[]);
    let finding = report.has("orphans", "problem", "a worker of ghost (incarnation 4)");
    assert!(
        finding["what"]
            .as_str()
            .unwrap()
            .contains("it holds no lock"),
        "{finding}"
    );
    assert!(ghost.is_running());
    // A daemon judges by itself which workers are its own.
    team.teamd(["start"]).ok();
    let beside = examine(&team, &["--fix"]);
    beside.is_clean();
    assert!(ghost.is_running() && beside.fixed.is_empty());
    team.teamd(["stop"]).ok();
    let fixed = examine(&team, &["--fix"]);
    assert_eq!(fixed.fixed, [format!("process {}: ended", ghost.pid())]);
    fixed.is_clean();
    assert!(!ghost.is_running());
}

#[test]
fn a_stranger_that_holds_a_liveness_lock_is_named() {
    let team = at_rest();
    let transcript = std::fs::File::open(team.path("transcript/alice.jsonl")).unwrap();
    transcript.lock().unwrap();
    let report = examine(&team, &["--fix"]);
    let told = format!("process {} (", std::process::id());
    report.has("locks", "problem", &told);
    // Not by its end: what another test starts just then has a copy of the descriptor for a moment.
    transcript.unlock().unwrap();
    examine(&team, &[]).is_clean();
}

#[test]
fn a_daemon_that_holds_the_lock_and_does_not_answer_is_named() {
    let team = Team::started();
    let daemon = team.daemon_pid();
    signal(daemon, Signal::SIGSTOP);
    let report = examine(&team, &["--fix"]);
    report.has("daemon", "problem", &format!("process {daemon} ("));
    signal(daemon, Signal::SIGCONT);
    examine(&team, &[]).is_clean();
}

#[test]
fn people_are_told_what_it_means_and_what_to_do() {
    let team = at_rest();
    append(&team.path("journal.jsonl"), "{");
    let run = team.teamctl(["doctor"]).exits(1);
    let lines: Vec<&str> = run.stdout.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with("journal "))
        .unwrap();
    let told = [
        "journal      problem  the last line of journal.jsonl is torn (1 byte without a newline)",
        "             means    a daemon died while it wrote: what the line would have decided never took effect",
        "             next     `teamd start` sets it aside in journal.torn",
    ];
    assert_eq!(&lines[at..at + 3], told);
}

#[test]
fn a_line_of_the_leads_inbox_in_quarantine_is_not_still_to_be_read() {
    let team = Team::started();
    team.echo("lead", "no message");
    team.until("its quarantine", || {
        team.file("inbox/lead.rejected.jsonl")
            .contains("no message")
    });
    let said = team.teamctl(["doctor"]).stdout;
    assert!(
        said.contains("inbox/lead.jsonl cannot be used") && said.contains("0 still to be read"),
        "{said}"
    );
}

#[test]
fn an_inbox_folder_that_its_user_cannot_write_is_a_problem() {
    let team = Team::started();
    team.teamd(["stop"]).ok();
    std::fs::set_permissions(team.path("inbox"), PermissionsExt::from_mode(0o500)).unwrap();
    let said = team.teamctl(["doctor"]).stdout;
    assert!(
        said.contains("inbox has mode 0500") && said.contains("chmod 700"),
        "{said}"
    );
}

#[test]
fn files_of_tasks_that_say_otherwise_than_the_journal_are_told() {
    let team = Team::started();
    team.teamctl_with(["task", "import", "-"], "- [ ] a\n- [ ] b\n- [ ] c\n")
        .ok();
    let before = examine(&team, &[]);
    before.has("tasks", "note", "no teammate can take tasks 1, 2, 3");
    assert_eq!(before.findings.len(), 1, "{:#?}", before.findings);
    team.teamd(["stop"]).ok();
    let edited = team.file("tasks/1.json").replace("pending", "completed");
    for (file, content) in [
        ("1.json", edited.as_str()),
        ("2.json", "{"),
        ("99.json", "{}"),
        ("01.json", "{}"),
    ] {
        team.put(&format!("tasks/{file}"), content);
        chmod(&team.path(&format!("tasks/{file}")), 0o600);
    }
    std::fs::remove_file(team.path("tasks/3.json")).unwrap();
    let report = examine(&team, &[]);
    report.has(
        "tasks",
        "problem",
        "tasks/1.json disagrees with the journal",
    );
    report.has(
        "tasks",
        "problem",
        "tasks/2.json disagrees with the journal",
    );
    report.has("tasks", "problem", "there is no tasks/3.json");
    report.has("tasks", "note", "tasks/99.json matches no task");
    report.has("tasks", "note", "tasks/01.json matches no task");
    // Commands go by the journal, and the next daemon writes what is missing.
    team.teamd(["start"]).ok();
    assert_eq!(team.json(["task", "list"]).as_array().unwrap().len(), 3);
    team.teamd(["stop"]).ok();
    std::fs::remove_file(team.path("tasks/99.json")).unwrap();
    std::fs::remove_file(team.path("tasks/01.json")).unwrap();
    assert_eq!(examine(&team, &[]).findings, before.findings);
}
