//! Checkouts: a teammate's own clone of the *team repository*, a bare repository that belongs to
//! the daemon.
//!
//! **Who writes**: jobs alone write the team repository ([`crate::job`]); a teammate writes its own
//! checkout, but for its settings and hooks. **Who reads**: the teammates of the team see the team
//! repository, read only; it is hidden from all others. **When a job dies**: what it had not
//! finished has another name, or none, and the next one makes it anew.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::effects::Effects;
use crate::fingerprint::Patterns;
use crate::user_dirs::name_of;

/// Where the checkout of a teammate is, as it stands in its record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Checkout {
    /// Its top directory, absolute and without links.
    pub root: String,
    /// Where the teammate would work without it: in the user's repository.
    pub source: String,
    /// The team repository, whose objects it shares.
    pub repository: String,
    /// What is to be said of it, once.
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

    /// Returns where it is made that belongs there: it gets its name when it is whole.
    pub fn unfinished(root: &Path) -> PathBuf {
        root.with_file_name(format!(
            ".{}.new",
            root.file_name().unwrap_or_default().to_string_lossy()
        ))
    }

    /// Returns what notes, beside the team repository, that one was made there: a link to it.
    pub fn note(home: &Path, root: &Path) -> PathBuf {
        home.join(name_of(root))
    }
}

/// What becomes of a checkout that is made: `[checkout]` in `team.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckoutSettings {
    /// Whether each teammate has one that says nothing else.
    pub always: bool,
    /// Files and directories of the user's tree that `git` does not know and a checkout needs, such
    /// as `.env.test`.
    #[serde(deserialize_with = "beneath")]
    pub copy: Vec<String>,
    /// A command that prepares a checkout, such as `npm ci`.
    pub setup: Option<String>,
    /// The files on which `setup` rests: it runs again when one of them changes. By default
    /// manifests and lock files.
    #[serde(deserialize_with = "patterns")]
    pub inputs: Vec<String>,
}

/// The files on which a setup rests, where nothing says which.
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
    /// Says what each key does.
    pub(crate) fn effects(&self, to: &mut Effects<'_>) {
        let Self {
            always,
            copy,
            setup,
            inputs: _,
        } = self;
        to.narrows("checkout.always", always.then_some(true));
        // What `git` does not know is mostly what others shall not see.
        to.widens("checkout.copy", copy);
        to.widens("checkout.setup", setup);
        to.neither(["checkout.inputs"]);
    }

    /// Returns the patterns of the files on which the setup rests.
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
    use std::path::Component::{CurDir, Normal};
    let paths = Vec::<String>::deserialize(deserializer)?;
    let is_beneath = |path: &&String| {
        Path::new(path)
            .components()
            .all(|part| matches!(part, Normal(_) | CurDir))
    };
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
