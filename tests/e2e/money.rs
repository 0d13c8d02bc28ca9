//! What teammates cost in dollars: at prices that are known, and with a limit.

#![expect(clippy::disallowed_methods, reason = "a test writes plain files")]

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::model_server::{Api, ModelServer, Reply};
use teamd_shared::price::Dollars;

/// A dollar for each token, whatever it is.
const PRICES: &str = "[\"anthropic:fake\"]\ninput = 1e6\noutput = 1_000_000\ncache_write = 1e6\ncache_read = 1000000.0\n";

fn priced(server: &ModelServer) -> Team {
    let team = server.team();
    set_prices(&team, PRICES);
    team
}

fn set_prices(team: &Team, text: &str) {
    let folder = team.home().join(".config/teamd");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("prices.toml"), text).unwrap();
}

fn spawn(team: &Team, name: &str, flags: &[&str]) {
    let spawn = [
        "spawn",
        name,
        "--model",
        Api::Anthropic.model(),
        "--prompt",
        "find it",
    ];
    team.teamctl(spawn.iter().chain(flags)).ok();
}

fn tokens(usage: &Value) -> f64 {
    usage
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_f64().unwrap())
        .sum()
}

#[test]
fn what_a_team_has_cost_is_shown_and_a_model_without_a_price_has_no_cost() {
    let server = ModelServer::start();
    server.says("There.").says("There.");
    let team = priced(&server);
    spawn(&team, "alice", &[]);
    team.until_finished("alice", 1);
    let status = || team.json(["status"]);
    team.until("the usage to be told", || tokens(&status()["usage"]) > 0.0);
    let seen = status();
    let cost = tokens(&seen["usage"]);
    assert_eq!(
        (&seen["cost"], &seen["members"][0]["cost"]),
        (&json!(cost), &json!(cost))
    );
    for command in [
        &["status"][..],
        &["status", "alice"],
        &["status", "-o", "name,cost"],
    ] {
        let shown = team.teamctl(command).ok().stdout;
        assert!(shown.contains(&format!("${cost:.2}")), "{shown}");
    }
    set_prices(&team, "");
    let seen = status();
    assert_eq!(
        (&seen["cost"], &seen["members"][0]["cost"]),
        (&Value::Null, &Value::Null)
    );
    assert!(!team.teamctl(["status"]).ok().stdout.contains('$'));
    set_prices(&team, "['anthropic:fake']\ninput = 'cheap'\n");
    let said = team.teamctl(["status"]).ok();
    assert!(
        said.stderr.contains("prices.toml") && said.stderr.contains("hint: "),
        "{said:?}"
    );
}

#[test]
fn work_ends_at_its_limit_of_cost_and_goes_on_with_as_much_again() {
    let server = ModelServer::start();
    server
        .replies(Reply::call("bash", json!({"command": "true"})))
        .says("There.");
    let team = priced(&server);
    spawn(&team, "alice", &["--max-cost", "$1"]);
    team.until_finished("alice", 1);
    assert_eq!(server.requests().len(), 1);
    let notice = team.notices("alice").pop().unwrap();
    assert_eq!(notice["idle_reason"], "max_cost");
    assert!(
        notice["content"].as_str().unwrap().contains("$1.00"),
        "{notice}"
    );
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        shown.contains("50 model calls, $1.00 for a piece of work"),
        "{shown}"
    );
    assert_eq!(team.member("alice")["limits"]["max_cost"], json!(1.0));
    // A price that went away stops the work: it could cost anything.
    set_prices(&team, "");
    team.kill_and_wait_for_restart("alice");
    team.send("alice", "and now?").ok();
    team.until_finished("alice", 2);
    assert_eq!(server.requests().len(), 1);
    assert!(
        team.notices("alice")[1]["content"]
            .as_str()
            .unwrap()
            .contains("not known")
    );
    set_prices(
        &team,
        &PRICES.replace("1e6", "0.5").replace("1_000_000", "0.5"),
    );
    team.kill_and_wait_for_restart("alice");
    team.send("alice", "and at last?").ok();
    team.until_finished("alice", 3);
    assert_eq!(team.notices("alice")[2]["idle_reason"], "available");
}

#[test]
fn a_limit_of_cost_needs_a_price() {
    let server = ModelServer::start();
    let team = server.team();
    let spawn = [
        "spawn",
        "alice",
        "--model",
        Api::Anthropic.model(),
        "--max-cost",
        "0.50",
    ];
    let said = team.teamctl(spawn).exits(2);
    assert!(
        said.stderr
            .contains("error: the price of anthropic:fake is not known"),
        "{said:?}"
    );
    assert!(
        said.stderr.contains(".config/teamd/prices.toml"),
        "{said:?}"
    );
    assert_eq!(team.json(["status"])["members"], json!([]));
    team.write(
        "team.toml",
        "max_cost = 0.5\n[members.alice]\nmodel = 'anthropic:fake'\n",
    );
    team.teamctl(["spawn", "alice"]).exits(2);
    set_prices(&team, PRICES);
    team.teamctl(["spawn", "alice"]).ok();
    assert_eq!(team.member("alice")["limits"]["max_cost"], json!(0.5));
    // The built-in model costs nothing.
    team.teamctl(["spawn", "bob", "--model", "script"]).ok();
    for wrong in ["0", "-1", "much"] {
        team.teamctl(["spawn", "carol", &format!("--max-cost={wrong}")])
            .exits(2);
    }
}

#[test]
fn what_a_lead_gives_holds_for_all_work_of_a_teammate_and_counts_once_into_its_own_budget() {
    let server = ModelServer::start();
    let ten_tokens = "It is in the file that you have named.";
    server
        .says(ten_tokens)
        .replies(Reply::call("bash", json!({"command": "true && true"})));
    let team = server.team();
    set_prices(
        &team,
        "[\"anthropic:fake\"]\ninput = 0\noutput = 1e5\ncache_write = 0\ncache_read = 0\n",
    );
    team.start_lead_with(|order| order.terms.max_cost = Dollars::try_from(3.0).ok());
    let spawn = |name: &str, cost: f64| {
        let input = json!({
            "name": name, "role": "coder", "prompt": "find it", "max_cost": cost,
            "model": Api::Anthropic.model(),
        });
        format!("/spawn_teammate {input}")
    };
    let calls = [spawn("alice", 1.5), spawn("bob", 2.0)];
    let results = team.lead_does(&calls.join("\n"));
    assert_eq!(results[0]["is_error"], false, "{results:?}");
    let refused = results[1]["content"].as_str().unwrap();
    assert!(refused.contains("has $1.50 left"), "{refused}");
    team.until_finished("alice", 1);
    let outcome = |work: usize| team.notices("alice")[work - 1]["idle_reason"].clone();
    assert_eq!(outcome(1), "available");
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        shown.contains("$1.50 for all its work, from its lead"),
        "{shown}"
    );
    let total = json!({"tokens": null, "cost": 1.5});
    assert_eq!(team.member("alice")["limits"]["total"], total);

    // Neither piece of work alone costs as much.
    team.send("alice", "and now?").ok();
    team.until_finished("alice", 2);
    let told = team.notices("alice")[1].clone();
    assert_eq!((server.asked(), outcome(2)), (2, json!("max_cost")));
    let told = told["content"].as_str().unwrap();
    assert!(
        told.contains("all of the $1.50 that its lead gave it")
            && told.contains("`teamctl spawn alice --resume --max-cost DOLLARS`"),
        "{told}"
    );
    let pieces = [0, 1].map(|work| server.requests()[work].bill.output);
    assert!(pieces.iter().all(|tokens| *tokens < 15), "{pieces:?}");

    // It stays spent, whatever is killed.
    team.kill_and_wait_for_restart("alice");
    team.send("alice", "again").ok();
    team.until_finished("alice", 3);
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.send("alice", "and again").ok();
    team.until_finished("alice", 4);
    assert_eq!(
        [outcome(3), outcome(4)],
        ["max_cost", "max_cost"].map(Value::from)
    );
    assert_eq!(server.asked(), 2);

    // A resumed conversation has spent what it has spent, until a person gives it more.
    team.shutdown("alice", &[], 0);
    team.teamctl(["spawn", "alice", "--resume"]).ok();
    team.send("alice", "still?").ok();
    team.until_finished("alice", 5);
    assert_eq!((server.asked(), outcome(5)), (2, json!("max_cost")));
    team.shutdown("alice", &[], 0);
    server.says("There.");
    team.teamctl(["spawn", "alice", "--resume", "--max-cost", "1"])
        .ok();
    team.send("alice", "go on").ok();
    team.until_finished("alice", 6);
    assert_eq!((server.asked(), outcome(6)), (3, json!("available")));
}
