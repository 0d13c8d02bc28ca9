//! The network of a command that may not use the machine's: a loopback interface of its own, so
//! that what it starts can still talk to each other. The listeners of an agent's gateway are
//! there, and are handed out to the worker.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use crate::shim::Listen;

/// `RTM_NEWLINK` of `rtnetlink(7)`.
const NEW_LINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK` of `netlink(7)`.
const REQUEST_AND_ACK: u16 = 1 | 4;
/// The loopback interface is the first of every network namespace.
const LOOPBACK: i32 = 1;
/// `IFF_UP` of `netdevice(7)`.
const UP: u32 = 1;

/// Brings the loopback interface up, in a network namespace of one's own.
///
/// # Errors
/// The system's error.
pub(super) fn bring_up() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sendto(
        &socket,
        &request(),
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut answer = [0_u8; 256];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // The answer is a header of 16 bytes, and an error number that is 0 or negative.
    match if length >= 20 {
        answer.get(16..20).and_then(|bytes| bytes.try_into().ok())
    } else {
        None
    } {
        Some(bytes) => match i32::from_ne_bytes(bytes) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        None => Err(io::Error::other("the kernel's answer is too short")),
    }
}

/// Makes listeners, hands them out, and closes its end of that.
///
/// # Errors
/// The system's error.
pub(super) fn listen(listen: &Listen) -> io::Result<()> {
    let listeners = listen
        .ports
        .iter()
        .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    let descriptors: Vec<_> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
    let with = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(
        listen.channel,
        &[IoSlice::new(b"\n")],
        &with,
        MsgFlags::empty(),
        None,
    )?;
    Ok(nix::unistd::close(listen.channel)?)
}

/// A `struct nlmsghdr`, then a `struct ifinfomsg`.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(32_u32.to_ne_bytes());
    bytes.extend(NEW_LINK.to_ne_bytes());
    bytes.extend(REQUEST_AND_ACK.to_ne_bytes());
    // Sequence number and port; family, padding and type of the interface.
    bytes.extend([0; 12]);
    bytes.extend(LOOPBACK.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    bytes
}
