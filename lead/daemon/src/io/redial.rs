//! When a connection to another machine is tried again.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use tokio::net::UnixDatagram;
use tokio::time::sleep;

/// The pause between two attempts, in the first minute and later.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// How many attempts have the short pause.
const QUICK_ATTEMPTS: u32 = 30;

/// Waits behind so many attempts that have failed. A long wait ends when the network of this machine
/// changes, as it does when a machine wakes, but not before the short one is over.
pub(crate) async fn until_next_attempt(attempts: u32) {
    let (short, long) = PAUSES;
    if attempts <= QUICK_ATTEMPTS {
        return sleep(short).await;
    }
    let changes = NetworkChanges::watch();
    sleep(short).await;
    let changes = changes.map_err(|error| {
        tracing::debug!("changes of the network are not noticed: {error}");
    });
    let Ok(changes) = changes else {
        return sleep(long - short).await;
    };
    tokio::select! {
        () = sleep(long - short) => {}
        () = changes.next() => tracing::debug!("the network has changed"),
    }
}

/// The groups of `rtnetlink(7)` that report addresses and routes, of both versions of IP
/// (`RTMGRP_IPV4_IFADDR`, `_ROUTE`, `RTMGRP_IPV6_IFADDR`, `_ROUTE`).
const ADDRESSES_AND_ROUTES: u32 = 0x10 | 0x40 | 0x100 | 0x400;

/// Notices that an address or a route of this machine comes or goes.
#[derive(Debug)]
struct NetworkChanges {
    /// A socket of the kernel's: it receives as each socket of messages does.
    reports: UnixDatagram,
}

impl NetworkChanges {
    /// Watches from now on.
    fn watch() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        let groups = NetlinkAddr::new(0, ADDRESSES_AND_ROUTES);
        bind(socket.as_raw_fd(), &groups)?;
        Ok(Self {
            reports: UnixDatagram::from_std(socket.into())?,
        })
    }

    /// Waits for a change. What has changed is not read: the next attempt shows what it means. An
    /// error says that there were more reports than fit.
    async fn next(&self) {
        let received = self.reports.recv(&mut [0; 64]).await;
        tracing::debug!("a report of the network: {received:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// In a network of its own, where only this test changes anything.
    #[test]
    fn a_long_wait_ends_when_the_network_changes() {
        let thread = std::thread::spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let changes = NetworkChanges::watch().unwrap();
                let early = tokio::time::timeout(Duration::from_secs(1), changes.next());
                assert!(early.await.is_err(), "nothing has changed yet");
                let up = Command::new("ip")
                    .args(["link", "set", "lo", "up"])
                    .status();
                // Without the program nothing can change here.
                if up.is_ok_and(|status| status.success()) {
                    changes.next().await;
                }
            });
        });
        thread.join().unwrap();
    }
}
