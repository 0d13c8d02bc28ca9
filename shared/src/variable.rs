//! Variables, and the paths that people write with `~`.

use std::path::{Component, Path, PathBuf};

use crate::suggest;

/// Looks a variable up, in the environment of a process or in one that came with a command.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable has a wrong value, or none where one is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct SettingError {
    /// The variable.
    pub variable: &'static str,
    /// Its value; empty if it is not set.
    pub value: String,
    /// What belongs there.
    pub expected: &'static str,
}

impl SettingError {
    /// Suggests the expected word that may be meant.
    pub fn meant(&self) -> Option<&'static str> {
        let words = self
            .expected
            .split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
        suggest::nearest(&self.value, words.filter(|word| word.len() >= SHORTEST))
    }

    fn text(&self) -> String {
        let Self {
            variable,
            value,
            expected,
        } = self;
        if value.is_empty() {
            format!("{variable} is not set: {expected}")
        } else {
            format!("{variable}={value:?} is not {expected}")
        }
    }
}

/// The shortest word that a mistyped value is compared with: most shorter ones are similar.
const SHORTEST: usize = 4;

/// Reads a variable that is set to something.
///
/// # Errors
/// [`SettingError`] if it is not what is expected.
pub(crate) fn variable<T>(
    lookup: Lookup<'_>,
    variable: &'static str,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, SettingError> {
    let Some(value) = lookup(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match parse(value.trim()) {
        Ok(read) => Ok(Some(read)),
        Err(expected) => Err(SettingError {
            variable,
            value,
            expected,
        }),
    }
}

/// Makes a path absolute: `~` is the user's home, any other path counts from a directory. `..`
/// stays, because behind a link it leads elsewhere.
///
/// # Errors
/// [`SettingError`] if the path begins with `~` and there is no home.
pub fn absolute(base: &Path, path: &str, lookup: Lookup<'_>) -> Result<String, SettingError> {
    let in_home = path
        .strip_prefix('~')
        .filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = match in_home {
        Some(rest) => {
            let expected = "a path begins with ~";
            let home = lookup("HOME").filter(|home| !home.is_empty());
            let home = home.ok_or(SettingError {
                variable: "HOME",
                value: String::new(),
                expected,
            })?;
            Path::new(&home).join(rest.trim_start_matches('/'))
        }
        None => base.join(path),
    };
    let tidy: PathBuf = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    Ok(tidy.to_string_lossy().into_owned())
}
