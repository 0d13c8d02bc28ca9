//! What protected files are: one hash over the names and contents of all files below a directory that match patterns such as
//! `tests/**`. Equal fingerprints: nothing was added, changed or removed. No link is followed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use sha2::{Digest, Sha256};

/// How many names are looked at: more are a mistake in a pattern.
const MOST: usize = 50_000;

/// How much is read, in bytes.
const MOST_BYTES: usize = 256 << 20;

/// Returns the patterns as one set, or what is wrong with one of them.
///
/// # Errors
/// What is wrong. Fits behind "error: ".
pub fn patterns(of: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in of {
        let glob = GlobBuilder::new(pattern.trim_start_matches("./")).literal_separator(true).build();
        set.add(glob.map_err(|error| format!("the pattern {pattern:?} cannot be used: {}", error.kind()))?);
    }
    set.build().map_err(|error| error.to_string())
}

/// Returns the fingerprint of what matches these patterns below a directory.
///
/// # Errors
/// The system's error, or that a pattern cannot be used, or that too many files match: then nothing is known.
pub fn fingerprint(root: &Path, of: &[String]) -> io::Result<String> {
    let set = patterns(of).map_err(io::Error::other)?;
    // Only below what the patterns begin with: the rest of a workspace can be large.
    let starts: BTreeSet<PathBuf> = of.iter().map(|pattern| literal_start(pattern)).collect();
    let mut files = BTreeSet::new();
    let (mut left, mut looked) = (vec![PathBuf::new()], 0);
    while let Some(at) = left.pop() {
        let found = match root.join(&at).symlink_metadata() {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                continue;
            }
            other => other?,
        };
        looked += 1;
        if looked > MOST {
            return Err(io::Error::other(format!("more than {MOST} files lie where protected ones may be")));
        }
        let leads = starts.iter().any(|start| start.starts_with(&at));
        if !found.is_dir() {
            // A link on the way to a start is part of what is protected.
            files.extend((leads || set.is_match(&at)).then_some(at));
        } else if starts.iter().any(|start| at.starts_with(start)) {
            if at.file_name().is_none_or(|name| name != ".git" && name != ".team") {
                for entry in root.join(&at).read_dir()? {
                    left.push(at.join(entry?.file_name()));
                }
            }
        } else {
            let below = starts.iter().filter_map(|start| start.strip_prefix(&at).ok()?.components().next());
            left.extend(below.map(|next| at.join(next)).collect::<BTreeSet<_>>());
        }
    }
    let (mut all, mut room) = (Sha256::new(), MOST_BYTES);
    for file in files {
        let mut one = Sha256::new();
        let path = root.join(&file);
        match fs::read_link(&path) {
            Ok(target) => one.update(target.as_os_str().as_encoded_bytes()),
            Err(_) if path.symlink_metadata()?.is_file() => read_into(&path, &mut one, &mut room)?,
            Err(_) => {}
        }
        all.update(file.as_os_str().as_encoded_bytes());
        all.update([0]);
        all.update(one.finalize());
    }
    Ok(all.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn read_into(path: &Path, hash: &mut Sha256, room: &mut usize) -> io::Result<()> {
    let (mut file, mut piece) = (File::open(path)?, vec![0; 64 << 10]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        hash.update(&piece[..read]);
        *room = room
            .checked_sub(read)
            .ok_or_else(|| io::Error::other("the protected files are larger than 256 MB"))?;
    }
}

/// Returns the directories with which a pattern begins, or its whole path.
fn literal_start(pattern: &str) -> PathBuf {
    let is_plain = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']) && *part != "..";
    pattern.split('/').filter(|part| !matches!(*part, "" | ".")).take_while(is_plain).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn write(path: &Path, content: &str) {
        File::create(path).unwrap().write_all(content.as_bytes()).unwrap();
    }

    #[test]
    fn it_changes_with_each_change_of_a_protected_file_and_with_no_other() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        fs::create_dir_all(root.join("tests/deep")).unwrap();
        write(&root.join("tests/deep/a.rs"), "one");
        write(&root.join("Makefile"), "all:");
        write(&root.join("src.rs"), "code");
        let of = ["tests/**".to_owned(), "./Makefile".to_owned(), "**/*.snap".to_owned()];
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
        std::os::unix::fs::symlink("elsewhere", root.join("Makefile")).unwrap();
        assert_ne!(now(), before);
        let linked = now();
        fs::rename(root.join("tests"), root.join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", root.join("tests")).unwrap();
        assert_ne!(now(), linked, "a directory that is a link now");
        assert!(patterns(&["a[".to_owned()]).unwrap_err().contains("\"a[\""));
    }
}
