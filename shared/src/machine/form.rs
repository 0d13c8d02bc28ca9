//! How a command is told of its jobserver.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;

/// The names of GNU make.
const MAKES: [&str; 2] = ["make", "gmake"];

/// An option that came with the form `fifo:PATH`, in GNU make 4.4. Its program holds the name.
const OPTION_OF_4_4: &[u8] = b"jobserver-style";

/// The names of ninja.
const NINJAS: [&str; 2] = ["ninja", "ninja-build"];

/// What ninja looks for in `MAKEFLAGS`, since version 1.13.
const OPTION_OF_1_13: &[u8] = b"--jobserver-auth";

/// How large a program is that may be one of these, in bytes: GNU make has some 250 kB.
const MAX_SIZE: u64 = 16 << 20;

/// How a command is told of its jobserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By its path, which programs also find that inherit no descriptors.
    Path,
    /// By two descriptors. Build scripts hand on what they are told, and GNU make before 4.4 ends
    /// with an error when it is told a path.
    Descriptors,
}

impl Form {
    /// Chooses the form for commands with this `PATH`.
    pub fn for_path(path: Option<&OsStr>) -> Self {
        match old_make(path) {
            Some(_) => Self::Descriptors,
            None => Self::Path,
        }
    }
}

/// Returns the first GNU make in the folders of this `PATH` that does not know the form `fifo:PATH`.
/// It is read and not run, since any program can be there.
pub fn old_make(path: Option<&OsStr>) -> Option<PathBuf> {
    let mut makes = programs(path, MAKES);
    makes.find(|program| !holds(program, OPTION_OF_4_4))
}

/// Returns the ninja that this `PATH` leads to if it does not know jobservers.
pub fn old_ninja(path: Option<&OsStr>) -> Option<PathBuf> {
    let first = programs(path, NINJAS).next();
    first.filter(|program| !holds(program, OPTION_OF_1_13))
}

/// Returns the programs with these names in the folders of a `PATH`.
fn programs(path: Option<&OsStr>, names: [&str; 2]) -> impl Iterator<Item = PathBuf> {
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    let all = folders.flat_map(move |folder| names.map(|name| folder.join(name)));
    all.filter(|program| program.is_file())
}

/// Tells whether a program holds the name of an option. One that cannot be read does not.
fn holds(program: &Path, option: &[u8]) -> bool {
    let mut bytes = Vec::new();
    // Should a FIFO be there by now, it is not waited for.
    let opened = File::options()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(program);
    let read = opened.and_then(|file| file.take(MAX_SIZE).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::debug!("{} cannot be read: {error}", program.display());
        return false;
    }
    bytes.windows(option.len()).any(|part| part == option)
}

#[cfg(test)]
mod tests {
    use std::fs::create_dir;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_path_is_told_unless_an_old_make_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let folder_with = |name: &str, text: &str| folder_with(scratch.path(), name, text);
        let old = folder_with("old/gmake", "GNU Make 4.3 --jobserver-auth");
        let new = folder_with("new/gmake", "GNU Make 4.4 --jobserver-style");
        let form = |folders: &[&Path]| {
            Form::for_path(Some(std::env::join_paths(folders).unwrap().as_os_str()))
        };
        assert_eq!(form(&[&new, scratch.path()]), Form::Path);
        assert_eq!(form(&[&new, &old]), Form::Descriptors);
        assert_eq!(Form::for_path(None), Form::Path);
    }

    #[test]
    fn the_first_ninja_is_the_one_that_runs() {
        let scratch = tempfile::tempdir().unwrap();
        let old = folder_with(scratch.path(), "old/ninja", "1.12");
        let new = folder_with(scratch.path(), "new/ninja-build", "--jobserver-auth=");
        let found =
            |folders: &[&Path]| old_ninja(Some(std::env::join_paths(folders).unwrap().as_os_str()));
        assert_eq!(found(&[&new, &old]), None);
        assert_eq!(found(&[&old, &new]), Some(old.join("ninja")));
        assert_eq!(old_ninja(None), None);
    }

    /// Makes a program with this text, and returns its folder.
    fn folder_with(at: &Path, program: &str, text: &str) -> PathBuf {
        let program = at.join(program);
        let folder = program.parent().unwrap().to_owned();
        create_dir(&folder).unwrap();
        let mut file = File::create(program).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        folder
    }
}
