//! A model's service that is overloaded, silent or gone: it is asked again, and what is waited for
//! is shown.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{ended, spawn};
use crate::support::model_server::{Api, ModelServer, Reply};
use crate::support::{Team, poll_until};

fn what_passes_is_tried_again(api: Api) {
    let server = ModelServer::start();
    let half = || Reply::text("this one does not come to its end, whatever it says");
    server.fails(500).says("there you are");
    for failure in [
        Reply::fail(529),
        Reply::fail(429).with_header("retry-after-ms", "50"),
        Reply::reset(),
        half().cut(),
        half().broken(),
        half().stalled(),
        half().then_error("overloaded_error"),
        Reply::garbage("text/event-stream", "data: {oops\n\n"),
    ] {
        server.replies(failure).says("there you are");
    }
    let team = server.team().with("TEAM_MODEL_TIMEOUT", "10s");
    spawn(&team, "alice", api.model(), "go");
    team.until_finished("alice", 1);
    for count in 2..=9 {
        team.send("alice", "again");
        team.until_finished("alice", count);
    }
    assert!(
        team.notices("alice")
            .iter()
            .all(|notice| notice["content"] == "there you are")
    );
    assert_eq!((server.requests().len(), team.answers("alice")), (18, 9));
    let log = team.file("log/alice.log");
    assert_eq!(log.matches("attempt 1 failed").count(), 9, "{log}");
    assert!(
        log.contains("nothing came for") && log.contains("Internal server error"),
        "{log}"
    );
}

#[test]
fn what_passes_is_tried_again_with_anthropic() {
    what_passes_is_tried_again(Api::Anthropic);
}

#[test]
fn what_passes_is_tried_again_with_openai() {
    what_passes_is_tried_again(Api::OpenAi);
}

/// How many services are left alone.
fn overloads(team: &Team) -> usize {
    let names = std::fs::read_dir(team.path("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| {
            name.to_str().is_some_and(|name| {
                name.starts_with("overload-anthropic-") && !name.contains(".tmp")
            })
        })
        .count()
}

/// For how long the service wants to be left alone, but for the accuracy of clocks. Far longer than
/// a `send` takes.
const ALONE: Duration = Duration::from_millis(7990);

// One answer that says "overloaded" must not make every worker hammer.
#[test]
fn a_team_leaves_an_overloaded_service_alone_together() {
    let mut asked = 0;
    let server = ModelServer::answering(move |_| {
        asked += 1;
        if asked == 1 {
            Reply::fail(529).with_header("retry-after", "8")
        } else {
            Reply::text("done")
        }
    });
    let team = server.team();
    for (name, api) in [("bob", Api::Anthropic), ("carol", Api::OpenAi)] {
        team.teamctl(["spawn", name, "--model", api.model()]).ok();
    }
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until("the first request", || !server.requests().is_empty());
    team.until("the others to be told", || overloads(&team) == 1);
    team.send("bob", "go");
    team.send("carol", "go");
    for name in ["alice", "bob", "carol"] {
        team.until_finished(name, 1);
    }
    let requests = server.requests();
    let first = requests[0].at;
    let of = |api: Api| {
        requests[1..]
            .iter()
            .filter(move |request| request.api == api)
    };
    assert_eq!(
        (of(Api::Anthropic).count(), of(Api::OpenAi).count()),
        (2, 1)
    );
    assert!(of(Api::Anthropic).all(|request| request.at - first >= ALONE));
    assert!(
        of(Api::OpenAi).all(|request| request.at - first < ALONE),
        "it waits for others"
    );
}

#[test]
fn what_a_worker_waits_for_and_how_long_is_shown_and_reaches_no_model() {
    // Each pause is far longer than it takes to see it, and ended by an interrupt.
    let server = ModelServer::answering(|request| match request {
        it if it.mentions("again") => Reply::text("done"),
        it if it.mentions("bob's") => Reply::text("half of it").stalled(),
        it if it.mentions("carol's") => Reply::reset(),
        _ => Reply::fail(529).with_header("retry-after", "60"),
    });
    let team = server.team().with("TEAM_MODEL_TIMEOUT", "8s");
    let waits = |name: &str| {
        team.member(name)["waiting"]["why"].as_str().map(|why| {
            match why.split_once(" cannot be reached: ") {
                Some(_) => "the service cannot be reached".to_owned(),
                None => why.to_owned(),
            }
        })
    };
    for (name, api) in [("bob", Api::OpenAi), ("alice", Api::Anthropic)] {
        spawn(&team, name, api.model(), &format!("{name}'s work"));
    }
    team.until("alice to wait", || {
        waits("alice").as_deref() == Some("overloaded (529)")
    });
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    let told = |seconds: u32| shown.contains(&format!("waiting {seconds} s: overloaded (529)\n"));
    assert!((2..=90).any(told), "{shown}");
    let json: Value =
        serde_json::from_str(&team.teamctl(["--json", "status", "alice"]).ok().stdout).unwrap();
    assert_eq!(
        json["members"][0]["activity"],
        team.member("alice")["activity"]
    );
    assert!(json["members"][0]["waiting"]["until"].as_f64().unwrap() > 1.7e9);
    spawn(&team, "dave", Api::Anthropic.model(), "dave's work");
    // The last: her pauses are short, and after six attempts they are over.
    spawn(&team, "carol", Api::OpenAi.model(), "carol's work");
    let mut seen = BTreeSet::new();
    let expected = [
        "bob the service is silent",
        "carol the service cannot be reached",
        "dave overloaded; the team leaves it alone",
    ];
    let seen_all = poll_until(&mut || {
        seen.extend(
            ["bob", "carol", "dave"]
                .into_iter()
                .filter_map(|name| Some(format!("{name} {}", waits(name)?))),
        );
        expected.iter().all(|pause| seen.contains(*pause))
    });
    assert!(seen_all, "{seen:?}");
    for name in ["alice", "bob", "carol", "dave"] {
        team.teamctl(["interrupt", name]).ok();
        team.until_finished(name, 1);
        team.until("it to be over", || team.member(name)["waiting"].is_null());
    }
    for name in ["bob", "carol"] {
        team.send(name, "again");
        team.until_finished(name, 2);
        assert_eq!(ended(&team, name).1, "done");
    }
    let asked = server
        .requests()
        .iter()
        .map(|request| request.body.to_string())
        .collect::<String>();
    assert!(!asked.contains("waiting") && !asked.contains("overloaded"));
}
