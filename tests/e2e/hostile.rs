//! What others can do to a team from outside: foreign owners, planted links and FIFOs, a hostile peer on the control
//! socket, a full disk.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, chown};
use serde_json::json;

use crate::support::process::{descriptors, is_root};
use crate::support::{Run, Team, is_alive, signal};

/// A user that is nobody on this machine.
const SOMEBODY: u32 = 12_345;

/// `teamd start` must fail with a reason and a hint.
#[track_caller]
fn refuses_to_start(team: &Team, reason: &str) -> Run {
    let said = team.teamd(["start"]).exits(1);
    assert!(said.stderr.contains("error: ") && said.stderr.contains(reason), "{said:?}");
    said
}

#[test]
fn the_team_directory_of_another_user_is_not_served() {
    let team = Team::new();
    let foreign = if is_root() {
        std::fs::create_dir(team.path("")).unwrap();
        chown(&team.path(""), Some(Uid::from_raw(SOMEBODY)), None).unwrap();
        team.path("")
    } else {
        PathBuf::from("/")
    };
    let owner = if is_root() { SOMEBODY } else { 0 };
    let dir = foreign.to_str().unwrap();
    for said in [
        team.teamd(["--team-dir", dir, "start"]).exits(1),
        team.teamctl(["--team-dir", dir, "send", "alice", "hello"]).exits(1),
        team.teamctl(["--team-dir", dir, "status"]).exits(1),
    ] {
        assert!(said.stderr.contains(&format!("belongs to user {owner}")), "{said:?}");
        assert!(said.stderr.contains("hint: "), "{said:?}");
    }
    if is_root() {
        assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 0, "nothing was made there");
    }
}

#[test]
fn a_file_in_the_place_of_the_team_directory_is_said() {
    let team = Team::new();
    drop(std::fs::File::create(team.root().join(".team")).unwrap());
    for said in [team.teamd(["start"]).run_failed(), team.teamctl(["--team-dir", ".team", "status"]).run_failed()] {
        assert!(said.stderr.contains("is not a directory"), "{said:?}");
    }
}

/// A link planted in the team directory must neither be written through nor read through.
#[test]
fn a_planted_link_is_refused_at_the_start_and_nothing_is_written_through_it() {
    for planted in ["inbox/lead.jsonl", "config.json", "journal.jsonl", "log/teamd.log", "log", "run", "inbox"] {
        let team = Team::started();
        team.teamd(["stop"]).ok();
        let outside = team.root().join("outside");
        let is_folder = team.path(planted).is_dir();
        if is_folder {
            std::fs::rename(team.path(planted), &outside).unwrap();
        } else {
            std::fs::remove_file(team.path(planted)).unwrap();
            std::fs::File::create(&outside).unwrap().write_all(b"precious").unwrap();
        }
        symlink(&outside, team.path(planted)).unwrap();
        let before = if is_folder { listing(&outside) } else { Vec::new() };
        let said = refuses_to_start(&team, "symbolic link");
        assert!(said.stderr.contains(planted) && said.stderr.contains("hint: "), "{said:?}");
        if is_folder {
            assert_eq!(listing(&outside), before);
        } else {
            assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious");
        }
        assert!(team.processes().is_empty());
    }
}

fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut listing: Vec<_> = entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect();
    listing.sort();
    listing
}

#[test]
fn a_link_planted_while_the_daemon_runs_is_not_followed() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let outside = team.root().join("outside");
    std::fs::File::create(&outside).unwrap().write_all(b"precious\n").unwrap();
    for planted in ["config.json", "inbox/alice.jsonl"] {
        std::fs::remove_file(team.path(planted)).unwrap();
        symlink(&outside, team.path(planted)).unwrap();
    }
    let said = team.teamctl(["send", "alice", "hello"]).exits(1);
    assert!(said.stderr.contains("symbolic link"), "{said:?}");
    // Bob ends: alice would be told, and the roster is written.
    team.teamctl(["shutdown", "bob"]).ok();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious\n");
    assert_eq!(team.status("bob"), "shutdown");
    assert!(!team.path("config.json").is_symlink());
    // Alice still hears the daemon's word over her connection.
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious\n");
}

#[test]
fn a_fifo_in_the_place_of_an_inbox_blocks_nobody() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let fifo = |file: &str| {
        drop(std::fs::remove_file(team.path(file)));
        nix::unistd::mkfifo(&team.path(file), nix::sys::stat::Mode::S_IRWXU).unwrap();
    };
    fifo("inbox/alice.jsonl");
    let said = team.teamctl(["send", "alice", "hello"]).exits(1);
    assert!(said.stderr.contains("is not a regular file"), "{said:?}");
    // The daemon owes alice a line (bob's end), cannot write it, and serves on.
    team.teamctl(["shutdown", "bob"]).ok();
    team.spawn("carol", "");
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
    team.teamd(["stop"]).ok();
    // In the place of the lead's, a start says so.
    fifo("inbox/lead.jsonl");
    refuses_to_start(&team, "is not a regular file");
    std::fs::remove_file(team.path("inbox/lead.jsonl")).unwrap();
    fifo("config.json");
    refuses_to_start(&team, "is not a regular file");
}

/// Runs `teamd` as an ordinary user, from a copy that this user can reach.
fn teamd_as_somebody(team: &Team, args: &[&str]) -> std::process::Output {
    let Some(scratch) = team.root().parent() else { panic!("no scratch directory") };
    let copy = scratch.join("teamd");
    if !copy.exists() {
        // By another process: a descriptor that is open for writing here could be inherited by what another test
        // starts just then, and nobody could run the copy.
        let programs = [env!("CARGO_BIN_EXE_teamd"), env!("CARGO_BIN_EXE_team-worker")];
        assert!(team.command("cp", programs).arg(scratch).status().unwrap().success());
    }
    if !is_root() {
        return team.command(copy.to_str().unwrap(), args).output().unwrap();
    }
    std::fs::set_permissions(scratch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (uid, gid) = (format!("--reuid={SOMEBODY}"), format!("--regid={SOMEBODY}"));
    let mut command = team.command("setpriv", [&uid, &gid, "--clear-groups"]);
    command.arg(copy).args(args).output().unwrap()
}

/// Gives a directory to the ordinary user, if the tests run as root.
fn give(path: &Path, mode: u32) {
    if is_root() {
        chown(path, Some(Uid::from_raw(SOMEBODY)), None).unwrap();
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_read_only_directory_is_said() {
    let team = Team::new();
    let fails = |team: &Team, reason: &str| {
        let out = teamd_as_somebody(team, &["start"]);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("error: ") && stderr.contains(".team"), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    };
    give(team.root(), 0o555);
    fails(&team, "cannot make ");
    assert!(!team.path("").exists());
    // The directory is there, but nothing can be made in it.
    give(team.root(), 0o755);
    std::fs::create_dir(team.path("")).unwrap();
    give(&team.path(""), 0o500);
    fails(&team, "Permission denied");
    // So that the scratch directory can be removed.
    give(&team.path(""), 0o700);
    // And an ordinary user's own directory works.
    let out = teamd_as_somebody(&team, &["start"]);
    assert!(out.status.success(), "{out:?}");
    let out = teamd_as_somebody(&team, &["stop"]);
    assert!(out.status.success(), "{out:?}");
}

/// A frame: its length, and so many bytes.
fn frame(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The greeting of a command: protocol 1, `Peer::Client`.
const GREETING: &[u8] = &[1, 0];

/// A request: its number, and `Command::Ping`.
const PING: &[u8] = &[7, 0];

fn connect(team: &Team) -> UnixStream {
    // Long paths are tested elsewhere.
    let stream = UnixStream::connect(team.path("run/teamd.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Waits until the other side has closed a connection.
fn until_closed(mut stream: UnixStream) {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("it is still open: {error}"),
        }
    }
}

#[test]
fn garbage_on_the_control_socket_ends_that_connection_and_nothing_else() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.daemon_pid();
    let huge = [&[1_u8, 253][..], &(1_u64 << 45).to_le_bytes()].concat();
    let greeted = |frame_of: &[u8]| [frame(GREETING), frame(frame_of)].concat();
    let hostile: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        u32::MAX.to_be_bytes().to_vec(),
        ((4 << 20) + 1_u32).to_be_bytes().to_vec(),
        frame(b""),
        frame(&[0xff; 300]),
        frame(&huge),
        frame(&[GREETING, b"more"].concat()),
        greeted(b""),
        greeted(&[0xff; 300]),
        greeted(&[7, 250]),
        greeted(&huge),
        greeted(&[PING, b"more"].concat()),
    ];
    for bytes in hostile {
        let mut stream = connect(&team);
        stream.write_all(&bytes).unwrap();
        until_closed(stream);
    }
    // A worker that nobody knows is told to leave, whatever it says it is.
    let mut stream = connect(&team);
    stream.write_all(&frame(&[&[1, 1, 5], &b"alice"[..], &[1, 0, 0, 0, 0, 0, 0]].concat())).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    until_closed(stream);
    assert_eq!(team.json(["status"])["daemon"]["pid"], pid);
    assert_eq!(team.status("alice"), "idle");
    team.teamctl(["shutdown", "alice"]).ok();
}

#[test]
fn stalled_connections_hold_nobody_up() {
    let team = Team::started();
    team.spawn("alice", "");
    // One says nothing, one half a length, one half a frame, one half a request.
    let mut silent = connect(&team);
    silent.write_all(b"").unwrap();
    let mut half_a_length = connect(&team);
    half_a_length.write_all(&[0, 0]).unwrap();
    let mut half_a_frame = connect(&team);
    half_a_frame.write_all(&[0, 0, 0, 2, 1]).unwrap();
    let mut half_a_request = connect(&team);
    half_a_request.write_all(&[frame(GREETING), vec![0, 0, 1, 0, 7]].concat()).unwrap();
    // One asks and asks, and never reads: it is cut off.
    let mut deaf = connect(&team);
    deaf.write_all(&frame(GREETING)).unwrap();
    let pings = frame(PING).repeat(1000);
    let cut_off = (0..1000).any(|_| deaf.write_all(&pings).is_err());
    assert!(cut_off, "a million requests, and not one reply was read");
    team.spawn("bob", "");
    team.teamctl(["shutdown", "alice", "bob"]).ok();
    // Who does not say who it is, is closed; who has said it may take its time.
    [silent, half_a_length, half_a_frame].into_iter().for_each(until_closed);
    half_a_request.set_nonblocking(true).unwrap();
    let still_open = half_a_request.read(&mut [0]).unwrap_err();
    assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = hard.min(4096);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).unwrap();
    }
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.daemon_pid();
    let before = descriptors(pid);
    let connections: Vec<_> = (0..1000)
        .map(|number| {
            let mut stream = connect(&team);
            match number % 3 {
                0 => {}
                1 => stream.write_all(&frame(GREETING)).unwrap(),
                _ => stream.write_all(&[frame(GREETING), frame(PING)].concat()).unwrap(),
            }
            stream
        })
        .collect();
    team.json(["status"]);
    team.spawn("bob", "");
    drop(connections);
    team.teamctl(["shutdown", "bob"]).ok();
    if before.is_some() {
        team.until("the daemon to have closed them", || descriptors(pid) <= before);
    }
    assert_eq!(team.daemon_pid(), pid);
}

/// Limits how large a file the daemon may write: what a full disk or a quota does, for it alone.
fn limit_files(pid: i32, bytes: Option<usize>) {
    let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
    let done = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--fsize={limit}:")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Tries everything that needs the journal while it cannot be written, and again when it can.
fn fails_and_recovers(team: &Team, fill: impl Fn(), free: impl Fn()) {
    team.spawn("alice", "");
    team.spawn("bob", "/plan_approval drop the cache");
    team.wait_for("bob", "awaiting_approval");
    let plan = team.last_request("plan_approval");
    let (daemon, pids) = (team.daemon_pid(), (team.pid("alice"), team.pid("bob")));
    let before = team.file("journal.jsonl");
    fill();
    for command in [&["spawn", "carol"][..], &["shutdown", "alice"], &["approve", &plan], &["request-plan", "alice"]] {
        let said = team.teamctl(command).exits(1);
        assert!(said.stderr.contains("cannot write the journal") && said.stderr.contains("hint: "), "{said:?}");
    }
    // Nothing has changed, and everything still answers.
    assert_eq!(team.file("journal.jsonl"), before, "no half line");
    let status = team.json(["status"]);
    assert_eq!(status["daemon"]["pid"], daemon);
    assert_eq!(status["members"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!((team.pid("alice"), team.pid("bob")), pids);
    assert_eq!(team.status("alice"), "idle");
    // What the world does meanwhile is not forgotten.
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until("alice to be gone", || !is_alive(pids.0));
    free();
    team.until("alice to be started again", || {
        team.member("alice")["incarnation"] == 2 && team.status("alice") == "idle"
    });
    team.spawn("carol", "/write_file carol.txt hi");
    team.teamctl(["approve", &plan]).ok();
    team.wait_for("bob", "idle");
    team.until("carol to have worked", || team.root().join("carol.txt").exists());
    // The journal folds.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    for name in ["alice", "bob", "carol"] {
        team.wait_for(name, "idle");
    }
    assert!(!team.path("journal.torn").exists());
    team.teamd(["stop"]).ok();
    let seqs: Vec<_> = team.journal().iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
    team.until_nobody_is_left();
}

/// ENOSPC: a short write, the daemon lives, space returns, and the next line is glued to the torn one.
#[test]
fn a_disk_that_is_full_for_the_daemon_changes_nothing_and_is_recovered_from() {
    let team = Team::started();
    let pid = team.daemon_pid();
    let journal = team.path("journal.jsonl");
    fails_and_recovers(
        &team,
        // A few bytes fit: the write comes up short.
        || limit_files(pid, Some(usize::try_from(journal.metadata().unwrap().len()).unwrap() + 9)),
        || limit_files(pid, None),
    );
}

/// A small file system of its own, unmounted when the test is over.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None where it may not be mounted.
    fn mount(at: &Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k,mode=700", "none"])
            .arg(at)
            .output()
            .ok()?;
        mounted.status.success().then(|| Self(at.to_owned()))
    }

    fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        while filler.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

/// The whole disk is full: for the daemon, the workers and the commands.
#[test]
fn a_disk_that_is_full_for_all_loses_nothing_that_was_acknowledged() {
    let team = Team::new();
    std::fs::create_dir(team.path("")).unwrap();
    let Some(disk) = SmallDisk::mount(&team.path("")) else { return };
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    team.spawn("bob", "");
    disk.fill();
    // What is in no page yet has none: grow the files up to the end of theirs.
    let said = (0..400).find_map(|_| {
        let said = team.teamctl(["send", "alice", &"x".repeat(300)]);
        (said.code != Some(0)).then_some(said)
    });
    let said = said.unwrap();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("hint: free some space"), "{said:?}");
    let said = (0..40).find_map(|number| {
        let said = team.teamctl(["spawn", &format!("m{number}")]);
        (said.code != Some(0)).then_some(said)
    });
    let said = said.unwrap();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(team.json(["status"])["daemon"]["running"], true);
    disk.free();
    team.until("all to be well", || {
        let spawned = team.teamctl(["spawn", "late", "--prompt", "/write_file late.txt hi"]).code;
        spawned == Some(0) || team.status("late") == "idle"
    });
    team.until("late to have worked", || team.root().join("late.txt").exists());
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.wait_for("late", "idle");
    team.teamd(["stop", "--force"]).ok();
    team.until_nobody_is_left();
    drop(disk);
}

#[test]
fn a_deleted_team_directory_ends_everybody() {
    let team = Team::started();
    team.spawn("alice", "");
    let (daemon, alice) = (team.daemon_pid(), team.pid("alice"));
    std::fs::rename(team.path(""), team.root().join("gone")).unwrap();
    // Moved away is not gone: it still lives there.
    let moved = team.json(["--team-dir", "gone", "status"]);
    assert_eq!(moved["daemon"]["pid"], daemon);
    assert_eq!(moved["members"][0]["status"], json!("idle"));
    // Who still writes there can win against one removal, not against each.
    team.until("the directory to be deleted", || {
        drop(std::fs::remove_dir_all(team.root().join("gone")));
        !team.root().join("gone").exists()
    });
    team.until("everybody to be gone", || !is_alive(daemon) && !is_alive(alice));
    team.until_nobody_is_left();
}
