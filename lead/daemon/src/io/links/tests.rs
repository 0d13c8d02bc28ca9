use std::path::Path;

use teamd_shared::host::HostTerms;
use teamd_shared::member::{Gate, Phase, Terms};
use teamd_shared::position::Position;

use super::*;

fn member() -> Member {
    Member {
        name: Name::new("alice").unwrap(),
        terms: Terms::of_workspace("~/work".to_owned()),
        incarnation: 2,
        conversation: 1,
        begins_at: Position::START,
        phase: Phase::Spawning,
        process: None,
        cgroup: None,
        gate: Gate::Open,
        ending: None,
        ending_note: None,
        restarts: Vec::new(),
        restarted: 1,
        silent_since: None,
        exit: None,
        spawned_at: 1.0,
        updated_at: 1.0,
    }
}

fn links_with_box(scratch: &Path) -> (Links, Name) {
    let dir = Arc::new(TeamDir::create(&scratch.join(".team")).unwrap());
    dir.furnish().unwrap();
    let (inputs, _heard) = mpsc::channel(1);
    let mut links = Links::new(dir, inputs);
    let host = Name::new("box").unwrap();
    let link = Link {
        host: Host {
            name: host.clone(),
            way: HostWay::Ssh("box".to_owned()),
            allow_weak_sandbox: false,
            terms: HostTerms::default(),
        },
        home: Uuid::nil(),
        task: tokio::spawn(async {}),
        guests: None,
        first_connection: 0,
        now: Arc::new(Notify::new()),
        wants_room: Arc::new(AtomicBool::new(false)),
        connection: None,
        intake: MailIntake::new("box"),
        last_to_lead: None,
    };
    links.links.insert(host.clone(), link);
    (links, host)
}

/// What a host says that it has is of a time before the order: the incarnation would count as never
/// begun, and run there.
#[tokio::test]
async fn nothing_is_started_before_the_host_has_said_what_it_has() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut links, host) = links_with_box(scratch.path());
    let ordered = Ordered {
        environment: Environment::default(),
        writable: Vec::new(),
    };
    let start = |links: &mut Links| {
        let started = links.start(&host, &member(), &ordered).unwrap();
        started.is_some()
    };
    assert!(!start(&mut links), "there is no connection");
    let (frames, mut said) = mpsc::channel(QUEUE);
    let cut = Arc::new(Notify::new());
    links.connected(&host, 1, ("0".to_owned(), None), (frames, cut));
    assert!(!start(&mut links), "it has not said what it has");
    assert!(said.try_recv().is_err());
    links.says_what_it_has(&host);
    assert!(start(&mut links));
    let frame = said.try_recv().unwrap();
    assert!(matches!(frame, ToHost::Start(_)), "{frame:?}");
}

/// The connection ends behind a refusal, and its end says less.
#[tokio::test]
async fn the_end_of_a_connection_does_not_take_the_place_of_a_refusal() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut links, host) = links_with_box(scratch.path());
    let (frames, _said) = mpsc::channel(QUEUE);
    let number = next_number();
    let cut = Arc::new(Notify::new());
    links.connected(&host, number, ("0".to_owned(), None), (frames, cut));
    links.refused(&host);
    assert!(!links.disconnected(&host, number));
}
