//! Packages of npm, as `npx` would fetch them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use teamd_shared::installed::FetchedPackage;

use crate::error::CommandError;
use crate::print::escape;

use super::staging::{Staging, require_program};
use super::{Installer, Unpacked, failed, refused};

/// Where npm puts packages.
const MODULES: &str = "node_modules";

/// What describes a package, or a folder to which packages are installed.
const DESCRIPTION: &str = "package.json";

impl Installer<'_> {
    /// Installs a package of npm.
    ///
    /// No install script of what it depends on runs: scripts run as the user and outside of any
    /// sandbox, and a person who names a package does not name the hundreds below it. Its own
    /// script runs: without it Claude Code and OpenCode have no program, since it puts the one for
    /// this machine into its place (Codex and Gemini have none).
    pub(super) fn npm(
        &self,
        staging: &Staging,
        package: &FetchedPackage,
    ) -> Result<Unpacked, CommandError> {
        let folder = staging.path();
        let npm = self.manager(
            "npm",
            "install Node.js with npm (https://nodejs.org), and run this again",
        )?;
        // Without a description of its own the folder would belong to a project around it.
        describe(folder, &json!({"private": true}))?;
        let step = |step: &str| {
            let mut command = Command::new(&npm);
            command.arg(step).arg("--prefix").arg(folder);
            command.arg("--cache").arg(staging.cache());
            command.args([
                "--no-global",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
            ]);
            command
        };
        let mut install = step("install");
        install.args(["--ignore-scripts", "--include=optional", "--omit=dev", "--"]);
        self.run(install.arg(package.spec()), staging)?;
        let name = package.plain_name();
        let description = read_json(&folder.join(MODULES).join(name).join(DESCRIPTION))?;
        let Some(version) = description["version"].as_str() else {
            return Err(failed(format!("the package {name} has no version")));
        };
        let program = program_of(&description, package)?;
        let left_out = self.run_scripts(step("rebuild"), staging, package)?;
        let program = PathBuf::from(MODULES).join(".bin").join(program);
        require_program(folder, &program)?;
        if !left_out.is_empty() {
            let names = left_out.join(", ");
            self.out.note(format_args!(
                "the install scripts of {} were not run; if the program does not work, `--scripts` runs them",
                escape::line(&names)
            ));
        }
        Ok(Unpacked {
            version: version.to_owned(),
            program,
        })
    }

    /// Runs the install scripts that are to run; returns the packages whose are not.
    fn run_scripts(
        &self,
        mut rebuild: Command,
        staging: &Staging,
        package: &FetchedPackage,
    ) -> Result<Vec<String>, CommandError> {
        let own = package.plain_name();
        let (to_run, left_out): (Vec<_>, Vec<_>) = with_scripts(staging.path())?
            .into_iter()
            .partition(|name| name == own || self.options.scripts);
        if to_run.is_empty() {
            return Ok(left_out);
        }
        // npm from version 11 on wants to be told which scripts a person has allowed.
        let mut description = read_json(&staging.path().join(DESCRIPTION))?;
        for name in &to_run {
            description["allowScripts"][name] = true.into();
        }
        describe(staging.path(), &description)?;
        rebuild.args(["--ignore-scripts=false", "--"]).args(&to_run);
        self.run(&mut rebuild, staging)?;
        Ok(left_out)
    }
}

/// Writes the description of a folder to which npm installs.
fn describe(folder: &Path, description: &Value) -> Result<(), CommandError> {
    let path = folder.join(DESCRIPTION);
    fs::File::create(&path)
        .and_then(|mut file| file.write_all(description.to_string().as_bytes()))
        .map_err(|error| refused(&format!("cannot write {}", path.display()), &error))
}

/// Returns the packages that have an install script, by what npm has written down.
fn with_scripts(folder: &Path) -> Result<Vec<String>, CommandError> {
    let lock = read_json(&folder.join(MODULES).join(".package-lock.json"))?;
    let packages = lock["packages"].as_object().into_iter().flatten();
    let with = packages.filter(|(_, package)| package["hasInstallScript"] == true);
    let below = format!("{MODULES}/");
    let names = with.map(|(path, _)| path.rsplit(&below).next().unwrap_or(path).to_owned());
    Ok(names.collect())
}

/// Returns which program of a package `npx` runs: the one that was named, else its only one, else
/// the one of its own name.
fn program_of(description: &Value, package: &FetchedPackage) -> Result<String, CommandError> {
    let name = package.plain_name();
    let own_name = name.rsplit('/').next().unwrap_or(name);
    let programs: Vec<&str> = match &description["bin"] {
        Value::String(_) => vec![own_name],
        Value::Object(programs) => programs.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let wanted = package.program.as_deref();
    let program = match (wanted, programs.as_slice()) {
        (None, [only]) => Some(*only),
        _ => programs
            .iter()
            .copied()
            .find(|program| *program == wanted.unwrap_or(own_name)),
    };
    // A name that is a path would lead out of the folder of programs.
    if let Some(program) = program
        && !program.contains('/')
    {
        return Ok(program.to_owned());
    }
    let wanted = wanted.unwrap_or(own_name);
    let error = failed(format!("the package {name} has no program {wanted}"));
    Err(match programs.as_slice() {
        [] => error.hint("it is a library; name another package"),
        programs => error.hint(format!(
            "name one of its programs with `npx -y --package {name} PROGRAM`: {}",
            escape::line(&programs.join(", "))
        )),
    })
}

fn read_json(path: &Path) -> Result<Value, CommandError> {
    let text = fs::read(path);
    let value = text.and_then(|text| Ok(serde_json::from_slice(&text)?));
    value.map_err(|error| refused(&format!("cannot read {}", path.display()), &error))
}
