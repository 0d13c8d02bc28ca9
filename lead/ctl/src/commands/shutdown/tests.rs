use std::sync::mpsc::{Sender, channel};

use clap::Parser;
use teamd_client::args::Cli;
use teamd_client::testing::{context, daemon, member, team};
use teamd_shared::control::{Done, Greeting, Listener, Refusal, RefusalCode, Reply, TaggedCommand};
use teamd_shared::id::RequestId;
use teamd_shared::member::MemberStatus;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamPath;
use teamd_shared::testing::journal_member;

use super::*;

fn args(line: &str) -> Shutdown {
    let cli = Cli::try_parse_from(format!("teamctl shutdown {line}").split(' ')).unwrap();
    let teamd_client::args::TeamctlCommand::Shutdown(args) = cli.command else {
        panic!()
    };
    args
}

/// A daemon that takes one order, and is gone before it answers.
async fn lost(dir: &TeamDir, bound: &Sender<()>) -> ShutdownOrder {
    let listener = Listener::bind(dir).unwrap();
    bound.send(()).unwrap();
    let mut peer = listener.accept().await.unwrap();
    peer.receive::<Greeting>().await.unwrap().unwrap();
    let Some(TaggedCommand {
        command: Command::Shutdown(order),
        ..
    }) = peer.receive().await.unwrap()
    else {
        panic!()
    };
    order
}

/// A roster with these members, which a daemon wrote that is gone.
fn written_by_one_that_is_gone(dir: &TeamDir, members: &Value) {
    let daemon =
        json!({"pid": std::process::id(), "start_ticks": 1, "boot_id": "b", "started_at": 1.0});
    let roster =
        json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": members});
    teamd_shared::fs::replace(dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
}

/// The daemon carried the order out and was killed; the next one has seen her end, and knows
/// nothing of the order.
#[test]
fn an_order_that_was_lost_is_said_again_and_the_end_that_it_led_to_counts() {
    let (_scratch, dir) = team(&json!([]));
    written_by_one_that_is_gone(&dir, &json!([member("alice", "idle")]));
    let (context, stdout, _) = context(&dir, false);
    let there = TeamDir::open(dir.root()).unwrap();
    let (bound, is_bound) = channel();
    let daemons = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let first = lost(&there, &bound).await;
            let mut alice = member("alice", "shutdown");
            alice["exit"] = json!({"code": 0, "signal": null, "at": 2.5, "request_id": "00000005", "unread": 0,
        "inbox": Position::START});
            written_by_one_that_is_gone(&there, &json!([alice]));
            let listener = Listener::bind(&there).unwrap();
            let mut peer = listener.accept().await.unwrap();
            peer.receive::<Greeting>().await.unwrap();
            let Some(TaggedCommand {
                tag,
                command: Command::Shutdown(order),
            }) = peer.receive().await.unwrap()
            else {
                panic!()
            };
            assert_eq!(order, first);
            let refusal = Refusal::new(RefusalCode::Conflict, "alice is not running");
            peer.send(&Reply {
                tag,
                result: Err(refusal),
            })
            .await
            .unwrap();
        })
    });
    is_bound.recv().unwrap();
    assert_eq!(run(&context, args("alice --force")), Ok(ExitCode::Done));
    daemons.join().unwrap();
    assert_eq!(stdout.text(), "alice is gone: shutdown (exit code 0)\n");
}

#[test]
fn a_daemon_that_was_lost_and_not_started_again_is_not_said_to_run() {
    let (_scratch, dir) = team(&json!([]));
    written_by_one_that_is_gone(&dir, &json!([member("alice", "idle")]));
    let (context, _, stderr) = context(&dir, false);
    let there = TeamDir::open(dir.root()).unwrap();
    let (bound, is_bound) = channel();
    let daemon = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(lost(&there, &bound));
    });
    is_bound.recv().unwrap();
    let code = run(&context, args("alice --timeout 0")).unwrap();
    daemon.join().unwrap();
    assert_eq!(code, ExitCode::Failed);
    let said = stderr.text();
    assert!(
        said.contains("error: the daemon was lost before it answered")
            && said.contains("`teamd start`"),
        "{said}"
    );
}

fn answer(command: &Command) -> Option<Result<Done, Refusal>> {
    match command {
        Command::Shutdown(order) if order.name.as_str() == "missing" => Some(Err(Refusal::new(
            RefusalCode::NotFound,
            "there is no teammate named missing",
        ))),
        Command::Shutdown(order) => {
            let bits = u32::try_from(order.name.as_str().len()).unwrap();
            let request_id = RequestId::from_bits(bits);
            match order.name.as_str() {
                "alice" => {
                    let exit = json!({"code": 0, "signal": null, "at": 2.5, "request_id": request_id,
                        "unread": 0, "inbox": Position::START});
                    let status = MemberStatus::Shutdown;
                    let exit = serde_json::from_value(exit).unwrap();
                    Some(Ok(Done::Ended {
                        request_id,
                        status,
                        exit,
                    }))
                }
                "bob" => Some(Ok(Done::Rejected {
                    request_id,
                    reason: "still writing".to_owned(),
                })),
                _ if !order.wait => Some(Ok(Done::Asked { request_id })),
                _ => None,
            }
        }
        _ => None,
    }
}

fn roster() -> Value {
    let mut alice = member("alice", "shutdown");
    alice["exit"] = json!({"code": 0, "signal": null, "at": 2.5, "request_id": "00000005", "unread": 0,
        "inbox": Position::START});
    json!([alice, member("bob", "idle"), member("stuck", "working")])
}

/// A journal in which `stuck` runs, and is asked to shut down.
fn write_journal_of_stuck(dir: &TeamDir) {
    let spawning = journal_member(
        &json!({"seq": 1, "at": 1.0, "done": 0, "record": "member", "event": "spawning",
        "name": "stuck"}),
    );
    let asked = json!({"seq": 2, "at": 1.0, "done": 0, "record": "request", "event": "asked",
        "request_id": "00000005", "kind": "shutdown", "from": "lead", "to": "stuck", "status": "pending",
        "payload": {"reason": "", "decide_within": 30.0, "force_after": null}, "incarnation": 1,
        "message_id": "0198aaaa-0000-7000-8000-000000000001", "created_at": 1.0, "resolved_at": null,
        "reason": null, "answered_by": null});
    let journal = format!("{spawning}\n{asked}\n");
    teamd_shared::fs::replace(dir, &TeamPath::journal(), journal.as_bytes()).unwrap();
}

#[test]
fn every_name_is_tried_and_the_highest_ranking_code_counts() {
    let (_scratch, dir) = team(&roster());
    write_journal_of_stuck(&dir);
    let daemon = daemon(&dir, answer);
    let (context, stdout, stderr) = context(&dir, false);
    let code = run(&context, args("missing alice bob alice stuck --timeout 5s")).unwrap();
    assert_eq!(code, ExitCode::TimedOut);
    assert_eq!(stdout.text(), "alice is gone: shutdown (exit code 0)\n");
    insta::assert_snapshot!(stderr.text(), @r"
    error: there is no teammate named missing
    error: bob rejected the shutdown: still writing
    hint: ask again later, or end it: `teamctl shutdown bob --force`
    error: stuck has not left within 5s
    hint: the request 00000005 stays pending; it leaves when it can; `teamctl shutdown stuck --force` ends it
    ");
    daemon.join().unwrap();
}

#[test]
fn the_json_result_has_one_entry_a_name() {
    let (_scratch, dir) = team(&roster());
    let daemon = daemon(&dir, answer);
    let (context, stdout, _) = context(&dir, true);
    assert_eq!(
        run(&context, args("alice bob")).unwrap(),
        ExitCode::Rejected
    );
    let expected = json!({"results": [
        {"name": "alice", "request_id": "00000005", "outcome": "shutdown", "reason": null,
         "exit": {"code": 0, "signal": null, "at": 2.5, "request_id": "00000005", "unread": 0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"},
         "ending": null, "emptied": null}},
        {"name": "bob", "request_id": "00000003", "outcome": "rejected", "reason": "still writing", "exit": null}]});
    assert_eq!(
        serde_json::from_str::<Value>(&stdout.text()).unwrap(),
        expected
    );
    daemon.join().unwrap();
}

#[test]
fn without_waiting_the_outcome_is_pending() {
    let (_scratch, dir) = team(&roster());
    let daemon = daemon(&dir, answer);
    let (context, stdout, _) = context(&dir, false);
    assert_eq!(
        run(&context, args("stuck --no-wait")).unwrap(),
        ExitCode::Done
    );
    assert_eq!(stdout.text(), "stuck is asked to leave (00000005)\n");
    daemon.join().unwrap();
}

#[test]
fn all_of_a_team_that_has_ended_is_done_without_a_daemon_and_a_name_is_not() {
    let (_scratch, dir) = team(&json!([member("alice", "shutdown")]));
    let (context, ..) = context(&dir, false);
    assert_eq!(run(&context, args("--all")), Ok(ExitCode::Done));
    assert_eq!(
        run(&context, args("alice")).unwrap_err().code(),
        ExitCode::NotRunning
    );
}

#[test]
fn a_teammate_that_has_ended_already_is_what_was_wanted() {
    let (_scratch, dir) = team(&roster());
    let daemon = daemon(&dir, |_| {
        Some(Err(Refusal::new(
            RefusalCode::Conflict,
            "alice is not running",
        )))
    });
    let (context, stdout, _) = context(&dir, false);
    assert_eq!(run(&context, args("alice")), Ok(ExitCode::Done));
    assert_eq!(
        stdout.text(),
        "alice has ended already: shutdown (exit code 0)\n"
    );
    daemon.join().unwrap();
}

#[test]
fn force_has_its_own_patience() {
    let (_scratch, dir) = team(&json!([]));
    let (context, ..) = context(&dir, false);
    for (line, seconds) in [
        ("a", 120),
        ("a --timeout 5s", 5),
        ("a --force", 60),
        ("a --force --timeout 0", 50),
    ] {
        assert_eq!(
            timeout(&context, &args(line)),
            Duration::from_secs(seconds),
            "{line}"
        );
    }
}
