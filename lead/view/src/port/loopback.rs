//! The port of this machine that a browser asks. A name below `localhost` stands for both addresses
//! of the loopback: held alone, the other one could be taken by a program that is to see no key.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};

/// How many ports are tried.
const TRIES: usize = 16;

/// One port of both addresses.
#[derive(Debug)]
pub(super) struct Loopback {
    v4: TcpListener,
    /// None where this machine has no such address.
    v6: Option<TcpListener>,
    /// The first of them.
    pub(super) address: SocketAddr,
}

impl Loopback {
    /// Listens at a port; 0: at a free one.
    ///
    /// # Errors
    /// The system's error.
    pub(super) async fn bind(port: u16) -> io::Result<Self> {
        let mut last = None;
        for _ in 0..TRIES {
            match Self::bind_once(port).await {
                Err(error) if port == 0 && error.kind() == ErrorKind::AddrInUse => {
                    last = Some(error);
                }
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| ErrorKind::AddrInUse.into()))
    }

    async fn bind_once(port: u16) -> io::Result<Self> {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = v4.local_addr()?;
        let v6 = match TcpListener::bind((Ipv6Addr::LOCALHOST, address.port())).await {
            Ok(listener) => Some(listener),
            Err(error) if has_no_address(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { v4, v6, address })
    }

    /// Takes the next connection at either address.
    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
        let accepted = match &self.v6 {
            Some(v6) => tokio::select! {
                accepted = self.v4.accept() => accepted,
                accepted = v6.accept() => accepted,
            },
            None => self.v4.accept().await,
        };
        accepted.map(|(connection, _)| connection)
    }
}

fn has_no_address(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_taken_at_both_addresses_or_not_at_all() {
        let both = Loopback::bind(0).await.unwrap();
        let port = both.address.port();
        let Some(v6) = &both.v6 else { return };
        assert_eq!(v6.local_addr().unwrap().port(), port);
        let taken = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(both);
        let foreign = TcpListener::bind((Ipv6Addr::LOCALHOST, port))
            .await
            .unwrap();
        let refused = Loopback::bind(port).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        drop(foreign);
    }
}
