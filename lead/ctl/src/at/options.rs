//! What `ssh` is given.

use std::ffi::OsString;
use std::path::Path;

use teamd_client::args::At;

use super::line::quoted;

/// For each connection. The person's configuration names the machine, the key and the way, and a
/// password may be asked for: so there is no `BatchMode` here, and no limit of time, as the link of
/// one team over several hosts has them. What that configuration gives a machine beside a login, such
/// a command does not need: the agent and the display of the person, forwarded ports (whose second
/// use would fail), and commands. An option of the command line counts before those of files.
const ALWAYS: [&str; 5] = [
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
];

/// The connection that a command is run over.
#[derive(Debug, Clone, Copy)]
pub(super) enum SshConnection<'a> {
    /// As the person's configuration has it, perhaps shared with other commands.
    Usual,
    /// One of its own.
    Own,
    /// One of its own that later commands of `ssh` control by this socket.
    Controlled(&'a Path),
}

/// Returns the words behind `ssh` for a command line of the shell there.
pub(super) fn words(
    connection: SshConnection<'_>,
    at: &At,
    has_terminal: bool,
    line: OsString,
) -> Vec<OsString> {
    // Either: the configuration may say otherwise (`RequestTTY`).
    let terminal = if has_terminal { "-t" } else { "-T" };
    let mut words: Vec<OsString> = vec![terminal.into()];
    for option in ALWAYS {
        words.extend(["-o".into(), option.into()]);
    }
    let (master, socket) = match connection {
        SshConnection::Usual => (None, None),
        SshConnection::Own => (Some("ControlMaster=no"), Some(Path::new("none"))),
        SshConnection::Controlled(socket) => (Some("ControlMaster=yes"), Some(socket)),
    };
    if let (Some(master), Some(socket)) = (master, socket) {
        words.extend(["-o".into(), master.into()]);
        // It ends with its command.
        words.extend(["-o".into(), "ControlPersist=no".into()]);
        words.extend(["-S".into(), socket.into()]);
    }
    words.extend(port(at));
    // The machine is never read as an option, and the line never begins as one.
    words.extend(["--".into(), at.destination.clone().into(), line]);
    words
}

/// Returns the words behind `ssh` that have a running connection forward a port of this machine, and
/// of its loopback alone. The configuration is not read: the ports that it names would be forwarded,
/// too. (`ClearAllForwardings` would clear this one.)
pub(super) fn forward(socket: &Path, here: u16, there: u16) -> Vec<OsString> {
    let forward = format!("127.0.0.1:{here}:127.0.0.1:{there}");
    let mut words: Vec<OsString> = ["-F", "none", "-S"].map(OsString::from).into();
    words.push(socket.into());
    words.extend(["-O", "forward", "-L", &forward, "--", "box"].map(OsString::from));
    words
}

/// Returns the beginning of a line with which a person logs in.
pub(super) fn login(at: &At) -> String {
    let port = at.port.map(|port| format!(" -p {port}"));
    let machine = quoted(&at.destination);
    format!("ssh{} {machine}", port.unwrap_or_default())
}

fn port(at: &At) -> Vec<OsString> {
    let port = at.port.map(|port| ["-p".into(), port.to_string().into()]);
    port.into_iter().flatten().collect()
}
