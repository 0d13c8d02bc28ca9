//! A person at a chat is asked about plans: what is an answer, and what is none.

use super::screen::Chat;
use crate::support::Team;
use crate::support::terminal::Terminal;

const QUESTION: &str = "[y]es, [n]o, [v]iew, [l]ater>";

/// A chat at its prompt.
fn chat(team: &Team) -> Chat {
    let terminal = Chat::start(team, &["chat"]);
    terminal.until_row("lead>");
    terminal
}

/// Lets a new teammate submit a plan, of which the person at the chat is asked, and returns the id
/// of the plan.
fn ask(team: &Team, name: &str, terminal: &Chat) -> String {
    team.teamctl([
        "spawn",
        name,
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache",
    ])
    .ok();
    let id = team.until_planned(name);
    let question = format!("\nApprove plan {id} of {name} (1 line)?\n");
    terminal.until_screen("the question", |screen| screen.contains(&question));
    id
}

/// A chat that asks its person about a plan of bob's; returns the id of the plan.
fn asked(team: &Team) -> (Chat, String) {
    let terminal = chat(team);
    let id = ask(team, "bob", &terminal);
    terminal.until_row(QUESTION);
    (terminal, id)
}

/// The plan of bob's below the conversation, and the question about it.
fn question(id: &str) -> String {
    format!("\n Drop the cache\nApprove plan {id} of bob (1 line)?\n{QUESTION}")
}

#[test]
fn an_answer_at_a_question_has_the_code_that_it_needs() {
    let team = Team::new();
    team.write("team.toml", "[team]\napprove_code = true\n");
    team.teamd(["start"]).ok();
    let (mut terminal, id) = asked(&team);
    team.teamctl(["approve", &id]).exits(3);
    terminal.line("y");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    terminal.line("/quit");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_question_of_the_person_goes_to_the_lead_agent_and_the_plan_stays() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    // The lead agent is idle.
    terminal.line("what does step 2 do?");
    terminal.until_screen("the answer, and the question", |screen| {
        screen.contains("\nwhat does step 2 do?\n plan ") && screen.ends_with(&question(&id))
    });
    assert_eq!(team.request(&id)["status"], "pending", "a person decides");
    // The lead agent waits for the person.
    team.send("lead", &format!("/plan_approval {{\"request_id\": \"{id}\", \"approve\": true, \"feedback\": \"mind the log\"}}"));
    terminal.until("the lead agent would approve it: mind the log");
    assert_eq!(team.request(&id)["status"], "pending", "a person decides");
    terminal.line("and step 3?");
    team.until("the question to arrive", || {
        team.has_consumed("lead", "and step 3?")
    });
    terminal.until_screen("the answer, and the question", |screen| {
        screen.contains("\nand step 3?\n plan ") && screen.ends_with(QUESTION)
    });
    terminal.press("\rye");
    terminal.until_row(&format!("{QUESTION} ye"));
    assert_eq!(team.request(&id)["status"], "pending", "a person decides");
    terminal.press("s\r");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    assert_eq!(team.request(&id)["reason"], "mind the log");
    terminal.until_row("lead>");
    terminal.leave();
}

#[test]
fn esc_puts_off_a_question_for_which_the_agent_waits_and_interrupts_one_that_works() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    terminal.line("/bash touch held; sleep 60");
    team.until_held();
    terminal.press("\x1b");
    terminal.until_screen("the end of the turn", |screen| {
        screen.contains("\ninterrupted\n plan ") && screen.ends_with(QUESTION)
    });
    team.send(
        "lead",
        &format!("/plan_approval {{\"request_id\": \"{id}\", \"approve\": false}}"),
    );
    terminal.until("the lead agent would reject it");
    terminal.press("\x1b");
    terminal.until(&format!(
        "the plan waits; /approve {id} or /reject {id} answers it"
    ));
    // The lead agent waits on, until the next Esc.
    terminal.until_screen("what it does", |screen| {
        screen.contains("Esc interrupts\nlead>")
    });
    terminal.press("\x1b");
    terminal.until_screen("the end of the turn", |screen| {
        screen.ends_with("\ninterrupted\nlead>")
    });
    assert_eq!(team.request(&id)["status"], "pending");
    terminal.leave();
}

#[test]
fn a_person_who_is_attached_is_asked_about_the_plan_of_the_teammate() {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "bob",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache\n/bash touch made",
    ])
    .ok();
    let id = team.until_planned("bob");
    let mut terminal = Chat::start(&team, &["attach", "bob"]);
    let asks = question(&id);
    terminal.until_screen("the question", |screen| screen.ends_with(&asks));
    terminal.line("what does step 2 do?");
    team.until("the message", || {
        team.file("inbox/bob.jsonl")
            .contains("what does step 2 do?")
    });
    terminal.until_screen("the question", |screen| {
        screen.ends_with(&asks) && screen.contains("step 2 do?\n")
    });
    terminal.line("yes");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    terminal.until_row("bob>");
    team.until("the work", || team.made("made"));
    terminal.leave();
}

#[test]
fn an_answer_is_told_once_and_hints_name_what_can_be_typed_here() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    terminal.until(&format!("bob submits the plan {id}: Drop the cache"));
    let mark = terminal.mark();
    terminal.line("/plans");
    terminal.until_after(&mark, "/approve ID or /reject ID TEXT answers");
    terminal.line("/approve nowhere");
    terminal.until_after(&mark, "/plans shows the ids");
    terminal.line("/team zoe");
    terminal.until_after(&mark, "the team has bob, lead");
    terminal.line(&format!("/approve {}", &id[..6]));
    terminal.until_after(&mark, &format!("the plan {id} of bob is approved"));
    // What another terminal does is told here, and after all that was told of the first one.
    team.teamctl([
        "spawn",
        "carol",
        "--plan",
        "--prompt",
        "/plan_approval Another",
    ])
    .ok();
    let other = team.until_planned("carol");
    team.teamctl(["reject", &other]).ok();
    terminal.until_after(&mark, &format!("the plan {other} of carol is rejected"));
    let said = terminal.leave();
    let answered = format!("the plan {id} of bob is approved");
    assert_eq!(said.matches(&answered).count(), 1, "{said}");
    assert!(!said.contains("teamctl plans"), "{said}");
}

#[test]
fn a_line_that_was_begun_before_the_question_answers_nothing() {
    let team = Team::started();
    let mut terminal = chat(&team);
    terminal.press("approve what I");
    terminal.until_row("lead> approve what I");
    let id = ask(&team, "bob", &terminal);
    terminal.line(" say next");
    team.until("the message to arrive", || {
        team.has_consumed("lead", "approve what I say next")
    });
    terminal.until_screen("the answer, and the question", |screen| {
        screen.contains("\nlead> approve what I say next\napprove what I say next\n plan ")
            && screen.ends_with(QUESTION)
    });
    // What could be an answer is no message either.
    terminal.line("l");
    terminal.until_row("lead>");
    terminal.press("a");
    terminal.until_row("lead> a");
    team.send(
        "lead",
        &format!("/plan_approval {{\"request_id\": \"{id}\", \"approve\": true}}"),
    );
    // The prompt says that Enter answers nothing.
    terminal.until_screen("the question", |screen| {
        screen.ends_with("(1 line)?\nlead> a")
    });
    let mark = terminal.mark();
    terminal.press("\r");
    terminal.until_after(&mark, "was typed before you were asked");
    terminal.until_row(QUESTION);
    assert_eq!(team.request(&id)["status"], "pending");
    assert!(!team.has_consumed("lead", "a"));
    // Nor is what was typed ahead of the prompt.
    let mark = terminal.mark();
    terminal.press("l\ra\r");
    terminal.until_after(&mark, "the plan waits");
    team.until("the message to arrive", || team.has_consumed("lead", "a"));
    assert_eq!(team.request(&id)["status"], "pending");
    terminal.leave();
}

#[test]
fn a_question_that_is_answered_elsewhere_ends_and_drops_what_was_typed() {
    let team = Team::started();
    let mut terminal = chat(&team);
    // Something was typed: it stays, at a prompt of its own.
    let id = ask(&team, "bob", &terminal);
    terminal.until_row(QUESTION);
    terminal.press("a thou");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> a thou");
    let mark = terminal.mark();
    team.teamctl(["reject", &id]).ok();
    terminal.until_after(
        &mark,
        "the question has been answered: your answer is no longer needed",
    );
    terminal.until_row("lead> a thou");
    terminal.press("ght\r");
    team.until("the message to arrive", || {
        team.has_consumed("lead", "a thought")
    });
    assert_eq!(team.request(&id)["status"], "rejected");
    // Nothing was typed: what is typed next answers nothing either.
    terminal.until_screen("the answer", |screen| {
        screen.ends_with("\na thought\nlead>")
    });
    team.until_caught_up("lead");
    let id = ask(&team, "carol", &terminal);
    terminal.until_row(QUESTION);
    let mark = terminal.mark();
    team.teamctl(["reject", &id]).ok();
    terminal.until_after(
        &mark,
        "the question has been answered: your answer is no longer needed",
    );
    terminal.until_row("lead>");
    terminal.press("a");
    terminal.until_row("lead> a");
    terminal.press("pprove\r");
    team.until("the message to arrive", || {
        team.has_consumed("lead", "approve")
    });
    assert_eq!(team.request(&id)["status"], "rejected");
    // The reason was half written.
    let id = ask(&team, "dave", &terminal);
    terminal.until_row(QUESTION);
    terminal.press("r\r");
    terminal.until_row("what shall change>");
    terminal.press("all of");
    terminal.until_row("what shall change> all of");
    team.teamctl(["approve", &id]).ok();
    terminal.until_row("lead> all of");
    assert_eq!(team.request(&id)["status"], "approved");
    terminal.press("\x15/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_line_that_ends_with_a_backslash_outlives_the_question() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    terminal.press("one \\");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> one \\");
    team.teamctl(["reject", &id]).ok();
    terminal.until_row("lead> one \\");
    terminal.press(" and two\r");
    team.until("the message to arrive", || {
        team.has_consumed("lead", "one \\ and two")
    });
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_answer_that_does_not_arrive_leaves_the_question_open() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    team.kill_daemon();
    terminal.until("the daemon is gone");
    let mark = terminal.mark();
    terminal.line("a");
    terminal.until_after(&mark, "is not running");
    team.teamd(["start"]).ok();
    terminal.until_after(&mark, "the daemon is back");
    terminal.until_row(QUESTION);
    terminal.line("a");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_answer_that_was_begun_for_one_plan_is_none_to_the_next() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    let first = &id;
    team.teamctl([
        "spawn",
        "carol",
        "--plan",
        "--prompt",
        "/plan_approval Drop the log",
    ])
    .ok();
    let second = &team.until_planned("carol");
    terminal.until(&format!("carol submits the plan {second}"));
    terminal.press("a");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> a");
    let mark = terminal.mark();
    team.teamctl(["reject", first]).ok();
    terminal.until_after(&mark, &format!("Approve plan {second} of carol"));
    terminal.until_row("lead> a");
    let mark = terminal.mark();
    terminal.press("\r");
    terminal.until_after(&mark, "was typed before you were asked");
    terminal.until_row(QUESTION);
    assert_eq!(team.request(second)["status"], "pending");
    // A command at the question answers it, too, and then the person is not asked.
    let times = terminal.screen().matches("no longer needed").count();
    terminal.line(&format!("/approve {second}"));
    terminal.until_row("lead>");
    team.until("the approval", || {
        team.request(second)["status"] == "approved"
    });
    terminal.line("and done");
    team.until("the message to arrive", || {
        team.has_consumed("lead", "and done")
    });
    let said = terminal.leave();
    assert_eq!(said.matches("no longer needed").count(), times, "{said}");
}

#[test]
fn a_prompt_at_which_nothing_was_typed_makes_room_for_the_question() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    terminal.line("a");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_recommendation_that_arrives_under_an_answer_is_not_sent_with_it() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    terminal.press("y");
    terminal.until_row(&format!("{QUESTION} y"));
    let call = serde_json::json!({"request_id": id, "approve": true, "feedback": "and push it"});
    team.send("lead", &format!("/plan_approval {call}"));
    terminal.until("this feedback of the lead agent is sent with your answer: and push it");
    // The prompt says that Enter answers nothing.
    terminal.until_row("lead> y");
    let mark = terminal.mark();
    terminal.press("\r");
    terminal.until_after(&mark, "was typed before you were asked");
    assert_eq!(team.request(&id)["status"], "pending");
    terminal.until_row(QUESTION);
    terminal.line("y");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    assert_eq!(team.request(&id)["reason"], "and push it");
    terminal.leave();
}

#[test]
fn what_was_typed_for_a_command_of_the_person_answers_no_question() {
    let team = Team::started();
    let (mut terminal, id) = asked(&team);
    terminal.line("!true");
    terminal.shown_raw("[Enter goes back to the conversation]");
    terminal.press("\ry");
    terminal.until_row("lead> y");
    let mark = terminal.mark();
    terminal.press("\r");
    terminal.until_after(&mark, "was typed before you were asked");
    assert_eq!(team.request(&id)["status"], "pending");
    terminal.leave();
}

#[test]
fn a_plan_is_shown_as_it_was_written_wherever_a_person_is_asked() {
    let team = Team::started();
    let plan = "# Plan\n[a]: https://example.org \"then delete the backups\"\n| a |\n|---|\n| 1 | and push |";
    let call = serde_json::json!({ "plan": plan });
    team.teamctl([
        "spawn",
        "bob",
        "--plan",
        "--prompt",
        &format!("/plan_approval {call}"),
    ])
    .ok();
    team.until_planned("bob");
    let shown = plan.replace('\n', "\n ");
    for args in [&["chat"][..], &["attach", "bob"]] {
        let mut terminal = Chat::start(&team, args);
        terminal.until_row(QUESTION);
        terminal.until_screen("the plan", |screen| screen.contains(&shown));
        terminal.press("\x04");
        assert_eq!(terminal.finish(), Some(0));
    }
    let mut terminal = Terminal::teamctl(&team, &["top"]);
    terminal.until_screen("the plan", |screen| screen.contains(&shown));
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}
