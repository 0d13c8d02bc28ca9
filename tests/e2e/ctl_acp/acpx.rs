//! `acpx`, a client of the Agent Client Protocol, as it is published: `scripts/test-agents acpx`.

use std::process::Output;

use crate::support::Team;

/// Runs the client, which starts `teamctl acp` with these arguments.
fn acpx(team: &Team, arguments: &str, words: &[&str]) -> String {
    // `scripts/test-agents` sets it.
    let program = std::env::var("TEAM_REAL_ACPX").unwrap();
    let agent = format!("{} acp {arguments}", env!("CARGO_BIN_EXE_teamctl"));
    let all = ["--approve-all", "--timeout", "60", "--agent", &agent];
    let mut command = team.command(&program, all.iter().chain(words));
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let Output { status, stdout, .. } = command.output().unwrap();
    let said = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{said}");
    said
}

#[test]
#[ignore = "scripts/test-agents"]
fn it_talks_to_a_teammate_answers_a_plan_and_loads_a_session() {
    let team = Team::started();
    team.spawn("alice", "");
    let said = acpx(&team, "alice", &["exec", "/bash echo made by $USER; pwd"]);
    assert!(said.contains("[tool] bash echo made by"), "{said}");
    assert!(said.trim_end().ends_with("[done] end_turn"), "{said}");
    team.teamctl(["spawn", "bob", "--plan"]).ok();
    let plan = "/plan_approval Write it\n/write_file made.txt hello";
    let said = acpx(&team, "bob --i-am-a-person", &["exec", plan]);
    assert!(said.contains("session/request_permission"), "{said}");
    assert_eq!(team.text("made.txt"), "hello");
    // A session outlives the process that served it.
    acpx(&team, "alice", &["sessions", "new"]);
    let said = acpx(&team, "alice", &["prompt", "/bash echo again"]);
    assert!(
        said.contains("session/load") && said.contains("again"),
        "{said}"
    );
    let said = acpx(&team, "alice", &["prompt", "/bash echo and again"]);
    assert!(said.contains("and again"), "{said}");
}
