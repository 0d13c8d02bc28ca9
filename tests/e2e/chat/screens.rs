//! What is on the screen of a person at a chat, at terminals of several sizes.

use std::fs::File;
use std::io::Write;

use serde_json::json;

use crate::support::Team;
use crate::support::model_server::{Api, ModelServer, Reply};
use crate::support::terminal::Terminal;

/// Columns and rows.
const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (200, 60)];

/// A team whose lead agent has a model, and a chat with it.
fn chat(server: &ModelServer, size: (u16, u16)) -> (Team, Terminal) {
    let team = server.team();
    let terminal = Terminal::teamctl_at(&team, &["chat", "--model", Api::Anthropic.model()], size);
    terminal.until_row("lead>");
    (team, terminal)
}

fn leave(mut terminal: Terminal) {
    terminal.press("\x15\x04");
    assert_eq!(terminal.finish(), Some(0));
}

/// What follows the last line that the person has sent, without the prompt.
fn answer(terminal: &Terminal) -> String {
    let shown = terminal.scrolled();
    let said = shown
        .rsplit_once("lead> go")
        .and_then(|(_, after)| after.split_once('\n'));
    said.and_then(|(_, after)| after.rsplit_once('\n'))
        .map_or_else(String::new, |(said, _)| said.to_owned())
}

#[test]
fn an_answer_is_wrapped_at_words_whatever_the_person_types_meanwhile() {
    let words: Vec<String> = (1..=120).map(|number| format!("word{number}")).collect();
    for size in SIZES {
        let server = ModelServer::start();
        server.says(&words.join(" ")).says("ok");
        let (_team, mut terminal) = chat(&server, size);
        terminal.press(
            "go\rtyped while it streams, and much longer than a line of a terminal that is narrow",
        );
        terminal.until_screen("the answer", |screen| {
            screen.contains("word120\nlead> typed while")
        });
        let said = answer(&terminal);
        let said = said.split("\nlead> typed").next().unwrap();
        assert_eq!(
            said.split_whitespace().collect::<Vec<_>>(),
            words,
            "{size:?}: {}",
            terminal.scrolled()
        );
        assert!(
            said.lines().all(|row| row.len() < size.0.into()),
            "{size:?}: {said}"
        );
        leave(terminal);
    }
}

#[test]
fn markdown_is_laid_out_and_hostile_text_stays_text() {
    let text = "# The plan\n\nFix **two** tests, not `sum()`:\n\n- one\n- two\n\n| name | what |\n|---|---|\n\
        | a | b |\n\n```rust\nfn sum() {}\n```\n\nend \u{1b}[2J &#27;[2J \u{202e}x";
    for size in SIZES {
        let server = ModelServer::start();
        server.says(text);
        let (_team, mut terminal) = chat(&server, size);
        terminal.line("go");
        let begins = "The plan\n\nFix two tests, not sum():\n\n• one\n• two\n\n";
        let ends = "\n    rust\n    fn sum() {}\n\nend \\u{1b}[2J \\u{1b}[2J \\u{202e}x";
        terminal.until_screen("the answer", |_| {
            let said = answer(&terminal);
            said.starts_with(begins) && said.ends_with(ends)
        });
        terminal.until_styled("The plan", true, None);
        terminal.until_styled("fn sum() {}", false, Some(6));
        leave(terminal);
    }
}

#[test]
fn a_table_fits_the_terminal_or_becomes_a_list() {
    let cells = [
        "crossterm",
        "102,000,000",
        "TimonPost, joshka",
        "reads events from stdin",
    ];
    let text = format!(
        "| Crate | Downloads | Maintainers | Notes |\n|---|---|---|---|\n| {} |\n",
        cells.join(" | ")
    );
    for (size, expected) in [
        (
            (40, 20),
            "Crate: crossterm\nDownloads: 102,000,000\nMaintainers: TimonPost, joshka\nNotes: reads events from stdin",
        ),
        (
            (200, 60),
            " crossterm   102,000,000   TimonPost, joshka   reads events from stdin",
        ),
    ] {
        let server = ModelServer::start();
        server.says(&text);
        let (_team, mut terminal) = chat(&server, size);
        terminal.line("go");
        terminal.until_screen("the table", |screen| {
            screen.ends_with(&format!("\n{expected}\nlead>"))
        });
        leave(terminal);
    }
}

#[test]
fn a_terminal_that_changes_its_size_shows_every_line_once() {
    let words: Vec<String> = (1..=60).map(|number| format!("word{number}")).collect();
    let server = ModelServer::start();
    let more = format!("half of it, {}", "and more ".repeat(30));
    server
        .says(&words.join(" "))
        .replies(Reply::text(&more).stalled());
    let (_team, mut terminal) = chat(&server, (80, 24));
    terminal.line("go");
    terminal.until_screen("the answer", |screen| screen.ends_with("word60\nlead>"));
    terminal.press("go on\ra draft");
    terminal.until_screen("that it works", |screen| {
        screen.ends_with("Esc interrupts\nlead> a draft")
    });
    for size in [(50, 24), (30, 16), (120, 40), (80, 24)] {
        terminal.resize(size);
        let is_once = |screen: &str, text: &str| screen.matches(text).count() == 1;
        terminal.until_screen("each line once", |screen| {
            let said: Vec<&str> = screen
                .split_whitespace()
                .filter(|it| it.starts_with("word"))
                .collect();
            screen.ends_with("\nlead> a draft")
                && is_once(screen, "lead is ")
                && is_once(screen, "half of it")
                && said.len() > 30
                && words
                    .iter()
                    .rev()
                    .zip(said.iter().rev())
                    .all(|(word, shown)| word == shown)
                && screen
                    .lines()
                    .all(|row| row.chars().count() < size.0.into())
        });
    }
    leave(terminal);
}

#[test]
fn esc_at_rest_keeps_what_is_typed_and_ctrl_c_takes_it_away() {
    let server = ModelServer::start();
    let (_team, mut terminal) = chat(&server, (80, 24));
    terminal.press("line one\x1b\rline two");
    terminal.until_screen("both lines", |screen| {
        screen.ends_with("lead> line one\nline two")
    });
    let mark = terminal.mark();
    terminal.press("\x1b");
    terminal.until_after(mark, "no turn is running");
    terminal.press("!");
    terminal.until_screen("them still", |screen| {
        screen.ends_with("lead> line one\nline two!")
    });
    terminal.press("\x03");
    terminal.until_screen("none", |screen| screen.ends_with("\nlead>"));
    leave(terminal);
}

#[test]
fn esc_between_two_typed_lines_interrupts_the_first() {
    // The first turn may end before its request is sent.
    let server = ModelServer::answering(|request| {
        if request.mentions("the second line") {
            Reply::text("the answer")
        } else {
            Reply::text("half of it, and more").stalled()
        }
    });
    let (_team, mut terminal) = chat(&server, (80, 24));
    terminal.press("the first line\r\x1bthe second line\r");
    terminal.until_screen("the end of the turn", |screen| {
        screen.contains("\ninterrupted\n")
    });
    terminal.until_screen("the second answer", |screen| {
        screen.ends_with("\nthe answer\nlead>")
    });
    leave(terminal);
}

#[test]
fn a_line_of_a_megabyte_is_shown_and_the_prompt_comes_back() {
    let server = ModelServer::start();
    server
        .says(&"x".repeat(1_000_000))
        .says("a summary")
        .says("after it");
    let (_team, mut terminal) = chat(&server, (80, 24));
    terminal.line("go");
    terminal.until_screen("the whole line", |screen| screen.ends_with("x\nlead>"));
    terminal.line("go on");
    terminal.until_screen("the next answer", |screen| {
        screen.ends_with("\nafter it\nlead>")
    });
    leave(terminal);
}

#[test]
fn a_silent_model_thinks_and_one_that_cannot_be_reached_is_told_in_the_same_row() {
    for size in SIZES {
        let server = ModelServer::start();
        server.replies(Reply::text("half of it").stalled());
        let (_team, mut terminal) = chat(&server, size);
        terminal.press("go\rdraft");
        let says = |what: &'static str| {
            move |screen: &str| screen.ends_with("lead> draft") && screen.contains(what)
        };
        terminal.until_screen("that it works", says("\nlead is "));
        terminal.until_screen("how long", says(" 2 s"));
        assert!(
            !terminal.screen().contains("waiting"),
            "{}",
            terminal.screen()
        );
        terminal.press("\x1b");
        terminal.until_screen("the end of the turn", says("interrupted\nlead> draft"));
        leave(terminal);
    }
}

#[test]
fn a_failed_command_is_red_with_its_exit_code_and_its_last_line() {
    for size in SIZES {
        let team = Team::started();
        let mut terminal = Terminal::teamctl_at(&team, &["chat"], size);
        terminal.until_row("lead>");
        terminal.line("//bash for i in 1 2 3; do echo line $i; done; exit 7");
        let row = "  ↳ exit 7 · line 3 (3 lines)";
        terminal.until_screen("the result", |screen| screen.contains(row));
        terminal.until_styled("↳ exit 7", false, Some(1));
        leave(terminal);
    }
}

#[test]
fn a_long_plan_is_asked_by_its_name_and_length_and_can_be_viewed() {
    for size in SIZES {
        let server = ModelServer::start();
        let team = server.team().with("PAGER", "cat");
        let mut terminal = Terminal::teamctl_at(&team, &["chat", "--model", "script"], size);
        terminal.until_row("lead>");
        let steps: Vec<String> = (1..=60).map(|step| format!("{step}. step{step}")).collect();
        server.calls(
            "plan_approval",
            json!({"plan": format!("# Plan\n{}", steps.join("\n"))}),
        );
        team.teamctl([
            "spawn",
            "bob",
            "--plan",
            "--model",
            Api::Anthropic.model(),
            "--prompt",
            "plan",
        ])
        .ok();
        let id = team.until_planned("bob");
        terminal.until("\x07");
        team.send("lead", &format!("/plan_approval {id} approve"));
        terminal.until("the lead agent would approve it");
        let question = format!("\nApprove plan {id} of bob (61 lines)?\n");
        terminal.until_screen("the question", |screen| {
            screen.contains(&question) && screen.ends_with("[y]es, [n]o, [v]iew, [l]ater>")
        });
        assert!(!terminal.scrolled().contains("step45") && terminal.scrolled().contains("step39"));
        assert!(
            terminal.scrolled().contains("… 21 more lines"),
            "{}",
            terminal.scrolled()
        );
        terminal.line("v");
        let after = format!("60. step60{question}[y]es, [n]o, [v]iew, [l]ater>");
        terminal.until_screen("the whole plan", |screen| screen.ends_with(&after));
        terminal.line("no");
        terminal.until_row("what shall change>");
        terminal.line("fewer steps");
        team.until("the verdict", || team.request(&id)["status"] == "rejected");
        assert_eq!(team.request(&id)["reason"], "fewer steps");
        leave(terminal);
    }
}

#[test]
fn a_person_completes_mentions_runs_and_turns_to_another_agent() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut terminal = Terminal::teamctl_at(&team, &["chat"], (80, 24));
    terminal.until_row("lead>");
    terminal.line("!echo from the shell; cat no-such-file-anywhere");
    terminal.until_screen("the output", |screen| screen.contains("\nfrom the shell\n"));
    terminal.until_screen("how it ended", |screen| {
        screen.contains("exit status: 1\nlead>")
    });
    let file = team.root().parent().unwrap().join("noted-by-a-person");
    File::create(&file)
        .unwrap()
        .write_all(b"the content of the file\n")
        .unwrap();
    let begin = file
        .display()
        .to_string()
        .replace("noted-by-a-person", "noted-b");
    terminal.press(&format!("see @{begin}\t"));
    terminal.until_screen("the path", |screen| {
        screen.replace('\n', "").contains("noted-by-a-person")
    });
    terminal.press("\r");
    team.until("the message", || {
        team.file("inbox/lead.jsonl")
            .contains("the content of the file")
    });
    terminal.press("/attach al\t");
    terminal.until_row("lead> /attach alice");
    terminal.press("\r");
    terminal.until_row("alice>");
    terminal.line("hello alice");
    team.until("the message", || team.has_consumed("alice", "hello alice"));
    team.teamctl(["task", "add", "Say goodbye", "--check", "true"])
        .ok();
    terminal.line("/tasks");
    terminal.until("Say goodbye");
    terminal.line("/tasks 1");
    terminal.until("set by user");
    terminal.line("/cost");
    terminal.until("TOKENS");
    terminal.line("/attach lead");
    terminal.until_row("lead>");
    terminal.line("/model");
    terminal.until("lead runs script");
    let before = team.incarnation("lead");
    terminal.line("/clear");
    terminal.until("lead begins a new conversation");
    assert_eq!(team.incarnation("lead"), before + 1);
    leave(terminal);
}
