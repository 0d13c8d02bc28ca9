use super::*;

proptest::proptest! {
    #[test]
    fn any_report_is_one_or_none(
        report in "\\{(\"(code|signal|because|error|notes)\":(null|-?[0-9]{1,20}|\"[a-z_]{0,12}\"|\\[\\]),?){0,6}\\}?",
        noise: Vec<u8>,
    ) {
        drop((serde_json::from_str::<Report>(&report), serde_json::from_slice::<Report>(&noise)));
    }
}

/// The test below, under which the test harness is a keeper.
pub(crate) const ENTRY: &str = "keeper::tests::keeper_entry";

/// The argument that tells it so.
pub(crate) const AS_KEEPER: &str = "as-keeper";

/// No test by itself: the tests of `bash` start it in the place of `team-worker keeper`.
#[test]
fn keeper_entry() {
    if std::env::args().any(|argument| argument == AS_KEEPER) {
        keeper_main();
    }
}

fn job(arguments: &[&str]) -> Result<Job, String> {
    Job::from_arguments(arguments.iter().map(OsString::from))
}

#[test]
fn a_command_may_look_like_an_option() {
    let expected = Job {
        command: "--log".into(),
        timeout: Some(Duration::from_millis(250)),
        log: true,
        ..Job::default()
    };
    assert_eq!(job(&["--timeout-ms", "250", "--log", "--", "--log", "more"]), Ok(expected));
    assert_eq!(job(&["--", "ls"]), Ok(Job { command: "ls".into(), ..Job::default() }));
}

#[test]
fn what_is_wrong_with_the_arguments_is_said() {
    for (arguments, error) in [
        (&[][..], "there is no command"),
        (&["--"], "there is no command behind --"),
        (&["--timeout-ms"], "--timeout-ms wants a number"),
        (&["--timeout-ms", "soon", "--", "ls"], "--timeout-ms wants a number"),
        (&["ls"], "the keeper does not know \"ls\""),
    ] {
        assert_eq!(job(arguments), Err(error.to_owned()), "{arguments:?}");
    }
}

#[test]
fn what_ends_other_processes_ends_a_keeper() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1] {
        assert!(ends_the_keeper(signal as u32), "{signal}");
    }
    for signal in [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGWINCH, Signal::SIGTSTP] {
        assert!(!ends_the_keeper(signal as u32), "{signal}");
    }
}

#[test]
fn a_report_is_one_line_that_can_be_read_back() {
    let report = Report {
        code: None,
        signal: Some(9),
        because: Because::TimedOut,
        error: None,
        notes: vec!["made".to_owned()],
    };
    let line = serde_json::to_string(&report).unwrap();
    assert_eq!(line, r#"{"code":null,"signal":9,"because":"timed_out","notes":["made"]}"#);
    assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
}
