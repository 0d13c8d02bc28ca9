//! The programs that `teamctl agents install` has installed, so that no spawn fetches one:
//! `$XDG_DATA_HOME/teamd/tools` (else `~/.local/share/teamd/tools`), with a folder `NAME-VERSION`
//! for each.
//!
//! A folder holds what its package manager has put there, and the record `installed.json`. **Who
//! writes**: that command of a person, which builds the folder under a name that begins with a dot,
//! and renames it when all is there. **Who reads**: each command that spawns; and what a teammate
//! starts reads the program, which it can never write. **When the writer dies**: a folder whose
//! name begins with a dot is left. It does not count, and the next installation removes it.

mod package;

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use package::{FetchedPackage, Registry, fetched_by};

use crate::environment::Environment;
use crate::terms::AgentProgram;
use crate::user_dirs::data_dir;

/// The record in the folder of an installed program.
pub const RECORD: &str = "installed.json";

/// The folder of the user's data in which all of them are.
const FOLDER: &str = "tools";

/// The record of an installed program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstallRecord {
    /// The agent or MCP server for which it was installed.
    pub name: String,
    /// What was asked for.
    pub package: FetchedPackage,
    /// The version that was fetched.
    pub version: String,
    /// The program, from its folder on.
    pub program: PathBuf,
    /// When it was installed, in seconds since 1970.
    pub at: f64,
}

/// An installed program.
#[derive(Debug, Clone, PartialEq)]
pub struct InstalledProgram {
    /// Its folder.
    pub folder: PathBuf,
    /// What is recorded of it.
    pub record: InstallRecord,
}

impl InstalledProgram {
    /// Reads what a folder holds; none if that is no installed program.
    ///
    /// # Errors
    /// The system's error, or that of a malformed record.
    pub fn read(folder: PathBuf) -> io::Result<Option<Self>> {
        let text = match fs::read(folder.join(RECORD)) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            other => other?,
        };
        let record = serde_json::from_slice(&text)?;
        let installed = Self { folder, record };
        Ok(Some(installed).filter(|it| it.program().is_file()))
    }

    /// Returns the path of the program.
    pub fn program(&self) -> PathBuf {
        self.folder.join(&self.record.program)
    }
}

/// The folder of all installed programs, whether it is there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPrograms {
    root: PathBuf,
}

impl InstalledPrograms {
    /// Finds that of the user of this environment.
    ///
    /// # Errors
    /// If no directory is named.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        Ok(Self {
            root: data_dir(variable)?.join(FOLDER),
        })
    }

    /// Finds that of the environment of a spawn.
    ///
    /// # Errors
    /// As [`InstalledPrograms::of`].
    pub fn of_environment(environment: &Environment) -> io::Result<Self> {
        Self::of(|name| environment.path(name).map(PathBuf::into_os_string))
    }

    /// Returns that of a home directory, unless the environment names another one.
    pub fn of_home(home: &Path) -> Self {
        Self {
            root: home.join(".local/share/teamd").join(FOLDER),
        }
    }

    /// Returns its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the program that was installed for such a package, the last one if there are
    /// several; none if there is none.
    ///
    /// # Errors
    /// The system's error.
    pub fn find(&self, package: &FetchedPackage) -> io::Result<Option<InstalledProgram>> {
        let mut newest: Option<InstalledProgram> = None;
        for installed in self.all()? {
            let is_newer = newest
                .as_ref()
                .is_none_or(|newest| newest.record.at < installed.record.at);
            if is_newer && package.is_met_by(&installed.record) {
                newest = Some(installed);
            }
        }
        Ok(newest)
    }

    /// Tells whether a command runs what was installed here, in any version, for an agent that needs
    /// no table in `team.toml`.
    ///
    /// # Errors
    /// The system's error.
    pub fn runs_known(&self, name: &str, command: &[String]) -> io::Result<bool> {
        let Some(package) = FetchedPackage::of_known(name) else {
            return Ok(false);
        };
        let known = AgentProgram::known(name).map(|agent| agent.command);
        let (Some((program, arguments)), Some(known)) = (command.split_first(), known) else {
            return Ok(false);
        };
        let all = self.all()?;
        let mut of_agent = all.iter().filter(|it| package.is_met_by(&it.record));
        Ok(known.get(1..) == Some(arguments)
            && of_agent.any(|it| it.program() == Path::new(program)))
    }

    fn all(&self) -> io::Result<Vec<InstalledProgram>> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match InstalledProgram::read(entry.path()) {
                Ok(installed) => all.extend(installed),
                // It does not count, and the next installation of it replaces it.
                Err(error) => tracing::warn!(
                    "{} is not used: its record cannot be read: {error}",
                    entry.path().display()
                ),
            }
        }
        Ok(all)
    }
}

/// Returns the installed program that lies at a path; none if that is another program.
///
/// # Errors
/// The system's error, or that of a malformed record.
pub fn installed_at(program: &Path) -> io::Result<Option<InstalledProgram>> {
    for folder in program.ancestors().skip(1) {
        if let Some(installed) = InstalledProgram::read(folder.to_owned())? {
            return Ok(Some(installed).filter(|it| it.program() == program));
        }
    }
    Ok(None)
}

/// Why the program of a command is not run.
#[derive(Debug, thiserror::Error)]
pub enum NotInstalled {
    /// Its launcher would fetch it, and it was not installed.
    #[error(
        "its command begins with {launcher}, which fetches a program each time; in the sandbox it would hang"
    )]
    Launcher {
        /// The launcher.
        launcher: &'static str,
        /// Why no command of ours can install it; none if one can.
        obstacle: Option<String>,
    },
    /// The system's error.
    #[error("cannot see what is installed: {0}")]
    Io(#[from] io::Error),
}

impl NotInstalled {
    /// Says what to do; `install`: the command that installs it, and `table`: where its command is
    /// written.
    pub fn hint(&self, install: &str, table: &str) -> String {
        match self {
            Self::Launcher { obstacle: None, .. } => format!("`{install}` installs it once"),
            Self::Launcher {
                obstacle: Some(why),
                ..
            } => format!(
                "install the program once, and name what results in `command` of `{table}` ({why})"
            ),
            Self::Io(_) => "check the owner and the mode of ~/.local/share/teamd".to_owned(),
        }
    }
}

/// A command without a launcher.
#[derive(Debug, Clone, PartialEq)]
pub struct InstalledCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What was installed; none: the command is as it is written.
    pub installed: Option<InstalledProgram>,
}

impl InstalledCommand {
    fn of(installed: InstalledProgram, arguments: &[String]) -> Self {
        let program = installed.program().to_string_lossy().into_owned();
        Self {
            command: [&[program], arguments].concat(),
            installed: Some(installed),
        }
    }
}

/// Returns a command without a launcher: the installed program is in its place. All other commands
/// stay as they are.
///
/// # Errors
/// [`NotInstalled`] if it begins with a launcher, and its program was not installed.
pub fn without_launcher(
    command: &[String],
    environment: &Environment,
) -> Result<InstalledCommand, NotInstalled> {
    let Some(fetched) = fetched_by(command) else {
        return Ok(InstalledCommand {
            command: command.to_vec(),
            installed: None,
        });
    };
    let launcher = fetched.launcher;
    let package = fetched.package.map_err(|why| NotInstalled::Launcher {
        launcher,
        obstacle: Some(why),
    })?;
    let installed = InstalledPrograms::of_environment(environment)?.find(&package)?;
    let installed = installed.ok_or(NotInstalled::Launcher {
        launcher,
        obstacle: None,
    })?;
    Ok(InstalledCommand::of(installed, fetched.arguments))
}

/// Returns the command that a spawn of an agent runs: without its launcher; and one that needs no
/// table in `team.toml` runs what was installed for it, if that is so.
///
/// # Errors
/// [`NotInstalled`] as for [`without_launcher`].
pub fn command_of_agent(
    name: &str,
    agent: &AgentProgram,
    environment: &Environment,
) -> Result<InstalledCommand, NotInstalled> {
    if agent.is_known(name)
        && let Some(package) = FetchedPackage::of_known(name)
        && let Some(installed) = InstalledPrograms::of_environment(environment)?.find(&package)?
    {
        let arguments = agent.command.get(1..).unwrap_or_default();
        return Ok(InstalledCommand::of(installed, arguments));
    }
    without_launcher(&agent.command, environment)
}

#[cfg(test)]
mod tests;
