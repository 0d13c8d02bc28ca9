//! The package that a launcher fetches.

use serde::{Deserialize, Serialize};

use super::InstallRecord;
use crate::terms::{AgentProgram, Published, launcher_of};

/// Where packages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// npm: `npx`.
    Npm,
    /// The Python package index: `uvx`.
    Pypi,
}

/// A package that a launcher fetches, and which program of it is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedPackage {
    /// Where it comes from.
    pub registry: Registry,
    /// Its name, with extras in brackets if there are any.
    pub name: String,
    /// The version, the range or the tag that was asked for; none: the newest.
    pub version: Option<String>,
    /// The program that was named; none: the package has one alone, or one of its own name.
    pub program: Option<String>,
}

/// What a command fetches before it runs that.
#[derive(Debug)]
pub struct Fetched<'a> {
    /// The launcher with which the command begins.
    pub launcher: &'static str,
    /// The package; or why no command of ours can install it.
    pub package: Result<FetchedPackage, String>,
    /// The arguments of its program.
    pub arguments: &'a [String],
}

/// Returns what a command fetches; none if it does not begin with a launcher.
pub fn fetched_by(command: &[String]) -> Option<Fetched<'_>> {
    let launcher = launcher_of(command)?;
    let words = command.get(1..).unwrap_or_default();
    let options = match launcher {
        "npx" => &NPX,
        "uvx" => &UVX,
        _ => {
            return Some(Fetched {
                launcher,
                package: Err(format!(
                    "{launcher} is not understood, but `npx` and `uvx` are"
                )),
                arguments: words,
            });
        }
    };
    let (package, arguments) = match options.read(words) {
        Ok(read) => (Ok(read.package), read.arguments),
        Err(why) => (Err(why), words),
    };
    Some(Fetched {
        launcher,
        package,
        arguments,
    })
}

impl FetchedPackage {
    /// Returns the package of an agent that needs no table in `team.toml`.
    pub fn of_known(name: &str) -> Option<Self> {
        let agent = AgentProgram::known(name)?;
        let published = Published::of(name, agent.protocol)?;
        Some(Self {
            registry: Registry::Npm,
            name: published.package.to_owned(),
            version: None,
            program: None,
        })
    }

    /// Reads a package as it is written behind a launcher.
    ///
    /// # Errors
    /// Why it is none of the registry.
    pub fn read(registry: Registry, text: &str) -> Result<Self, String> {
        let (name, version) = match registry {
            Registry::Npm => npm_name(text),
            Registry::Pypi => pypi_name(text),
        };
        // A text that is an option, a path or an address would be taken for one by the installer.
        let is_name = |part: &str| {
            let mut characters = part.chars();
            characters.next().is_some_and(|c| c.is_ascii_alphanumeric())
                && characters.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let is_valid = match registry {
            Registry::Npm => match name.strip_prefix('@') {
                Some(scoped) => scoped
                    .split_once('/')
                    .is_some_and(|(scope, name)| is_name(scope) && is_name(name)),
                None => is_name(name),
            },
            Registry::Pypi => is_name(without_extras(name)),
        };
        let is_version = |version: &str| {
            !version.is_empty()
                && version
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.+^~<>=*! ".contains(c))
        };
        if !is_valid || version.is_some_and(|version| !is_version(version)) {
            return Err(format!(
                "{text:?} is not the name of a package, with or without a version"
            ));
        }
        Ok(Self {
            registry,
            name: name.to_owned(),
            version: version.map(str::to_owned),
            program: None,
        })
    }

    /// Tells whether an installed program is what this asks for.
    pub(super) fn is_met_by(&self, record: &InstallRecord) -> bool {
        let Self {
            registry,
            name,
            version,
            program,
        } = self;
        let of_record = &record.package;
        let is_same = of_record.registry == *registry
            && of_record.name == *name
            && of_record.program == *program;
        // A range or a tag is what it was when it was installed.
        let has_version = version.is_none()
            || *version == of_record.version
            || version.as_ref() == Some(&record.version);
        is_same && has_version
    }

    /// Returns the name that the package has in its own description.
    pub fn plain_name(&self) -> &str {
        match self.registry {
            Registry::Npm => &self.name,
            Registry::Pypi => without_extras(&self.name),
        }
    }

    /// Returns it as its installer takes it.
    pub fn spec(&self) -> String {
        let Self { name, version, .. } = self;
        match (self.registry, version) {
            (_, None) => name.clone(),
            (Registry::Npm, Some(version)) => format!("{name}@{version}"),
            (Registry::Pypi, Some(version)) if version == LATEST => name.clone(),
            (Registry::Pypi, Some(version)) => format!("{name}=={version}"),
        }
    }
}

impl std::fmt::Display for FetchedPackage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spec())
    }
}

/// How `uvx` is asked for the newest version.
const LATEST: &str = "latest";

/// Parts `@scope/name@1.2.3`.
fn npm_name(text: &str) -> (&str, Option<&str>) {
    let version_at = text.rfind('@').filter(|at| *at > 0);
    match version_at {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Parts `name[extra]==1.2.3` and `name@1.2.3`.
fn pypi_name(text: &str) -> (&str, Option<&str>) {
    let parted = text.split_once("==").or_else(|| text.split_once('@'));
    match parted {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    }
}

fn without_extras(name: &str) -> &str {
    match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((plain, _)) => plain,
        None => name,
    }
}

/// The options of a launcher.
struct LauncherOptions {
    registry: Registry,
    launcher: &'static str,
    /// Those that change nothing here.
    idle: &'static [&'static str],
    /// Those that name the package; the first word behind the options is its program then.
    package: &'static [&'static str],
}

const NPX: LauncherOptions = LauncherOptions {
    registry: Registry::Npm,
    launcher: "npx",
    idle: &["-y", "--yes", "-q", "--quiet", "--"],
    package: &["-p", "--package"],
};

const UVX: LauncherOptions = LauncherOptions {
    registry: Registry::Pypi,
    launcher: "uvx",
    idle: &["-q", "--quiet", "--"],
    package: &["--from"],
};

/// What was read of a launcher's command line.
struct LauncherWords<'a> {
    package: FetchedPackage,
    arguments: &'a [String],
}

impl LauncherOptions {
    fn read<'a>(&self, words: &'a [String]) -> Result<LauncherWords<'a>, String> {
        let launcher = self.launcher;
        let mut package = None;
        let mut rest = words;
        while let Some((word, behind)) = rest.split_first() {
            if !word.starts_with('-') {
                break;
            }
            rest = behind;
            if self.idle.contains(&word.as_str()) {
                continue;
            }
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (word.as_str(), None),
            };
            if !self.package.contains(&option) {
                return Err(format!(
                    "the option {option} of {launcher} is not understood"
                ));
            }
            let named = match (value, rest.split_first()) {
                (Some(value), _) => value,
                (None, Some((value, behind))) => {
                    rest = behind;
                    value
                }
                (None, None) => return Err(format!("{option} of {launcher} names no package")),
            };
            if package.replace(named).is_some() {
                return Err(format!("it names two packages for {launcher}"));
            }
        }
        let Some((first, arguments)) = rest.split_first() else {
            return Err(format!("it names no program for {launcher}"));
        };
        let package = match package {
            Some(named) => FetchedPackage {
                program: Some(program_name(first)?),
                ..FetchedPackage::read(self.registry, named)?
            },
            None => FetchedPackage::read(self.registry, first)?,
        };
        Ok(LauncherWords { package, arguments })
    }
}

/// Makes sure that the name of a program is no path.
fn program_name(name: &str) -> Result<String, String> {
    if name.contains('/') || name.starts_with('.') {
        return Err(format!("{name:?} is not the name of a program"));
    }
    Ok(name.to_owned())
}
