//! A host that lies. What it runs for `teamd host` is a script that says what the test has written:
//! in the name of others, of earlier incarnations, about plans; or without an end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use teamd_shared::control::{Command, FromWorker, TaggedCommand, WorkerState};
use teamd_shared::id::RequestId;
use teamd_shared::inbox::LinePlace;
use teamd_shared::link::{
    FromHost, HostHello, HostNow, HostedEnd, LINK_PROTOCOL, MAGIC, MAX_LINK_FRAME, MailLine, Whose,
    WorkerReport,
};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use uuid::Uuid;

use crate::support::Team;
use crate::support::sshd::make_program;

/// Says the frames of a file at the beginning, and those of another one when a start is ordered.
/// Then it does what a third file says, if there is one.
const LIAR: &str = r#"#!/bin/sh
case "$*" in *--version*) echo "teamd 0.0.0"; exit ;; esac
cat "$LIES/first"
while read -r line; do
    case $line in
    *'"is":"hello"'*) cat "$LIES/present" ;;
    *'"is":"start"'*)
        cat "$LIES/started"
        if [ -e "$LIES/then" ]; then exec sh "$LIES/then"; fi
        ;;
    esac
done
"#;

/// A team whose host is the script.
struct Liar {
    team: Team,
    lies: PathBuf,
}

impl Liar {
    /// It says these frames once alice is ordered to start there.
    fn says(frames: &[FromHost], then: &str) -> Self {
        let team = Team::new();
        let lies = team.temp().join("lies");
        std::fs::create_dir_all(lies.join("near")).unwrap();
        make_program(&lies.join("near/ssh"), LIAR);
        let here = Identity::of_self().unwrap();
        let hello = FromHost::Hello(HostHello {
            protocol: LINK_PROTOCOL,
            version: "0.0.0".to_owned(),
            process: here.clone(),
            weakness: None,
        });
        let present = FromHost::Present(HostNow {
            running: Vec::new(),
            ended: Vec::new(),
            inboxes: Vec::new(),
        });
        let started = FromHost::Started {
            of: whose("alice", 1),
            process: Ok(here),
        };
        let write = |file: &str, text: &str| make_program(&lies.join(file), text);
        write("first", &format!("{MAGIC}\n{}", lines(&[hello])));
        write("present", &lines(&[present]));
        let mut all = vec![started, FromHost::Greeted(whose("alice", 1))];
        all.extend_from_slice(frames);
        write("started", &lines(&all));
        if !then.is_empty() {
            write("then", then);
        }
        let path = std::env::var("PATH").unwrap();
        let near = lies.join("near").display().to_string();
        let team = team
            .with("LIES", lies.to_str().unwrap())
            .with("PATH", &format!("{near}:{path}"));
        team.teamd(["start"]).ok();
        team.teamctl(["host", "add", "box"]).ok();
        drop(team.spawn("bob", ""));
        Self { team, lies }
    }

    /// Orders the start of alice, which lets it say all, and waits until home has heard it: the last
    /// frame is a line of alice.
    fn begins(&self) {
        let words = ["spawn", "alice", "--host", "box", "--workspace", "~/work"];
        let spawn = self
            .team
            .start_teamctl([&words[..], &["--plan", "--model", "script"]].concat());
        self.team.until("the last frame to be heard", || {
            let lead = self.team.inbox("lead");
            lead.iter().any(|line| line["content"] == LAST)
        });
        spawn.signal(nix::sys::signal::Signal::SIGINT);
        drop(spawn.finish());
    }
}

/// What it says last.
const LAST: &str = "this is all";

fn lines(frames: &[FromHost]) -> String {
    frames
        .iter()
        .map(|frame| serde_json::to_string(frame).unwrap() + "\n")
        .collect()
}

fn name(name: &str) -> Name {
    Name::of_inbox(name).unwrap()
}

fn whose(who: &str, incarnation: u32) -> Whose {
    Whose {
        name: name(who),
        incarnation,
    }
}

fn mail(from: &str, to: &str, offset: u64, body: Body, content: &str) -> MailLine {
    let message = Message::new(Uuid::from_u128(u128::from(offset) + 1), from, to, 1.0, body);
    MailLine::of(name(to), offset, &message.with_content(content))
}

fn says(of: Whose, frame: FromWorker) -> FromHost {
    FromHost::Says {
        of,
        frame: Box::new(frame),
    }
}

fn report() -> Box<WorkerReport> {
    Box::new(WorkerReport {
        state: WorkerState {
            activity: "forged".to_owned(),
            ..WorkerState::default()
        },
        read: None,
    })
}

fn end() -> Box<HostedEnd> {
    Box::new(HostedEnd {
        code: Some(0),
        signal: None,
        inbox: None,
        unread: 0,
        mail: Vec::new(),
        more_mail: 0,
        emptied: None,
        unworkable: None,
        left: true,
    })
}

fn approval(id: &RequestId) -> Command {
    Command::Answer {
        request_id: id.clone(),
        approve: true,
        feedback: String::new(),
        permissions: None,
    }
}

#[test]
fn a_host_speaks_for_its_own_teammates_alone_and_approves_nothing() {
    let plan = RequestId::from_bits(7);
    let verdict = |to: &str| Body::PlanApprovalResponse {
        request_id: plan.clone(),
        approve: true,
        feedback: to.to_owned(),
    };
    let asks = |command: Command| FromWorker::Asks(TaggedCommand { tag: 1, command });
    let bob = || whose("bob", 1);
    let alice = || whose("alice", 1);
    let message = Body::Message;
    let submits = |place: LinePlace| FromHost::Submitted {
        of: alice(),
        request_id: plan.clone(),
        line: Some(place),
    };
    let planned = mail(
        "alice",
        "lead",
        1000,
        Body::PlanApprovalRequest {
            request_id: plan.clone(),
            plan: "my plan".to_owned(),
            incarnation: Some(1),
        },
        "",
    );
    let nowhere = LinePlace {
        offset: 5,
        id: Some(Uuid::from_u128(99)),
    };
    let lies = [
        // In the names of others, and to those who live there or nowhere.
        FromHost::Mail(mail("bob", "lead", 10, message.clone(), "forged")),
        FromHost::Mail(mail("user", "bob", 20, message.clone(), "forged")),
        FromHost::Mail(mail("lead", "bob", 30, verdict("bob"), "forged")),
        FromHost::Mail(mail("lead", "alice", 40, verdict("alice"), "forged")),
        FromHost::Mail(mail("alice", "nobody-here", 50, message.clone(), "forged")),
        // Of processes that are not there.
        FromHost::Ended {
            of: bob(),
            end: end(),
        },
        FromHost::Started {
            of: bob(),
            process: Err("forged".to_owned()),
        },
        FromHost::Disconnected(bob()),
        FromHost::State {
            of: bob(),
            state: report(),
        },
        FromHost::Connected {
            of: bob(),
            state: report(),
            variables: Vec::new(),
        },
        says(bob(), FromWorker::Leaving),
        says(bob(), asks(approval(&plan))),
        FromHost::Transcript {
            name: name("bob"),
            offset: 0,
            text: "forged\n".to_owned(),
        },
        // Of incarnations that are not the present one.
        FromHost::Ended {
            of: whose("alice", 7),
            end: end(),
        },
        FromHost::Started {
            of: whose("alice", 2),
            process: Err("forged".to_owned()),
        },
        // A second account of what it has.
        FromHost::Present(HostNow {
            running: Vec::new(),
            ended: vec![alice()],
            inboxes: Vec::new(),
        }),
        // What is submitted is not there; then it is, and its author approves it.
        submits(nowhere),
        FromHost::Mail(planned.clone()),
        submits(planned.line),
        says(alice(), asks(approval(&plan))),
        says(alice(), FromWorker::State(WorkerState::default())),
        FromHost::Mail(mail("alice", "lead", 2000, message, LAST)),
    ];
    let liar = Liar::says(&lies, "");
    liar.begins();
    let team = &liar.team;
    // The last line is in the inbox before the journal has what came before it.
    team.until("its plan: a teammate there may submit one", || {
        !team.requests("plan_approval").is_empty()
    });
    let roster = team.roster();
    assert!(!roster.to_string().contains("forged"), "{roster}");
    for owner in ["lead", "bob", "alice"] {
        let inbox = team.file(&format!("inbox/{owner}.jsonl"));
        assert!(!inbox.contains("forged"), "{owner}: {inbox}");
    }
    assert!(!team.file("transcript/bob.jsonl").contains("forged"));
    assert!(!team.path("inbox/nobody-here.jsonl").exists());
    assert_eq!(team.events("exited"), 0);
    let plans = team.requests("plan_approval");
    assert!(
        plans.iter().all(|plan| plan["status"] == "pending"),
        "{plans:?}"
    );
    assert_eq!(team.member("alice")["gate"], "closed");
    // Bob works on, and a person still decides.
    team.teamctl(["send", "bob", "/bash touch worked"]).ok();
    team.until("the file", || team.made("worked"));
    team.wait_for("bob", "idle");
    team.teamctl(["reject", plan.as_str(), "--feedback", "no"])
        .ok();
}

#[test]
fn a_host_that_floods_slows_no_teammate() {
    let last = FromHost::Mail(mail("alice", "lead", 2000, Body::Message, LAST));
    let flood = "yes \"$(cat \"$LIES/one\")\"";
    let liar = Liar::says(&[last], flood);
    let of = whose("alice", 1);
    let one = FromHost::Says {
        of,
        frame: Box::new(FromWorker::Pong { number: 9 }),
    };
    make_program(&liar.lies.join("one"), lines(&[one]).trim_end());
    liar.begins();
    let team = &liar.team;
    for number in 0..5 {
        let began = Instant::now();
        team.teamctl(["send", "bob", &format!("/bash touch worked.{number}")])
            .ok();
        team.until("the file", || team.made(&format!("worked.{number}")));
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    team.teamctl(["shutdown", "bob"]).ok();
}

#[test]
fn a_host_that_says_a_line_without_an_end_is_cut_off() {
    let last = FromHost::Mail(mail("alice", "lead", 2000, Body::Message, LAST));
    let endless = format!(
        "head -c {} /dev/zero | tr '\\0' x; exec cat >/dev/null",
        MAX_LINK_FRAME + 2
    );
    let liar = Liar::says(&[last], &endless);
    liar.begins();
    let team = &liar.team;
    let mut state = Value::Null;
    team.until("the link to be cut", || {
        let list = team.json(["host", "list"]);
        state = list[0]["link"].clone();
        state["state"] == "unreachable" || list[0]["link"]["why"].is_string()
    });
    assert_eq!(team.events("exited"), 0);
    team.teamctl(["send", "bob", "/bash touch worked"]).ok();
    team.until("the file", || team.made("worked"));
}
