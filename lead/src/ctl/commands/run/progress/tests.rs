use serde_json::{Value, json};
use teamd_shared::journal::{Line, TaskRecord};
use teamd_shared::task::{TaskEvent, TaskFields};

use super::*;
use crate::ctl::requests::tests::asked;

/// A member: its name, its status, and what else is to be said: `failed`, `mail` (it is not read yet), `manual` (it takes no task
/// by itself), `lead` (the lead agent answers its plan), `plan` (that waits).
type Given = (&'static str, &'static str, &'static str);

/// A task: its status, and what else is to be said: its owner, `for=WHOM`, `after=ID`.
type Set = (&'static str, &'static str);

fn line(team: &mut Team, record: &Value) {
    let mut line = json!({"seq": team.seq + 1, "at": 1.0, "done": 0});
    line.as_object_mut().unwrap().extend(record.as_object().unwrap().clone());
    team.apply(&serde_json::from_value::<Line>(line).unwrap()).unwrap();
}

fn enter(team: &mut Team, (name, status, more): Given) {
    let ended = ["crashed", "shutdown"].contains(&status);
    let approve_by = if more.contains("lead") { "lead" } else { "person" };
    let record = json!({"record": "member", "event": "spawned", "name": name, "role": "", "model": "script", "workspace": "/w",
        "plan": false, "approve_by": approve_by, "restart": "never", "auto": !more.contains("manual"), "incarnation": 1,
        "conversation": 1, "begins_at": {"offset": 0, "tail": "cbf29ce484222325"}, "phase": if ended { status } else { "running" },
        "gate": "open", "ending": null, "exit": null, "spawned_at": 1.0, "updated_at": 1.0});
    line(team, &record);
    if more.contains("plan") {
        let mut plan: Value = serde_json::from_str(&asked(1, "a1b2c3d4", "plan_approval")).unwrap();
        plan.as_object_mut().unwrap().retain(|key, _| !["seq", "at", "done"].contains(&key.as_str()));
        plan["from"] = json!(name);
        line(team, &plan);
    }
}

fn add(team: &mut Team, id: TaskId, (status, more): Set) {
    let fields = TaskFields { subject: Some("x".to_owned()), ..TaskFields::default() };
    let mut task = fields.create(id, "user", 1.0).unwrap();
    task.status = serde_json::from_value(json!(status)).unwrap();
    for word in more.split_whitespace() {
        match word.split_once('=') {
            Some(("for", whom)) => task.reserved_for = Some(whom.to_owned()),
            Some((_, before)) => task.blocked_by.extend([before.parse::<TaskId>().unwrap()]),
            None => task.owner = Some(Name::new(word).unwrap()),
        }
    }
    let mut record = json!(TaskRecord::of(TaskEvent::Created, task, "user"));
    record["record"] = json!("task");
    line(team, &record);
}

/// How far a run is whose scope is every task; with `goal` the lead agent was given one.
fn progress(members: &[Given], tasks: &[Set], goal: bool) -> String {
    let mut team = Team::default();
    members.iter().for_each(|member| enter(&mut team, *member));
    (1..).zip(tasks).for_each(|(id, task)| add(&mut team, id, *task));
    let roster: Vec<(RosterMember, bool)> = members
        .iter()
        .map(|(name, status, more)| {
            let reason = if more.contains("failed") { "failed" } else { "available" };
            let member = json!({"name": name, "status": status, "gate": "open", "idle_reason": reason});
            (serde_json::from_value(member).unwrap(), !more.contains("mail"))
        })
        .collect();
    let seats: Vec<Seat<'_>> = roster.iter().map(|(member, rests)| Seat { member, rests: *rests }).collect();
    let scope = Scope { open: BTreeSet::new(), since: 1 };
    let seen = Seen { team: &team, seats: &seats, scope: &scope, has_goal: goal };
    match seen.progress() {
        Progress::GoesOn(Wait::Mail) => "mail".to_owned(),
        Progress::GoesOn(Wait::Offer) => "offer".to_owned(),
        Progress::GoesOn(Wait::Work) => "goes on".to_owned(),
        Progress::Over if seen.obstacles().is_empty() => "over".to_owned(),
        Progress::Over => seen
            .obstacles()
            .iter()
            .map(|it| {
                let ids: String = it.requests.iter().map(|id| format!(" [{id}]")).collect();
                format!("{}: {}{ids}", it.task.map_or("goal".to_owned(), |id| id.to_string()), it.why)
            })
            .collect::<Vec<_>>()
            .join(" | "),
    }
}

#[test]
fn a_run_goes_on_while_a_member_or_the_daemon_has_something_to_do() {
    let (idle, busy) = (("bob", "idle", ""), ("amy", "idle", ""));
    for (members, tasks, expected) in [
        // A member works, starts, leaves, or has mail to read.
        (vec![("bob", "working", "")], vec![("in_progress", "bob")], "goes on"),
        (vec![("bob", "starting", "")], vec![("pending", "for=zoe")], "goes on"),
        (vec![("bob", "shutting_down", "")], vec![("pending", "for=zoe")], "goes on"),
        (vec![("bob", "idle", "mail")], vec![("in_progress", "bob")], "mail"),
        (vec![("bob", "idle", "mail"), ("amy", "working", "")], vec![("in_progress", "bob")], "goes on"),
        // Its plan is answered, and the roster does not say so yet.
        (vec![("bob", "awaiting_approval", "")], vec![("in_progress", "bob")], "mail"),
        // A check runs, also if its author is gone.
        (vec![idle], vec![("in_review", "bob")], "goes on"),
        (vec![("bob", "crashed", "")], vec![("in_review", "")], "goes on"),
        // The daemon gives an idle member its next task.
        (vec![idle], vec![("pending", "")], "offer"),
        (vec![idle], vec![("failed", ""), ("pending", "after=1"), ("pending", "for=bob")], "offer"),
        (
            vec![("amy", "awaiting_approval", "plan"), idle],
            vec![("in_progress", "amy"), ("pending", "")],
            "offer",
        ),
        // One of them alone suffices.
        (vec![idle, busy], vec![("in_progress", "bob"), ("pending", "")], "offer"),
    ] {
        assert_eq!(progress(&members, &tasks, false), expected, "{members:?} {tasks:?}");
    }
}

#[test]
fn what_is_stuck_is_told_with_the_reason() {
    for (members, tasks, expected) in [
        (vec![], vec![("pending", "")], "1: there is no teammate"),
        (
            vec![("bob", "idle", "")],
            vec![("pending", "for=zoe")],
            "1: it is for zoe, and there is no such teammate",
        ),
        (vec![("bob", "crashed", "")], vec![("pending", "")], "1: bob has ended (crashed)"),
        (vec![("bob", "idle", "failed")], vec![("pending", "")], "1: bob could not go on: failed"),
        (vec![("bob", "idle", "failed")], vec![("in_progress", "bob")], "1: bob could not go on: failed"),
        (
            vec![("bob", "idle", "manual")],
            vec![("pending", "")],
            "1: bob is idle, and takes no task by itself (--auto)",
        ),
        (
            vec![("bob", "idle", "")],
            vec![("failed", ""), ("pending", "after=1")],
            "2: it is blocked by 1 (failed)",
        ),
        (
            vec![("bob", "idle", "")],
            vec![("cancelled", ""), ("pending", "after=1"), ("pending", "after=2")],
            "2: it is blocked by 1 (cancelled) | 3: it is blocked by 2 (pending)",
        ),
        (
            vec![("bob", "awaiting_approval", "plan")],
            vec![("in_progress", "bob")],
            "1: the plan a1b2c3d4 of bob waits for a person [a1b2c3d4]",
        ),
        (
            vec![("bob", "awaiting_approval", "plan")],
            vec![("pending", "")],
            "1: the plan a1b2c3d4 of bob waits for a person [a1b2c3d4]",
        ),
        (
            vec![("bob", "awaiting_approval", "plan lead"), ("lead", "idle", "")],
            vec![("in_progress", "bob")],
            "1: the plan a1b2c3d4 of bob waits for the lead agent [a1b2c3d4]",
        ),
        (
            vec![
                ("bob", "idle", "failed"),
                ("amy", "shutdown", ""),
                ("cy", "crashed", ""),
                ("di", "crashed", ""),
            ],
            vec![("pending", "")],
            "1: amy has ended (shutdown); bob could not go on: failed; cy has ended (crashed); and 1 more",
        ),
        (vec![("bob", "idle", "")], vec![("in_progress", "bob")], "1: bob is idle"),
    ] {
        assert_eq!(progress(&members, &tasks, false), expected, "{members:?} {tasks:?}");
    }
}

#[test]
fn a_run_is_over_when_nothing_is_left_and_the_lead_agent_rests() {
    let done = vec![("completed", ""), ("failed", ""), ("cancelled", "")];
    for (members, tasks, goal, expected) in [
        (vec![("bob", "idle", "")], done.clone(), false, "over"),
        // What a teammate still says changes no task.
        (vec![("bob", "working", "")], done.clone(), false, "over"),
        (vec![("lead", "idle", "")], done.clone(), true, "over"),
        (vec![("lead", "working", "")], done.clone(), false, "goes on"),
        (vec![("lead", "idle", ""), ("bob", "working", "")], vec![], true, "goes on"),
        (vec![("lead", "idle", "mail")], done.clone(), true, "mail"),
        (vec![("lead", "idle", "mail")], vec![], true, "mail"),
        (vec![("lead", "idle", "")], vec![], true, "goal: the lead agent has made no task of the goal"),
        (vec![("lead", "idle", "failed")], done.clone(), true, "goal: lead could not go on: failed"),
        (vec![("lead", "crashed", "")], done.clone(), true, "goal: lead has ended (crashed)"),
        (vec![], done.clone(), true, "goal: lead is not running"),
    ] {
        assert_eq!(progress(&members, &tasks, goal), expected, "{members:?} {tasks:?}");
    }
}
