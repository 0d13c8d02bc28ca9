//! An author for the commits of a teammate whose user has set none: `git` would refuse each commit.
//!
//! It stands in a file that takes the place of the system's settings of `git`, and includes those:
//! any setting of the user, of the repository or of a command counts more (`git-config(1)`).
//!
//! **Who writes** `gitconfig` in the temporary directory: the worker, when it begins. **Who reads**:
//! `git` in commands, and nothing else: the variable that names it is set for commands alone, so no
//! program outside the sandbox ever reads it. A command can write it, as it can set the variable
//! itself: what it puts there is what it could have run anyway, confined like every command of the
//! teammate. Where a command removes it, `git` refuses to commit as before.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::RunnerConfig;
use crate::caches::Keeps;
use crate::git_setting_files::GitSettings;

/// The variable that names the file.
pub(super) const VARIABLE: &str = "GIT_CONFIG_SYSTEM";

/// The name of the file.
pub(super) const FILE: &str = "gitconfig";

/// The settings of the system, where `git` is built as most distributions build it.
const OF_SYSTEM: &str = "/etc/gitconfig";

/// Variables with which the user has decided.
const DECIDED_BY: [&str; 5] = [
    "EMAIL",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_EMAIL",
    "GIT_CONFIG_NOSYSTEM",
    VARIABLE,
];

/// Makes the file, if the user has no author; tells whether it is there.
///
/// # Errors
/// The system's error.
pub(super) fn make(config: &RunnerConfig, settings: &GitSettings, temp: &Path) -> io::Result<bool> {
    let is_teammate = matches!(config.keeps, Keeps::Member(_) | Keeps::Agent(_));
    let is_decided = DECIDED_BY
        .iter()
        .any(|name| config.environment.value(name).is_some());
    if !is_teammate || is_decided || settings.name_author() {
        return Ok(false);
    }
    let name = &config.name;
    let text = format!(
        "# The settings of the repository and of the user count more.\n\
         [user]\n\tname = {name}\n\temail = {name}@teamd.invalid\n[include]\n\tpath = {OF_SYSTEM}\n"
    );
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .open(temp.join(FILE))?;
    file.write_all(text.as_bytes())?;
    Ok(true)
}
