//! The `ssh` that carries a link or a file, from either side.

use std::path::Path;

use tokio::process::Command;

/// The options of `ssh`. Each connection is one of its own: through a stalled master a new one
/// would hang. A link that is dead is noticed within 30 s, and no person is asked anything.
const OPTIONS: [&str; 11] = [
    "ControlMaster=no",
    "BatchMode=yes",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    "ConnectTimeout=10",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "LogLevel=ERROR",
];

/// Returns the command that runs a line elsewhere, with this key or as `ssh` is configured.
pub(crate) fn ssh(place: &str, key: Option<&Path>, line: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-T", "-S", "none"]);
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    if let Some(key) = key {
        command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(key);
    }
    command.args(["--", place, line]).kill_on_drop(true);
    command
}
