//! A program that has led the team is no person until its process ends, whatever becomes of its
//! server and of the daemon.

use crate::support::Team;
use crate::support::mcp_client::McpClient;

/// A shell that runs a server, ends it by force when a test says so, and then runs commands of its
/// own, each when the file `order-N` is there.
pub(crate) fn lead_that_ends_its_server(team: &Team) -> std::process::Command {
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let script = format!(
        "exec 3<&0; setsid {teamctl} mcp <&3 3<&- & server=$!; exec 3<&- >/dev/null\n\
         until [ -e end ]; do sleep 0.01; done\n\
         kill -9 $server; wait $server\n\
         for n in 1 2 3 4; do\n\
         until [ -e order-$n ]; do sleep 0.01; done\n\
         sh order-$n >said-$n 2>&1; echo $? >code.new; mv code.new code-$n\n\
         done"
    );
    team.command("sh", ["-c", &script])
}

/// Has a new teammate submit a plan.
fn planned(team: &Team, name: &str) -> String {
    let prompt = "/plan_approval Drop it";
    team.teamctl(["spawn", name, "--plan", "--prompt", prompt])
        .ok();
    team.until_planned(name)
}

/// Has the lead run a command; returns its exit code and what it said.
pub(crate) fn run(team: &Team, number: u32, command: &str) -> (String, String) {
    team.write("order.new", command);
    let order = team.root().join(format!("order-{number}"));
    std::fs::rename(team.root().join("order.new"), order).unwrap();
    let code = format!("code-{number}");
    team.until("the command to end", || team.root().join(&code).exists());
    (team.text(&code), team.text(&format!("said-{number}")))
}

/// Asserts that the lead cannot answer a request.
fn cannot_answer(team: &Team, number: u32, id: &str) {
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let (code, said) = run(team, number, &format!("exec {teamctl} approve {id}"));
    assert_eq!(code, "3\n", "{said}");
    assert!(
        said.contains("this command runs below sh (pid ") && said.contains("when it has ended"),
        "{said}"
    );
    assert_eq!(team.request(id)["status"], "pending");
}

#[test]
fn a_lead_that_has_ended_its_server_is_no_person_over_a_hand_over_and_a_restart() {
    let team = Team::started();
    let client = McpClient::run(lead_that_ends_its_server(&team));
    let id = planned(&team, "alice");
    team.write("end", "");
    cannot_answer(&team, 1, &id);
    team.teamd(["start", "--replace"]).ok();
    cannot_answer(&team, 2, &id);
    team.kill_daemon();
    team.teamd(["start"]).ok();
    cannot_answer(&team, 3, &id);
    // As long as it runs, an answer shows its process; then nothing is left of it.
    let second = planned(&team, "bob");
    team.teamctl(["approve", &second]).ok();
    let from = team.request(&second)["answered_from"].clone();
    assert!(
        from.as_str().is_some_and(|from| from.contains(", run by ")),
        "{from}"
    );
    client.kill();
    team.teamctl(["approve", &id]).ok();
    assert!(team.request(&id)["answered_from"].is_null());
}

#[test]
fn no_variable_and_no_hand_over_of_a_lead_takes_the_codes_away() {
    let team = Team::new();
    team.write("team.toml", "[team]\napprove_code = true\n");
    team.teamd(["start"]).ok();
    let client = McpClient::run(lead_that_ends_its_server(&team));
    let id = planned(&team, "alice");
    team.write("end", "");
    let teamd = env!("CARGO_BIN_EXE_teamd");
    let replace = format!("exec {teamd} start --replace");
    let (code, said) = run(&team, 1, &replace);
    assert_eq!(code, "3\n", "{said}");
    assert!(
        said.contains("with `approve_code` a person asks for that, and sh (pid "),
        "{said}"
    );
    let mut weaker = team.command(teamd, ["start", "--replace"]);
    let weaker = weaker.env("TEAM_APPROVE_CODE", "false").output().unwrap();
    assert_eq!(weaker.status.code(), Some(2), "{weaker:?}");
    team.teamd(["start", "--replace"]).ok();
    let refused = team.teamctl(["--json", "approve", &id]).exits(3);
    assert!(
        refused.stderr.contains("is answered with its code"),
        "{refused:?}"
    );
    // What waited already is not answered by guessing once per start.
    let early = team.teamctl(["approve", &id, "--code", "0000"]).exits(3);
    assert!(early.stderr.contains("the daemon was started"), "{early:?}");
    client.kill();
}
