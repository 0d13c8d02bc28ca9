//! Skills: what a model is told, what it can read, and who may write them.

use std::fs;
use std::os::unix::fs::symlink;

use super::{content, is_refused, offer, offering};
use crate::support::Team;
use crate::support::model_server::{Api, ModelServer};

fn skill(team: &Team, folder: &str, description: &str) {
    fs::create_dir_all(team.root().join(folder)).unwrap();
    let text = format!("---\ndescription: {description}\n---\nDo it.\n");
    team.write(&format!("{folder}/SKILL.md"), &text);
}

#[test]
fn a_skill_is_read_when_it_is_asked_for() {
    let team = offering(&["skills"]);
    skill(&team, ".claude/skills/pdf", "Fills forms.");
    team.write(".claude/skills/pdf/ref.md", "more");
    let own = team.home().join(".agents/skills/own");
    fs::create_dir_all(&own).unwrap();
    fs::copy(
        team.root().join(".claude/skills/pdf/SKILL.md"),
        own.join("SKILL.md"),
    )
    .unwrap();
    team.spawn("alice", "");
    let results = team.does(
        "alice",
        "/load_skill pdf\n/load_skill pdf ref.md\n/load_skill own\n/load_skill pdf ../../../team.toml\n/load_skill none",
    );
    assert!(content(&results[0]).ends_with("Do it.\n"), "{results:?}");
    assert_eq!(content(&results[1]), "[folder .claude/skills/pdf]\nmore");
    assert!(content(&results[2]).starts_with("---"), "{results:?}");
    assert!(is_refused(&results[3], "leads out of its folder"));
    assert!(is_refused(&results[4], "there are own, pdf"), "{results:?}");
}

/// As hooks of `git`: what stands there is believed by others.
#[test]
fn no_tool_of_a_teammate_writes_a_skill() {
    let team = offering(&["skills"]);
    skill(&team, ".agents/skills/pdf", "Fills forms.");
    fs::create_dir_all(team.root().join(".claude")).unwrap();
    team.spawn("alice", "");
    let results = team.does(
        "alice",
        "/write_file .agents/skills/pdf/SKILL.md evil\n\
         /write_file .claude/skills/evil/SKILL.md evil\n\
         /bash echo evil > .agents/skills/pdf/SKILL.md\n\
         /bash mkdir -p .claude/skills/evil && echo evil > .claude/skills/evil/SKILL.md\n\
         /bash mv .agents/skills .agents/other\n\
         /bash echo fine > .claude/settings.json",
    );
    for result in &results[..5] {
        assert_eq!(result["is_error"], true, "{result}");
    }
    assert!(is_refused(&results[0], "is not changed by tools"));
    assert_eq!(results[5]["is_error"], false, "{results:?}");
    assert!(team.text(".agents/skills/pdf/SKILL.md").contains("Do it."));
    assert!(!team.root().join(".claude/skills/evil").exists());
}

/// It answers plans and starts teammates: so it follows nothing that a teammate may have written.
#[test]
fn the_lead_agent_is_told_of_no_skill_that_a_teammate_may_write() {
    let server = ModelServer::start();
    let team = server.team();
    offer(&team, &["skills"]);
    skill(&team, ".agents/skills/theirs", "Of the workspace.");
    let own = team.home().join(".claude/skills/own");
    fs::create_dir_all(&own).unwrap();
    fs::copy(
        team.root().join(".agents/skills/theirs/SKILL.md"),
        own.join("SKILL.md"),
    )
    .unwrap();
    let model = Api::Anthropic.model();
    server.says("hello");
    team.teamctl_with(["chat", "--model", model], "hi\n").ok();
    let alone = server.last().body["system"].to_string();
    assert!(
        alone.contains("- theirs:") && alone.contains("- own:"),
        "{alone}"
    );
    team.teamctl(["shutdown", "lead"]).ok();
    team.spawn("alice", "");
    server.says("hello again");
    team.teamctl_with(["chat", "--model", model, "--fresh"], "hi\n")
        .ok();
    let shared = server.last().body["system"].to_string();
    assert!(
        !shared.contains("- theirs:") && shared.contains("- own:"),
        "{shared}"
    );
}

/// A repository may keep both folders in one place.
#[test]
fn links_in_the_place_of_the_folders_stop_no_command() {
    let team = offering(&["skills"]);
    skill(&team, "shared/pdf", "Fills forms.");
    fs::create_dir_all(team.root().join(".agents")).unwrap();
    symlink("../shared", team.root().join(".agents/skills")).unwrap();
    symlink(".agents", team.root().join(".claude")).unwrap();
    team.spawn("alice", "");
    let results = team.does("alice", "/bash echo fine > made\n/load_skill pdf");
    assert_eq!(results[0]["is_error"], false, "{results:?}");
    assert!(is_refused(&results[1], "no skill"), "{results:?}");
}
