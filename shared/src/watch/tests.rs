use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use notify::event::{AccessKind, AccessMode, DataChange, Flag, MetadataKind};
use tokio::time::timeout;

use super::*;

/// Long enough for any machine; only a failing test waits that long.
const LONG: Duration = Duration::from_secs(10);
/// Long enough for a wake-up that must not come to come.
const SHORT: Duration = Duration::from_secs(1);

fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(test)
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("alice.jsonl");
    File::create(&path).unwrap();
    (scratch, path)
}

fn append(path: &Path) {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
        .write_all(b"x\n")
        .unwrap();
}

async fn woken(watch: &Watch) {
    timeout(LONG, watch.changed()).await.expect("a wake-up");
}

async fn silent(watch: &Watch) {
    assert!(
        timeout(SHORT, watch.changed()).await.is_err(),
        "a wake-up for nothing"
    );
}

/// Takes the wake-ups that are on their way, until there are none for a while.
async fn settle(watch: &Watch) {
    while timeout(SHORT, watch.changed()).await.is_ok() {}
}

#[test]
fn an_append_wakes() {
    for force_poll in [false, true] {
        let (_scratch, path) = scratch();
        run(async {
            let watch = Watch::file(&path, force_poll).unwrap();
            assert_eq!(watch.polls(), force_poll);
            for _ in 0..3 {
                append(&path);
                woken(&watch).await;
            }
        });
    }
}

#[test]
fn what_was_appended_before_the_wait_wakes() {
    for force_poll in [false, true] {
        let (_scratch, path) = scratch();
        run(async {
            let watch = Watch::folder(path.parent().unwrap(), force_poll).unwrap();
            append(&path);
            woken(&watch).await;
            assert_eq!(
                watch.take(),
                Changes::Files(["alice.jsonl".to_owned()].into())
            );
            assert_eq!(watch.take(), Changes::default());
        });
    }
}

#[test]
fn reading_does_not_wake() {
    for force_poll in [false, true] {
        let (_scratch, path) = scratch();
        run(async {
            for folder in [false, true] {
                let watch = if folder {
                    Watch::folder(path.parent().unwrap(), force_poll).unwrap()
                } else {
                    Watch::file(&path, force_poll).unwrap()
                };
                // One append is one wake-up, however late it comes.
                append(&path);
                woken(&watch).await;
                for _ in 0..10 {
                    File::open(&path)
                        .unwrap()
                        .read_to_end(&mut Vec::new())
                        .unwrap();
                }
                silent(&watch).await;
                append(&path);
                woken(&watch).await;
            }
        });
    }
}

#[test]
fn the_end_of_a_writer_wakes_where_that_counts() {
    let (_scratch, path) = scratch();
    run(async {
        let mut writer = File::options().append(true).open(&path).unwrap();
        let folder = path.parent().unwrap();
        let ends = Watch::folder_and_ends(folder, false).unwrap();
        let files = Watch::folder(folder, false).unwrap();
        writer.write_all(b"x\n").unwrap();
        woken(&ends).await;
        woken(&files).await;
        ends.take();
        drop(writer);
        woken(&ends).await;
        assert_eq!(
            ends.take(),
            Changes::Files(["alice.jsonl".to_owned()].into())
        );
        silent(&files).await;
    });
}

/// The reader of an inbox keeps it open, others do not: the system tells it differently.
#[test]
fn a_file_that_is_renamed_over_is_watched_again() {
    for (force_poll, keep_open) in [(false, false), (false, true), (true, false)] {
        let (_scratch, path) = scratch();
        run(async {
            let mut kept = keep_open.then(|| File::open(&path).unwrap());
            let mut watch = Watch::file(&path, force_poll).unwrap();
            for _ in 0..3 {
                append(&path.with_extension("new"));
                std::fs::rename(path.with_extension("new"), &path).unwrap();
                woken(&watch).await;
                assert_eq!(watch.rearm_if_needed().unwrap(), !force_poll);
                kept = kept.map(|_| File::open(&path).unwrap());
                // A wake-up that belongs to the dead file may come late, and means one look too
                // many.
                settle(&watch).await;
                watch.rearm_if_needed().unwrap();
                append(&path);
                woken(&watch).await;
                assert!(!watch.rearm_if_needed().unwrap());
            }
        });
    }
}

#[test]
fn a_file_that_is_gone_is_watched_again_when_it_is_back() {
    let (_scratch, path) = scratch();
    run(async {
        let mut watch = Watch::file(&path, false).unwrap();
        std::fs::remove_file(&path).unwrap();
        woken(&watch).await;
        for _ in 0..2 {
            assert!(matches!(
                watch.rearm_if_needed(),
                Err(WatchError::Missing(_))
            ));
        }
        File::create(&path).unwrap();
        assert!(watch.rearm_if_needed().unwrap());
        append(&path);
        woken(&watch).await;
    });
}

#[test]
fn a_folder_tells_which_files_have_changed() {
    for force_poll in [false, true] {
        let (scratch, path) = scratch();
        run(async {
            let watch = Watch::folder(scratch.path(), force_poll).unwrap();
            append(&path);
            append(&scratch.path().join("bob.jsonl"));
            std::fs::rename(
                scratch.path().join("bob.jsonl"),
                scratch.path().join("carol.jsonl"),
            )
            .unwrap();
            let mut seen = BTreeSet::new();
            while !(seen.contains("alice.jsonl") && seen.contains("carol.jsonl")) {
                woken(&watch).await;
                let Changes::Files(files) = watch.take() else {
                    panic!("too much")
                };
                seen.extend(files);
            }
        });
    }
}

#[test]
fn a_wait_that_is_given_up_does_not_put_the_next_look_off() {
    let (_scratch, path) = scratch();
    run(async {
        let watch = Watch::file(&path, true).unwrap();
        append(&path);
        let patient = async { while timeout(POLL_EVERY / 10, watch.changed()).await.is_err() {} };
        timeout(LONG, patient).await.unwrap();
    });
}

#[test]
fn what_is_not_there_cannot_be_watched() {
    let (scratch, _path) = scratch();
    for force_poll in [false, true] {
        let error =
            run(async { Watch::file(&scratch.path().join("none"), force_poll).unwrap_err() });
        assert!(matches!(error, WatchError::Missing(_)), "{error}");
    }
}

fn target(folder: bool) -> WatchTarget {
    WatchTarget {
        path: PathBuf::from("/t/inbox"),
        folder,
        names: false,
        closes: false,
    }
}

/// What an event leaves behind: whether the watch may be dead, and what has changed.
fn heard(folder: bool, kind: EventKind, path: &str) -> (bool, Changes) {
    let signal = Signal::default();
    target(folder).take(Ok(Event::new(kind).add_path(path.into())), &signal);
    let pending = signal.pending.into_inner().unwrap();
    (pending.stale, pending.changes)
}

#[test]
fn events_of_readers_are_not_heard() {
    let nothing = (false, Changes::default());
    let open = EventKind::Access(AccessKind::Open(AccessMode::Any));
    let close = EventKind::Access(AccessKind::Close(AccessMode::Write));
    for kind in [open, close] {
        assert_eq!(heard(true, kind, "/t/inbox/a"), nothing);
        assert_eq!(heard(false, kind, "/t/inbox"), nothing);
    }
    let chmod = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
    assert_eq!(heard(true, chmod, "/t/inbox/a"), nothing);
    assert_eq!(
        heard(false, chmod, "/t/inbox"),
        (true, Changes::Files(["inbox".to_owned()].into()))
    );
}

#[test]
fn who_watches_names_hears_of_no_line_that_is_appended() {
    let heard = |kind| {
        let signal = Signal::default();
        let target = WatchTarget {
            names: true,
            closes: true,
            ..target(true)
        };
        target.take(Ok(Event::new(kind).add_path("/t/inbox/a".into())), &signal);
        signal.pending.into_inner().unwrap().changes != Changes::default()
    };
    assert!(!heard(EventKind::Modify(ModifyKind::Data(DataChange::Any))));
    assert!(!heard(EventKind::Access(AccessKind::Close(
        AccessMode::Read
    ))));
    assert!(heard(EventKind::Access(AccessKind::Close(
        AccessMode::Write
    ))));
    assert!(heard(EventKind::Remove(notify::event::RemoveKind::File)));
    assert!(heard(EventKind::Modify(ModifyKind::Name(
        notify::event::RenameMode::To
    ))));
}

#[test]
fn lost_events_mean_that_anything_may_have_changed() {
    let signal = Signal::default();
    let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    target(true).take(Ok(lost), &signal);
    let pending = signal.pending.into_inner().unwrap();
    assert_eq!((pending.stale, pending.changes), (true, Changes::Anything));
    let gone = EventKind::Remove(notify::event::RemoveKind::Folder);
    assert_eq!(heard(true, gone, "/t/inbox"), (true, Changes::Anything));
}

#[test]
fn changes_that_are_not_taken_do_not_pile_up() {
    let signal = Signal::default();
    let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    for number in 0..=MAX_FILES {
        target(true).take(
            Ok(Event::new(data).add_path(format!("/t/inbox/{number}").into())),
            &signal,
        );
    }
    assert_eq!(
        signal.pending.into_inner().unwrap().changes,
        Changes::Anything
    );
}

#[test]
fn a_user_without_instances_is_told_apart() {
    for errno in [nix::errno::Errno::EMFILE, nix::errno::Errno::ENOSPC] {
        let error = target(false).cannot_watch(notify::Error::io(errno.into()));
        assert!(matches!(error, WatchError::Exhausted(_)), "{error}");
    }
    let error = target(false).cannot_watch(notify::Error::io(nix::errno::Errno::EACCES.into()));
    assert!(matches!(error, WatchError::Refused { .. }), "{error}");
}
