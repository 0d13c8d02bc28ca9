//! What is written where is tried against a plain directory that plays a cgroup; killing and
//! emptiness against real ones, where this user may make some.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use teamd_shared::member::Emptied;
use teamd_shared::name::Name;
use teamd_shared::process::How;
use teamd_shared::team_dir::TeamPath;
use tokio::sync::mpsc;

use super::limits::{hold, memory, prefer, procs};
use super::*;
use crate::core::event::Event;
use crate::io::lock::liveness_lock_is_held;
use crate::io::reaper::{Beginning, ExitContext, Reaper, Remains};

fn alice(incarnation: u32) -> Incarnation {
    Incarnation {
        name: Name::new("alice").unwrap(),
        number: incarnation,
    }
}

fn bounds() -> Bounds {
    Bounds {
        memory: Some(1 << 30),
        max_procs: Some(100),
        ..Bounds::default()
    }
}

/// A directory that plays a cgroup, with that of a team and of an incarnation in it.
struct Plain {
    _scratch: tempfile::TempDir,
    place: CgroupPlace,
    team: PathBuf,
    incarnation: PathBuf,
}

impl Plain {
    fn new(path: &str, standing: CgroupRights) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().to_owned();
        let team = folder.join("teamd-1");
        let incarnation = folder.join("teamd-1/alice.1");
        fs::create_dir_all(&incarnation).unwrap();
        let controllers = "cpu memory pids".to_owned();
        let place = CgroupPlace {
            path: path.to_owned(),
            folder,
            standing,
            controllers,
        };
        let plain = Self {
            _scratch: scratch,
            place,
            team,
            incarnation,
        };
        for file in ["cgroup.subtree_control", "teamd-1/cgroup.subtree_control"] {
            plain.file(file);
        }
        plain
    }

    fn file(&self, path: &str) {
        drop(fs::File::create(self.place.folder.join(path)).unwrap());
    }

    /// Makes a file of the incarnation.
    fn put(&self, path: &Path, text: &str) {
        let path = self.incarnation.join(path);
        drop(fs::File::create(&path).unwrap());
        limits::write(&path, text).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.place.folder.join(path)).unwrap()
    }

    fn hold(&self, bounds: &Bounds) -> (bool, bool) {
        hold(&self.place, &self.team, &self.incarnation, bounds)
    }
}

#[test]
fn a_limit_holds_for_the_sum_with_room_for_worker_and_shims() {
    let plain = Plain::new("/run-1.scope", CgroupRights::Delegated);
    for file in ["memory.max", "memory.swap.max", "pids.max"] {
        plain.file(&format!("teamd-1/alice.1/{file}"));
    }
    assert_eq!(plain.hold(&bounds()), (true, true));
    assert_eq!(
        plain.text("teamd-1/alice.1/memory.max"),
        ((1_u64 << 30) + (128 << 20)).to_string()
    );
    assert_eq!(plain.text("teamd-1/alice.1/memory.swap.max"), "0");
    assert_eq!(plain.text("teamd-1/alice.1/pids.max"), "164");
    for control in ["cgroup.subtree_control", "teamd-1/cgroup.subtree_control"] {
        assert!(plain.text(control).starts_with("+pids"), "the last order");
    }
}

#[test]
fn without_swap_accounting_memory_is_held_all_the_same() {
    let plain = Plain::new("/run-1.scope", CgroupRights::Delegated);
    plain.file("teamd-1/alice.1/memory.max");
    assert_eq!(
        plain.hold(&Bounds {
            max_procs: None,
            ..bounds()
        }),
        (true, false)
    );
}

#[test]
fn only_a_delegated_controller_is_handed_on_and_not_in_a_service_nor_without_need() {
    for (path, standing) in [
        ("/x.scope", CgroupRights::Writable),
        ("/teamd.service", CgroupRights::Delegated),
    ] {
        let plain = Plain::new(path, standing);
        assert_eq!(plain.hold(&bounds()), (false, false), "{path}");
        assert_eq!(plain.text("cgroup.subtree_control"), "", "{path}");
    }
    let plain = Plain::new("/x.scope", CgroupRights::Delegated);
    assert_eq!(
        plain.hold(&Bounds {
            cpu_time: Some(5),
            ..Bounds::default()
        }),
        (false, false)
    );
    assert_eq!(plain.text("cgroup.subtree_control"), "");
}

#[test]
fn a_check_comes_before_teammates_where_the_processors_are_delegated() {
    let weight = |standing| {
        let plain = Plain::new("/x.scope", standing);
        plain.file("teamd-1/alice.1/cpu.weight");
        prefer(&plain.place, &plain.team, &plain.incarnation);
        assert_eq!(
            plain.text("cgroup.subtree_control"),
            plain.text("teamd-1/cgroup.subtree_control")
        );
        [
            plain.text("cgroup.subtree_control"),
            plain.text("teamd-1/alice.1/cpu.weight"),
        ]
    };
    assert_eq!(weight(CgroupRights::Delegated), ["+cpu", "1000"]);
    assert_eq!(weight(CgroupRights::Writable), ["", ""]);
}

#[test]
fn what_the_kernel_refuses_is_not_said_to_be_held() {
    let plain = Plain::new("/x.scope", CgroupRights::Delegated);
    // There is neither memory.max nor pids.max.
    assert_eq!(plain.hold(&bounds()), (false, false));
    let plain = Plain::new("/x.scope", CgroupRights::Delegated);
    fs::remove_file(plain.place.folder.join("cgroup.subtree_control")).unwrap();
    assert_eq!(plain.hold(&bounds()), (false, false));
}

#[test]
fn no_limit_overflows() {
    let most = Bounds {
        memory: Some(u64::MAX),
        max_procs: Some(u32::MAX),
        ..Bounds::default()
    };
    let told = format!("{:?} {:?}", memory(&most), procs(&most));
    assert!(
        told.contains(&u64::MAX.to_string()) && told.contains(&u32::MAX.to_string()),
        "{told}"
    );
    assert_eq!(
        (memory(&Bounds::default()), procs(&Bounds::default())),
        (None, None)
    );
}

/// A team that may make cgroups, and removes them when it is dropped; none, and a note, where it
/// may not.
struct Real {
    _scratch: tempfile::TempDir,
    dir: Arc<TeamDir>,
    cgroups: Cgroups,
}

impl Real {
    fn new() -> Option<Self> {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let cgroups = Cgroups::open(&dir, Use::Auto);
        if cgroups.place.is_none() {
            // Not by a macro, whose output is not shown of a test that passes.
            writeln!(io::stderr(), "note: no cgroup can be made here: not tried").unwrap();
            return None;
        }
        Some(Self {
            _scratch: scratch,
            dir,
            cgroups,
        })
    }

    /// Runs a script in the cgroup of an incarnation, which it enters as a worker does.
    fn enclosed(&self, incarnation: &Incarnation, script: &str) -> (Child, CgroupHandle) {
        let group = self.cgroups.make(incarnation, &Bounds::default()).unwrap();
        let procs = Path::new(&group.record().path).join("cgroup.procs");
        let mut child = bash(&format!("echo 0 >{} && echo && {script}", procs.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        (child, group)
    }

    /// Waits until nothing of an incarnation is left in its cgroup; returns how that was
    /// established.
    fn reaps(&self, group: CgroupHandle) -> Option<Emptied> {
        let (ends, mut ended) = mpsc::unbounded_channel();
        let context = ExitContext {
            how: How {
                ours: true,
                ..How::default()
            },
            beginning: Beginning::default(),
            next_works_in: None,
        };
        let remains = Remains {
            closed: None,
            group: Some(group),
            lock_tells: true,
        };
        block_on(async {
            Reaper::new(Arc::clone(&self.dir), ends).wait(alice(1), context, remains);
            match ended.recv().await {
                Some(Event::Ended { ended, .. }) => ended.emptied,
                other => panic!("{other:?}"),
            }
        })
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let (_, team) = self.cgroups.team().unwrap();
        for folder in cgroup::below(&team) {
            drop(limits::write(&folder.join("cgroup.kill"), "1"));
        }
        let began = std::time::Instant::now();
        while cgroup::remove(&team).is_err() && began.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), future)
            .await
            .unwrap()
    })
}

/// What is left of a test that fails must not hold the output of the tests open.
fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn sleeping(folder: &Path) -> usize {
    let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    listed(folder)
        .iter()
        .filter(|pid| comm(pid) == "sleep\n")
        .count()
}

fn listed(folder: &Path) -> Vec<u32> {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap();
    listed.lines().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_process_that_has_left_parent_and_session_is_killed() {
    let Some(real) = Real::new() else { return };
    let script = "setsid --fork sleep 600; (setsid sleep 600 &); exec sleep 600";
    let (mut child, group) = real.enclosed(&alice(1), script);
    let folder = PathBuf::from(&group.record().path);
    let began = std::time::Instant::now();
    while sleeping(&folder) < 3 && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    // A zombie is not in the cgroup any more.
    let emptiness = block_on(group.empty("alice"));
    child.wait().unwrap();
    assert_eq!(emptiness, Emptiness::Empty);
    assert!(!folder.exists());
}

#[test]
fn a_shim_that_does_not_end_is_killed_with_the_whole_incarnation() {
    let Some(real) = Real::new() else { return };
    let transcript = TeamPath::transcript(&alice(1).name);
    teamd_shared::fs::replace(&real.dir, &transcript, b"").unwrap();
    let script = format!(
        "exec flock {} sleep 600",
        real.dir.path(&transcript).display()
    );
    let (mut child, group) = real.enclosed(&alice(1), &script);
    while !liveness_lock_is_held(&real.dir, &alice(1).name) {
        std::thread::yield_now();
    }
    let emptied = real.reaps(group);
    child.wait().unwrap();
    assert_eq!(emptied, Some(Emptied::Cgroup));
}

#[test]
fn a_cgroup_that_is_gone_proves_nothing() {
    let Some(real) = Real::new() else { return };
    let record = Cgroup {
        path: "/sys/fs/cgroup/there/is/none".to_owned(),
        ..Cgroup::default()
    };
    let group = CgroupHandle::new(record, None);
    assert_eq!(block_on(group.empty("alice")), Emptiness::Gone);
    assert_eq!(real.reaps(group), Some(Emptied::Tree));
}

#[test]
fn where_the_kill_is_refused_the_daemon_waits_until_the_processes_have_ended_by_themselves() {
    // Nothing in it is called cgroup.kill: that cannot be written.
    let plain = Plain::new("/x.scope", CgroupRights::Writable);
    let path = plain.incarnation.clone();
    plain.put(Path::new("cgroup.events"), "populated 1\n");
    let record = Cgroup {
        path: path.to_str().unwrap().to_owned(),
        ..Cgroup::default()
    };
    let group = CgroupHandle::new(record, Some(plain.team.clone()));
    let kernel = std::thread::spawn(move || {
        limits::write(&path.join("cgroup.events"), "populated 0\n").unwrap();
    });
    assert_eq!(block_on(group.empty("alice")), Emptiness::Empty);
    kernel.join().unwrap();
}

#[test]
fn the_cgroup_that_an_earlier_daemon_had_made_for_the_team_goes_with_the_last_in_it() {
    let Some(real) = Real::new() else { return };
    let (mut child, group) = real.enclosed(&alice(1), "exec sleep 600");
    let (_, team) = real.cgroups.team().unwrap();
    fs::create_dir(team.join(cgroup::DAEMON)).unwrap();
    fs::create_dir(team.join("bob.1")).unwrap();
    // A daemon that makes its own elsewhere.
    let found =
        |record: &Cgroup| CgroupHandle::new(record.clone(), Some(PathBuf::from("/elsewhere")));
    assert_eq!(
        block_on(found(group.record()).empty("alice")),
        Emptiness::Empty
    );
    child.wait().unwrap();
    let bob = team.join("bob.1");
    assert!(bob.exists(), "it is another incarnation's");
    fs::create_dir_all(team.join(cgroup::DAEMON)).unwrap();
    let bob = Cgroup {
        path: bob.to_str().unwrap().to_owned(),
        ..Cgroup::default()
    };
    assert_eq!(block_on(found(&bob).empty("alice")), Emptiness::Empty);
    assert!(!team.exists());
}

#[test]
fn only_the_cgroup_of_this_team_and_incarnation_is_found() {
    let Some(real) = Real::new() else { return };
    let (mut child, group) = real.enclosed(&alice(1), "exec sleep 600");
    let path = group.record().path.clone();
    let finds = |cgroups: &Cgroups, incarnation: &Incarnation, path: &str| {
        cgroups
            .find(
                incarnation,
                &Cgroup {
                    path: path.to_owned(),
                    ..Cgroup::default()
                },
            )
            .is_some()
    };
    assert!(finds(&real.cgroups, &alice(1), &path));
    assert!(
        !finds(&real.cgroups, &alice(2), &path),
        "another incarnation"
    );
    assert!(
        !finds(&real.cgroups, &alice(1), &path.replace("teamd-", "teamd-0")),
        "another team"
    );
    assert!(
        !finds(&real.cgroups, &alice(1), &path.replacen('/', "", 1)),
        "not absolute"
    );
    // A copy of the team directory names the same, and is another team.
    let copy = TeamDir::create(&real.dir.root().with_file_name("copy")).unwrap();
    assert!(!finds(&Cgroups::open(&copy, Use::Auto), &alice(1), &path));
    // A setting that changed meanwhile does not make it forgotten.
    let off = Cgroups::open(&real.dir, Use::Off);
    assert!(finds(&off, &alice(1), &path));
    assert!(off.make(&alice(2), &Bounds::default()).is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_populated_cgroup_of_an_earlier_journal_is_left_alone_and_an_empty_one_is_replaced() {
    let Some(real) = Real::new() else { return };
    let (mut child, group) = real.enclosed(&alice(1), "exec sleep 600");
    assert!(real.cgroups.make(&alice(1), &Bounds::default()).is_none());
    assert_eq!(listed(Path::new(&group.record().path)), [child.id()]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(real.cgroups.make(&alice(1), &Bounds::default()).is_some());
}
