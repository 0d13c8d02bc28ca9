//! A person at a chat is asked about plans: what is an answer, and what is none.

use crate::support::Team;
use crate::support::terminal::Terminal;

/// A chat that asks its person about a plan of bob's; returns the id of the plan.
fn asked(team: &Team) -> (Terminal, String) {
    let terminal = Terminal::teamctl(team, &["chat"]);
    terminal.until("lead> ");
    team.teamctl(["spawn", "bob", "--plan", "--prompt", "/plan_approval Drop the cache"]).ok();
    let id = team.until_planned("bob");
    team.send("lead", &format!("/plan_approval {id} approve"));
    terminal.until("[y]es, [n]o, [v]iew, [l]ater> ");
    (terminal, id)
}

#[test]
fn a_person_decides_a_plan_that_the_lead_agent_would_approve() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl(&team, &["chat"]);
    terminal.until("lead> ");
    terminal.line("//spawn_teammate --plan bob coder /plan_approval Drop the cache\\n/bash touch made");
    let id = team.until_planned("bob");
    terminal.until(&format!("bob submits the plan {id}"));
    terminal.line(&format!("//plan_approval {id} approve mind the log"));
    terminal.until("[y]es, [n]o, [v]iew, [l]ater> ");
    terminal.until("the lead agent would approve it: mind the log");
    assert_eq!(team.request(&id)["status"], "pending", "a person decides");
    terminal.until_screen("the question", |screen| {
        screen.contains(&format!("\nApprove plan {id} of bob (1 line)?\n[y]es, [n]o, [v]iew, [l]ater>"))
    });
    // A question goes to the lead agent, and the plan stays.
    terminal.line("what does step 2 do?");
    team.until("the question to arrive", || team.has_consumed("lead", "what does step 2 do?"));
    terminal.until("the plan waits");
    assert_eq!(team.request(&id)["status"], "pending", "a person decides");
    let mark = terminal.mark();
    terminal.line(&format!("//plan_approval {id} approve mind the log"));
    terminal.until_after(mark, "Approve plan ");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater>");
    terminal.press("\r");
    terminal.press("ye");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> ye");
    assert_eq!(team.request(&id)["status"], "pending", "a person decides");
    terminal.press("s\r");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    assert_eq!(team.request(&id)["reason"], "mind the log");
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_answer_is_told_once_and_hints_name_what_can_be_typed_here() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl(&team, &["chat"]);
    terminal.until("lead> ");
    team.teamctl(["spawn", "bob", "--plan", "--prompt", "/plan_approval Drop the cache"]).ok();
    let id = team.until_planned("bob");
    terminal.until(&format!("bob submits the plan {id}"));
    let mark = terminal.mark();
    terminal.line("/plans");
    terminal.until_after(mark, "/approve ID or /reject ID TEXT answers");
    terminal.line("/approve nowhere");
    terminal.until_after(mark, "/plans shows the ids");
    terminal.line("/team zoe");
    terminal.until_after(mark, "the team has bob, lead");
    assert!(!terminal.shown()[mark..].contains("teamctl plans"), "{}", terminal.shown());
    terminal.line(&format!("/approve {}", &id[..6]));
    terminal.until_after(mark, &format!("the plan {id} of bob is approved"));
    // What another terminal does is told here, and after all that was told of the first one.
    team.teamctl(["spawn", "carol", "--plan", "--prompt", "/plan_approval Another"]).ok();
    let other = team.until_planned("carol");
    team.teamctl(["reject", &other]).ok();
    terminal.until_after(mark, &format!("the plan {other} of carol is rejected"));
    let shown = terminal.shown();
    assert_eq!(shown[mark..].matches(&format!("the plan {id} of bob is approved")).count(), 1, "{shown}");
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_line_that_was_begun_before_the_question_answers_nothing() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl(&team, &["chat"]);
    terminal.until("lead> ");
    team.teamctl(["spawn", "bob", "--plan", "--prompt", "/plan_approval Drop the cache"]).ok();
    let id = team.until_planned("bob");
    let ask = |terminal: &Terminal| {
        let mark = terminal.mark();
        team.send("lead", &format!("/plan_approval {id} approve"));
        terminal.until_after(mark, "Approve plan ");
    };
    // A message that is sent puts the question off.
    terminal.press("approve what I");
    terminal.until("approve what I");
    ask(&terminal);
    let mark = terminal.mark();
    terminal.line(" say next");
    team.until("the message to arrive", || team.has_consumed("lead", "approve what I say next"));
    terminal.until_after(mark, "the plan waits");
    // All of the turn is shown, and then the prompt: what is shown next is what is typed.
    terminal.until_screen("the end of the turn", |screen| {
        screen.contains("\napprove what I say next\n") && screen.ends_with("\nlead>")
    });
    // What could be an answer is no message either.
    terminal.press("a");
    terminal.until_row("lead> a");
    ask(&terminal);
    let mark = terminal.mark();
    terminal.press("\r");
    terminal.until_after(mark, "was typed before you were asked");
    terminal.until_after(mark, "[y]es, [n]o, [v]iew, [l]ater> ");
    assert_eq!(team.request(&id)["status"], "pending");
    assert!(!team.has_consumed("lead", "a"));
    // Nor is what was typed ahead of the prompt.
    let mark = terminal.mark();
    terminal.press("l\ra\r");
    terminal.until_after(mark, "the plan waits");
    team.until("the message to arrive", || team.has_consumed("lead", "a"));
    assert_eq!(team.request(&id)["status"], "pending");
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_question_that_is_answered_elsewhere_ends_and_drops_what_was_typed() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl(&team, &["chat"]);
    terminal.until("lead> ");
    let ask = |name: &str, terminal: &Terminal| {
        let mark = terminal.mark();
        team.teamctl(["spawn", name, "--plan", "--prompt", "/plan_approval Drop the cache"]).ok();
        let id = team.until_planned(name);
        team.send("lead", &format!("/plan_approval {id} approve"));
        terminal.until_after(mark, "[y]es, [n]o, [v]iew, [l]ater> ");
        id
    };
    // Something was typed: it stays, at a prompt of its own.
    let id = ask("bob", &terminal);
    terminal.press("a thou");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> a thou");
    let mark = terminal.mark();
    team.teamctl(["reject", &id]).ok();
    terminal.until_after(mark, "you are asked no more");
    terminal.until_row("lead> a thou");
    terminal.press("ght\r");
    team.until("the message to arrive", || team.has_consumed("lead", "a thought"));
    assert_eq!(team.request(&id)["status"], "rejected");
    // Nothing was typed: what is typed next answers nothing either.
    terminal.until_screen("the answer", |screen| screen.ends_with("\na thought\nlead>"));
    team.until_caught_up("lead");
    let id = ask("carol", &terminal);
    let mark = terminal.mark();
    team.teamctl(["reject", &id]).ok();
    terminal.until_after(mark, "you are asked no more");
    terminal.until_after(mark, "lead> ");
    terminal.press("a");
    terminal.until_row("lead> a");
    terminal.press("pprove\r");
    team.until("the message to arrive", || team.has_consumed("lead", "approve"));
    assert_eq!(team.request(&id)["status"], "rejected");
    // The reason was half written.
    let id = ask("dave", &terminal);
    terminal.press("r\r");
    terminal.until("what shall change> ");
    terminal.press("all of");
    terminal.until("what shall change> all of");
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
    team.until("the message to arrive", || team.has_consumed("lead", "one \\ and two"));
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_answer_that_does_not_arrive_leaves_the_question_open() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl(&team, &["chat"]);
    terminal.until("lead> ");
    team.teamctl(["spawn", "bob", "--plan", "--prompt", "/plan_approval Drop the cache"]).ok();
    let id = team.until_planned("bob");
    team.send("lead", &format!("/plan_approval {id} reject"));
    terminal.until("[y]es, [n]o, [v]iew, [l]ater> ");
    team.kill_daemon();
    terminal.until("the daemon is gone");
    let mark = terminal.mark();
    terminal.line("a");
    terminal.until_after(mark, "is not running");
    team.teamd(["start"]).ok();
    terminal.until_after(mark, "the daemon is back");
    let mark = terminal.shown().rfind("is not running").unwrap();
    terminal.until_after(mark, "[y]es, [n]o, [v]iew, [l]ater> ");
    terminal.line("a");
    team.until("the approval", || team.request(&id)["status"] == "approved");
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_answer_that_was_begun_for_one_plan_is_none_to_the_next() {
    let team = Team::started();
    let mut terminal = Terminal::teamctl(&team, &["chat"]);
    terminal.until("lead> ");
    let ids = ["bob", "carol"].map(|name| {
        team.teamctl(["spawn", name, "--plan", "--prompt", "/plan_approval Drop the cache"]).ok();
        team.until_planned(name)
    });
    let [first, second] = &ids;
    team.send("lead", &format!("/plan_approval {first} approve\n/plan_approval {second} approve"));
    terminal.until(&format!("the plan {first} of bob:"));
    terminal.until("[y]es, [n]o, [v]iew, [l]ater> ");
    terminal.press("a");
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> a");
    let mark = terminal.mark();
    team.teamctl(["reject", first]).ok();
    terminal.until_after(mark, &format!("the plan {second} of carol:"));
    terminal.until_row("[y]es, [n]o, [v]iew, [l]ater> a");
    let mark = terminal.mark();
    terminal.press("\r");
    terminal.until_after(mark, "was typed before you were asked");
    terminal.until_after(mark, "[y]es, [n]o, [v]iew, [l]ater> ");
    assert_eq!(team.request(second)["status"], "pending");
    // A command at the question answers it, too, and then the person is not asked.
    let mark = terminal.mark();
    terminal.line(&format!("/approve {second}"));
    terminal.until_after(mark, "lead> ");
    team.until("the approval", || team.request(second)["status"] == "approved");
    terminal.line("and done");
    team.until("the message to arrive", || team.has_consumed("lead", "and done"));
    assert!(!terminal.shown()[mark..].contains("asked no more"), "{}", terminal.shown());
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
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
