//! What a command gives back.

use std::task::Poll;

use teamd_shared::machine::memory::MemoryKill;

use super::*;

#[tokio::test]
async fn the_result_is_what_the_command_wrote_and_how_it_ended() {
    let mut scratch = Scratch::new();
    for (command, outcome) in [
        ("echo hello", Outcome::ok("hello")),
        ("true", Outcome::ok("(no output)")),
        (
            "echo out; echo err >&2; echo out",
            Outcome::ok("out\nerr\nout"),
        ),
        ("echo half; exit 3", Outcome::error("half\n[exit code 3]")),
        ("false", Outcome::error("[exit code 1]")),
        ("kill -9 $$", Outcome::error("[ended by signal 9]")),
        ("kill -34 $$", Outcome::error("[ended by signal 34]")),
        ("printf 'no newline'", Outcome::ok("no newline")),
        (
            "--version",
            Outcome::error("bash: line 1: --version: command not found\n[exit code 127]"),
        ),
        ("pwd -P | xargs basename | wc -l", Outcome::ok("1")),
    ] {
        assert_eq!(scratch.run(command).await, outcome, "{command}");
    }
}

#[tokio::test]
async fn the_output_can_be_read_while_it_comes_and_until_the_next_command() {
    let mut scratch = Scratch::new();
    let log = scratch.path(".team/log/alice.command.log");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    let command = "echo tick; until [ -e go ]; do sleep 0.05; done; exit 3";
    let mut running = scratch.start(command);
    let is_there = until(|| read() == format!("$ {command}\ntick\n"));
    tokio::select! {
        _ = running.finish() => panic!("it ended"),
        () = is_there => {}
    }
    drop(File::create(scratch.path("go")).unwrap());
    timeout(LIMIT, running.finish()).await.unwrap();
    assert_eq!(read(), format!("$ {command}\ntick\n[exit code 3]\n"));
    scratch.run("true").await;
    assert_eq!(read(), "$ true\n[exit code 0]\n");
}

#[tokio::test]
async fn a_command_gets_its_environment_and_no_key() {
    let mut scratch = Scratch::new();
    let listed = scratch
        .run("env | grep -v -e '^_=' -e '^SHLVL=' -e '^PWD=' -e '^OLDPWD=' | LC_ALL=C sort")
        .await;
    assert_eq!(
        listed,
        Outcome::ok("COLOUR=b l\u{fffd}e\nPATH=/usr/bin:/bin")
    );
    let workspace = scratch.folder.path().canonicalize().unwrap();
    assert_eq!(
        scratch.run("pwd").await,
        Outcome::ok(workspace.to_str().unwrap())
    );
    let parents = scratch
        .run("tr '\\0' '\\n' < /proc/$PPID/environ; cat /proc/$PPID/cmdline")
        .await;
    assert!(!parents.content.contains("sk-secret"), "{parents:?}");
}

#[tokio::test]
async fn a_command_gets_three_descriptors_and_none_of_the_shims() {
    let mut scratch = Scratch::new();
    let listed = scratch.run("readlink /proc/self/fd/{0..300}; true").await;
    let kinds: Vec<&str> = listed
        .content
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(kinds, ["/dev/null", "pipe", "pipe"]);
    let group = scratch
        .run("test $(ps -o pgid= $$) = $$ && ps -o pgid= $PPID | grep -vq $$ && echo apart")
        .await;
    assert_eq!(group, Outcome::ok("apart"));
    // The shim's channel is a socket, which cannot be opened by its path.
    let written = scratch
        .run(r#"echo '{"code":0,"because":"exited"}' 2>&1 > /proc/$PPID/fd/1; exit 7"#)
        .await;
    assert!(written.content.ends_with("[exit code 7]"), "{written:?}");
    assert_eq!(fs::read(transcript(scratch.folder.path())).unwrap(), b"");
}

#[tokio::test]
async fn a_report_that_the_command_prints_is_output() {
    let mut scratch = Scratch::new();
    let report = r#"{"code":0,"signal":null,"because":"exited"}"#;
    let outcome = scratch
        .run(&format!("echo '{report}'; echo '{report}' >&2; exit 4"))
        .await;
    assert_eq!(
        outcome,
        Outcome::error(format!("{report}\n{report}\n[exit code 4]"))
    );
}

#[tokio::test]
async fn a_cancelled_command_is_ended_with_all_that_it_started() {
    let mut scratch = Scratch::new();
    let running = scratch.start(&format!("echo begun; {SURVIVORS} sleep 1000"));
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    let outcome = timeout(LIMIT, running.cancel("interrupted by the lead"))
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::error("begun\n[interrupted by the lead]"));
    assert!(pids.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_that_had_ended_by_itself_is_not_cancelled_any_more() {
    let mut scratch = Scratch::new();
    let mut running = scratch.start("echo done");
    let outcome = timeout(LIMIT, running.finish()).await.unwrap();
    assert_eq!(running.cancel("too late").await, outcome);
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again_at_any_moment() {
    let mut scratch = Scratch::new();
    let mut running = scratch
        .start("for i in $(seq 200); do echo $i; sleep 0.002; done; while [ ! -e go ]; do sleep 0.01; done");
    let mut given_up = 0;
    let outcome = loop {
        match timeout(Duration::from_millis(1), running.finish()).await {
            Ok(outcome) => break outcome,
            Err(_) => given_up += 1,
        }
        if given_up == 51 {
            File::create(scratch.path("go")).unwrap();
        }
    };
    let lines: Vec<String> = (1..=200).map(|i| i.to_string()).collect();
    assert_eq!(outcome, Outcome::ok(lines.join("\n")));
    assert!(given_up > 50, "{given_up}");
}

#[tokio::test]
async fn a_command_that_closes_its_output_is_waited_for() {
    let mut scratch = Scratch::new();
    let outcome = scratch
        .run("echo first; exec >&- 2>&-; sleep 0.3; touch later; exit 3")
        .await;
    assert_eq!(outcome, Outcome::error("first\n[exit code 3]"));
    assert!(scratch.path("later").exists());
}

#[tokio::test]
async fn an_output_that_was_handed_to_another_process_holds_nothing_up() {
    let mut scratch = Scratch::new();
    let mut running = scratch.start(
        "echo $$ > pid.new; mv pid.new pid; while [ ! -e go ]; do sleep 0.01; done; echo end",
    );
    let pid = scratch.path("pid");
    let held = async {
        until(|| pid.exists()).await;
        let pid = fs::read_to_string(&pid).unwrap();
        let held = File::options()
            .write(true)
            .open(format!("/proc/{}/fd/1", pid.trim()))
            .unwrap();
        File::create(scratch.folder.path().join("go")).unwrap();
        held
    };
    let (_held, outcome) = tokio::join!(held, async {
        timeout(LIMIT, running.finish()).await.unwrap()
    });
    assert_eq!(outcome, Outcome::ok("end"));
}

/// In a process of its own: what other tests keep at the same time does not count.
#[tokio::test]
async fn a_kill_for_memory_is_a_field_of_the_outcome_and_not_what_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    let cgroup = folder.path().join("cgroup");
    fs::create_dir(&cgroup).unwrap();
    let write = |path: PathBuf, text: &str| {
        let mut file = File::create(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    write(cgroup.join("cgroup.procs"), "");
    write(cgroup.join("memory.events"), "oom_kill 0\n");
    let runner = runner_in(folder.path());
    let mut scratch = Scratch { folder, runner };
    let prints = scratch.run("echo '[killed for memory]'; exit 1").await;
    assert_eq!((prints.is_error, prints.killed_for_memory), (true, None));
    let waits = "until [ -e go ]; do sleep 0.01; done; exit 1";
    let mut killed = scratch.start(waits);
    write(cgroup.join("memory.events"), "oom_kill 1\n");
    write(scratch.path("go"), "");
    let killed = timeout(LIMIT, killed.finish()).await.unwrap();
    assert_eq!(killed.killed_for_memory, Some(MemoryKill::Certain));
    assert_eq!(
        killed.content,
        "[exit code 1; killed for memory: the kernel ended a process of this teammate]"
    );
}

#[test]
fn a_flood_is_cut_and_needs_little_memory() {
    let mut alone = Command::new("/proc/self/exe");
    alone.args([
        "run::tests::results::flood_entry",
        "--exact",
        "--nocapture",
        "--test-threads=1",
    ]);
    let ended = alone.args(["--", AS_FLOOD]).output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert!(
        String::from_utf8_lossy(&ended.stdout).contains("1 passed"),
        "{ended:?}"
    );
}

/// The argument that tells the next test that it is meant.
const AS_FLOOD: &str = "as-flood";

/// No test by itself: the one above starts it.
#[tokio::test]
async fn flood_entry() {
    if !std::env::args().any(|argument| argument == AS_FLOOD) {
        return;
    }
    let mut scratch = Scratch::new();
    let before = memory();
    let outcome = scratch
        .run("echo begin; yes 0123456789 | head -c 100000000; echo end")
        .await;
    assert!(outcome.content.starts_with("begin\n0123456789\n"));
    let cut = 100_000_000 + "begin\nend\n".len() - 50_000;
    assert!(
        outcome.content.contains(&format!("[{cut} characters cut]")),
        "{}",
        &outcome.content[24_990..25_050]
    );
    assert!(outcome.content.ends_with("end"));
    assert!(
        memory() < before + (50 << 20),
        "{} before, {} after",
        before,
        memory()
    );
}

#[tokio::test]
async fn a_flood_leaves_room_for_others_after_each_piece() {
    let mut scratch = Scratch::new();
    let mut running = scratch.start("head -c 1000000 /dev/zero; touch written; sleep 1000");
    let StartedCommand::Foreground(command) = &mut running else {
        panic!("not started")
    };
    let source::OutputSource::Pipe(pipe) = &command.command.source else {
        panic!("it is no pipe")
    };
    rustix::pipe::fcntl_setpipe_size(pipe, 1 << 20).unwrap();
    until(|| scratch.path("written").exists()).await;
    // The runtime has to have looked at the pipe once.
    timeout(LIMIT, pipe.readable()).await.unwrap().unwrap();
    let mut finish = Box::pin(command.finish());
    let polled = std::future::poll_fn(|context| Poll::Ready(finish.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    drop(finish);
    let left = rustix::io::ioctl_fionread(&command.command.source).unwrap();
    assert_eq!(
        left,
        1_000_000 - PIECE as u64,
        "one piece, and then another task"
    );
}

/// The largest memory of this process so far, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse::<u64>()
        .unwrap()
        << 10
}

#[tokio::test]
async fn a_command_that_is_too_long_is_refused_and_the_longest_runs() {
    let mut scratch = Scratch::new();
    let long = |length: usize| format!("echo ok #{}", "x".repeat(length - 9));
    assert_eq!(scratch.run(&long(MAX_COMMAND)).await, Outcome::ok("ok"));
    let refused = scratch.run(&long(MAX_COMMAND + 1)).await;
    assert!(
        refused.is_error
            && refused
                .content
                .contains("131072 bytes, the limit is 131071"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_named() {
    let mut scratch = Scratch::new();
    fs::remove_dir_all(scratch.folder.path()).unwrap();
    let outcome = scratch.run("true").await;
    let start = format!(
        "cannot start a command in {}: ",
        scratch.folder.path().display()
    );
    assert!(
        outcome.is_error && outcome.content.starts_with(&start),
        "{outcome:?}"
    );
}
