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

/// How large a program is that may be GNU make, in bytes: it has some 250 kB.
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
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    let mut programs = folders.flat_map(|folder| MAKES.map(|name| folder.join(name)));
    programs.find(|program| program.is_file() && !knows_paths(program))
}

/// Tells whether a make knows the form `fifo:PATH`. One that cannot be read does not.
fn knows_paths(program: &Path) -> bool {
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
    bytes
        .windows(OPTION_OF_4_4.len())
        .any(|part| part == OPTION_OF_4_4)
}

#[cfg(test)]
mod tests {
    use std::fs::create_dir;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_path_is_told_unless_an_old_make_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let make = |folder: &str, text: &str| {
            let folder = scratch.path().join(folder);
            create_dir(&folder).unwrap();
            let mut file = File::create(folder.join("gmake")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            folder
        };
        let old = make("old", "GNU Make 4.3 --jobserver-auth");
        let new = make("new", "GNU Make 4.4 --jobserver-style");
        let form = |folders: &[&Path]| {
            Form::for_path(Some(std::env::join_paths(folders).unwrap().as_os_str()))
        };
        assert_eq!(form(&[&new, scratch.path()]), Form::Path);
        assert_eq!(form(&[&new, &old]), Form::Descriptors);
        assert_eq!(Form::for_path(None), Form::Path);
    }
}
