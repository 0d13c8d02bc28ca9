use serde_json::{Value, json};
use teamd_shared::control::WorkerState;
use teamd_shared::journal::{Line, TaskRecord};
use teamd_shared::task::{TaskEvent, TaskFields};
use teamd_shared::testing::journal_member;

use super::*;
use crate::core::event::Event;
use crate::core::job::Then;

/// A member: its name, its status, and what else is to be said: `failed`, `mail` (it is not read
/// yet), `manual` (it takes no task by itself), `lead` (the lead agent answers its plan), `plan`
/// (that waits), `refused` and `left` (no branch can be begun in its checkout, once or for good),
/// `leaves` (it is asked to).
type Given = (&'static str, &'static str, &'static str);

/// A task: its status, and what else is to be said: its owner, `for=WHOM`, `after=ID`, `review=WHO`
/// (must approve it), `tries=N` (so often its check could not be run).
type Set = (&'static str, &'static str);

fn line(team: &mut Team, record: &Value) {
    let mut line = json!({"seq": team.seq + 1, "at": 1.0, "done": 0});
    line.as_object_mut()
        .unwrap()
        .extend(record.as_object().unwrap().clone());
    team.apply(&serde_json::from_value::<Line>(line).unwrap())
        .unwrap();
}

fn request(team: &mut Team, (id, kind): (&str, &str), from: &str, payload: Value) {
    let (from, to) = if kind == "shutdown" {
        ("lead", from)
    } else {
        (from, "lead")
    };
    let record = json!({"record": "request", "event": "asked", "request_id": id, "kind": kind, "from": from, "to": to,
        "status": "pending", "payload": payload, "incarnation": 1, "message_id": "018f0000-0000-7000-8000-000000000000",
        "created_at": 1.0, "resolved_at": null, "reason": null});
    line(team, &record);
}

fn fails(runtime: &mut Runtime, then: Then, why: &str) {
    let job = runtime.jobs.begin(then).unwrap();
    runtime.job_ended(&Team::default(), job, &Err(why.to_owned()));
}

fn enter(team: &mut Team, runtime: &mut Runtime, (name, status, more): Given) {
    let ended = ["crashed", "shutdown"].contains(&status);
    let approve_by = if more.contains("lead") {
        "lead"
    } else {
        "person"
    };
    let phase = if ended { status } else { "running" };
    let record = journal_member(
        &json!({"record": "member", "event": "spawned", "name": name, "approve_by": approve_by,
            "auto": !more.contains("manual"), "phase": phase}),
    );
    line(team, &record);
    if more.contains("plan") {
        request(
            team,
            ("a1b2c3d4", "plan_approval"),
            name,
            json!({"plan": "Drop the cache."}),
        );
    }
    if more.contains("leaves") {
        let payload = json!({"reason": "done", "decide_within": 30.0, "force_after": null});
        request(team, ("a1b2c3d5", "shutdown"), name, payload);
    }
    if ended {
        return;
    }
    let name = Name::of_inbox(name).unwrap();
    let incarnation = Incarnation {
        name: name.clone(),
        number: 1,
    };
    let idle_reason = more.contains("failed").then_some(IdleReason::Failed);
    let state = WorkerState {
        doing: serde_json::from_value(json!(status)).unwrap(),
        idle_reason,
        ..WorkerState::default()
    };
    runtime.apply(
        team,
        &Event::Connected {
            incarnation: incarnation.clone(),
            environment: None,
            state,
        },
    );
    runtime.record_unread(&incarnation, more.contains("mail"));
    let refusals = if more.contains("left") {
        MOST_REFUSALS
    } else {
        more.contains("refused").into()
    };
    for task in 1..=refusals {
        let incarnation = incarnation.clone();
        let offer = Then::Offer { incarnation, task };
        fails(runtime, offer, "a.txt is not committed");
    }
}

fn add(team: &mut Team, runtime: &mut Runtime, id: TaskId, (status, more): Set) {
    let fields = TaskFields {
        subject: Some("x".to_owned()),
        ..TaskFields::default()
    };
    let mut task = json!(fields.create(id, "user", 1.0).unwrap());
    task["status"] = json!(status);
    let mut stage = json!({"number": 1, "by": "bob", "summary": "", "checks": [], "commit": null, "merged": null,
        "approved": false, "stage": "checking"});
    for word in more.split_whitespace() {
        match word.split_once('=') {
            Some(("for", whom)) => task["for"] = json!(whom),
            Some(("review", by)) => {
                let review = json!({"task": id, "submission": 1, "subject": "x", "summary": "", "by": by,
                });
                request(team, ("b1b2c3d4", "review"), "bob", review);
                stage["stage"] = json!("reviewing");
                stage["request_id"] = json!("b1b2c3d4");
            }
            Some(("tries", times)) => {
                task["stalled"] = json!("no space");
                for _ in 0..times.parse::<u32>().unwrap() {
                    let check = Then::Check {
                        task: id,
                        number: 1,
                        host: None,
                    };
                    fails(runtime, check, "no space");
                }
            }
            Some((_, before)) => task["blocked_by"] = json!([before.parse::<TaskId>().unwrap()]),
            None => task["owner"] = json!(word),
        }
    }
    if status == "in_review" {
        task["submission"] = stage;
    }
    let mut record = json!(TaskRecord::of(
        TaskEvent::Created,
        serde_json::from_value(task).unwrap(),
        "user"
    ));
    record["record"] = json!("task");
    line(team, &record);
}

/// What holds up the tasks, `moves` if nothing does; with `goal` the lead agent was given one.
fn told(members: &[Given], tasks: &[Set], goal: bool) -> String {
    let mut team = Team::default();
    let mut runtime = Runtime::default();
    for member in members.iter() {
        enter(&mut team, &mut runtime, *member);
    }
    for (id, task) in (1..).zip(tasks) {
        add(&mut team, &mut runtime, id, *task);
    }
    let Some(obstacles) = obstacles(&team, &runtime, goal.then_some(1)) else {
        return "moves".to_owned();
    };
    let each = obstacles.iter().map(|it| {
        let ids: String = it.requests.iter().map(|id| format!(" [{id}]")).collect();
        format!(
            "{}: {}{ids}",
            it.task.map_or("goal".to_owned(), |id| id.to_string()),
            it.why
        )
    });
    each.collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_team_moves_while_a_member_or_the_daemon_has_something_to_do() {
    let idle = ("bob", "idle", "");
    let busy = ("amy", "idle", "");
    for (members, tasks) in [
        // A member works, starts, leaves, or has mail to read.
        (vec![("bob", "working", "")], vec![("in_progress", "bob")]),
        (vec![("bob", "starting", "")], vec![("pending", "for=zoe")]),
        (
            vec![("bob", "idle", "leaves")],
            vec![("pending", "for=zoe")],
        ),
        (vec![("bob", "idle", "mail")], vec![("in_progress", "bob")]),
        (vec![("bob", "idle", "refused mail")], vec![("pending", "")]),
        // A check runs, also if its author is gone, or could not run just now.
        (vec![idle], vec![("in_review", "bob")]),
        (vec![("bob", "crashed", "")], vec![("in_review", "")]),
        (vec![idle], vec![("in_review", "bob tries=5")]),
        // The daemon gives an idle member its next task.
        (vec![idle], vec![("pending", "")]),
        (
            vec![idle],
            vec![
                ("failed", ""),
                ("pending", "after=1"),
                ("pending", "for=bob"),
            ],
        ),
        (
            vec![("amy", "idle", "plan"), idle],
            vec![("in_progress", "amy"), ("pending", "")],
        ),
        // One of them alone suffices.
        (
            vec![idle, busy],
            vec![("in_progress", "bob"), ("pending", "")],
        ),
    ] {
        assert_eq!(
            told(&members, &tasks, false),
            "moves",
            "{members:?} {tasks:?}"
        );
    }
}

#[test]
fn what_is_stuck_is_told_with_the_reason() {
    for (members, tasks, expected) in [
        (vec![], vec![("pending", "")], "1: there is no teammate"),
        (
            vec![("bob", "idle", "")],
            vec![("pending", "for=zoe")],
            "1: it is reserved for zoe, but no such teammate exists",
        ),
        (
            vec![("bob", "crashed", "")],
            vec![("pending", "")],
            "1: bob has ended (crashed)",
        ),
        (
            vec![("bob", "idle", "failed")],
            vec![("pending", "")],
            "1: bob could not continue: failed",
        ),
        (
            vec![("bob", "idle", "failed")],
            vec![("in_progress", "bob")],
            "1: bob could not continue: failed",
        ),
        (
            vec![("bob", "idle", "manual")],
            vec![("pending", "")],
            "1: bob is idle, and takes no task by itself (--auto)",
        ),
        (
            vec![("bob", "idle", "left")],
            vec![("pending", "")],
            "1: bob cannot be given a task: a.txt is not committed",
        ),
        (
            vec![("bob", "idle", "")],
            vec![("failed", ""), ("pending", "after=1")],
            "2: it is blocked by 1 (failed)",
        ),
        (
            vec![("bob", "idle", "")],
            vec![
                ("cancelled", ""),
                ("pending", "after=1"),
                ("pending", "after=2"),
            ],
            "2: it is blocked by 1 (cancelled) | 3: it is blocked by 2 (pending)",
        ),
        (
            vec![("bob", "idle", "plan")],
            vec![("in_progress", "bob")],
            "1: the plan a1b2c3d4 of bob waits for a person [a1b2c3d4]",
        ),
        (
            vec![("bob", "idle", "plan")],
            vec![("pending", "")],
            "1: the plan a1b2c3d4 of bob waits for a person [a1b2c3d4]",
        ),
        (
            vec![("bob", "idle", "plan lead"), ("lead", "idle", "")],
            vec![("in_progress", "bob")],
            "1: the plan a1b2c3d4 of bob waits for the lead agent [a1b2c3d4]",
        ),
        (
            vec![("bob", "idle", "")],
            vec![("in_review", "bob review=person"), ("pending", "")],
            "1: the review b1b2c3d4 of bob waits for a person [b1b2c3d4] | 2: bob holds task 1",
        ),
        (
            vec![("bob", "idle", "")],
            vec![("in_review", "bob tries=6")],
            "1: its check cannot be run: no space",
        ),
        (
            vec![
                ("bob", "idle", "failed"),
                ("amy", "shutdown", ""),
                ("cy", "crashed", ""),
                ("di", "crashed", ""),
            ],
            vec![("pending", "")],
            "1: amy has ended (shutdown); bob could not continue: failed; cy has ended (crashed); and 1 more",
        ),
        (
            vec![("bob", "idle", "")],
            vec![("in_progress", "bob")],
            "1: bob is idle and has not submitted it",
        ),
    ] {
        assert_eq!(
            told(&members, &tasks, false),
            expected,
            "{members:?} {tasks:?}"
        );
    }
}

#[test]
fn nothing_is_left_to_do_when_the_tasks_are_finished_and_the_lead_agent_rests() {
    let done = vec![("completed", ""), ("failed", ""), ("cancelled", "")];
    for (members, tasks, goal, expected) in [
        (vec![("bob", "idle", "")], done.clone(), false, ""),
        // What a teammate still says changes no task.
        (vec![("bob", "working", "")], done.clone(), false, ""),
        (vec![("lead", "idle", "")], done.clone(), true, ""),
        (vec![("lead", "working", "")], done.clone(), false, "moves"),
        (
            vec![("lead", "idle", ""), ("bob", "working", "")],
            vec![],
            true,
            "moves",
        ),
        (vec![("lead", "idle", "mail")], done.clone(), true, "moves"),
        (vec![("lead", "idle", "mail")], vec![], true, "moves"),
        (
            vec![("lead", "idle", "")],
            vec![],
            true,
            "goal: the lead agent has created no tasks for the goal",
        ),
        (
            vec![("lead", "idle", "failed")],
            done.clone(),
            true,
            "goal: lead could not continue: failed",
        ),
        (
            vec![("lead", "crashed", "")],
            done.clone(),
            true,
            "goal: lead has ended (crashed)",
        ),
        (vec![], done.clone(), true, "goal: lead is not running"),
    ] {
        assert_eq!(
            told(&members, &tasks, goal),
            expected,
            "{members:?} {tasks:?}"
        );
    }
}
