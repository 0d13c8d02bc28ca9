//! Paths that try to get out, and what the tools say.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use teamd_shared::team_dir::TeamDir;

use super::*;

/// A workspace with a team directory in it, and a secret beside it.
struct Scratch {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("desk");
        fs::create_dir(&root).unwrap();
        let team_dir = Arc::new(TeamDir::create(&root.join(".team")).unwrap());
        put(&folder.path().join("secret"), "outside");
        Self { workspace: Workspace::open(&root, team_dir).unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("desk").join(name)
    }

    fn put(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        put(&self.path(name), content);
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(name)).unwrap();
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.read_from(path, None, None)
    }

    fn read_from(&self, path: &str, offset: Option<u64>, limit: Option<u64>) -> Result<String, String> {
        self.workspace.read(path, offset, limit).map_err(|error| error.to_string())
    }

    fn guide(&self, most: usize) -> Guide {
        self.workspace.guide(most).unwrap()
    }

    fn write(&self, path: &str, content: &str) -> Result<String, String> {
        self.workspace.write(path, content).map_err(|error| error.to_string())
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        self.workspace.edit(path, old, new).map_err(|error| error.to_string())
    }

    /// Asserts that no tool gets through a path, and with what words.
    fn refused(&self, path: &str, why: &str) {
        let tries = [self.read(path), self.write(path, "x"), self.edit(path, "outside", "x")];
        for (result, tool) in tries.into_iter().zip(["read", "write", "edit"]) {
            let error = result.expect_err(&format!("{tool} {path}"));
            assert!(error.contains(why), "{tool} {path}: {error}");
        }
        assert_eq!(fs::read_to_string(self.folder.path().join("secret")).unwrap(), "outside");
    }

    /// Asserts that no temporary file is left anywhere.
    fn is_tidy(&self) {
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                assert!(!entry.file_name().to_string_lossy().ends_with(".tmp"), "{:?} is left", entry.path());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
            }
        }
    }
}

fn put(path: &Path, content: &str) {
    File::create(path).unwrap().write_all(content.as_bytes()).unwrap();
}

#[test]
fn a_path_may_be_relative_absolute_or_lead_through_links_inside() {
    let scratch = Scratch::new();
    scratch.put("a/b/c.txt", "inside\n");
    scratch.put("top.txt", "top\n");
    scratch.link("short", "a/b");
    scratch.link("a/up", "../top.txt");
    scratch.link("a/absolute", scratch.path("top.txt"));
    scratch.link("a/chain", "../short/../../a/up");
    let absolute = scratch.path("a/b/c.txt");
    for (path, content) in [
        ("a/b/c.txt", "inside\n"),
        ("./a//b/./c.txt", "inside\n"),
        ("a/b/../../top.txt", "top\n"),
        (absolute.to_str().unwrap(), "inside\n"),
        ("short/c.txt", "inside\n"),
        ("short/../up", "top\n"),
        ("a/absolute", "top\n"),
        ("a/chain", "top\n"),
    ] {
        assert_eq!(scratch.read(path).as_deref(), Ok(content), "{path}");
    }
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let scratch = Scratch::new();
    scratch.put("a/b/c.txt", "");
    scratch.link("up", "..");
    scratch.link("direct", "../secret");
    scratch.link("a/deep", "b/../../../secret");
    scratch.link("absolute", scratch.folder.path().join("secret"));
    scratch.link("root", "/");
    scratch.link("self", "/proc/self/cwd");
    scratch.link("first", "second");
    scratch.link("second", "../secret");
    let secret = scratch.folder.path().join("secret").to_string_lossy().into_owned();
    let sneaky = format!("{}/../secret", scratch.path("").display());
    for path in [
        "../secret",
        "a/../../secret",
        "a/b/../../../secret",
        "..",
        "/etc/passwd",
        &secret,
        &sneaky,
        "up/secret",
        "direct",
        "a/deep",
        "absolute",
        "root/etc/passwd",
        "self/secret",
        "first",
        "../desk/a/b/c.txt",
    ] {
        scratch.refused(path, "leads out of the workspace");
    }
    // A name that only begins like the workspace is another one.
    scratch
        .refused(&format!("{}x", scratch.path("").display().to_string().trim_end_matches('/')), "leads out");
}

#[test]
fn links_in_a_circle_end() {
    let scratch = Scratch::new();
    scratch.link("a", "b");
    scratch.link("b", "a");
    scratch.link("c", "c/x");
    scratch.refused("a", "more than 40 links");
    scratch.refused("c", "more than 40 links");
}

#[test]
fn no_path_leads_into_the_team_directory() {
    let scratch = Scratch::new();
    scratch.put(".team/inbox/alice.jsonl", "outside");
    scratch.link("team", ".team");
    scratch.link("inbox", ".team/inbox");
    scratch.link("mail", ".team/inbox/alice.jsonl");
    scratch.link("absolute", scratch.path(".team"));
    let absolute = scratch.path(".team/inbox/alice.jsonl").to_string_lossy().into_owned();
    for path in [
        ".team/inbox/alice.jsonl",
        "./.team/../.team/inbox/alice.jsonl",
        ".team/new.txt",
        ".team",
        ".team/missing/file",
        "team/inbox/alice.jsonl",
        "inbox/alice.jsonl",
        "inbox/../../.team/inbox/alice.jsonl",
        "mail",
        "absolute/inbox/alice.jsonl",
        &absolute,
    ] {
        scratch.refused(path, "leads into the team directory");
    }
    assert_eq!(scratch.get(".team/inbox/alice.jsonl"), "outside");
    assert!(!scratch.path(".team/new.txt").exists() && !scratch.path(".team/missing").exists());
}

#[test]
fn a_team_directory_elsewhere_is_refused_by_its_link_and_its_folders_by_their_inodes() {
    let folder = tempfile::tempdir().unwrap();
    let (work, state) = (folder.path().join("desk"), folder.path().join("state"));
    fs::create_dir(&work).unwrap();
    let team_dir = Arc::new(TeamDir::create(&state).unwrap());
    symlink(&state, work.join(".team")).unwrap();
    let workspace = Workspace::open(&work, Arc::clone(&team_dir)).unwrap();
    let error = workspace.write(".team/config.json", "{}").unwrap_err();
    assert!(matches!(error, FileError::TeamDir(_)), "{error}");
    // As with a bind mount: the folder itself is inside the workspace, under another name.
    fs::rename(state.join("inbox"), work.join("letters")).unwrap();
    symlink(work.join("letters"), state.join("inbox")).unwrap();
    assert!(workspace.write("letters/a", "").is_ok(), "a link in the team directory is none of its folders");
    fs::remove_file(state.join("inbox")).unwrap();
    let error = Workspace::open(&state.join("log"), Arc::clone(&team_dir)).unwrap_err();
    assert!(matches!(error, FileError::TeamDir(_)), "{error}");
    let error = Workspace::open(&folder.path().join("missing"), team_dir).unwrap_err();
    assert!(error.to_string().starts_with("cannot open the workspace "), "{error}");
}

#[test]
fn a_directory_that_is_swapped_for_a_link_out_leads_nobody_out() {
    let scratch = Scratch::new();
    let outside = scratch.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    put(&outside.join("file"), "outside");
    scratch.put("real/file", "inside");
    scratch.link("trap", &outside);
    scratch.put("spare/file", "inside");
    let done = AtomicBool::new(false);
    let (real, trap) = (scratch.path("real"), scratch.path("trap"));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &real, rustix::fs::CWD, &trap, flags).unwrap();
            }
        });
        let begun = Instant::now();
        let (mut inside, mut refused) = (0, 0);
        while begun.elapsed() < Duration::from_secs(1) || inside == 0 || refused == 0 {
            match scratch.read("real/file") {
                Ok(content) => {
                    assert!(content.starts_with("inside"), "{content:?}");
                    inside += 1;
                }
                Err(_) => refused += 1,
            }
            drop(scratch.write("real/file", "inside, written"));
            drop(scratch.write("real/new", "inside, new"));
            drop(scratch.edit("real/file", "inside", "inside"));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "outside");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
    scratch.is_tidy();
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let scratch = Scratch::new();
    let begun = Instant::now();
    nix::unistd::mkfifo(&scratch.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path("socket")).unwrap();
    fs::create_dir(scratch.path("folder")).unwrap();
    scratch.link("to_folder", "folder");
    scratch.put("plain", "x");
    scratch.refused("fifo", "fifo is not a regular file");
    scratch.refused("socket", "socket is not a regular file");
    for folder in ["folder", "folder/", "to_folder", ".", "folder/.."] {
        scratch.refused(folder, "is a directory: list it with bash");
    }
    scratch.refused("plain/below", "cannot open plain/below: Not a directory");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_file_is_read_by_lines() {
    let scratch = Scratch::new();
    scratch.put("five", "1\n2\n3\n4\n5");
    assert_eq!(scratch.read("five").unwrap(), "1\n2\n3\n4\n5");
    assert_eq!(scratch.read_from("five", Some(4), None).unwrap(), "4\n5");
    assert_eq!(scratch.read_from("five", Some(4), Some(2)).unwrap(), "4\n5");
    let page = scratch.read_from("five", Some(2), Some(2)).unwrap();
    assert_eq!(page, "2\n3\n[the file goes on: read on with offset 4]");
    assert_eq!(
        scratch.read_from("five", Some(9), None).unwrap_err(),
        "five has 5 lines: offset 9 is behind its end"
    );
    scratch.put("ended", "1\n");
    assert_eq!(scratch.read_from("ended", Some(2), None).unwrap(), "[the file ends here]");
    scratch.put("empty", "");
    assert_eq!(scratch.read("empty").unwrap(), "[the file is empty]");
    assert_eq!(
        scratch.read("missing").unwrap_err(),
        "cannot open missing: No such file or directory (os error 2)"
    );
}

#[test]
fn a_long_file_is_read_in_pages_that_make_up_the_whole() {
    let scratch = Scratch::new();
    let whole: String = (1..=9000).map(|line| format!("line {line} ä\n")).collect();
    scratch.put("long", &whole);
    let (mut text, mut offset) = (String::new(), 1);
    loop {
        let page = scratch.read_from("long", Some(offset), Some(5000)).unwrap();
        let Some((lines, note)) = page.rsplit_once('[') else { break text.push_str(&page) };
        assert!(lines.chars().count() <= KEPT);
        text.push_str(lines);
        offset = note.trim_end_matches(']').rsplit(' ').next().unwrap().parse().unwrap();
    }
    assert_eq!(text, whole);
}

#[test]
fn a_line_without_an_end_is_cut() {
    let scratch = Scratch::new();
    scratch.put("wide", &format!("short\n{}\nafter", "ö".repeat(60_000)));
    let page = scratch.read("wide").unwrap();
    assert_eq!(page, "short\n[50000 characters are the limit: read on with offset 2]");
    let page = scratch.read_from("wide", Some(2), None).unwrap();
    assert!(page.starts_with(&"ö".repeat(50_000)));
    assert!(page.ends_with(
        "\n[50000 characters are the limit, and line 2 alone is longer: look at its end with bash]"
    ));
    assert_eq!(scratch.read_from("wide", Some(3), None).unwrap(), "after");
    scratch.put("widest", &"😀".repeat(50_001));
    assert_eq!(scratch.read("widest").unwrap().chars().take(50_001).filter(|&c| c == '😀').count(), 50_000);
}

#[test]
fn a_huge_file_costs_nothing_but_its_page() {
    let scratch = Scratch::new();
    scratch.put("huge", &"x\n".repeat(5000));
    File::options().write(true).open(scratch.path("huge")).unwrap().set_len(1 << 40).unwrap();
    let begun = Instant::now();
    assert!(scratch.read("huge").unwrap().ends_with("offset 2001]"));
    assert!(scratch.read_from("huge", Some(5001), None).unwrap().contains("line 5001 alone is longer"));
    assert!(scratch.edit("huge", "x", "y").unwrap_err().contains("the limit for edit_file is 16777216"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_size() {
    let scratch = Scratch::new();
    scratch.put("binary", "ab\0cd");
    assert_eq!(scratch.read("binary").unwrap_err(), "binary is not text (5 bytes)");
    File::create(scratch.path("latin")).unwrap().write_all(b"caf\xe9\n").unwrap();
    assert_eq!(scratch.read("latin").unwrap(), "caf\u{fffd}\n");
    assert_eq!(scratch.edit("latin", "caf", "x").unwrap_err(), "latin is not text (5 bytes)");
}

#[test]
fn a_file_is_made_with_the_directories_that_are_missing() {
    let scratch = Scratch::new();
    assert_eq!(scratch.write("a/b/c.txt", "héllo").unwrap(), "wrote 6 bytes to a/b/c.txt");
    assert_eq!(scratch.get("a/b/c.txt"), "héllo");
    put(&scratch.path("by_hand"), "");
    let mode = |name: &str| scratch.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("a/b/c.txt"), mode("by_hand"));
    assert_eq!(scratch.write("a/b/c.txt", "").unwrap(), "wrote 0 bytes to a/b/c.txt");
    assert_eq!(scratch.get("a/b/c.txt"), "");
    scratch.is_tidy();
}

#[test]
fn a_replaced_file_keeps_its_mode_and_its_owner() {
    let scratch = Scratch::new();
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
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_eq!(scratch.get("run.sh"), "newer");
    if !is_root {
        fs::set_permissions(scratch.path("run.sh"), fs::Permissions::from_mode(0o444)).unwrap();
        assert!(scratch.write("run.sh", "no").unwrap_err().contains("Permission denied"));
    }
}

#[test]
fn a_link_stays_and_the_file_that_it_names_is_replaced() {
    let scratch = Scratch::new();
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
    let scratch = Scratch::new();
    fs::hard_link(scratch.folder.path().join("secret"), scratch.path("hard")).unwrap();
    scratch.write("hard", "changed").unwrap();
    assert_eq!(fs::read_to_string(scratch.folder.path().join("secret")).unwrap(), "outside");
}

#[test]
fn an_edit_replaces_a_text_that_occurs_once() {
    let scratch = Scratch::new();
    scratch.put("a.txt", "one\n  two\nthree\n");
    assert_eq!(scratch.edit("a.txt", "  two\n", "2\n").unwrap(), "edited a.txt at line 2");
    assert_eq!(scratch.get("a.txt"), "one\n2\nthree\n");
    assert_eq!(scratch.edit("a.txt", "three", "").unwrap(), "edited a.txt at line 3");
    assert_eq!(scratch.get("a.txt"), "one\n2\n\n");
    scratch.is_tidy();
}

#[test]
fn an_edit_that_cannot_be_made_says_why_and_changes_nothing() {
    let scratch = Scratch::new();
    let content = "fn a() {\n    b();\n}\naaa\n";
    scratch.put("a.rs", content);
    for (old, new, error) in [
        ("zzz", "x", "old_text not found in a.rs"),
        (
            "fn a() {\n\tb();\n}",
            "x",
            "old_text not found in a.rs, but for its white space it is there: read the file and copy it exactly",
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
    assert!(scratch.edit("missing", "a", "b").unwrap_err().starts_with("cannot open missing: No such file"));
    scratch.is_tidy();
}

#[test]
fn a_change_by_somebody_else_is_not_lost() {
    let scratch = Scratch::new();
    scratch.put("a.txt", "one");
    let place = scratch.workspace.find("a.txt").unwrap();
    let (_, seen) = open_place("a.txt", &place).unwrap();
    scratch.put("a.txt", "somebody else");
    let error = replace("a.txt", &place, b"two", Some(&seen)).unwrap_err();
    assert_eq!(error.to_string(), "a.txt was changed by somebody else at the same time: read it again");
    assert_eq!(scratch.get("a.txt"), "somebody else");
    scratch.is_tidy();
}

#[test]
fn readers_see_the_old_file_or_the_new_one() {
    let scratch = Scratch::new();
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
fn what_the_user_runs_or_believes_is_read_and_never_changed_whether_it_is_there_or_not() {
    let scratch = Scratch::new();
    scratch.put(".git/config", "[core]\n");
    scratch.put(".git/hooks/sample", "");
    scratch.put("sub/file", "");
    scratch.link("innocent", ".git/hooks");
    scratch.link("deep", ".git");
    let absolute = scratch.path("team.toml").display().to_string();
    for path in [
        "team.toml",
        "./sub/../team.toml",
        ".git/config",
        ".git/config.worktree",
        ".git/hooks/pre-commit",
        ".git/hooks/new/deep",
        "innocent/pre-commit",
        "deep/config",
        absolute.as_str(),
    ] {
        let told = scratch.workspace.write(path, "x").unwrap_err().to_string();
        assert!(told.contains("not changed by tools"), "{path}: {told}");
    }
    let told = scratch.workspace.edit(".git/config", "core", "evil").unwrap_err().to_string();
    assert!(told.contains("not changed by tools"), "{told}");
    assert_eq!(scratch.workspace.read(".git/config", None, None).unwrap().trim(), "[core]");
    assert!(!scratch.path("team.toml").exists() && !scratch.path(".git/hooks/new").exists());
    scratch.workspace.write(".git/info/exclude", "target\n").unwrap();
    scratch.workspace.write("docs/team.toml", "an example").unwrap();
}

#[test]
fn a_line_far_behind_the_beginning_is_left_to_bash() {
    let scratch = Scratch::new();
    let file = fs::File::create(scratch.path("sparse")).unwrap();
    (&file).write_all("text\n".repeat(2000).as_bytes()).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = scratch.workspace.read("sparse", Some(3000), None).unwrap_err().to_string();
    assert!(error.contains("offset 3000 lies more than") && error.contains("sed -n 3000,5000p"), "{error}");
    assert!(scratch.workspace.read("sparse", Some(2000), Some(1)).unwrap().starts_with("text\n"));
}

#[test]
fn secrets_of_a_home_in_the_workspace_are_not_read_wherever_they_are_moved() {
    let Scratch { workspace, folder: _folder } = Scratch::new();
    let home = workspace.find("x").map(|_| _folder.path().join("desk")).unwrap();
    fs::create_dir_all(home.join(".docker")).unwrap();
    fs::create_dir(home.join(".ssh")).unwrap();
    put(&home.join(".docker/config.json"), "hush");
    put(&home.join(".ssh/key"), "hush");
    symlink(".ssh", home.join("link")).unwrap();
    let secrets = [".docker/config.json", ".ssh", ".netrc"].map(|name| home.join(name));
    let workspace = workspace.without(secrets.to_vec());
    fs::rename(home.join(".docker"), home.join("moved")).unwrap();
    put(&home.join(".netrc"), "hush");
    for path in ["moved/config.json", ".ssh/key", "link/key", ".netrc"] {
        let error = workspace.read(path, None, None).unwrap_err();
        assert!(matches!(error, FileError::Secret(_)), "{path} {error}");
    }
    assert!(matches!(workspace.write(".docker/config.json", ""), Err(FileError::Secret(_))));
    put(&home.join("moved/else"), "fine");
    assert_eq!(workspace.read("moved/else", None, None).unwrap(), "fine");
}

#[test]
fn a_guide_is_taken_whole_if_it_fits_and_else_its_first_lines() {
    let scratch = Scratch::new();
    scratch.put("CLAUDE.md", "the other one");
    scratch.put("AGENTS.md", "one\ntwo\nthree\n");
    let whole = Guide { file: "AGENTS.md".to_owned(), text: "one\ntwo\nthree\n".to_owned(), rest: None };
    assert_eq!(scratch.guide(14), whole);
    let cut = scratch.guide(13);
    assert_eq!((cut.text.as_str(), cut.rest), ("one\ntwo\n", Some(Rest { line: 3, taken: 8, of: 14 })));
    let from = cut.rest.map(|rest| rest.line as u64);
    assert_eq!(scratch.read_from("AGENTS.md", from, None).unwrap(), "three\n");
    // However much room there is.
    scratch.put("AGENTS.md", &"x".repeat(100_000));
    let cut = scratch.guide(usize::MAX);
    assert_eq!(cut.rest, Some(Rest { line: 1, taken: 64 << 10, of: 100_000 }));
    scratch.put("AGENTS.md", " \n");
    assert_eq!(scratch.guide(100).file, "CLAUDE.md");
}
