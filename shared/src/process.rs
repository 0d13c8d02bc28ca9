//! The identity of a process: boot id, pid and start ticks, held by a pidfd. Never a name, a parent
//! or a time of day.

mod children;
mod confined;
mod handle;
mod own;

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use rustix::time::ClockId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock;

pub use children::{children_by_parent, children_of};
pub use confined::SandboxFlags;
pub use handle::{How, ProcessHandle};
pub use own::{adopt_orphans, close_inherited, deny_tracing, set_signals, survive_file_limit};

/// What distinguishes a process from every other one that this machine has ever had.
///
/// The kernel reuses a pid, but never with the same start. Start ticks begin again at a boot, which
/// has another boot id. (`/proc/PID/stat` field 22, see `proc_pid_stat(5)`; `random(4)` for the
/// boot id.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// The process id.
    pub pid: u32,
    /// Clock ticks between the boot and the start of the process.
    pub start_ticks: u64,
    /// The boot that both belong to.
    pub boot_id: String,
}

impl Identity {
    /// Returns the identity of this process.
    ///
    /// # Errors
    /// The system's error if `/proc` cannot be read.
    pub fn of_self() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Returns the identity of the process that has this pid now.
    ///
    /// # Errors
    /// `NotFound` if there is none (or only a zombie), or the system's error.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = Stat::of(pid)?;
        if stat.has_ended() {
            return Err(gone(pid));
        }
        Ok(Self {
            pid,
            start_ticks: stat.start_ticks,
            boot_id: boot_id()?,
        })
    }

    /// Reaps exactly this process if it has ended and is a child of this one, and returns how it
    /// ended.
    ///
    /// A program that replaced another one ([`std::os::unix::process::CommandExt::exec`]) has its
    /// children, but holds none of them.
    pub fn reap(&self) -> How {
        // A child that is not reaped keeps its pid: this looks at no other process.
        let is_it = Stat::of(self.pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks);
        let pid = if is_it { pid_of(self.pid) } else { None };
        match pid.map(|pid| waitpid(Some(pid), WaitOptions::NOHANG)) {
            Some(Ok(Some((_, status)))) => How {
                code: status.exit_status(),
                signal: status.terminating_signal(),
                ours: true,
            },
            _ => How::default(),
        }
    }

    /// Tells whether exactly this process still runs (a zombie does not).
    ///
    /// # Errors
    /// The system's error if that cannot be determined, for example because no descriptor is left.
    pub fn runs(&self) -> io::Result<bool> {
        self.is(Self::of(self.pid))
    }

    fn is(&self, found: io::Result<Self>) -> io::Result<bool> {
        match found {
            Ok(now) => Ok(now == *self),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`Identity::runs`], for callers that must not take a process for gone: if that cannot be
    /// determined, it is alive.
    pub fn is_alive(&self) -> bool {
        self.runs().unwrap_or(true)
    }

    /// Tells whether the process is below another one, or is that one.
    ///
    /// # Errors
    /// The system's error if that cannot be seen.
    pub fn descends_from(&self, other: &Self) -> io::Result<bool> {
        let mut pid = self.pid;
        for _ in 0..MOST_ABOVE {
            let stat = match Stat::of(pid) {
                Ok(stat) => stat,
                Err(error) if is_gone(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            if pid == other.pid && stat.start_ticks == other.start_ticks {
                return Ok(true);
            }
            if stat.parent == 0 {
                return Ok(false);
            }
            pid = stat.parent;
        }
        Ok(false)
    }

    /// Returns how long ago the process was started; zero if the kernel does not tell its clock.
    pub fn age(&self) -> Duration {
        clock::now(ClockId::Boottime).saturating_sub(ticks(self.start_ticks))
    }
}

/// Returns a number of clock ticks (`proc_pid_stat(5)`) as a time.
pub fn ticks(ticks: u64) -> Duration {
    let each = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs(ticks / each) + Duration::from_nanos(ticks % each * (1_000_000_000 / each))
}

/// Returns the id of this boot of the machine.
///
/// # Errors
/// The system's error if `/proc` cannot be read.
pub fn boot_id() -> io::Result<String> {
    // It is the same for as long as this process lives.
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = BOOT_ID.get() {
        return Ok(id.clone());
    }
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // A missing file here does not mean a missing process.
    let read = read
        .map_err(|error| io::Error::other(format!("cannot read the id of this boot: {error}")))?;
    Ok(BOOT_ID.get_or_init(|| read.trim().to_owned()).clone())
}

/// Tells whether an error means that a process has ended, possibly while its file in `/proc` was
/// read.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The most processes above another one that are looked at.
const MOST_ABOVE: usize = 1000;

/// Longer than any line of `/proc/PID/stat`: a name of 64 bytes, and 50 numbers of 20 digits.
const STAT_SIZE: usize = 2048;

/// What the kernel reports of a process (`proc_pid_stat(5)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// One letter.
    state: char,
    /// The pid of its parent.
    pub parent: u32,
    /// The device number of its terminal; 0 if it has none.
    pub terminal: u32,
    /// The processor time that it used, in clock ticks, including that of the children that it has
    /// reaped.
    pub cpu: u64,
    /// How many threads it has.
    pub threads: u64,
    /// Its start, in clock ticks since the boot.
    pub start_ticks: u64,
    /// Pages of memory in use.
    pub rss: u64,
}

impl Stat {
    /// Reads the file of the process that has this pid now.
    ///
    /// # Errors
    /// The system's error; [`is_gone`] recognizes that of a process that has ended and was reaped.
    pub fn of(pid: u32) -> io::Result<Self> {
        // The kernel gives the whole file at once, and says nothing of its size.
        let mut buffer = [0; STAT_SIZE];
        let length = File::open(format!("/proc/{pid}/stat"))?.read(&mut buffer)?;
        // The name may be any bytes, and be cut anywhere.
        let text = String::from_utf8_lossy(&buffer[..length]);
        Self::parse(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("/proc/{pid}/stat is not understood: {text}"),
            )
        })
    }

    /// The name (field 2) may hold spaces and parentheses: fields count from the last one.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(4)?).ok()?,
            terminal: number(7).and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
            // utime, stime, cutime, cstime
            cpu: (14..=17).filter_map(number).fold(0, u64::saturating_add),
            threads: number(20).unwrap_or_default(),
            start_ticks: number(22)?,
            rss: number(24).unwrap_or_default(),
        })
    }

    /// Tells whether the process has ended; it was not reaped yet.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn gone(pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended"))
}

/// Kills a child of this process, and reaps it if it has ended. Returns false if it runs and may
/// not be killed, because it belongs to another user by now.
pub fn kill_child(pid: u32) -> bool {
    let Some(child) = pid_of(pid) else {
        return true;
    };
    let killed = rustix::process::kill_process(child, Signal::KILL);
    if let Err(errno) = killed {
        tracing::debug!("cannot kill the orphan {pid}: {errno}");
    }
    reap_child(pid) || killed != Err(rustix::io::Errno::PERM)
}

/// Reaps a child of this process if it has ended, and tells whether it had.
pub fn reap_child(pid: u32) -> bool {
    let Some(child) = pid_of(pid) else {
        return false;
    };
    match waitpid(Some(child), WaitOptions::NOHANG) {
        Ok(ended) => ended.is_some(),
        Err(errno) => {
            tracing::debug!("cannot reap the process {pid}: {errno}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    proptest::proptest! {
        #[test]
        fn any_stat_has_a_start_or_none(text in "[0-9]{0,8} ?\\(?.{0,20}\\)?( [A-Z])?( -?[0-9]{1,25}){0,30}", noise: String) {
            proptest::prop_assert!(Stat::parse(&text).is_none_or(|stat| !stat.state.is_whitespace()));
            proptest::prop_assert!(Stat::parse(&noise).is_none_or(|stat| !stat.state.is_whitespace()));
        }
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 0 0 0 10 20 30 40 20 0 2 0 81991 1000 25 1";
        let stat = Stat {
            state: 'S',
            parent: 3,
            terminal: 0,
            cpu: 100,
            threads: 2,
            start_ticks: 81991,
            rss: 25,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("7 (x"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn this_process_is_alive_and_another_start_is_another_process() {
        let me = Identity::of_self().unwrap();
        assert!(me.is_alive());
        let other = Identity {
            start_ticks: me.start_ticks + 1,
            ..me.clone()
        };
        assert!(!other.is_alive());
        assert_eq!(
            ProcessHandle::open(other).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(ProcessHandle::open(me.clone()).unwrap().identity(), &me);
    }

    #[test]
    fn a_process_whose_name_is_no_text_can_be_told_from_another() {
        let scratch = tempfile::tempdir().unwrap();
        // The kernel keeps fifteen bytes of a name: half of the last letter.
        let program = scratch.path().join("fourteen-bytesé");
        // No copy: what another test starts has it open to be written for a moment, and it cannot
        // be run then.
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program)
            .arg0("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let name = format!("/proc/{}/comm", child.id());
        // The kernel names a program a moment after it has let go of who started it.
        while std::str::from_utf8(&std::fs::read(&name).unwrap()).is_ok() {
            std::thread::yield_now();
        }
        let now = Identity::of(child.id()).unwrap();
        let before = Identity {
            start_ticks: now.start_ticks - 1,
            ..now.clone()
        };
        assert!(now.runs().unwrap() && !before.runs().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_taken_for_gone() {
        let me = Identity::of_self().unwrap();
        let cannot = |errno: rustix::io::Errno| Err(io::Error::from(errno));
        assert!(
            !me.is(cannot(rustix::io::Errno::NOENT)).unwrap()
                && !me.is(cannot(rustix::io::Errno::SRCH)).unwrap()
        );
        assert!(me.is(cannot(rustix::io::Errno::MFILE)).is_err());
    }

    #[test]
    fn a_child_that_has_ended_already_can_be_held_and_reaped() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exit 7"])
            .spawn()
            .unwrap();
        let waited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), waited).unwrap();
        assert!(Identity::of(child.id()).is_err(), "to others it is gone");
        let held = ProcessHandle::open_child(child.id()).unwrap();
        assert_eq!(
            held.reap().unwrap(),
            How {
                code: Some(7),
                signal: None,
                ours: true
            }
        );
        assert!(child.wait().is_err(), "it was reaped");
    }

    #[test]
    fn the_end_of_a_process_is_waited_for() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let held = ProcessHandle::open_pid(child.id()).unwrap();
            let ended = held.ended();
            tokio::pin!(ended);
            let moment = Duration::from_millis(30);
            let early = tokio::time::timeout(moment, &mut ended).await;
            assert!(early.is_err(), "it still runs");
            child.kill().unwrap();
            ended.await.unwrap();
            child.wait().unwrap();
        });
    }

    #[test]
    fn an_ended_process_cannot_be_held() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(
            ProcessHandle::open_pid(pid).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
