//! The worker's side of the localhost that all commands of an incarnation share: it holds the
//! namespaces, keeps the process in them that programs of the user ask, and serves one gateway for
//! all commands.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use teamd_shared::localhost::listen;
use teamd_shared::member::{Gate, Localhost};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::terms::MAX_PORTS;
use tokio::task::JoinSet;

use super::shim_handle::{forget_known, start_known, try_reap_known};
use super::way::Way;
use super::{Runner, RunnerConfig};
use crate::caches::Keeps;
use crate::gateway::Gateway;
use crate::localhost::{KeeperTask, LocalhostEntry, SUBCOMMAND};

/// How long the namespaces may take to be made.
const MADE_WITHIN: Duration = Duration::from_secs(10);

/// How much of an error is read, in bytes.
const ERROR: usize = 1024;

/// How many descriptors a keeper hands out at most: two namespaces, and the listeners of a gateway.
const MOST_HANDED_OUT: usize = 2 + MAX_PORTS + 1;

/// The localhost of an incarnation. If it is dropped, nothing of it lasts but what a command holds.
#[derive(Debug)]
pub(super) struct OwnLocalhost {
    user: OwnedFd,
    net: OwnedFd,
    keeper: Mutex<Keeper>,
    /// Where commands find the gateway that they share; nothing without a list of hosts.
    listeners: Vec<TcpListener>,
    /// What serves it, from the first command on.
    serving: Mutex<JoinSet<()>>,
    team_dir: Arc<TeamDir>,
    at: TeamPath,
}

/// The process in the namespaces. It ends when this is dropped.
#[derive(Debug)]
struct Keeper {
    child: Child,
    _lifeline: UnixStream,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !try_reap_known(&mut self.child) {
            forget_known(&self.child);
        }
    }
}

impl OwnLocalhost {
    /// Makes it, if the commands of the runner are to share one: those of a teammate, not of a job.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn of(config: &RunnerConfig) -> io::Result<Option<Self>> {
        let layers = config.confinement.layers;
        let has_agent = matches!(config.keeps, Keeps::Agent(_));
        let is_wanted = config.sandbox.localhost == Localhost::Own && config.incarnation > 0;
        if !is_wanted {
            return Ok(None);
        }
        // What the daemon has promised at the spawn may not hold on what it is resumed on.
        config
            .sandbox
            .can_have_localhost(layers, has_agent)
            .map_err(|(why, _)| io::Error::other(why))?;
        let sandbox = &config.sandbox;
        let has_list = sandbox.has_network(Gate::Open) && !sandbox.hosts.is_empty();
        // An agent has a gateway of its own for each of its processes.
        let ports = if has_list && !has_agent {
            Gateway::new(sandbox, true).ports()
        } else {
            Vec::new()
        };
        let (keeper, handed) = start(config, &KeeperTask::Make(ports), &[])?;
        let HandedOut {
            user,
            net,
            listeners,
        } = handed;
        Ok(Some(Self {
            user,
            net,
            keeper: Mutex::new(keeper),
            listeners,
            serving: Mutex::default(),
            team_dir: Arc::clone(&config.team_dir),
            at: TeamPath::localhost(&config.name),
        }))
    }

    /// Returns how a command enters it, and the descriptors for that.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn entry(
        &self,
        config: &RunnerConfig,
    ) -> io::Result<(LocalhostEntry, [OwnedFd; 2])> {
        if let Err(error) = self.look_after(config) {
            // Its commands run all the same.
            tracing::warn!("no program of the user reaches the localhost of its commands: {error}");
        }
        let held = [self.user.try_clone()?, self.net.try_clone()?];
        let entry = LocalhostEntry {
            user: held[0].as_raw_fd(),
            net: held[1].as_raw_fd(),
        };
        Ok((entry, held))
    }

    /// Starts the process in the namespaces again if something has killed it, or removed its socket.
    fn look_after(&self, config: &RunnerConfig) -> io::Result<()> {
        let mut keeper = lock(&self.keeper);
        let has_socket = self
            .team_dir
            .identity(&self.at)
            .map_err(io::Error::other)?
            .is_some();
        if !try_reap_known(&mut keeper.child) && has_socket {
            return Ok(());
        }
        tracing::warn!("what kept the localhost of its commands is started again");
        let held = [self.user.try_clone()?, self.net.try_clone()?];
        let entry = LocalhostEntry {
            user: held[0].as_raw_fd(),
            net: held[1].as_raw_fd(),
        };
        let (again, _) = start(config, &KeeperTask::Enter(entry), &held)?;
        *keeper = again;
        Ok(())
    }

    /// Makes the way to the one gateway of all commands, which the first of them has served.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn way(&self, gateway: Gateway) -> io::Result<Way> {
        let mut serving = lock(&self.serving);
        while serving.try_join_next().is_some() {}
        if !serving.is_empty() {
            return Ok(Way::served(gateway));
        }
        let listeners = self.listeners.iter().map(TcpListener::try_clone);
        Ok(Way::at(gateway, listeners.collect::<io::Result<_>>()?))
    }

    /// Serves the gateway as long as this lives, if it is not served yet.
    pub(super) fn serve(&self, way: Way) {
        if !way.is_served() {
            *lock(&self.serving) = way.serve_command();
        }
    }
}

impl Drop for OwnLocalhost {
    fn drop(&mut self) {
        if let Err(error) = self.team_dir.remove(&self.at) {
            tracing::warn!("cannot take {} away: {error}", self.at);
        }
    }
}

impl Runner {
    /// Returns how an agent enters the localhost of its incarnation, if it has one.
    ///
    /// # Errors
    /// The system's error.
    pub fn localhost_of_agent(&self) -> io::Result<Option<(LocalhostEntry, [OwnedFd; 2])>> {
        let shared = self.localhost.as_ref();
        shared.map(|it| it.entry(&self.config)).transpose()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a keeper hands out.
struct HandedOut {
    user: OwnedFd,
    net: OwnedFd,
    listeners: Vec<TcpListener>,
}

/// Starts the process that makes the namespaces, or enters those that it is handed, and takes what
/// it hands out.
fn start(
    config: &RunnerConfig,
    task: &KeeperTask,
    handed_on: &[OwnedFd],
) -> io::Result<(Keeper, HandedOut)> {
    let listener = listen(&config.team_dir, &config.name)?;
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(MADE_WITHIN))?;
    let mut command = Command::new("/proc/self/exe");
    // For `ps`: it is started by a path in `/proc`.
    command.arg0("team-worker");
    #[cfg(test)]
    command.args(crate::shim::tests::AS_PROGRAM);
    command
        .arg(SUBCOMMAND)
        .args(task.to_arguments())
        .env_clear()
        .current_dir("/");
    for descriptor in handed_on {
        rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    command
        .stdin(Stdio::from(config.liveness_lock.try_clone()?))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::from(OwnedFd::from(listener)));
    let child = start_known(&mut command)?;
    // The child has its own copies.
    drop(command);
    let keeper = Keeper {
        child,
        _lifeline: ours.try_clone()?,
    };
    Ok((keeper, take_handed_out(&ours)?))
}

/// Takes what a keeper hands out, which comes at once.
fn take_handed_out(lifeline: &UnixStream) -> io::Result<HandedOut> {
    let began = Instant::now();
    let mut said = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDED_OUT))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut piece = [0; ERROR];
        let read = match recvmsg(
            lifeline,
            &mut [IoSliceMut::new(&mut piece)],
            &mut with,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            // The end of another command, for one: a wait with a limit is not gone on with.
            Err(rustix::io::Errno::INTR) if began.elapsed() < MADE_WITHIN => continue,
            read => read?,
        };
        let descriptors = with.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut descriptors = descriptors.flatten();
        if let (Some(user), Some(net)) = (descriptors.next(), descriptors.next()) {
            let listeners = descriptors.map(TcpListener::from).collect();
            return Ok(HandedOut {
                user,
                net,
                listeners,
            });
        }
        said.extend_from_slice(&piece[..read.bytes]);
        if read.bytes == 0 || said.len() > ERROR {
            let why = String::from_utf8_lossy(&said);
            return Err(io::Error::other(why.trim().to_owned()));
        }
    }
}
