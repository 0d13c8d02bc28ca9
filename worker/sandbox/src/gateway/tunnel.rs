//! Which hosts an agent reaches, and the connection to one. A name is looked up here, and the
//! addresses it leads to are judged: none may belong to this machine or to a network that it is
//! part of, whatever the class of the address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hyper::Uri;
use nix::sys::socket::SockaddrStorage;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long a connection may take to be established.
const PATIENCE: Duration = Duration::from_secs(15);

/// The hosts that an agent reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// Makes it of names as `network` of `[sandbox]` has them; without one, all public hosts are
    /// reached.
    pub(super) fn new(named: &[String]) -> Self {
        Self(named.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Connects to what a request asks for.
    ///
    /// # Errors
    /// Why not, for the agent.
    pub(super) async fn connect(&self, asked: &Uri) -> Result<TcpStream, String> {
        let Some(host) = asked.host() else {
            return Err("a host and a port are expected".to_owned());
        };
        let Some(port) = asked.port_u16() else {
            return Err("a host and a port are expected".to_owned());
        };
        let host = host
            .trim_matches(['[', ']'])
            .trim_end_matches('.')
            .to_ascii_lowercase();
        let is_listed = self.0.contains(&host);
        if !is_listed && !self.permits(&host) {
            return Err(format!(
                "{host} is not among the hosts of `network`, in `[sandbox]` of team.toml"
            ));
        }
        let addresses = lookup_host((host.as_str(), port))
            .await
            .map_err(|error| format!("{host}: {error}"))?;
        let own = Networks::of_this_machine().map_err(|error| format!("{host}: {error}"))?;
        let is_plain = host == "localhost" || host.parse::<IpAddr>().is_ok();
        let addresses: Vec<_> = addresses
            .filter(|address| match address.ip() {
                ip if is_listed => is_plain || !is_of_machine(ip) && !own.has(ip),
                ip => is_public(ip) && !own.contain(ip),
            })
            .collect();
        if addresses.is_empty() {
            return Err(format!(
                "{host} leads into this machine or its network: list its address in `network`, or its port in `ports`, of `[sandbox]`"
            ));
        }
        let connected = timeout(PATIENCE, TcpStream::connect(addresses.as_slice())).await;
        let connected = connected.map_err(|_| format!("{host} does not answer"))?;
        connected.map_err(|error| format!("{host}: {error}"))
    }

    /// Tells whether a host is one of them, if it is public.
    fn permits(&self, host: &str) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|name| {
                name.strip_prefix('*')
                    .is_some_and(|end| host.ends_with(end))
            })
    }
}

/// The networks of the interfaces: the address of each and its mask, as bits of version 6.
struct Networks(Vec<(u128, u128)>);

impl Networks {
    fn of_this_machine() -> std::io::Result<Self> {
        let interfaces = nix::ifaddrs::getifaddrs()?;
        let networks =
            interfaces.filter_map(|it| Some((bits_of(it.address?)?, it.netmask.and_then(bits_of))));
        // Without a mask, or with one that takes in everything, the interface stands for its own
        // address.
        Ok(Self(
            networks
                .map(|(own, mask)| (own, mask.filter(|&mask| mask != 0).unwrap_or(!0)))
                .collect(),
        ))
    }

    /// Tells whether an address is that of an interface.
    fn has(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        self.0.iter().any(|&(own, _)| bits == own)
    }

    fn contain(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        self.0.iter().any(|&(own, mask)| bits & mask == own & mask)
    }
}

/// Returns an address as one of version 6, where one of version 4 has a prefix of ones, so that a
/// mask of it covers that, too.
fn bits(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)) | (!0 << 32),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn bits_of(address: SockaddrStorage) -> Option<u128> {
    let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
        .map(bits)
}

/// Tells whether an address leads into this machine, or to what serves it alone: a name that is
/// listed could be made to lead there.
fn is_of_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || address.is_loopback() || address.is_unspecified()
}

/// Tells whether an address belongs to the internet, and not to this machine, its network, or the
/// network of its provider.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    let is_reserved = first == 0 || first >= 240 || [first, second, third] == [192, 0, 0];
    let is_benchmark = first == 198 && second & 0xfe == 18;
    let is_own = address.is_loopback() || address.is_private() || address.is_link_local();
    !(is_own || is_shared || is_reserved || is_benchmark || address.is_multicast())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // What stands for an address of version 4 (NAT64, 6to4): that one counts.
    let inner = match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = inner {
        return is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    }
    // Global unicast is 2000::/3; unique local, link local, loopback and multicast lie outside.
    segments[0] & 0xe000 == 0x2000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_reached_by_name_and_below_a_star() {
        let hosts = Hosts::new(&["GitHub.com".to_owned(), "*.npmjs.org".to_owned()]);
        for (host, permitted) in [
            ("registry.npmjs.org", true),
            ("npmjs.org", false),
            ("evil-npmjs.org", false),
            ("x.org", false),
        ] {
            assert_eq!(hosts.permits(host), permitted, "{host}");
        }
        assert!(hosts.0.contains(&"github.com".to_owned()));
        assert!(Hosts::new(&[]).permits("x.org") && Hosts::new(&["*".to_owned()]).permits("x.org"));
    }

    #[test]
    fn an_address_of_the_machine_or_its_network_is_not_public() {
        let own = "127.0.0.1 127.8.8.8 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 198.18.0.1 224.0.0.1 \
            255.255.255.255 ::1 :: fe80::1 fc00::1 fd12::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:a00:1::";
        for address in own.split_whitespace() {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn an_address_in_the_network_of_an_interface_is_not_outside() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let of = |own: &str, mask: &str| (bits(ip(own)), bits(ip(mask)));
        let own = Networks(vec![
            of("203.0.113.5", "255.255.255.0"),
            of("2001:db8:1::5", "ffff:ffff:ffff:ffff::"),
        ]);
        for near in [
            "203.0.113.5",
            "203.0.113.77",
            "::ffff:203.0.113.9",
            "2001:db8:1::5",
            "2001:db8:1::abc",
        ] {
            assert!(own.contain(ip(near)), "{near}");
        }
        for far in ["203.0.114.1", "2001:db8:2::5", "1.1.1.1"] {
            assert!(!own.contain(ip(far)), "{far}");
        }
        let machine = Networks::of_this_machine().unwrap();
        assert!(
            machine.contain(Ipv4Addr::LOCALHOST.into()) && machine.has(Ipv4Addr::LOCALHOST.into())
        );
        assert!(own.has(ip("203.0.113.5")) && !own.has(ip("203.0.113.77")));
        for inside in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::",
        ] {
            assert!(is_of_machine(ip(inside)), "{inside}");
        }
        assert!(!is_of_machine(ip("10.0.0.1")) && !is_of_machine(ip("fd12::1")));
    }

    #[tokio::test]
    async fn no_name_leads_into_the_machine_unless_it_is_listed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = |host: &str| {
            format!("{host}:{}", listener.local_addr().unwrap().port())
                .parse::<Uri>()
                .unwrap()
        };
        for host in ["localhost", "127.0.0.1", "LOCALHOST."] {
            let refused = Hosts::new(&[]).connect(&to(host)).await.unwrap_err();
            assert!(refused.contains("leads into this machine"), "{refused}");
        }
        let others = Hosts::new(&["example.org".to_owned()])
            .connect(&to("localhost"))
            .await
            .unwrap_err();
        assert!(others.contains("is not among"), "{others}");
        for host in ["localhost", "127.0.0.1"] {
            assert!(
                Hosts::new(&[host.to_owned()])
                    .connect(&to(host))
                    .await
                    .is_ok(),
                "{host}"
            );
        }
        // A name that is listed, and resolves to this machine.
        let redirected = Hosts::new(&["127.1".to_owned()])
            .connect(&to("127.1"))
            .await
            .unwrap_err();
        assert!(
            redirected.contains("leads into this machine"),
            "{redirected}"
        );
    }
}
