//! What a path means, and where none may lead.

use super::*;

#[test]
fn a_path_may_be_relative_absolute_or_lead_through_links_inside() {
    let scratch = ScratchWorkspace::new();
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
    let scratch = ScratchWorkspace::new();
    scratch.put("a/b/c.txt", "");
    scratch.link("up", "..");
    scratch.link("direct", "../secret");
    scratch.link("a/deep", "b/../../../secret");
    scratch.link("absolute", scratch.folder.path().join("secret"));
    scratch.link("root", "/");
    scratch.link("self", "/proc/self/cwd");
    scratch.link("first", "second");
    scratch.link("second", "../secret");
    let secret = scratch
        .folder
        .path()
        .join("secret")
        .to_string_lossy()
        .into_owned();
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
    scratch.refused(
        &format!(
            "{}x",
            scratch.path("").display().to_string().trim_end_matches('/')
        ),
        "leads out",
    );
}

#[test]
fn links_in_a_circle_end() {
    let scratch = ScratchWorkspace::new();
    scratch.link("a", "b");
    scratch.link("b", "a");
    scratch.link("c", "c/x");
    scratch.refused("a", "more than 40 links");
    scratch.refused("c", "more than 40 links");
}

#[test]
fn no_path_leads_into_the_team_directory() {
    let scratch = ScratchWorkspace::new();
    scratch.put(".team/inbox/alice.jsonl", "outside");
    scratch.link("team", ".team");
    scratch.link("inbox", ".team/inbox");
    scratch.link("mail", ".team/inbox/alice.jsonl");
    scratch.link("absolute", scratch.path(".team"));
    let absolute = scratch
        .path(".team/inbox/alice.jsonl")
        .to_string_lossy()
        .into_owned();
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
        scratch.refused(path, "leads into a team directory");
    }
    assert_eq!(scratch.get(".team/inbox/alice.jsonl"), "outside");
    assert!(!scratch.path(".team/new.txt").exists() && !scratch.path(".team/missing").exists());
}

#[test]
fn a_team_directory_elsewhere_is_refused_by_its_link_and_its_folders_by_their_inodes() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("desk");
    let state = folder.path().join("state");
    fs::create_dir(&work).unwrap();
    let team_dir = Arc::new(TeamDir::create(&state).unwrap());
    symlink(&state, work.join(".team")).unwrap();
    let workspace = Workspace::open(&work, Arc::clone(&team_dir), &alice()).unwrap();
    let error = workspace
        .write(&write_file(".team/config.json", "{}"))
        .unwrap_err();
    assert!(error.contains("leads into a team directory"), "{error}");
    // As with a bind mount: the folder itself is inside the workspace, under another name.
    fs::rename(state.join("inbox"), work.join("letters")).unwrap();
    symlink(work.join("letters"), state.join("inbox")).unwrap();
    assert!(
        workspace.write(&write_file("letters/a", "")).is_ok(),
        "a link in the team directory is none of its folders"
    );
    fs::remove_file(state.join("inbox")).unwrap();
    let error = Workspace::open(&state.join("log"), Arc::clone(&team_dir), &alice()).unwrap_err();
    assert!(error.contains("leads into a team directory"), "{error}");
    let error = Workspace::open(&folder.path().join("missing"), team_dir, &alice()).unwrap_err();
    assert!(
        error.starts_with("the workspace ") && error.contains("cannot be used: No such file"),
        "{error}"
    );
}

#[test]
fn a_directory_that_is_swapped_for_a_link_out_leads_no_tool_out() {
    let scratch = ScratchWorkspace::new();
    let outside = scratch.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    put(&outside.join("file"), "outside");
    scratch.put("real/file", "inside");
    scratch.link("trap", &outside);
    scratch.put("spare/file", "inside");
    let done = AtomicBool::new(false);
    let real = scratch.path("real");
    let trap = scratch.path("trap");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &real, rustix::fs::CWD, &trap, flags)
                    .unwrap();
            }
        });
        let begun = Instant::now();
        let mut inside = 0;
        let mut refused = 0;
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
    let scratch = ScratchWorkspace::new();
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
fn what_the_user_runs_or_believes_is_read_and_never_changed_whether_it_is_there_or_not() {
    let scratch = ScratchWorkspace::new();
    scratch.put(".git/config", "[core]\n");
    scratch.put(".git/hooks/sample", "");
    scratch.put("sub/file", "");
    scratch.link("innocent", ".git/hooks");
    scratch.link("deep", ".git");
    let absolute = scratch.path(".git/config").display().to_string();
    for path in [
        "./sub/../.git/config",
        ".git/config",
        ".git/config.worktree",
        ".git/hooks/pre-commit",
        ".git/hooks/new/deep",
        "innocent/pre-commit",
        "deep/config",
        absolute.as_str(),
    ] {
        let error = scratch.write(path, "x").unwrap_err();
        assert!(error.contains("not changed by tools"), "{path}: {error}");
    }
    let error = scratch.edit(".git/config", "core", "evil").unwrap_err();
    assert!(error.contains("not changed by tools"), "{error}");
    assert_eq!(scratch.read(".git/config").unwrap().trim(), "[core]");
    assert!(!scratch.path(".git/hooks/new").exists());
    // Also where the user has made it a link, and what it leads to has another name.
    scratch.put("shared-hooks/sample", "");
    fs::remove_dir_all(scratch.path(".git/hooks")).unwrap();
    scratch.link(".git/hooks", "../shared-hooks");
    let error = scratch.write(".git/hooks/pre-commit", "x").unwrap_err();
    assert!(error.contains("not changed by tools"), "{error}");
    scratch.write(".git/info/exclude", "target\n").unwrap();
    scratch.write("team.toml", "grace = 1\n").unwrap();
}

#[test]
fn secrets_of_a_home_in_the_workspace_are_not_read_wherever_they_are_moved() {
    let mut scratch = ScratchWorkspace::new();
    let home = scratch.folder.path().join("desk");
    fs::create_dir_all(home.join(".docker")).unwrap();
    fs::create_dir(home.join(".ssh")).unwrap();
    put(&home.join(".docker/config.json"), "hush");
    put(&home.join(".ssh/key"), "hush");
    symlink(".ssh", home.join("link")).unwrap();
    let secrets = [".docker/config.json", ".ssh", ".netrc"].map(|name| home.join(name));
    scratch
        .workspace
        .protect(
            secrets.to_vec().into(),
            Vec::new(),
            Vec::new(),
            (Vec::new(), &[]),
        )
        .unwrap();
    // The first call looks where they are.
    assert!(
        scratch
            .read(".ssh/key")
            .unwrap_err()
            .contains("hidden from tools")
    );
    fs::rename(home.join(".docker"), home.join("moved")).unwrap();
    put(&home.join(".netrc"), "hush");
    for path in ["moved/config.json", ".ssh/key", "link/key", ".netrc"] {
        let error = scratch.read(path).unwrap_err();
        assert!(error.contains("hidden from tools"), "{path} {error}");
    }
    assert!(
        scratch
            .write(".docker/config.json", "")
            .unwrap_err()
            .contains("hidden from tools")
    );
    put(&home.join("moved/else"), "fine");
    assert_eq!(scratch.read("moved/else").unwrap(), "fine");
}
