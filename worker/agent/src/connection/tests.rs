use teamd_shared::control::{Listener, ShutdownOrder, SpawnOrder, pair};

use super::task::Sent;
use super::*;

/// A lead agent's worker, and the daemon's end of its connection.
fn link(dir: &Arc<TeamDir>) -> (DaemonLink, Connection) {
    let (ours, theirs) = pair().unwrap();
    let identity = WorkerIdentity {
        name: Name::lead(),
        incarnation: 1,
    };
    let connection = Connection::from_fd(theirs).unwrap();
    let link = DaemonLink::start(connection, Arc::clone(dir), identity, Arc::default());
    (link, Connection::from_fd(ours).unwrap())
}

fn scratch() -> (tempfile::TempDir, Arc<TeamDir>) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    (scratch, dir)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The next question that the daemon is asked.
async fn asked(daemon: &mut Connection) -> TaggedCommand {
    loop {
        match daemon.receive().await.unwrap().unwrap() {
            FromWorker::Asks(request) => return request,
            _ => continue,
        }
    }
}

fn shutdown() -> Command {
    let name = Name::new("alice").unwrap();
    Command::Shutdown(ShutdownOrder {
        request_id: RequestId::from_bits(1),
        name,
        reason: String::new(),
        decide_within: 30.0,
        force_after: None,
        wait: false,
    })
}

fn answer_to_plan() -> Command {
    Command::Answer {
        request_id: RequestId::new("a1").unwrap(),
        approve: true,
        feedback: String::new(),
        permissions: None,
    }
}

fn spawn() -> Command {
    let order = Box::new(SpawnOrder::new(
        Name::new("alice").unwrap(),
        Environment::default(),
    ));
    Command::Spawn {
        id: RequestId::from_bits(2),
        order,
    }
}

#[test]
fn each_answer_reaches_its_asker() {
    let (_scratch, dir) = scratch();
    runtime().block_on(async {
        let (mut link, mut daemon) = link(&dir);
        let (first, to_first) = link.ask(Command::Ping);
        let (second, to_second) = link.ask(shutdown());
        assert_eq!(asked(&mut daemon).await.tag, first);
        assert_eq!(
            asked(&mut daemon).await,
            TaggedCommand {
                tag: second,
                command: shutdown()
            }
        );
        link.answered(second, Ok(Done::Answered { repeated: true }));
        link.answered(first, Ok(Done::Answered { repeated: false }));
        assert_eq!(
            to_first.await.unwrap(),
            Ok(Done::Answered { repeated: false })
        );
        assert_eq!(
            to_second.await.unwrap(),
            Ok(Done::Answered { repeated: true })
        );
        // One that no call waits for any more changes nothing.
        let (third, to_third) = link.ask(Command::Ping);
        link.give_up(third);
        link.answered(third, Ok(Done::Answered { repeated: false }));
        assert!(to_third.await.is_err());
    });
}

#[test]
fn a_daemon_that_comes_back_is_asked_the_same_again() {
    let (_scratch, dir) = scratch();
    runtime().block_on(async {
        let (mut link, mut daemon) = link(&dir);
        let (spawned, _to_spawn) = link.ask(spawn());
        let (leaves, _to_shutdown) = link.ask(shutdown());
        let (judged, _to_answer) = link.ask(answer_to_plan());
        for tag in [spawned, leaves, judged] {
            assert_eq!(asked(&mut daemon).await.tag, tag);
        }
        let listener = Listener::bind(&dir).unwrap();
        drop(daemon);
        assert!(matches!(link.next().await, LinkEvent::Disconnected));
        link.answered(leaves, Ok(Done::Answered { repeated: false }));
        let (late, _to_late) = link.ask(spawn());
        let mut daemon = listener.accept().await.unwrap();
        daemon.receive::<Greeting>().await.unwrap().unwrap();
        for tag in [spawned, judged, late] {
            assert_eq!(
                asked(&mut daemon).await.tag,
                tag,
                "only what is not answered"
            );
        }
    });
}

#[test]
fn an_answer_to_a_ping_is_for_the_daemon_that_asked() {
    let pong = |number| FromWorker::Pong { number };
    let mut announcement = announce().1.borrow().clone();
    let mut first = Sent::default();
    assert_eq!(first.frames(&announcement), [pong(0)]);
    announcement.change(answers_ping, Some(pong(7)));
    assert_eq!(first.frames(&announcement), [pong(7)]);
    announcement.change(|_| false, Some(FromWorker::Leaving));
    assert_eq!(
        first.frames(&announcement),
        [FromWorker::Leaving],
        "each frame once"
    );
    let mut next = Sent::greeted(&announcement);
    assert_eq!(next.frames(&announcement), [pong(0), FromWorker::Leaving]);
    announcement.change(answers_ping, Some(pong(7)));
    assert_eq!(
        next.frames(&announcement),
        [pong(7)],
        "its questions are counted anew"
    );
}
