//! The tools of a teammate, called by the script model in a real workspace.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::look::HELD;
use crate::support::process::{children, command_line, let_pass, stat};
use crate::support::{Team, is_alive, poll_until, signal};

/// A team with an idle teammate.
fn with_alice() -> Team {
    let team = Team::started();
    team.spawn("alice", "");
    team
}

fn content(result: &Value) -> &str {
    result["content"].as_str().unwrap()
}

/// The one result must be an error that holds this text.
#[track_caller]
fn refused(results: &[Value], why: &str) {
    assert!(
        results.len() == 1 && results[0]["is_error"] == true && content(&results[0]).contains(why),
        "{results:?}"
    );
}

#[test]
fn bash_returns_what_the_command_said_and_how_it_ended() {
    let team = with_alice();
    let results = team.does(
        "alice",
        "/bash pwd; echo error >&2\n/bash true\n/bash echo partly; exit 3\n/bash kill -9 $$",
    );
    let root = team.root().canonicalize().unwrap();
    assert_eq!(content(&results[0]), format!("{}\nerror", root.display()));
    assert_eq!(content(&results[1]), "(no output)");
    assert_eq!(
        (content(&results[2]), &results[2]["is_error"]),
        ("partly\n[exit code 3]", &json!(true))
    );
    assert_eq!(
        (content(&results[3]), &results[3]["is_error"]),
        ("[ended by signal 9]", &json!(true))
    );
}

#[test]
fn a_model_gets_what_a_terminal_would_show() {
    let team = with_alice();
    let bar = r#"for i in $(seq 0 400); do printf '\rReceiving: %d\033[K' $i; done; printf ', \033[32mdone\033[0m\n'"#;
    let in_background = json!({ "command": bar, "run_in_background": true });
    let orders = format!("/bash {bar}\n/bash {in_background}");
    let results = team.does("alice", &orders);
    assert_eq!(content(&results[0]), "Receiving: 400, done");
    let kept = || team.file("log/alice.background-1.log");
    team.until("the log to be kept", || kept().contains("exit code 0"));
    assert!(
        kept().contains("\r") && kept().contains("Receiving: 399\u{1b}[K"),
        "the log is as it was printed"
    );
}

/// What the person has set for the terminal is not for a command that no person sees.
#[test]
fn an_editor_a_pager_and_a_prompt_end_at_once_and_say_why() {
    let waits = "sh -c 'sleep 300'";
    let names = [
        "EDITOR",
        "VISUAL",
        "GIT_EDITOR",
        "GIT_SEQUENCE_EDITOR",
        "KUBE_EDITOR",
        "GIT_PAGER",
        "SSH_ASKPASS",
    ];
    let team = names
        .iter()
        .fold(Team::new(), |team, name| team.with(name, waits));
    let team = team.with("GIT_ASKPASS", "/bin/sleep").with("DISPLAY", ":9");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    let results = team.does(
        "alice",
        "/bash git init -q . && git -c user.name=u -c user.email=u@x commit --allow-empty\n\
         /bash git -c user.name=u -c user.email=u@x commit -q --allow-empty -m one && git -c core.pager='sleep 300' -p log\n\
         /bash cat; read -r x </dev/tty\n\
         /bash GIT_EDITOR=true git -c user.name=u -c user.email=u@x commit --allow-empty --amend && echo amended\n\
         /bash echo \"${KUBE_EDITOR-not given}\"; eval \"$GIT_SEQUENCE_EDITOR\" x",
    );
    assert!(
        content(&results[0]).contains("no editor here: give the text on the command line"),
        "{results:?}"
    );
    assert!(content(&results[1]).contains("one"), "{results:?}");
    assert!(content(&results[2]).contains("/dev/tty"), "{results:?}");
    assert!(content(&results[3]).contains("amended"), "{results:?}");
    // No toolchain needs the editor of another program.
    let last = content(&results[4]);
    assert!(
        last.contains("not given") && last.contains("no editor here"),
        "{results:?}"
    );
}

/// It is bounded while it runs as it is at its end.
#[test]
fn the_log_of_a_command_in_the_background_does_not_grow_without_a_limit() {
    let team = with_alice();
    team.does(
        "alice",
        "/bash {\"command\": \"head -c 60000000 /dev/zero | tr '\\\\0' x; touch flooded; sleep 300\", \"run_in_background\": true}",
    );
    let results = team.does(
        "alice",
        "/bash until [ -e flooded ]; do sleep 0.05; done; stat -c %s $TMPDIR/background-1.log; du -sb $TMPDIR | cut -f1",
    );
    let sizes: Vec<u64> = content(&results[0])
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(
        sizes
            .iter()
            .all(|size| *size > 1_000_000 && *size < 5_000_000),
        "{sizes:?}"
    );
}

#[test]
fn of_a_long_output_head_and_tail_are_kept_and_the_cut_is_told() {
    let team = with_alice();
    let results = team.does("alice", "/bash seq 1 100000");
    let text = content(&results[0]);
    assert!(
        text.starts_with("1\n2\n") && text.ends_with("99999\n100000"),
        "{}",
        text.len()
    );
    assert!(
        text.contains(" characters cut]") && text.chars().count() < 51_000,
        "{}",
        text.len()
    );
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
    let team = with_alice();
    let command = "setsid sleep 300 & trap '' TERM; echo begun; while :; do sleep 301; done";
    let results = team.does(
        "alice",
        &format!("/bash {}", json!({ "command": command, "timeout": 3 })),
    );
    assert!(
        content(&results[0]).starts_with("begun\n") && content(&results[0]).contains("timed out"),
        "{results:?}"
    );
    assert_eq!(results[0]["is_error"], true);
    assert_eq!(team.processes().len(), 2, "the daemon and the worker");
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    let team = with_alice();
    let results = team.does(
        "alice",
        "/bash sleep 300 & setsid sleep 301 & (setsid -f bash -c 'sleep 302'); echo left",
    );
    assert_eq!(content(&results[0]), "left");
    assert_eq!(team.processes().len(), 2, "the daemon and the worker");
}

#[test]
fn a_background_command_goes_on_writes_a_log_and_ends_with_the_worker() {
    let team = with_alice();
    let results = team.does(
        "alice",
        "/bash {\"command\": \"echo begun; setsid sleep 300 & wait\", \"run_in_background\": true}\n/bash echo meanwhile",
    );
    assert!(
        content(&results[0]).contains("in the background"),
        "{results:?}"
    );
    assert_eq!(content(&results[1]), "meanwhile");
    let log = || {
        let files = std::fs::read_dir(team.path("log"))
            .unwrap()
            .map(|file| file.unwrap().path());
        let of_alice = files.filter(|path| {
            path.to_string_lossy().contains("log/alice.") && !path.ends_with("alice.log")
        });
        of_alice
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect::<String>()
    };
    // While it runs, the log says where its output is: the team directory is nothing that a command
    // has open.
    let said = log();
    let output = said
        .split_once("its output is in ")
        .unwrap()
        .1
        .trim_end()
        .trim_end_matches(']');
    team.until("its output", || {
        std::fs::read_to_string(output).unwrap().contains("begun")
    });
    assert!(team.processes().len() > 2 && !log().contains("begun"));
    assert_eq!(team.shutdown("alice", &[], 0)["outcome"], "shutdown");
    assert!(
        log().contains("begun") && log().contains("[ended]"),
        "{}",
        log()
    );
    assert_eq!(team.processes(), [team.daemon_pid()]);
}

/// Failure 18 (a vendor's CLI, measured).
#[test]
fn the_end_of_a_worker_by_sigkill_ends_its_running_command() {
    let team = Team::started();
    let command = "/bash trap '' TERM HUP; setsid bash -c 'trap \"\" TERM HUP; sleep 300' & touch held; sleep 301";
    team.teamctl(["spawn", "alice", "--restart", "never", "--prompt", command])
        .ok();
    team.until_held();
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    assert_eq!(team.processes(), [team.daemon_pid()]);
}

#[test]
fn an_incarnation_is_not_over_before_the_end_of_its_last_command() {
    // Found by trying: 30 of 30 times tool processes were still alive when their worker was reaped.
    let team = Team::started();
    let command = "/bash for i in {1..150}; do setsid sleep 300 & done; touch held; wait";
    for _ in 0..5 {
        team.teamctl(["spawn", "alice", "--restart", "never", "--prompt", command])
            .ok();
        team.until_held();
        let worker = team.pid("alice");
        let shim = children(worker)
            .into_iter()
            .find(|&pid| command_line(pid).contains(" shim "))
            .unwrap();
        signal(worker, Signal::SIGKILL);
        assert!(poll_until(&mut || !is_alive(worker)));
        signal(shim, Signal::SIGSTOP);
        let_pass(Duration::from_millis(200));
        // It has to end 150 processes, and is hardly faster than the signal. (The end of the last
        // thread of the worker wakes it again.)
        let roster = team.member("alice");
        let caught = stat(shim).is_some_and(|stat| stat[0] == "T");
        assert!(!caught || roster["exit"].is_null(), "{roster}");
        signal(shim, Signal::SIGCONT);
        team.wait_for("alice", "crashed");
        assert_eq!(team.processes(), [team.daemon_pid()]);
        if caught {
            return;
        }
        std::fs::remove_file(team.root().join("held")).unwrap();
    }
}

/// Failure 28 (CC#23620); Failure 30 (B, measured).
#[test]
fn a_command_of_a_killed_worker_is_not_run_again() {
    let team = Team::started();
    team.spawn(
        "alice",
        &format!("/bash echo run >> runs\n{HELD}; echo held >> runs\n/bash echo next >> runs"),
    );
    team.until_held();
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until_finished("alice", 1);
    assert_eq!(team.text("runs"), "run\nnext\n");
    assert!(content(&team.results("alice")[1]).contains("may have run"));
}

#[test]
fn files_are_read_by_line() {
    let team = with_alice();
    team.write("ten.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    let results = team.does(
        "alice",
        "/read_file {\"path\": \"ten.txt\"}\n/read_file {\"path\":\"ten.txt\",\"offset\":3,\"limit\":2}\n/read_file {\"path\": \"missing.txt\"}\n/read_file {\"path\": \".\"}",
    );
    assert_eq!(content(&results[0]), "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    assert!(content(&results[1]).starts_with("3\n4\n"), "{results:?}");
    assert_eq!(
        (&results[2]["is_error"], &results[3]["is_error"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn files_are_written_and_edited_whole_with_their_mode() {
    let team = with_alice();
    team.write("run.sh", "echo one\n");
    std::fs::set_permissions(team.root().join("run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    let edit = |old: &str, new: &str| {
        format!(
            "/edit_file {}",
            json!({ "path": "run.sh", "old_text": old, "new_text": new })
        )
    };
    let orders = [
        r"/write_file deep/er/new.txt a\nb".to_owned(),
        edit("one", "two"),
        edit("absent", "x"),
        edit("o", "x"),
    ]
    .join("\n");
    let results = team.does("alice", &orders);
    let errors: Vec<bool> = results
        .iter()
        .map(|result| result["is_error"].as_bool().unwrap())
        .collect();
    assert_eq!(errors, [false, false, true, true], "{results:?}");
    assert_eq!(
        (team.text("deep/er/new.txt"), team.text("run.sh")),
        ("a\nb".to_owned(), "echo two\n".to_owned())
    );
    assert!(
        content(&results[2]).contains("not found") && content(&results[3]).contains("times"),
        "{results:?}"
    );
    assert_eq!(
        team.root()
            .join("run.sh")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o750
    );
}

#[test]
fn no_file_tool_leaves_the_workspace() {
    let team = with_alice();
    let outside = team.root().parent().unwrap().join("home/secret.txt");
    team.write("../home/secret.txt", "secret");
    symlink(&outside, team.root().join("link.txt")).unwrap();
    symlink(outside.parent().unwrap(), team.root().join("dir")).unwrap();
    symlink("dir/secret.txt", team.root().join("chain.txt")).unwrap();
    let absolute = outside.to_str().unwrap();
    for path in [
        "../home/secret.txt",
        absolute,
        "link.txt",
        "dir/secret.txt",
        "chain.txt",
        "a/../../home/secret.txt",
    ] {
        refused(
            &team.does("alice", &format!("/read_file {{\"path\": \"{path}\"}}")),
            "",
        );
        refused(
            &team.does("alice", &format!("/write_file {path} changed")),
            "",
        );
        let edit = json!({ "path": path, "old_text": "secret", "new_text": "changed" });
        refused(&team.does("alice", &format!("/edit_file {edit}")), "");
    }
    refused(&team.does("alice", "/write_file dir/new.txt x"), "");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
    assert!(!outside.with_file_name("new.txt").exists());
    assert!(
        !team
            .results("alice")
            .iter()
            .any(|result| content(result) == "secret")
    );
}

/// Failure 25 (A, B, C; mcp_agent_mail#99).
#[test]
fn no_file_tool_reaches_into_the_team_directory() {
    let team = with_alice();
    symlink(team.path("config.json"), team.root().join("roster.json")).unwrap();
    symlink(".team", team.root().join("team")).unwrap();
    let absolute = team.path("inbox/lead.jsonl");
    for path in [
        ".team/config.json",
        "./.team/inbox/bob.jsonl",
        "roster.json",
        "team/journal.jsonl",
        absolute.to_str().unwrap(),
    ] {
        for (tool, input) in [
            ("read_file", json!({ "path": path })),
            ("write_file", json!({ "path": path, "content": "" })),
        ] {
            refused(&team.does("alice", &format!("/{tool} {input}")), "");
        }
    }
    assert!(!team.path("inbox/bob.jsonl").exists());
    assert_eq!(
        team.roster()["team_name"].as_str().map(str::is_empty),
        Some(false)
    );
}

#[test]
fn a_call_that_makes_no_sense_is_an_error_result_and_the_work_goes_on() {
    let team = with_alice();
    let orders = "/dance wildly\n/bash {\"cmd\":\"x\"}\n/bash {\"command\":\"true\",\"timeout\":99999}\n/read_file\n\
                  /shutdown_response {\"request_id\": \"zzz\", \"approve\": true}\n/send_message\n/plan_approval\n/bash echo on";
    let results = team.does("alice", orders);
    let errors: Vec<bool> = results
        .iter()
        .map(|result| result["is_error"].as_bool().unwrap())
        .collect();
    assert_eq!(
        errors,
        [true, true, true, true, true, true, true, false],
        "{results:?}"
    );
    assert!(
        content(&results[0]).contains("dance") && content(&results[1]).contains("command"),
        "{results:?}"
    );
    assert!(content(&results[2]).contains("3600"), "{results:?}");
    assert_eq!(content(&results[7]), "on");
}

#[test]
fn read_inbox_is_a_delivery() {
    let team = Team::started();
    team.spawn("alice", &format!("{HELD}\n/read_inbox\n/read_inbox"));
    team.until_held();
    team.echo(
        "alice",
        r#"{"type":"message","from":"bob","content":"psst"}"#,
    );
    team.release();
    team.until_finished("alice", 1);
    let consumed = team.consumed("alice");
    assert_eq!(
        consumed
            .iter()
            .filter(|message| message["content"] == "psst")
            .count(),
        1
    );
    let results = team.results("alice");
    assert_eq!(
        results
            .iter()
            .filter(|result| content(result) == "no new messages")
            .count(),
        2,
        "{results:?}"
    );
}

#[test]
fn the_turn_limit_ends_the_work_and_not_the_process() {
    let team = Team::new().with("TEAM_MAX_TURNS", "3");
    team.teamd(["start"]).ok();
    team.spawn(
        "alice",
        "/bash echo 1\n/bash echo 2\n/bash echo 3\n/bash echo 4",
    );
    team.until_finished("alice", 1);
    assert_eq!(team.notices("alice")[0]["idle_reason"], "max_turns");
    assert_eq!(team.results("alice").len(), 3);
    team.wait_for("alice", "idle");
    let results = team.does("alice", "/bash echo again");
    assert_eq!(content(&results[0]), "again");
    assert_eq!(team.notices("alice")[1]["idle_reason"], "available");
}

#[test]
fn an_interrupt_ends_the_work_and_not_the_teammate() {
    let team = Team::started();
    team.spawn("alice", &format!("{HELD}\n/bash echo never > never"));
    team.until_held();
    let pid = team.pid("alice");
    assert_eq!(
        team.teamctl(["interrupt", "alice"]).ok().stdout,
        "interrupted alice\n"
    );
    let last = team.transcript("alice").pop().unwrap();
    assert_eq!(
        last["idle_reason"], "interrupted",
        "it says so when it is true: {last}"
    );
    team.until_finished("alice", 1);
    assert_eq!(team.notices("alice")[0]["idle_reason"], "interrupted");
    assert!(content(&team.results("alice")[0]).contains("interrupted"));
    assert_eq!(team.processes().len(), 2, "the daemon and the worker");
    let results = team.does("alice", "/bash echo next");
    assert_eq!((content(&results[0]), team.pid("alice")), ("next", pid));
    assert!(!team.root().join("never").exists());
    // An idle teammate is not interrupted, neither now nor later.
    team.teamctl(["interrupt", "alice"]).ok();
    assert_eq!(content(&team.does("alice", "/bash echo then")[0]), "then");
}

#[test]
fn a_teammate_commits_in_place_where_the_user_has_no_author_and_as_the_user_where_there_is_one() {
    let team = with_alice();
    let commit = "/bash git init -q . && git commit -q --allow-empty -m one && git log -1 --format='%an <%ae>'";
    let results = team.does("alice", commit);
    assert_eq!(content(&results[0]), "alice <alice@teamd.invalid>");
    // That of the command counts more, and so does that of the user.
    let own = "/bash git -c user.name=Ann -c user.email=ann@example.org commit -q --allow-empty -m two && \
               git log -1 --format='%an <%ae>'";
    assert_eq!(
        content(&team.does("alice", own)[0]),
        "Ann <ann@example.org>"
    );
    let settings = "[user]\n\tname = Una\n\temail = una@example.org\n";
    std::fs::File::create(team.home().join(".gitconfig"))
        .and_then(|mut file| file.write_all(settings.as_bytes()))
        .unwrap();
    team.spawn("bob", "");
    let results = team.does(
        "bob",
        "/bash mkdir b && cd b && git init -q . && git commit -q --allow-empty -m one && git log -1 --format='%an <%ae>'",
    );
    assert_eq!(content(&results[0]), "Una <una@example.org>");
}

#[test]
fn what_a_command_writes_into_the_author_file_is_confined_like_the_command() {
    let team = with_alice();
    let set = "/bash git init -q . && git config -f \"$GIT_CONFIG_SYSTEM\" core.fsmonitor 'touch ran; false' && \
               git status -s > /dev/null; ls ran";
    assert_eq!(content(&team.does("alice", set)[0]), "ran");
    let ran = team.root().join("ran");
    std::fs::remove_file(&ran).unwrap();
    // Nothing outside reads the file: no other process has the variable.
    let environment = std::fs::read(format!("/proc/{}/environ", team.pid("alice"))).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(!environment.contains("GIT_CONFIG_SYSTEM"), "{environment}");
    let mut outside = std::process::Command::new("git");
    outside.args(["status", "-s"]).current_dir(team.root());
    assert!(outside.output().unwrap().status.success());
    assert!(!ran.exists());
    // It opens no gate.
    team.teamctl(["request-plan", "alice"]).ok();
    team.does("alice", "/bash git status -s");
    assert!(!ran.exists());
}
