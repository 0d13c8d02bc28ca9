//! The file system of the team directory, and the clock. Looking here, judging below, pure.

use teamd_shared::clock;
use teamd_shared::process::boot_id;
use teamd_shared::team_dir::TeamDir;

use super::finding::Finding;
use crate::ctl::clock::span;

/// Less free space than this is a problem, in bytes: a line of the journal may not be written soon.
const FULL: u64 = 16 << 20;
/// Less than this is worth a note, in bytes.
const NEARLY_FULL: u64 = 256 << 20;
/// Fewer free inodes than this are a problem: a teammate takes four, a command more.
const FEW_INODES: u64 = 200;
/// A clock is not exact, in seconds.
const BACK: f64 = 1.0;

/// How a file system keeps what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Local,
    /// Another machine has it: no atomic append.
    Network(&'static str),
    /// A program or a hypervisor answers for it.
    Foreign(&'static str),
}

/// What was found out of the file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Disk {
    kind: Kind,
    read_only: bool,
    /// Bytes that this user may still write.
    free: u64,
    /// Files that may still be made; none where the file system does not count them.
    inodes: Option<u64>,
}

impl Disk {
    /// Looks.
    pub(super) fn look(dir: &TeamDir) -> std::io::Result<Self> {
        let stat = rustix::fs::fstatvfs(dir)?;
        Ok(Self {
            kind: kind_of(dir),
            read_only: stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes: (stat.f_files > 0).then_some(stat.f_favail),
        })
    }

    /// Says what it means.
    pub(super) fn findings(&self) -> Vec<Finding> {
        vec![self.kind(), self.space()]
    }

    fn kind(&self) -> Finding {
        const CHECK: &str = "file system";
        if self.read_only {
            return Finding::problem(CHECK, "the file system of the team directory is mounted read-only")
                .means("nothing can be journaled, and no message sent")
                .next("mount it for writing; after an error of the disk, look at `dmesg` first");
        }
        match self.kind {
            Kind::Local => Finding::ok(CHECK, "local, and can be written"),
            Kind::Network(name) => Finding::problem(CHECK, format!("the team directory lies on {name}"))
                .means("a network file system has no atomic append: messages of two writers may be mixed, and locks may not hold")
                .next("put the team directory on a local disk (`--team-dir`, or move it while no daemon runs)"),
            Kind::Foreign(name) => Finding::note(CHECK, format!("the team directory lies on {name}"))
                .means("whether appends are atomic and locks hold depends on what stands behind it; where it makes no events, files are looked at on a timer")
                .next("a local disk is safer"),
        }
    }

    fn space(&self) -> Finding {
        const CHECK: &str = "disk";
        let inodes = self.inodes.map(|count| format!(", {count} files")).unwrap_or_default();
        let what = format!("{} MiB{inodes} are free", self.free >> 20);
        if self.free < FULL || self.inodes.is_some_and(|inodes| inodes < FEW_INODES) {
            return Finding::problem(CHECK, what)
                .about(CHECK)
                .means("soon nothing can be journaled: commands are refused, and messages cannot be sent")
                .next("free space on the disk");
        }
        if self.free < NEARLY_FULL {
            return Finding::note(CHECK, what)
                .about(CHECK)
                .means("inboxes, transcripts and logs grow")
                .next("free space; `teamctl forget` and archive/ show what is old");
        }
        Finding::ok(CHECK, what)
    }
}

/// The numbers of `statfs(2)` and `linux/magic.h`.
#[cfg(target_os = "linux")]
fn kind_of(dir: &TeamDir) -> Kind {
    let Ok(stat) = rustix::fs::fstatfs(dir) else { return Kind::Local };
    // Only the lower 32 bits count; some are negative where the field is narrow.
    match stat.f_type as u64 & 0xffff_ffff {
        0x6969 => Kind::Network("NFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Kind::Network("SMB"),
        0x5346_414f | 0x6b41_4653 => Kind::Network("AFS"),
        0x00c3_6400 => Kind::Network("Ceph"),
        0x0bd0_0bd0 => Kind::Network("Lustre"),
        0x0102_1997 => Kind::Foreign("9p"),
        0x6573_5546 => Kind::Foreign("FUSE"),
        _ => Kind::Local,
    }
}

#[cfg(not(target_os = "linux"))]
fn kind_of(_: &TeamDir) -> Kind {
    Kind::Local
}

/// Looks at the clock: `last` is when the last line of the journal was written (seconds since 1970), `boot` the boot in
/// which its daemon began.
pub(super) fn clock(last: Option<f64>, boot: Option<&str>) -> Vec<Finding> {
    judge_clock(clock::wall(), last, boot, boot_id().ok().as_deref())
}

fn judge_clock(now: f64, last: Option<f64>, boot: Option<&str>, this_boot: Option<&str>) -> Vec<Finding> {
    const CHECK: &str = "clock";
    let mut findings = Vec::new();
    if let Some(back) = last.map(|last| last - now).filter(|&back| back > BACK) {
        findings.push(
            Finding::note(CHECK, format!("the clock is {} behind the last line of the journal", span(back)))
                .about(CHECK)
                .means("times in records go backwards; nothing is decided by them (order is `seq`, deadlines are monotonic)")
                .next("set the clock, if it is wrong (`timedatectl`)"),
        );
    }
    if boot.is_some() && this_boot.is_some() && boot != this_boot {
        findings.push(
            Finding::note(CHECK, "the machine was started anew since a daemon last ran here")
                .means("every worker of then is gone; no pid of then means anything")
                .next("`teamd start` records their ends, and starts again whom it may"),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "not behind the journal"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn a_disk_is_judged_by_what_it_is_and_what_is_left() {
        let usual = Disk { kind: Kind::Local, read_only: false, free: 1 << 40, inodes: Some(1 << 20) };
        let worst = |disk: Disk| disk.findings().iter().map(|it| it.severity).max().unwrap();
        assert_eq!(worst(usual), Severity::Ok);
        assert_eq!(worst(Disk { inodes: None, ..usual }), Severity::Ok);
        assert_eq!(worst(Disk { free: 100 << 20, ..usual }), Severity::Note);
        assert_eq!(worst(Disk { kind: Kind::Foreign("FUSE"), ..usual }), Severity::Note);
        for bad in [
            Disk { read_only: true, ..usual },
            Disk { kind: Kind::Network("NFS"), ..usual },
            Disk { free: 1 << 20, ..usual },
            Disk { inodes: Some(7), ..usual },
        ] {
            assert_eq!(worst(bad), Severity::Problem, "{bad:?}");
        }
    }

    #[test]
    fn a_clock_that_went_back_and_a_new_boot_are_said() {
        let look = |now, last, boot| {
            judge_clock(now, last, boot, Some("b")).into_iter().map(|it| it.what).collect::<Vec<_>>()
        };
        assert_eq!(look(100.0, Some(100.5), Some("b")), ["not behind the journal"]);
        assert_eq!(look(100.0, None, None), ["not behind the journal"]);
        let both = look(100.0, Some(160.0), Some("a"));
        assert_eq!(both[0], "the clock is 1m behind the last line of the journal");
        assert_eq!(both.len(), 2);
    }
}
