//! What a sandbox reaches: `network` and `ports` of `[sandbox]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::GATEWAY_PORT;

/// How many services of the machine may be reached by their ports.
pub const MAX_PORTS: usize = 16;

/// The hosts that are reached, such as `github.com` and `*.npmjs.org`: in `team.toml` a list, or
/// false for an empty one. None: any (true).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Network(pub Option<Vec<String>>);

impl Network {
    /// No host at all.
    pub const NONE: Self = Self(Some(Vec::new()));

    /// Returns the hosts that both reach.
    #[must_use]
    pub fn within(self, other: &Self) -> Self {
        match (self.0, &other.0) {
            (own, None) => Self(own),
            (None, other) => Self(other.clone()),
            (Some(own), Some(other)) => Self(Some(
                own.into_iter()
                    .filter(|host| other.contains(host))
                    .collect(),
            )),
        }
    }
}

/// As a person writes it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`true`, `false` or a list of hosts is expected")]
enum NetworkValue {
    Any(bool),
    Hosts(Vec<String>),
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        match NetworkValue::deserialize(deserializer)? {
            NetworkValue::Any(any) => Ok(Self((!any).then(Vec::new))),
            NetworkValue::Hosts(hosts) => match hosts.iter().find(|host| !is_host(host)) {
                Some(host) => Err(D::Error::custom(format_args!(
                    "{host:?} is no host, such as github.com or *.npmjs.org"
                ))),
                None => Ok(Self(Some(hosts))),
            },
        }
    }
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    host == "*"
        || !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
}

pub(super) fn ports<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u16>>, D::Error> {
    let ports = Option::<Vec<u16>>::deserialize(deserializer)?;
    if ports.as_ref().is_some_and(|ports| {
        ports.iter().any(|port| [0, GATEWAY_PORT].contains(port)) || ports.len() > MAX_PORTS
    }) {
        Err(D::Error::custom(format_args!(
            "list at most {MAX_PORTS} ports; 0 and {GATEWAY_PORT} are not allowed"
        )))
    } else {
        Ok(ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(hosts: &[&str]) -> Network {
        Network(Some(hosts.iter().map(|&host| host.to_owned()).collect()))
    }

    #[test]
    fn a_network_is_read_as_it_is_written_by_a_person_and_in_a_frame() {
        #[derive(Deserialize)]
        struct Table {
            network: Network,
        }
        let read =
            |text: &str| toml::from_str::<Table>(&format!("network = {text}")).map(|it| it.network);
        let config = bincode::config::standard();
        for (text, network) in [
            ("true", Network(None)),
            ("false", Network::NONE),
            ("[]", Network::NONE),
            (
                "['github.com', '*.npmjs.org', '10.0.0.1', '*']",
                only(&["github.com", "*.npmjs.org", "10.0.0.1", "*"]),
            ),
        ] {
            assert_eq!(read(text), Ok(network.clone()));
            let frame = bincode::serde::encode_to_vec(&network, config).unwrap();
            assert_eq!(
                bincode::serde::decode_from_slice(&frame, config).unwrap(),
                (network, frame.len())
            );
        }
        for (text, told) in [
            ("['https://github.com']", "is no host"),
            ("['']", "is no host"),
            ("['a*.org']", "is no host"),
            ("'github.com'", "a list of hosts is expected"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message().contains(told), "{error}");
        }
    }

    #[test]
    fn what_two_of_them_reach_is_what_both_do() {
        let any = Network(None);
        let some = only(&["a", "b"]);
        assert_eq!(any.clone().within(&some), some);
        assert_eq!(some.clone().within(&any), some);
        assert_eq!(some.clone().within(&only(&["b", "c"])), only(&["b"]));
        assert_eq!(some.within(&Network::NONE), Network::NONE);
        assert_eq!(any.clone().within(&any), any);
    }
}
