//! Commands in the background.

use super::*;

#[tokio::test]
async fn a_command_in_the_background_writes_its_log_and_ends_when_told() {
    let mut scratch = Scratch::new();
    let outcome = scratch
        .background(&format!("echo hello; {SURVIVORS} sleep 1000"))
        .await;
    let log = scratch.path(".team/log/alice.background-1.log");
    let at = scratch.log_of(&outcome);
    assert!(
        !outcome.is_error && !at.starts_with(scratch.path("")),
        "{outcome:?}"
    );
    assert!(
        outcome
            .content
            .starts_with("started in the background as 1;"),
        "{outcome:?}"
    );
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    assert!(scratch.runner.has_background());
    until(|| fs::read_to_string(&at).unwrap() == "hello\n").await;
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(
        text,
        format!(
            "[incarnation 1: until it has ended, its output is in {}]\n",
            at.display()
        )
    );
    timeout(LIMIT, scratch.runner.end_background())
        .await
        .unwrap();
    assert!(!scratch.runner.has_background());
    assert!(pids.into_iter().all(is_gone));
    assert_eq!(fs::read_to_string(log).unwrap(), "hello\n\n[ended]\n");
}

#[tokio::test]
async fn a_command_in_the_background_that_ends_by_itself_says_so_in_its_log() {
    let mut scratch = Scratch::new();
    for (id, command, log) in [
        (1, "echo a; exit 3", "a\n\n[exit code 3]\n"),
        (2, "kill -9 $$", "\n[ended by signal 9]\n"),
    ] {
        scratch.background(command).await;
        scratch.runner.next_ended().await.keep();
        let at = scratch.path(&format!(".team/log/alice.background-{id}.log"));
        assert_eq!(fs::read_to_string(&at).unwrap(), log);
        let mode = std::os::unix::fs::PermissionsExt::mode(&at.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[tokio::test]
async fn what_is_kept_of_a_log_is_what_the_command_wrote_whatever_it_does_with_the_file() {
    let mut scratch = Scratch::new();
    let planted = "until [ -e at ]; do sleep 0.01; done; seq 1 1000000; at=$(readlink at); rm \"$at\"; ln -s /etc/passwd \"$at\"; \
                   echo end";
    let outcome = scratch.background(planted).await;
    std::os::unix::fs::symlink(scratch.log_of(&outcome), scratch.path("at")).unwrap();
    scratch.runner.next_ended().await.keep();
    let at = scratch.log_of(&outcome);
    assert!(at.is_symlink());
    let kept = fs::read_to_string(scratch.path(".team/log/alice.background-1.log")).unwrap();
    assert!(
        kept.starts_with("1\n2\n") && kept.ends_with("\nend\n\n[exit code 0]\n"),
        "{}",
        &kept[..100]
    );
    let gaps = kept
        .lines()
        .filter(|line| line.ends_with(" bytes cut]"))
        .count();
    assert_eq!(gaps, 1);
    assert!(kept.len() < 3 << 20, "{}", kept.len());
}

#[tokio::test]
async fn what_a_killed_shim_of_the_background_leaves_is_ended_at_once() {
    let mut scratch = Scratch::new();
    scratch
        .background(&format!("{SURVIVORS} kill -9 $PPID; sleep 1000"))
        .await;
    let pids = scratch.pids(SURVIVOR_COUNT).await;
    scratch.runner.next_ended().await.keep();
    assert!(pids.into_iter().all(is_gone));
}

#[tokio::test]
async fn commands_in_the_background_are_kept_apart_from_what_calls_leave() {
    let mut scratch = Scratch::new();
    scratch.background("echo $$ >> pids; sleep 1000").await;
    let background = scratch.pids(1).await;
    assert!(scratch.run("kill -9 $PPID; sleep 1000").await.is_error);
    reap_orphans();
    assert!(!is_gone(background[0]) && scratch.runner.has_background());
    drop(scratch.runner);
    until(|| is_gone(background[0])).await;
}

#[tokio::test]
async fn logs_of_an_earlier_incarnation_are_not_written_over() {
    let mut scratch = Scratch::new();
    scratch.background("echo first incarnation").await;
    scratch.runner.next_ended().await.keep();
    let mut second = runner_of_next_incarnation(scratch.folder.path());
    let outcome = second
        .start(&bash("echo second", None, true), Gate::Open)
        .finish()
        .await;
    assert!(
        outcome
            .content
            .starts_with("started in the background as 2;"),
        "{outcome:?}"
    );
    timeout(LIMIT, second.end_background()).await.unwrap();
    let first = fs::read_to_string(scratch.path(".team/log/alice.background-1.log")).unwrap();
    assert_eq!(first, "first incarnation\n\n[exit code 0]\n");
}
