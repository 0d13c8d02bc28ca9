//! `teamctl -H … web`: the page is served on the loopback of the other machine, and a port of this
//! machine's loopback is forwarded to it.
//!
//! The port here is chosen first, since the page there answers to that name alone. `ssh` forwards it
//! once the page has told its own port: over the connection that has run it, which is not shared, so
//! the port is closed and the page has ended as soon as one end of it is gone.

use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use teamd_client::args::Web;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::thread::in_thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use super::FarCommand;
use super::options::{self, SshConnection, login};
use super::ssh::{Signals, Ssh, SshEnds};

/// How much the files of a shell there may print before the address of the page.
const BEFORE: u64 = 64 << 10;
/// How long a forwarded connection may take: a slow network, and no more.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest path of a socket (`unix(7)`), less what `ssh` adds to it for a moment.
const LONGEST: usize = 107 - 17;

/// The page there.
struct FarPage {
    port: u16,
    key: String,
}

/// Runs the command, until it is interrupted or the page has ended.
pub(super) async fn run(command: &FarCommand<'_>, args: &Web) -> Result<u8, CommandError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port));
    let taken = |error| {
        CommandError::refused(&format!("cannot listen on 127.0.0.1:{}", args.port), &error)
            .hint("without `--port`, a free port is taken")
    };
    let listener = listener.map_err(taken)?;
    let here = listener.local_addr().map_err(taken)?.port();
    let control = ControlSocket::make()?;
    let mut signals = Signals::begin()?;
    let line = command.line(&far_args(&command.args, here), false, false)?;
    let connection = SshConnection::Controlled(&control.path);
    let words = options::words(connection, command.at, false, line);
    let mut ssh = Ssh::start(&words, false, Stdio::piped())?;
    let stdout = ssh.take_stdout();
    let is_json = command.out.is_json();
    let page = in_thread(move || Ok(read_page(stdout, is_json)));
    // Whatever happens first. The page is served until `ssh` ends.
    let end = {
        let mut end = std::pin::pin!(ssh.until_end(&mut signals, SshEnds::default()));
        tokio::select! {
            end = &mut end => end,
            shown = show(command, &control, page, listener) => match shown {
                Ok(()) => {
                    drop(control);
                    end.await
                }
                Err(error) => Err(error),
            },
        }
    };
    match end {
        Ok(end) => command.judge(end),
        Err(error) => {
            ssh.end().await?;
            Err(error)
        }
    }
}

/// Forwards the port, tries it, and prints the address.
async fn show(
    command: &FarCommand<'_>,
    control: &ControlSocket,
    page: impl Future<Output = io::Result<Option<FarPage>>>,
    listener: TcpListener,
) -> Result<(), CommandError> {
    let failed = |error| CommandError::refused("cannot read what ssh prints", &error);
    let Some(page) = page.await.map_err(failed)? else {
        // If the command there has ended, ssh tells how.
        tokio::time::sleep(PATIENCE).await;
        let message = format!(
            "{} has printed no address of a page",
            command.at.destination
        );
        let login = login(command.at);
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint(format!("`{login} teamctl web` shows what it prints")));
    };
    let here = listener.local_addr().map_err(failed)?.port();
    drop(listener);
    forward(&control.path, here, page.port).await?;
    let answered = timeout(PATIENCE, is_answered(here)).await;
    if !matches!(answered, Ok(Ok(true))) {
        let machine = &command.at.destination;
        let message = format!("the page on {machine} cannot be reached by ssh");
        let login = login(command.at);
        return Err(CommandError::new(ExitCode::Failed, message).hint(format!(
            "sshd there must forward ports (`AllowTcpForwarding local` in sshd_config); `{login} teamctl --version` shows whether it is as new as this one"
        )));
    }
    let url = format!("http://127.0.0.1:{here}/#{}", page.key);
    command.out.result(&json!({"url": url}), &url)
}

/// Replaces `--port`, which is the port of this machine, by the one that the page answers to.
fn far_args(args: &[std::ffi::OsString], here: u16) -> Vec<std::ffi::OsString> {
    let mut words = args.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "--port" {
            words.next();
        } else if !word.as_bytes().starts_with(b"--port=") {
            kept.push(word.clone());
        }
    }
    kept.push(format!("--forwarded-port={here}").into());
    kept
}

/// Reads until the page has told its address, in a thread that then goes on reading: what is printed
/// there later stops nothing.
fn read_page(stdout: Option<ChildStdout>, is_json: bool) -> Option<FarPage> {
    let mut lines = BufReader::new(stdout?);
    let page = find_page(&mut lines, is_json)?;
    let drained = std::thread::Builder::new().spawn(move || io::copy(&mut lines, &mut io::sink()));
    // Without a thread the pipe is closed, and nothing is printed to it.
    drained.ok();
    Some(page)
}

fn find_page(lines: &mut impl BufRead, is_json: bool) -> Option<FarPage> {
    let mut lines = lines.take(BEFORE);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let page = std::str::from_utf8(&line)
            .ok()
            .and_then(|line| address(line, is_json));
        if page.is_some() {
            return page;
        }
    }
}

/// Reads the address that `teamctl web` prints.
fn address(line: &str, is_json: bool) -> Option<FarPage> {
    let url = if is_json {
        let said: Value = serde_json::from_str(line).ok()?;
        said["url"].as_str()?.to_owned()
    } else {
        line.trim_end().to_owned()
    };
    let (port, key) = url.strip_prefix("http://127.0.0.1:")?.split_once("/#")?;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some(FarPage {
        port: port.parse().ok().filter(|_| is_key)?,
        key: key.to_owned(),
    })
}

/// Has the connection forward the port.
async fn forward(socket: &Path, here: u16, there: u16) -> Result<(), CommandError> {
    let mut command = tokio::process::Command::new("ssh");
    command
        .args(options::forward(socket, here, there))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let cannot = |error| CommandError::refused("cannot start ssh", &error);
    let Ok(output) = timeout(PATIENCE, command.output()).await else {
        return Err(
            CommandError::new(ExitCode::TimedOut, "ssh forwards no port in time")
                .hint("try again; `ssh -v` shows what it waits for"),
        );
    };
    let output = output.map_err(cannot)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let message = format!("ssh does not forward port {here}: {}", said.trim());
    Err(CommandError::new(ExitCode::Failed, message)
        .hint("another program may have taken the port just now: try again"))
}

/// Tells whether the page answers by the forwarded port, and by that name.
async fn is_answered(port: u16) -> io::Result<bool> {
    let mut page = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    page.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    page.read_exact(&mut head).await?;
    Ok(head == *b"HTTP/1.1 200")
}

/// A socket in a directory of its own, which no other user can enter. It goes as soon as the port is
/// forwarded: no other program is to open a session by it.
struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    fn make() -> Result<Self, CommandError> {
        let name = format!("teamctl-{}", &Uuid::new_v4().simple().to_string()[..16]);
        let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = own.into_iter().chain([std::env::temp_dir(), "/tmp".into()]);
        let mut refused = None;
        for place in places.filter(|place| place.is_absolute()) {
            let dir = place.join(&name);
            if dir.as_os_str().len() + "/s".len() > LONGEST {
                continue;
            }
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {
                    return Ok(Self {
                        path: dir.join("s"),
                    });
                }
                Err(error) => refused = Some((dir, error)),
            }
        }
        let (dir, error) =
            refused.unwrap_or_else(|| ("/tmp".into(), io::ErrorKind::NotFound.into()));
        Err(CommandError::refused(
            &format!("cannot create the directory {}", dir.display()),
            &error,
        ))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // What is gone already is no error, and an empty directory harms nothing.
        std::fs::remove_file(&self.path).ok();
        if let Some(dir) = self.path.parent() {
            std::fs::remove_dir(dir).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_address_is_found_behind_what_a_shell_prints_and_nothing_else_is_one() {
        let find =
            |text: &str| find_page(&mut text.as_bytes(), false).map(|page| (page.port, page.key));
        let url = "http://127.0.0.1:4000/#abc123\n";
        assert_eq!(find(url), Some((4000, "abc123".to_owned())));
        assert_eq!(
            find(&format!("hello\n\u{1b}[2J\n{url}")),
            Some((4000, "abc123".to_owned()))
        );
        for other in [
            "",
            "http://127.0.0.1:4000/#",
            "http://127.0.0.1:99999/#a",
            "http://evil.example:4000/#a",
            "http://127.0.0.1:4000/#a\u{1b}[2J",
            "http://127.0.0.1:4000/#a b",
        ] {
            assert_eq!(find(other), None, "{other:?}");
        }
        let flood = "x\n".repeat(100_000);
        assert_eq!(find(&format!("{flood}{url}")), None);
        let json = address(r#"{"url":"http://127.0.0.1:7/#k"}"#, true).unwrap();
        assert_eq!((json.port, json.key.as_str()), (7, "k"));
    }

    #[test]
    fn the_port_is_that_of_this_machine() {
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for given in [
            &["web", "--port", "80", "--read-only"][..],
            &["web", "--port=80", "--read-only"],
            &["web", "--read-only"],
        ] {
            let far = far_args(&args(given), 4000);
            assert_eq!(far, args(&["web", "--read-only", "--forwarded-port=4000"]));
        }
    }

    #[test]
    fn the_socket_is_in_a_directory_of_its_own_and_goes_with_it() {
        let socket = ControlSocket::make().unwrap();
        let dir = socket.path.parent().unwrap().to_owned();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(socket);
        assert!(!dir.exists());
    }
}
