//! The variables of a command on their way: from the worker through keeper and helper to `bash`, in a file in memory.
//!
//! Keeper and helper never have them as their own: a loader believes its environment (`LD_PRELOAD`, an empty element of
//! `LD_LIBRARY_PATH`), and would run what lies in the workspace outside of the sandbox. No command line holds them either.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

/// The variables of one command: each as `NAME=VALUE`, with a NUL behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Variables(Vec<u8>);

impl Variables {
    /// Makes them of names and values. What no environment can hold is left out.
    pub(crate) fn of(all: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in all {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            if name.is_empty() || name.contains(&b'=') || name.contains(&0) || value.contains(&0) {
                continue;
            }
            bytes.extend([name, b"=", value, b"\0"].concat());
        }
        Self(bytes)
    }

    /// Sets one, whatever it was before.
    pub(crate) fn with(self, name: &str, value: &OsStr) -> Self {
        let was = [name.as_bytes(), b"="].concat();
        let others = self.0.split_inclusive(|&byte| byte == 0).filter(|pair| !pair.starts_with(&was));
        let set = [was.as_slice(), value.as_bytes(), b"\0"].concat();
        Self(others.flatten().chain(&set).copied().collect())
    }

    /// Puts them into a file that what is started next inherits.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn hand_over(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("variables", MemfdFlags::empty())?);
        file.write_all(&self.0)?;
        Ok(file.into())
    }

    /// Takes them from an inherited descriptor, which stays open.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn take(descriptor: u32) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(format!("/proc/self/fd/{descriptor}"))?.read_to_end(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Makes them all that a program is started with.
    pub(crate) fn give(&self, command: &mut Command) {
        let pairs = self.0.split(|&byte| byte == 0).filter_map(|pair| {
            let at = pair.iter().position(|&byte| byte == b'=')?;
            Some((OsStr::from_bytes(&pair[..at]), OsStr::from_bytes(&pair[at + 1..])))
        });
        command.env_clear().envs(pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_handed_over_is_taken_whatever_it_holds() {
        let pairs = [("A", "x=y\n z"), ("EMPTY", ""), ("", "no"), ("B=", "no"), ("LATER", "\u{fc}")];
        let given = Variables::of(pairs.into_iter().map(|(name, value)| (name.into(), value.into())));
        let given = given.with("EMPTY", "x".as_ref()).with("EMPTY", "".as_ref());
        let file = given.hand_over().unwrap();
        for _ in 0..2 {
            let taken = Variables::take(file.as_raw_fd().unsigned_abs()).unwrap();
            let mut command = Command::new("env");
            taken.give(&mut command);
            let said = command.output().unwrap().stdout;
            let mut lines: Vec<_> = std::str::from_utf8(&said).unwrap().lines().collect();
            lines.sort_unstable();
            assert_eq!(lines, [" z", "A=x=y", "EMPTY=", "LATER=\u{fc}"]);
        }
    }
}
