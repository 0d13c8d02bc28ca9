//! The FIFO of a jobserver: one byte for each process that may be run beside the first one
//! (GNU make's manual, "POSIX Jobserver Interaction").

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::fs::{FileType, Mode, OFlags, fstat, mknodat, open, openat, unlinkat};

/// What a token is: make and cargo write this byte, too.
const TOKEN: u8 = b'+';

/// How many bytes are taken out at once that no lease has put in.
const AT_ONCE: usize = 4096;

/// How often bytes are taken out at most in one look.
const MOST_READS: usize = 16;

/// The FIFO of one command. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Fifo {
    /// Held open in both directions, so that no reader sees an end and no writer an error.
    file: File,
    /// The folder, and its name there; none once it has no name.
    name: Option<(OwnedFd, PathBuf)>,
    /// How many tokens this process has put in and not taken out.
    put: u32,
}

impl Fifo {
    /// Makes a FIFO of this name in a folder that commands may write.
    ///
    /// # Errors
    /// The system's error, or that another file took its place.
    pub(crate) fn make(folder: &Path, name: &str) -> io::Result<Self> {
        let at = open(
            folder,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        mknodat(&at, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // A command that runs beside this can put another file there: that is not written.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&at, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Fifo {
            return Err(io::Error::other("a command has replaced its jobserver"));
        }
        Ok(Self {
            file: file.into(),
            name: Some((at, name.into())),
            put: 0,
        })
    }

    /// Removes its name: it is reached by descriptors alone.
    pub(crate) fn forget_name(&mut self) -> io::Result<()> {
        if let Some((folder, name)) = self.name.take() {
            unlinkat(&folder, &name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Opens it again, only to read and only to write. Both block, as programs expect.
    pub(crate) fn ends(&self) -> io::Result<[OwnedFd; 2]> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let end = |flags| openat(CWD, path.as_str(), flags | OFlags::CLOEXEC, Mode::empty());
        Ok([end(OFlags::RDONLY)?, end(OFlags::WRONLY)?])
    }

    /// Counts the tokens that its command has taken, and those that wait. Bytes that no lease has
    /// put in are taken out first.
    pub(crate) fn count(&mut self) -> io::Result<(u32, u32)> {
        // A command that floods it is not kept up with: the worker has other things to do.
        for _ in 0..MOST_READS {
            let waiting = rustix::io::ioctl_fionread(&self.file)?;
            let foreign = waiting.saturating_sub(u64::from(self.put));
            if foreign == 0 {
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                return Ok((self.put - waiting, waiting));
            }
            let most = usize::try_from(foreign).map_or(AT_ONCE, |foreign| foreign.min(AT_ONCE));
            self.read(most)?;
        }
        Ok((0, self.put))
    }

    /// Puts one token in; does nothing where a command has filled it.
    pub(crate) fn put(&mut self) -> io::Result<()> {
        match rustix::io::write(&self.file, &[TOKEN]) {
            Ok(_) => {
                self.put += 1;
                Ok(())
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives up the tokens that were taken: a program that has died with one does not bring it back.
    /// One that comes back nevertheless is taken out as a foreign byte.
    pub(crate) fn forget_taken(&mut self) -> io::Result<()> {
        let (taken, _) = self.count()?;
        self.put -= taken;
        Ok(())
    }

    /// Takes one token out, if one is there by now.
    pub(crate) fn take_out(&mut self) -> io::Result<bool> {
        let is_taken = self.read(1)? == 1;
        if is_taken {
            self.put -= 1;
        }
        Ok(is_taken)
    }

    fn read(&self, most: usize) -> io::Result<usize> {
        let mut bytes = [0; AT_ONCE];
        match rustix::io::read(&self.file, &mut bytes[..most]) {
            Ok(read) => Ok(read),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Fifo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        if let Err(error) = self.forget_name() {
            // A command may have removed it; what is left goes with the temporary directory.
            tracing::debug!("cannot remove a jobserver: {error}");
        }
    }
}
