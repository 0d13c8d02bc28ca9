use rustix::fs::{CWD, FileType, Mode};
use std::fs::File;
use teamd_shared::control::Listener;
use teamd_shared::team_dir::TeamPath;

use super::*;
use crate::testing::{daemon, runtime, scratch};

#[test]
fn where_no_daemon_listens_the_exit_code_says_so() {
    let (_scratch, dir) = scratch();
    runtime().block_on(async {
        let error = Client::connect(&dir).await.unwrap_err();
        assert_eq!(error.code(), ExitCode::NotRunning);
        // A listener that is dropped may go on in what another test has just started.
        let socket = dir.path(&TeamPath::socket());
        rustix::fs::mknodat(CWD, &socket, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = Client::connect(&dir).await.unwrap_err();
        assert_eq!(error.code(), ExitCode::NotRunning, "a stale socket");
        assert_eq!(error.next_step(), Some("`teamd start` starts it"));
    });
}

#[test]
fn a_reply_is_found_by_its_tag_in_any_order() {
    let (_scratch, dir) = scratch();
    runtime().block_on(async {
        let listener = Listener::bind(&dir).unwrap();
        let daemon = async {
            let mut peer = listener.accept().await.unwrap();
            let greeting: Greeting = peer.receive().await.unwrap().unwrap();
            assert_eq!(
                greeting,
                Greeting {
                    protocol: PROTOCOL,
                    peer: Peer::Client
                }
            );
            let first: TaggedCommand = peer.receive().await.unwrap().unwrap();
            let second: TaggedCommand = peer.receive().await.unwrap().unwrap();
            for (tag, repeated) in [(second.tag, true), (first.tag, false)] {
                let result = Ok(Done::Answered { repeated });
                peer.send(&Reply { tag, result }).await.unwrap();
            }
        };
        let client = async {
            let mut client = Client::connect(&dir).await.unwrap();
            let first = client.send(Command::Ping).await.unwrap();
            assert_eq!(
                client.call(Command::Ping).await,
                Ok(Done::Answered { repeated: true })
            );
            let reply = client.reply().await.unwrap();
            assert_eq!(
                reply,
                Reply {
                    tag: first,
                    result: Ok(Done::Answered { repeated: false })
                }
            );
            assert!(matches!(client.reply().await, Err(CallError::Lost(_))));
        };
        tokio::join!(daemon, client);
    });
}

#[test]
fn the_next_program_that_is_the_daemon_is_told_the_same() {
    let (_scratch, dir) = scratch();
    runtime().block_on(async {
        let listener = Listener::bind(&dir).unwrap();
        // All are the same process, which holds the lock throughout.
        let lock = File::open(dir.root()).unwrap();
        lock.try_lock().unwrap();
        let daemons = async {
            // One has read the command, one is gone before.
            let mut peer = listener.accept().await.unwrap();
            peer.receive::<Greeting>().await.unwrap();
            let first: TaggedCommand = peer.receive().await.unwrap().unwrap();
            drop(peer);
            drop(listener.accept().await.unwrap());
            drop(listener);
            let listener = Listener::bind(&dir).unwrap();
            let mut peer = listener.accept().await.unwrap();
            peer.receive::<Greeting>().await.unwrap();
            let request: TaggedCommand = peer.receive().await.unwrap().unwrap();
            assert_eq!(request.command, first.command);
            peer.send(&Reply {
                tag: request.tag,
                result: Ok(Done::HandingOver),
            })
            .await
            .unwrap();
        };
        let client = async {
            let mut client = Client::connect(&dir).await.unwrap();
            client.call(Command::Ping).await
        };
        let ((), answer) = tokio::join!(daemons, client);
        assert_eq!(answer, Ok(Done::HandingOver));
    });
}

#[test]
fn a_daemon_that_is_lost_without_a_next_one_is_said_to_be_lost() {
    let (_scratch, dir) = scratch();
    runtime().block_on(async {
        let listener = Listener::bind(&dir).unwrap();
        let daemon = async {
            let mut peer = listener.accept().await.unwrap();
            peer.receive::<Greeting>().await.unwrap();
            peer.receive::<TaggedCommand>().await.unwrap();
            drop((peer, listener));
        };
        let client = async {
            let mut client = Client::connect(&dir).await.unwrap();
            client.call_and_wait(Command::Ping).await
        };
        let ((), answer) = tokio::join!(daemon, client);
        assert!(matches!(answer, Err(CallError::Lost(_))), "{answer:?}");
    });
}

#[test]
fn what_a_silent_daemon_was_asked_for_may_still_be_done() {
    let (_scratch, dir) = scratch();
    let name = teamd_shared::name::Name::new("alice").unwrap();
    for (command, may_be_done) in [
        (
            Command::Forget {
                name,
                discard: false,
            },
            true,
        ),
        (Command::Ping, false),
    ] {
        let silent = daemon(&dir, |_| None);
        let answer = runtime().block_on(async {
            let mut client = Client::connect(&dir).await.unwrap();
            client.call_for(Duration::from_millis(20), command).await
        });
        silent.join().unwrap();
        let error = CommandError::from(answer.unwrap_err());
        assert_eq!(error.code(), ExitCode::TimedOut);
        assert_eq!(
            error.message().ends_with("may still be done"),
            may_be_done,
            "{error}"
        );
        assert_eq!(
            error
                .next_step()
                .unwrap()
                .contains("`teamctl events --last 5`"),
            may_be_done,
            "{error:?}"
        );
    }
}
