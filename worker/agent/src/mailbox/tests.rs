use std::io::Write;

use super::*;

struct OwnInbox {
    _scratch: tempfile::TempDir,
    dir: Arc<TeamDir>,
    name: Name,
}

impl OwnInbox {
    fn new() -> Self {
        Self::of("alice")
    }

    fn of(name: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let name = Name::of_inbox(name).unwrap();
        inbox::create(&dir, &name).unwrap();
        Self {
            _scratch: scratch,
            dir,
            name,
        }
    }

    fn open(&self, position: Position) -> Mailbox {
        Mailbox::open(
            Arc::clone(&self.dir),
            &self.name,
            position,
            Vec::new(),
            Waking::ByDaemon,
        )
        .unwrap()
    }

    fn write(&self, lines: &str) {
        let path = self.dir.path(&TeamPath::inbox(&self.name));
        std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(lines.as_bytes())
            .unwrap();
    }
}

const HI: &str = "{\"type\":\"message\",\"from\":\"user\",\"content\":\"hi\"}\n";
const GONE: &str = "{\"type\":\"teammate_terminated\",\"from\":\"teamd\",\"name\":\"bob\"}\n";

#[test]
fn what_is_fetched_waits_until_it_is_taken() {
    let scene = OwnInbox::new();
    scene.write(HI);
    let mut mailbox = scene.open(Position::START);
    assert_eq!(mailbox.arrived().mail, Relevance::Work);
    mailbox.fetch();
    let taken = mailbox.take();
    let [Consumed::Messages { messages, behind }] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!((messages.len(), behind.offset), (1, HI.len() as u64));
    assert_eq!(mailbox.arrived().mail, Relevance::None);
    assert!(scene.open(*behind).take().is_empty());
}

#[test]
fn news_are_told_from_work() {
    let scene = OwnInbox::new();
    scene.write(GONE);
    let mut mailbox = scene.open(Position::START);
    assert_eq!(mailbox.arrived().mail, Relevance::News);
    scene.write(HI);
    mailbox.fetch();
    assert_eq!(mailbox.arrived().mail, Relevance::Work);
}

#[test]
fn a_line_that_is_no_message_parts_the_messages_around_it() {
    let scene = OwnInbox::new();
    scene.write(&[HI, "nonsense\n", HI, GONE].concat());
    let taken = scene.open(Position::START).take();
    let [
        Consumed::Messages {
            messages: first, ..
        },
        Consumed::Rejected { offset, behind, .. },
        Consumed::Messages { messages, .. },
    ] = &taken[..]
    else {
        panic!("{taken:?}")
    };
    assert_eq!((first.len(), messages.len()), (1, 2));
    assert_eq!(
        (*offset, behind.offset),
        (HI.len() as u64, (HI.len() + 9) as u64)
    );
}

#[test]
fn behind_a_repetition_nothing_is_left_to_read() {
    let scene = OwnInbox::new();
    let line = "{\"id\":\"01939b1e-0000-7000-8000-000000000001\",\"type\":\"message\",\"from\":\"user\",\"content\":\"hi\"}\n";
    scene.write(&line.repeat(2));
    let end = 2 * line.len() as u64;
    let mut mailbox = scene.open(Position::START);
    let taken = mailbox.take();
    let [Consumed::Messages { messages, behind }] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!((messages.len(), behind.offset), (1, end));
    // Also when it comes later, alone.
    scene.write(line);
    mailbox.fetch();
    assert_eq!(mailbox.arrived().mail, Relevance::News);
    let taken = mailbox.take();
    let [Consumed::Messages { messages, behind }] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(
        (messages.len(), behind.offset),
        (0, end + line.len() as u64)
    );
}

#[test]
fn a_truncated_inbox_is_told_and_read_from_its_beginning() {
    let scene = OwnInbox::new();
    scene.write(&HI.repeat(3));
    let mut mailbox = scene.open(Position::START);
    drop(mailbox.take());
    let path = scene.dir.path(&TeamPath::inbox(&scene.name));
    std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .unwrap();
    scene.write(HI);
    mailbox.fetch();
    let taken = mailbox.take();
    assert!(
        matches!(
            &taken[..],
            [Consumed::Restarted { .. }, Consumed::Messages { .. }]
        ),
        "{taken:?}"
    );
}

#[test]
fn a_deleted_inbox_is_made_again() {
    let scene = OwnInbox::new();
    let mut mailbox = scene.open(Position::START);
    let path = scene.dir.path(&TeamPath::inbox(&scene.name));
    std::fs::remove_file(&path).unwrap();
    mailbox.fetch();
    assert_eq!(
        (mailbox.arrived().mail, path.exists()),
        (Relevance::None, true)
    );
    scene.write(HI);
    mailbox.fetch();
    assert_eq!(mailbox.arrived().mail, Relevance::Work);
}

/// Long enough for any machine; only a test that fails waits for it.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

#[test]
fn what_takes_the_place_of_the_inbox_is_watched_before_it_is_read() {
    let scene = OwnInbox::new();
    let path = scene.dir.path(&TeamPath::inbox(&scene.name));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let open = Mailbox::open(
            Arc::clone(&scene.dir),
            &scene.name,
            Position::START,
            Vec::new(),
            Waking::Events,
        );
        let mut mailbox = open.unwrap();
        for round in 0..3 {
            std::fs::remove_file(&path).unwrap();
            // One look makes it again, watches it and reads it.
            while !path.exists() {
                tokio::time::timeout(LONG, mailbox.changed()).await.unwrap();
                mailbox.fetch();
            }
            scene.write(HI);
            while mailbox.arrived().mail == Relevance::None {
                tokio::time::timeout(LONG, mailbox.changed())
                    .await
                    .expect("a wake-up");
                mailbox.fetch();
            }
            assert!(!mailbox.needs_waking(), "round {round}");
            while mailbox.has_rest() {
                drop(mailbox.take());
            }
        }
    });
}

#[test]
fn an_inbox_that_can_be_watched_no_more_wants_the_daemon_to_wake_it() {
    let scene = OwnInbox::new();
    let path = scene.dir.path(&TeamPath::inbox(&scene.name));
    let mut mailbox = Mailbox::open(
        Arc::clone(&scene.dir),
        &scene.name,
        Position::START,
        Vec::new(),
        Waking::Events,
    )
    .unwrap();
    assert!(!mailbox.needs_waking());
    // A link to nothing can neither be watched nor made a file of.
    let link = path.with_extension("link");
    std::os::unix::fs::symlink("nothing", &link).unwrap();
    std::fs::rename(link, &path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LONG, mailbox.changed())
            .await
            .expect("a wake-up")
    });
    mailbox.fetch();
    assert!(mailbox.needs_waking());
    std::fs::remove_file(&path).unwrap();
    mailbox.fetch();
    scene.write(HI);
    mailbox.fetch();
    assert_eq!(mailbox.arrived().mail, Relevance::Work);
}

#[test]
fn an_inbox_that_is_not_watched_wants_the_daemon_to_wake_it() {
    let scene = OwnInbox::new();
    assert!(scene.open(Position::START).needs_waking());
    let open = |waking| {
        Mailbox::open(
            Arc::clone(&scene.dir),
            &scene.name,
            Position::START,
            Vec::new(),
            waking,
        )
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mailbox = open(Waking::Poll).unwrap();
        assert!(!mailbox.needs_waking());
        scene.write(HI);
        tokio::time::timeout(std::time::Duration::from_secs(20), mailbox.changed())
            .await
            .unwrap();
    });
}

#[test]
fn what_is_not_for_the_lead_agent_is_passed_over() {
    let scene = OwnInbox::of("lead");
    let own = "{\"type\":\"message\",\"from\":\"lead\",\"to\":\"user\",\"content\":\"hi\"}\n";
    scene.write(&format!("no message\n{own}{GONE}{own}"));
    let mut mailbox = scene.open(Position::START);
    assert_eq!(
        (mailbox.arrived().mail, mailbox.arrived().of_person),
        (Relevance::News, false)
    );
    let taken = mailbox.take();
    let [Consumed::Messages { messages, behind }] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        scene.open(*behind).take().is_empty(),
        "the position stands behind all of it"
    );
    scene.write("{\"type\":\"idle_notification\",\"from\":\"bob\"}\n");
    mailbox.fetch();
    assert_eq!(mailbox.arrived().mail, Relevance::Soon);
    scene.write(HI);
    mailbox.fetch();
    assert_eq!(
        (mailbox.arrived().mail, mailbox.arrived().of_person),
        (Relevance::Work, true)
    );
}

#[test]
fn what_is_said_of_a_line_that_is_no_message_is_where_it_is_kept() {
    let scene = OwnInbox::new();
    scene.write("nonsense\n");
    let mut mailbox = scene.open(Position::START);
    let taken = mailbox.take();
    let [Consumed::Rejected { rejection, .. }] = &taken[..] else {
        panic!("{taken:?}")
    };
    let notice = mailbox.reject(rejection);
    assert!(
        notice.contains("not JSON") && notice.ends_with("kept in inbox/alice.rejected.jsonl"),
        "{notice}"
    );
    let kept = scene.dir.path(&TeamPath::rejected(&scene.name));
    std::fs::remove_file(&kept).unwrap();
    std::fs::create_dir(&kept).unwrap();
    let notice = mailbox.reject(rejection);
    assert!(
        notice.contains("; it is only in the inbox (") && !notice.contains("kept"),
        "{notice}"
    );
}
