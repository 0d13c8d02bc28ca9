//! Commands that try to outlive their call, or to hinder their shim.

use super::*;

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
    let mut running = scratch.start_with(&command, Some(5.0));
    let outcome = timeout(LIMIT, running.finish()).await.unwrap();
    let end = "waiting\n[timed out after 5 s; everything it had started was ended]";
    assert_eq!(outcome, Outcome::error(end));
    assert!(scratch.pids(SURVIVOR_COUNT).await.into_iter().all(is_gone));
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
async fn a_command_that_kills_its_shim_is_ended_by_the_worker() {
    let mut scratch = Scratch::new();
    let command = format!("{SURVIVORS} echo $$ >> pids; echo begun; kill -9 $PPID; sleep 1000");
    let outcome = scratch.run(&command).await;
    assert_eq!(
        outcome,
        Outcome::error("begun\n[the shim of this command was killed]")
    );
    assert!(
        scratch
            .pids(SURVIVOR_COUNT + 1)
            .await
            .into_iter()
            .all(is_gone)
    );
}

#[tokio::test]
async fn a_shim_that_is_told_to_end_ends_its_command() {
    let mut scratch = Scratch::new();
    let outcome = scratch
        .run(&format!("{SURVIVORS} kill -TERM $PPID; sleep 1000"))
        .await;
    assert!(outcome.is_error, "{outcome:?}");
    assert!(scratch.pids(SURVIVOR_COUNT).await.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_that_stops_its_shim_can_be_cancelled() {
    let mut scratch = Scratch::new();
    let running = scratch.start(&format!("kill -STOP $PPID; {SURVIVORS} sleep 1000"));
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    let outcome = timeout(LIMIT, running.cancel("interrupted")).await.unwrap();
    assert_eq!(outcome, Outcome::error("[interrupted]"));
    assert!(pids.into_iter().all(is_gone));
}

#[tokio::test]
async fn a_command_that_stops_its_shim_again_and_again_times_out() {
    let mut scratch = Scratch::new();
    let command = "echo $$ >> pids; while :; do kill -STOP $PPID 2> /dev/null; done";
    let mut running = scratch.start_with(command, Some(3.0));
    let outcome = timeout(LIMIT, running.finish()).await.unwrap();
    assert_eq!(
        outcome,
        Outcome::error("[timed out after 3 s; everything it had started was ended]")
    );
    assert!(scratch.pids(1).await.into_iter().all(is_gone));
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
async fn a_tree_of_sessions_that_has_lost_its_shim_is_ended_by_the_worker() {
    let mut scratch = Scratch::new();
    write(&scratch.path("grow"), GROW);
    let grown = "while [ \"$(cat pids 2> /dev/null | wc -l)\" -lt 31 ]; do sleep 0.01; done";
    let outcome = scratch
        .run(&format!("bash grow 4 & {grown}; kill -9 $PPID; sleep 1000"))
        .await;
    assert!(
        outcome.is_error
            && outcome
                .content
                .ends_with("[the shim of this command was killed]"),
        "{outcome:?}"
    );
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
            assert!(
                is_gone(Pid::from_raw(pid.parse().unwrap()).unwrap()),
                "{pid} of {moment}"
            );
        }
        drop(fs::remove_file(scratch.path("pids")));
    }
}

/// Each link of the chain forks the next one in a new session, and ends: there is never a parent to
/// be found.
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
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
}
