//! What the commands of a teammate print: those that its worker runs, while they run and after.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use teamd_shared::background;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

/// The output of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct OutputTail {
    /// Its number in the background; none for the last one that was not there.
    pub id: Option<u32>,
    /// Where the output is.
    pub state: OutputState,
    /// The end of it.
    pub end: String,
    /// How many bytes come before that.
    pub before: u64,
}

/// Where the output of a command is.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputState {
    /// In a log of the team directory, whether or not the command has ended.
    Logged,
    /// In this file, since it runs in the background.
    Growing(PathBuf),
    /// Nowhere: the worker was killed, and its temporary directory is gone.
    Lost,
}

/// Returns the outputs of a teammate's commands: at most so many bytes of the end of each. The last
/// command comes first, then those in the background, at most so many, the latest first.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn outputs(
    dir: &TeamDir,
    name: &Name,
    most: usize,
    bytes: u64,
) -> Result<Vec<OutputTail>, DirError> {
    let mut all = Vec::new();
    all.extend(logged(dir, None, &TeamPath::command_log(name), bytes)?);
    let numbers = background::numbers(dir, name)?;
    for id in numbers.into_iter().rev().take(most) {
        let at = TeamPath::background_log(name, &id.to_string());
        let Some(found) = logged(dir, Some(id), &at, bytes.max(background::MAX_NOTE))? else {
            continue;
        };
        all.push(growing(found, bytes));
    }
    Ok(all)
}

fn logged(
    dir: &TeamDir,
    id: Option<u32>,
    at: &TeamPath,
    bytes: u64,
) -> Result<Option<OutputTail>, DirError> {
    let mut file = match dir.open_file(at, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let read = end_of(&mut file, bytes).map_err(|source| DirError::Io {
        verb: "read",
        path: dir.path(at),
        source,
    });
    let (end, before) = read?;
    Ok(Some(OutputTail {
        id,
        state: OutputState::Logged,
        end,
        before,
    }))
}

/// Returns the output of a command in the background: that which its log names, while it runs.
fn growing(found: OutputTail, bytes: u64) -> OutputTail {
    let Some(place) = background::place(&found.end).filter(|_| found.before == 0) else {
        return found;
    };
    let read = open_growing(place).and_then(|mut file| end_of(&mut file, bytes));
    match read {
        Ok((end, before)) => OutputTail {
            id: found.id,
            state: OutputState::Growing(place.to_owned()),
            end,
            before,
        },
        Err(_) => OutputTail {
            id: found.id,
            state: OutputState::Lost,
            end: String::new(),
            before: 0,
        },
    }
}

/// Opens a file that the tools of a teammate can replace: only a file of its own name is read, and
/// nothing that it leads to.
fn open_growing(place: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(place)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.nlink() == 1 {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn end_of(file: &mut File, bytes: u64) -> io::Result<(String, u64)> {
    let before = file.metadata()?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(before))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    // The first character may be cut.
    let from = if before > 0 {
        end.iter()
            .take(3)
            .take_while(|&&byte| byte & 0xc0 == 0x80)
            .count()
    } else {
        0
    };
    Ok((String::from_utf8_lossy(&end[from..]).into_owned(), before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> (tempfile::TempDir, TeamDir, Name) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        (scratch, dir, Name::new("ana").unwrap())
    }

    fn write(dir: &TeamDir, at: &TeamPath, text: &str) {
        teamd_shared::fs::replace(dir, at, text.as_bytes()).unwrap();
    }

    fn put(path: &Path, text: &str) {
        let mut file = File::create(path).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }

    #[test]
    fn the_last_command_comes_first_and_then_those_in_the_background() {
        let (scratch, dir, ana) = scratch();
        let all = |most, bytes| outputs(&dir, &ana, most, bytes).unwrap();
        assert_eq!(all(9, 100), []);
        let place = scratch.path().join("background-10.log");
        put(&place, "tick\ntock\n");
        let log = |id: &str| TeamPath::background_log(&ana, id);
        write(&dir, &TeamPath::command_log(&ana), "$ make\nok\n");
        write(&dir, &log("9"), "\u{20ac}uro\n");
        write(&dir, &log("10"), &background::note(1, &place));
        write(&dir, &log("8"), &background::note(1, Path::new("/no/such")));
        write(
            &dir,
            &TeamPath::background_log(&Name::new("bo").unwrap(), "3"),
            "of another",
        );
        let shown = all(9, 7);
        let ids: Vec<Option<u32>> = shown.iter().map(|output| output.id).collect();
        assert_eq!(ids, [None, Some(10), Some(9), Some(8)]);
        let ends: Vec<&str> = shown.iter().map(|output| output.end.as_str()).collect();
        assert_eq!(ends, ["ake\nok\n", "k\ntock\n", "\u{20ac}uro\n", ""]);
        assert_eq!(shown[1].state, OutputState::Growing(place));
        assert_eq!(
            (&shown[2].state, &shown[3].state),
            (&OutputState::Logged, &OutputState::Lost)
        );
        assert_eq!((all(1, 7).len(), shown[0].before), (2, 3));
    }

    #[test]
    fn nothing_is_read_that_a_tool_has_put_in_the_place_of_its_output() {
        let (scratch, dir, ana) = scratch();
        let secret = scratch.path().join("secret");
        put(&secret, "secret");
        let places = ["link", "hard", "pipe", "folder"].map(|name| scratch.path().join(name));
        std::os::unix::fs::symlink(&secret, &places[0]).unwrap();
        std::fs::hard_link(&secret, &places[1]).unwrap();
        nix::unistd::mkfifo(&places[2], nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::create_dir(&places[3]).unwrap();
        for place in &places {
            write(
                &dir,
                &TeamPath::background_log(&ana, "1"),
                &background::note(1, place),
            );
            let shown = outputs(&dir, &ana, 9, 100).unwrap();
            assert_eq!(shown[0].state, OutputState::Lost, "{}", place.display());
            assert_eq!(shown[0].end, "");
        }
    }
}
