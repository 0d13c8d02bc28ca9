//! How a file is made, replaced and edited.

use super::*;

#[test]
fn a_file_is_made_with_the_directories_that_are_missing() {
    let scratch = ScratchWorkspace::new();
    assert_eq!(
        scratch.write("a/b/c.txt", "héllo").unwrap(),
        "wrote 6 bytes to a/b/c.txt"
    );
    assert_eq!(scratch.get("a/b/c.txt"), "héllo");
    put(&scratch.path("by_hand"), "");
    let mode = |name: &str| scratch.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("a/b/c.txt"), mode("by_hand"));
    assert_eq!(
        scratch.write("a/b/c.txt", "").unwrap(),
        "wrote 0 bytes to a/b/c.txt"
    );
    assert_eq!(scratch.get("a/b/c.txt"), "");
    scratch.is_tidy();
}

#[test]
fn a_replaced_file_keeps_its_mode_and_its_owner() {
    let scratch = ScratchWorkspace::new();
    scratch.put("run.sh", "old");
    fs::set_permissions(scratch.path("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(scratch.path("run.sh"), Some(1234), Some(1235)).unwrap();
    }
    let before = scratch.path("run.sh").metadata().unwrap();
    scratch.write("run.sh", "new").unwrap();
    assert_ne!(
        scratch.path("run.sh").metadata().unwrap().ino(),
        before.ino(),
        "it is replaced, not written in place"
    );
    scratch.edit("run.sh", "new", "newer").unwrap();
    let after = scratch.path("run.sh").metadata().unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert_eq!(scratch.get("run.sh"), "newer");
    if !is_root {
        fs::set_permissions(scratch.path("run.sh"), fs::Permissions::from_mode(0o444)).unwrap();
        assert!(
            scratch
                .write("run.sh", "no")
                .unwrap_err()
                .contains("Permission denied")
        );
    }
}

#[test]
fn a_link_stays_and_the_file_that_it_names_is_replaced() {
    let scratch = ScratchWorkspace::new();
    scratch.put("data/real.txt", "old");
    scratch.link("link.txt", "data/real.txt");
    scratch.write("link.txt", "new").unwrap();
    scratch.edit("link.txt", "new", "newer").unwrap();
    assert_eq!(scratch.get("data/real.txt"), "newer");
    assert!(scratch.path("link.txt").is_symlink());
    // A link that leads to nothing yet makes what it names.
    scratch.link("dangling", "data/more/next.txt");
    scratch.write("dangling", "made").unwrap();
    assert_eq!(scratch.get("data/more/next.txt"), "made");
}

#[test]
fn other_hard_links_keep_the_old_content() {
    let scratch = ScratchWorkspace::new();
    fs::hard_link(scratch.folder.path().join("secret"), scratch.path("hard")).unwrap();
    scratch.write("hard", "changed").unwrap();
    assert_eq!(
        fs::read_to_string(scratch.folder.path().join("secret")).unwrap(),
        "outside"
    );
}

#[test]
fn an_edit_replaces_a_text_that_occurs_once() {
    let scratch = ScratchWorkspace::new();
    scratch.put("a.txt", "one\n  two\nthree\n");
    assert_eq!(
        scratch.edit("a.txt", "  two\n", "2\n").unwrap(),
        "edited a.txt at line 2"
    );
    assert_eq!(scratch.get("a.txt"), "one\n2\nthree\n");
    assert_eq!(
        scratch.edit("a.txt", "three", "").unwrap(),
        "edited a.txt at line 3"
    );
    assert_eq!(scratch.get("a.txt"), "one\n2\n\n");
    scratch.is_tidy();
}

#[test]
fn an_edit_that_cannot_be_made_says_why_and_changes_nothing() {
    let scratch = ScratchWorkspace::new();
    let content = "fn a() {\n    b();\n}\naaa\n";
    scratch.put("a.rs", content);
    for (old, new, error) in [
        ("zzz", "x", "old_text not found in a.rs"),
        (
            "fn a() {\n\tb();\n}",
            "x",
            "old_text not found in a.rs, where it has other white space: read the file and copy it exactly",
        ),
        ("a", "x", "old_text occurs 4 times in a.rs: make it unique"),
        // Places that overlap are two.
        ("aa", "x", "old_text occurs 2 times in a.rs: make it unique"),
        ("", "x", "old_text is empty: use write_file to make a file"),
        ("b();", "b();", "old_text and new_text are the same"),
        ("  \n\n\n", "x", "old_text not found in a.rs"),
    ] {
        assert_eq!(scratch.edit("a.rs", old, new).unwrap_err(), error);
    }
    assert_eq!(scratch.get("a.rs"), content);
    assert!(
        scratch
            .edit("missing", "a", "b")
            .unwrap_err()
            .starts_with("cannot open missing: No such file")
    );
    scratch.is_tidy();
}

#[test]
fn readers_see_the_old_file_or_the_new_one() {
    let scratch = ScratchWorkspace::new();
    let contents = ["a".repeat(100_000), "b".repeat(200_000)];
    scratch.put("file", &contents[0]);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for content in contents.iter().cycle().take(200) {
                scratch.write("file", content).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let seen = scratch.get("file");
            assert!(contents.contains(&seen), "{} bytes", seen.len());
        }
    });
}

#[test]
fn what_a_killed_call_has_left_is_removed_by_the_next() {
    let scratch = ScratchWorkspace::new();
    let left = scratch.workspace.temporary.clone();
    // By the next incarnation, which knows the call that was broken off.
    scratch.put(&format!("a/{left}"), "half a fi");
    scratch.workspace.clear_up("a/b.txt").unwrap();
    scratch.workspace.clear_up("a/b.txt").unwrap();
    scratch.is_tidy();
    // By the next call beside it.
    scratch.put(&left, "half a fi");
    scratch.write("c.txt", "whole").unwrap();
    assert_eq!(scratch.get("c.txt"), "whole");
    scratch.is_tidy();
    // Something else in that place is not removed.
    fs::create_dir(scratch.path(&left)).unwrap();
    assert!(
        scratch
            .write("d.txt", "whole")
            .unwrap_err()
            .starts_with("cannot write d.txt")
    );
    assert!(scratch.workspace.clear_up("d.txt").is_err());
    fs::remove_dir(scratch.path(&left)).unwrap();
}
