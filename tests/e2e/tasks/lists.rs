//! Lists of tasks: what a teammate gets of them, and what is none.

use serde_json::{Value, json};

use super::add;
use crate::support::Team;

#[test]
fn a_list_of_long_tasks_reaches_a_teammate_without_their_texts() {
    let team = Team::started();
    for _ in 0..6 {
        let long: Vec<Value> = (0..18)
            .map(|_| json!({"subject": "long", "description": "x".repeat(50_000)}))
            .collect();
        team.teamctl_with(["task", "import", "-"], &json!(long).to_string())
            .ok();
    }
    team.spawn("bob", "");
    let listed = team.does("bob", "/task_list");
    let listed = listed[0]["content"].as_str().unwrap();
    assert!(
        listed.starts_with("1. long [pending]\n") && listed.contains("\n100. long [pending]\n"),
        "{listed}"
    );
    assert!(listed.ends_with("\n(the first 100; there may be more)") && listed.len() < 5000);
}

#[test]
fn what_is_no_task_or_no_list_is_refused_with_the_way_on() {
    let team = Team::started();
    let one = add(&team, &["one"]).to_string();
    let two = add(&team, &["two", "--after", &one]).to_string();
    for (args, code, told) in [
        (vec!["add", ""], 2, "one line of text"),
        (vec!["add", "two\nlines"], 2, "one line of text"),
        (
            vec!["add", "x", "--after", "99"],
            4,
            "no task 99 to wait for",
        ),
        (
            vec!["add", "x", "--check", "a", "--no-check"],
            2,
            "cannot be used with",
        ),
        (
            vec!["edit", &one, "--after", &two],
            7,
            "would wait for itself: 1 waits for 2 waits for 1",
        ),
        (
            vec!["edit", &one, "--after", &one],
            2,
            "cannot wait for itself",
        ),
        (vec!["edit", &one], 2, "nothing to change"),
        (vec!["assign", &one, "stranger"], 4, "stranger"),
        (vec!["show", "99"], 4, "there is no task 99"),
        (vec!["show", "x"], 2, "invalid"),
        (
            vec!["import", "no-such-file"],
            1,
            "cannot open no-such-file",
        ),
    ] {
        let run = team.teamctl(["task"].iter().chain(&args)).exits(code);
        assert!(run.stderr.contains(told), "{args:?}: {run:?}");
    }
    let long: Vec<Value> = (1..=10_001)
        .map(|number| json!({"subject": number.to_string()}))
        .collect();
    let ring: String = (1..=300)
        .map(|it| format!("[[task]]\nsubject = 'x'\nblocked_by = [{}]\n", it % 300 + 1))
        .collect();
    for (list, told) in [
        ("[{\"subject\": 1}]", "line 1 column"),
        ("- [ ] a\n- [ ]\n", "line 2: the subject of a task"),
        (
            "[[task]]\nsubject = 'a'\nchek = 'false'\n",
            "line 1: a task has no field `chek`",
        ),
        (
            &json!(long).to_string(),
            "has 10001 tasks, the limit is 10000",
        ),
        (&ring, "tasks wait for each other: lines 1, 4, 7"),
        (
            &format!("- [ ] {}", "x".repeat(300)),
            "line 1: the subject has more than 200 characters",
        ),
    ] {
        let run = team.teamctl_with(["task", "import", "-"], list).exits(2);
        assert!(
            run.stderr.contains(told) && run.stderr.len() < 500,
            "{run:?}"
        );
    }
    assert_eq!(team.json(["task", "list"]).as_array().unwrap().len(), 2);
    team.teamd(["stop"]).ok();
    assert!(
        team.teamctl(["task", "add", "x"])
            .exits(6)
            .stderr
            .contains("teamd start")
    );
    assert_eq!(
        team.json(["task", "list"]).as_array().unwrap().len(),
        2,
        "to look needs no daemon"
    );
}
