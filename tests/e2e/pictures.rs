//! `diagram` and `stats`: what a team did, for a document, a pipe or a program.

use serde_json::Value;

use crate::support::Team;

/// A team in which a plan was rejected, a teammate was killed and has left, and a text is hostile.
fn team() -> (Team, String) {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "ana",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache",
    ])
    .ok();
    let plan = team.until_planned("ana");
    team.spawn("bob", "");
    team.kill_and_wait_for_restart("bob");
    team.teamctl(["reject", &plan, "--feedback", "keep it"])
        .ok();
    team.until_finished("ana", 1);
    team.send("bob", "</text><script>alert(1)</script>; end %% \u{202e}x")
        .ok();
    team.until_caught_up("bob");
    team.shutdown("bob", &[], 0);
    (team, plan)
}

#[test]
fn a_diagram_has_each_message_once_and_each_incarnation() {
    let (team, plan) = team();
    let mermaid = team.teamctl(["diagram"]).ok().stdout;
    let at = |text: &str| {
        mermaid
            .find(text)
            .unwrap_or_else(|| panic!("{text} is not in\n{mermaid}"))
    };
    let lead = "p0";
    let ana = "p1";
    let bob = "p2";
    assert!(
        mermaid.starts_with("sequenceDiagram\n    participant p0 as lead\n"),
        "{mermaid}"
    );
    let steps = [
        format!("activate {ana}"),
        format!("{ana}->>{lead}: plan {plan}#58; Drop the cache"),
        format!("activate {bob}"),
        format!("deactivate {bob}"),
        format!("{lead}--x{ana}: plan {plan} rejected#58; keep it"),
        format!("{lead}->>{bob}: "),
        "bob shut down (exit code 0)".to_owned(),
    ];
    assert!(steps.iter().map(|step| at(step)).is_sorted(), "{mermaid}");
    assert_eq!(
        mermaid.matches(&format!("plan {plan}#58;")).count(),
        1,
        "{mermaid}"
    );
    assert_eq!(
        mermaid.matches(&format!("\n    activate {bob}\n")).count(),
        2,
        "{mermaid}"
    );
    assert!(
        !mermaid.contains("<script>") && !mermaid.contains('\u{202e}'),
        "{mermaid}"
    );
    let only = team.teamctl(["diagram", "--request", &plan]).ok().stdout;
    assert_eq!(only.lines().count(), 5, "{only}");
    assert!(
        team.teamctl(["diagram", "--since", "1s", "--request", "nosuch"])
            .exits(4)
            .stderr
            .contains("no request")
    );
}

#[test]
fn a_picture_is_xml_whatever_a_model_wrote() {
    let (team, plan) = team();
    let svg = team.teamctl(["diagram", "--format", "svg"]).ok().stdout;
    assert!(
        svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    assert!(
        svg.contains(&format!("plan {plan} rejected: keep it</text>")),
        "{svg}"
    );
    assert!(
        svg.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !svg.contains("<script>"),
        "{svg}"
    );
    // Bob has two bars, ana one.
    assert_eq!(svg.matches("<rect class=\"bar\"").count(), 3, "{svg}");
    for element in ["svg", "text", "style"] {
        assert_eq!(
            svg.matches(&format!("<{element}")).count(),
            svg.matches(&format!("</{element}>")).count()
        );
    }
}

#[test]
fn the_time_that_a_plan_waits_is_not_the_time_that_a_teammate_works() {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "ana",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache\n/bash sleep 1",
    ])
    .ok();
    let plan = team.until_planned("ana");
    team.until("the plan to wait for a while", || {
        team.json(["stats"])["members"][0]["waiting_seconds"]
            .as_f64()
            .unwrap()
            > 0.5
    });
    team.teamctl(["approve", &plan]).ok();
    team.until_finished("ana", 1);
    team.teamctl(["spawn", "erin", "--auto"]).ok();
    team.teamctl([
        "task",
        "add",
        "Wait",
        "--check",
        "sleep 1",
        "--description",
        "/bash sleep 1",
    ])
    .ok();
    team.teamctl(["wait", "--task", "1"]).ok();
    let stats = team.json(["stats"]);
    let of = |value: &Value, what: &str| value[what].as_f64().unwrap();
    let ana = &stats["members"][0];
    let task = &stats["tasks"][0];
    assert!(
        of(ana, "working_seconds") > 0.9 && of(ana, "waiting_seconds") > 0.5,
        "{stats}"
    );
    assert_eq!(
        (&ana["name"], &task["subject"]),
        (&"ana".into(), &"Wait".into())
    );
    assert!(
        of(task, "working_seconds") > 0.9 && of(task, "waiting_seconds") > 0.9,
        "{stats}"
    );
    assert!(
        ana["turns"].as_u64().unwrap() >= 2 && task["turns"].as_u64().unwrap() >= 1,
        "{stats}"
    );
    let shown = team.teamctl(["stats"]).ok().stdout;
    assert!(
        shown.starts_with("TEAMMATE  TURNS  TOKENS  WORKING  WAITING\nana "),
        "{shown}"
    );
    assert!(
        shown.contains("\n\nTASK  TURNS  TOKENS  WORKING  WAITING  SUBJECT\n1 "),
        "{shown}"
    );
}
