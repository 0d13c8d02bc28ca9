//! What `sshd` at home runs for a host that dials: `teamd link box`, the only command of its key. It
//! passes bytes between its standard input and output and the socket of the daemon, and ends when
//! either side does. The daemon knows what it expects of the host; this process knows nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::control::{Greeting, PROTOCOL, Peer, WireError, connect_bytes};
use teamd_shared::link::{FILE_WISH, LINK_WISH};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

/// How much is passed at once, in bytes.
const PIECE: usize = 64 << 10;

/// How long a daemon that does not hang up is waited for once the host has.
const HANGS_UP: Duration = Duration::from_secs(10);

/// What a host asks for on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostRequest {
    Link,
    File(Uuid),
}

/// Serves a connection that a host has made with a key. `asked` is the command that it has given
/// (`sshd(8)`, `SSH_ORIGINAL_COMMAND`).
///
/// # Errors
/// [`CommandError`] if the host asks for something else, or no daemon runs.
pub fn serve_link(
    dir: &TeamDir,
    host: Name,
    key: String,
    asked: &OsStr,
) -> Result<(), CommandError> {
    let file = match request_of(asked)? {
        HostRequest::Link => None,
        HostRequest::File(file) => Some(file),
    };
    let greeting = Greeting {
        protocol: PROTOCOL,
        peer: Peer::Dialled { host, key, file },
    };
    let socket = connect_bytes(dir, &greeting).map_err(|error| cannot_reach(dir, &error))?;
    let own = |fd: io::Result<std::os::fd::OwnedFd>| {
        fd.map(File::from)
            .map_err(|error| CommandError::refused("cannot begin", &error))
    };
    let stdin = own(io::stdin().as_fd().try_clone_to_owned())?;
    let mut stdout = own(io::stdout().as_fd().try_clone_to_owned())?;
    let from_daemon = own(socket.as_fd().try_clone_to_owned())?;
    let (ends, ended) = mpsc::channel();
    let host_ends = ends.clone();
    in_a_thread(move || {
        // The daemon has hung up, or reads that the host has.
        if let Err(error) = pass(stdin, &socket) {
            tracing::debug!("the daemon does not listen: {error}");
        }
        socket.shutdown(Shutdown::Write).ok();
        host_ends.send(None).ok();
    })?;
    in_a_thread(move || {
        ends.send(Some(pass(from_daemon, &mut stdout))).ok();
    })?;
    // The daemon hangs up when it has read all, and looks who this process is before: it stays.
    let mut end = ended.recv().ok().flatten();
    if end.is_none() {
        end = ended.recv_timeout(HANGS_UP).ok().flatten();
    }
    match end {
        Some(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::refused("the connection broke", &error))
        }
        _ => Ok(()),
    }
}

fn in_a_thread(run: impl FnOnce() + Send + 'static) -> Result<(), CommandError> {
    let started = std::thread::Builder::new().spawn(run);
    started
        .map(drop)
        .map_err(|error| CommandError::refused("cannot start a thread", &error))
}

fn pass(mut from: File, mut to: impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&piece[..read])?;
    }
}

fn request_of(asked: &OsStr) -> Result<HostRequest, CommandError> {
    let words: Vec<&str> = asked.to_str().unwrap_or("?").split(' ').collect();
    let request = match words[..] {
        [LINK_WISH] => Some(HostRequest::Link),
        [FILE_WISH, name] => Uuid::parse_str(name).ok().map(HostRequest::File),
        _ => None,
    };
    request.ok_or_else(|| {
        CommandError::new(
            ExitCode::Usage,
            "this key opens a link for a host, and nothing else",
        )
        .hint("on the host, `teamd host --dial` uses it")
    })
}

fn cannot_reach(dir: &TeamDir, error: &WireError) -> CommandError {
    let path = dir.root().display();
    let is_not_running = matches!(
        error,
        WireError::Io(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    );
    if is_not_running {
        let message = format!("no daemon runs for {path}");
        return CommandError::new(ExitCode::NotRunning, message)
            .hint("`teamd start` at home starts it");
    }
    let message = format!("cannot reach the daemon of {path}: {error}");
    CommandError::new(ExitCode::Failed, message).hint("`teamd status` at home says more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_host_opens_links_and_carries_files() {
        let of = |text: &str| request_of(OsStr::new(text));
        let file = Uuid::from_u128(7);
        assert_eq!(of("teamd-link"), Ok(HostRequest::Link));
        assert_eq!(
            of(&format!("teamd-file {file}")),
            Ok(HostRequest::File(file))
        );
        for other in [
            "",
            "sh",
            "teamd-link; sh",
            "teamd-file",
            "teamd-file ../x",
            "teamd-file  x",
            "teamd-link teamd-link",
        ] {
            assert!(of(other).is_err(), "{other:?}");
        }
    }
}
