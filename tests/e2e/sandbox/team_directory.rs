//! Nothing in the team directory can be written: directly, by rename, link, a new process, or one
//! that outlives a call. Nor can anything in it be locked, which takes no more than a descriptor
//! for reading.

use std::time::Duration;

use super::{With, attack, python};
use crate::support::Team;
use crate::support::process::let_pass;

const CANARY: &str = "untouched\n";

fn targets(team: &Team) {
    team.put("canary", CANARY);
    team.put("archive/canary", CANARY);
}

#[track_caller]
fn nothing_was_written(team: &Team) {
    assert_eq!(
        (
            team.file("canary").as_str(),
            team.file("archive/canary").as_str()
        ),
        (CANARY, CANARY)
    );
    for folder in ["", "inbox", "archive", "run"] {
        for entry in std::fs::read_dir(team.path(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.contains("planted"), "{folder}/{name}");
        }
    }
}

/// By every way that a path can take.
const BY_PATH: [&str; 29] = [
    "echo x >> .team/canary && echo BROKEN",
    ": > .team/canary && echo BROKEN",
    "echo x > .team/planted && echo BROKEN",
    "mkdir .team/planted && echo BROKEN",
    "mkfifo .team/planted && echo BROKEN",
    "echo '{}' >> .team/inbox/alice.jsonl && echo BROKEN",
    "echo '{}' >> .team/journal.jsonl && echo BROKEN",
    "mv .team/canary moved && echo BROKEN",
    "mv .team/archive .team/planted && echo BROKEN",
    "rm -rf .team/archive/canary; rm -r .team/archive && echo BROKEN",
    "rm .team/canary && echo BROKEN",
    "mkdir other; mv -T other .team/archive && echo BROKEN",
    "ln .team/canary hard && echo x >> hard && echo BROKEN",
    "ln -s .team/canary soft; echo x >> soft && echo BROKEN",
    "ln -s \"$PWD/.team\" dir; echo x > dir/planted && echo BROKEN",
    "echo x > source; ln source .team/planted && echo BROKEN",
    "echo x > source; cp source .team/canary && echo BROKEN",
    "ln -s elsewhere .team/planted && echo BROKEN",
    "truncate -s 0 .team/canary && echo BROKEN",
    "dd if=/dev/zero of=.team/canary bs=1 count=1 conv=notrunc && echo BROKEN",
    "sed -i s/un// .team/canary && echo BROKEN",
    "cd .team && echo x > planted && echo BROKEN",
    "cd .. && mv work moved && echo BROKEN",
    "exec 3< .team; echo x > /proc/self/fd/3/planted && echo BROKEN",
    "exec 3< .team/canary; echo x >> /proc/self/fd/3 && echo BROKEN",
    "echo x > /proc/self/cwd/.team/planted && echo BROKEN",
    "echo x > \"/proc/self/root$PWD/.team/planted\" && echo BROKEN",
    "for p in /proc/[0-9]*; do echo x > \"$p/root$PWD/.team/planted\" && echo BROKEN; done",
    "for p in /proc/[0-9]*; do echo x > $p/cwd/.team/planted && echo BROKEN; done",
];

/// By its name in the workspace, where it lies there itself.
const BY_NAME: [&str; 4] = [
    "mv .team moved && echo BROKEN",
    "mkdir other2; mv -T other2 .team && echo BROKEN",
    "rm -rf .team && echo BROKEN",
    "ln -sfn /tmp .team && [ -L .team ] && echo BROKEN",
];

/// By changing what stands where.
const BY_MOUNT: [&str; 11] = [
    "mkdir cover; mount --bind cover .team && echo BROKEN",
    "mount -o remount,rw .team && echo BROKEN",
    "mount -o remount,bind,rw .team && echo BROKEN",
    "mount -o remount,rw / && echo BROKEN",
    "umount .team && echo BROKEN",
    "umount -l . && echo BROKEN",
    "unshare -Urm bash -c 'umount -l .team; echo x > .team/planted' && echo BROKEN",
    "unshare -m true && echo BROKEN",
    "nsenter -t 1 -m true && echo BROKEN",
    "chroot / true && echo BROKEN",
    "mknod disk b 254 0 && echo BROKEN; for d in /dev/[vsx]d* /dev/nvme* /dev/dm-*; do (exec 3<> $d) && echo BROKEN; done",
];

/// By a program that comes later: the call has ended before it is written.
const BY_SURVIVORS: [&str; 5] = [
    "(sleep 0.1; echo x > .team/planted) & disown",
    "setsid bash -c 'sleep 0.1; echo x > .team/planted' & true",
    "setsid -f bash -c 'sleep 0.1; echo x > .team/planted'",
    "(setsid bash -c '(sleep 0.1; echo x > .team/planted) & exit') & true",
    "nohup bash -c \"trap '' TERM HUP INT; sleep 0.1; echo x > .team/planted\" > /dev/null 2>&1 & true",
];

fn every_way(with: With) {
    let Some(team) = with.team(&[]) else { return };
    targets(&team);
    attack(&team, &BY_PATH);
    if with.has_mounts() {
        attack(&team, &BY_NAME);
    }
    attack(&team, &BY_MOUNT);
    attack(&team, &BY_SURVIVORS);
    assert_eq!(team.processes().len(), 2, "the daemon and the worker");
    let_pass(Duration::from_millis(150));
    nothing_was_written(&team);
}

/// Failure 25 (A, B, C).
#[test]
fn nothing_in_the_team_directory_can_be_written() {
    every_way(With::All);
}

#[test]
fn nothing_in_it_can_be_written_through_bubblewrap_either() {
    every_way(With::Bubblewrap);
}

#[test]
fn without_namespaces_a_team_directory_elsewhere_cannot_be_written() {
    every_way(With::Bare);
}

#[test]
fn its_modes_and_times_stay_as_they_are() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        targets(&team);
        attack(
            &team,
            &[
                "chmod 777 .team/canary && echo BROKEN",
                "chmod 777 .team && echo BROKEN",
                "touch -d 2001-01-01 .team/canary && echo BROKEN",
                "mv .team/canary .team/canary && echo BROKEN",
                "setfattr -n user.x -v y .team/canary && echo BROKEN",
            ],
        );
        nothing_was_written(&team);
    }
}

#[test]
fn it_keeps_its_place_however_deep_in_the_workspace_it_lies() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    targets(&team);
    let above = team.root().parent().unwrap().to_owned();
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["spawn", "alice", "--workspace", above.to_str().unwrap()])
        .ok();
    attack(
        &team,
        &[
            "mv work moved && echo BROKEN",
            "mv work/.team planted && echo BROKEN",
            "rm -rf work && echo BROKEN",
            "mkdir planted; mv -T planted work && echo BROKEN",
            "echo x > work/.team/planted && echo BROKEN",
        ],
    );
    nothing_was_written(&team);
}

/// Each says BROKEN if it has a descriptor of the file that the daemon or a worker has locked: a
/// `flock` fails with 1 exactly if another holds the lock.
const BY_LOCK: [&str; 8] = [
    "flock -n -s .team true; [ $? = 1 ] && echo BROKEN",
    "flock -n -s \"$(readlink -f .team)\" true; [ $? = 1 ] && echo BROKEN",
    "flock -n -s .team/transcript/alice.jsonl true; [ $? = 1 ] && echo BROKEN",
    "exec 3< .team/transcript/alice.jsonl && echo BROKEN",
    "exec 3< .team/canary && echo BROKEN",
    "exec 3< .team/archive/canary && echo BROKEN",
    "cat .team/* .team/*/* 2> /dev/null | grep . && echo BROKEN",
    "for fd in /proc/[0-9]*/fd/*; do case $(readlink $fd) in *.team* | */transcript/*) echo BROKEN;; esac; done",
];

fn no_lock(with: With) {
    let Some(team) = with.team(&[]) else { return };
    targets(&team);
    attack(&team, &BY_LOCK);
    // A command in the background has a descriptor of its log.
    let fds = "for fd in 1 2; do readlink -f /proc/self/fd/$fd; done; chmod 777 /dev/stdout; echo still here";
    let order = format!(
        "/bash {}",
        serde_json::json!({ "command": fds, "run_in_background": true })
    );
    let results = team.does("alice", &order);
    assert_eq!(results[0]["is_error"], false, "{results:?}");
    team.until("the output is kept", || {
        team.file("log/alice.background-1.log")
            .ends_with("[exit code 0]\n")
    });
    let said = team.file("log/alice.background-1.log");
    assert!(
        said.contains("still here") && !said.contains(".team") && !said.contains("/log/"),
        "{said}"
    );
    let told = results[0]["content"].as_str().unwrap();
    let path = told
        .split_once("its output goes to ")
        .unwrap()
        .1
        .split_once(" (")
        .unwrap()
        .0;
    let shown = team.does("alice", &format!("/bash tail -n 3 {path}"));
    assert!(
        shown[0]["content"].as_str().unwrap().contains("still here"),
        "{shown:?}"
    );
}

#[test]
fn nothing_in_it_can_be_locked() {
    no_lock(With::All);
}

#[test]
fn nothing_in_it_can_be_locked_through_bubblewrap() {
    no_lock(With::Bubblewrap);
}

#[test]
fn nothing_in_it_can_be_locked_without_namespaces() {
    no_lock(With::Bare);
}

/// The calls of the kernel themselves, without any program between.
#[test]
fn no_system_call_reaches_past_the_mounts() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let Some(calls) = python(&team, "calls.py", CALLS) else {
            return;
        };
        targets(&team);
        let said = attack(&team, &[&calls]);
        assert!(said[0].contains("tried"), "{said:?}");
        nothing_was_written(&team);
    }
}

/// Numbers of x86-64; elsewhere others are tried, which must not succeed either.
const CALLS: &str = r#"
import ctypes, os, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *args)
    if result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        print("BROKEN", name, result, ctypes.get_errno())
b = ctypes.create_string_buffer
call("io_uring_setup", 425, 8, b(256))
call("open_tree", 428, -100, b(b".team"), 1)
call("move_mount", 429, -1, b(b""), -100, b(b".team"), 4)
call("fsopen", 430, b(b"tmpfs"), 0)
call("fspick", 433, -100, b(b"."), 0)
call("mount_setattr", 442, -100, b(b".team"), 0, b(32), 32)
call("pivot_root", 155, b(b"."), b(b"."))
call("open_by_handle_at", 304, -100, b(64), 0)
call("userfaultfd", 323, 0)
call("bpf", 321, 0, b(128), 128)
call("perf_event_open", 298, b(128), 0, -1, -1, 0)
call("keyctl", 250, 0, 0)
call("clone with CLONE_NEWUSER", 56, 0x10000000 | 17, 0, 0, 0, 0)
call("clone3", 435, b(88), 88)
call("unshare", 272, 0x10000000)
call("setns", 308, os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)
call("socket of x32", 0x40000000 + 41, 1, 1, 0)
call("ioctl TIOCSTI", 16, 0, 0x5412, b(b"x"))
os.mkdir("swap")
if not os.path.islink(".team") and libc.renameat2(-100, b"swap", -100, b".team", 2) == 0: print("BROKEN exchange")
if libc.renameat2(-100, b"swap", -100, b".team/archive", 2) == 0: print("BROKEN exchange inside")
print("tried")
"#;
