//! Which system calls touch a file, a socket or a process: the places to die.

use nix::libc;

/// What a system call does, as far as faults differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Looks at something, or closes it: no other process sees a difference.
    Look,
    /// Reads from a descriptor.
    Read,
    /// Writes bytes to a descriptor; the third argument is how many.
    Write,
    /// Opens a path; the argument with this number holds the flags.
    Open(usize),
    /// Opens a path with flags in memory (`openat2`).
    Open2,
    /// Makes a descriptor that is no file.
    Make,
    /// Takes a connection.
    Accept,
    /// Sends to, or connects with, another process.
    Talk,
    /// Changes a directory, or a file's length: needs room on the disk.
    Change,
    /// Takes away or changes something, and needs no room.
    Remove,
    /// Makes what was written last.
    Sync,
    /// Starts, signals or waits for a process, or ends this one.
    Process,
    /// Takes a lock.
    Lock,
    /// Waits for events.
    Wait,
}

impl Sort {
    /// Tells whether another process can see that the call was made.
    pub(crate) fn is_seen(self) -> bool {
        !matches!(self, Self::Look | Self::Read | Self::Wait | Self::Make)
    }
}

macro_rules! calls {
    ($($number:ident => $sort:expr),* $(,)?) => {
        /// The name and the sort of a system call; none if it is no place to die.
        pub(crate) fn lookup(number: i64) -> Option<(&'static str, Sort)> {
            match number {
                $(libc::$number => Some((stringify!($number).trim_start_matches("SYS_"), $sort)),)*
                _ => None,
            }
        }
    };
}

calls! {
    SYS_read => Sort::Read, SYS_pread64 => Sort::Read, SYS_readv => Sort::Read,
    SYS_recvfrom => Sort::Read, SYS_recvmsg => Sort::Read,
    SYS_write => Sort::Write, SYS_pwrite64 => Sort::Write,
    SYS_writev => Sort::Talk, SYS_sendto => Sort::Talk, SYS_sendmsg => Sort::Talk, SYS_connect => Sort::Talk,
    SYS_bind => Sort::Talk, SYS_listen => Sort::Talk, SYS_shutdown => Sort::Talk,
    SYS_open => Sort::Open(1), SYS_openat => Sort::Open(2), SYS_openat2 => Sort::Open2,
    SYS_socket => Sort::Make, SYS_socketpair => Sort::Make, SYS_pipe => Sort::Make, SYS_pipe2 => Sort::Make,
    SYS_dup => Sort::Make, SYS_eventfd2 => Sort::Make, SYS_epoll_create1 => Sort::Make,
    SYS_inotify_init1 => Sort::Make, SYS_inotify_add_watch => Sort::Make, SYS_pidfd_open => Sort::Make,
    SYS_accept => Sort::Accept, SYS_accept4 => Sort::Accept,
    SYS_close => Sort::Look, SYS_fcntl => Sort::Look, SYS_stat => Sort::Look, SYS_fstat => Sort::Look, SYS_lstat => Sort::Look,
    SYS_lseek => Sort::Look, SYS_newfstatat => Sort::Look, SYS_statx => Sort::Look, SYS_access => Sort::Look, SYS_faccessat => Sort::Look,
    SYS_faccessat2 => Sort::Look, SYS_readlink => Sort::Look, SYS_readlinkat => Sort::Look,
    SYS_getdents64 => Sort::Look, SYS_getsockopt => Sort::Look, SYS_setsockopt => Sort::Look,
    SYS_inotify_rm_watch => Sort::Look, SYS_epoll_ctl => Sort::Look, SYS_close_range => Sort::Look,
    SYS_mkdir => Sort::Change, SYS_mkdirat => Sort::Change, SYS_rename => Sort::Change,
    SYS_renameat => Sort::Change, SYS_renameat2 => Sort::Change, SYS_link => Sort::Change,
    SYS_linkat => Sort::Change, SYS_symlink => Sort::Change, SYS_symlinkat => Sort::Change,
    SYS_truncate => Sort::Remove, SYS_ftruncate => Sort::Remove, SYS_unlink => Sort::Remove,
    SYS_unlinkat => Sort::Remove, SYS_rmdir => Sort::Remove, SYS_chmod => Sort::Remove,
    SYS_fchmod => Sort::Remove, SYS_fchmodat => Sort::Remove,
    SYS_fsync => Sort::Sync, SYS_fdatasync => Sort::Sync,
    SYS_clone => Sort::Process, SYS_clone3 => Sort::Process, SYS_vfork => Sort::Process, SYS_fork => Sort::Process,
    SYS_execve => Sort::Process, SYS_kill => Sort::Process, SYS_tgkill => Sort::Process,
    SYS_pidfd_send_signal => Sort::Process, SYS_exit_group => Sort::Process, SYS_wait4 => Sort::Process,
    SYS_waitid => Sort::Process, SYS_setsid => Sort::Process,
    SYS_flock => Sort::Lock,
    SYS_epoll_wait => Sort::Wait, SYS_epoll_pwait => Sort::Wait, SYS_epoll_pwait2 => Sort::Wait,
    SYS_poll => Sort::Wait, SYS_ppoll => Sort::Wait,
}
