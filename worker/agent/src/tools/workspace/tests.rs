//! Paths that try to get out, and what the tools say: a workspace to try them in.

mod changing;
mod paths;
mod reading;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use teamd_worker_core::tools::{EditFile, ReadFile, WriteFile};
use teamd_worker_sandbox::run::KEPT;

fn alice() -> Name {
    Name::new("alice").unwrap()
}

/// A workspace with a team directory in it, and a secret beside it.
struct ScratchWorkspace {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl ScratchWorkspace {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("desk");
        fs::create_dir(&root).unwrap();
        let team_dir = Arc::new(TeamDir::create(&root.join(".team")).unwrap());
        put(&folder.path().join("secret"), "outside");
        Self {
            workspace: Workspace::open(&root, team_dir, &alice()).unwrap(),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("desk").join(name)
    }

    fn put(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        put(&self.path(name), content);
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(name)).unwrap();
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.read_from(path, None, None)
    }

    fn read_from(
        &self,
        path: &str,
        offset: Option<u64>,
        limit: Option<u64>,
    ) -> Result<String, String> {
        let outcome = self.workspace.read(&ReadFile {
            path: path.to_owned(),
            limit,
            offset,
        });
        if outcome.is_error {
            Err(outcome.content)
        } else {
            Ok(outcome.content)
        }
    }

    fn guide(&self, most: usize) -> Guide {
        self.workspace.guide(most).unwrap()
    }

    fn write(&self, path: &str, content: &str) -> Result<String, String> {
        self.workspace.write(&write_file(path, content))
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        let path = path.to_owned();
        let old_text = old.to_owned();
        let new_text = new.to_owned();
        self.workspace.edit(&EditFile {
            path,
            old_text,
            new_text,
        })
    }

    /// Asserts that no tool gets through a path, and with what words.
    fn refused(&self, path: &str, why: &str) {
        let tries = [
            self.read(path),
            self.write(path, "x"),
            self.edit(path, "outside", "x"),
        ];
        for (result, tool) in tries.into_iter().zip(["read", "write", "edit"]) {
            let error = result.expect_err(&format!("{tool} {path}"));
            assert!(error.contains(why), "{tool} {path}: {error}");
        }
        assert_eq!(
            fs::read_to_string(self.folder.path().join("secret")).unwrap(),
            "outside"
        );
    }

    /// Asserts that no temporary file is left anywhere.
    fn is_tidy(&self) {
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                assert!(
                    !entry.file_name().to_string_lossy().ends_with(".tmp"),
                    "{:?} is left",
                    entry.path()
                );
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
            }
        }
    }
}

fn write_file(path: &str, content: &str) -> WriteFile {
    WriteFile {
        path: path.to_owned(),
        content: content.to_owned(),
    }
}

fn put(path: &Path, content: &str) {
    File::create(path)
        .unwrap()
        .write_all(content.as_bytes())
        .unwrap();
}
