//! Where the user's settings of `git` begin.

use std::path::{Path, PathBuf};

use teamd_shared::environment::Environment;
use teamd_shared::repository::{settings_of, text_of_settings};

/// Variables that name a file of settings. Our own scripts get that of the user under another name.
const NAMED_BY: [&str; 4] = [
    "GIT_CONFIG_GLOBAL",
    "T_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "T_CONFIG_SYSTEM",
];

/// Where the settings of a user begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct GitSettings {
    /// What `~` means.
    pub(super) home: PathBuf,
    pub(super) files: Vec<PathBuf>,
    /// The other homes of the user, where `git` looks for nothing while the first one is `HOME`.
    other_homes: Vec<PathBuf>,
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
            other_homes: homes.iter().skip(1).cloned().collect(),
        }
    }

    /// Tells whether one of the files names the author of commits. Those that they include are not
    /// looked at: where one of them does, it counts all the same.
    pub(super) fn name_author(&self) -> bool {
        let is_read = |file: &&PathBuf| {
            let is_elsewhere = self.other_homes.iter().any(|home| file.starts_with(home));
            !is_elsewhere || file.starts_with(&self.home)
        };
        self.files
            .iter()
            .filter(is_read)
            .any(|file| names_author(file))
    }
}

fn names_author(file: &Path) -> bool {
    let Some(text) = text_of_settings(file) else {
        return false;
    };
    settings_of(&text)
        .iter()
        .any(|setting| setting.name() == "user.email")
}
