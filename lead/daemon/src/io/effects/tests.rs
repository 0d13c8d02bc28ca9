//! What is done once, what is done again, and when.

use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Notice, Record};
use teamd_shared::member::Member;
use teamd_shared::position::Position;
use teamd_shared::testing::journal_member;
use uuid::Uuid;

use super::*;

/// A team of alice, bob and the lead, whose journal grows without a daemon.
struct Scene {
    _scratch: tempfile::TempDir,
    dir: Arc<TeamDir>,
    team: Team,
    effects: Effects,
}

fn name(name: &str) -> Name {
    Name::of_inbox(name).unwrap()
}

fn new_effects(dir: &Arc<TeamDir>) -> Effects {
    Effects::new(Arc::clone(dir), Durability::Disk)
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        for name in ["alice", "bob", "lead"].map(name) {
            inbox::create(&dir, &name).unwrap();
        }
        let effects = new_effects(&dir);
        Self {
            _scratch: scratch,
            dir,
            team: Team::default(),
            effects,
        }
    }

    /// A line of which these are told.
    fn told(&mut self, event: MemberEvent, to: &[&str]) {
        let name_of = "carol";
        let seq = self.team.seq + 1;
        let member: Member = serde_json::from_value(journal_member(&serde_json::json!({
            "name": name_of, "phase": "crashed",
            "exit": {"code": 1, "signal": null, "at": 1.0, "request_id": null, "unread": 0, "inbox": Position::START},
        })))
        .unwrap();
        let tell = to.iter().zip(0_u64..).map(|(to, at)| Notice {
            to: name(to),
            id: Uuid::from_u128(u128::from(seq * 100 + at)),
        });
        let record = MemberRecord {
            tell: tell.collect(),
            ..MemberRecord::of(event, member)
        };
        let record = Record::Member(Box::new(record));
        let done = self.team.done;
        self.team.undone.push_back(Line {
            seq,
            at: 1.0,
            version: None,
            done,
            lead: None,
            record,
        });
        self.team.seq = seq;
    }

    /// Does the effects that are waited for; true if none failed.
    fn go_on(&mut self, again: bool) -> bool {
        let urgent = self.effects.complete(&self.team, again).is_ok();
        // What is tried again is not urgent any more.
        urgent && (!again || self.effects.do_some().is_ok())
    }

    fn up_to(&self) -> u64 {
        self.effects.queues.up_to()
    }

    /// Takes an inbox away, and puts a directory there, or brings it back.
    fn block(&self, who: &str) {
        let at = self.dir.path(&TeamPath::inbox(&name(who)));
        std::fs::rename(&at, at.with_extension("away")).unwrap();
        std::fs::create_dir(&at).unwrap();
    }

    fn unblock(&self, who: &str) {
        let at = self.dir.path(&TeamPath::inbox(&name(who)));
        std::fs::remove_dir(&at).unwrap();
        std::fs::rename(at.with_extension("away"), &at).unwrap();
    }

    fn lines(&self, who: &str) -> usize {
        let inbox = self.dir.read(&TeamPath::inbox(&name(who))).unwrap();
        inbox.iter().filter(|&&byte| byte == b'\n').count()
    }
}

#[test]
fn one_inbox_that_cannot_be_written_does_not_make_the_others_be_looked_at_again() {
    let mut scene = Scene::new();
    scene.block("bob");
    scene.told(MemberEvent::Silent, &["bob"]);
    scene.told(MemberEvent::Silent, &["alice"]);
    assert_eq!(
        (scene.go_on(false), scene.up_to(), scene.lines("alice")),
        (false, 0, 1)
    );
    // A second look at what is told already would fail.
    scene.block("alice");
    assert!(
        scene.go_on(false),
        "nothing is new, and it is not time to try again"
    );
    assert!(!scene.go_on(true));
    scene.told(MemberEvent::Silent, &["lead", "bob"]);
    assert!(
        scene.go_on(false),
        "the new line for bob waits behind the earlier one"
    );
    assert_eq!((scene.up_to(), scene.lines("lead")), (0, 1));
    scene.unblock("bob");
    assert_eq!((scene.go_on(true), scene.up_to()), (true, 3));
    assert_eq!((scene.lines("bob"), scene.lines("lead")), (2, 1));
}

#[test]
fn an_end_that_the_lead_cannot_be_told_of_is_told_to_the_others_once() {
    let mut scene = Scene::new();
    scene.block("lead");
    scene.told(MemberEvent::Exited, &["lead", "alice"]);
    assert!(!scene.go_on(false));
    scene.effects.do_some().unwrap();
    assert_eq!((scene.go_on(true), scene.lines("alice")), (false, 1));
    assert!(
        !scene.effects.is_waiting(),
        "what is told is not looked at again"
    );
    scene.unblock("lead");
    assert_eq!(
        (scene.go_on(true), scene.lines("lead"), scene.lines("alice")),
        (true, 1, 1)
    );
}

#[test]
fn what_an_earlier_daemon_has_told_is_synced_before_it_counts_as_done() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Silent, &["alice"]);
    assert!(scene.go_on(false));
    // It died before it could sync what it wrote.
    scene.effects = new_effects(&scene.dir);
    assert_eq!((scene.go_on(true), scene.lines("alice")), (true, 1));
    let unsynced = scene.effects.take_unsynced();
    assert_eq!(
        (unsynced.inboxes, unsynced.up_to),
        (BTreeSet::from([name("alice")]), 1)
    );
}

#[test]
fn an_end_does_not_count_as_done_before_all_are_told() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Exited, &["lead", "alice"]);
    assert_eq!(
        (
            scene.go_on(false),
            scene.lines("lead"),
            scene.lines("alice")
        ),
        (true, 1, 0)
    );
    assert_eq!(scene.up_to(), 0, "alice is still to be told");
    scene.effects.do_some().unwrap();
    assert_eq!((scene.lines("alice"), scene.up_to()), (1, 1));
}

#[test]
fn what_an_earlier_daemon_may_have_told_is_not_told_twice() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Silent, &["alice", "bob"]);
    scene.block("bob");
    assert!(!scene.go_on(false));
    scene.unblock("bob");
    scene.effects = new_effects(&scene.dir);
    assert_eq!((scene.go_on(true), scene.up_to()), (true, 1));
    assert_eq!((scene.lines("alice"), scene.lines("bob")), (1, 1));
}

#[test]
fn what_comes_together_is_written_together_and_in_order() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Exited, &["alice"]);
    scene.told(MemberEvent::Exited, &["alice", "bob"]);
    assert!(scene.go_on(false));
    scene.told(MemberEvent::Silent, &["alice"]);
    assert!(
        scene.go_on(false),
        "what is urgent takes along what came before it"
    );
    assert_eq!(
        (scene.lines("alice"), scene.lines("bob"), scene.up_to()),
        (3, 0, 1)
    );
    let inbox = scene.dir.read(&TeamPath::inbox(&name("alice"))).unwrap();
    let told = |line: &[u8]| serde_json::from_slice::<serde_json::Value>(line).unwrap();
    let whole = inbox
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty());
    let ids: Vec<_> = whole
        .map(|line| told(line)["id"].as_str().unwrap()[33..].to_owned())
        .collect();
    assert_eq!(ids, ["064", "0c8", "12c"]);
    assert!(
        inbox
            .split(|&byte| byte == b'\n')
            .filter(|l| !l.is_empty())
            .all(|l| told(l)["to"] == "alice")
    );
}

#[test]
fn a_forgotten_member_is_told_nothing() {
    let mut scene = Scene::new();
    scene.dir.remove(&TeamPath::inbox(&name("alice"))).unwrap();
    scene.told(MemberEvent::Exited, &["alice", "bob"]);
    assert!(scene.go_on(false) && scene.effects.do_some().is_ok());
    assert_eq!((scene.lines("bob"), scene.up_to()), (1, 1));
    assert!(
        scene
            .dir
            .identity(&TeamPath::inbox(&name("alice")))
            .unwrap()
            .is_none(),
        "none is made for it"
    );
}

#[test]
fn a_forget_is_not_done_before_the_move_into_the_archive_is_synced() {
    let mut scene = Scene::new();
    inbox::create(&scene.dir, &name("carol")).unwrap();
    scene.told(MemberEvent::Forgotten, &[]);
    assert!(scene.go_on(false));
    assert!(!scene.dir.path(&TeamPath::inbox(&name("carol"))).exists());
    // A folder that cannot be synced.
    let transcripts = scene.dir.root().join("transcript");
    let away = scene.dir.root().join("away");
    std::fs::rename(&transcripts, &away).unwrap();
    std::os::unix::fs::symlink(&away, &transcripts).unwrap();
    for _ in 0..2 {
        assert!(scene.effects.finish().is_err());
    }
    std::fs::remove_file(&transcripts).unwrap();
    std::fs::rename(&away, &transcripts).unwrap();
    assert_eq!(scene.effects.finish().unwrap(), 1);
}
