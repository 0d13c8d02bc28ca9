//! What each key of a `team.toml` does to what a team may do: it widens that, narrows it, or does
//! neither.
//!
//! Each type of the file reports the effects of its own fields, and destructures itself to do so: a
//! forgotten field does not compile. A key can widen with one value and narrow with another.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A key that narrows, with its value.
#[derive(Debug, Clone, PartialEq, PartialOrd, Serialize, Deserialize)]
pub(crate) struct Narrowing {
    /// The key.
    pub(crate) key: String,
    /// Its value, or one of its list.
    pub(crate) value: String,
    /// How much it leaves, where that is a number: less narrows more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) most: Option<f64>,
}

impl Narrowing {
    /// Tells whether another one narrows as much.
    pub(crate) fn is_kept_by(&self, other: &Self) -> bool {
        let is_less = match (other.most, self.most) {
            (Some(most), Some(before)) => most <= before,
            _ => false,
        };
        self.key == other.key && (self.value == other.value || is_less)
    }
}

/// What the keys of a file do.
#[derive(Debug, Default)]
pub(crate) struct KeyEffects<'f> {
    /// The file; paths in its directory are its own.
    pub(crate) file: Option<&'f Path>,
    /// The prefix of the names of the keys: the table.
    pub(crate) table: String,
    /// The keys that widen, one line each.
    pub(crate) widening: BTreeSet<String>,
    /// The keys that narrow.
    pub(crate) narrowing: Vec<Narrowing>,
    /// The names of all keys whose effect was reported.
    #[cfg(test)]
    pub(crate) said: BTreeSet<&'static str>,
}

impl KeyEffects<'_> {
    /// Reports that a key widens with each of these values.
    pub(crate) fn widens<T: Debug>(
        &mut self,
        key: &'static str,
        values: impl IntoIterator<Item = T>,
    ) {
        self.say(key);
        let lines = values
            .into_iter()
            .map(|value| format!("{}{key} = {value:?}", self.table));
        self.widening.extend(lines);
    }

    /// Reports that a key narrows with each of these values.
    pub(crate) fn narrows<T: Debug>(
        &mut self,
        key: &'static str,
        values: impl IntoIterator<Item = T>,
    ) {
        self.say(key);
        for value in values {
            let key = format!("{}{key}", self.table);
            self.narrowing.push(Narrowing {
                key,
                value: format!("{value:?}"),
                most: None,
            });
        }
    }

    /// Reports that a key narrows with this value, and how much it leaves.
    pub(crate) fn narrows_to(&mut self, key: &'static str, value: &str, most: f64) {
        self.say(key);
        let key = format!("{}{key}", self.table);
        self.narrowing.push(Narrowing {
            key,
            value: value.to_owned(),
            most: Some(most),
        });
    }

    /// Reports the effect of a limit: it narrows below the limit that holds without it, and widens
    /// above.
    pub(crate) fn limits(&mut self, key: &'static str, most: Option<f64>, without: Option<f64>) {
        self.say(key);
        let Some(most) = most else { return };
        if without.is_some_and(|without| most > without) {
            return self.widens(key, [format_args!("{most}")]);
        }
        self.narrows_to(key, &most.to_string(), most);
    }

    /// Reports that keys do neither, whatever their values are.
    pub(crate) fn neither<const N: usize>(&mut self, keys: [&'static str; N]) {
        for key in keys {
            self.say(key);
        }
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "only a test looks at what was said")
    )]
    fn say(&mut self, _key: &'static str) {
        #[cfg(test)]
        self.said.insert(_key);
    }
}

/// Returns where a path leads, unless that is below the directory of the file.
pub(crate) fn outside(file: &Path, path: &Path) -> Option<PathBuf> {
    let above = real(file.parent().unwrap_or(Path::new("/")));
    let path = real(path);
    let is_beneath =
        path.starts_with(above) && path.components().all(|part| part != Component::ParentDir);
    (!is_beneath).then_some(path)
}

/// Returns where a path leads, before and after something is made there: the part that exists is
/// resolved, the rest is appended.
fn real(path: &Path) -> PathBuf {
    path.ancestors()
        .find_map(|above| {
            Some(
                above
                    .canonicalize()
                    .ok()?
                    .join(path.strip_prefix(above).ok()?),
            )
        })
        .unwrap_or_else(|| path.to_owned())
        .components()
        .collect()
}
