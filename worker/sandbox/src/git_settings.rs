//! What the user's settings of `git` lead to. A file that they include can lie anywhere in a home,
//! and so can what they name: a `git` that does not find them takes other files for ignored, runs
//! no filter, and commits under another name.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use teamd_shared::environment::Environment;
use teamd_shared::place::follow;
use teamd_shared::repository::{Setting, settings_of, text_of_settings};

use super::Places;

/// How far a file can be from the first one that includes it: that of `git` itself.
const DEEPEST: usize = 10;

/// So many files are read at most.
const MOST: usize = 100;

/// The settings that name a file or a folder, separated by blanks.
const PATHS: &str = "core.excludesfile core.attributesfile core.hookspath commit.template gpg.ssh.allowedsignersfile mailmap.file \
    blame.ignorerevsfile init.templatedir";

/// Variables that name a file of settings. Our own scripts get that of the user under another name.
const NAMED_BY: [&str; 4] = [
    "GIT_CONFIG_GLOBAL",
    "T_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "T_CONFIG_SYSTEM",
];

/// What is no folder of settings, whatever says so: each program has one of its own in it.
const SHARED: [&str; 5] = [
    ".config",
    ".local",
    ".local/share",
    ".local/state",
    ".cache",
];

/// Where the settings of a user begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct GitSettings {
    /// What `~` stands for.
    home: PathBuf,
    files: Vec<PathBuf>,
}

impl GitSettings {
    /// Says where they begin for commands with this environment.
    pub(super) fn of(environment: &Environment, homes: &[PathBuf]) -> Self {
        let mut files: Vec<_> = NAMED_BY
            .iter()
            .filter_map(|name| environment.path(name))
            .collect();
        files.extend(homes.iter().map(|home| home.join(".gitconfig")));
        let folders = homes.iter().map(|home| home.join(".config"));
        let folders = environment
            .path("XDG_CONFIG_HOME")
            .into_iter()
            .chain(folders);
        for folder in folders {
            files.extend(
                ["config", "ignore", "attributes"].map(|file| folder.join("git").join(file)),
            );
        }
        files.push("/etc/gitconfig".into());
        Self {
            home: homes.first().cloned().unwrap_or_default(),
            files,
        }
    }

    /// Returns the files of settings that are there, and what they name: without links. What is
    /// secret, and what a teammate can have made, is not among them, nor followed.
    pub(super) fn led_to(&self, places: &Places, secrets: &[PathBuf]) -> Vec<PathBuf> {
        let mut found = Found {
            places,
            secrets,
            seen: HashSet::new(),
            paths: Vec::new(),
        };
        let mut level: Vec<PathBuf> = self.files.clone();
        for _ in 0..=DEEPEST {
            let mut next = Vec::new();
            for file in std::mem::take(&mut level) {
                let Some(text) = found.read(&file) else {
                    continue;
                };
                for setting in settings_of(&text) {
                    let Some(path) = self.path_of(&setting, &file) else {
                        continue;
                    };
                    if is_include(&setting) {
                        next.push(path);
                    } else {
                        found.take(&path);
                    }
                }
            }
            level = next;
        }
        found.paths
    }

    /// Returns the path that a setting is, as `git` takes it.
    fn path_of(&self, setting: &Setting, file: &Path) -> Option<PathBuf> {
        let is_include = is_include(setting);
        if !is_include
            && !PATHS
                .split_whitespace()
                .any(|known| known == setting.name())
        {
            return None;
        }
        let value = setting
            .value
            .strip_prefix(b":(optional)")
            .unwrap_or(&setting.value);
        let path = Path::new(OsStr::from_bytes(value));
        let first = path.components().next()?.as_os_str();
        if let Some(user) = first.as_bytes().strip_prefix(b"~") {
            let rest = path.strip_prefix(first).ok()?;
            if user.is_empty() {
                return Some(self.home.join(rest));
            }
            let user = nix::unistd::User::from_name(std::str::from_utf8(user).ok()?).ok()??;
            return Some(user.dir.join(rest));
        }
        // Beside that of an include, it counts from where `git` works.
        (path.is_absolute() || is_include).then(|| file.parent().map(|folder| folder.join(path)))?
    }
}

/// Tells whether a setting names a file with more of them, on whatever condition.
fn is_include(setting: &Setting) -> bool {
    ["include", "includeif"].contains(&setting.section.as_str()) && setting.key == "path"
}

/// What is found on the way.
struct Found<'a> {
    places: &'a Places,
    secrets: &'a [PathBuf],
    seen: HashSet<PathBuf>,
    paths: Vec<PathBuf>,
}

impl Found<'_> {
    /// Reads a file of settings, unless that was done before. What cannot be read is left to `git`,
    /// which says so.
    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        if self.seen.len() >= MOST {
            return None;
        }
        let real = self.take(path)?;
        if !self.seen.insert(real.clone()) {
            return None;
        }
        text_of_settings(&real)
    }

    /// Adds what a path leads to, if commands may see it.
    fn take(&mut self, path: &Path) -> Option<PathBuf> {
        let real = follow(path, |link| {
            if self.is_theirs(link) {
                Err(io::Error::from(io::ErrorKind::PermissionDenied))
            } else {
                Ok(())
            }
        });
        let real = real.ok()?;
        let found = real.symlink_metadata().ok()?;
        let may = (found.is_file() || found.is_dir() && self.is_of_its_own(&real))
            && !self.is_theirs(path)
            && !self.is_theirs(&real)
            && ![path, &real].into_iter().any(|path| self.is_secret(path));
        if may && !self.paths.contains(&real) {
            self.paths.push(real.clone());
        }
        may.then_some(real)
    }

    fn is_theirs(&self, path: &Path) -> bool {
        self.places.is_writable(path)
            || self
                .places
                .territory
                .iter()
                .any(|above| path.starts_with(above))
    }

    fn is_secret(&self, path: &Path) -> bool {
        let Places {
            registers,
            configs,
            team_dir,
            ..
        } = self.places;
        let states = registers.iter().map(|register| register.state().root());
        let ours = configs
            .iter()
            .map(PathBuf::as_path)
            .chain(states)
            .chain([team_dir.as_path()]);
        let mut hidden = self
            .secrets
            .iter()
            .map(PathBuf::as_path)
            .chain(ours.filter(|it| it.is_absolute()));
        hidden.any(|hidden| path.starts_with(hidden))
    }

    /// Tells whether a folder holds no home, and is not shared by programs.
    fn is_of_its_own(&self, folder: &Path) -> bool {
        let mut homes = self.places.homes.iter();
        !homes.any(|home| {
            home.starts_with(folder) || SHARED.iter().any(|shared| home.join(shared) == folder)
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::Place;

    struct Home {
        _scratch: tempfile::TempDir,
        root: PathBuf,
    }

    impl Home {
        fn with(files: &[(&str, &str)]) -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let home = Self {
                root: scratch.path().canonicalize().unwrap(),
                _scratch: scratch,
            };
            fs::create_dir_all(home.root.join("work")).unwrap();
            for (file, text) in files {
                let path = home.root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            home
        }

        fn led_to(&self) -> Vec<String> {
            let homes = vec![self.root.join("home")];
            let settings = GitSettings::of(&Environment::default(), &homes);
            let workspace = Place::of_this_call(self.root.join("work"));
            let places = Places {
                homes,
                workspace,
                territory: vec![self.root.join("once")],
                ..Places::default()
            };
            let led_to = settings.led_to(
                &places,
                &[self.root.join("home/.ssh"), self.root.join("home/.netrc")],
            );
            let near = led_to
                .iter()
                .filter_map(|path| path.strip_prefix(&self.root).ok());
            let mut near: Vec<_> = near.map(|path| path.to_str().unwrap().to_owned()).collect();
            near.sort();
            near
        }
    }

    #[test]
    fn what_settings_include_and_name_is_found_whatever_the_condition() {
        let home = Home::with(&[
            (
                "home/.gitconfig",
                "[user] name = U\n[include]\n\tpath = ~/.gitconfig.d/filters ; mine\n[IncludeIf \"gitdir:~/w[o]rk/\"] Path = .gitconfig-work\n\
                 [core]\n\texcludesFile = \"~/.dotfiles/ig\\\nn\"\n\thooksPath = ~/.githooks\n\tattributesFile = relative\n\tpager = ~/.pager\n",
            ),
            (
                "home/.gitconfig.d/filters",
                "[include]\n\tpath = more/deep\n\tpath = ../.gitconfig\n",
            ),
            (
                "home/.gitconfig.d/more/deep",
                "[gpg \"ssh\"]\n\tallowedSignersFile = ~/.signers/all\n",
            ),
            (
                "home/.gitconfig-work",
                "[user]\n\temail = w@x\n[include]\n\tpath = ~/.gone\n",
            ),
            (
                "home/.config/git/config",
                "[commit]\n\ttemplate = ~/.dotfiles/message\n",
            ),
            ("home/.dotfiles/ign", ""),
            ("home/.dotfiles/message", ""),
            ("home/.githooks/pre-commit", ""),
            ("home/.signers/all", ""),
            ("home/.pager", ""),
        ]);
        let expected = [
            "home/.config/git/config",
            "home/.dotfiles/ign",
            "home/.dotfiles/message",
            "home/.gitconfig",
            "home/.gitconfig-work",
            "home/.gitconfig.d/filters",
            "home/.gitconfig.d/more/deep",
            "home/.githooks",
            "home/.signers/all",
        ];
        assert_eq!(home.led_to(), expected);
    }

    #[test]
    fn a_link_is_followed_to_what_it_leads_to() {
        let home = Home::with(&[
            (
                "home/.dotfiles/gitconfig",
                "[include]\n\tpath = ~/.d/filters\n",
            ),
            ("home/.dotfiles/d/filters", ""),
        ]);
        symlink(".dotfiles/gitconfig", home.root.join("home/.gitconfig")).unwrap();
        symlink(".dotfiles/d", home.root.join("home/.d")).unwrap();
        assert_eq!(
            home.led_to(),
            ["home/.dotfiles/d/filters", "home/.dotfiles/gitconfig"]
        );
    }

    #[test]
    fn no_secret_is_shown_and_nothing_of_a_teammate_is_followed() {
        let home = Home::with(&[
            (
                "home/.gitconfig",
                "[include]\n\tpath = ~/.ssh/id\n\tpath = ~/.key\n\tpath = ../work/c\n\tpath = ../once/c\n\tpath = ../once/l\n\
                 [core]\n\texcludesFile = ~/.netrc\n\thooksPath = ~/\n\thooksPath = ~/.config\n\thooksPath = /\n",
            ),
            ("home/.ssh/id", "[core]\n\tattributesFile = ~/.named\n"),
            ("home/.netrc", ""),
            ("home/.named", ""),
            ("home/.config/x", ""),
            ("work/c", "[core]\n\tattributesFile = ~/.named\n"),
            ("once/c", "[core]\n\tattributesFile = ~/.named\n"),
        ]);
        symlink(".ssh/id", home.root.join("home/.key")).unwrap();
        symlink("../home/.named", home.root.join("once/l")).unwrap();
        assert_eq!(home.led_to(), ["home/.gitconfig"]);
    }

    #[test]
    fn a_ring_and_a_long_chain_of_files_end() {
        let many: Vec<_> = (0..300)
            .map(|n| format!("[include]\n\tpath = ~/.d/{n}\n"))
            .collect();
        let mut files = vec![("home/.gitconfig".to_owned(), many.concat())];
        files.extend((0..300).map(|n| {
            (
                format!("home/.d/{n}"),
                format!("[include]\n\tpath = {}\n", n % 7),
            )
        }));
        let files: Vec<_> = files
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()))
            .collect();
        let count = Home::with(&files).led_to().len();
        // Those of the machine count, too.
        assert!((MOST - 3..=MOST).contains(&count), "{count}");
    }
}
