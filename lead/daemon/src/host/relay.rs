//! The relay: what `ssh box teamd host ID` runs. It passes lines between its standard input and
//! output and the socket of the host daemon, and ends when either side does. The host daemon has a
//! session of its own, and goes on.

use std::io::{self, BufRead, Write};
use std::pin::pin;
use std::time::Duration;

use teamd_shared::control::{
    self, DialledHome, Greeting, Incoming, Outgoing, PROTOCOL, Peer, WireError,
};
use teamd_shared::link::{MAGIC, MAX_LINK_FRAME};
use teamd_shared::team_dir::TeamDir;
use tokio::sync::{mpsc, oneshot};

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// How long what the host daemon said last may take.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How many lines may wait on their way.
const ROOM: usize = 64;

/// Passes lines until either side ends.
///
/// # Errors
/// [`CommandError`] if the host daemon cannot be reached, or a line is too long.
pub async fn relay(dir: &TeamDir) -> Result<(), CommandError> {
    let (out, incoming) = connect(dir, None).await?;
    let mut down = pin!(down(incoming));
    tokio::select! {
        ended = &mut down => ended,
        ended = up(out) => {
            if ended.is_err() {
                // The host daemon may have closed the connection: what it said last goes out first.
                let last = tokio::time::timeout(LAST_WORDS, down).await;
                tracing::debug!("the last of the host daemon: {last:?}");
            }
            ended
        }
    }
}

/// Connects with the host daemon, as the end of a link.
///
/// # Errors
/// [`CommandError`] if it cannot be reached.
pub(super) async fn connect(
    dir: &TeamDir,
    dials: Option<DialledHome>,
) -> Result<(Outgoing<String>, Incoming<String>), CommandError> {
    let mut connection = control::connect(dir)
        .await
        .map_err(|error| CommandError::refused("cannot reach the host daemon", &error))?;
    let greeting = Greeting {
        protocol: PROTOCOL,
        peer: Peer::Link { dials },
    };
    connection.send(&greeting).await.map_err(broken)?;
    Ok(connection.split())
}

pub(super) fn broken(error: WireError) -> CommandError {
    CommandError::new(
        ExitCode::Failed,
        format!("the connection to the host daemon broke: {error}"),
    )
    .hint("connect again; its log/teamd.log says more")
}

/// Passes what home says.
async fn up(mut out: Outgoing<String>) -> Result<(), CommandError> {
    let (lines, mut read) = mpsc::channel(ROOM);
    in_a_thread("stdin", move || read_lines(&lines))?;
    while let Some(line) = read.recv().await {
        out.send(&line?).await.map_err(broken)?;
    }
    Ok(())
}

/// Passes what the host daemon says.
async fn down(mut incoming: Incoming<String>) -> Result<(), CommandError> {
    let (lines, mut waiting) = mpsc::channel::<String>(ROOM);
    let (ends, ended) = oneshot::channel();
    in_a_thread("stdout", move || {
        let written = write_lines(&mut waiting);
        drop(waiting);
        // The other side may have ended the relay.
        ends.send(written).ok();
    })?;
    let mut received = Ok(());
    if lines.send(MAGIC.to_owned()).await.is_ok() {
        received = pass_on(&mut incoming, &lines).await;
    }
    drop(lines);
    // A host daemon that refuses a home closes the connection: its reason goes out first.
    let written = ended.await;
    received?;
    match written {
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::refused("cannot write to the link", &error))
        }
        _ => Ok(()),
    }
}

async fn pass_on(
    incoming: &mut Incoming<String>,
    lines: &mpsc::Sender<String>,
) -> Result<(), CommandError> {
    while let Some(line) = incoming.receive().await.map_err(broken)? {
        if lines.send(line).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn in_a_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), CommandError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(run);
    started
        .map(drop)
        .map_err(|error| CommandError::refused("cannot start a thread", &error))
}

/// Reads lines until the end, a line that is too long, or until they are not wanted any more.
fn read_lines(lines: &mpsc::Sender<Result<String, CommandError>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let line = read_line(&mut stdin).transpose();
        let Some(line) = line else {
            return;
        };
        let is_last = line.is_err();
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

/// Reads one line; none at the end. A line without its newline counts for nothing: the link was cut
/// in it.
fn read_line(from: &mut impl BufRead) -> Result<Option<String>, CommandError> {
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINK_FRAME + 1).unwrap_or(u64::MAX);
    let mut limited = io::Read::take(from, limit);
    limited
        .read_until(b'\n', &mut line)
        .map_err(|error| CommandError::refused("cannot read from the link", &error))?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return String::from_utf8(line).map(Some).map_err(|_| {
            CommandError::new(ExitCode::Failed, "home said a line that is not UTF-8")
                .hint("only a daemon of teamd talks to this command")
        });
    }
    if line.len() > MAX_LINK_FRAME {
        let message = format!("home said a line of more than {MAX_LINK_FRAME} bytes");
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint("install the same version of teamd on both machines"));
    }
    Ok(None)
}

fn write_lines(waiting: &mut mpsc::Receiver<String>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    while let Some(mut line) = waiting.blocking_recv() {
        line.push('\n');
        stdout.write_all(line.as_bytes())?;
        if waiting.is_empty() {
            stdout.flush()?;
        }
    }
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_a_newline_and_have_a_limit() {
        let mut two = &b"{}\n[]\n{\"to"[..];
        assert_eq!(read_line(&mut two), Ok(Some("{}".to_owned())));
        assert_eq!(read_line(&mut two), Ok(Some("[]".to_owned())));
        assert_eq!(read_line(&mut two), Ok(None), "the link was cut in it");
        let longest = "x".repeat(MAX_LINK_FRAME);
        let line = format!("{longest}\n");
        assert_eq!(read_line(&mut line.as_bytes()), Ok(Some(longest.clone())));
        let longer = format!("{longest}x\n");
        let error = read_line(&mut longer.as_bytes()).unwrap_err();
        assert!(error.message().contains("more than"), "{error:?}");
        assert!(read_line(&mut &b"\xff\n"[..]).is_err());
    }
}
