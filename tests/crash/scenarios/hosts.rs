//! A teammate on another machine: its whole life over a link that lasts, and what is done while
//! there is none.

use teamd_shared::task::{TaskId, TaskStatus};

use super::plans::{answer, planned};
use super::work::{commits, complete_a_task, repository};
use crate::stage::{BOX, Checked, Stage, Violation, hold};

/// How often the user says again what to do.
const ORDERS: usize = 6;

/// Spawns alice on the host, who submits a plan at once. What she does lies where she works: that
/// is the same directory here.
fn spawned(stage: &mut Stage) -> Checked {
    let work = stage.team.root().display().to_string();
    let prompt = "/plan_approval First do it\n/bash echo guarded >> effects";
    let all = [
        "spawn",
        "alice",
        "--host",
        BOX,
        "--workspace",
        &work,
        "--plan",
        "--prompt",
        prompt,
    ];
    let before = stage.incarnation("alice");
    stage.achieve(
        "spawn alice on the host",
        |stage, _| {
            stage.until_reached()?;
            stage.main(&all)
        },
        |stage| stage.incarnation("alice") > before && stage.is_running("alice"),
    )?;
    hold(stage.member("alice")["host"] == BOX, || {
        format!("she is not on the host: {}", stage.member("alice"))
    })
}

fn begin(stage: &mut Stage) -> Checked {
    stage.bring_a_host();
    stage.lives_on_the_host("alice");
    stage.start()
}

fn bob(stage: &mut Stage) -> Checked {
    stage.want("bob");
    stage
        .achieve(
            "spawn bob",
            |stage, _| stage.ctl(&["spawn", "bob"]),
            |stage| stage.is_running("bob"),
        )
        .map(drop)
}

/// From the first contact to the end of its life: a plan, mail both ways, a gate that closes, a
/// shutdown.
pub(super) fn hosts(stage: &mut Stage) -> Checked {
    begin(stage)?;
    stage.mark();
    stage.add_the_host()?;
    bob(stage)?;
    stage.want("alice");
    spawned(stage)?;
    let id = planned(stage)?;
    hold(!stage.team.made("effects"), || {
        "the guarded command ran before the approval".to_owned()
    })?;
    answer(stage, id, true)?;
    for number in 1..=2 {
        let out = |attempt| {
            format!(
                "/bash echo out.{number}.{attempt} >> effects\n/send_message bob from there {number}.{attempt}"
            )
        };
        stage.send("alice", &out, &[])?;
        let back = |attempt| format!("/send_message alice from here {number}.{attempt}");
        stage.send("bob", &back, &[])?;
    }
    stage.until_read("alice")?;
    stage.until_read("bob")?;
    ask_for_a_plan(stage)?;
    stage.until_read("alice")?;
    leave(stage, "alice")
}

fn ask_for_a_plan(stage: &mut Stage) -> Checked {
    stage
        .achieve(
            "ask for a plan",
            |stage, _| {
                stage.revive()?;
                stage.until_reached()?;
                stage.main(&["request-plan", "alice", "how?"])
            },
            |stage| stage.member("alice")["gate"] == "closed",
        )
        .map(drop)
}

fn leave(stage: &mut Stage, name: &str) -> Checked {
    stage.unwant(name);
    stage.ledger.asked_to_leave.push(name.to_owned());
    stage.achieve(
        "shut it down",
        |stage, _| stage.main(&["shutdown", name]),
        |stage| stage.has_ended(name),
    )?;
    stage.until("its end", |stage| stage.has_ended(name))
}

/// What is done while there is no link is done once when there is one again.
pub(super) fn cut(stage: &mut Stage) -> Checked {
    begin(stage)?;
    stage.add_the_host()?;
    bob(stage)?;
    stage.want("alice");
    spawned(stage)?;
    let id = planned(stage)?;
    stage.mark();
    stage.cut()?;
    answer(stage, id, true)?;
    for number in 1..=2 {
        let text = |attempt| format!("/bash echo cut.{number}.{attempt} >> effects");
        stage.send("alice", &text, &[])?;
    }
    // Home restarts while mail is stored.
    stage.kill_daemon();
    stage.ensure_daemon()?;
    let back = |attempt| format!("/send_message alice from here {attempt}");
    stage.send("bob", &back, &[])?;
    stage.until_read("bob")?;
    stage.mend()?;
    stage.until_read("alice")?;
    stage.cut()?;
    let last = |attempt| format!("/bash echo last.{attempt} >> effects");
    stage.send("alice", &last, &[])?;
    stage.unwant("alice");
    stage.ledger.asked_to_leave.push("alice".to_owned());
    let asked = stage.main(&["shutdown", "alice", "--timeout", "200ms"])?;
    hold(asked.code != Some(0), || {
        format!("she was shut down without a link: {asked:?}")
    })?;
    hold(!stage.has_ended("alice"), || {
        "she was ended without a link".to_owned()
    })?;
    stage.mend()?;
    leave(stage, "alice")
}

/// Tasks of teammates with checkouts there: one that is offered, and one that is claimed and
/// submitted with a call of its own. Branches, commits and answers cross the link.
pub(super) fn work(stage: &mut Stage) -> Checked {
    repository(stage)?;
    begin(stage)?;
    stage.lives_on_the_host("bob");
    stage.add_the_host()?;
    for (name, more) in [("alice", Some("--auto")), ("bob", None)] {
        stage.want(name);
        let args: Vec<&str> = ["--host", BOX, "--checkout"]
            .into_iter()
            .chain(more)
            .collect();
        stage.until_reached()?;
        stage.spawn(name, &args)?;
    }
    complete_a_task(stage, commits)?;
    claims(stage)?;
    leave(stage, "alice")?;
    leave(stage, "bob")
}

/// Bob claims a task, commits, and submits it, as often as he is told to: what he was refused he
/// does not try again by himself.
fn claims(stage: &mut Stage) -> Checked {
    let mut made = String::new();
    stage.achieve(
        "make a task for bob",
        |stage, _| {
            let words = [
                "task",
                "add",
                "his",
                "--for",
                "bob",
                "--check",
                "test -e made",
            ];
            let said = stage.main(&words)?;
            made.clone_from(&said.stdout);
            Ok(said)
        },
        |_| false,
    )?;
    let id: TaskId = made
        .trim()
        .parse()
        .map_err(|error| Violation(format!("{made:?} is no task: {error}")))?;
    for order in 1..=ORDERS {
        if order == 4 {
            stage.tracer.unmark();
        }
        let orders = |attempt| {
            let work = commits(100 * order + attempt);
            format!(
                "/claim_task {{\"task_id\": {id}}}\n/bash {work}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"
            )
        };
        stage.send("bob", &orders, &[])?;
        stage.until_read("bob")?;
        stage.until("the check to be over", |stage| {
            let status = stage.fold().ok().and_then(|team| team.task_status(id));
            status.is_some_and(|status| status != TaskStatus::InReview)
        })?;
        let team = stage.fold()?;
        if team.task_status(id) == Some(TaskStatus::Completed) {
            return Ok(());
        }
    }
    Err(Violation("bob cannot do his task".to_owned()))
}
