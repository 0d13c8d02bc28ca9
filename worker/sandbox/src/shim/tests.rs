use super::*;

proptest::proptest! {
    #[test]
    fn any_report_is_one_or_none(
        report in "\\{(\"(code|signal|cause|error|notes)\":(null|-?[0-9]{1,20}|\"[a-z_]{0,12}\"|\\[\\]),?){0,6}\\}?",
        noise: Vec<u8>,
    ) {
        drop((serde_json::from_str::<Report>(&report), serde_json::from_slice::<Report>(&noise)));
    }
}

/// Arguments with which the test harness is one of the hidden programs, by the test below.
pub(crate) const AS_PROGRAM: [&str; 7] = [
    "shim::tests::hidden_program",
    "--exact",
    "--quiet",
    "--nocapture",
    "--test-threads=1",
    "--",
    "as-program",
];

/// No test by itself: the tests of `bash` start it in the place of `team-worker shim`.
#[test]
fn hidden_program() {
    let mut given = std::env::args().skip_while(|argument| argument != "as-program");
    match given.nth(1).as_deref() {
        Some(crate::localhost::SUBCOMMAND) => drop(crate::localhost::localhost_main()),
        Some(_) => drop(shim_main()),
        None => {}
    }
}

#[test]
fn what_ends_other_processes_ends_a_shim() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
    ] {
        assert!(ends_a_shim(signal as u32), "{signal}");
    }
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGCONT,
        Signal::SIGWINCH,
        Signal::SIGTSTP,
    ] {
        assert!(!ends_a_shim(signal as u32), "{signal}");
    }
}

#[test]
fn a_report_is_one_line_that_can_be_read_back() {
    let report = Report {
        code: None,
        signal: Some(9),
        cause: ExitCause::TimedOut,
        error: None,
        notes: vec!["made".to_owned()],
    };
    let line = serde_json::to_string(&report).unwrap();
    assert_eq!(
        line,
        r#"{"code":null,"signal":9,"cause":"timed_out","notes":["made"]}"#
    );
    assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
}
