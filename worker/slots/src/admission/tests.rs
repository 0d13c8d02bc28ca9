use super::*;

/// A queue for which memory is always short while another one runs.
fn short(folder: &Path, patience: Duration) -> Admissions {
    let rules = AdmissionRules {
        reserve: 90,
        patience,
        memory: Some(0),
    };
    Admissions {
        // Of nothing, nothing is short: so one byte, which the child of the tests takes.
        gauge: Arc::new(Gauge::new(
            &AdmissionRules {
                memory: Some(1),
                ..rules
            },
            None,
        )),
        rules,
        look: look_at(&folder.join("admission")).unwrap(),
    }
}

/// Makes a folder for a queue. The child that takes memory has begun by then.
fn scratch() -> tempfile::TempDir {
    std::sync::LazyLock::force(&gauge::CHILD);
    tempfile::tempdir().unwrap()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn those_that_wait_begin_in_order_and_checks_first() {
    let folder = scratch();
    let queue = short(folder.path(), LONG);
    let first = queue.ask(AdmissionKind::Command).unwrap();
    assert_eq!(first.before(), None, "nothing else runs");
    let mut second = queue.ask(AdmissionKind::Command).unwrap();
    let mut third = queue.ask(AdmissionKind::Command).unwrap();
    let mut check = queue.ask(AdmissionKind::Check).unwrap();
    assert_eq!(
        (second.before(), third.before(), check.before()),
        (Some(0), Some(1), Some(0))
    );
    second.changed().await;
    assert_eq!(second.before(), Some(1), "the check is before it");
    third.changed().await;
    assert_eq!(third.before(), Some(2));
    drop(first);
    check.changed().await;
    assert_eq!(check.before(), None);
    assert!(check.waited().is_some_and(|waited| waited >= LOOKS));
    second.changed().await;
    assert_eq!(second.before(), Some(0));
    drop(check);
    // What is killed leaves the queue.
    drop(second);
    third.changed().await;
    if third.before().is_some() {
        third.changed().await;
    }
    assert_eq!(third.before(), None);
}

#[tokio::test(start_paused = true)]
async fn patience_ends_and_a_check_has_more_of_it() {
    let folder = scratch();
    let queue = short(folder.path(), LONG);
    let _runs = queue.ask(AdmissionKind::Command).unwrap();
    let mut command = queue.ask(AdmissionKind::Command).unwrap();
    command.changed().await;
    let waited = command.waited().unwrap();
    assert!(waited >= LONG && waited < LONG + 2 * LOOKS, "{waited:?}");
    let mut check = queue.ask(AdmissionKind::Check).unwrap();
    check.changed().await;
    let waited = check.waited().unwrap();
    assert!(
        waited >= 10 * LONG && waited < 10 * LONG + 2 * LOOKS,
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_runs_alone_begins_alone_and_nothing_begins_beside_it() {
    let folder = scratch();
    let rules = AdmissionRules {
        reserve: 10,
        patience: LONG,
        memory: Some(1 << 40),
    };
    let queue = Admissions::open(&folder.path().join("admission"), rules, None).unwrap();
    let runs = queue.ask(AdmissionKind::Command).unwrap();
    let beside = queue.ask(AdmissionKind::Check).unwrap();
    assert_eq!(
        (runs.before(), beside.before()),
        (None, None),
        "there is room"
    );
    let mut alone = queue.ask(AdmissionKind::CheckAlone).unwrap();
    assert_eq!(alone.before(), Some(0));
    let mut behind = queue.ask(AdmissionKind::Command).unwrap();
    assert_eq!(behind.before(), Some(1));
    drop((runs, beside));
    alone.changed().await;
    assert_eq!(alone.before(), None);
    behind.changed().await;
    assert_eq!(behind.before(), Some(0));
    drop(alone);
    behind.changed().await;
    assert_eq!(behind.before(), None);
}

#[test]
fn a_byte_stands_for_a_pid() {
    for pid in [1, 4_194_303] {
        for number in 0..TRIES {
            let byte = RUNNING + number * PIDS + i64::from(pid);
            assert_eq!(pid_of(byte), pid);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_program_that_locks_the_whole_file_holds_nothing_up_for_longer_than_patience() {
    let folder = scratch();
    let queue = short(folder.path(), LONG);
    let foreign = open_again(&queue.look).unwrap();
    let all = libc::flock {
        l_type: libc::F_WRLCK.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&foreign, nix::fcntl::FcntlArg::F_OFD_SETLK(&all)).unwrap();
    assert_eq!(
        locked(&queue.look, COMMANDS, PLACES).unwrap(),
        [COMMANDS],
        "one lock, from where it was looked for"
    );
    assert!(queue.ask(AdmissionKind::Command).is_err());
}
