//! Where the worker's program is, and what it says of this machine. It is started, and nothing of it is linked.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use teamd_shared::sandbox::Probe;

/// Returns the program: beside this one, unless `TEAM_WORKER` names another (for tests).
///
/// # Errors
/// The system's error if this program cannot tell where it is.
pub(crate) fn program() -> io::Result<PathBuf> {
    match std::env::var_os("TEAM_WORKER") {
        Some(path) => Ok(PathBuf::from(path)),
        None => Ok(std::env::current_exe()?.with_file_name("team-worker")),
    }
}

/// Finds out how commands can be confined here, in some milliseconds; with `attack` a confined child also tries to
/// break out, which takes longer.
///
/// # Errors
/// Why nothing was found out. Fits behind "error: ".
pub(crate) fn probe(attack: bool) -> Result<Probe, String> {
    let program = program().map_err(|error| format!("cannot find the worker's program: {error}"))?;
    let mut command = Command::new(&program);
    let output = command.arg("probe").args(attack.then_some("--attack")).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{} does not tell how commands can be confined: {}", program.display(), said.trim())
    })
}
