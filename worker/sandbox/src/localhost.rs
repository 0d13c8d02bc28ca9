//! The localhost of an incarnation: a network namespace that all its commands share, and the
//! process in it that connects programs of the user to what the commands serve.
//!
//! `team-worker localhost make [PORT]…` makes a user namespace and a network namespace of it, and
//! hands both out with a listener for each port; `localhost enter USER NET` enters those of these
//! descriptors. It has three more descriptors:
//!
//! - 0 is the transcript, as for a shim: the liveness lock is held while this process lives;
//! - 1 is the lifeline, whose end ends it; the namespaces are handed out over it;
//! - 2 is the socket at which programs of the user ask.
//!
//! What lasts are the descriptors of the namespaces: commands of the worker enter by them, whether
//! or not this process lives. It starts nothing and reads nothing of a command.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

use nix::sched::CloneFlags;
use nix::sys::prctl::set_name;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::geteuid;
use teamd_shared::localhost::{LocalhostQuestion, answer_connection, answer_ports, read_question};
use teamd_shared::process::{SandboxFlags, close_inherited, deny_tracing};

pub(crate) mod entry;

use super::{identity, loopback};
pub use entry::LocalhostEntry;

/// The hidden subcommand under which the worker's program keeps a localhost.
pub const SUBCOMMAND: &str = "localhost";

/// How long a connection to a port may take, at each address of the localhost.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);

/// Which files of `/proc` list sockets, and what ends the state of one that listens
/// (`TCP_LISTEN`).
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
const LISTENS: &str = "0A";

/// Keeps a localhost: the whole program behind the hidden subcommand.
pub fn localhost_main() -> ExitCode {
    match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // If that fails, the worker is gone, and no other process wants to know.
            drop(lifeline().and_then(|mut lifeline| lifeline.write_all(why.as_bytes())));
            ExitCode::FAILURE
        }
    }
}

/// What a keeper begins with, as its arguments say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeeperTask {
    /// Make the namespaces, and listen on these ports for a gateway.
    Make(Vec<u16>),
    /// Enter namespaces that are there.
    Enter(LocalhostEntry),
}

impl KeeperTask {
    /// Returns it as arguments behind the subcommand.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        match self {
            Self::Make(ports) => {
                let mut arguments = vec!["make".to_owned()];
                arguments.extend(ports.iter().map(u16::to_string));
                arguments
            }
            Self::Enter(LocalhostEntry { user, net }) => {
                vec!["enter".to_owned(), user.to_string(), net.to_string()]
            }
        }
    }

    fn of_arguments(arguments: &[String]) -> Option<Self> {
        match arguments {
            [word, ports @ ..] if word == "make" => {
                let ports: Result<_, _> = ports.iter().map(|port| port.parse()).collect();
                Some(Self::Make(ports.ok()?))
            }
            [word, user, net] if word == "enter" => Some(Self::Enter(LocalhostEntry {
                user: user.parse().ok()?,
                net: net.parse().ok()?,
            })),
            _ => None,
        }
    }
}

fn keep() -> Result<(), String> {
    let given: Vec<String> = std::env::args()
        .skip_while(|argument| argument != SUBCOMMAND)
        .skip(1)
        .collect();
    let task = KeeperTask::of_arguments(&given)
        .ok_or_else(|| format!("these arguments say nothing: {given:?}"))?;
    let inherited = match &task {
        KeeperTask::Make(_) => Vec::new(),
        KeeperTask::Enter(entry) => vec![entry.user, entry.net],
    };
    close_inherited(&inherited).map_err(cannot("close what it inherited"))?;
    // Before this process has less than they have.
    let own = SandboxFlags::of("self").map_err(cannot("look at itself"))?;
    let listeners = match task {
        KeeperTask::Enter(entry) => {
            entry.enter().map_err(cannot("enter the localhost"))?;
            Vec::new()
        }
        KeeperTask::Make(ports) => make(&ports).map_err(cannot("make a localhost"))?,
    };
    deny_tracing();
    let named = set_name(c"team-localhost").map_err(io::Error::from);
    named.map_err(cannot("name itself"))?;
    // No key that is pressed at a terminal reaches it.
    let apart = rustix::process::setsid().map_err(io::Error::from);
    apart.map_err(cannot("leave the terminal"))?;
    rustix::thread::set_no_new_privs(true)
        .map_err(io::Error::from)
        .and_then(|()| identity::drop_capabilities())
        .map_err(cannot("give up its rights"))?;
    let lifeline = lifeline().map_err(cannot("take its lifeline"))?;
    let listener = io::stderr().as_fd().try_clone_to_owned();
    let listener = listener.map_err(cannot("take its socket"))?.into();
    hand_out(&lifeline, &listeners).map_err(cannot("hand the localhost out"))?;
    // The worker serves them.
    drop(listeners);
    serve(&lifeline, &listener, own).map_err(cannot("wait"))
}

fn make(ports: &[u16]) -> io::Result<Vec<TcpListener>> {
    identity::enter_user_namespace(CloneFlags::CLONE_NEWNET)?;
    loopback::bring_up()?;
    // Commands have no rights here, and one may serve a port below 1024. Where `/proc/sys` cannot be
    // written (in containers), only such a port is missing.
    if let Err(error) = identity::put("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0") {
        tracing::debug!("ports below 1024 cannot be opened in a localhost: {error}");
    }
    let listeners = ports
        .iter()
        .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)));
    listeners.collect()
}

fn cannot(step: &'static str) -> impl FnOnce(io::Error) -> String {
    move |error| format!("cannot {step}: {error}")
}

fn lifeline() -> io::Result<UnixStream> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Hands out the namespaces of this process, and the listeners in them.
fn hand_out(lifeline: &UnixStream, listeners: &[TcpListener]) -> io::Result<()> {
    let user = File::open("/proc/self/ns/user")?;
    let net = File::open("/proc/self/ns/net")?;
    let mut descriptors = vec![user.as_raw_fd(), net.as_raw_fd()];
    descriptors.extend(listeners.iter().map(AsRawFd::as_raw_fd));
    let with = [ControlMessage::ScmRights(&descriptors)];
    let said = [IoSlice::new(b"\n")];
    sendmsg::<()>(
        lifeline.as_raw_fd(),
        &said,
        &with,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Answers what programs of the user ask, until the lifeline ends.
fn serve(lifeline: &UnixStream, listener: &UnixListener, own: SandboxFlags) -> io::Result<()> {
    loop {
        let mut waits = [
            PollFd::new(lifeline, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        match poll(&mut waits, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        // The worker says nothing: what comes is its end.
        if !waits[0].revents().is_empty() {
            return Ok(());
        }
        if waits[1].revents().is_empty() {
            continue;
        }
        // One that does not ask, or goes away, costs the others nothing.
        let answered = listener.accept().and_then(|(peer, _)| answer(peer, own));
        if let Err(error) = answered {
            tracing::debug!("a question was not answered: {error}");
        }
    }
}

fn answer(mut peer: UnixStream, own: SandboxFlags) -> io::Result<()> {
    let who = nix::sys::socket::getsockopt(&peer, PeerCredentials)?;
    // A tool of a team reaches no socket; this refuses it once more.
    let flags = SandboxFlags::of(&who.pid().to_string())?;
    if who.uid() != geteuid().as_raw() || flags.exceed(own) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    match read_question(&mut peer)? {
        Some(LocalhostQuestion::Connect(port)) => answer_connection(&peer, connect(port)),
        Some(LocalhostQuestion::Ports) => answer_ports(&peer, &ports()),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Connects to a port, whichever localhost the server has chosen.
fn connect(port: u16) -> io::Result<TcpStream> {
    let by = |address: IpAddr| {
        TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECTED_WITHIN)
    };
    by(Ipv4Addr::LOCALHOST.into()).or_else(|error| {
        let other = by(Ipv6Addr::LOCALHOST.into());
        other.map_err(|_| error)
    })
}

/// Returns the ports that something listens on.
fn ports() -> Vec<u16> {
    let tables = TABLES.map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let mut ports: Vec<u16> = tables.iter().flat_map(|table| listening(table)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Reads `/proc/net/tcp`: number, local address and port, remote ones, state.
fn listening(table: &str) -> impl Iterator<Item = u16> {
    table.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (_, port) = fields.next()?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (state == LISTENS).then_some(port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_keeper_is_read_as_it_was_written() {
        let entry = LocalhostEntry { user: 7, net: 8 };
        for task in [
            KeeperTask::Make(Vec::new()),
            KeeperTask::Make(vec![4141, 80]),
            KeeperTask::Enter(entry),
        ] {
            assert_eq!(KeeperTask::of_arguments(&task.to_arguments()), Some(task));
        }
        for wrong in [&[][..], &["make", "x"], &["enter", "7"], &["7", "8"]] {
            let wrong: Vec<_> = wrong.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(KeeperTask::of_arguments(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_listens_is_read_from_the_table_of_the_kernel() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
             \x20  0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000\n\
             \x20  1: 0100007F:0BB9 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000\n\
             \x20  2: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000\n";
        assert_eq!(listening(table).collect::<Vec<_>>(), [3000, 8080]);
        assert_eq!(listening("").count(), 0);
    }
}
