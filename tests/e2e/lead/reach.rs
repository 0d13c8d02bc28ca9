//! What a lead agent can do as a person can: several teammates by one call, with terms, and the
//! tasks and reviews of the team.

use serde_json::json;

use super::text;
use crate::checkouts::{self, add, task, until};
use crate::support::Team;
use crate::support::user::User;

#[test]
fn several_teammates_of_one_call_take_the_tasks_that_the_lead_agent_makes() {
    let team = Team::started();
    team.start_lead();
    let spawn =
        json!({"name": "coder", "role": "coder", "prompt": "/bash true", "auto": true, "count": 2});
    let create = json!({"subject": "make it", "description": "/bash touch made", "check": "test -e made", "priority": 3});
    let results = team.lead_does(&format!("/spawn_teammate {spawn}\n/task_create {create}"));
    let (said, is_error) = text(&results[0]);
    assert!(!is_error, "{said}");
    let started: Vec<&str> = said.lines().collect();
    assert!(
        started.len() == 2
            && started[0].starts_with("coder-1 has started")
            && started[1].starts_with("coder-2 has started"),
        "{said}"
    );
    let done = until(&team, 1, "completed");
    assert_eq!(done["result"]["check"]["command"], "test -e made");
    assert_eq!(done["priority"], 3);
}

#[test]
fn a_call_that_cannot_start_all_says_which_have_started() {
    let team = Team::started();
    team.spawn("coder-2", "");
    team.start_lead();
    let spawn = json!({"name": "coder", "role": "coder", "prompt": "x", "count": 3});
    let results = team.lead_does(&format!("/spawn_teammate {spawn}"));
    let (said, is_error) = text(&results[0]);
    assert!(
        !is_error
            && said.starts_with("coder-1 has started")
            && said
                .contains("coder-2 has not started, nor any after it: coder-2 is running already"),
        "{said}"
    );
    let members = team.roster()["members"].as_array().unwrap().len();
    assert_eq!(members, 3, "coder-1, coder-2 and the lead");
}

#[test]
fn a_lead_agent_makes_the_team_no_larger_than_the_file_says() {
    let team = Team::new();
    team.write("team.toml", "[team]\nmax_members = 2\n");
    team.teamd(["start"]).ok();
    team.start_lead();
    let spawn = json!({"name": "coder", "role": "coder", "prompt": "x", "count": 3});
    let results = team.lead_does(&format!("/spawn_teammate {spawn}"));
    let (said, is_error) = text(&results[0]);
    assert!(
        !is_error
            && said.contains("coder-2 has started")
            && said.contains("coder-3 has not started")
            && said.contains("`max_members` of `[team]`"),
        "{said}"
    );
    team.teamctl(["spawn", "more"]).ok();
}

#[test]
fn a_lead_agent_with_a_budget_shares_it_out() {
    let team = Team::started();
    team.start_lead_with(|order| order.terms.max_tokens = Some(1000));
    let spawn = |name: &str, tokens: Option<u64>| {
        let mut input = json!({"name": name, "role": "coder", "prompt": "x"});
        if let Some(tokens) = tokens {
            input["max_tokens"] = json!(tokens);
        }
        format!("/spawn_teammate {input}")
    };
    let calls = [
        spawn("alice", None),
        spawn("alice", Some(700)),
        spawn("bob", Some(400)),
        spawn("bob", Some(300)),
    ];
    let results = team.lead_does(&calls.join("\n"));
    let outcomes: Vec<(&str, bool)> = results.iter().map(text).collect();
    assert!(
        outcomes[0].1 && outcomes[0].0.contains("name max_tokens"),
        "{results:?}"
    );
    assert!(!outcomes[1].1, "{results:?}");
    assert!(
        outcomes[2].1 && outcomes[2].0.contains("300 tokens left"),
        "{results:?}"
    );
    assert!(!outcomes[3].1, "{results:?}");
    assert_eq!(team.member("alice")["limits"]["max_tokens"], 700);
}

#[test]
fn a_lead_agent_reviews_the_diff_and_changes_tasks_as_a_person_does() {
    // The one that runs the tests: the lead agent is started by the test itself.
    let own = *User::at_hand().last().unwrap();
    let team = checkouts::team(own, "[work]\ncheck = \"true\"\n", "true");
    team.start_lead();
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash echo two >> a.txt; git commit -qam two";
    add(&team, &["one", "--review", "lead", "--description", work]);
    let request_id = || {
        let id = task(&team, 1)["submission"]["request_id"].clone();
        id.as_str().map(str::to_owned)
    };
    team.until("the review", || request_id().is_some());
    let answer = json!({"request_id": request_id().unwrap(), "approve": true});
    let results = team.lead_does(&format!(
        "/task_diff {{\"task_id\": 1}}\n/plan_approval {answer}\n/task_diff {{\"task_id\": 7}}"
    ));
    assert!(text(&results[0]).0.contains("+two"), "{results:?}");
    assert!(!text(&results[1]).1, "{results:?}");
    assert_eq!(
        text(&results[2]),
        (
            "task 7 has no commit (a teammate with a checkout submits commits; `teamctl diff NAME` shows what it has so far)",
            true
        )
    );
    until(&team, 1, "completed");
    // There is no tester, so none takes it meanwhile.
    let later = json!({"subject": "two", "blocked_by": "1", "for": "tester", "check": "false"});
    team.lead_does(&format!("/task_create {later}"));
    let changes = [
        json!({"task_id": 2, "priority": 4, "review": "lead"}),
        json!({"task_id": 2, "status": "cancelled"}),
        json!({"task_id": 2, "status": "pending", "for": "tester", "check": "none", "subject": "again"}),
        json!({"task_id": 2, "status": "cancelled", "priority": 1}),
        json!({"task_id": 2}),
        json!({"task_id": 2, "status": "done"}),
    ];
    let lines: Vec<String> = changes
        .iter()
        .map(|change| format!("/task_update {change}"))
        .collect();
    let results = team.lead_does(&lines.join("\n"));
    let errors: Vec<bool> = results.iter().map(|result| text(result).1).collect();
    assert_eq!(
        errors,
        [false, false, false, true, true, true],
        "{results:?}"
    );
    let changed = task(&team, 2);
    assert_eq!(changed["subject"], "again");
    assert_eq!(changed["priority"], 4);
    assert_eq!(changed["check"], json!(null));
}
