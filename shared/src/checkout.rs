//! Checkouts: a teammate's own clone of the *team repository*, a bare repository that belongs to
//! the daemon.
//!
//! **Who writes**: jobs alone write the team repository ([`crate::job`]); a teammate writes its own
//! checkout, but for its settings and hooks. **Who reads**: the teammates of the team see the team
//! repository, read only; it is hidden from all others. **When a job dies**: what it had not
//! finished has another name, or none, and the next job makes it again.

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::effects::KeyEffects;
use crate::fingerprint::Patterns;
use crate::user_dirs::name_of;

/// Where the checkout of a teammate is, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Checkout {
    /// Its top directory, absolute and without links.
    pub root: String,
    /// Where the teammate would work without it: in the user's repository.
    pub source: String,
    /// The team repository, whose objects it shares.
    pub repository: String,
    /// Notes about it, which are shown once.
    pub notes: Vec<String>,
}

impl Checkout {
    /// Returns the team repository as a path.
    pub fn shown(checkout: Option<&Self>) -> Vec<PathBuf> {
        checkout
            .map(|it| PathBuf::from(&it.repository))
            .into_iter()
            .collect()
    }

    /// Returns where a checkout is made first: it gets its name when it is complete.
    pub fn unfinished(root: &Path) -> PathBuf {
        root.with_file_name(format!(
            ".{}.new",
            root.file_name().unwrap_or_default().to_string_lossy()
        ))
    }

    /// Returns the checkouts that are noted beside the team repository, and are there.
    ///
    /// # Errors
    /// The system's error if the notes cannot be listed.
    pub fn noted(home: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match home.read_dir() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut noted = Vec::new();
        for entry in entries {
            // What is no link is no note.
            let Ok(root) = entry?.path().read_link() else {
                continue;
            };
            if root.is_absolute() && root.exists() {
                noted.push(root);
            }
        }
        noted.sort();
        Ok(noted)
    }

    /// Returns the link beside the team repository that records that a checkout was made.
    pub fn note(home: &Path, root: &Path) -> PathBuf {
        home.join(name_of(root))
    }
}

/// Returns the team repository, below the directory that belongs to `git` of a team.
pub fn repository_of(git_home: &Path) -> PathBuf {
    git_home.join("team.git")
}

/// How checkouts are prepared: `[checkout]` in `team.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckoutSettings {
    /// Whether each teammate has one unless its own terms say otherwise.
    pub always: bool,
    /// Files and directories of the user's tree that `git` does not track and a checkout needs,
    /// such as `.env.test`.
    #[serde(deserialize_with = "beneath")]
    pub copy: Vec<String>,
    /// A command that prepares a checkout, such as `npm ci`.
    pub setup: Option<String>,
    /// The files that `setup` depends on: it runs again when one of them changes. By default
    /// manifests and lock files.
    #[serde(deserialize_with = "patterns")]
    pub inputs: Vec<String>,
}

/// The files that a setup depends on by default.
const INPUTS: [&str; 9] = [
    "**/*.lock",
    "**/*[.-]lock.*",
    "**/package.json",
    "**/Cargo.toml",
    "**/go.{mod,sum}",
    "**/pyproject.toml",
    "**/requirements*.txt",
    "**/pom.xml",
    "**/Gemfile",
];

impl CheckoutSettings {
    /// Reports what each key does.
    pub(crate) fn effects(&self, to: &mut KeyEffects<'_>) {
        let Self {
            always,
            copy,
            setup,
            inputs: _,
        } = self;
        to.narrows("checkout.always", always.then_some(true));
        // Files that `git` does not track are mostly those that others must not see.
        to.widens("checkout.copy", copy);
        to.widens("checkout.setup", setup);
        to.neither(["checkout.inputs"]);
    }

    /// Returns the patterns of the files that the setup depends on.
    pub fn inputs(&self) -> Vec<String> {
        if self.inputs.is_empty() {
            INPUTS.map(str::to_owned).to_vec()
        } else {
            self.inputs.clone()
        }
    }
}

pub(crate) fn beneath<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let paths = Vec::<String>::deserialize(deserializer)?;
    match paths
        .iter()
        .find(|path| path.is_empty() || path.contains('\n') || !is_beneath(path))
    {
        Some(path) => Err(serde::de::Error::custom(format_args!(
            "{path:?} is not a path beneath the repository"
        ))),
        None => Ok(paths),
    }
}

fn patterns<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let inputs = Vec::deserialize(deserializer)?;
    Patterns::new(&inputs).map_err(serde::de::Error::custom)?;
    Ok(inputs)
}

/// Tells whether a path is relative and leads nowhere above.
fn is_beneath(path: &str) -> bool {
    use std::path::Component::{CurDir, Normal};
    Path::new(path)
        .components()
        .all(|part| matches!(part, Normal(_) | CurDir))
}
