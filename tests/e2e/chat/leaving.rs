//! A person leaves a chat, or it is ended: what is printed, and what continues.

use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::answering;
use super::screen::Chat;
use crate::support::process::let_pass;
use crate::support::{Team, signal};

/// What takes the terminal.
const TAKES: &str = "\x1b[?1049h";
/// What gives it back.
const GIVES_BACK: &str = "\x1b[?1049l";

fn chat(team: &Team) -> Chat {
    let terminal = Chat::start(team, &["chat"]);
    terminal.until_row("lead>");
    terminal
}

#[test]
fn what_a_command_has_printed_is_printed_although_the_person_leaves_at_once() {
    let team = Team::started();
    let mut terminal = chat(&team);
    terminal.press("/team\r");
    let said = terminal.leave();
    assert!(said.contains("STATUS"), "{said}");
}

#[test]
fn an_answer_in_progress_is_printed_as_far_as_it_goes() {
    let team = Team::started();
    team.spawn("alice", "");
    let (terminal, mut live) = answering(&team, "alice");
    live.write_all("I think so".as_bytes()).unwrap();
    terminal.until("I think so");
    let said = terminal.leave();
    assert_eq!(said.matches("I think so\n").count(), 1, "{said}");
    assert!(
        said.contains("(the answer was not complete when you left)"),
        "{said}"
    );
}

#[test]
fn a_lead_agent_that_is_started_again_runs_before_the_chat_ends() {
    let team = Team::started();
    let mut terminal = chat(&team);
    let before = team.incarnation("lead");
    let worker = team.pid("lead");
    // It does not leave until it continues.
    signal(worker, Signal::SIGSTOP);
    terminal.line("/model script");
    terminal.until_row("lead>");
    terminal.press("\x04");
    terminal.shown_raw("waiting until lead is started again");
    signal(worker, Signal::SIGCONT);
    terminal.shown_raw("lead continues the conversation");
    terminal.shown_raw("the team continues without you");
    assert_eq!(terminal.finish(), Some(0));
    assert_eq!(team.incarnation("lead"), before + 1);
}

#[test]
fn the_terminal_is_given_back_at_every_end() {
    let team = Team::started();
    for which in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let terminal = chat(&team);
        assert!(!terminal.is_as_before());
        terminal.signal(which);
        terminal.shown_raw(GIVES_BACK);
        assert_eq!(terminal.finish(), Some(0), "{which}");
    }
    // A command of the person has the terminal.
    let mut terminal = chat(&team);
    terminal.line("!echo begun; exec sleep 60");
    terminal.shown_raw("begun\r\n");
    terminal.signal(Signal::SIGTERM);
    terminal.shown_raw("the team continues without you");
    assert_eq!(terminal.finish(), Some(0));
    // It has ended, and Enter is awaited.
    let mut terminal = chat(&team);
    terminal.line("!true");
    terminal.shown_raw("[Enter goes back to the conversation]");
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_chat_that_is_stopped_and_continued_takes_the_terminal_once() {
    let team = Team::started();
    let mut terminal = chat(&team);
    terminal.press("a draft\x1a");
    terminal.shown_raw(GIVES_BACK);
    team.until("the stop", || is_stopped(terminal.pid()));
    terminal.signal(Signal::SIGCONT);
    terminal.until_row("lead> a draft");
    terminal.press("!");
    terminal.until_row("lead> a draft!");
    assert_eq!(terminal.shown().matches(TAKES).count(), 2);
    terminal.leave();
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

#[test]
fn a_chat_that_is_idle_draws_nothing() {
    let team = Team::started();
    let terminal = chat(&team);
    team.until("three seconds in which nothing is written", || {
        let before = terminal.shown().len();
        let_pass(Duration::from_secs(3));
        terminal.shown().len() == before
    });
    terminal.leave();
}
