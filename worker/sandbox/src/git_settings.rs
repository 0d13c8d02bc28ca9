//! What the user's settings of `git` lead to. A file that they include can lie anywhere in a home,
//! and so can what they name: a `git` that does not find them takes other files for ignored, runs
//! no filter, and commits under another name.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use teamd_shared::repository::{Setting, settings_of, text_of_settings};

use super::CommandPlaces;
use super::git_setting_files::GitSettings;
use super::places::UsersPath;

/// How far a file can be from the first one that includes it: that of `git` itself.
const DEEPEST: usize = 10;

/// So many files are read at most.
const MOST: usize = 100;

/// The settings that name a file or a folder, separated by blanks.
const PATHS: &str = "core.excludesfile core.attributesfile core.hookspath commit.template gpg.ssh.allowedsignersfile mailmap.file \
    blame.ignorerevsfile init.templatedir";

/// What is never shown as a folder of settings: each program has one of its own in it.
const SHARED: [&str; 5] = [
    ".config",
    ".local",
    ".local/share",
    ".local/state",
    ".cache",
];

impl GitSettings {
    /// Reads the files of settings that are there. What is secret, and what a teammate can have
    /// made, is neither shown nor followed.
    pub(super) fn read(&self, places: &CommandPlaces, secrets: &[PathBuf]) -> ReadSettings {
        let mut reading = Reading {
            places,
            secrets,
            files: HashSet::new(),
            settings: ReadSettings::default(),
        };
        let mut level: Vec<PathBuf> = self.files.clone();
        for _ in 0..=DEEPEST {
            let mut next = Vec::new();
            for file in std::mem::take(&mut level) {
                let Some(text) = reading.read(&file) else {
                    continue;
                };
                for setting in settings_of(&text) {
                    let Some(path) = self.path_of(&setting, &file) else {
                        continue;
                    };
                    if is_include(&setting) {
                        next.push(path);
                    } else {
                        reading.show(&path);
                    }
                }
            }
            level = next;
        }
        reading.settings
    }

    /// Returns the path that a setting is, as `git` takes it.
    fn path_of(&self, setting: &Setting, file: &Path) -> Option<PathBuf> {
        let is_include = is_include(setting);
        if !is_include && !PATHS.split_whitespace().any(|name| name == setting.name()) {
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

/// Tells whether a setting names a file with more settings, on any condition.
fn is_include(setting: &Setting) -> bool {
    ["include", "includeif"].contains(&setting.section.as_str()) && setting.key == "path"
}

/// What the settings of a user lead to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadSettings {
    /// The files of settings, and what they name: without links.
    pub(super) paths: Vec<PathBuf>,
    /// The links that lead there.
    pub(super) links: Vec<PathBuf>,
}

/// The state while files of settings are read.
struct Reading<'a> {
    places: &'a CommandPlaces,
    secrets: &'a [PathBuf],
    /// The files that have been read.
    files: HashSet<PathBuf>,
    settings: ReadSettings,
}

impl Reading<'_> {
    /// Reads a file of settings, unless that was done before. What cannot be read is left to `git`,
    /// which says so.
    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        if self.files.len() >= MOST {
            return None;
        }
        let real = self.show(path)?;
        if !self.files.insert(real.clone()) {
            return None;
        }
        text_of_settings(&real)
    }

    /// Shows what a path leads to, if commands may see it.
    fn show(&mut self, path: &Path) -> Option<PathBuf> {
        let UsersPath { path: real, links } = self.places.users_path(path)?;
        let metadata = real.symlink_metadata().ok()?;
        if !(metadata.is_file() || metadata.is_dir() && self.is_of_its_own(&real)) {
            return None;
        }
        for path in [path, &real] {
            if self.places.is_theirs(path) || self.is_secret(path) {
                return None;
            }
        }
        if !self.settings.paths.contains(&real) {
            self.settings.paths.push(real.clone());
        }
        self.settings.links.extend(links);
        Some(real)
    }

    fn is_secret(&self, path: &Path) -> bool {
        let CommandPlaces {
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

    use teamd_shared::environment::Environment;

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
            self.near(self.read().paths)
        }

        fn near(&self, paths: Vec<PathBuf>) -> Vec<String> {
            let near = paths
                .iter()
                .filter_map(|path| path.strip_prefix(&self.root).ok());
            let mut near: Vec<_> = near.map(|path| path.to_str().unwrap().to_owned()).collect();
            near.sort();
            near
        }

        fn read(&self) -> ReadSettings {
            let homes = vec![self.root.join("home")];
            let settings = GitSettings::of(&Environment::default(), &homes);
            let workspace = Place::of_this_call(self.root.join("work"));
            let places = CommandPlaces {
                homes,
                workspace,
                territory: vec![self.root.join("once")],
                ..CommandPlaces::default()
            };
            settings.read(
                &places,
                &[self.root.join("home/.ssh"), self.root.join("home/.netrc")],
            )
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
        assert_eq!(home.near(home.read().links), ["home/.d", "home/.gitconfig"]);
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
