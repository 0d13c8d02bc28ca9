//! The way from an agent, or from a command, to its gateway: where the listeners are, and how
//! they come to the worker.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Channel;
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use teamd_shared::member::Gate;
use teamd_shared::terms::{GATEWAY_PORT, MAX_PORTS};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gateway::Gateway;
use crate::shim::Listen;

/// How many listeners there may be: the gateway's own, and one for each port.
const MOST: usize = MAX_PORTS + 1;

/// Where the listeners come from.
#[derive(Debug)]
enum Listeners {
    /// Out of the network namespace of the agent, through this channel.
    Inside(Channel),
    /// They are here.
    Here(Vec<TcpListener>),
    /// Nowhere: the gateway of this localhost is served already.
    Served,
}

/// The way from an agent to its gateway.
#[derive(Debug)]
pub struct Way {
    gateway: Gateway,
    from: Option<Listeners>,
    /// The end of the channel that goes to the sandbox init.
    theirs: Option<OwnedFd>,
    port: u16,
}

impl Way {
    /// Makes it; `live`: the agent has a network namespace of its own.
    ///
    /// # Errors
    /// The system's error.
    pub fn make(gateway: Gateway, live: bool) -> io::Result<Self> {
        let mut way = Self {
            gateway,
            from: None,
            theirs: None,
            port: GATEWAY_PORT,
        };
        if live && way.gateway.is_of_use() {
            let (ours, theirs) = Channel::pair()?;
            ours.set_nonblocking(true)?;
            way.from = Some(Listeners::Inside(ours));
            way.theirs = Some(theirs.into());
        } else if !live && way.gateway.serves_agent() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            way.port = listener.local_addr()?.port();
            way.from = Some(Listeners::Here(vec![listener]));
        }
        Ok(way)
    }

    /// Makes the way to a gateway at listeners where the command will be.
    pub(super) fn at(gateway: Gateway, listeners: Vec<TcpListener>) -> Self {
        Self {
            gateway,
            from: Some(Listeners::Here(listeners)),
            theirs: None,
            port: GATEWAY_PORT,
        }
    }

    /// Makes the way to a gateway that is served already, where the command will be.
    pub(super) fn served(gateway: Gateway) -> Self {
        Self {
            gateway,
            from: Some(Listeners::Served),
            theirs: None,
            port: GATEWAY_PORT,
        }
    }

    /// Tells whether its gateway is served already.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.from, Some(Listeners::Served))
    }

    /// Returns the listeners that are to be made in the network namespace of the agent.
    pub fn listen(&self) -> Option<Listen> {
        let channel = self.theirs.as_ref()?.as_raw_fd();
        Some(Listen {
            channel,
            ports: self.gateway.ports(),
        })
    }

    /// Returns the address of the gateway, as the agent reaches it; none without one.
    pub fn address(&self) -> Option<String> {
        let port = self.port;
        self.from
            .is_some()
            .then(|| format!("http://{}:{port}", Ipv4Addr::LOCALHOST))
    }

    /// Returns the variables by which the agent finds it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        if self.from.is_some() {
            self.gateway.variables(self.port)
        } else {
            Vec::new()
        }
    }

    /// Takes out what goes to the sandbox init.
    pub fn hand_on(&mut self) -> Option<OwnedFd> {
        self.theirs.take()
    }

    /// Serves a command, whose gate stays as it is, until what is returned is dropped.
    pub(crate) fn serve_command(self) -> JoinSet<()> {
        let (gate, follows) = watch::channel(Gate::Open);
        let mut serving = self.serve(follows);
        serving.spawn(async move { gate.closed().await });
        serving
    }

    /// Serves the agent until what is returned is dropped.
    pub(super) fn serve(self, gate: watch::Receiver<Gate>) -> JoinSet<()> {
        let mut serving = JoinSet::new();
        let Self {
            gateway,
            from: Some(from),
            ..
        } = self
        else {
            return serving;
        };
        serving.spawn(async move {
            let listeners = match from {
                Listeners::Inside(channel) => receive(channel).await,
                Listeners::Here(listeners) => Ok(listeners),
                Listeners::Served => return,
            };
            let served = match listeners {
                Ok(listeners) => Arc::new(gateway).serve(listeners, gate).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!("the agent has no gateway: {error}");
            }
        });
        serving
    }
}

/// Waits for the listeners of an agent; none come if its sandbox cannot be built.
async fn receive(channel: Channel) -> io::Result<Vec<TcpListener>> {
    let channel = UnixStream::from_std(channel)?;
    loop {
        channel.readable().await?;
        match channel.try_io(Interest::READABLE, || take_listeners(&channel)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

fn take_listeners(channel: &UnixStream) -> io::Result<Vec<TcpListener>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut [0])],
        &mut with,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptors = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().map(TcpListener::from).collect())
}
