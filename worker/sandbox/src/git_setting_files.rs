//! Where the user's settings of `git` begin.

use std::path::PathBuf;

use teamd_shared::environment::Environment;

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
}
