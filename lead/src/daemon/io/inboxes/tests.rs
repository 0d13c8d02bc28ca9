//! What is done once, what is done again, and when.

use teamd_shared::journal::{MemberRecord, Notice};
use teamd_shared::member::Member;
use teamd_shared::position::Position;
use uuid::Uuid;

use super::*;

/// A team of alice, bob and the lead, whose journal grows without a daemon.
struct Scene {
    _scratch: tempfile::TempDir,
    dir: TeamDir,
    team: Team,
    progress: Progress,
}

fn name(name: &str) -> Name {
    Name::of_inbox(name).unwrap()
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        for name in ["alice", "bob", "lead"].map(name) {
            inbox::create(&dir, &name).unwrap();
        }
        Self { _scratch: scratch, dir, team: Team::default(), progress: Progress::default() }
    }

    /// A line of which these are told.
    fn told(&mut self, event: MemberEvent, to: &[&str]) {
        let (name_of, seq) = ("carol", self.team.seq + 1);
        let member: Member = serde_json::from_value(serde_json::json!({
            "name": name_of, "role": "", "model": "script", "workspace": "/", "plan": false,
            "approve_by": "person", "restart": "never", "incarnation": 1, "conversation": 1,
            "begins_at": Position::START, "phase": "crashed", "gate": "open", "ending": null,
            "exit": {"code": 1, "signal": null, "at": 1.0, "request_id": null, "unread": 0, "inbox": Position::START},
            "spawned_at": 0.0, "updated_at": 0.0,
        }))
        .unwrap();
        let tell = to
            .iter()
            .zip(0_u64..)
            .map(|(to, at)| Notice { to: name(to), id: Uuid::from_u128(u128::from(seq * 100 + at)) });
        let record = MemberRecord { tell: tell.collect(), ..MemberRecord::of(event, member) };
        let record = Record::Member(Box::new(record));
        let done = self.team.done;
        self.team.undone.push_back(Line { seq, at: 1.0, version: None, done, lead: None, record });
        self.team.seq = seq;
    }

    fn go_on(&mut self, again: bool) -> Result<(), u64> {
        self.progress.go_on(&self.dir, &self.team, again).map_err(|(seq, _)| seq)
    }

    fn up_to(&self) -> u64 {
        self.progress.completion.up_to(&self.team)
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
    assert_eq!((scene.go_on(false), scene.up_to(), scene.lines("alice")), (Err(1), 0, 1));
    // A second look at what is told already would fail.
    scene.block("alice");
    assert_eq!(scene.go_on(false), Ok(()), "nothing is new, and it is not time to try again");
    assert_eq!(scene.go_on(true), Err(1));
    scene.told(MemberEvent::Silent, &["lead", "bob"]);
    assert_eq!((scene.go_on(false), scene.lines("lead")), (Err(3), 1), "behind the earlier line for bob");
    scene.unblock("bob");
    assert_eq!((scene.go_on(true), scene.up_to()), (Ok(()), 3));
    assert_eq!((scene.lines("bob"), scene.lines("lead")), (2, 1));
}

#[test]
fn an_end_that_the_lead_cannot_be_told_of_is_told_to_the_others_once() {
    let mut scene = Scene::new();
    scene.block("lead");
    scene.told(MemberEvent::Exited, &["lead", "alice"]);
    assert_eq!(scene.go_on(false), Err(1));
    scene.progress.tell_ended(&scene.dir, 9).unwrap();
    assert_eq!((scene.go_on(true), scene.lines("alice")), (Err(1), 1));
    assert!(!scene.progress.fan_out.is_waiting(), "what is told is not looked at again");
    scene.unblock("lead");
    assert_eq!((scene.go_on(true), scene.lines("lead"), scene.lines("alice")), (Ok(()), 1, 1));
}

#[test]
fn what_an_earlier_daemon_has_told_is_synced_before_it_counts_as_done() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Silent, &["alice"]);
    assert_eq!(scene.go_on(false), Ok(()));
    // It died before it could sync what it wrote.
    scene.progress = Progress::default();
    assert_eq!((scene.go_on(true), scene.lines("alice")), (Ok(()), 1));
    let sync = scene.progress.take_unsynced(&scene.team);
    assert_eq!((sync.names(), sync.up_to), (&[name("alice")][..], 1));
}

#[test]
fn an_end_does_not_count_as_done_before_all_are_told() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Exited, &["lead", "alice"]);
    assert_eq!((scene.go_on(false), scene.lines("lead"), scene.lines("alice")), (Ok(()), 1, 0));
    assert_eq!(scene.progress.take_unsynced(&scene.team).up_to, 0, "alice is still to be told");
    scene.progress.tell_ended(&scene.dir, 9).unwrap();
    assert_eq!((scene.lines("alice"), scene.progress.take_unsynced(&scene.team).up_to), (1, 1));
}

#[test]
fn what_an_earlier_daemon_may_have_told_is_not_told_twice() {
    let mut scene = Scene::new();
    scene.told(MemberEvent::Silent, &["alice", "bob"]);
    scene.block("bob");
    assert_eq!(scene.go_on(false), Err(1));
    scene.unblock("bob");
    scene.progress = Progress::default();
    assert_eq!((scene.go_on(true), scene.up_to()), (Ok(()), 1));
    assert_eq!((scene.lines("alice"), scene.lines("bob")), (1, 1));
}

#[test]
fn a_forget_is_not_done_before_the_move_into_the_archive_is_synced() {
    let mut scene = Scene::new();
    inbox::create(&scene.dir, &name("carol")).unwrap();
    scene.told(MemberEvent::Forgotten, &[]);
    scene.go_on(false).unwrap();
    assert!(!scene.dir.path(&TeamPath::inbox(&name("carol"))).exists());
    // A folder that cannot be synced.
    let (transcripts, away) = (scene.dir.root().join("transcript"), scene.dir.root().join("away"));
    std::fs::rename(&transcripts, &away).unwrap();
    std::os::unix::fs::symlink(&away, &transcripts).unwrap();
    let settle = |scene: &mut Scene| scene.progress.settle(&scene.dir, &scene.team, Durability::Disk);
    for _ in 0..2 {
        assert!(matches!(settle(&mut scene), Err(EffectError::Dir(DirError::Link(_)))));
    }
    std::fs::remove_file(&transcripts).unwrap();
    std::fs::rename(&away, &transcripts).unwrap();
    assert_eq!(settle(&mut scene).unwrap(), 1);
}
