//! Who holds a `flock`, as the kernel lists it (`proc_locks(5)`), for people. Programs try a lock
//! instead. They use this list only to find a worker whose transcript was replaced, and its lock
//! with it.
//!
//! Trying a liveness lock, even for a moment, could keep a worker from taking it. Reading this list
//! disturbs no process.

use std::io;

/// One lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The process that took it. It may be gone, and another one that inherited the lock still
    /// holds it.
    pub pid: u32,
    /// The major and minor number of the device.
    pub device: (u32, u32),
    /// The inode of the file on it.
    pub inode: u64,
}

/// Lists every `flock` that is held by processes that can be seen from here.
///
/// # Errors
/// The system's error if `/proc` cannot be read.
pub fn list() -> io::Result<Vec<Held>> {
    Ok(std::fs::read_to_string("/proc/locks")?
        .lines()
        .filter_map(parse)
        .collect())
}

/// Reads `1: FLOCK  ADVISORY  WRITE 13764 fe:00:10129036 0 EOF`; a process that only waits follows
/// an arrow.
fn parse(line: &str) -> Option<Held> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let pid = fields.nth(2)?.parse().ok().filter(|&pid| pid > 0)?;
    let mut file = fields.next()?.split(':');
    let mut hex = || u32::from_str_radix(file.next()?, 16).ok();
    let device = (hex()?, hex()?);
    Some(Held {
        pid,
        device,
        inode: file.next()?.parse().ok()?,
    })
}

impl Held {
    /// Tells whether it is a lock of the file with this device and inode, as `stat(2)` returns
    /// them.
    pub fn is_of(&self, (device, inode): (u64, u64)) -> bool {
        self.inode == inode && self.device == (rustix::fs::major(device), rustix::fs::minor(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn only_locks_that_are_held_are_read() {
        let held = Held {
            pid: 13764,
            device: (0xfe, 0),
            inode: 10_129_036,
        };
        assert_eq!(
            parse("1: FLOCK  ADVISORY  WRITE 13764 fe:00:10129036 0 EOF"),
            Some(held)
        );
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 13764 fe:00:10129036 0 EOF",
            "2: POSIX  ADVISORY  READ 13764 fe:00:10129036 0 EOF",
            "3: FLOCK  ADVISORY  WRITE -1 fe:00:1 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 7",
            "",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_lock_of_this_process_is_listed() {
        let file = tempfile::tempfile().unwrap();
        file.lock_shared().unwrap();
        let meta = file.metadata().unwrap();
        let of = |held: &Held| held.is_of((meta.dev(), meta.ino()));
        assert_eq!(
            list().unwrap().into_iter().find(of).map(|held| held.pid),
            Some(std::process::id())
        );
    }
}
