//! What can happen at a system call instead of what was asked for, and where each fault can happen
//! at all.

use nix::libc;

use crate::syscalls::Sort;

/// A system call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) sort: Sort,
    /// Its arguments.
    pub(crate) args: [u64; 6],
    /// Whether its first argument is a descriptor of a file.
    pub(crate) on_file: bool,
    /// Whether that may take a part of what is written: the kernel takes an order (to a cgroup)
    /// whole, or refuses it.
    pub(crate) in_parts: bool,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The process is killed before the call.
    Kill,
    /// So is, in the same instant, the one at its other end: the worker with its daemon, the daemon
    /// with the others.
    Both,
    /// The process is killed before a sync: what it wrote stands there, and need not last.
    Unsynced,
    /// Half of the bytes are written to a file, then the process is killed.
    Tear,
    /// Half of the bytes are written to a file, and the call says so.
    Short,
    /// The device fails.
    Eio,
    /// What was written cannot be made to last.
    Sync,
    /// The disk is full for one call.
    Enospc,
    /// The disk is full for fifty calls.
    Full,
    /// No descriptor is left for one call.
    Emfile,
    /// No descriptor is left for twenty calls.
    Scarce,
    /// A signal interrupts the call.
    Eintr,
}

/// What the tracer does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Kill { both: bool },
    Halve { kill: bool },
    Fail(i32),
}

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::Kill,
        Self::Both,
        Self::Unsynced,
        Self::Tear,
        Self::Short,
        Self::Eio,
        Self::Sync,
        Self::Enospc,
        Self::Full,
        Self::Emfile,
        Self::Scarce,
        Self::Eintr,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Both => "both",
            Self::Unsynced => "unsynced",
            Self::Tear => "tear",
            Self::Short => "short",
            Self::Eio => "eio",
            Self::Sync => "sync",
            Self::Enospc => "enospc",
            Self::Full => "full",
            Self::Emfile => "emfile",
            Self::Scarce => "scarce",
            Self::Eintr => "eintr",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Whether it ends the process.
    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::Both | Self::Unsynced | Self::Tear)
    }

    /// For how many calls it lasts.
    pub(crate) fn lasts(self) -> u64 {
        match self {
            Self::Full => 50,
            Self::Scarce => 20,
            _ => 1,
        }
    }

    /// What happens to a call that it can happen to.
    pub(crate) fn act(self) -> Act {
        match self {
            Self::Kill | Self::Unsynced => Act::Kill { both: false },
            Self::Both => Act::Kill { both: true },
            Self::Tear => Act::Halve { kill: true },
            Self::Short => Act::Halve { kill: false },
            Self::Eio | Self::Sync => Act::Fail(libc::EIO),
            Self::Enospc | Self::Full => Act::Fail(libc::ENOSPC),
            Self::Emfile | Self::Scarce => Act::Fail(libc::EMFILE),
            Self::Eintr => Act::Fail(libc::EINTR),
        }
    }

    /// Whether it can happen to a call: an error that the kernel never gives there proves nothing.
    pub(crate) fn can_hit(self, call: &Call) -> bool {
        let sort = call.sort;
        let creates = match sort {
            Sort::Open(flags) => call.args[flags] & flag(libc::O_CREAT) != 0,
            // Its flags are in memory that the tracer does not read: most of ours create.
            Sort::Open2 => true,
            _ => false,
        };
        match self {
            Self::Kill | Self::Both => sort != Sort::Wait,
            Self::Tear | Self::Short => sort == Sort::Write && call.in_parts && call.args[2] > 1,
            Self::Eio => {
                matches!(sort, Sort::Read | Sort::Write | Sort::Remove | Sort::Change)
                    && call.on_file
                    || matches!(sort, Sort::Open(_) | Sort::Open2 | Sort::Change)
            }
            Self::Unsynced | Self::Sync => sort == Sort::Sync,
            Self::Enospc | Self::Full => {
                sort == Sort::Write && call.on_file || sort == Sort::Change || creates
            }
            // tokio panics where it cannot make the one pair with which it hears of signals:
            // nothing of ours can help.
            Self::Emfile | Self::Scarce => {
                matches!(sort, Sort::Open(_) | Sort::Open2 | Sort::Accept)
                    || sort == Sort::Make
                        && !matches!(call.name, "inotify_add_watch" | "socketpair")
            }
            // What does not block (sockets, pipes and event counters here) is never interrupted.
            Self::Eintr => {
                matches!(sort, Sort::Read | Sort::Write) && call.on_file
                    || matches!(
                        sort,
                        Sort::Open(_) | Sort::Open2 | Sort::Lock | Sort::Wait | Sort::Sync
                    )
                    || matches!(call.name, "wait4" | "waitid")
            }
        }
    }
}

fn flag(bits: i32) -> u64 {
    u64::from(bits.unsigned_abs())
}
