//! What `sshd` at home runs for a host that dials: `teamd link box`, the only command of its key. It
//! passes bytes between its standard input and output and the socket of the daemon, and ends when
//! either side does. The daemon knows what it expects of the host; this process knows nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::control::{Greeting, PROTOCOL, Peer, WireError, connect_bytes};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

/// How much is passed at once, in bytes.
const PIECE: usize = 64 << 10;

/// What a host asks for on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Link,
    File(Uuid),
}

/// Serves a connection that a host has made. `asked` is the command that it has given (`sshd(8)`,
/// `SSH_ORIGINAL_COMMAND`).
///
/// # Errors
/// [`CommandError`] if the host asks for something else, or no daemon runs.
pub fn serve_link(dir: &TeamDir, host: Name, asked: Option<&OsStr>) -> Result<(), CommandError> {
    let file = match wish(asked)? {
        Wish::Link => None,
        Wish::File(file) => Some(file),
    };
    let greeting = Greeting {
        protocol: PROTOCOL,
        peer: Peer::Dialled { host, file },
    };
    let socket = connect_bytes(dir, &greeting).map_err(|error| cannot_reach(dir, &error))?;
    let own = |fd: io::Result<std::os::fd::OwnedFd>| {
        fd.map(File::from)
            .map_err(|error| CommandError::refused("cannot begin", &error))
    };
    let stdin = own(io::stdin().as_fd().try_clone_to_owned())?;
    let mut stdout = own(io::stdout().as_fd().try_clone_to_owned())?;
    let from_daemon = own(socket.as_fd().try_clone_to_owned())?;
    let thread = std::thread::Builder::new().spawn(move || {
        // The daemon has hung up, or reads that the host has.
        if let Err(error) = pass(stdin, &socket) {
            tracing::debug!("the daemon does not listen: {error}");
        }
        socket.shutdown(Shutdown::Write).ok();
    });
    thread.map_err(|error| CommandError::refused("cannot start a thread", &error))?;
    // The daemon hangs up when it has read all, and looks who this process is before: it stays.
    match pass(from_daemon, &mut stdout) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::refused("the connection broke", &error))
        }
        _ => Ok(()),
    }
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

fn wish(asked: Option<&OsStr>) -> Result<Wish, CommandError> {
    let Some(asked) = asked else {
        return Ok(Wish::Link);
    };
    let words: Vec<&str> = asked.to_str().unwrap_or("?").split(' ').collect();
    let wish = match words[..] {
        ["link"] => Some(Wish::Link),
        ["file", name] => Uuid::parse_str(name).ok().map(Wish::File),
        _ => None,
    };
    wish.ok_or_else(|| {
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
        let of = |text: &str| wish(Some(OsStr::new(text)));
        let file = Uuid::from_u128(7);
        assert_eq!(wish(None), Ok(Wish::Link));
        assert_eq!(of("link"), Ok(Wish::Link));
        assert_eq!(of(&format!("file {file}")), Ok(Wish::File(file)));
        for other in [
            "",
            "sh",
            "link; sh",
            "file",
            "file ../x",
            "file  x",
            "link link",
        ] {
            assert!(of(other).is_err(), "{other:?}");
        }
    }
}
