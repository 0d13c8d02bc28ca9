//! What is on the screen of a person at a chat, at terminals of several sizes.

use std::fs::File;
use std::io::Write;

use serde_json::json;

use super::screen::Chat;
use crate::support::Team;
use crate::support::model_server::{Api, ModelServer, Reply};

/// Columns and rows.
const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (200, 60)];

/// A team whose lead agent has a model, and a chat with it.
fn chat(server: &ModelServer, size: (u16, u16)) -> (Team, Chat) {
    let team = server.team();
    let terminal = Chat::start_at(&team, &["chat", "--model", Api::Anthropic.model()], size);
    terminal.until_row("lead>");
    (team, terminal)
}

/// Leaves, and returns what was printed then behind the line `go`.
fn answer(terminal: Chat) -> String {
    let said = terminal.leave();
    let behind = said.split_once("lead> go\n").map(|(_, behind)| behind);
    let answer = behind.and_then(|behind| behind.split_once("\nnote: "));
    answer.unwrap_or_else(|| panic!("{said}")).0.to_owned()
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
        assert_eq!(terminal.wrapped_rows(), 0, "{}", terminal.screen());
        let said = answer(terminal);
        let shown: Vec<_> = said.split_whitespace().collect();
        assert_eq!(shown, words, "{size:?}: {said}");
        assert!(
            said.lines().all(|row| row.len() <= size.0.into()),
            "{size:?}: {said}"
        );
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
        let last = format!("{ends}\nlead>");
        terminal.until_screen("the answer", |screen| screen.ends_with(&last));
        terminal.until_styled("fn sum() {}", false, Some(6));
        if size.1 > 20 {
            terminal.until_styled("The plan", true, None);
        }
        let said = answer(terminal);
        assert!(
            said.starts_with(begins) && said.ends_with(ends),
            "{size:?}: {said}"
        );
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
        terminal.leave();
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
                && said.len() > 20
                && words
                    .iter()
                    .rev()
                    .zip(said.iter().rev())
                    .all(|(word, shown)| word == shown)
                && terminal.wrapped_rows() == 0
        });
    }
    terminal.press("\x1b");
    terminal.until("interrupted");
    let said = terminal.leave();
    for word in &words {
        let times = said.split_whitespace().filter(|shown| shown == word);
        assert_eq!(times.count(), 1, "{word}:\n{said}");
    }
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
    terminal.until_after(&mark, "no turn is running");
    terminal.press("!");
    terminal.until_screen("them still", |screen| {
        screen.ends_with("lead> line one\nline two!")
    });
    terminal.press("\x03");
    terminal.until_screen("none", |screen| screen.ends_with("\nlead>"));
    terminal.leave();
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
    terminal.leave();
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
    terminal.leave();
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
        terminal.until_screen("how long", |screen| {
            screen.ends_with("lead> draft")
                && (2..60).any(|seconds| screen.contains(&format!(" {seconds} s")))
        });
        assert!(
            !terminal.screen().contains("waiting"),
            "{}",
            terminal.screen()
        );
        terminal.press("\x1b");
        terminal.until_screen("the end of the turn", |screen| {
            screen.ends_with("\ninterrupted\nlead> draft")
        });
        terminal.leave();
    }
}

#[test]
fn a_failed_command_is_red_with_its_exit_code_and_its_last_line() {
    for size in SIZES {
        let team = Team::started();
        let mut terminal = Chat::start_at(&team, &["chat"], size);
        terminal.until_row("lead>");
        terminal.line("//bash for i in 1 2 3; do echo line $i; done; exit 7");
        let row = "  ↳ exit 7 · line 3 (3 lines)";
        terminal.until_screen("the result", |screen| screen.contains(row));
        terminal.until_styled("↳ exit 7", false, Some(1));
        terminal.leave();
    }
}

/// The last step of a plan that is on the screen.
fn last_step(screen: &str) -> usize {
    let is_shown = |step: &usize| screen.contains(&format!(" {step}. step{step}\n"));
    (1..=60).rev().find(is_shown).unwrap_or(0)
}

#[test]
fn a_long_plan_is_approved_once_each_line_of_it_was_on_the_screen() {
    for size in SIZES {
        let server = ModelServer::start();
        let team = server.team();
        let mut terminal = Chat::start_at(&team, &["chat", "--model", "script"], size);
        terminal.until_row("lead>");
        let steps: Vec<String> = (1..=60).map(|step| format!("{step}. step{step}")).collect();
        let plan = format!("# Plan\n{}", steps.join("\n"));
        let planned = |name: &str| {
            server.calls("plan_approval", json!({"plan": plan}));
            let model = Api::Anthropic.model();
            team.teamctl([
                "spawn", name, "--plan", "--model", model, "--prompt", "plan",
            ])
            .ok();
            team.until_planned(name)
        };
        let id = planned("bob");
        terminal.shown_raw("\x07");
        team.send(
            "lead",
            &format!("/plan_approval {{\"request_id\": \"{id}\", \"approve\": true}}"),
        );
        terminal.until("the lead agent would approve it");
        let question = format!("\nApprove plan {id} of bob (61 lines)?\n");
        let asks = |screen: &str| {
            screen.contains(&question) && screen.ends_with("[y]es, [n]o, [v]iew, [l]ater>")
        };
        terminal.until_screen("the question", asks);
        // Each answer before the last line was there shows what follows, and nothing is left out.
        let mut last = last_step(&terminal.screen());
        assert!(last < 60, "{}", terminal.screen());
        while last < 60 {
            assert_eq!(team.request(&id)["status"], "pending");
            terminal.line("yes");
            terminal.until_screen("the next lines", |screen| {
                asks(screen) && last_step(screen) > last
            });
            let screen = terminal.screen();
            assert!(
                screen.contains(&format!(" {0}. step{0}\n", last + 1)),
                "{screen}"
            );
            last = last_step(&screen);
        }
        terminal.line("yes");
        team.until("the verdict", || team.request(&id)["status"] == "approved");
        team.until_finished("bob", 1);
        // `v` shows the plan alone, and Esc the conversation again.
        let id = planned("carol");
        terminal.until_screen("the question", |screen| screen.ends_with("[l]ater>"));
        let part = last_step(&terminal.screen());
        terminal.line("v");
        terminal.until_screen("more of the plan", |screen| last_step(screen) > part);
        terminal.press("\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
        terminal.until_screen("its end", |screen| last_step(screen) == 60);
        terminal.press("\x1b");
        terminal.until_screen("the conversation", |screen| screen.contains("ater> v"));
        terminal.line("no");
        terminal.until_row("what shall change>");
        terminal.line("fewer steps");
        team.until("the verdict", || team.request(&id)["status"] == "rejected");
        assert_eq!(team.request(&id)["reason"], "fewer steps");
        terminal.leave();
    }
}

#[test]
fn what_was_said_earlier_comes_when_a_person_scrolls_up_and_the_help_lists_the_keys() {
    let team = Team::started();
    team.spawn("alice", "");
    for number in 1..=30 {
        team.send("alice", &format!("message {number}"));
    }
    team.until_caught_up("alice");
    let mut terminal = Chat::start_at(&team, &["attach", "alice", "--last", "1"], (60, 20));
    terminal.until_row("alice>");
    assert!(
        !terminal.screen().contains("message 9"),
        "{}",
        terminal.screen()
    );
    terminal.press("a draft");
    terminal.press(&"\x1b[5~".repeat(9));
    terminal.until_screen("the first message", |screen| {
        screen.contains("» lead: message 1\n")
    });
    // The wheel, and the end again.
    terminal.press("\x1b[<65;5;5M");
    terminal.until_screen("what follows", |screen| {
        !screen.contains("» lead: message 1\n") && screen.ends_with("alice> a draft")
    });
    terminal.press("\x1b[1;5F");
    terminal.until_screen("the end", |screen| {
        screen.contains("/help lists the commands")
    });
    terminal.press("\x07");
    terminal.until_screen("the keys", |screen| screen.contains("Text that you type"));
    terminal.press("\x1b");
    terminal.until_screen("the end", |screen| {
        screen.contains("/help lists the commands")
    });
    // The keys with Ctrl do under the help what they do without it.
    terminal.press("\x07");
    terminal.until_screen("the keys", |screen| screen.contains("Text that you type"));
    let said = terminal.leave();
    assert!(!said.contains("message"), "nothing was said since: {said}");
}

#[test]
fn a_person_completes_mentions_runs_and_turns_to_another_agent() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut terminal = Chat::start_at(&team, &["chat"], (80, 24));
    terminal.until_row("lead>");
    terminal.line("!echo from the shell; cat no-such-file-anywhere");
    terminal.shown_raw("from the shell\r\n");
    terminal.shown_raw("[Enter goes back to the conversation]");
    terminal.press("\r");
    terminal.until_screen("how it ended", |screen| {
        screen.ends_with("exit status: 1\nlead>")
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
    terminal.press("/att\t");
    terminal.until_row("lead> /attach");
    terminal.press("al\t");
    terminal.until_row("lead> /attach alice");
    terminal.press("\r");
    terminal.until_row("alice>");
    terminal.line("hello alice");
    team.until("the message", || team.has_consumed("alice", "hello alice"));
    // Ctrl-R finds a line of before, which is edited.
    terminal.press("\x12attach al");
    terminal.until_row("(search) attach al: /attach alice");
    terminal.press("\x15");
    terminal.until_row("alice>");
    terminal.press("\x1b[200~two\r\nlines\x1b[201~");
    terminal.until_screen("the paste", |screen| screen.ends_with("alice> two\nlines"));
    terminal.press("\r");
    team.until("the message", || team.has_consumed("alice", "two\nlines"));
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
    terminal.leave();
}
