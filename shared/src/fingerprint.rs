//! What protected files are: the names and contents of all files below a directory that match
//! patterns such as `tests/**`. No link is followed but where a pattern begins with one, only
//! regular files are opened, and a file that cannot be read is an error: then nothing is known.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::place::open_itself;

mod links;
mod lookout;

pub use links::{followed, on_the_way};
pub use lookout::Lookout;

/// How many names are looked at: more indicate a mistake in a pattern.
const MOST: usize = 500_000;

/// How much is read, in bytes.
const MOST_BYTES: usize = 256 << 20;

/// How many files a message names.
const NAMED: usize = 3;

/// The state of the protected files when a person or the lead last set the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Their fingerprint: one hash over the names and contents.
    Hash(String),
    /// They could not be looked at, and why: they count as changed.
    Unknown(String),
}

/// Which files are protected.
#[derive(Debug)]
pub struct Patterns {
    set: GlobSet,
    /// The directories with which the patterns begin: the rest of a workspace can be large.
    starts: BTreeSet<PathBuf>,
}

impl Patterns {
    /// Reads patterns.
    ///
    /// # Errors
    /// What is wrong with one of them. Fits behind "error: ".
    pub fn new(of: &[String]) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for pattern in of {
            // A file system may not tell names apart that differ by case alone.
            let mut glob = GlobBuilder::new(pattern.trim_start_matches("./"));
            let glob = glob.literal_separator(true).case_insensitive(true).build();
            set.add(glob.map_err(|error| {
                format!("the pattern {pattern:?} cannot be used: {}", error.kind())
            })?);
        }
        let starts = of.iter().map(|pattern| literal_start(pattern)).collect();
        Ok(Self {
            set: set.build().map_err(|error| error.to_string())?,
            starts,
        })
    }

    /// Returns the paths with which patterns begin, as far as they have no wildcard. A pattern such
    /// as `**/*.lock` has none.
    pub fn starts(&self) -> impl Iterator<Item = &Path> {
        self.starts
            .iter()
            .map(PathBuf::as_path)
            .filter(|start| !start.as_os_str().is_empty())
    }

    /// Tells whether a file is protected. A file or link in the place of a protected
    /// directory is so as well.
    pub fn has(&self, file: &Path) -> bool {
        self.set.is_match(file) || self.leads(file)
    }

    /// Tells whether a path is one with which a pattern begins, or leads there.
    fn leads(&self, at: &Path) -> bool {
        self.starts.iter().any(|start| {
            let mut start = start.iter();
            at.iter()
                .all(|part| start.next().is_some_and(|it| it.eq_ignore_ascii_case(part)))
        })
    }
}

/// The protected files, as they were found.
#[derive(Debug, Default)]
pub struct ProtectedFiles(BTreeMap<PathBuf, FileFingerprint>);

#[derive(Debug, PartialEq)]
struct FileFingerprint {
    /// Its kind, whether it can be run, and the hash of what it holds.
    what: [u8; 34],
    /// Its number and when it was changed last: a program cannot set that back.
    stamp: (u64, i64, u64),
}

impl ProtectedFiles {
    /// Looks at what matches these patterns below a directory, to which no link may lead.
    ///
    /// # Errors
    /// The system's error, or that a pattern cannot be used, or that too many files match: then
    /// nothing is known.
    pub fn find(root: &Path, of: &[String]) -> io::Result<Self> {
        let patterns = Patterns::new(&followed_beneath(root, of)?).map_err(io::Error::other)?;
        let root = open_itself(root, OFlags::PATH | OFlags::DIRECTORY)?;
        let mut files = Self::default();
        let mut left = vec![PathBuf::new()];
        let mut looked = 1;
        let mut room = MOST_BYTES;
        while let Some(at) = left.pop() {
            let before = left.len();
            let look = patterns.look(root.as_fd(), &at, &mut left, &mut room);
            let look = look.map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", at.display()))
            })?;
            files.0.extend(look.map(|file| (at, file)));
            looked += left.len() - before;
            if looked > MOST {
                return Err(too_many());
            }
        }
        Ok(files)
    }

    /// Returns their fingerprint.
    pub fn hash(&self) -> String {
        let mut all = Sha256::new();
        for (name, found) in &self.0 {
            all.update(name.as_os_str().as_bytes());
            all.update([0]);
            all.update(found.what);
        }
        all.finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Returns their paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Watches for replacements of these files, and of what the patterns begin with. `sealed`: what
    /// they begin with is mounted read-only, if it is there.
    ///
    /// # Errors
    /// As [`ProtectedFiles::find`], or that there are too many watches: then nothing is known.
    pub fn look_out(
        &self,
        root: &Path,
        of: &[String],
        sealed: bool,
    ) -> io::Result<Option<Lookout>> {
        let patterns = Patterns::new(of).map_err(io::Error::other)?;
        let root = open_itself(root, OFlags::PATH | OFlags::DIRECTORY)?;
        let mut mounted = BTreeSet::new();
        if sealed {
            for start in patterns.starts() {
                if can_be_mounted(root.as_fd(), start)? {
                    mounted.insert(start);
                }
            }
        }
        let paths = self
            .paths()
            .chain(patterns.starts())
            .filter(|path| !path.ancestors().any(|above| mounted.contains(above)));
        Lookout::begin(root.as_fd(), paths)
    }

    /// Names what is new since an earlier look below what the patterns begin with; none: nothing.
    pub fn added_since(&self, before: &Self, of: &[String]) -> Option<String> {
        let patterns = Patterns::new(of).ok()?;
        let new = self.paths().filter(|path| !before.0.contains_key(*path));
        named(new.filter(|path| patterns.starts().any(|start| path.starts_with(start))))
    }

    /// Names what was changed or removed since an earlier look, also if it was put back, and with
    /// `added` what is new; none: nothing.
    pub fn changed_since(&self, before: &Self, added: bool) -> Option<String> {
        let gone = before
            .0
            .iter()
            .filter(|(name, found)| self.0.get(*name) != Some(found));
        let new = self
            .0
            .keys()
            .filter(|name| added && !before.0.contains_key(*name));
        named(gone.map(|(name, _)| name).chain(new).map(PathBuf::as_path))
    }
}

/// Returns patterns, and what they are where links below a directory lead.
///
/// # Errors
/// The system's error.
pub fn followed_beneath(root: &Path, of: &[String]) -> io::Result<Vec<String>> {
    let opened = open_itself(root, OFlags::PATH | OFlags::DIRECTORY)?;
    followed(of, |at| links::target_beneath(opened.as_fd(), root, at))
}

/// Names some of these files; none if there is none.
pub fn named<'a>(files: impl IntoIterator<Item = &'a Path>) -> Option<String> {
    let mut files = files.into_iter();
    let first: Vec<String> = files
        .by_ref()
        .take(NAMED)
        .map(|file| file.display().to_string())
        .collect();
    let more = files.count();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    (!first.is_empty()).then(|| first.join(", ") + &more)
}

/// Returns the fingerprint of what matches these patterns below a directory.
///
/// # Errors
/// As [`ProtectedFiles::find`].
pub fn fingerprint(root: &Path, of: &[String]) -> io::Result<String> {
    ProtectedFiles::find(root, of).map(|files| files.hash())
}

impl Patterns {
    /// Looks at one path. Returns it if it is protected and no directory; else adds what is to be
    /// looked at below it.
    fn look(
        &self,
        root: BorrowedFd<'_>,
        at: &Path,
        left: &mut Vec<PathBuf>,
        room: &mut usize,
    ) -> io::Result<Option<FileFingerprint>> {
        let opened = match open_beneath(root, at, OFlags::PATH) {
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&opened)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return if self.has(at) {
                look_at(root, at, (&opened, &stat), room).map(Some)
            } else {
                Ok(None)
            };
        }
        if !self.starts.iter().any(|start| at.starts_with(start)) {
            let below = self
                .starts
                .iter()
                .filter_map(|start| start.strip_prefix(at).ok()?.components().next());
            left.extend(below.map(|next| at.join(next)).collect::<BTreeSet<_>>());
        } else if at
            .file_name()
            .is_none_or(|name| name != ".git" && name != ".team")
        {
            let dir = rustix::fs::openat(
                &opened,
                ".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            );
            for entry in rustix::fs::Dir::new(dir?)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    left.push(at.join(OsStr::from_bytes(name)));
                }
                if left.len() > MOST {
                    return Err(too_many());
                }
            }
        }
        Ok(None)
    }
}

/// Looks at a file that is no directory. Nothing but a regular file is opened: another one could
/// block, or do something.
fn look_at(
    root: BorrowedFd<'_>,
    at: &Path,
    (it, stat): (&OwnedFd, &Stat),
    room: &mut usize,
) -> io::Result<FileFingerprint> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mut hash = Sha256::new();
    let mut stat = *stat;
    match kind {
        FileType::RegularFile => {
            let file = File::from(open_beneath(root, at, OFlags::RDONLY | OFlags::NONBLOCK)?);
            stat = rustix::fs::fstat(&file)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(io::Error::other("it was replaced while it was looked at"));
            }
            let length = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
            *room = room
                .checked_sub(length)
                .ok_or_else(|| io::Error::other("the protected files are larger than 256 MB"))?;
            // Not more than that: another program may write to it.
            read_into(file.take(stat.st_size.unsigned_abs()), &mut hash)?;
        }
        FileType::Symlink => hash.update(rustix::fs::readlinkat(it, c"", Vec::new())?.into_bytes()),
        _ => {}
    }
    let mut what = [0; 34];
    what[0] = match kind {
        FileType::RegularFile => b'f',
        FileType::Symlink => b'l',
        _ => b'?',
    };
    what[1] = u8::from(kind == FileType::RegularFile && stat.st_mode & 0o111 != 0);
    what[2..].copy_from_slice(&hash.finalize());
    Ok(FileFingerprint {
        what,
        stamp: (stat.st_ino, stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// Opens what is at a path below a directory, if no link is on the way to it; of a link
/// itself with `O_PATH`.
fn open_beneath(root: BorrowedFd<'_>, at: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let at = if at.as_os_str().is_empty() {
        Path::new(".")
    } else {
        at
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(
        root,
        at,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
}

/// Tells whether something that is no link is at a path below a directory, and to which none
/// leads.
fn can_be_mounted(root: BorrowedFd<'_>, at: &Path) -> io::Result<bool> {
    match open_beneath(root, at, OFlags::PATH) {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            Ok(false)
        }
        found => {
            Ok(FileType::from_raw_mode(rustix::fs::fstat(found?)?.st_mode) != FileType::Symlink)
        }
    }
}

fn read_into(mut file: impl Read, hash: &mut Sha256) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            read => hash.update(&piece[..read]),
        }
    }
}

/// Returns the SHA-256 of all that can be read, in hex digits.
///
/// # Errors
/// The system's error.
pub fn sha256_of(file: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    read_into(file, &mut hash)?;
    let bytes = hash.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn too_many() -> io::Error {
    io::Error::other(format!(
        "more than {MOST} files lie where protected ones may be"
    ))
}

/// Returns the directories with which a pattern begins, or its whole path.
fn literal_start(pattern: &str) -> PathBuf {
    pattern
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .take_while(|part| !part.contains(['*', '?', '[', '{', '\\']) && *part != "..")
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn write(path: &Path, content: &str) {
        File::create(path)
            .unwrap()
            .write_all(content.as_bytes())
            .unwrap();
    }

    #[test]
    fn it_changes_with_each_change_of_a_protected_file_and_with_no_other() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        fs::create_dir_all(root.join("tests/deep")).unwrap();
        write(&root.join("tests/deep/a.rs"), "one");
        write(&root.join("Makefile"), "all:");
        write(&root.join("src.rs"), "code");
        let of = [
            "tests/**".to_owned(),
            "./Makefile".to_owned(),
            "**/*.snap".to_owned(),
        ];
        let now = || fingerprint(root, &of).unwrap();
        let before = now();
        write(&root.join("src.rs"), "other code");
        assert_eq!(now(), before);
        write(&root.join("tests/deep/a.rs"), "two");
        assert_ne!(now(), before);
        write(&root.join("tests/deep/a.rs"), "one");
        assert_eq!(now(), before, "put back");
        fs::rename(root.join("tests/deep/a.rs"), root.join("tests/deep/b.rs")).unwrap();
        assert_ne!(now(), before);
        fs::rename(root.join("tests/deep/b.rs"), root.join("tests/deep/a.rs")).unwrap();
        for more in ["tests/new", "deep.snap", "tests/deep/x.snap"] {
            write(&root.join(more), "");
            assert_ne!(now(), before, "{more}");
            fs::remove_file(root.join(more)).unwrap();
        }
        fs::remove_file(root.join("Makefile")).unwrap();
        symlink("elsewhere", root.join("Makefile")).unwrap();
        assert_ne!(now(), before);
        let linked = now();
        fs::remove_file(root.join("Makefile")).unwrap();
        write(&root.join("Makefile"), "elsewhere");
        assert_ne!(now(), linked, "a file that holds what the link said");
        let plain = now();
        fs::set_permissions(root.join("Makefile"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(now(), plain, "it can be run now");
        let linked = now();
        fs::rename(root.join("tests"), root.join("moved")).unwrap();
        symlink("moved", root.join("tests")).unwrap();
        assert_ne!(now(), linked, "a directory that is a link now");
        assert!(
            Patterns::new(&["a[".to_owned()])
                .unwrap_err()
                .contains("\"a[\"")
        );
    }

    #[test]
    fn what_is_exchanged_and_put_back_is_seen() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        for folder in ["deep/tests", "other/tests", "pkg", "evil"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            write(&root.join(folder).join("a_test.go"), folder);
        }
        let of = ["deep/tests/**", "**/*_test.go", "lost/**"].map(str::to_owned);
        let exchange = |one: &str, other: &str| {
            renameat_with(
                CWD,
                root.join(one),
                CWD,
                root.join(other),
                RenameFlags::EXCHANGE,
            )
            .unwrap();
        };
        let seen = |sealed: bool, attack: &dyn Fn()| {
            let before = ProtectedFiles::find(root, &of).unwrap();
            let lookout = before.look_out(root, &of, sealed).unwrap().unwrap();
            assert!(lookout.seen().unwrap().is_empty());
            attack();
            assert_eq!(
                ProtectedFiles::find(root, &of)
                    .unwrap()
                    .changed_since(&before, true),
                None,
                "it is put back"
            );
            named(lookout.seen().unwrap().iter().map(PathBuf::as_path)).unwrap_or_default()
        };
        let twice = |one: &'static str, other: &'static str| {
            move || {
                exchange(one, other);
                exchange(one, other);
            }
        };
        assert_eq!(
            seen(false, &twice("deep/tests", "other/tests")),
            "deep/tests, other/tests"
        );
        assert_eq!(seen(false, &twice("deep", "other")), "deep, other");
        assert_eq!(seen(true, &twice("pkg", "evil")), "evil, pkg");
        let comes_and_goes = || {
            fs::create_dir(root.join("lost")).unwrap();
            fs::remove_dir(root.join("lost")).unwrap();
        };
        assert_eq!(seen(true, &comes_and_goes), "lost");
        write(&root.join("unrelated"), "");
        let unrelated = || write(&root.join("deep/unrelated"), "");
        assert_eq!(seen(false, &unrelated), "");
        // What is mounted read-only is not looked at: each user has few queues.
        let mounted = ["deep/tests/**".to_owned()];
        let files = ProtectedFiles::find(root, &mounted).unwrap();
        assert!(files.look_out(root, &mounted, true).unwrap().is_none());
        assert!(files.look_out(root, &mounted, false).unwrap().is_some());
    }

    #[test]
    fn a_change_that_is_put_back_is_seen_and_named() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        fs::create_dir(root.join("tests")).unwrap();
        for name in ["a", "b", "c", "d", "e"].iter() {
            write(&root.join("tests").join(name), "one");
        }
        let find = || ProtectedFiles::find(root, &["tests/**".to_owned()]).unwrap();
        let before = find();
        assert_eq!(find().changed_since(&before, true), None);
        fs::remove_file(root.join("tests/b")).unwrap();
        write(&root.join("tests/x"), "");
        assert_eq!(find().changed_since(&before, false).unwrap(), "tests/b");
        assert_eq!(
            find().changed_since(&before, true).unwrap(),
            "tests/b, tests/x"
        );
        fs::remove_file(root.join("tests/x")).unwrap();
        write(&root.join("tests/b"), "one");
        assert_eq!(find().hash(), before.hash());
        assert_eq!(find().changed_since(&before, false).unwrap(), "tests/b");
        fs::remove_dir_all(root.join("tests")).unwrap();
        assert_eq!(
            find().changed_since(&before, false).unwrap(),
            "tests/a, tests/b, tests/c and 2 more"
        );
    }

    #[test]
    fn no_link_leads_out_of_what_is_looked_at() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("out/tests")).unwrap();
        fs::create_dir(root.join("work")).unwrap();
        write(&root.join("out/tests/secret.lock"), "one");
        symlink("../out/tests", root.join("work/tests")).unwrap();
        symlink("../out/tests/secret.lock", root.join("work/a.lock")).unwrap();
        let of = ["tests/**".to_owned(), "**/*.lock".to_owned()];
        let before = fingerprint(&root.join("work"), &of).unwrap();
        write(&root.join("out/tests/secret.lock"), "two");
        assert_eq!(
            fingerprint(&root.join("work"), &of).unwrap(),
            before,
            "what it holds is not read"
        );
        for planted in ["link", "link/tests"] {
            _ = symlink("out", root.join("link"));
            let error = ProtectedFiles::find(&root.join(planted), &of).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::LOOP.raw_os_error()),
                "{planted}"
            );
        }
    }

    #[test]
    fn nothing_blocks_and_what_cannot_be_read_is_an_error_that_names_it() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        fs::create_dir(root.join("tests")).unwrap();
        let find = || ProtectedFiles::find(root, &["tests/**".to_owned()]);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("tests/fifo"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("tests/socket")).unwrap();
        let fifo = find().unwrap().hash();
        fs::remove_file(root.join("tests/fifo")).unwrap();
        write(&root.join("tests/fifo"), "");
        assert_ne!(find().unwrap().hash(), fifo);
        // It takes no room, and would take long to read.
        File::create(root.join("tests/sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(
            find()
                .unwrap_err()
                .to_string()
                .contains("tests/sparse: the protected files are larger")
        );
    }

    #[test]
    fn a_file_of_a_commit_is_protected_where_it_matches_or_stands_in_the_way() {
        let of = [
            "tests/**".to_owned(),
            "deep/in/Makefile".to_owned(),
            "**/*.snap".to_owned(),
        ];
        let patterns = Patterns::new(&of).unwrap();
        for (file, is_protected) in [
            ("tests/a", true),
            ("tests", true),
            ("deep", true),
            ("deep/in", true),
            ("deep/in/Makefile", true),
            ("x.snap", true),
            ("src/x.snap", true),
            ("tests2/a", false),
            ("deep/other", false),
            ("Makefile", false),
        ] {
            assert_eq!(patterns.has(Path::new(file)), is_protected, "{file}");
        }
    }
}
