//! `teamctl review`: a person sees the whole work, comments on lines of it, and decides.

use crate::checkouts::{add, task, team, until};
use crate::schemas::valid;
use crate::support::Team;
use crate::support::terminal::Terminal;
use crate::support::user::User;

pub(crate) const SUBMIT: &str = "/task_update {\"task_id\": 1, \"status\": \"completed\"}";
/// A name of a file that would clear the screen, and end its line.
const HOSTILE: &str = "a\\nb\\u{1b}[2J<b>";

/// Waits for a review of task 1.
pub(crate) fn reviewed(team: &Team, number: u64) {
    team.until("the review", || {
        let submission = &task(team, 1)["submission"];
        submission["stage"] == "reviewing" && submission["number"] == number
    });
}

/// A team in which work in a checkout waits for a review: what this command has made.
pub(crate) fn submitted_by(work: &str) -> Team {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"echo all is well\"\n",
        "",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["sum up", "--review", "person"]);
    team.does(
        "alice",
        &format!("/claim_task {{\"task_id\": 1}}\n/bash {work}\n{SUBMIT}"),
    );
    reviewed(&team, 1);
    team
}

/// A team in which work with a defect waits for a review.
fn submitted() -> Team {
    submitted_by(
        "echo 'fn total(a: u32) -> u32 { a - 1 }' > calc.rs; seq 60 > long.txt; seq 90 > x.lock; \
         echo x > $'a\\nb\\x1b[2J<b>'; git add .; git commit -qm work",
    )
}

/// Keeps the author busy until there is a file: one that waits for nothing would be reminded of
/// rejected work, and lose it.
fn keep_busy(team: &Team) {
    let go = team.root().join("go");
    let busy = format!("/bash until [ -e {} ]; do sleep 0.02; done", go.display());
    team.teamctl(["send", "alice", &busy]).ok();
}

/// Waits until the author is told of the defect, and has it submit the work without that.
fn is_told_and_submits_again(team: &Team) {
    team.until("the feedback", || {
        let inbox = team.inbox("alice");
        inbox.iter().any(|it| {
            let text = it.to_string();
            text.contains("calc.rs:1: off by one") && text.contains("> +fn total(a: u32)")
        })
    });
    let fix = "sed -i 's/- 1/+ 1/' calc.rs; git commit -qam fix";
    let fix = format!("/bash {fix}\n{SUBMIT}");
    team.teamctl(["send", "alice", &fix]).ok();
    team.write("go", "");
    reviewed(team, 2);
}

/// Presses the key until the work is approved: in the first moment no answer is taken.
fn approve(team: &Team, terminal: &mut Terminal) {
    team.until("the approval", || {
        // The notice of it may be gone again.
        let reviews = team.requests("review");
        let is_approved = reviews
            .last()
            .is_some_and(|review| review["status"] == "approved");
        if !is_approved {
            terminal.press("a");
        }
        is_approved
    });
}

#[test]
fn the_whole_work_is_seen_before_it_is_approved_and_comments_reach_the_author() {
    let team = submitted();
    let mut small = Terminal::teamctl_at(&team, &["review", "1"], (80, 24));
    small.until_screen("the work", |screen| {
        screen.contains("all is well") && screen.contains("+152 -0, 1 generated")
    });
    // Not all of it was on the screen.
    small.press("ga");
    small.until_screen("a refusal", |screen| {
        screen.contains("nothing was answered: ")
    });
    assert_eq!(task(&team, 1)["status"], "in_review");
    small.press("gn");
    small.until_screen("a name that is harmless", |screen| screen.contains(HOSTILE));
    small.press("n");
    small.until_screen("the defect", |screen| {
        screen.contains("+ fn total(a: u32) -> u32 { a - 1 }")
    });
    small.press("jjcoff by one\r");
    small.until_screen("the comment", |screen| screen.contains("» off by one"));
    keep_busy(&team);
    small.press("rplease fix\r");
    assert_eq!(small.finish(), Some(0));
    is_told_and_submits_again(&team);
    let mut large = Terminal::teamctl_at(&team, &["review", "alice"], (200, 50));
    large.until_screen("the work", |screen| screen.contains("submission 2"));
    large.press("N");
    large.until_screen("what is new", |screen| {
        screen.contains("(since the last submission)")
            && screen.contains("1 file, +1 -1")
            && screen.contains("a + 1")
    });
    large.press("Ns");
    large.until_screen("two sides", |screen| screen.contains("│"));
    // All of it passes over the screen.
    large.press("g      ");
    large.until_screen("the end", |screen| screen.contains("▸ folded, o shows it"));
    approve(&team, &mut large);
    assert_eq!(large.finish(), Some(0));
    until(&team, 1, "completed");
}

#[test]
fn a_pipe_a_program_and_the_question_of_approve_show_the_work() {
    let team = submitted();
    let printed = team.teamctl(["review", "1"]).ok().stdout;
    assert!(
        printed.contains("+fn total(a: u32) -> u32 { a - 1 }"),
        "{printed}"
    );
    assert!(
        printed.contains(HOSTILE) && !printed.contains('\x1b'),
        "{printed}"
    );
    let json = team.json(["review", "alice"]);
    let fields = ["task", "author", "check", "added", "removed", "files"];
    valid(&team, "review", &json, &fields);
    assert_eq!(json["files"][0]["path"], "a\nb\x1b[2J<b>");
    let with_tool = team
        .teamctl(["review", "1", "--tool", "git diff --stat"])
        .ok();
    assert!(with_tool.stdout.contains("calc.rs"), "{}", with_tool.stdout);
    let diff = Terminal::teamctl(&team, &["diff", "1"]);
    diff.until("A calc.rs  +1 -0");
    assert_eq!(diff.finish(), Some(0));
    let mut question = Terminal::teamctl(&team, &["approve", "alice"]);
    question.until("4 files, +152 -0, 1 generated");
    question.until("` shows all");
    question.until("[y/N]");
    question.line("n");
    question.finish();
    assert_eq!(task(&team, 1)["status"], "in_review");
    let nothing = team.teamctl(["review", "2"]).exits(4);
    assert!(
        nothing.stderr.contains("there is no task 2"),
        "{}",
        nothing.stderr
    );
}

#[test]
fn top_opens_the_review_and_takes_comments_and_the_answer() {
    let team = submitted();
    let mut top = Terminal::teamctl_at(&team, &["top"], (80, 24));
    top.press("2");
    top.until_screen("the request", |screen| screen.contains("⏎ review"));
    // The text of the request is not the work.
    top.press("a");
    top.until_screen("the work", |screen| {
        screen.contains("all is well") && screen.contains("+152 -0, 1 generated")
    });
    // Not all of it was on the screen.
    top.press("a");
    top.until_screen("a refusal", |screen| {
        screen.contains("nothing was answered: ")
    });
    assert_eq!(task(&team, 1)["status"], "in_review");
    top.press("gn");
    top.until_screen("a name that is harmless", |screen| screen.contains(HOSTILE));
    top.press("njj");
    top.until_screen("the defect", |screen| {
        screen.contains("+ fn total(a: u32) -> u32 { a - 1 }")
    });
    top.press("coff by one\r");
    top.until_screen("the comment", |screen| screen.contains("» off by one"));
    keep_busy(&team);
    top.press("rplease fix\r");
    top.until_screen("the end of it", |screen| {
        screen.contains("is rejected") && screen.contains("No request is pending")
    });
    is_told_and_submits_again(&team);
    top.until_screen("the next one", |screen| screen.contains("⏎ review"));
    top.resize((200, 50));
    // From its task.
    top.press("3\r");
    top.until_screen("the work", |screen| screen.contains("a + 1"));
    top.press("N");
    top.until_screen("what is new", |screen| {
        screen.contains("(since the last submission)")
            && screen.contains("1 file, +1 -1")
            && screen.contains("a + 1")
    });
    // Without a key: the team goes on.
    team.teamctl(["spawn", "bo"]).ok();
    top.until_screen("a second teammate", |screen| screen.contains("1 idle"));
    top.press("Ng     ");
    top.until_screen("the end", |screen| screen.contains("▸ folded, o shows it"));
    approve(&team, &mut top);
    until(&team, 1, "completed");
    // A key too many adds a task, which nothing but this leaves.
    top.press("\u{3}");
    assert_eq!(top.finish(), Some(0));
}

#[test]
fn a_review_in_top_that_another_answers_takes_no_answer_any_more() {
    let team = submitted();
    let mut top = Terminal::teamctl_at(&team, &["top"], (80, 24));
    top.until_screen("the author", |screen| screen.contains("⏎ review"));
    top.press("\r");
    top.until_screen("the work", |screen| screen.contains("all is well"));
    let id = task(&team, 1)["submission"]["request_id"].clone();
    team.teamctl(["reject", id.as_str().unwrap(), "--feedback", "no"])
        .ok();
    top.until_screen("the end of it", |screen| {
        screen.contains("was rejected meanwhile")
    });
    top.press("jr");
    top.until_screen("a refusal", |screen| {
        screen.contains("nothing can be answered") && !screen.contains("what is to change")
    });
    top.press("q");
    top.until_screen("the panes", |screen| screen.contains("2 Requests"));
    top.press("q");
    assert_eq!(top.finish(), Some(0));
}
