//! `teamctl compact`, and `/compact` in the chat: a summary that a person asks for.

use serde_json::{Value, json};

use super::spawn;
use crate::schemas::valid;
use crate::support::Team;
use crate::support::look::HELD;
use crate::support::model_server::{Api, ModelServer, Reply, Request};

/// What a request for a summary says.
const ORDER: &str = "Write down, for yourself, all that";

fn is_order(request: &Request) -> bool {
    request.mentions(ORDER)
}

/// A server whose summaries are this reply; it calls [`HELD`] where it is asked to wait.
fn server(mut summary: impl FnMut() -> Reply + Send + 'static) -> ModelServer {
    let mut waits = true;
    ModelServer::answering(move |request| {
        if is_order(request) {
            summary()
        } else if request.mentions("wait here") && std::mem::take(&mut waits) {
            Reply::call(
                "bash",
                json!({"command": HELD.trim_start_matches("/bash ")}),
            )
        } else {
            Reply::text("The long answer.")
        }
    })
}

fn compacted(team: &Team) -> Vec<Value> {
    team.entries("alice", "compacted")
}

#[test]
fn a_conversation_goes_on_from_its_summary_at_rest_and_after_the_step_that_runs() {
    let server = server(|| Reply::text("I know it all."));
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "the first order");
    team.until_finished("alice", 1);
    let told = team.teamctl(["compact", "alice"]).ok().stdout;
    assert!(told.contains("goes on from a summary"), "{told}");
    let entries = compacted(&team);
    assert_eq!((entries.len(), &entries[0]["at_rest"]), (1, &json!(true)));
    assert!(
        entries[0]["summary"]
            .as_str()
            .unwrap()
            .contains("I know it all.")
    );
    // It is at rest as before.
    assert_eq!(team.json(["interrupt", "alice"])["interrupted"], false);
    let again = team.teamctl(["compact", "alice"]).exits(7).stderr;
    assert!(
        again.contains("nothing to compact") && again.contains("hint: "),
        "{again}"
    );
    team.kill_and_wait_for_restart("alice");
    team.send("alice", "wait here");
    team.until_held();
    let sent = server.last();
    assert!(sent.mentions("I know it all.") && !sent.mentions("The long answer."));
    // While it works, it is done before the model is asked again.
    let waits = team.start_teamctl(["compact", "alice"]);
    team.until("the command to be known", || {
        let activity = team.member("alice")["activity"].to_string();
        activity.contains("then a summary of the conversation")
    });
    team.release();
    waits.finish().ok();
    team.until_finished("alice", 2);
    assert!(compacted(&team)[1].get("at_rest").is_none());
    let orders: Vec<bool> = server.requests().iter().map(is_order).collect();
    assert_eq!(orders, [false, true, false, true, false]);
}

#[test]
fn what_ends_the_worker_or_the_service_leaves_the_conversation_as_it_was() {
    let mut replies = 0;
    let server = server(move || {
        replies += 1;
        match replies {
            1 => Reply::text("I kn").stalled(),
            2 => Reply::fail(400),
            3 => Reply::text("I kn").stalled(),
            _ => Reply::text("I know it all."),
        }
    });
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "the first order");
    team.until_finished("alice", 1);
    let waits = team.start_teamctl(["compact", "alice"]);
    team.until("the summary to be asked for", || {
        server.requests().len() == 2
    });
    team.kill_and_wait_for_restart("alice");
    let ended = waits.finish().exits(7).stderr;
    assert!(ended.contains("ended before its conversation"), "{ended}");
    assert!(compacted(&team).is_empty());
    // A service that refuses the question costs the model's own words, and nothing else.
    team.teamctl(["compact", "alice"]).ok();
    let summary = compacted(&team)[0]["summary"].to_string();
    assert!(
        summary.contains("you could not write a summary"),
        "{summary}"
    );
    team.send("alice", "go on");
    team.until_finished("alice", 2);
    // A shutdown does not wait for it.
    let waits = team.start_teamctl(["compact", "alice"]);
    team.until("the summary to be asked for", || {
        server.requests().iter().filter(|it| is_order(it)).count() == 3
    });
    let answered = team.shutdown("alice", &[], 0);
    assert_eq!(answered["outcome"], "shutdown", "{answered}");
    let ended = waits.finish().exits(7).stderr;
    assert!(
        ended.contains("you are asked to leave") || ended.contains("ended before"),
        "{ended}"
    );
    assert_eq!(compacted(&team).len(), 1);
}

#[test]
fn who_has_no_such_conversation_is_named_and_the_chat_has_the_command() {
    let server = server(|| Reply::text("I know it all."));
    let team = server.team();
    team.teamctl(["spawn", "bob", "--model", "script"]).ok();
    let refused = team.teamctl(["compact", "bob"]).exits(7).stderr;
    assert!(
        refused.contains("script") && refused.contains("hint: "),
        "{refused}"
    );
    team.teamctl(["compact", "zoe"]).exits(4);
    spawn(&team, "alice", Api::Anthropic.model(), "the first order");
    team.until_finished("alice", 1);
    team.teamctl_with(["attach", "alice"], "/compact\n").ok();
    assert_eq!(compacted(&team).len(), 1);
    team.send("alice", "go on");
    team.until_finished("alice", 2);
    let told = team.json(["compact", "alice"]);
    valid(&team, "compact", &told, &["name", "incarnation"]);
    let refused = team
        .teamctl_with(["attach", "alice"], "/compact\n")
        .exits(7);
    assert!(refused.stderr.contains("nothing to compact"), "{refused:?}");
    team.teamctl(["shutdown", "alice"]).ok();
    let refused = team.teamctl(["compact", "alice"]).exits(7).stderr;
    assert!(refused.contains("alice is not running"), "{refused}");
}
