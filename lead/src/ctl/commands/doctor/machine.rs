//! What the machine has to give: watches, files, processes, cgroups. Looking here, judging below, pure.

use std::path::Path;

use rustix::process::{Resource, getrlimit};
use teamd_shared::cgroup::{NoPlace, Place, Standing, Use};

use super::finding::Finding;
use super::processes::Process;

/// How many inotify instances a team takes: those of the daemon, and one each of the first 32 workers.
const WATCHERS: u64 = 34;
/// How many descriptors the daemon keeps for a teammate, roughly.
const FILES_EACH: u64 = 4;
/// How many descriptors a program needs in any case.
const FILES: u64 = 64;
/// How many more processes are few: a teammate is one, its commands are more.
const FEW_PROCESSES: u64 = 64;

/// What was found out.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Instances of inotify that the user may have; none where there is no inotify.
    instances: Option<u64>,
    /// Those that were seen in use: not of programs that nobody may look into.
    used: u64,
    /// Whether one more could be had.
    one_more: bool,
    /// Watches that the user may have.
    watches: u64,
    /// The hard limit of open files; none: no limit.
    files: Option<u64>,
    /// The limit of processes and threads; none: no limit.
    processes: Option<u64>,
    /// How many the user has.
    running: u64,
    cgroup: Cgroup,
}

/// Where a daemon stands that is started from here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cgroup {
    /// A setting says that none is used.
    Off,
    /// As this process does.
    On(Result<Place, NoPlace>),
}

impl Machine {
    /// Looks. Nothing is changed; one inotify instance is made and given back.
    pub(super) fn look(processes: &[Process], cgroups: Use) -> Self {
        let limit = |name: &str| number(Path::new("/proc/sys/fs/inotify").join(name).as_path());
        let user = nix::unistd::getuid().as_raw();
        let mine = || processes.iter().filter(|process| process.user == user);
        Self {
            instances: limit("max_user_instances"),
            used: mine().map(|process| instances_of(process.pid)).sum(),
            one_more: one_more(),
            watches: limit("max_user_watches").unwrap_or(0),
            files: getrlimit(Resource::Nofile).maximum,
            processes: getrlimit(Resource::Nproc).current.filter(|_| user != 0),
            running: mine().map(|process| process.threads).sum(),
            cgroup: match cgroups {
                Use::Off => Cgroup::Off,
                Use::Auto => Cgroup::On(Place::look(None)),
            },
        }
    }

    /// Says what it means.
    pub(super) fn findings(&self) -> Vec<Finding> {
        vec![self.inotify(), self.files(), self.processes(), self.cgroup.finding()]
    }

    fn inotify(&self) -> Finding {
        const CHECK: &str = "inotify";
        const RAISE: &str =
            "end programs that watch many files, or `sysctl fs.inotify.max_user_instances=512` as root";
        let Some(most) = self.instances else {
            return Finding::note(CHECK, "there is no inotify here").means("files are looked at on a timer");
        };
        let (used, left) = (self.used, most.saturating_sub(self.used));
        if !self.one_more {
            return Finding::note(CHECK, format!("no inotify instance is left of {most} that the user may have"))
                .means("a daemon that gets none looks every 250 ms, and rings its workers: later, and nothing is lost")
                .next(RAISE);
        }
        let seen = format!(
            "{used} of {most} instances are in use that can be seen, {} watches may be had",
            self.watches
        );
        if left < WATCHERS {
            return Finding::note(CHECK, seen)
                .about(CHECK)
                .means(format!("the daemon and the first 32 workers take {WATCHERS}; workers that get none are rung by the daemon: nothing is lost"))
                .next(RAISE);
        }
        if self.watches < 2 * WATCHERS {
            return Finding::note(CHECK, seen)
                .about(CHECK)
                .means("where no watch is left, files are looked at on a timer")
                .next("`sysctl fs.inotify.max_user_watches=65536` as root");
        }
        Finding::ok(CHECK, format!("{seen}: enough for the daemon and the first 32 workers; others are rung"))
    }

    fn files(&self) -> Finding {
        const CHECK: &str = "files";
        let Some(most) = self.files else { return Finding::ok(CHECK, "no limit of open files") };
        let enough = most.saturating_sub(FILES) / FILES_EACH;
        let what = format!("{most} open files a process: enough for about {enough} teammates");
        if enough >= 32 {
            return Finding::ok(CHECK, what);
        }
        Finding::note(CHECK, what)
            .means("a spawn beyond that is refused; nobody who runs is disturbed")
            .next("raise the hard limit (`ulimit -Hn`, or `nofile` in /etc/security/limits.conf)")
    }

    fn processes(&self) -> Finding {
        const CHECK: &str = "processes";
        let running = self.running;
        let Some(most) = self.processes else {
            return Finding::ok(CHECK, format!("no limit for this user, who runs {running} (with threads)"));
        };
        let what = format!("{running} of {most} processes (with threads) run that this user may have");
        if most.saturating_sub(running) >= FEW_PROCESSES {
            return Finding::ok(CHECK, what);
        }
        Finding::note(CHECK, what)
            .about(CHECK)
            .means("soon nothing can be started: no teammate, and no command of one")
            .next("end what is not needed, or raise the limit (`ulimit -u`)")
    }
}

impl Cgroup {
    fn finding(&self) -> Finding {
        const CHECK: &str = "cgroup";
        const WITHOUT: &str =
            "what a teammate starts is found and ended by its keepers, without a cgroup of its own";
        let without = |why: String| Finding::note(CHECK, why).means(WITHOUT);
        match self {
            Self::Off => without("off: a setting says so".to_owned()),
            Self::On(Err(why)) => without(why.to_string()),
            Self::On(Ok(place)) => {
                let path = &place.path;
                let gives =
                    format!("version 2, a daemon that is started from here gives each life one below {path}");
                let limits = |why: &str| format!("{gives}; limits hold for each process: {why}");
                match place.standing {
                    Standing::Foreign => without(format!("version 2, {path} is not delegated to this user"))
                        .next("to give lives one: `systemd-run --user --scope -p Delegate=yes teamd start`, or `Delegate=yes` in a unit"),
                    Standing::Writable => Finding::ok(CHECK, limits("no controller is delegated")),
                    Standing::Delegated if place.is_a_service() => {
                        Finding::ok(CHECK, limits("a service hands no controller on, or it could not be started again beside its workers"))
                    }
                    Standing::Delegated => match missing(&place.controllers)[..] {
                        [] => Finding::ok(CHECK, format!("{gives}, which is delegated with {}", place.controllers)),
                        [one] => Finding::ok(CHECK, format!("{gives}; the limit of {one} holds for each process: it is not among its controllers")),
                        _ => Finding::ok(CHECK, limits("neither memory nor pids is among its controllers")),
                    },
                }
            }
        }
    }
}

/// Returns which of the controllers that lives are bounded by are not there.
fn missing(controllers: &str) -> Vec<&'static str> {
    let there = |wanted: &str| controllers.split_ascii_whitespace().any(|it| it == wanted);
    ["memory", "pids"].into_iter().filter(|wanted| !there(wanted)).collect()
}

/// Counts the inotify instances of a process; 0 for one that nobody may look into.
fn instances_of(pid: u32) -> u64 {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let is_instance = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|leads| leads.as_os_str() == "anon_inode:inotify")
    };
    open.filter_map(Result::ok).filter(is_instance).count() as u64
}

#[cfg(target_os = "linux")]
fn one_more() -> bool {
    rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn one_more() -> bool {
    true
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn usual() -> Machine {
        Machine {
            instances: Some(128),
            used: 5,
            one_more: true,
            watches: 65536,
            files: Some(1_048_576),
            processes: Some(4096),
            running: 300,
            cgroup: Cgroup::On(Ok(place(Standing::Delegated))),
        }
    }

    fn place(standing: Standing) -> Place {
        let folder = "/sys/fs/cgroup/u".into();
        Place { path: "/u".to_owned(), folder, standing, controllers: "memory pids".to_owned() }
    }

    #[test]
    fn a_usual_machine_is_fine_and_what_is_scarce_is_said() {
        assert!(usual().findings().iter().all(|finding| finding.severity == Severity::Ok));
        let scarce = [
            Machine { used: 100, ..usual() },
            Machine { one_more: false, ..usual() },
            Machine { watches: 10, ..usual() },
            Machine { files: Some(128), ..usual() },
            Machine { running: 4090, ..usual() },
            Machine { cgroup: Cgroup::Off, ..usual() },
            Machine { cgroup: Cgroup::On(Err(NoPlace::NotMounted)), ..usual() },
            Machine { cgroup: Cgroup::On(Ok(place(Standing::Foreign))), ..usual() },
        ];
        for machine in scarce {
            let notes: Vec<_> =
                machine.findings().into_iter().filter(|it| it.severity == Severity::Note).collect();
            assert_eq!(notes.len(), 1, "{machine:?}");
            assert!(!notes[0].means.is_empty());
        }
    }

    #[test]
    fn where_limits_hold_for_each_process_only_the_reason_is_told() {
        let told = |place| Cgroup::On(Ok(place)).finding().what;
        let delegated = place(Standing::Delegated);
        assert!(told(delegated.clone()).ends_with("which is delegated with memory pids"));
        let service = Place { path: "/x/teamd.service".to_owned(), ..delegated.clone() };
        let with = |controllers: &str| Place { controllers: controllers.to_owned(), ..delegated.clone() };
        let (bare, others) = (with(""), with("cpu hugetlb"));
        assert!(told(with("cpu pids")).contains("the limit of memory holds for each process"));
        assert!(told(with("memory")).contains("the limit of pids holds for each process"));
        for (place, why) in [
            (service, "a service hands"),
            (bare, "neither memory nor pids"),
            (others, "neither memory nor pids"),
            (place(Standing::Writable), "no controller is"),
        ] {
            let told = told(place);
            assert!(told.contains(&format!("limits hold for each process: {why}")), "{told}");
        }
    }
}
