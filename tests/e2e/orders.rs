//! Orders, from outside: tasks that the daemon makes by itself, and no task twice.

use serde_json::{Value, json};

use crate::support::Team;

/// A team with these orders, which are trusted.
fn team_with(orders: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", orders);
    team.trust();
    team.teamd(["start"]).ok();
    team
}

/// Returns the tasks, each with the name of its order; none: a person made it.
fn tasks(team: &Team) -> Vec<Value> {
    let all = team.json(["task", "list", "--all"]);
    all.as_array().unwrap().clone()
}

fn of_order(team: &Team, order: &str) -> Vec<Value> {
    let all = tasks(team).into_iter();
    all.filter(|task| task["order"]["name"] == order).collect()
}

#[test]
fn an_order_is_claimed_and_done_and_a_killed_daemon_makes_nothing_twice() {
    let team = team_with(
        "[[order]]\nname = 'tick'\nevery = '1s'\nmost = 4\n\
         task = {subject = 'tick', check = 'test -e made', description = '/bash touch made'}\n",
    );
    team.teamctl(["spawn", "alice", "--auto"]).ok();
    team.until("the first to be done", || {
        tasks(&team).iter().any(|it| it["status"] == "completed")
    });
    for _ in 0..3 {
        team.kill_daemon();
        team.teamd(["start"]).ok();
    }
    team.until("as many as it may make to be done", || {
        let all = tasks(&team);
        all.len() == 4 && all.iter().all(|it| it["status"] == "completed")
    });
    let all = tasks(&team);
    let mut dues: Vec<f64> = all
        .iter()
        .map(|it| it["order"]["due"].as_f64().unwrap())
        .collect();
    dues.dedup();
    assert_eq!(dues.len(), 4, "{dues:?}");
    assert!(dues.is_sorted(), "{dues:?}");
    let first = &all[0];
    assert_eq!(
        (
            &first["created_by"],
            &first["check"]["set_by"],
            &first["result"]["verified"]
        ),
        (&json!("team.toml"), &json!("team.toml"), &json!("in place"))
    );
    let shown = team.json(["orders"]);
    assert_eq!(
        (
            &shown[0]["today"],
            &shown[0]["status"],
            &shown[0]["unclaimed"]
        ),
        (&json!(4), &json!("completed"), &json!(null))
    );
    // The next one may be made when the first is a day old.
    let made = first["created_at"].as_f64().unwrap();
    let next = shown[0]["next"].as_f64().unwrap();
    assert!(next >= made + 86_400.0, "{next}");
    let text = team.teamctl(["orders"]).ok().stdout;
    assert!(text.contains("4 of 4") && text.contains("tick"), "{text}");
    let events = team.teamctl(["events"]).ok().stdout;
    assert!(events.contains("created by the order tick"), "{events}");
}

#[test]
fn a_failed_task_makes_one_and_that_ones_failing_makes_none() {
    let team = team_with(
        "[[order]]\nname = 'mend'\non = 'task.failed'\n\
         task = {subject = 'find out why', check = 'false', max_attempts = 1}\n",
    );
    team.teamctl(["spawn", "alice", "--auto"]).ok();
    let add = [
        "task",
        "add",
        "break",
        "--check",
        "false",
        "--max-attempts",
        "1",
    ];
    team.teamctl(add).ok();
    team.until("the task of the order to fail", || {
        let of_order = of_order(&team, "mend");
        of_order.iter().any(|it| it["status"] == "failed")
    });
    let made = of_order(&team, "mend");
    let description = made[0]["description"].as_str().unwrap();
    assert_eq!(description, "Order mend: task 1 has failed.");
    // What was failed by a person is decided behind it: nothing came of the order's own task.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.teamctl(["task", "retry", "1"]).ok();
    team.until("the second task of the order to fail", || {
        let of_order = of_order(&team, "mend");
        of_order.len() == 2 && of_order.iter().all(|it| it["status"] == "failed")
    });
    assert_eq!(tasks(&team).len(), 3);
}

#[test]
fn an_untrusted_order_has_no_effect_and_a_wrong_one_is_an_error() {
    let team = Team::new();
    let order = "[[order]]\nname = 'a'\nevery = '1s'\ntask = {subject = 'x', check = 'true'}\n";
    team.write("team.toml", order);
    let refused = team.teamd(["start"]).exits(3);
    assert!(
        refused.stderr.contains("you have not trusted it")
            && refused.stderr.contains("\"every\":\"1s\""),
        "{}",
        refused.stderr
    );
    team.write("team.toml", "");
    team.teamd(["start"]).ok();
    team.write("team.toml", order);
    let shown = team.teamctl(["orders"]).ok();
    assert!(
        shown
            .stderr
            .contains("team.toml is not trusted: 1 key without effect"),
        "{}",
        shown.stderr
    );
    assert!(
        shown.stderr.contains("no order is in force"),
        "{}",
        shown.stderr
    );
    assert!(
        shown.stderr.contains("has other orders than those"),
        "{}",
        shown.stderr
    );
    assert_eq!(team.json(["orders"]), json!([]));
    // Trusted, it holds from the next start on; no teammate is there that may claim its tasks.
    team.trust();
    let started = team.teamd(["start", "--replace"]).ok();
    assert!(
        started.stderr.contains(
            "no running teammate may claim the tasks of the order a: no teammate with --auto runs"
        ),
        "{}",
        started.stderr
    );
    team.until("a task to be made", || !tasks(&team).is_empty());
    let shown = team.json(["orders"]);
    assert_eq!(
        (&shown[0]["name"], &shown[0]["status"], &shown[0]["next"]),
        (&json!("a"), &json!("pending"), &json!(null))
    );
    for (every, what) in [
        ("0 0 30 2 *", "never comes"),
        ("0 2 * * * *", "is not a line of cron"),
    ] {
        team.write("team.toml", &order.replace("1s", every));
        let wrong = team.teamd(["start"]).exits(2);
        assert!(wrong.stderr.contains(what), "{}", wrong.stderr);
    }
}
