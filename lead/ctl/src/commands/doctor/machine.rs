//! The limits of the machine: inotify, open files, processes, cgroups, and the disk of the team
//! directory.

use rustix::fs::inotify::{self, CreateFlags};
use rustix::process::{Resource, getrlimit};
use teamd_client::print::render::count;
use teamd_client::read::processes::Processes;
use teamd_shared::cgroup::{CgroupPlace, CgroupRights, NoPlace, Use};
use teamd_shared::environment::Environment;

use super::finding::{CheckFinding, DoctorCheck, run};
use super::snapshot::Snapshot;

/// How many inotify instances a team takes: those of the daemon, and one each of the first 32
/// workers.
const WATCHERS: usize = 34;
/// Machines that have room for fewer teammates are worth a note.
const WORKERS: u64 = 32;
/// How many descriptors the daemon keeps for a teammate, roughly.
const FILES_EACH: u64 = 4;
/// How many descriptors a program needs in any case.
const FILES: u64 = 64;
/// Room for fewer further processes is worth a note: a teammate is one, its tool calls are more.
const FEW_PROCESSES: u64 = 64;
/// Less free space than this is a problem, in bytes: soon no line of the journal can be written.
const FULL: u64 = 16 << 20;
/// Less than this is worth a note, in bytes.
const NEARLY_FULL: u64 = 256 << 20;
/// Fewer free inodes than this are a problem: a teammate takes four, a tool call more.
const FEW_INODES: u64 = 200;
/// File systems whose data another machine (true) or a program has: `linux/magic.h`, of which the
/// lower 32 bits count.
const FILE_SYSTEMS: [(i64, &str, bool); 10] = [
    (0x6969, "NFS", true),
    (0xff53_4d42, "SMB", true),
    (0xfe53_4d42, "SMB", true),
    (0x517b, "SMB", true),
    (0x5346_414f, "AFS", true),
    (0x6b41_4653, "AFS", true),
    (0x00c3_6400, "Ceph", true),
    (0x0bd0_0bd0, "Lustre", true),
    (0x0102_1997, "9p", false),
    (0x6573_5546, "FUSE", false),
];
/// What follows where incarnations have no cgroup.
const NO_CGROUP: &str =
    "the shims find and end what a teammate starts, without a cgroup of its own";

/// Judges the limits of this user. The inotify instances of a team are made, and given back.
pub(super) fn examine(cgroups: Use) -> Vec<CheckFinding> {
    let user = nix::unistd::getuid().as_raw();
    let processes = Processes::read();
    let threads = processes
        .all()
        .filter(|process| process.user() == Some(user))
        .map(|process| process.stat.threads)
        .sum();
    let made: Vec<_> = (0..WATCHERS)
        .map_while(|_| inotify::init(CreateFlags::CLOEXEC).ok())
        .collect();
    let limit = if user != 0 {
        getrlimit(Resource::Nproc).current
    } else {
        None
    };
    [
        run("inotify", |check| inotify(check, made.len())),
        run("files", |check| {
            files(check, getrlimit(Resource::Nofile).maximum)
        }),
        run("processes", |check| {
            processes_of_user(check, limit, threads)
        }),
        run("cgroup", |check| {
            cgroup(
                check,
                (cgroups == Use::Auto).then(|| CgroupPlace::look(None)),
            )
        }),
        run("variables", |_| {
            Some(variables(&Environment::of_self().withheld()))
        }),
    ]
    .concat()
}

/// Lists the variables of this shell that reach no command.
fn variables(withheld: &[String]) -> String {
    match withheld {
        [] => "each variable of this shell reaches commands".to_owned(),
        names => format!(
            "{} of this shell reach no command, unless `[sandbox] env` names them: {}",
            count(names.len(), "variable"),
            names.join(", ")
        ),
    }
}

fn inotify(check: &mut DoctorCheck, can_be_made: usize) -> Option<String> {
    if can_be_made < WATCHERS {
        check.note(
            format!("fewer than {WATCHERS} further inotify instances can be made by this user"),
            "the daemon wakes workers that get none, and polls if it gets none itself",
            "end programs that watch many files, or `sysctl fs.inotify.max_user_instances=512` as root",
        );
    }
    Some(format!(
        "{WATCHERS} instances can be made: enough for the daemon and the first 32 workers"
    ))
}

fn files(check: &mut DoctorCheck, limit: Option<u64>) -> Option<String> {
    let enough = limit.unwrap_or(u64::MAX).saturating_sub(FILES) / FILES_EACH;
    if enough < WORKERS {
        check.note(
            format!("so few files may be open that about {enough} teammates can run"),
            "a spawn beyond that is refused; teammates that run are not disturbed",
            "raise the hard limit (`ulimit -Hn`, or `nofile` in /etc/security/limits.conf)",
        );
    }
    Some(limit.map_or("no limit of open files".to_owned(), |most| {
        format!("{most} open files a process")
    }))
}

fn processes_of_user(check: &mut DoctorCheck, limit: Option<u64>, threads: u64) -> Option<String> {
    if limit.is_some_and(|most| most.saturating_sub(threads) < FEW_PROCESSES) {
        check.note(
            format!("fewer than {FEW_PROCESSES} further processes may be started by this user"),
            "soon nothing can be started: no teammate, and no tool call",
            "end what is not needed, or raise the limit (`ulimit -u`)",
        );
    }
    let most = limit.map_or("no limit".to_owned(), |most| most.to_string());
    Some(format!(
        "{threads} run (with threads), the limit of this user: {most}"
    ))
}

/// Judges the cgroup of a daemon that is started from here; none if a setting turns cgroups off.
fn cgroup(check: &mut DoctorCheck, place: Option<Result<CgroupPlace, NoPlace>>) -> Option<String> {
    const DELEGATE: &str =
        "`systemd-run --user --scope -p Delegate=yes teamd start`, or `Delegate=yes` in a unit";
    let (why, next) = match place {
        None => ("off: a setting says so".to_owned(), ""),
        Some(Err(why)) => (why.to_string(), ""),
        Some(Ok(place)) if place.standing == CgroupRights::Foreign => (
            format!("{} is not delegated to this user", place.path),
            DELEGATE,
        ),
        Some(Ok(place)) => {
            let delegated = place.standing == CgroupRights::Delegated && !place.is_a_service();
            let has = |wanted| {
                delegated
                    && place
                        .controllers
                        .split_ascii_whitespace()
                        .any(|it| it == wanted)
            };
            let limits = match (has("memory"), has("pids")) {
                (true, true) => "",
                (false, true) => "; the limit of memory holds for each process",
                (true, false) => "; the limit of processes holds for each tool call",
                (false, false) => "; limits hold for each process",
            };
            return Some(format!(
                "each incarnation gets a cgroup below {}{limits}",
                place.path
            ));
        }
    };
    check.note(why, NO_CGROUP, next);
    None
}

/// Judges the file system of the team directory.
pub(super) fn file_system(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let stat = rustix::fs::fstatvfs(&*snapshot.dir).ok()?;
    if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        check.problem(
            "the file system of the team directory is mounted read-only",
            "no decision can be journaled, and no message sent",
            "mount it for writing; after an error of the disk, look at `dmesg` first",
        );
    }
    let number = rustix::fs::fstatfs(&*snapshot.dir).ok()?.f_type & 0xffff_ffff;
    match FILE_SYSTEMS.into_iter().find(|(of, ..)| *of == number) {
        Some((_, name, true)) => check.problem(
            format!("the team directory lies on {name}"),
            "a network file system has no atomic append: messages may be mixed, and locks may not hold",
            "put the team directory on a local disk (`--team-dir`, or move it while no daemon runs)",
        ),
        Some((_, name, false)) => check.note(
            format!("the team directory lies on {name}"),
            "whether appends are atomic and locks hold depends on the program that serves it",
            "a local disk is safer",
        ),
        None => return Some("local, and can be written".to_owned()),
    };
    None
}

/// Judges how much space is left.
pub(super) fn disk(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let stat = rustix::fs::fstatvfs(&*snapshot.dir).ok()?;
    // Some file systems count no files.
    let inodes = (stat.f_files > 0).then_some(stat.f_favail);
    space(check, stat.f_bavail.saturating_mul(stat.f_frsize), inodes)
}

fn space(check: &mut DoctorCheck, free: u64, inodes: Option<u64>) -> Option<String> {
    if free < FULL || inodes.is_some_and(|inodes| inodes < FEW_INODES) {
        let what = format!(
            "less than {} MiB or {FEW_INODES} files are free",
            FULL >> 20
        );
        let means =
            "soon nothing can be journaled: commands are refused, and messages cannot be sent";
        check.problem(what, means, "free space on the disk");
    } else if free < NEARLY_FULL {
        let what = format!("less than {} MiB are free", NEARLY_FULL >> 20);
        let next = "free space; `teamctl forget` and archive/ show what is old";
        check.note(what, "inboxes, transcripts and logs grow", next);
    }
    Some(format!("{} MiB are free", free >> 20))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::finding::tests::summaries;
    use super::*;

    fn worst(examine: impl FnOnce(&mut DoctorCheck) -> Option<String>) -> Severity {
        summaries(examine)
            .into_iter()
            .map(|(severity, _)| severity)
            .max()
            .unwrap()
    }

    #[test]
    fn what_is_scarce_is_a_finding() {
        let ok = Severity::Ok;
        let note = Severity::Note;
        let problem = Severity::Problem;
        assert_eq!(worst(|check| inotify(check, 3)), note);
        assert_eq!(worst(|check| files(check, Some(1_048_576))), ok);
        assert_eq!(worst(|check| files(check, Some(128))), note);
        assert_eq!(worst(|check| processes_of_user(check, Some(4096), 300)), ok);
        assert_eq!(
            worst(|check| processes_of_user(check, Some(4096), 4090)),
            note
        );
        for (free, inodes, severity) in [
            (1 << 40, Some(1 << 20), ok),
            (1 << 40, None, ok),
            (100 << 20, None, note),
            (1 << 20, None, problem),
            (1 << 40, Some(7), problem),
        ] {
            assert_eq!(
                worst(|check| space(check, free, inodes)),
                severity,
                "{free} {inodes:?}"
            );
        }
    }

    #[test]
    fn where_no_cgroup_can_be_made_or_limited_that_is_summaries() {
        let place = |standing, path: &str, controllers: &str| {
            let path = path.to_owned();
            let controllers = controllers.to_owned();
            Some(Ok(CgroupPlace {
                path,
                folder: "/sys/fs/cgroup/u".into(),
                standing,
                controllers,
            }))
        };
        let judged = |place| summaries(|check| cgroup(check, place)).remove(0);
        let both = "; limits hold for each process";
        for (place, end) in [
            (
                place(CgroupRights::Delegated, "/u", "memory pids"),
                "below /u",
            ),
            (
                place(CgroupRights::Delegated, "/u", "cpu pids"),
                "; the limit of memory holds for each process",
            ),
            (place(CgroupRights::Delegated, "/u", ""), both),
            (
                place(CgroupRights::Delegated, "/x/teamd.service", "memory pids"),
                both,
            ),
            (place(CgroupRights::Writable, "/u", "memory pids"), both),
        ] {
            let (severity, what) = judged(place);
            assert!(severity == Severity::Ok && what.ends_with(end), "{what}");
        }
        for place in [
            None,
            Some(Err(NoPlace::NotMounted)),
            place(CgroupRights::Foreign, "/u", ""),
        ] {
            assert_eq!(judged(place).0, Severity::Note);
        }
    }
}
