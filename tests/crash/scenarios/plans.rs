//! Plans: a person approves, rejects, and asks for one.

use crate::stage::{Checked, Stage, Violation, hold};
use crate::support::Run;

const PLANNER: &str = "/plan_approval First do it\n/bash echo guarded >> effects";

/// Waits until a plan is pending, and returns its id.
fn planned(stage: &mut Stage, not: &[String]) -> Checked<String> {
    let pending = |stage: &Stage| {
        let plans = stage.team.requests("plan_approval");
        let plan = plans.iter().rfind(|plan| plan["status"] == "pending")?;
        let id = plan["request_id"].as_str()?.to_owned();
        (!not.contains(&id) && stage.status("alice") == "awaiting_approval").then_some(id)
    };
    for attempt in 0..3 {
        let settled = |stage: &Stage| {
            pending(stage).is_some() || stage.status("alice") == "idle" && stage.caught_up("alice")
        };
        stage.until("a plan", settled)?;
        if let Some(id) = pending(stage) {
            return Ok(id);
        }
        // It could not be submitted, and her model was told why: she is asked again.
        stage.send_plain(
            "alice",
            &format!("/plan_approval Again {attempt}\n/bash echo again.{attempt} >> effects"),
            &[],
        )?;
    }
    Err(Violation("no plan is ever submitted".to_owned()))
}

fn answer(stage: &mut Stage, id: &str, approve: bool) -> Checked {
    let word = if approve { "approve" } else { "reject" };
    let attempt = |stage: &mut Stage, _| -> Checked<Run> {
        let list = if approve { &mut stage.ledger.approved } else { &mut stage.ledger.rejected };
        list.push((id.to_owned(), false));
        let said = stage.main(&[word, id, "--feedback", "mind the tests"])?;
        let list = if approve { &mut stage.ledger.approved } else { &mut stage.ledger.rejected };
        if let Some(last) = list.last_mut() {
            last.1 = said.is_done();
        }
        Ok(said)
    };
    let expected = if approve { "approved" } else { "rejected" };
    let acknowledged = stage.achieve(word, attempt, |stage| stage.team.request(id)["status"] == expected)?;
    let status = stage.team.request(id)["status"].clone();
    hold(status == expected, || format!("{word} ended well ({acknowledged}), and the plan is {status}"))
}

fn spawned(stage: &mut Stage) -> Checked<String> {
    stage.start()?;
    stage.want("alice");
    stage.mark();
    let all = ["spawn", "alice", "--plan", "--prompt", PLANNER];
    let alive = |stage: &Stage| stage.is_running("alice");
    // The command that the scenario is about is the verdict.
    stage.achieve("spawn alice", |stage, _| stage.ctl(&all), alive)?;
    let id = planned(stage, &[])?;
    hold(!stage.team.made("effects"), || "the guarded command ran before the approval".to_owned())?;
    Ok(id)
}

/// A plan is approved, and carried out once.
pub(super) fn approve(stage: &mut Stage) -> Checked {
    let id = spawned(stage)?;
    answer(stage, &id, true)?;
    stage.until_read("alice")?;
    stage.until("her to be idle", |stage| stage.status("alice") == "idle")?;
    let gate = stage.member("alice")["gate"].clone();
    // Whoever ended for good begins again with a plan, also by `--resume`.
    hold(gate == "open" || stage.revived, || format!("after the approval the gate is {gate}"))
}

/// A plan is rejected, and nothing happens.
pub(super) fn refuse(stage: &mut Stage) -> Checked {
    let id = spawned(stage)?;
    answer(stage, &id, false)?;
    stage.until("her to be idle", |stage| stage.status("alice") == "idle")?;
    stage.send("alice", &|attempt| format!("/bash echo closed.{attempt} >> effects"), &[])?;
    stage.until_read("alice")?;
    hold(!stage.team.made("effects"), || "the guarded command ran without an approval".to_owned())?;
    let gate = stage.member("alice")["gate"].clone();
    hold(gate == "closed", || format!("after the rejection the gate is {gate}"))
}

/// A gate that is open is closed by a request for a plan, and opened by its approval.
pub(super) fn replan(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.achieve(
        "spawn alice",
        |stage, _| stage.ctl(&["spawn", "alice"]),
        |stage| stage.is_running("alice"),
    )?;
    stage.mark();
    let closed = |stage: &Stage| stage.member("alice")["gate"] == "closed";
    stage.achieve("ask for a plan", |stage, _| stage.main(&["request-plan", "alice", "how?"]), closed)?;
    hold(closed(stage), || "a plan was asked for, and the gate is open".to_owned())?;
    stage.send("alice", &|attempt| format!("/bash echo early{attempt} >> early"), &[])?;
    stage.until_read("alice")?;
    hold(!stage.team.made("early"), || "a closed gate let something through".to_owned())?;
    stage.send(
        "alice",
        &|attempt| format!("/plan_approval Plan {attempt}\n/bash echo late.{attempt} >> effects"),
        &[],
    )?;
    let id = planned(stage, &[])?;
    answer(stage, &id, true)?;
    stage.until_read("alice")
}
