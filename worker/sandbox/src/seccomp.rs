//! Which system calls a command may not make: those that reach past every other layer.
//!
//! Ordinary programs use none of them, or work without them. Pairs of connected sockets, pipes,
//! TCP, threads and `fork` are not touched.

use std::collections::BTreeMap;

use nix::libc::{self, c_int, c_long};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter, sock_filter,
};

/// System calls that are refused whatever their arguments.
const REFUSED: [&[c_long]; 10] = [
    // Tracing, reading and borrowing from other processes.
    &[
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
    ],
    &[libc::SYS_pidfd_getfd, libc::SYS_kcmp],
    // Queues that no filter sees.
    &[
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ],
    // Mounts, and files by their number.
    &[
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_setns,
    ],
    &[
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_open_by_handle_at,
    ],
    &[
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
    ],
    // Keys.
    &[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key],
    // What loads programs into the kernel, or looks into it.
    &[
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_kexec_load,
        libc::SYS_syslog,
    ],
    &[
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
    ],
    // The machine as a whole.
    &[
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
    ],
];

/// System calls that are refused where a command shares the queues and memory of the machine
/// (`sysvipc(7)`, `mq_overview(7)`): what is made there outlives it, and what others have made can
/// be taken away.
const REFUSED_IF_SHARED: [&[c_long]; 4] = [
    &[libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl],
    &[
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
    ],
    &[
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
    ],
    &[libc::SYS_mq_open, libc::SYS_mq_unlink],
];

/// System calls that make a file or change its mode, with the argument that holds the mode. A
/// program with the setuid or setgid bit runs as this user for each other account, and outside of
/// every sandbox. `mkdir` is not among them: the kernel takes these bits away from the mode of a
/// new directory, and a directory below one with the setgid bit inherits it.
const OF_A_MODE: &[(c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// System calls that open a file, with the argument that holds the flags. The mode is the
/// next argument, and counts only if a flag says that a file is made.
const OPENING: &[(c_long, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// The flags of `open(2)` that make a file. The second one is the bit of `O_TMPFILE` that no other
/// flag has.
const MAKES_A_FILE: [c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// The bits of a mode with which a program runs as its owner, or as its group.
const SET_ID: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// System calls that change the mode, the owner, the times or the attributes of a file. No rule of
/// Landlock covers them.
const OF_METADATA: &[&[c_long]] = &[
    &[
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        SYS_FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
    ],
    &[libc::SYS_utimensat, SYS_FILE_SETATTR],
    &[
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        SYS_SETXATTRAT,
    ],
    &[
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        SYS_REMOVEXATTRAT,
    ],
    #[cfg(target_arch = "x86_64")]
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown],
    #[cfg(target_arch = "x86_64")]
    &[libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat],
];

/// The requests of `ioctl(2)` that do the same: `FS_IOC_SETFLAGS` and its form of 32 bits,
/// `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION`, `FS_IOC_SET_ENCRYPTION_POLICY`, `FS_IOC_ENABLE_VERITY`
/// (`linux/fs.h`, `fscrypt.h`, `fsverity.h`).
const SETS_ATTRIBUTES: [u64; 8] = [
    0x4008_6602,
    0x4004_6602,
    0x401c_5820,
    0x4008_7602,
    0x800c_6613,
    0x4080_6685,
    // `EXT4_IOC_SETVERSION`, `FAT_IOCTL_SET_ATTRIBUTES`.
    0x4008_6604,
    0x4004_7211,
];

/// The requests of `ioctl(2)` that make, remove or change a subvolume (`linux/btrfs.h`). A snapshot
/// shows everything of a file system at a new path, where no mount hides it:
/// `BTRFS_IOC_SNAP_CREATE`, `SUBVOL_CREATE`, `SNAP_DESTROY`, `SNAP_CREATE_V2`, `SUBVOL_CREATE_V2`,
/// `SUBVOL_SETFLAGS`, `SNAP_DESTROY_V2`.
const OF_SUBVOLUMES: [u64; 7] = [
    0x5000_9401,
    0x5000_940e,
    0x5000_940f,
    0x5000_9417,
    0x5000_9418,
    0x4008_941a,
    0x5000_943f,
];

/// Of Linux 6.6, 6.13 and 6.17; the numbers are the same on every architecture.
const SYS_FCHMODAT2: c_long = 452;
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_FILE_SETATTR: c_long = 469;

/// System calls that set how the machine treats a process, with the argument that names it: itself
/// is 0. Some can be asked to mean all processes of a user, by this first argument: `PRIO_USER`
/// (`setpriority(2)`), `IOPRIO_WHO_USER` (`ioprio_set(2)`).
const OF_A_PROCESS: [(c_long, u8, Option<u64>); 7] = [
    // Its limits: one could end it.
    (libc::SYS_prlimit64, 0, None),
    (libc::SYS_sched_setaffinity, 0, None),
    (libc::SYS_sched_setattr, 0, None),
    (libc::SYS_sched_setparam, 0, None),
    (libc::SYS_sched_setscheduler, 0, None),
    (libc::SYS_setpriority, 1, Some(2)),
    (libc::SYS_ioprio_set, 1, Some(3)),
];

/// The flags of `clone(2)` and `unshare(2)` that make a namespace: in one of its own, a command has
/// capabilities.
const NEW_NAMESPACE: [c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// For `unshare` alone: to `clone` these bits are the signal that tells of the end.
const CLONE_NEWTIME: c_int = 0x80;

/// The terminal requests that type for the user.
const TYPES_FOR_THE_USER: [u64; 2] = [0x5412, 0x541c];

/// What of the second argument of `socketpair(2)` is the kind of socket: the rest are flags.
const KIND: u64 = 0xf;

/// The commands of `fcntl` that make a program which opens a file wait for its holder, or tell of
/// each use: `F_SETLEASE`, `F_NOTIFY`, `F_SETDELEG` (Linux 6.19). To read a file of the team must
/// not be to hold its daemon up.
const LEASES: [u64; 3] = [1024, 1026, 1040];

/// System calls that send a signal, with the argument that is its number. To a program of Node,
/// SIGUSR1 is the order to listen for a debugger, which can do all that the program can
/// (`nodejs.org/en/learn/getting-started/debugging`).
const SENDS_A_SIGNAL: [(c_long, u8); 6] = [
    (libc::SYS_kill, 1),
    (libc::SYS_tkill, 1),
    (libc::SYS_tgkill, 2),
    (libc::SYS_rt_sigqueueinfo, 1),
    (libc::SYS_rt_tgsigqueueinfo, 2),
    (libc::SYS_pidfd_send_signal, 1),
];

/// The command of `fcntl` that chooses the signal of a descriptor, which can go to any process.
const SET_SIGNAL: u64 = 10;

/// What a command may ask of the kernel beside what is refused to every command.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllowedCalls {
    /// Whether it makes sockets at all.
    pub(super) sockets: bool,
    /// Whether it shares queues, memory and process ids with the machine: it has no namespaces of
    /// its own.
    pub(super) shared: bool,
    /// Whether it changes modes, owners, times and attributes of files.
    pub(super) metadata: bool,
    /// Whether it sends SIGUSR1.
    pub(super) debugs: bool,
}

/// Filters the system calls of this process and of all that it starts.
///
/// # Errors
/// Why it cannot. Fits behind "error: ".
pub(super) fn restrict(calls: AllowedCalls) -> Result<(), String> {
    try_restrict(calls).map_err(|error| error.to_string())
}

fn try_restrict(calls: AllowedCalls) -> Result<(), Error> {
    apply_filter(&refusing(calls)?)?;
    apply_filter(&unknown())
}

/// Refuses with EPERM. Another architecture's calls kill the process: their numbers mean something
/// else.
fn refusing(
    AllowedCalls {
        sockets,
        shared,
        metadata,
        debugs,
    }: AllowedCalls,
) -> Result<BpfProgram, Error> {
    let mut rules = set_id()?;
    // A call without a rule is refused whatever its arguments.
    let mut refused = REFUSED.concat();
    if shared {
        refused.extend(REFUSED_IF_SHARED.concat());
    }
    if !metadata {
        refused.extend(OF_METADATA.concat());
    }
    rules.extend(refused.into_iter().map(|call| (call, Vec::new())));
    rules.insert(
        libc::SYS_socket,
        if sockets {
            vec![other_families()?]
        } else {
            Vec::new()
        },
    );
    rules.insert(libc::SYS_socketpair, pairs()?);
    for (call, more) in [
        (libc::SYS_clone, None),
        (libc::SYS_unshare, Some(CLONE_NEWTIME)),
    ] {
        let flags = NEW_NAMESPACE.into_iter().chain(more).map(bits);
        rules.insert(
            call,
            flags
                .map(|flag| rule(0, MaskedEq(flag), flag))
                .collect::<Result<_, _>>()?,
        );
    }
    let mut requests = [&TYPES_FOR_THE_USER[..], &OF_SUBVOLUMES].concat();
    if !metadata {
        requests.extend(SETS_ATTRIBUTES);
    }
    rules.insert(
        libc::SYS_ioctl,
        requests
            .into_iter()
            .map(|request| rule(1, Eq, request))
            .collect::<Result<_, _>>()?,
    );
    let mut of_descriptors: Vec<SeccompRule> = LEASES
        .into_iter()
        .map(|command| rule(1, Eq, command))
        .collect::<Result<_, _>>()?;
    if !debugs {
        let wakes = bits(libc::SIGUSR1);
        for (call, argument) in SENDS_A_SIGNAL {
            rules.insert(call, vec![rule(argument, Eq, wakes)?]);
        }
        of_descriptors.push(SeccompRule::new(vec![
            condition(1, Eq, SET_SIGNAL)?,
            condition(2, Eq, wakes)?,
        ])?);
    }
    rules.insert(libc::SYS_fcntl, of_descriptors);
    // In a pid namespace of its own, a command names no other process but its own.
    let named = OF_A_PROCESS
        .into_iter()
        .filter(|(call, ..)| shared || *call == libc::SYS_prlimit64);
    for (call, argument, all_of_a_user) in named {
        let all = all_of_a_user.map(|user| rule(0, Eq, user));
        let any = all.into_iter().chain([rule(argument, Ne, 0)]);
        rules.insert(call, any.collect::<Result<_, _>>()?);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()?)
}

/// Refuses sockets of all families but those of networks.
fn other_families() -> Result<SeccompRule, Error> {
    let networks = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others = networks.map(|family| condition(0, Ne, bits(family)));
    Ok(SeccompRule::new(
        others.into_iter().collect::<Result<_, _>>()?,
    )?)
}

/// Refuses every pair but connected ones of Unix sockets: a datagram that is sent by one of a pair
/// may name another receiver, such as a service that listens at a path.
fn pairs() -> Result<Vec<SeccompRule>, Error> {
    // To a Unix socket, "raw" is another word for datagrams (`net/unix/af_unix.c`).
    let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| rule(1, MaskedEq(KIND), bits(kind)));
    let other = rule(0, Ne, bits(libc::AF_UNIX));
    kinds.into_iter().chain([other]).collect()
}

/// Is true for an argument that has a bit.
fn has(argument: u8, bit: u64) -> Result<SeccompCondition, Error> {
    condition(argument, MaskedEq(bit), bit)
}

/// Refuses each call that would make a setuid or setgid file.
fn set_id() -> Result<BTreeMap<i64, Vec<SeccompRule>>, Error> {
    let mut rules = BTreeMap::new();
    for &(call, mode) in OF_A_MODE {
        let any = SET_ID.map(|bit| rule(mode, MaskedEq(bit.into()), bit.into()));
        rules.insert(call, any.into_iter().collect::<Result<_, _>>()?);
    }
    for &(call, flags) in OPENING {
        let mut any = Vec::new();
        for (makes, bit) in MAKES_A_FILE
            .into_iter()
            .flat_map(|makes| SET_ID.map(|bit| (makes, bit)))
        {
            let both = vec![has(flags, bits(makes))?, has(flags + 1, bit.into())?];
            any.push(SeccompRule::new(both)?);
        }
        rules.insert(call, any);
    }
    Ok(rules)
}

/// Says ENOSYS where a program then does the same in another way: to `clone3` and `openat2`, whose
/// flags and modes no filter can read, and to the second set of numbers that x86-64 has (x32).
fn unknown() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    const CLONE3: u32 = 435;
    const OPENAT2: u32 = 437;
    const RET: u16 = 0x06;
    vec![
        // The number of the call is the first word of `struct seccomp_data`.
        sock_filter {
            code: 0x20,
            jt: 0,
            jf: 0,
            k: 0,
        },
        sock_filter {
            code: 0x35,
            jt: 3,
            jf: 0,
            k: X32,
        },
        sock_filter {
            code: 0x15,
            jt: 2,
            jf: 0,
            k: CLONE3,
        },
        sock_filter {
            code: 0x15,
            jt: 1,
            jf: 0,
            k: OPENAT2,
        },
        sock_filter {
            code: RET,
            jt: 0,
            jf: 0,
            k: SeccompAction::Allow.into(),
        },
        sock_filter {
            code: RET,
            jt: 0,
            jf: 0,
            k: SeccompAction::Errno(libc::ENOSYS.unsigned_abs()).into(),
        },
    ]
}

fn rule(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(vec![condition(argument, is, value)?])?)
}

/// The kernel looks at the lower half of these arguments only.
fn condition(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        is,
        value,
    )?)
}

/// Constants of the C library have a sign; none of these is negative.
fn bits(constant: c_int) -> u64 {
    u64::from(constant.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_are_small_enough_for_the_kernel() {
        for number in 0..16 {
            let calls = AllowedCalls {
                sockets: number & 1 != 0,
                shared: number & 2 != 0,
                metadata: number & 4 != 0,
                debugs: number & 8 != 0,
            };
            let length = refusing(calls).unwrap().len();
            assert!((100..1000).contains(&length), "{calls:?}: {length}");
        }
    }
}
