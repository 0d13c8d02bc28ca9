//! The variables of a command on their way: from the worker through shim and sandbox init to
//! `bash`, with the order of the shim.
//!
//! Shim and sandbox init never have them as their own: a loader believes its environment
//! (`LD_PRELOAD`, an empty element of `LD_LIBRARY_PATH`), and would run what lies in the workspace
//! outside of the sandbox. No command line holds them either.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::agent_stdio::AgentStdio;

/// Where programs are looked for without a `PATH` (`execvp(3)`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The variables of one command: each as `NAME=VALUE`, with a NUL behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Variables(Vec<u8>);

impl Variables {
    /// Makes them of names and values. What no environment can hold is left out.
    pub(crate) fn of(all: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in all {
            let name = name.as_bytes();
            let value = value.as_bytes();
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
        let others = self
            .0
            .split_inclusive(|&byte| byte == 0)
            .filter(|pair| !pair.starts_with(&was));
        let set = [was.as_slice(), value.as_bytes(), b"\0"].concat();
        Self(others.flatten().chain(&set).copied().collect())
    }

    /// Returns them as they are handed over.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes them as they were handed over.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_owned())
    }

    /// Returns the command line of a command, with these variables and without input. What its
    /// `PATH` says is meant from this directory; the caller sees to it that it begins there.
    pub(crate) fn command(&self, command: &OsStr, directory: &Path) -> Command {
        let shell = self.shell(directory);
        let mut started = Command::new(&shell);
        started
            .arg0(shell.file_name().unwrap_or(shell.as_os_str()))
            .stdin(Stdio::null());
        // A command that begins with a dash is no option.
        started.args([OsStr::new("-c"), OsStr::new("--"), command]);
        self.give(&mut started);
        started
    }

    /// Returns the command line of an agent, with these variables; a name is looked up where their
    /// `PATH` says.
    pub(crate) fn agent(&self, command: &[String], stdio: AgentStdio) -> Command {
        let mut started = Command::new(command.first().map_or("", String::as_str));
        started
            .args(command.iter().skip(1))
            .stdin(stdio.input)
            .stderr(stdio.errors);
        self.give(&mut started);
        started
    }

    /// Returns the shell: `bash` where `PATH` says, else `sh`. Found here and not by `exec`, since
    /// a program that is named by its path is started without a copy of this process.
    fn shell(&self, directory: &Path) -> PathBuf {
        let path = self
            .0
            .split(|&byte| byte == 0)
            .find_map(|pair| pair.strip_prefix(b"PATH="));
        let path = path.map_or_else(|| DEFAULT_PATH.as_ref(), OsStr::from_bytes);
        let folders: Vec<_> = std::env::split_paths(path)
            .map(|folder| directory.join(folder))
            .collect();
        for name in ["bash", "sh"] {
            let mut files = folders.iter().map(|folder| folder.join(name));
            if let Some(program) = files.find(|file| is_program(file)) {
                return program;
            }
        }
        "/bin/sh".into()
    }

    /// Makes them all that a program is started with.
    fn give(&self, command: &mut Command) {
        let pairs = self.0.split(|&byte| byte == 0).filter_map(|pair| {
            let at = pair.iter().position(|&byte| byte == b'=')?;
            Some((
                OsStr::from_bytes(&pair[..at]),
                OsStr::from_bytes(&pair[at + 1..]),
            ))
        });
        command.env_clear().envs(pairs);
    }
}

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_handed_over_is_taken_whatever_it_holds() {
        let pairs = [
            ("A", "x=y\n z"),
            ("EMPTY", ""),
            ("", "no"),
            ("B=", "no"),
            ("LATER", "\u{fc}"),
        ];
        let given = Variables::of(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        let given = given.with("EMPTY", "x".as_ref()).with("EMPTY", "".as_ref());
        // By its name, no test that sweeps takes it for an orphan.
        let scratch = tempfile::tempdir().unwrap();
        let program = scratch.path().join("exe");
        std::os::unix::fs::symlink("/usr/bin/env", &program).unwrap();
        let taken = Variables::from_bytes(given.as_bytes());
        let mut command = Command::new(&program);
        command.arg0("env");
        taken.give(&mut command);
        let output = command.output().unwrap().stdout;
        let mut lines: Vec<_> = std::str::from_utf8(&output).unwrap().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [" z", "A=x=y", "EMPTY=", "LATER=\u{fc}"]);
    }

    #[test]
    fn the_shell_is_the_one_that_the_path_of_the_command_names() {
        let scratch = tempfile::tempdir().unwrap();
        let make = |name: &str, mode| {
            let file = scratch.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            File::create(&file)
                .unwrap()
                .set_permissions(Permissions::from_mode(mode))
                .unwrap();
            file
        };
        let sh = make("here/sh", 0o755);
        let bash = make("own/bash", 0o700);
        drop(make("here/bash", 0o644));
        std::fs::create_dir_all(scratch.path().join("folder/bash")).unwrap();
        let shell = |path: &str| {
            Variables::of([("PATH".into(), path.into())].into_iter())
                .shell(&scratch.path().join("here"))
        };
        assert_eq!(
            shell("../folder::/nowhere:../own"),
            scratch.path().join("here/../own/bash")
        );
        assert_eq!(shell("../folder:"), sh);
        assert_eq!(shell("/nowhere"), Path::new("/bin/sh"));
        assert_eq!(shell(bash.parent().unwrap().to_str().unwrap()), bash);
        assert!(is_program(&Variables::default().shell(Path::new("/"))));
    }
}
