//! A token of the user's own subscription: who gets it, what it opens, and where it never is.

#![expect(clippy::disallowed_methods, reason = "a test writes plain files")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{CLAUDE, KEY, LIVE, SETS, runs, spawn};
use crate::support::Team;
use crate::support::cgroup::note;
use crate::support::python;

const TOKEN: &str = "sk-ant-oat01-fake-never-to-be-seen";

const LOGIN: &str = "[agents.claude]\nlogin = 'token'\n";
const WITH_PLANS: &str = "[agents.claude]\nlogin = 'token'\nplan_with_token = true\n";

/// What a token costs, as it is said wherever it is used.
const COSTS: [&str; 3] = [
    "the token is inside the sandbox",
    "budgets rest on what the agent reports",
    "closed gate: reaches api.anthropic.com (any account there)",
];

/// Says what the agent has in its environment; the token itself without its beginning.
const LOOK: &str = r#"$ echo "token=${CLAUDE_CODE_OAUTH_TOKEN#sk-ant-} key=${ANTHROPIC_API_KEY-none} base=${ANTHROPIC_BASE_URL-none} proxy=${HTTPS_PROXY-none}""#;

/// Without a broken vendor, the program `claude` of this user is the stub.
const PROGRAM: &str = r#"#!/bin/sh
if [ -e broken ]; then
    echo "no such account: $CLAUDE_CODE_OAUTH_TOKEN" >&2
    exit 1
fi
exec python3 -S STUB "$@"
"#;

/// Writes the user's own configuration.
fn configure(team: &Team, text: &str) {
    let folder = team.home().join(".config/teamd");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), text).unwrap();
}

/// A team of a user who has a token, and the stub as their `claude`; none without Python.
fn team_of_user(layers: &str, key: Option<&str>) -> Option<Team> {
    let team = Team::new();
    let bin = team.root().join("bin");
    fs::create_dir(&bin).unwrap();
    let stub = team.root().join("claude-stub.py");
    fs::write(&stub, CLAUDE.program).unwrap();
    fs::write(
        team.root().join("orders.py"),
        include_str!("../../fixtures/orders.py"),
    )
    .unwrap();
    let program = bin.join("claude");
    let text = PROGRAM.replace("STUB", stub.to_str().unwrap());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let team = team
        .with("PATH", &format!("{}:{path}", bin.display()))
        .with("TEAM_SANDBOX_LAYERS", layers)
        .with("CLAUDE_CODE_OAUTH_TOKEN", TOKEN)
        .with("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
    let team = match key {
        Some(key) => team.with("ANTHROPIC_API_KEY", key),
        None => team,
    };
    if !python::is_here() {
        note("skipped: the stub of an agent needs python3");
        return None;
    }
    team.teamd(["start"]).ok();
    Some(team)
}

/// Makes sure that no file of the team shows the token.
fn nothing_shows_it(team: &Team) {
    let grep = ["-rlaF", TOKEN, team.path("").to_str().unwrap()].map(str::to_owned);
    let found = team.command("grep", grep).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.is_empty(), "{found}");
    // What was looked for is there.
    assert!(team.file("journal.jsonl").contains("carol"));
}

fn content(team: &Team, message: &str) -> String {
    runs(team, message)["content"].as_str().unwrap().to_owned()
}

#[test]
fn a_token_reaches_the_agent_if_the_user_says_so_and_not_before() {
    for layers in SETS {
        let Some(team) = team_of_user(layers, None) else {
            return;
        };
        let refused = team.teamctl(["spawn", "carol", "--agent", "claude"]);
        let refused = refused.exits(1).stderr;
        assert!(
            refused.contains("`login = \"token\"` in `[agents.claude]`")
                && !refused.contains(TOKEN),
            "{refused}"
        );
        configure(&team, LOGIN);
        let spawned = team.teamctl(["spawn", "carol", "--agent", "claude"]).ok();
        let status = team.teamctl(["status"]).ok().stderr;
        let doctor = team.teamctl(["doctor"]).stdout.replace('\n', " ");
        let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
        for cost in COSTS {
            for said in [&spawned.stderr, &status, &doctor] {
                assert!(said.contains(cost), "{cost}: {said}");
            }
        }
        let proxy = if layers == LIVE {
            "http://127.0.0.1:4141"
        } else {
            "none"
        };
        let expected =
            format!("token=oat01-fake-never-to-be-seen key=none base=none proxy={proxy}");
        assert_eq!(content(&team, LOOK), expected);
        let shown = content(&team, "$ env | grep CLAUDE_CODE_OAUTH_TOKEN");
        assert_eq!(
            shown,
            "CLAUDE_CODE_OAUTH_TOKEN=[the value of CLAUDE_CODE_OAUTH_TOKEN]"
        );
        nothing_shows_it(&team);
        // The spend of the agent is what it reports.
        team.until("the cost", || {
            team.member("carol")["usage"]["input_tokens"] == json!(1000)
        });
        // It is asked for again whenever the agent is started by a person.
        assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
        configure(&team, "");
        let refused = team.teamctl(["spawn", "carol", "--resume"]).exits(1).stderr;
        assert!(refused.contains("the agent claude needs"), "{refused}");
    }
}

/// With a key and without the setting, all is as without a token.
#[test]
fn without_the_setting_no_agent_sees_a_token() {
    let Some(team) = team_of_user(LIVE, Some(KEY)) else {
        return;
    };
    spawn(&team, &CLAUDE, &[]);
    let seen = content(&team, LOOK);
    assert!(
        seen.starts_with("token= key=teamd-") && seen.contains("base=http://127.0.0.1:4141/"),
        "{seen}"
    );
    // The setting is for Claude Code: the commands of the built-in agent see nothing of it.
    for (name, config) in [("dan", ""), ("erin", LOGIN)] {
        configure(&team, config);
        team.teamctl(["spawn", name, "--model", "script"]).ok();
        let results = team.does(name, "/bash env; cat /proc/self/environ | tr '\\0' '\\n'");
        let said = results[0]["content"].to_string();
        assert!(said.contains("PATH="), "{said}");
        assert!(
            !said.contains("CLAUDE_CODE_OAUTH_TOKEN") && !said.contains(TOKEN),
            "{said}"
        );
    }
    nothing_shows_it(&team);
}

/// Asks the proxy for a host by TLS, and prints what it answers.
fn connect(host: &str) -> String {
    format!(
        "(exec 9<>/dev/tcp/127.0.0.1/4141; printf 'CONNECT {host}:443 HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n' >&9; \
         timeout 20 head -c 400 <&9 | tr -d '\\r' | tr '\\n' ' '); echo"
    )
}

#[test]
fn a_plan_needs_a_word_of_the_users_and_a_closed_gate_reaches_the_vendor_alone() {
    let Some(team) = team_of_user(LIVE, None) else {
        return;
    };
    configure(&team, LOGIN);
    let planned = ["spawn", "carol", "--agent", "claude", "--plan"];
    let refused = team.teamctl(planned).exits(1).stderr;
    assert!(
        refused.contains("`plan_with_token = true`") && refused.contains(COSTS[2].split_at(13).1),
        "{refused}"
    );
    assert!(!team.file("config.json").contains("carol"));
    spawn(&team, &CLAUDE, &[]);
    let refused = team.teamctl(["request-plan", "carol", "one"]).stderr;
    assert!(refused.contains("plan_with_token = true"), "{refused}");
    assert_eq!(team.member("carol")["gate"], "open");
    team.shutdown("carol", &[], 0);
    configure(&team, WITH_PLANS);
    let others = connect("example.org");
    let vendor = connect("api.anthropic.com");
    let orders = format!(
        "$ {others}\n$ {vendor}\n$ echo x > made\n@plan_approval {{\"plan\": \"make it\"}}"
    );
    spawn(&team, &CLAUDE, &["--plan", "--prompt", &orders]);
    team.until_planned("carol");
    assert!(!team.made("made"));
    let results = team.results("carol");
    let answers = [0, 1].map(|at: usize| results[at]["content"].to_string());
    assert!(answers[0].contains("the gate is closed"), "{answers:?}");
    // Without a network its name leads nowhere; the gate is not what is in its way.
    assert!(
        answers[1].contains("HTTP/1.1 200") || answers[1].contains("teamd: api.anthropic.com"),
        "{answers:?}"
    );
    nothing_shows_it(&team);
}

#[test]
fn a_repository_hands_out_no_token() {
    let Some(team) = team_of_user(LIVE, None) else {
        return;
    };
    for line in ["login = 'token'", "plan_with_token = true"] {
        team.write("team.toml", &format!("[agents.claude]\n{line}\n"));
        let refused = team
            .teamctl(["spawn", "carol", "--agent", "claude"])
            .exits(2)
            .stderr;
        assert!(
            refused.contains("does not belong into team.toml")
                && refused.contains("your own ~/.config/teamd/config.toml"),
            "{refused}"
        );
    }
    // Another program of that name does not get it, although the user trusts it.
    configure(&team, LOGIN);
    team.write(
        "team.toml",
        "[agents.claude]\ncommand = ['sh', '-c', 'env > stolen']\nprotocol = 'claude'\n",
    );
    team.trust();
    let refused = team
        .teamctl(["spawn", "carol", "--agent", "claude"])
        .exits(1)
        .stderr;
    assert!(
        refused.contains("team.toml has no `[agents.claude]`"),
        "{refused}"
    );
    assert!(!team.made("stolen"));
}

/// The lead agent spawns as a person does, and settings of the project choose no other account.
#[test]
fn a_lead_agent_a_broken_login_and_a_project_get_no_further() {
    let Some(team) = team_of_user(LIVE, None) else {
        return;
    };
    configure(&team, LOGIN);
    team.write("broken", "");
    let failed = team.teamctl(["spawn", "carol", "--agent", "claude", "--restart", "never"]);
    let failed = failed.exits(1).stderr;
    assert!(
        failed.contains("no such account: [the value of CLAUDE_CODE_OAUTH_TOKEN]")
            && !failed.contains(TOKEN),
        "{failed}"
    );
    fs::remove_file(team.root().join("broken")).unwrap();
    fs::create_dir(team.root().join(".claude")).unwrap();
    let settings = r#"{"env": {"CLAUDE_CODE_OAUTH_TOKEN": "of another"}}"#;
    team.write(".claude/settings.json", settings);
    let failed = team.teamctl(["spawn", "carol", "--agent", "claude", "--restart", "never"]);
    let failed = failed.exits(1).stderr;
    assert!(failed.contains("env.CLAUDE_CODE_OAUTH_TOKEN"), "{failed}");
    team.write(".claude/settings.json", "{}");
    team.teamctl_with(["chat", "--agent", "claude", "--timeout", "20s"], "say hi")
        .ok();
    let spawns = json!({"name": "carol", "role": "coder", "prompt": "say well", "agent": "claude"});
    team.send("lead", &format!("@spawn_teammate {spawns}"));
    team.until_finished("carol", 1);
    let token = json!("token");
    assert_eq!(team.member("carol")["agent"]["login"], token);
    assert!(content(&team, LOOK).starts_with("token=oat01-fake"));
    configure(&team, "[agents.claude]\nlogn = 'token'\n");
    let again = json!({"name": "dan", "role": "coder", "prompt": "say x", "agent": "claude"});
    team.send("lead", &format!("@spawn_teammate {again}"));
    team.until("the mistake to be told", || {
        team.file("transcript/lead.jsonl")
            .contains("unknown field `logn`")
    });
    assert!(!team.file("config.json").contains("\"dan\""));
    nothing_shows_it(&team);
}
