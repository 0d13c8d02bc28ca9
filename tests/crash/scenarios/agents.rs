//! A teammate whose mind is an agent of others: a stub of Claude Code does what its messages say.

use super::plans::{answer, planned};
use crate::stage::{Checked, Stage, Victim, hold};

/// From its start to its end: messages, a plan, an open and again a closed gate, an end.
pub(super) fn agents(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.bring_an_agent()?;
    stage.want("alice");
    stage.mark();
    stage.spawn("alice", &["--agent", "claude", "--plan"])?;
    closed(stage, "early")?;
    submit(stage, "first")?;
    let id = planned(stage)?;
    answer(stage, id, true)?;
    open(stage, "done")?;
    stage.achieve(
        "ask for a plan",
        |stage, _| {
            stage.revive()?;
            stage.main(&["request-plan", "alice", "how?"])
        },
        |stage| stage.member("alice")["gate"] == "closed",
    )?;
    closed(stage, "late")?;
    stage.until_read("alice")?;
    stage.unwant("alice");
    stage.ledger.asked_to_leave.push("alice".to_owned());
    stage.achieve(
        "shut her down",
        |stage, _| stage.main(&["shutdown", "alice"]),
        |stage| stage.has_ended("alice"),
    )?;
    stage.until("her end", |stage| stage.has_ended("alice"))
}

/// What a closed gate refuses leaves no trace.
fn closed(stage: &mut Stage, name: &str) -> Checked {
    stage.send(
        "alice",
        &|attempt| format!("$ echo {attempt} >> {name}\nsay closed {name}"),
        &[],
    )?;
    stage.until_read("alice")?;
    hold(!stage.team.made(name), || {
        format!("a closed gate let {name} through")
    })
}

/// What an open gate lets through does; a tool of the team, too.
fn open(stage: &mut Stage, name: &str) -> Checked {
    for number in 1..=2 {
        let order = |attempt| {
            format!(
                "$ echo {name}.{number}.{attempt} >> effects\n@task_list\nsay open {number}.{attempt}"
            )
        };
        stage.send("alice", &order, &[])?;
    }
    stage.until_read("alice")?;
    // A call that a kill has broken off is not made again.
    let must = stage.is_victim(Victim::Daemon);
    let did = |number| {
        stage
            .team
            .text("effects")
            .contains(&format!("{name}.{number}."))
    };
    hold(
        !must || stage.kills_the_worker() || stage.revived || did(1) && did(2),
        || "an open gate let nothing through".to_owned(),
    )
}

fn submit(stage: &mut Stage, name: &str) -> Checked {
    let order = |attempt| format!("@plan_approval {{\"plan\": \"{name}.{attempt}\"}}");
    stage.send("alice", &order, &[])
}
