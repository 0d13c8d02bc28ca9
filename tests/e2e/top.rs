//! `top` at a terminal, and `status` there: what is on the screen, and what a key does.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use teamd_shared::testing::roster_member;

use crate::support::Team;
use crate::support::process::{let_pass, wakes};
use crate::support::running::poll_for;
use crate::support::terminal::Terminal;

const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (200, 60)];
const USUAL: (u16, u16) = (80, 24);

/// A team with a plan that waits, one that stopped at its limit, and one that has left.
fn team() -> (Team, String) {
    let team = Team::started();
    let plan = r"/plan_approval # Plan\n\nSplit the parser into three files, and keep the old tests as they are";
    team.teamctl(["spawn", "ana", "--plan", "--prompt", plan])
        .ok();
    let id = team.until_planned("ana");
    team.teamctl([
        "spawn",
        "kit",
        "--max-turns",
        "1",
        "--prompt",
        "/bash true\n/bash true\n/bash true",
    ])
    .ok();
    team.until_finished("kit", 1);
    for name in ["w10", "w2", "gus"] {
        team.spawn(name, "");
    }
    team.shutdown("gus", &[], 0);
    team.until("kit to rest", || {
        team.member("kit")["idle_reason"] == "max_turns"
    });
    (team, id)
}

fn planned(team: &Team, name: &str, plan: &str) -> String {
    team.teamctl([
        "spawn",
        name,
        "--plan",
        "--prompt",
        &format!("/plan_approval {plan}"),
    ])
    .ok();
    team.until_planned(name)
}

/// Presses a key until something holds: a row must have settled before a verdict is taken.
fn press_until(
    team: &Team,
    terminal: &mut Terminal,
    key: &str,
    what: &str,
    holds: impl Fn() -> bool,
) {
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
        let order = [
            "NEEDS YOU 1",
            "ana ",
            "STUCK 1",
            "kit ",
            "IDLE 2",
            "w2 ",
            "w10 ",
            "ENDED 1: gus",
        ]
        .map(|text| {
            screen
                .find(text)
                .unwrap_or_else(|| panic!("{text} at {size:?}:\n{screen}"))
        });
        assert!(order.is_sorted(), "{screen}");
        let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains(&format!("{id} Split the parser")) && flat.contains("turn limit"),
            "{screen}"
        );
        assert_eq!(terminal.finish(), Some(0));
    }
    let waiting = team
        .teamctl(["status", "--waiting", "-o", "name,status"])
        .ok()
        .stdout;
    assert_eq!(waiting, "NAME  STATUS\nana   awaiting_approval\n");
}

#[test]
fn the_view_follows_the_team_and_answers_plans() {
    for (size, command) in [(USUAL, &["status", "--watch"][..]), ((200, 60), &["top"])] {
        let (team, id) = team();
        let mut terminal = Terminal::teamctl_at(&team, command, size);
        terminal.until_screen("the plan", |screen| {
            let plan = screen.contains(&format!("plan {id} of ana"))
                && screen.contains(" Split the parser");
            plan && screen.contains("old tests as they are") && screen.contains("a approve")
        });
        let screen = terminal.screen();
        assert!(
            screen.lines().any(|line| line.starts_with("▌ ana ")),
            "{screen}"
        );
        assert!(
            screen.contains("1 need you") && screen.contains("a approve"),
            "{screen}"
        );
        assert!(
            screen.contains("live") && screen.contains("2 Requests 1"),
            "{screen}"
        );
        assert_eq!(terminal.wrapped_rows(), 0, "{screen}");
        press_until(&team, &mut terminal, "a", "the approval", || {
            team.request(&id)["status"] == "approved"
        });
        // Without a key: by the event alone.
        terminal.until_screen("ana to rest", |screen| screen.contains("0 need you"));
        let next = planned(&team, "bo", "Drop the cache");
        terminal.until_screen("the next plan", |screen| {
            screen.contains("  Drop the cache")
        });
        terminal.press("2");
        terminal.until_screen("the requests", |screen| {
            screen.contains(&format!("plan {next} of bo"))
        });
        reject(&team, &mut terminal, &next);
        terminal.press("4");
        terminal.until_screen("the steps of the plan", |screen| {
            screen.contains(&format!("plan {next} asked → rejected"))
        });
        terminal.press("q");
        assert_eq!(terminal.finish(), Some(0));
    }
}

/// Types the feedback and sends it.
fn reject(team: &Team, terminal: &mut Terminal, id: &str) {
    let asks = |screen: &str| screen.contains(&format!("reject plan {id}"));
    team.until("the lines for the feedback", || {
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
    let ana = planned(&team, "ana", "First");
    let bo = planned(&team, "bo", "Second");
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.until_screen("both", |screen| {
        screen.contains("First") && screen.contains("Second")
    });
    team.until("the lines for the feedback", || {
        if !terminal.screen().contains("because") {
            terminal.press("r");
        }
        terminal.screen().contains("because")
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
fn an_answer_is_given_although_the_person_leaves_at_once() {
    let team = Team::started();
    let id = planned(&team, "ana", "First");
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.until_screen("the plan", |screen| screen.contains("First"));
    team.until("the lines for the feedback", || {
        if !terminal.screen().contains("because") {
            terminal.press("r");
        }
        terminal.screen().contains("because")
    });
    terminal.press("\x7f\x7f\x7f\x7f\x7f\x7fno\rq");
    // What came of it was on the screen, or is printed after it.
    assert_eq!(terminal.finish(), Some(0));
    assert_eq!(team.request(&id)["status"], "rejected");
}

#[test]
fn a_plan_is_approved_once_each_of_its_lines_was_on_the_screen() {
    let team = Team::started();
    let lines: Vec<String> = (1..=100).map(|n| format!("step {n};")).collect();
    let id = planned(&team, "ana", &lines.join("\\n"));
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.until_screen("the beginning", |screen| {
        screen.contains("step 1;") && screen.contains("more lines")
    });
    let last_of = |screen: &str| {
        (1..=100)
            .rev()
            .find(|n| screen.contains(&format!("step {n};")))
            .unwrap_or(0)
    };
    let mut last = last_of(&terminal.screen());
    assert!(last < 20, "{}", terminal.screen());
    team.until("the approval", || {
        let before = terminal.screen();
        terminal.press("a");
        // A key that comes too early changes nothing, and any other one shows what follows, or
        // approves.
        poll_for(Duration::from_secs(1), &mut || terminal.screen() != before);
        let screen = terminal.screen();
        assert!(
            last_of(&screen) <= last + 20,
            "lines were passed over: {screen}"
        );
        last = last.max(last_of(&screen));
        team.request(&id)["status"] == "approved"
    });
    assert_eq!(last, 100);
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_teammate_is_spawned_told_interrupted_and_shut_down() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.until_screen("the empty team", |screen| screen.contains("n spawns one"));
    terminal.press("n");
    terminal.until_screen("where to type", |screen| {
        screen.contains("spawn: NAME and options")
    });
    // Pasted: several lines, and none of them is a key.
    terminal.press("\x1b[200~zoe --model script\nq\x1b[201~\r");
    terminal.until_screen("the teammate", |screen| {
        screen.lines().any(|line| line.starts_with("▌ zoe idle"))
    });
    terminal.until_screen("what the command said", |screen| {
        screen.contains("zoe is ") && screen.contains("(pid")
    });
    terminal.press("\r");
    terminal.until_screen("the conversation", |screen| screen.contains("» prompt: q"));
    terminal.press("s/bash for i in 1 2 3; do echo line $i; done\r");
    terminal.until_screen("the result, folded", |screen| {
        screen.contains("↳ line 3 (3 lines)")
    });
    assert!(
        !terminal.screen().contains("    line 2"),
        "{}",
        terminal.screen()
    );
    terminal.press("o");
    terminal.until_screen("the result", |screen| screen.contains("    line 2"));
    terminal.press("\r/reject_shutdown not yet\x1b\r/sleep 3\r");
    terminal.until_screen("the work", |screen| {
        screen.contains("/sleep 3") && screen.contains("◐ 1 working")
    });
    terminal.press("x");
    terminal.until_screen("the question", |screen| {
        screen.contains("Ask zoe to shut down?")
    });
    terminal.press("y");
    terminal.until_screen("the reason", |screen| {
        screen.contains("zoe rejected the shutdown: not yet")
    });
    terminal.press("\r/bash sleep 600\r");
    terminal.until_screen("more work", |screen| screen.contains("▸ bash sleep 600"));
    terminal.press("i");
    terminal.until_screen("the end of the work", |screen| {
        screen.contains("interrupted zoe")
    });
    team.wait_for("zoe", "idle");
    terminal.press("xy");
    terminal.until_screen("the end", |screen| screen.contains("zoe is gone: shutdown"));
    terminal.press("1");
    terminal.until_screen("the last line", |screen| screen.contains("ENDED 1: zoe"));
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn tasks_are_added_watched_and_tried_again() {
    let team = Team::started();
    team.teamctl(["spawn", "erin", "--auto"]).ok();
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.press("3");
    terminal.until_screen("no tasks", |screen| screen.contains("a adds one"));
    let check = "echo not built; test -e built";
    team.teamctl([
        "task",
        "add",
        "Build it",
        "--check",
        check,
        "--max-attempts",
        "1",
    ])
    .ok();
    terminal.until_screen("the failure", |screen| {
        screen.contains("ENDED 1") && screen.contains("✕ failed")
    });
    terminal.press("\r");
    terminal.until_screen("the details", |screen| {
        screen.contains("last check") && screen.contains("\n not built")
    });
    team.write("built", "");
    terminal.press("\x1b");
    terminal.until_screen("the board", |screen| screen.contains("ENDED 1"));
    terminal.press("t");
    terminal.until_screen("the completion", |screen| {
        screen.contains("✓ verified: in place")
    });
    terminal.press("aTidy up\r");
    terminal.until_screen("what was said", |screen| {
        screen.contains("task 2 (Tidy up) is added")
    });
    terminal.until_screen("both done", |screen| screen.contains("ENDED 2"));
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_daemon_that_dies_is_shown_and_the_next_one_is_found() {
    let (team, _) = team();
    // The refusal names the workspace, which can have a long path: it must not be cut before its end.
    let mut terminal = Terminal::teamctl_at(&team, &["top"], (130, 24));
    terminal.until_screen("the daemon", |screen| screen.contains("live"));
    team.kill_daemon();
    terminal.until_screen("its death", |screen| {
        screen.contains("NO DAEMON") && screen.contains("NEEDS YOU 1")
    });
    // The view may not have the request yet; a second key would take the place of a refusal.
    team.until("the refusal", || {
        terminal.press("a");
        poll_for(Duration::from_secs(2), &mut || {
            terminal.screen().contains("is not running")
        })
    });
    // By now each of these keys was taken: none is an answer for the next daemon.
    terminal.press("?");
    terminal.until_screen("the help", |screen| {
        screen.contains("down, up, first, last")
    });
    terminal.press("\x1b");
    team.teamd(["start"]).ok();
    terminal.until_screen("the next daemon", |screen| {
        screen.contains("live") && screen.contains("NEEDS YOU 1")
    });
    team.teamd(["start", "--replace"]).ok();
    planned(&team, "bo", "Drop the cache");
    terminal.until_screen("what comes of it", |screen| {
        screen.contains("live") && screen.contains("NEEDS YOU 2")
    });
    team.teamd(["stop", "--force"]).ok();
    terminal.until_screen("the end", |screen| {
        screen.contains("NO DAEMON") && screen.contains("ENDED")
    });
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn the_terminal_is_given_back_at_every_end() {
    let (team, _) = team();
    for which in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let terminal = Terminal::teamctl_at(&team, &["top"], (80, 24));
        terminal.until_screen("the list", |screen| screen.contains("NEEDS YOU"));
        assert!(!terminal.is_as_before());
        terminal.signal(which);
        terminal.until("\x1b[?1049l");
        assert_eq!(
            terminal.finish(),
            Some(if which == Signal::SIGTERM { 143 } else { 130 }),
            "{which}"
        );
    }
    let mut terminal = Terminal::teamctl_at(&team, &["top"], (80, 24));
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
    assert!(
        team.teamctl(["top"])
            .exits(2)
            .stderr
            .contains("needs a terminal")
    );
}

#[test]
fn no_view_goes_on_when_its_terminal_is_gone() {
    let team = Team::started();
    team.spawn("alice", "");
    for view in [&["top"][..], &["chat"], &["attach", "alice"]] {
        // As after SIGHUP, or what it wrote last was refused.
        let code = Terminal::lost(&team, view);
        assert!(matches!(code, Some(1 | 130)), "{view:?}: {code:?}");
    }
}

#[test]
fn a_thousand_teammates_and_hostile_texts_stay_inside_their_rows() {
    let team = Team::started();
    team.teamd(["stop"]).ok();
    let hostile = format!(
        "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{202e}txt.exe {}▌ ana  plan  approve me",
        " ".repeat(90)
    );
    let members: Vec<_> = (0..1000).map(|n| {
        let note = if n == 7 {
            "x".repeat(1 << 20)
        } else {
            hostile.clone()
        };
        let exit = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 0,
            "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "note": note});
        roster_member(&json!({"name": format!("w{n}"), "role": hostile, "status": "crashed", "model": hostile,
            "updated_at": 1.0 + f64::from(n), "exit": exit}))
    }).collect();
    let roster =
        json!({"version": 1, "seq": 1, "team_name": hostile, "daemon": null, "members": members});
    team.put("config.json", &roster.to_string());
    for name in ["w0", "lead"] {
        let line = json!({"type": hostile, "from": hostile, "to": hostile, "content": hostile, "timestamp": 1e300});
        team.put(
            &format!("inbox/{name}.jsonl"),
            &format!("{line}\nnot json\u{1b}[2J\n"),
        );
    }
    let entry = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "entry": "answer", "content":
        [{"type": "text", "text": hostile}], "usage": {"input_tokens": 1, "output_tokens": 1}});
    team.put("transcript/w0.jsonl", &format!("{entry}\n"));
    for size in [(20, 5), USUAL, (200, 60)] {
        let mut terminal = Terminal::teamctl_at(&team, &["top"], size);
        terminal.until_screen("the first row", |screen| screen.contains("▌ w0 "));
        terminal.until_screen("the list", |screen| {
            size.0 == 20 || screen.contains("STUCK 1000")
        });
        for pane in ["2", "3", "4", "5", "1"] {
            terminal.press(pane);
        }
        terminal.press(&"j".repeat(999));
        terminal.until_screen("the last row", |screen| {
            screen.lines().any(|line| line.starts_with("▌ w999 "))
                && (size.0 == 20 || screen.contains("NO DAEMON"))
        });
        let screen = terminal.screen();
        assert_eq!(terminal.wrapped_rows(), 0, "{screen}");
        assert_eq!(
            screen.lines().filter(|line| line.starts_with('▌')).count(),
            1,
            "{screen}"
        );
        terminal.press("g4");
        terminal.until_screen("the feed", |screen| {
            screen.contains("▌") && !screen.contains("STUCK 1000")
        });
        assert!(
            !terminal.shown().contains('\u{202e}') && !terminal.shown().contains("]0;pwned\u{7}")
        );
        terminal.press("q");
        assert_eq!(terminal.finish(), Some(0));
    }
}

#[test]
fn a_storm_of_sizes_ends_with_the_screen_of_the_last_one() {
    let (team, id) = team();
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.until_screen("the list", |screen| screen.contains("NEEDS YOU"));
    for n in 0..200_u16 {
        terminal.resize((1 + n * 37 % 220, 1 + n * 13 % 70));
    }
    terminal.resize((120, 40));
    // A frame of a size before the last one may come after the last change, and wrap: the next one
    // clears it.
    terminal.until_screen("the last size, without wrapped rows", |screen| {
        let whole = screen.contains(&format!("plan {id} of ana")) && screen.contains(" feed ─");
        whole && terminal.wrapped_rows() == 0
    });
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_idle_screen_is_not_woken() {
    let team = Team::started();
    for name in ["ana", "bo"] {
        team.spawn(name, "");
        team.wait_for(name, "idle");
    }
    team.teamd(["stop", "--force"]).ok();
    // Ages in days are the same for hours.
    let mut roster = team.roster();
    for member in roster["members"].as_array_mut().unwrap() {
        member["updated_at"] =
            json!(member["updated_at"].as_f64().unwrap() - 3.0 * 86_400.0 - 600.0);
    }
    team.put("config.json", &roster.to_string());
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.press("e");
    terminal.until_screen("the ages", |screen| screen.contains(" 3d "));
    team.until("five seconds in which it is not woken once", || {
        let before = wakes(terminal.pid());
        let_pass(Duration::from_secs(5));
        wakes(terminal.pid()) == before
    });
    // No age wakes it: a key has to, also one that comes while others are drawn.
    terminal.press(&"jk".repeat(200));
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn without_colours_the_marks_and_words_say_the_same() {
    let (team, _) = team();
    let team = team.with("NO_COLOR", "1");
    let mut terminal = Terminal::teamctl_at(&team, &["top"], USUAL);
    terminal.until_screen("the list", |screen| {
        screen.contains("● NEEDS YOU 1") && screen.contains("▲ STUCK 1")
    });
    let shown = terminal.shown();
    assert!(
        !shown.contains("[33m") && !shown.contains("38;5;") && !shown.contains("[36m"),
        "{shown:?}"
    );
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}
