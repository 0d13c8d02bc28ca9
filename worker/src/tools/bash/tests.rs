//! Commands that try to outlive their call, and others.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use teamd_shared::environment::Environment;
use tokio::time::{sleep, timeout};

use super::*;
use crate::tools::{Call, Running, Toolbox, ToolboxConfig};

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A toolbox with a workspace of its own, which holds the team directory.
struct Scratch {
    folder: tempfile::TempDir,
    toolbox: Toolbox,
}

fn transcript(workspace: &Path) -> PathBuf {
    workspace.join(".team/transcript/alice.jsonl")
}

fn toolbox_in(workspace: &Path) -> Toolbox {
    let team_dir = Arc::new(TeamDir::create(&workspace.join(".team")).unwrap());
    let name = Name::new("alice").unwrap();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
    let life_lock = team_dir.open_file(&TeamPath::transcript(&name), flags).unwrap();
    life_lock.try_lock().unwrap();
    let environment = Environment {
        variables: vec![
            (b"PATH".to_vec(), b"/usr/bin:/bin".to_vec()),
            (b"COLOUR".to_vec(), b"b l\xfce".to_vec()),
        ],
        secrets: vec![(b"OPENAI_API_KEY".to_vec(), b"sk-secret".to_vec())],
        umask: 0o22,
    };
    Toolbox::new(ToolboxConfig { workspace: workspace.to_owned(), team_dir, name, life_lock, environment })
        .unwrap()
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toolbox = toolbox_in(folder.path());
        Self { folder, toolbox }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, command: &str) -> Running {
        self.start_with(command, None)
    }

    fn start_with(&mut self, command: &str, timeout: Option<f64>) -> Running {
        self.toolbox.start(Call::Bash { command: command.to_owned(), timeout, background: false })
    }

    async fn background(&mut self, command: &str) -> Outcome {
        self.toolbox
            .start(Call::Bash { command: command.to_owned(), timeout: None, background: true })
            .finish()
            .await
    }

    async fn run(&mut self, command: &str) -> Outcome {
        timeout(LIMIT, self.start(command).finish()).await.unwrap()
    }

    /// Waits until a command has written `count` pids into the file `pids`.
    async fn pids(&self, count: usize) -> Vec<Pid> {
        let read = || fs::read_to_string(self.path("pids")).unwrap_or_default();
        until(|| read().lines().count() >= count).await;
        let pids: Vec<Pid> =
            read().lines().map(|line| Pid::from_raw(line.trim().parse().unwrap()).unwrap()).collect();
        assert_eq!(pids.len(), count);
        pids
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waited = async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LIMIT, waited).await.unwrap();
}

/// A process that has ended, but is not reaped, is gone.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Survivors of every sort: plain, `nohup`, `setsid`, a double fork, both, and one that ignores every signal.
const SURVIVORS: &str = r#"
    touch pids
    note() { echo "$BASHPID" >> pids; }
    ( note; exec sleep 1000 ) &
    ( trap '' HUP; note; exec nohup sleep 1000 ) > /dev/null 2>&1 &
    setsid bash -c 'echo $$ >> pids; exec sleep 1000' &
    ( ( note; exec sleep 1000 ) & )
    ( setsid bash -c '( echo $BASHPID >> pids; exec sleep 1000 ) & ' & )
    ( trap '' TERM INT HUP QUIT USR1 USR2; note; while :; do sleep 1000; done ) &
    while [ "$(wc -l < pids)" -lt 6 ]; do sleep 0.01; done
"#;
const SURVIVOR_COUNT: usize = 6;

#[tokio::test]
async fn the_result_is_what_the_command_wrote_and_how_it_ended() {
    let mut scratch = Scratch::new();
    for (command, outcome) in [
        ("echo hello", Outcome::ok("hello")),
        ("true", Outcome::ok("(no output)")),
        ("echo out; echo err >&2; echo out", Outcome::ok("out\nerr\nout")),
        ("echo half; exit 3", Outcome::error("half\n[exit code 3]")),
        ("false", Outcome::error("[exit code 1]")),
        ("kill -9 $$", Outcome::error("[ended by signal 9]")),
        ("kill -34 $$", Outcome::error("[ended by signal 34]")),
        ("printf 'no newline'", Outcome::ok("no newline")),
        ("--version", Outcome::error("bash: line 1: --version: command not found\n[exit code 127]")),
        ("pwd -P | xargs basename | wc -l", Outcome::ok("1")),
    ] {
        assert_eq!(scratch.run(command).await, outcome, "{command}");
    }
}

#[tokio::test]
async fn a_command_gets_its_environment_and_no_key() {
    let mut scratch = Scratch::new();
    let listed =
        scratch.run("env | grep -v -e '^_=' -e '^SHLVL=' -e '^PWD=' -e '^OLDPWD=' | LC_ALL=C sort").await;
    assert_eq!(listed, Outcome::ok("COLOUR=b l\u{fffd}e\nPATH=/usr/bin:/bin"));
    let workspace = scratch.folder.path().canonicalize().unwrap();
    assert_eq!(scratch.run("pwd").await, Outcome::ok(workspace.to_str().unwrap()));
    let parents = scratch.run("tr '\\0' '\\n' < /proc/$PPID/environ; cat /proc/$PPID/cmdline").await;
    assert!(!parents.content.contains("sk-secret"), "{parents:?}");
}

#[tokio::test]
async fn a_command_gets_three_descriptors_and_none_of_the_keepers() {
    let mut scratch = Scratch::new();
    let listed = scratch.run("readlink /proc/self/fd/{0..300}; true").await;
    let kinds: Vec<&str> = listed.content.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(kinds, ["/dev/null", "pipe", "pipe"]);
    let group =
        scratch.run("test $(ps -o pgid= $$) = $$ && ps -o pgid= $PPID | grep -vq $$ && echo apart").await;
    assert_eq!(group, Outcome::ok("apart"));
    // The keeper's channel is a socket, which nobody can open by its path.
    let written =
        scratch.run(r#"echo '{"code":0,"because":"exited"}' 2>&1 > /proc/$PPID/fd/1; exit 7"#).await;
    assert!(written.content.ends_with("[exit code 7]"), "{written:?}");
    assert_eq!(fs::read(transcript(scratch.folder.path())).unwrap(), b"");
}

#[tokio::test]
async fn a_report_that_the_command_prints_is_output() {
    let mut scratch = Scratch::new();
    let report = r#"{"code":0,"signal":null,"because":"exited"}"#;
    let outcome = scratch.run(&format!("echo '{report}'; echo '{report}' >&2; exit 4")).await;
    assert_eq!(outcome, Outcome::error(format!("{report}\n{report}\n[exit code 4]")));
}

#[tokio::test]
async fn whatever_a_command_leaves_ends_with_it() {
    let mut scratch = Scratch::new();
    let outcome = scratch.run(&format!("{SURVIVORS}\n echo left")).await;
    assert_eq!(outcome, Outcome::ok("left"));
    for pid in scratch.pids(SURVIVOR_COUNT).await {
        assert!(is_gone(pid), "{pid:?} has survived");
    }
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
    let mut scratch = Scratch::new();
    let command = format!("{SURVIVORS}\n echo waiting; sleep 1000");
    let mut running = scratch.start_with(&command, Some(1.5));
    let outcome = timeout(LIMIT, running.finish()).await.unwrap();
    let end = "waiting\n[timed out after 1.5 s; everything it had started was ended]";
    assert_eq!(outcome, Outcome::error(end));
    assert!(scratch.pids(SURVIVOR_COUNT).await.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_cancelled_command_is_ended_with_all_that_it_started() {
    let mut scratch = Scratch::new();
    let running = scratch.start(&format!("echo begun; {SURVIVORS} sleep 1000"));
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    let outcome = timeout(LIMIT, running.cancel("interrupted by the lead")).await.unwrap();
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
    let mut running = scratch.start("for i in $(seq 200); do echo $i; sleep 0.002; done");
    let mut given_up = 0;
    let outcome = loop {
        match timeout(Duration::from_millis(1), running.finish()).await {
            Ok(outcome) => break outcome,
            Err(_) => given_up += 1,
        }
    };
    let lines: Vec<String> = (1..=200).map(|i| i.to_string()).collect();
    assert_eq!(outcome, Outcome::ok(lines.join("\n")));
    assert!(given_up > 50, "{given_up}");
}

#[tokio::test]
async fn a_call_that_is_dropped_is_ended() {
    let mut scratch = Scratch::new();
    let running = scratch.start(&format!("{SURVIVORS} sleep 1000"));
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    drop(running);
    until(|| pids.iter().all(|&pid| is_gone(pid))).await;
}

#[tokio::test]
async fn a_command_that_kills_its_keeper_is_ended_by_the_worker() {
    let mut scratch = Scratch::new();
    let command = format!("{SURVIVORS} echo $$ >> pids; echo begun; kill -9 $PPID; sleep 1000");
    let outcome = scratch.run(&command).await;
    assert_eq!(outcome, Outcome::error("begun\n[the keeper of this command was killed]"));
    assert!(scratch.pids(SURVIVOR_COUNT + 1).await.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_keeper_that_is_told_to_end_ends_its_command() {
    let mut scratch = Scratch::new();
    let outcome = scratch.run(&format!("{SURVIVORS} kill -TERM $PPID; sleep 1000")).await;
    assert!(outcome.is_error, "{outcome:?}");
    assert!(scratch.pids(SURVIVOR_COUNT).await.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_that_stops_its_keeper_can_be_cancelled() {
    let mut scratch = Scratch::new();
    let running = scratch.start(&format!("kill -STOP $PPID; {SURVIVORS} sleep 1000"));
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    let outcome = timeout(LIMIT, running.cancel("interrupted")).await.unwrap();
    assert_eq!(outcome, Outcome::error("[interrupted]"));
    assert!(pids.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_that_stops_its_keeper_again_and_again_times_out() {
    let mut scratch = Scratch::new();
    let command = "echo $$ >> pids; while :; do kill -STOP $PPID; done";
    let mut running = scratch.start_with(command, Some(0.5));
    let outcome = timeout(LIMIT, running.finish()).await.unwrap();
    assert_eq!(outcome, Outcome::error("[timed out after 0.5 s; everything it had started was ended]"));
    assert!(scratch.pids(1).await.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_that_closes_its_output_is_waited_for() {
    let mut scratch = Scratch::new();
    let outcome = scratch.run("echo first; exec >&- 2>&-; sleep 0.3; touch later; exit 3").await;
    assert_eq!(outcome, Outcome::error("first\n[exit code 3]"));
    assert!(scratch.path("later").exists());
}

#[tokio::test]
async fn an_output_that_was_handed_to_another_process_holds_nobody_up() {
    let mut scratch = Scratch::new();
    let mut running =
        scratch.start("echo $$ > pid.new; mv pid.new pid; while [ ! -e go ]; do sleep 0.01; done; echo end");
    let pid = scratch.path("pid");
    let held = async {
        until(|| pid.exists()).await;
        let pid = fs::read_to_string(&pid).unwrap();
        let held = File::options().write(true).open(format!("/proc/{}/fd/1", pid.trim())).unwrap();
        File::create(scratch.folder.path().join("go")).unwrap();
        held
    };
    let (_held, outcome) = tokio::join!(held, async { timeout(LIMIT, running.finish()).await.unwrap() });
    assert_eq!(outcome, Outcome::ok("end"));
}

#[tokio::test]
async fn a_flood_is_cut_and_needs_little_memory() {
    let mut scratch = Scratch::new();
    let before = memory();
    let outcome = scratch.run("echo begin; yes 0123456789 | head -c 200000000; echo end").await;
    assert!(outcome.content.starts_with("begin\n0123456789\n"));
    let cut = 200_000_000 + "begin\nend\n".len() - 50_000;
    assert!(
        outcome.content.contains(&format!("[{cut} characters cut]")),
        "{}",
        &outcome.content[24_990..25_050]
    );
    assert!(outcome.content.ends_with("end"));
    assert!(memory() < before + (40 << 20), "{} before, {} after", before, memory());
}

/// The largest memory of this process so far, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn a_command_that_is_too_long_is_refused_and_the_longest_runs() {
    let mut scratch = Scratch::new();
    let long = |length: usize| format!("echo ok #{}", "x".repeat(length - 9));
    assert_eq!(scratch.run(&long(MAX_COMMAND)).await, Outcome::ok("ok"));
    let refused = scratch.run(&long(MAX_COMMAND + 1)).await;
    assert!(refused.is_error && refused.content.contains("131072 bytes, the limit is 131071"), "{refused:?}");
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_named() {
    let mut scratch = Scratch::new();
    fs::remove_dir_all(scratch.folder.path()).unwrap();
    let outcome = scratch.run("true").await;
    let start = format!("cannot start a command in {}: ", scratch.folder.path().display());
    assert!(outcome.is_error && outcome.content.starts_with(&start), "{outcome:?}");
}

/// Starts itself twice, each in a session of its own, as deep as its argument says.
const GROW: &str = r#"
    echo $$ >> pids
    if [ $1 -gt 0 ]; then for i in 1 2; do setsid bash grow $(($1 - 1)) & done; fi
    sleep 1000
"#;

#[tokio::test]
async fn a_tree_of_sessions_is_ended_whatever_its_size() {
    let mut scratch = Scratch::new();
    write(&scratch.path("grow"), GROW);
    let running = scratch.start("bash grow 5");
    let pids = scratch.pids(63).await;
    timeout(LIMIT, running.cancel("enough")).await.unwrap();
    assert!(pids.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_tree_of_sessions_that_has_lost_its_keeper_is_ended_by_the_worker() {
    let mut scratch = Scratch::new();
    write(&scratch.path("grow"), GROW);
    let grown = "while [ \"$(cat pids 2> /dev/null | wc -l)\" -lt 31 ]; do sleep 0.01; done";
    let outcome = scratch.run(&format!("bash grow 4 & {grown}; kill -9 $PPID; sleep 1000")).await;
    assert_eq!(outcome, Outcome::error("[the keeper of this command was killed]"));
    assert!(scratch.pids(31).await.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_can_be_cancelled_at_any_moment() {
    let mut scratch = Scratch::new();
    for moment in 0..40 {
        let running = scratch.start(&format!("{SURVIVORS} sleep 1000"));
        sleep(Duration::from_micros(500 * moment)).await;
        let outcome = timeout(LIMIT, running.cancel("enough")).await.unwrap();
        assert_eq!(outcome, Outcome::error("[enough]"), "{moment}");
        let pids = fs::read_to_string(scratch.path("pids")).unwrap_or_default();
        for pid in pids.lines() {
            assert!(is_gone(Pid::from_raw(pid.parse().unwrap()).unwrap()), "{pid} of {moment}");
        }
        drop(fs::remove_file(scratch.path("pids")));
    }
}

fn write(path: &Path, content: &str) {
    File::create(path).and_then(|mut file| io::Write::write_all(&mut file, content.as_bytes())).unwrap();
}

/// Each link of the chain forks the next one in a new session, and ends: there is never a parent to be found.
const CHAIN: &str = r#"
    use POSIX "setsid";
    while (1) { my $child = fork(); if (!defined $child || $child) { POSIX::_exit(0) } setsid(); }
"#;

#[tokio::test]
async fn a_chain_of_forks_is_caught() {
    let mut scratch = Scratch::new();
    write(&scratch.path("chain"), CHAIN);
    let outcome = scratch.run("perl chain & sleep 0.3; echo over").await;
    assert_eq!(outcome, Outcome::ok("over"));
    let marker = scratch.path("chain").to_string_lossy().into_owned();
    assert!(!processes().any(|pid| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&marker))
    }));
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
}

#[tokio::test]
async fn a_keeper_holds_the_life_lock_until_its_call_is_over() {
    let mut scratch = Scratch::new();
    let running = scratch.start("echo $$ >> pids; sleep 1000");
    scratch.pids(1).await;
    // As if the worker were gone: its own descriptors are closed, the lifeline is not.
    let folder = scratch.folder;
    drop(scratch.toolbox);
    let another = || File::open(transcript(folder.path())).unwrap();
    assert!(another().try_lock().is_err());
    timeout(LIMIT, running.cancel("enough")).await.unwrap();
    another().try_lock().unwrap();
}

/// No test by itself: the worker that the next test kills.
#[tokio::test]
async fn worker_entry() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "as-worker").skip(1);
    let Some(folder) = arguments.next() else { return };
    let stops_its_keeper = arguments.next().as_deref() == Some("stopped");
    // A worker has a session of its own.
    rustix::process::setsid().unwrap();
    let mut toolbox = toolbox_in(Path::new(&folder));
    let stop = if stops_its_keeper { "kill -STOP $PPID;" } else { "" };
    let command = format!("{SURVIVORS} {stop} echo $$ >> pids; sleep 1000");
    let background = "echo $$ >> pids; setsid bash -c 'echo $$ >> pids; sleep 1000' & sleep 1000".to_owned();
    let background = Call::Bash { command: background, timeout: None, background: true };
    let mut running = toolbox.start(Call::Bash { command, timeout: None, background: false });
    toolbox.start(background);
    running.finish().await;
}

#[tokio::test]
async fn everything_ends_with_a_worker_that_is_killed() {
    for how in ["running", "stopped"] {
        let scratch = Scratch::new();
        drop(scratch.toolbox);
        let folder = scratch.folder;
        let mut command = Command::new("/proc/self/exe");
        command.args([
            "tools::bash::tests::worker_entry",
            "--exact",
            "--nocapture",
            "--test-threads=1",
            "--",
        ]);
        command.arg("as-worker").arg(folder.path()).arg(how);
        let mut worker = command.spawn().unwrap();
        let pids = folder.path().join("pids");
        let read = || fs::read_to_string(&pids).unwrap_or_default();
        until(|| read().lines().count() >= SURVIVOR_COUNT + 3).await;
        let lock = || File::open(transcript(folder.path())).unwrap();
        assert!(lock().try_lock().is_err());
        kill_process(Pid::from_child(&worker), Signal::KILL).unwrap();
        worker.wait().unwrap();
        // The lock is free only when all is gone, not the other way round.
        until(|| lock().try_lock().is_ok()).await;
        for pid in read().lines() {
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            assert!(is_gone(pid), "{pid:?} has survived its worker ({how})");
        }
    }
}

#[tokio::test]
async fn a_command_in_the_background_writes_its_log_and_ends_when_told() {
    let mut scratch = Scratch::new();
    let outcome = scratch.background(&format!("echo hello; {SURVIVORS} sleep 1000")).await;
    let log = scratch.path(".team/log/alice.background-1.log").canonicalize().unwrap();
    assert!(!outcome.is_error && outcome.content.contains(log.to_str().unwrap()), "{outcome:?}");
    assert!(outcome.content.starts_with("started in the background as 1;"), "{outcome:?}");
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    assert!(scratch.toolbox.has_background());
    timeout(LIMIT, scratch.toolbox.end_background()).await.unwrap();
    assert!(!scratch.toolbox.has_background());
    assert!(pids.into_iter().all(is_gone));
    assert_eq!(fs::read_to_string(log).unwrap(), "hello\n\n[ended]\n");
}

#[tokio::test]
async fn a_command_in_the_background_that_ends_by_itself_says_so_in_its_log() {
    let mut scratch = Scratch::new();
    for (id, command, log) in
        [(1, "echo a; exit 3", "a\n\n[exit code 3]\n"), (2, "kill -9 $$", "\n[ended by signal 9]\n")]
    {
        scratch.background(command).await;
        until(|| !scratch.toolbox.has_background()).await;
        let at = scratch.path(&format!(".team/log/alice.background-{id}.log"));
        assert_eq!(fs::read_to_string(&at).unwrap(), log);
        let mode = std::os::unix::fs::PermissionsExt::mode(&at.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[tokio::test]
async fn what_a_killed_keeper_of_the_background_leaves_is_ended_at_once() {
    let mut scratch = Scratch::new();
    scratch.background(&format!("{SURVIVORS} kill -9 $PPID; sleep 1000")).await;
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    until(|| !scratch.toolbox.has_background()).await;
    assert!(pids.into_iter().all(is_gone));
}

#[tokio::test]
async fn commands_in_the_background_are_kept_apart_from_what_calls_leave() {
    let mut scratch = Scratch::new();
    scratch.background("echo $$ >> pids; sleep 1000").await;
    let background = scratch.pids(1).await;
    assert!(scratch.run("kill -9 $PPID; sleep 1000").await.is_error);
    scratch.toolbox.reap_strays();
    assert!(!is_gone(background[0]) && scratch.toolbox.has_background());
    drop(scratch.toolbox);
    until(|| is_gone(background[0])).await;
}

#[tokio::test]
async fn logs_of_an_earlier_life_are_not_written_over() {
    let mut scratch = Scratch::new();
    scratch.background("echo first life").await;
    until(|| !scratch.toolbox.has_background()).await;
    let mut second = toolbox_of_next_life(&scratch);
    let call = Call::Bash { command: "echo second".to_owned(), timeout: None, background: true };
    let outcome = second.start(call).finish().await;
    assert!(outcome.content.starts_with("started in the background as 2;"), "{outcome:?}");
    timeout(LIMIT, second.end_background()).await.unwrap();
    let first = fs::read_to_string(scratch.path(".team/log/alice.background-1.log")).unwrap();
    assert_eq!(first, "first life\n\n[exit code 0]\n");
}

fn toolbox_of_next_life(scratch: &Scratch) -> Toolbox {
    let team_dir = Arc::new(TeamDir::open(&scratch.path(".team")).unwrap());
    let life_lock = File::open(transcript(scratch.folder.path())).unwrap();
    let (workspace, name) = (scratch.folder.path().to_owned(), Name::new("alice").unwrap());
    let environment = Environment::default();
    Toolbox::new(ToolboxConfig { workspace, team_dir, name, life_lock, environment }).unwrap()
}

#[tokio::test]
async fn a_sleep_can_be_cancelled() {
    let mut scratch = Scratch::new();
    let mut short = scratch.toolbox.start(Call::Sleep { seconds: 0.01 });
    assert_eq!(short.finish().await, Outcome::ok("slept 0.01 s"));
    let mut long = scratch.toolbox.start(Call::Sleep { seconds: 1000.0 });
    assert!(timeout(Duration::from_millis(5), long.finish()).await.is_err());
    assert_eq!(long.cancel("interrupted").await, Outcome::error("[interrupted]"));
}
