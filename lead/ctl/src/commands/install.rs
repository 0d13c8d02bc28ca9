//! What the commands that install a program have in common.

use serde::Serialize;
use teamd_client::act::install::{InstallOptions, Installation, install};
use teamd_client::args::InstallFlags;
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::print::escape;

/// What is installed, for programs.
#[derive(Serialize)]
struct InstallationReport<'a> {
    name: &'a str,
    package: String,
    version: &'a str,
    program: &'a str,
    new: bool,
    command: &'a [String],
}

/// Installs what a command would fetch, and prints what that is.
///
/// # Errors
/// As [`install`].
pub(super) fn install_and_report(
    context: &Context,
    name: &str,
    command: &[String],
    how: InstallFlags,
) -> Result<(), CommandError> {
    let InstallFlags { upgrade, scripts } = how;
    let options = InstallOptions { upgrade, scripts };
    let Installation { installed, is_new } = install(&context.out, name, command, options)?;
    let version = &installed.record.version;
    let program = installed.program().to_string_lossy().into_owned();
    let report = InstallationReport {
        name,
        package: installed.record.package.to_string(),
        version,
        program: &program,
        new: is_new,
        command,
    };
    let state = if is_new { "is" } else { "was already" };
    let text = format!("{name} {version} {state} installed: {program}");
    context.out.result(&report, escape::line(&text))?;
    if !is_new && !upgrade {
        context.out.hint("`--upgrade` looks for a newer version");
    }
    Ok(())
}
