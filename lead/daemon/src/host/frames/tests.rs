use super::*;

#[test]
fn a_time_crosses_as_an_age() {
    let asked = |seconds| ToWorker::Interrupt {
        asked_at: Duration::from_secs(seconds),
    };
    let now = Duration::from_secs(1000);
    assert_eq!(to_worker(asked(30), now), asked(970));
    assert_eq!(to_worker(asked(2000), now), asked(0));
    assert_eq!(to_worker(ToWorker::Wake, now), ToWorker::Wake);
}

#[test]
fn what_is_woken_here_needs_no_waking_at_home() {
    let state = WorkerState {
        needs_waking: true,
        read: 7,
        ..WorkerState::default()
    };
    let line = LinePlace {
        offset: 3,
        id: None,
    };
    let reported = report(state, Some(line));
    assert!(!reported.state.needs_waking);
    assert_eq!((reported.state.read, reported.read), (7, Some(line)));
}

#[test]
fn a_workspace_is_named_from_the_root_or_from_the_home_directory() {
    let login_dir = Path::new("/home/me");
    let named = |named| named_path(named, login_dir);
    assert_eq!(named("~"), Ok("/home/me".into()));
    assert_eq!(named("~/a/b"), Ok("/home/me/a/b".into()));
    assert_eq!(named("/srv"), Ok("/srv".into()));
    assert!(named("work").is_err() && named("~you/work").is_err());
}

#[test]
fn an_end_says_how_it_left() {
    let ended = Ended {
        code: Some(3),
        unread: 2,
        ..Ended::default()
    };
    let end = hosted_end(ended, None, true);
    assert_eq!((end.code, end.unread, end.left), (Some(3), 2, true));
    assert!(end.mail.is_empty());
}
