//! Plans: a person approves, rejects, and asks for one.

use std::cell::RefCell;
use std::time::Duration;

use crate::invariants::processes;
use crate::stage::{Checked, Stage, Victim, Violation, hold};
use crate::support::Run;

const PLANNER: &str = "/plan_approval First do it\n/bash echo guarded >> effects";

/// Waits until a plan is pending, and returns its id.
pub(super) fn planned(stage: &mut Stage) -> Checked<String> {
    for attempt in 0..3 {
        if let Some(id) = plan_or_rest(stage)? {
            return Ok(id);
        }
        // It could not be submitted, and her model was told why: she is asked again.
        stage.send_plain(
            "alice",
            &format!("/plan_approval Again {attempt}\n/bash echo again.{attempt} >> effects\n@plan_approval {{\"plan\": \"Again {attempt}\"}}"),
            &[],
        )?;
    }
    Err(Violation("no plan is ever submitted".to_owned()))
}

/// Waits until a plan is pending, or nothing is left that she could submit one for.
fn plan_or_rest(stage: &mut Stage) -> Checked<Option<String>> {
    let pending = |stage: &Stage| {
        let plans = stage.team.requests("plan_approval");
        let plan = plans.iter().rfind(|plan| plan["status"] == "pending")?;
        (stage.status("alice") == "awaiting_approval")
            .then(|| plan["request_id"].as_str().map(str::to_owned))?
    };
    stage.until("a plan", |stage| {
        pending(stage).is_some() || stage.status("alice") == "idle" && stage.caught_up("alice")
    })?;
    Ok(pending(stage))
}

/// Approves or rejects a plan; the one that took its place, if its author has ended for good
/// meanwhile.
pub(super) fn answer(stage: &mut Stage, id: String, approve: bool) -> Checked {
    let (word, expected) = if approve {
        ("approve", "approved")
    } else {
        ("reject", "rejected")
    };
    let id = RefCell::new(id);
    let status = |stage: &Stage| stage.team.request(&id.borrow())["status"].clone();
    let acknowledged = stage.achieve(
        word,
        |stage, _| -> Checked<Run> {
            stage.revive()?;
            let mut id = id.borrow_mut();
            if stage.team.request(&id)["status"] == "expired" {
                *id = planned(stage)?;
            }
            let list = if approve {
                &mut stage.ledger.approved
            } else {
                &mut stage.ledger.rejected
            };
            list.push((id.clone(), false));
            let said = stage.main(&[word, &id, "--feedback", "mind the tests"])?;
            let list = if approve {
                &mut stage.ledger.approved
            } else {
                &mut stage.ledger.rejected
            };
            if let Some(last) = list.last_mut() {
                last.1 = said.is_done();
            }
            Ok(said)
        },
        |stage| status(stage) == expected,
    )?;
    let status = status(stage);
    hold(status == expected, || {
        format!("{word} ended well ({acknowledged}), and the plan is {status}")
    })
}

fn spawned(stage: &mut Stage) -> Checked<String> {
    stage.start()?;
    stage.want("alice");
    stage.mark();
    let all = ["spawn", "alice", "--plan", "--prompt", PLANNER];
    // The command that the scenario is about is the verdict.
    stage.achieve(
        "spawn alice",
        |stage, _| stage.ctl(&all),
        |stage| stage.is_running("alice"),
    )?;
    let id = planned(stage)?;
    hold(!stage.team.made("effects"), || {
        "the guarded command ran before the approval".to_owned()
    })?;
    Ok(id)
}

/// A plan is approved, and carried out once.
pub(super) fn approve(stage: &mut Stage) -> Checked {
    let id = spawned(stage)?;
    answer(stage, id, true)?;
    stage.until_read("alice")?;
    stage.until("her to be idle", |stage| stage.status("alice") == "idle")?;
    let gate = stage.member("alice")["gate"].clone();
    // A teammate that ended for good begins again with a plan, also by `--resume`.
    hold(gate == "open" || stage.revived, || {
        format!("after the approval the gate is {gate}")
    })
}

/// A plan is rejected, and nothing happens.
pub(super) fn refuse(stage: &mut Stage) -> Checked {
    let id = spawned(stage)?;
    answer(stage, id, false)?;
    stage.until("her to be idle", |stage| stage.status("alice") == "idle")?;
    stage.send(
        "alice",
        &|attempt| format!("/bash echo closed.{attempt} >> effects"),
        &[],
    )?;
    stage.until_read("alice")?;
    hold(!stage.team.made("effects"), || {
        "the guarded command ran without an approval".to_owned()
    })?;
    let gate = stage.member("alice")["gate"].clone();
    hold(gate == "closed", || {
        format!("after the rejection the gate is {gate}")
    })
}

/// A gate that is open is closed by a request for a plan, and opened by its approval.
pub(super) fn replan(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    let ticks = [
        "spawn",
        "alice",
        "--prompt",
        "/bash {\"command\": \"while :; do echo >> ticks; sleep 0.02; done\", \"run_in_background\": true}",
    ];
    stage.achieve(
        "spawn alice",
        |stage, _| stage.ctl(&ticks),
        |stage| stage.is_running("alice"),
    )?;
    stage.until("her to tick", |stage| stage.team.made("ticks"))?;
    // A command that says that the gate is closed has waited for her, and for what she runs.
    if stage.is_victim(Victim::Daemon) {
        stage.stop_her_until("gate_closed", Duration::from_millis(100));
    } else if stage.is_victim(Victim::Ctl) {
        stage.hold_her_shim_until("gate_closed", Duration::from_millis(100))?;
    }
    stage.mark();
    let closed = |stage: &Stage| stage.member("alice")["gate"] == "closed";
    let attempt = |stage: &mut Stage, _| {
        stage.revive()?;
        let said = stage.main(&["request-plan", "alice", "how?"])?;
        let left = processes::of_command(stage, "ticks");
        hold(!said.is_done() || left.is_empty(), || {
            format!("the gate is closed, and still runs {left:?}")
        })?;
        Ok(said)
    };
    stage.achieve("ask for a plan", attempt, closed)?;
    hold(closed(stage), || {
        "a plan was asked for, and the gate is open".to_owned()
    })?;
    stage.send(
        "alice",
        &|attempt| format!("/bash echo early{attempt} >> early"),
        &[],
    )?;
    stage.until_read("alice")?;
    hold(!stage.team.made("early"), || {
        "a closed gate let something through".to_owned()
    })?;
    stage.send(
        "alice",
        &|attempt| format!("/plan_approval Plan {attempt}\n/bash echo late.{attempt} >> effects"),
        &[],
    )?;
    let id = planned(stage)?;
    answer(stage, id, true)?;
    // A message that was said not to be read may be read by the next incarnation: that is a plan
    // more.
    while let Some(id) = plan_or_rest(stage)? {
        answer(stage, id, true)?;
    }
    stage.until_read("alice")
}
