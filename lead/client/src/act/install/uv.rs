//! Packages of Python, as `uvx` would fetch them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use teamd_shared::installed::FetchedPackage;

use crate::error::CommandError;

use super::staging::{Staging, require_program};
use super::{Installer, Unpacked, failed, refused};

/// The virtual environment, in the folder of a program.
const VENV: &str = "venv";

impl Installer<'_> {
    /// Installs a package of Python.
    ///
    /// In a relocatable virtual environment: the programs of others, those of `uv tool install`
    /// among them, name the path of their interpreter, which is another one once the folder has its
    /// name.
    pub(super) fn uv(
        &self,
        staging: &Staging,
        package: &FetchedPackage,
    ) -> Result<Unpacked, CommandError> {
        let folder = staging.path();
        let uv = self.manager(
            "uv",
            "install uv (https://docs.astral.sh/uv), and run this again; or install the program yourself, and name what results in `command`",
        )?;
        let step = |words: &[&str]| {
            let mut command = Command::new(&uv);
            command.args(words);
            command.env("UV_CACHE_DIR", staging.cache());
            // A link into the cache would lead nowhere when that is gone.
            command.env("UV_LINK_MODE", "hardlink");
            command
        };
        self.run(
            &mut step(&["venv", "--relocatable", "--no-project", VENV]),
            staging,
        )?;
        let python = format!("{VENV}/bin/python");
        let mut install = step(&["pip", "install", "--python", &python, "--"]);
        self.run(install.arg(package.spec()), staging)?;
        let name = package.plain_name();
        let version = version_of(&folder.join(VENV), name)
            .map_err(|error| refused("cannot read what uv has installed", &error))?;
        let Some(version) = version else {
            return Err(failed(format!("uv has installed no package {name}")));
        };
        let program = package.program.as_deref().unwrap_or(name);
        let program = PathBuf::from(VENV).join("bin").join(program);
        require_program(folder, &program)?;
        Ok(Unpacked { version, program })
    }
}

/// Finds the version of a package in the names of what describes the installed ones:
/// `fast_agent-1.2.0.dist-info`.
fn version_of(venv: &Path, name: &str) -> io::Result<Option<String>> {
    for python in fs::read_dir(venv.join("lib"))? {
        for entry in fs::read_dir(python?.path().join("site-packages"))? {
            let entry = entry?.file_name();
            let entry = entry.to_string_lossy();
            let Some((package, version)) = entry
                .strip_suffix(".dist-info")
                .and_then(|entry| entry.rsplit_once('-'))
            else {
                continue;
            };
            if normalized(package) == normalized(name) {
                return Ok(Some(version.to_owned()));
            }
        }
    }
    Ok(None)
}

/// Returns a name as the index compares names: `Fast.Agent` and `fast_agent` are one package.
fn normalized(name: &str) -> String {
    let mut normalized = String::new();
    for part in name.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !normalized.is_empty() {
            normalized.push('-');
        }
        normalized.push_str(&part.to_ascii_lowercase());
    }
    normalized
}
