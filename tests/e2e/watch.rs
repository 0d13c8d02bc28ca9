//! `status` and `status --watch` at a terminal: what is on the screen, and what a key does.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::Team;
use crate::support::terminal::Terminal;

const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (200, 60)];

/// A team with a plan that waits, one that stopped at its limit, and one that has left.
fn team() -> (Team, String) {
    let team = Team::started();
    let plan =
        r"/plan_approval # Plan\n\nSplit the parser into three files, and keep the old tests as they are";
    team.teamctl(["spawn", "ana", "--plan", "--prompt", plan]).ok();
    let id = team.until_planned("ana");
    team.teamctl(["spawn", "kit", "--max-turns", "1", "--prompt", "/bash true\n/bash true\n/bash true"]).ok();
    team.until_finished("kit", 1);
    for name in ["w10", "w2", "gus"] {
        team.spawn(name, "");
    }
    team.shutdown("gus", &[], 0);
    team.until("kit to rest", || team.member("kit")["idle_reason"] == "max_turns");
    (team, id)
}

fn planned(team: &Team, name: &str, plan: &str) -> String {
    team.teamctl(["spawn", name, "--plan", "--prompt", &format!("/plan_approval {plan}")]).ok();
    team.until_planned(name)
}

/// Presses a key until something holds: a row must have settled before a verdict is taken.
fn press_until(team: &Team, terminal: &mut Terminal, key: &str, what: &str, holds: impl Fn() -> bool) {
    team.until(what, || {
        if !holds() {
            terminal.press(key);
        }
        holds()
    });
}

#[test]
fn status_fits_the_terminal_and_shows_who_needs_a_person_first() {
    let (team, id) = team();
    for size in SIZES {
        let terminal = Terminal::teamctl_at(&team, &["status"], size);
        terminal.until("ENDED 1: gus");
        let screen = terminal.screen();
        assert_eq!(terminal.wrapped_rows(), 0, "{size:?}:\n{screen}");
        let at = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text} at {size:?}:\n{screen}"));
        let order =
            ["NEEDS YOU 1", "ana ", "STUCK 1", "kit ", "IDLE 2", "w2 ", "w10 ", "ENDED 1: gus"].map(at);
        assert!(order.is_sorted(), "{screen}");
        let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&format!("{id} Split the parser")) && flat.contains("turn limit"), "{screen}");
        assert_eq!(terminal.finish(), Some(0));
    }
    let waiting = team.teamctl(["status", "--waiting", "-o", "name,status"]).ok().stdout;
    assert_eq!(waiting, "NAME  STATUS\nana   awaiting_approval\n");
}

#[test]
fn the_watched_list_follows_the_team_and_answers_plans() {
    for size in SIZES {
        let (team, id) = team();
        let mut terminal = Terminal::teamctl_at(&team, &["status", "--watch"], size);
        terminal.until_screen("the plan", |screen| screen.contains(&format!("{id} Split the parser")));
        let screen = terminal.screen();
        assert!(screen.lines().any(|line| line.starts_with("> ana ")), "{screen}");
        assert!(screen.contains("1 need you") && screen.contains("a show and approve"), "{screen}");
        assert_eq!(terminal.wrapped_rows(), 0, "{screen}");
        terminal.press("\r");
        terminal.until_screen("the details", |screen| {
            screen.contains("as they are") && screen.contains("⏎ back")
        });
        press_until(&team, &mut terminal, "a", "the approval", || team.request(&id)["status"] == "approved");
        terminal.until_screen("what was done", |screen| screen.contains("is approved"));
        terminal.press("\x1b");
        // Without a key: by the event alone.
        terminal.until_screen("ana to rest", |screen| screen.contains("0 need you"));
        let next = planned(&team, "bo", "Drop the cache");
        terminal.until_screen("the next plan", |screen| screen.contains(&format!("{next} Drop the cache")));
        for _ in 0..4 {
            terminal.press("k");
        }
        terminal.until_screen("the selection", |screen| screen.lines().any(|line| line.starts_with("> bo ")));
        reject(&team, &mut terminal, &next);
        terminal.press("q");
        assert_eq!(terminal.finish(), Some(0));
    }
}

/// Types the feedback and sends it.
fn reject(team: &Team, terminal: &mut Terminal, id: &str) {
    let asks = |screen: &str| screen.contains(&format!("reject {id}"));
    team.until("the line for the feedback", || {
        if !asks(&terminal.screen()) {
            terminal.press("r");
        }
        asks(&terminal.screen())
    });
    terminal.press("\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7fkeep it\r");
    team.until("the rejection", || team.request(id)["status"] == "rejected");
    assert_eq!(team.request(id)["reason"], "keep it");
    terminal.until_screen("what was done", |screen| screen.contains("is rejected"));
}

#[test]
fn a_verdict_is_for_the_plan_that_was_on_the_screen_whatever_comes_meanwhile() {
    let team = Team::started();
    let (ana, bo) = (planned(&team, "ana", "First"), planned(&team, "bo", "Second"));
    let mut terminal = Terminal::teamctl_at(&team, &["status", "--watch"], (80, 24));
    terminal.until_screen("both", |screen| screen.contains("First") && screen.contains("Second"));
    team.until("the line for the feedback", || {
        if !terminal.screen().contains("because:") {
            terminal.press("r");
        }
        terminal.screen().contains("because:")
    });
    // Another terminal answers; the list moves up below the cursor.
    team.teamctl(["approve", &ana]).ok();
    terminal.until_screen("bo alone", |screen| screen.contains("1 need you"));
    terminal.press("no\r");
    terminal.until_screen("the refusal", |screen| screen.contains("error: "));
    assert_eq!(team.request(&bo)["status"], "pending");
    assert_eq!(team.request(&ana)["status"], "approved");
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn the_terminal_is_given_back_at_every_end() {
    let (team, _) = team();
    for which in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let terminal = Terminal::teamctl_at(&team, &["status", "--watch"], (80, 24));
        terminal.until_screen("the list", |screen| screen.contains("NEEDS YOU"));
        assert!(!terminal.is_as_before());
        terminal.signal(which);
        terminal.until("\x1b[?1049l");
        assert_eq!(terminal.finish(), Some(if which == Signal::SIGTERM { 143 } else { 130 }), "{which}");
    }
    let mut terminal = Terminal::teamctl_at(&team, &["status", "--watch"], (80, 24));
    terminal.until_screen("the list", |screen| screen.contains("NEEDS YOU"));
    // The shell has the terminal until it continues the program.
    terminal.press("\x1a");
    terminal.until("\x1b[?1049l");
    terminal.until_screen("the list again", |screen| {
        terminal.signal(Signal::SIGCONT);
        screen.contains("NEEDS YOU")
    });
    terminal.press("\x03");
    assert_eq!(terminal.finish(), Some(0));
    assert!(team.teamctl(["status", "--watch"]).exits(2).stderr.contains("needs a terminal"));
}

#[test]
fn three_hundred_teammates_and_hostile_texts_stay_inside_their_rows() {
    let team = Team::started();
    team.teamd(["stop"]).ok();
    let hostile =
        format!("\u{1b}[2J\u{1b}]0;pwned\u{7}\u{202e}txt.exe {}> ana  plan  approve me", " ".repeat(90));
    let member = |n: u32| {
        let note = if n == 7 { "x".repeat(1 << 20) } else { hostile.clone() };
        let exit = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "note": note});
        json!({"name": format!("w{n}"), "role": hostile, "status": "crashed", "gate": "open", "model": hostile,
            "incarnation": 1, "updated_at": 1.0 + f64::from(n), "exit": exit})
    };
    let members: Vec<_> = (0..300).map(member).collect();
    let roster = json!({"version": 1, "seq": 1, "team_name": "default", "daemon": null, "members": members});
    team.put("config.json", &roster.to_string());
    for size in SIZES {
        let mut terminal = Terminal::teamctl_at(&team, &["status", "--watch"], size);
        terminal.until_screen("the list", |screen| screen.contains("STUCK 300") && screen.contains("q quit"));
        for last in [false, true] {
            if last {
                terminal.press(&"j".repeat(299));
                terminal.until_screen("the last row", |screen| {
                    screen.lines().any(|line| line.starts_with("> w299 "))
                });
            }
            let screen = terminal.screen();
            assert_eq!(terminal.wrapped_rows(), 0, "{screen}");
            assert!(screen.contains("NO DAEMON") && screen.contains("signal 9"), "{screen}");
            assert_eq!(screen.lines().filter(|line| line.starts_with("> ")).count(), 1, "{screen}");
        }
        assert!(!terminal.shown().contains("\u{202e}") && !terminal.shown().contains("]0;pwned\u{7}"));
        terminal.press("q");
        assert_eq!(terminal.finish(), Some(0));
    }
}
