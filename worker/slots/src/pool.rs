//! The slots of a user on this machine: bytes of one file, which leases lock in the kernel.
//!
//! | bytes | locked by | means |
//! |---|---|---|
//! | 0 | each lease that would use another slot (shared) | [`Wish::More`] |
//! | 1 | each lease that waits for its fair share (shared) | [`Wish::FairShare`] |
//! | [`SLOTS`] and on, one a slot | one lease | it holds that slot |
//! | [`MEMBERS`] and on, one a slot | one lease | it takes part |
//!
//! The locks belong to an open file (`F_OFD_SETLK`), so the kernel frees them when a worker dies,
//! however that happens. Nothing is ever written. Others are woken by a change of the file's time;
//! the end of a lease wakes them by closing the file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::decision::Wish;
use crate::locks::{is_locked, lock, look_at, open_again, range};

/// The byte of the first slot.
const SLOTS: i64 = 1 << 16;

/// The byte of the first member.
const MEMBERS: i64 = 2 << 16;

/// Where the slots are, and how many.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    slots: u32,
    /// Opened to look alone: when it is closed, no lease is woken.
    look: Arc<File>,
}

/// The part of one lease in the pool. Dropped, it frees all that it holds.
#[derive(Debug)]
pub(crate) struct Member {
    file: File,
    slots: u32,
    /// Whether others count it.
    is_counted: bool,
    /// Which slots it holds, the highest first.
    held: Vec<u32>,
    wish: Wish,
}

impl Pool {
    /// Names the pool, and makes the file if it is missing; its folder is there.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn at(path: &Path, slots: u32) -> io::Result<Self> {
        let look = look_at(path)?;
        Ok(Self {
            look: Arc::new(look),
            slots: slots.max(1),
        })
    }

    /// Tells whether a slot is free.
    pub(crate) fn has_free_slot(&self) -> io::Result<bool> {
        has_free_slot(&self.look, self.slots)
    }

    /// Returns how many slots there are.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Takes part.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn join(&self) -> io::Result<Member> {
        let file = open_again(&self.look)?;
        let mut member = Member {
            file,
            slots: self.slots,
            is_counted: false,
            held: Vec::new(),
            wish: Wish::Nothing,
        };
        member.count_in()?;
        Ok(member)
    }

    /// Returns how many slots a command has that begins now, if all others want theirs.
    pub(crate) fn fair_share(&self) -> io::Result<u32> {
        let members = members(&self.look, self.slots)?;
        Ok(fair_share(self.slots, members + 1))
    }
}

impl AsFd for Pool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.look.as_fd()
    }
}

impl Member {
    /// Returns how many slots it holds.
    pub(crate) fn held(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// Returns what it has said.
    pub(crate) fn wish(&self) -> Wish {
        self.wish
    }

    /// Has others count it. Where there are more members than slots, that comes later: until then the
    /// fair share of each is 1.
    fn count_in(&mut self) -> io::Result<()> {
        for number in 0..self.slots {
            if self.is_counted {
                return Ok(());
            }
            self.is_counted = lock(&self.file, libc::F_WRLCK, MEMBERS + i64::from(number))?;
        }
        Ok(())
    }

    /// Returns how many slots it may hold while others wait.
    pub(crate) fn fair_share(&mut self) -> io::Result<u32> {
        self.count_in()?;
        let others = members(&self.file, self.slots)?;
        Ok(fair_share(self.slots, others + 1))
    }

    /// Returns the most that another lease has said.
    pub(crate) fn wish_of_others(&self) -> io::Result<Wish> {
        for wish in [Wish::FairShare, Wish::More] {
            if let Some(byte) = byte_of(wish)
                && is_locked(&self.file, byte)?
            {
                return Ok(wish);
            }
        }
        Ok(Wish::Nothing)
    }

    /// Takes one slot, if one is free: the highest, since other teams may know of fewer slots.
    pub(crate) fn take_slot(&mut self) -> io::Result<bool> {
        for number in (0..self.slots).rev() {
            if self.held.contains(&number) {
                continue;
            }
            if lock(&self.file, libc::F_WRLCK, SLOTS + i64::from(number))? {
                self.held.push(number);
                self.held.sort_unstable_by(|one, other| other.cmp(one));
                if !self.has_free_slot()? {
                    // No command takes its first token from now on.
                    self.wake_others()?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees one slot: the lowest.
    pub(crate) fn free_slot(&mut self) -> io::Result<()> {
        let was_full = !self.has_free_slot()?;
        if let Some(number) = self.held.pop() {
            lock(&self.file, libc::F_UNLCK, SLOTS + i64::from(number))?;
        }
        if was_full {
            self.wake_others()?;
        }
        Ok(())
    }

    fn has_free_slot(&self) -> io::Result<bool> {
        // To its own open file, the slots that it holds are not locked.
        let held = self.held();
        let mut free = 0;
        for number in 0..self.slots {
            if !is_locked(&self.file, SLOTS + i64::from(number))? {
                free += 1;
            }
        }
        Ok(free > held)
    }

    /// Says what it has no slot for.
    pub(crate) fn set_wish(&mut self, wish: Wish) -> io::Result<()> {
        let before = self.wish;
        self.wish = wish;
        for said in [Wish::More, Wish::FairShare] {
            if let Some(byte) = byte_of(said) {
                let kind = if wish >= said {
                    libc::F_RDLCK
                } else {
                    libc::F_UNLCK
                };
                lock(&self.file, kind, byte)?;
            }
        }
        // Those above their share are to give back, or those that held back may take what is free.
        if wish == Wish::FairShare || before == Wish::FairShare {
            self.wake_others()?;
        }
        Ok(())
    }

    fn wake_others(&self) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        Ok(futimens(&self.file, &times)?)
    }
}

impl Drop for Member {
    /// Frees all. The kernel does so, too, but only after it has woken others.
    fn drop(&mut self) {
        let freed = range(libc::F_UNLCK, 0, 0).and_then(|all| {
            fcntl(&self.file, FcntlArg::F_OFD_SETLK(&all))?;
            self.wake_others()
        });
        if let Err(error) = freed {
            tracing::debug!("slots are freed by the end of their file: {error}");
        }
    }
}

fn fair_share(slots: u32, members: u32) -> u32 {
    (slots / members.max(1)).max(1)
}

/// Counts the leases that take part, without that of this open file; no more than there are slots.
fn members(file: &File, slots: u32) -> io::Result<u32> {
    let mut others = 0;
    for number in 0..slots {
        if is_locked(file, MEMBERS + i64::from(number))? {
            others += 1;
        }
    }
    Ok(others)
}

fn has_free_slot(file: &File, slots: u32) -> io::Result<bool> {
    for number in 0..slots {
        if !is_locked(file, SLOTS + i64::from(number))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn byte_of(wish: Wish) -> Option<i64> {
    match wish {
        Wish::Nothing => None,
        Wish::More => Some(0),
        Wish::FairShare => Some(1),
    }
}
