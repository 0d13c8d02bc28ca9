//! The lead agent's own conversation grows too long while its team goes on.

use serde_json::json;

use crate::support::look::HELD;
use crate::support::model_server::{ModelServer, Reply, Request};
use crate::support::{Team, is_alive};

/// What the model is asked for a summary with, and what stands before each summary.
const ORDER: &str = "Write down, for yourself";
const CUT: &str = "[The conversation was too long";

/// Counts until its conversation has been cut once more, and does what is due then.
fn lead_says(request: &Request, cuts: &mut usize) -> Reply {
    let count = || Reply::call("bash", json!({"command": "seq 900"}));
    let done = |told: &str| request.mentions(told);
    if request.mentions(ORDER) {
        *cuts += 1;
        return Reply::text("SUMMARY: the numbers are being counted");
    }
    match *cuts {
        _ if done("alice has ended") => Reply::text("alice is gone"),
        _ if done("alice is asked to leave") => Reply::text("she was asked"),
        _ if done("end alice now") => Reply::call("shutdown_request", json!({"teammate": "alice"})),
        0 if request.body["messages"].as_array().unwrap().len() < 3 => Reply::call(
            "bash",
            json!({"command": HELD.trim_start_matches("/bash ")}),
        ),
        0 => count(),
        1 if done("count once more") => count(),
        1 if done("the gate of its author is open") => Reply::text("approved"),
        1 => Reply::call(
            "plan_approval",
            json!({"request_id": request.plan_id(), "approve": true}),
        ),
        _ => Reply::text("counted"),
    }
}

/// What happens in the team while the lead agent is at its first call: bob ends, and alice submits
/// a plan. Returns its id.
fn meanwhile(team: &Team) -> String {
    team.teamctl(["spawn", "bob", "--model", "script"]).ok();
    team.teamctl(["shutdown", "bob"]).ok();
    let plan = [
        "--plan",
        "--approve-by",
        "lead",
        "--prompt",
        "/plan_approval Drop the cache\n/bash echo x > x.txt",
    ];
    team.teamctl([&["spawn", "alice", "--model", "script"], &plan[..]].concat())
        .ok();
    team.until_planned("alice")
}

/// The summaries of the lead agent's conversation.
fn summaries(team: &Team) -> Vec<String> {
    team.entries("lead", "compacted")
        .into_iter()
        .map(|entry| entry["summary"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_waits_for_the_lead_agent_outlives_a_cut_of_its_conversation() {
    let mut cuts = 0;
    let server = ModelServer::answering(move |request| lead_says(request, &mut cuts));
    let team = server.team().with("TEAM_CONTEXT_WINDOW", "20k");
    team.start_lead_with(|order| order.terms.model = "anthropic:fake".parse().ok());
    team.send("lead", "count the numbers");
    team.until_held();
    let id = meanwhile(&team);
    team.release();
    team.until_finished("alice", 1);
    // The plan, and what happened in the team, stand there word for word; the lines that told of
    // them are cut.
    let first = &summaries(&team)[0];
    for kept in [
        "count the numbers",
        "bob has ended",
        "Drop the cache",
        &id,
        "Plans that wait",
    ] {
        assert!(first.contains(kept), "{kept}: {first}");
    }
    assert_eq!(
        (
            team.request(&id)["status"].as_str(),
            team.text("x.txt").as_str()
        ),
        (Some("approved"), "x\n")
    );
    let is_told = |request: &Request| request.mentions("gate of its author is open");
    team.until("the lead agent to be told", || {
        server.requests().iter().any(is_told)
    });
    let requests = server.requests();
    let answering = requests.iter().position(is_told).unwrap();
    assert!(requests[answering].mentions(CUT));
    // What is answered does not wait any more.
    team.lead_does("count once more");
    let summaries = summaries(&team);
    assert!(
        summaries.len() == 2 && !summaries[1].contains("Plans that wait"),
        "{summaries:#?}"
    );
    // Its next incarnation goes on with what is left, and its orders are carried out.
    team.kill_and_wait_for_restart("lead");
    let alice = team.pid("alice");
    team.lead_does("end alice now");
    team.wait_for("alice", "shutdown");
    team.until("the lead agent to be told", || {
        server.last().mentions("alice has ended")
    });
    assert!(!is_alive(alice) && server.last().mentions(CUT));
    assert_eq!(team.shutdown("lead", &[], 0)["outcome"], "shutdown");
}
