//! Installs the program that a launcher would fetch: once, by a person, outside of any sandbox.
//! [`teamd_shared::installed`] says where it is kept, and what becomes of one that is not whole.

mod npm;
mod registry_file;
mod staging;
mod uv;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use teamd_shared::environment::{Environment, is_model_key};
use teamd_shared::installed::{
    FetchedPackage, InstallRecord, InstalledProgram, InstalledPrograms, Registry, fetched_by,
};

use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::escape;
use crate::print::output::Output;
use crate::read::agents::find;

pub use registry_file::{ListedAgent, listed_agent};

use staging::Staging;

/// How a program is installed.
#[derive(Debug, Clone, Copy)]
pub struct InstallOptions {
    /// Whether a newer version is looked for, where one is installed.
    pub upgrade: bool,
    /// Whether the install scripts of what the package depends on run, too.
    pub scripts: bool,
}

impl InstallOptions {
    /// Tells whether a package is fetched although it is installed.
    fn fetches_anyway(self) -> bool {
        self.upgrade || self.scripts
    }
}

/// What an installation has come to.
pub struct Installation {
    /// The program.
    pub installed: InstalledProgram,
    /// Whether it was installed by this command; else it was there.
    pub is_new: bool,
}

/// Where and for whom a program is installed.
struct Installer<'a> {
    out: &'a Output,
    environment: &'a Environment,
    options: InstallOptions,
}

/// What a package manager has put into a folder.
struct Unpacked {
    version: String,
    /// The program, from the folder on.
    program: PathBuf,
}

/// Installs what the command of an agent or MCP server would fetch. Does nothing if that is
/// installed, unless a newer version is asked for.
///
/// # Errors
/// [`ExitCode::Usage`] if the command fetches nothing that can be installed, else
/// [`ExitCode::Failed`].
pub fn install(
    out: &Output,
    name: &str,
    command: &[String],
    options: InstallOptions,
) -> Result<Installation, CommandError> {
    let Some(fetched) = fetched_by(command) else {
        let program = command.first().map(String::as_str).unwrap_or_default();
        let program = escape::line(program);
        return Err(CommandError::new(
            ExitCode::Usage,
            format!("there is nothing to install for {name}: its command runs {program}, and no launcher"),
        )
        .hint(format!("install {program} as its authors say, or begin `command` with `npx -y PACKAGE` or `uvx PACKAGE`")));
    };
    let package = fetched.package.map_err(|why| {
        CommandError::new(ExitCode::Usage, format!("{name} cannot be installed: {why}")).hint(
            "write `npx -y PACKAGE@VERSION …` or `uvx PACKAGE@VERSION …`; or install the program yourself, and name what results in `command`",
        )
    })?;
    let environment = Environment::of_self();
    let programs = InstalledPrograms::of_environment(&environment);
    let programs =
        programs.map_err(|error| refused("cannot find where programs are installed", &error))?;
    let installer = Installer {
        out,
        environment: &environment,
        options,
    };
    if let Some(installed) = installer.existing(&programs, &package)?
        && !options.fetches_anyway()
    {
        return Ok(Installation {
            installed,
            is_new: false,
        });
    }
    let staging = Staging::make(out, &programs, name)?;
    // Another command may have installed it while this one waited for its turn.
    if let Some(installed) = installer.existing(&programs, &package)?
        && !options.fetches_anyway()
    {
        return Ok(Installation {
            installed,
            is_new: false,
        });
    }
    let unpacked = match package.registry {
        Registry::Npm => installer.npm(&staging, &package)?,
        Registry::Pypi => installer.uv(&staging, &package)?,
    };
    let wanted = FetchedPackage {
        version: Some(unpacked.version.clone()),
        ..package.clone()
    };
    if let Some(installed) = installer.existing(&programs, &wanted)?
        && !options.scripts
    {
        return Ok(Installation {
            installed,
            is_new: false,
        });
    }
    let record = InstallRecord {
        name: name.to_owned(),
        package,
        version: unpacked.version,
        program: unpacked.program,
        at: now(),
    };
    let installed = staging.publish(record)?;
    Ok(Installation {
        installed,
        is_new: true,
    })
}

impl Installer<'_> {
    fn existing(
        &self,
        programs: &InstalledPrograms,
        package: &FetchedPackage,
    ) -> Result<Option<InstalledProgram>, CommandError> {
        programs
            .find(package)
            .map_err(|error| refused("cannot see what is installed", &error))
    }

    /// Finds the program of a package manager.
    fn manager(&self, program: &str, next: &str) -> Result<PathBuf, CommandError> {
        find(&[program.to_owned()], self.environment).ok_or_else(|| {
            failed(format!("cannot install: there is no program {program}")).hint(next)
        })
    }

    /// Runs a step of a package manager in the folder to which it installs. A person sees what it
    /// reports; a program gets it with the error.
    fn run(&self, command: &mut Command, staging: &Staging) -> Result<(), CommandError> {
        // Not in the workspace: a settings file there, such as `.npmrc`, may be a teammate's.
        command
            .current_dir(staging.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // No script of a package needs what pays for models.
        for (name, _) in std::env::vars_os() {
            if is_model_key(name.as_encoded_bytes()) {
                command.env_remove(name);
            }
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let first = command.get_args().next().unwrap_or_default();
        let step = format!("{program} {}", first.to_string_lossy());
        if self.out.is_json() {
            command.stderr(Stdio::piped());
        }
        let child = command.spawn();
        let output = child.and_then(Child::wait_with_output);
        let output = output.map_err(|error| refused(&format!("cannot run {program}"), &error))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        let message = format!("cannot install: `{step}` failed ({}) {why}", output.status);
        Err(failed(message.trim_end().to_owned())
            .hint("nothing was installed; correct what it has reported, and run this again"))
    }
}

fn failed(message: String) -> CommandError {
    CommandError::new(ExitCode::Failed, message)
}

fn refused(what: &str, error: &std::io::Error) -> CommandError {
    CommandError::refused(what, error)
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
