use std::sync::atomic::{AtomicU32, Ordering};

use teamd_shared::inbox::UnreadMail;
use teamd_shared::message::{Body, Message};
use teamd_shared::team_dir::TeamPath;
use teamd_shared::transcript::{Entry, Event as Happened};
use uuid::Uuid;

use super::*;

struct Scratch {
    _scratch: tempfile::TempDir,
    dir: Arc<TeamDir>,
    alice: Name,
}

impl Scratch {
    /// An inbox with this text.
    fn with(inbox: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let scratch = Self {
            _scratch: scratch,
            dir,
            alice: Name::new("alice").unwrap(),
        };
        scratch.put(&TeamPath::inbox(&scratch.alice), inbox);
        scratch
    }

    fn put(&self, at: &TeamPath, text: &str) {
        teamd_shared::fs::replace(&self.dir, at, text.as_bytes()).unwrap();
    }

    /// The incarnation has begun, has read its inbox up to here, and was ended by SIGTERM.
    fn has_read(&self, inbox: Position) {
        self.has_consumed(&[], inbox);
    }

    /// The same, with the lines that it has consumed.
    fn has_consumed(&self, lines: &[&str], inbox: Position) {
        let life = Happened::Incarnation {
            incarnation: 1,
            conversation: 1,
            prompt: None,
            tools: teamd_shared::tool_set::ToolSet::default(),
        };
        let consumed = Happened::Messages {
            messages: lines
                .iter()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        };
        let left = Happened::Left {
            reason: "SIGTERM".to_owned(),
            incarnation: 1,
            by_signal: true,
            goes_on: false,
        };
        let line = |event| {
            serde_json::to_string(&Entry {
                at: 1.0,
                inbox,
                pending_notices: Vec::new(),
                call: None,
                model: None,
                event,
            })
            .unwrap()
        };
        self.put(
            &TeamPath::transcript(&self.alice),
            &format!("{}\n{}\n{}\n", line(life), line(consumed), line(left)),
        );
    }

    fn life(&self) -> Incarnation {
        Incarnation {
            name: self.alice.clone(),
            number: 1,
        }
    }
}

fn mail(text: &str) -> String {
    let message = Message::new(Uuid::new_v4(), "lead", "alice", 1.0, Body::Message)
        .with_content(text.to_owned());
    String::from_utf8(message.to_line().unwrap()).unwrap()
}

fn behind(text: &str) -> Position {
    Position::after(text.len() as u64, text.as_bytes())
}

#[test]
fn an_end_is_not_told_before_it_can_be_seen_what_was_not_read() {
    let read = mail("read");
    let unread = mail("unread");
    let inbox = format!("{read}{unread}");
    let team = Scratch::with(&inbox);
    team.has_read(behind(&read));
    let beginning = Beginning {
        at: Position::START,
        conversation: 1,
        returned_up_to: None,
    };
    let dir = Arc::clone(&team.dir);
    let life = team.life();
    let looks = Arc::new(AtomicU32::new(0));
    // No descriptor is left for a moment.
    let looking = move || {
        if looks.fetch_add(1, Ordering::Relaxed) < 3 {
            let source = rustix::io::Errno::MFILE.into();
            return Err(DirError::Io {
                verb: "open",
                path: "inbox".into(),
                source,
            }
            .into());
        }
        left(&dir, &life, beginning)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let left = runtime.block_on(look(&team.life(), looking));
    assert_eq!((left.unread.count, left.unread.end), (1, behind(&inbox)));
    assert_eq!(left.unread.mail.len(), 1);
    assert!(left.by_signal);
}

#[test]
fn what_cannot_be_read_is_no_answer_and_what_is_missing_is_one() {
    let read = mail("read");
    let team = Scratch::with(&read);
    let beginning = Beginning {
        at: Position::START,
        conversation: 1,
        returned_up_to: None,
    };
    let look = || left(&team.dir, &team.life(), beginning);
    let nothing = Left {
        unread: Unread::default(),
        by_signal: false,
    };
    assert_eq!(look().unwrap(), nothing, "no transcript");
    team.has_read(behind(&read));
    let path = |at: TeamPath| team.dir.path(&at);
    let inbox = path(TeamPath::inbox(&team.alice));
    std::fs::remove_file(&inbox).unwrap();
    let gone = Left {
        unread: Unread {
            end: behind(&read),
            ..Unread::default()
        },
        by_signal: true,
    };
    assert_eq!(look().unwrap(), gone, "no inbox");
    std::fs::create_dir(&inbox).unwrap();
    assert_eq!(look().unwrap(), gone, "something else");
    let transcript = path(TeamPath::transcript(&team.alice));
    std::fs::remove_file(&transcript).unwrap();
    std::fs::create_dir(&transcript).unwrap();
    assert!(look().is_err(), "no file");
}

#[test]
fn the_farewell_of_an_earlier_incarnation_does_not_count() {
    let team = Scratch::with("");
    team.has_read(Position::START);
    let beginning = Beginning {
        at: Position::START,
        conversation: 1,
        returned_up_to: None,
    };
    let of = |incarnation| {
        left(
            &team.dir,
            &Incarnation {
                number: incarnation,
                ..team.life()
            },
            beginning,
        )
        .unwrap()
    };
    assert!(of(1).by_signal);
    assert!(!of(2).by_signal, "it died before it could write anything");
}

#[test]
fn of_an_inbox_that_was_cut_only_what_came_since_counts() {
    let before = [mail("before"), mail("before")].concat();
    let read = mail("read");
    let unread = mail("unread");
    let team = Scratch::with(&format!("{read}{unread}"));
    team.has_read(behind(&read));
    let beginning = Beginning {
        at: behind(&before),
        conversation: 1,
        returned_up_to: None,
    };
    assert_eq!(
        left(&team.dir, &team.life(), beginning)
            .unwrap()
            .unread
            .count,
        1
    );
    // As long as the beginning stands there, nothing before it was its mail.
    team.put(&TeamPath::inbox(&team.alice), &format!("{before}{unread}"));
    let uncut = left(&team.dir, &team.life(), beginning).unwrap();
    assert_eq!(
        (uncut.unread.end, uncut.unread.count),
        (behind(&format!("{before}{unread}")), 1)
    );
}

/// A message of the person, with its id.
fn mail_with_id(id: u128, content: &str) -> String {
    let id = Uuid::from_u128(id);
    format!(
        "{{\"id\":\"{id}\",\"type\":\"message\",\"from\":\"user\",\"content\":\"{content}\"}}\n"
    )
}

#[test]
fn mail_that_has_come_back_and_a_line_written_twice_do_not_come_back() {
    let read = mail_with_id(1, "read");
    let unread = mail_with_id(2, "unread");
    let unnamed = "{\"type\":\"message\",\"from\":\"user\",\"content\":\"no id\"}\n";
    let lines = [&*read, &*read, &*unread, &*unread, unnamed];
    let team = Scratch::with(&lines.concat());
    team.has_consumed(&[&read], behind(&read));
    let beginning = |returned_up_to| Beginning {
        at: Position::START,
        conversation: 1,
        returned_up_to,
    };
    let unread = |returned| {
        left(&team.dir, &team.life(), beginning(returned))
            .unwrap()
            .unread
    };
    let first = unread(None);
    let expected = UnreadMail {
        id: Uuid::from_u128(2),
        from: "user".to_owned(),
        text: "unread".to_owned(),
    };
    assert_eq!(
        (first.count, first.mail, first.more),
        (4, vec![expected], 0)
    );
    let again = unread(Some(first.end));
    assert_eq!((again.count, again.mail), (4, vec![]));
}

#[test]
fn of_much_mail_the_first_hundred_come_back() {
    let inbox: String = (1..=130).map(|id| mail_with_id(id, "x")).collect();
    let team = Scratch::with(&inbox);
    team.has_read(Position::START);
    let beginning = Beginning {
        at: Position::START,
        conversation: 1,
        returned_up_to: None,
    };
    let unread = left(&team.dir, &team.life(), beginning).unwrap().unread;
    assert_eq!((unread.mail.len(), unread.more), (100, 30));
    assert_eq!(unread.mail[99].id, Uuid::from_u128(100));
}
