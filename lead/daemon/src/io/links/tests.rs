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

/// A team directory, which goes with what is returned, and its links: one to a host that is not
/// connected.
fn links_with_box() -> (tempfile::TempDir, Links, Name) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    dir.furnish().unwrap();
    let (inputs, _) = mpsc::channel(1);
    let mut links = Links::new(dir, inputs);
    let host = Name::new("box").unwrap();
    links.links.insert(host.clone(), link_to(&host));
    (scratch, links, host)
}

fn link_to(host: &Name) -> Link {
    Link {
        host: Host {
            name: host.clone(),
            way: HostWay::Ssh("box".to_owned()),
            allow_weak_sandbox: false,
            terms: HostTerms::default(),
        },
        home: Uuid::nil(),
        task: tokio::spawn(async {}),
        guests: None,
        _door: None,
        first_connection: 0,
        now: Arc::new(Notify::new()),
        wants_room: Arc::new(AtomicBool::new(false)),
        connection: None,
        intake: MailIntake::new("box"),
        last_to_lead: None,
    }
}

/// Connects a host. Returns what it is told.
fn connect(links: &mut Links, host: &Name) -> mpsc::Receiver<ToHost> {
    let (frames, told) = mpsc::channel(QUEUE);
    let cut = Arc::new(Notify::new());
    links.connected(host, 1, ("0".to_owned(), None), (frames, cut));
    told
}

#[tokio::test]
async fn a_second_question_does_not_hide_what_a_host_has_just_answered() {
    let (_scratch, mut links, host) = links_with_box();
    let mut told = connect(&mut links, &host);
    assert!(links.ask_vitals().is_empty(), "it has not said what it has");
    links.says_what_it_has(&host);
    let asked = Instant::now();
    assert_eq!(links.ask_vitals().len(), 1);
    let vitals = HostVitals {
        load: 0.5,
        processors: 2,
        memory: 1,
        memory_available: 1,
        memory_stalled: None,
        ends_at_logout: None,
        checkouts: Vec::new(),
    };
    links.has_vitals(&host, vitals.clone());
    assert_eq!(links.ask_vitals().len(), 1);
    assert_eq!(links.described(&host, asked), (None, Some(vitals)));
    assert_eq!(told.try_recv(), Ok(ToHost::SayVitals));
    let later = asked + std::time::Duration::from_secs(60);
    let no_answer = links.described(&host, later);
    assert_eq!(no_answer, (None, None));
}

/// What a host says that it has is of a time before the order: the incarnation would count as never
/// begun, and run there.
#[tokio::test]
async fn nothing_is_started_before_the_host_has_said_what_it_has() {
    let (_scratch, mut links, host) = links_with_box();
    let ordered = Ordered {
        environment: Environment::default(),
        writable: Vec::new(),
    };
    let start = |links: &mut Links| {
        let started = links.start(&host, &member(), &ordered).unwrap();
        started.is_some()
    };
    assert!(!start(&mut links), "there is no connection");
    let mut said = connect(&mut links, &host);
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
    let (_scratch, mut links, host) = links_with_box();
    let (frames, _said) = mpsc::channel(QUEUE);
    let number = next_number();
    let cut = Arc::new(Notify::new());
    links.connected(&host, number, ("0".to_owned(), None), (frames, cut));
    links.refused(&host);
    assert!(!links.disconnected(&host, number));
}
