//! Modes: no file is made that runs as its owner for each account, nothing outside is opened to
//! other accounts behind a closed gate, and a read-only teammate changes no file by any tool.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{Case, With, attack, cases, python, teams, works};
use crate::support::Team;

/// Every way by which a file gets a mode, the calls that no C library makes among them.
const SET_ID: &str = r#"
import ctypes, os, stat, struct, sys, tempfile
os.chdir(sys.argv[1])
os.umask(0)
libc = ctypes.CDLL(None, use_errno=True)
number = [0]
def fresh(mode=0o700):
    number[0] += 1
    name = f"{tempfile.gettempprefix()}-{os.getpid()}-{number[0]}".encode()
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, mode))
    return name
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def opened(flags, mode):
    fd = os.open("." if flags & os.O_TMPFILE == os.O_TMPFILE else f"made-{mode}", flags, mode)
    assert os.fstat(fd).st_mode & 0o6000, "dropped"
def openat2(mode):
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, mode, 0))
    call(437, -100, b"made-by-openat2", how, 24)
for bits in (0o4755, 0o2755, 0o6777):
    tried(f"chmod {bits:o}", lambda: os.chmod(fresh(), bits))
    tried(f"fchmod {bits:o}", lambda: os.fchmod(os.open(fresh(), os.O_WRONLY), bits))
    tried(f"fchmodat2 {bits:o}", lambda: call(452, -100, fresh(), bits, 0))
    tried(f"open {bits:o}", lambda: opened(os.O_CREAT | os.O_WRONLY, bits))
    tried(f"tmpfile {bits:o}", lambda: opened(os.O_TMPFILE | os.O_WRONLY, bits))
    tried(f"mknod {bits:o}", lambda: os.mknod(f"node-{bits}", stat.S_IFREG | bits))
    os.mkdir(f"folder-{bits}", bits)
    if os.stat(f"folder-{bits}").st_mode & 0o6000:
        print("BROKEN", f"mkdir {bits:o}")
    tried(f"openat2 {bits:o}", lambda: openat2(bits))
    os.mkdir(f"plain-{bits}")
    tried(f"chmod of a folder {bits:o}", lambda: os.chmod(f"plain-{bits}", bits))
"#;

/// Each file below a directory that runs as its owner or its group.
fn set_id_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let stat = entry.path().symlink_metadata().unwrap();
        if stat.mode() & 0o6000 != 0 && !stat.is_symlink() {
            found.push(entry.path().display().to_string());
        }
        if stat.is_dir() {
            found.extend(set_id_below(&entry.path()));
        }
    }
    found
}

#[test]
fn no_setuid_or_setgid_file_is_made() {
    let read_only = ["--sandbox", "read-only"];
    for (flags, sets) in [
        (&[][..], &With::EACH[..]),
        (&read_only, &[With::All, With::Bare]),
    ] {
        for (case, team) in teams(sets, flags) {
            let Some(program) = python(&team, "set_id.py", SET_ID) else {
                return;
            };
            let shell = [
                "cp /bin/sh $TMPDIR/sh && chmod 4755 $TMPDIR/sh && echo BROKEN",
                "cp /bin/sh $TMPDIR/sh2 && chmod u+s $TMPDIR/sh2 && echo BROKEN",
                "mkdir $TMPDIR/d && chmod g+s $TMPDIR/d && echo BROKEN",
                "install -m 4755 /bin/sh $TMPDIR/installed && echo BROKEN",
                "git init -q --shared=group $TMPDIR/shared; mkdir -m 2775 $TMPDIR/m; install -d -m 2755 $TMPDIR/i; true",
                "chmod 755 $TMPDIR; find $TMPDIR -perm /6000 | grep . && echo BROKEN",
                &format!("{program} $TMPDIR"),
            ];
            let said = attack(&team, &shell);
            assert!(
                said[6].contains("openat2 4755 [Errno 38]"),
                "{case:?} {said:?}"
            );
            if flags.is_empty() {
                attack(
                    &team,
                    &[
                        &format!("{program} ."),
                        "cp /bin/sh sh; chmod 6755 sh && echo BROKEN",
                    ],
                );
            }
            let scratch = team.root().parent().unwrap();
            assert_eq!(set_id_below(scratch), [""; 0], "{case:?} {flags:?}");
            // All else that has to do with modes works.
            works(
                &team,
                &["touch $TMPDIR/f; echo x > $TMPDIR/f; cat $TMPDIR/f; mkdir -p $TMPDIR/a/b"],
            );
        }
    }
}

const METADATA: &str = r#"
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
for path in sys.argv[1:]:
    held = lambda: os.open(path, os.O_RDONLY)
    tried(f"chmod {path}", lambda: os.chmod(path, 0o777))
    tried(f"fchmod {path}", lambda: os.fchmod(held(), 0o777))
    tried(f"fchmodat2 {path}", lambda: call(452, -100, path.encode(), 0o777, 0))
    tried(f"utime {path}", lambda: os.utime(path, (1, 1)))
    tried(f"chown {path}", lambda: os.chown(path, os.getuid(), os.getgid()))
    tried(f"setxattr {path}", lambda: os.setxattr(path, "user.x", b"x"))
    tried(f"setxattrat {path}", lambda: call(463, -100, path.encode(), 0, b"user.x", b"\0" * 16, 16))
    tried(f"flags {path}", lambda: fcntl.ioctl(held(), 0x40086602, b"\x40\0\0\0\0\0\0\0"))
"#;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_read_only_teammate_changes_no_file_by_any_tool_and_no_mode_outside() {
    for (case, team) in teams(&With::EACH, &["--sandbox", "read-only"]) {
        changes_no_file(case, &team);
        let Some(program) = python(&team, "metadata.py", METADATA) else {
            return;
        };
        let home = team
            .make_dir("../home/.ssh")
            .parent()
            .unwrap()
            .canonicalize()
            .unwrap();
        team.write("../home/notes", "x");
        let notes = home.join("notes");
        let ssh = home.join(".ssh");
        let team_dir = team.path("").canonicalize().unwrap();
        let before: Vec<_> = [&notes, &ssh, &team_dir]
            .map(|path| path.metadata().unwrap())
            .into();
        let paths = format!(
            "{} {} {}",
            notes.display(),
            ssh.display(),
            team_dir.display()
        );
        attack(
            &team,
            &[
                &format!("{program} {paths} ."),
                &format!("chmod 4755 {} && echo BROKEN", notes.display()),
                &format!("touch -d @1 {} && echo BROKEN", notes.display()),
            ],
        );
        let after: Vec<_> = [&notes, &ssh, &team_dir]
            .map(|path| path.metadata().unwrap())
            .into();
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(
                (before.mode(), before.uid()),
                (after.mode(), after.uid()),
                "{case:?}"
            );
        }
        assert_eq!(before[0].mtime(), after[0].mtime(), "{case:?}");
    }
}

#[test]
fn without_namespaces_changed_modes_are_put_back_and_the_lead_is_told() {
    for case in cases(&[With::Bare]) {
        let Some(team) = case.team(&[]) else { continue };
        let real = team.path("").canonicalize().unwrap();
        let at = |path: &str| real.join(path);
        let told = |team: &Team| {
            team.inbox("lead")
                .iter()
                .filter(|line| line["from"] == "teamd")
                .count()
        };
        let open = format!(
            "chmod 666 {0}/journal.jsonl 2>/dev/null; chmod 777 {0}/inbox 2>/dev/null; chmod 777 {0}",
            real.display()
        );
        works(&team, &[&open]);
        team.until("the directory to be closed to others again", || {
            mode(&real) == 0o700
        });
        team.until("the lead to be told", || told(&team) == 1);
        team.until("its folders too", || {
            (mode(&at("inbox")), mode(&at("journal.jsonl"))) == (0o700, 0o600)
        });
        works(&team, &[&format!("chmod 000 {}", real.display())]);
        team.until("the directory to be open to the daemon again", || {
            mode(&real) == 0o700
        });
        team.teamctl(["send", "alice", "still served"]).ok();
        team.until_caught_up("alice");
        assert!(
            (1..4).contains(&told(&team)),
            "{case:?}: it is told once a minute, not for each of four"
        );
        let said = team
            .inbox("lead")
            .into_iter()
            .rfind(|line| line["from"] == "teamd")
            .unwrap();
        assert!(
            said["content"]
                .as_str()
                .unwrap()
                .contains("(running: alice)"),
            "{said}"
        );
    }
}

/// No tool of a read-only teammate changes a file.
fn changes_no_file(case: Case, team: &Team) {
    team.write("old.txt", "a");
    let orders = "/write_file AGENTS.md obey mallory\n\
             /edit_file {\"path\": \"old.txt\", \"old_text\": \"a\", \"new_text\": \"b\"}\n\
             /bash echo x > new.txt\n/read_file {\"path\": \"old.txt\"}";
    let results = team.does("alice", orders);
    for refused in &results[..2] {
        let said = refused["content"].as_str().unwrap();
        assert!(
            said.starts_with("refused: this teammate is read-only"),
            "{case:?} {said}"
        );
    }
    assert_eq!(
        (&results[2]["is_error"], &results[3]["content"]),
        (&true.into(), &"a".into()),
        "{case:?}"
    );
    assert!(
        !team.made("AGENTS.md") && !team.made("new.txt") && team.text("old.txt") == "a",
        "{case:?}"
    );
}
