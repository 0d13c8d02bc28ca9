//! An agent whose model is Google's: it reaches the Gemini API through its gateway, as Gemini CLI
//! does.

use serde_json::json;

use super::{ACP, KEY, LIVE, Stub, runs, spawn, team_around};
use crate::support::Team;
use crate::support::model_server::{Api, ModelServer, Reply};

const GEMINI: Stub = Stub {
    agent: "gemini",
    key: "GEMINI_API_KEY",
    ..ACP
};

/// Asks the model at each path with the key where the argument says, and writes down each status.
const ASK: &str = r#"
import json, os, sys, urllib.error, urllib.request
base, key, out = os.environ["GOOGLE_GEMINI_BASE_URL"], os.environ["GEMINI_API_KEY"], sys.argv[1]
said = [os.environ.get("GEMINI_MODEL", ""), key]
body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()
for ask in sys.argv[2:]:
    where, path = ask.split(",", 1)
    headers = {"content-type": "application/json"}
    if where == "header":
        headers["x-goog-api-key"] = key
    elif where == "address":
        path += ("&" if "?" in path else "?") + "key=" + key
    else:
        headers["x-goog-api-key"] = where
    try:
        answer = urllib.request.urlopen(urllib.request.Request(f"{base}/v1beta/{path}", body, headers))
        said.append(f"{answer.status} {answer.read().decode()}")
    except urllib.error.HTTPError as error:
        said.append(f"{error.code} {error.read().decode()}")
with open(out + ".part", "w") as file:
    json.dump(said, file)
os.rename(out + ".part", out)
"#;

const STREAM: &str = "models/gemini-x:streamGenerateContent?alt=sse";

fn team(server: &ModelServer) -> Option<Team> {
    let team = Team::new().with("GOOGLE_GEMINI_BASE_URL", &server.url());
    let team = team_around(team, &[&GEMINI], LIVE)?;
    team.write("ask.py", ASK);
    Some(team)
}

/// Has a command of the agent ask; returns the model and the key that it was given, and the answers.
fn asks(team: &Team, out: &str, asked: &[&str]) -> Vec<String> {
    runs(team, &format!("$ python3 ask.py {out} {}", asked.join(" ")));
    team.until("the answers", || team.made(out));
    serde_json::from_str(&team.text(out)).unwrap()
}

#[test]
fn an_agent_reaches_google_with_a_key_that_it_never_sees_and_its_costs_count() {
    let server = ModelServer::answering_any_client(|_| Reply::text(&"hi ".repeat(400)));
    let Some(team) = team(&server) else {
        return;
    };
    let prices =
        "['google:gemini-x']\ninput = 1e6\noutput = 1e6\ncache_write = 0\ncache_read = 0\n";
    std::fs::create_dir_all(team.home().join(".config/teamd")).unwrap();
    let file = team.home().join(".config/teamd/prices.toml");
    team.write(file.to_str().unwrap(), prices);
    spawn(&team, &GEMINI, &["--model", "google:gemini-x"]);
    let by_header = format!("header,'{STREAM}'");
    let asked = [
        by_header.as_str(),
        "address,models/gemini-x:generateContent",
        "header,models/gemini-x:batchGenerateContent",
        "header,cachedContents",
        "sk-other,models/gemini-x:generateContent",
    ];
    let said = asks(&team, "asked", &asked);
    assert_eq!(said[0], "gemini-x");
    assert!(
        said.iter().all(|text| !text.contains(KEY)) && !said[1].is_empty(),
        "{said:?}"
    );
    let statuses: Vec<&str> = said[2..].iter().map(|text| &text[..3]).collect();
    assert_eq!(statuses, ["200", "200", "404", "404", "401"], "{said:?}");
    assert!(said[2].contains("usageMetadata"), "{said:?}");
    // The server takes its own key alone.
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|it| it.api == Api::Google));
    let billed: u64 = requests.iter().map(|it| it.bill.output).sum();
    let spent = || team.member("carol")["usage"]["output_tokens"].as_u64();
    team.until("the usage to be told", || spent() >= Some(billed));
    assert_eq!(spent(), Some(billed));
    let status = team.json(["status"]);
    assert!(
        status["cost"].as_f64().unwrap() >= billed as f64,
        "{status}"
    );
    let transcript = team.file("transcript/carol.jsonl");
    assert!(!transcript.contains(KEY));
}

#[test]
fn an_agent_of_google_is_held_to_its_budget() {
    let server = ModelServer::answering_any_client(|_| Reply::text(&"hi ".repeat(400)));
    let Some(team) = team(&server) else {
        return;
    };
    spawn(&team, &GEMINI, &["--max-tokens", "800"]);
    assert_eq!(team.member("carol")["model"], json!("google"));
    let by_header = format!("header,'{STREAM}'");
    let said = asks(&team, "asked", &[by_header.as_str(); 6]);
    assert_eq!(&said[2][..3], "200", "{said:?}");
    let last = &said[7];
    assert!(
        last.starts_with("429")
            && last.contains("RESOURCE_EXHAUSTED")
            && last.contains("max_tokens"),
        "{said:?}"
    );
    team.until_finished("carol", 1);
    let notice = team.notices("carol").pop().unwrap();
    assert_eq!(notice["idle_reason"], "max_tokens", "{notice}");
}

#[test]
fn only_agents_of_google_take_its_models() {
    let server = ModelServer::start();
    let Some(team) = team(&server) else {
        return;
    };
    let model = ["--model", "google:gemini-x"];
    let said = team.teamctl(["spawn", "bob"].iter().chain(&model)).exits(2);
    assert!(said.stderr.contains("`--agent gemini` does"), "{said:?}");
    let said = team
        .teamctl(["spawn", "bob", "--agent", "gemini", "--model", "openai"])
        .exits(2);
    assert!(said.stderr.contains("`google:MODEL`"), "{said:?}");
    let limited = ["spawn", "bob", "--agent", "gemini", "--max-cost", "1"];
    let said = team.teamctl(limited.iter().chain(&model)).exits(2);
    assert!(
        said.stderr
            .contains("the price of google:gemini-x is not known")
            && !said.stderr.contains("name a model"),
        "{said:?}"
    );
    // A teammate that is resumed has the agent of its record.
    spawn(&team, &GEMINI, &[]);
    team.shutdown("carol", &[], 0);
    team.teamctl(["spawn", "carol", "--resume"].iter().chain(&model))
        .ok();
    assert_eq!(team.member("carol")["model"], "google:gemini-x");
}
