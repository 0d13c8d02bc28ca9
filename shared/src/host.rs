//! The hosts of a team: other machines that run teammates of it. As the journal records them, pure.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::name::Name;

/// The names that no host can have: the one for home, the one for any host, and those of people and
/// the lead.
const RESERVED: [&str; 5] = ["home", ANY, "lead", "user", "all"];

/// The word for the host that has the most to give.
pub const ANY: &str = "any";

/// All hosts of a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// What the hosts know this team by. Made with the first host, and never changed.
    pub home: Uuid,
    /// The hosts, in the order of their names.
    pub list: Vec<Host>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// What the team calls it.
    pub name: Name,
    /// Which side dials.
    #[serde(flatten)]
    pub way: HostWay,
    /// Whether teammates may run there although their commands cannot be confined as promised.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_weak_sandbox: bool,
    /// What holds for all teammates there.
    #[serde(flatten)]
    pub terms: HostTerms,
}

/// Which side makes the connections between home and a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostWay {
    /// Home dials: where `ssh` finds the host, as `[USER@]HOST`.
    Ssh(String),
    /// The host dials home: the public key that lets it in, as `TYPE BASE64`.
    Invited(String),
    /// The host dials home over a NATS cluster: how home listens there.
    Nats(Box<NatsLink>),
}

/// The exit code of a `teamd-nats` that says that a person must do something first. No `ssh` has it,
/// which ends with 255 or as the program there does (`sysexits.h`, `EX_NOPERM`).
pub const NEEDS_PERSON: u8 = 77;

/// A link over a NATS cluster, as one of its ends has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatsLink {
    /// A server of the cluster, as `tls://HOST[:PORT]`.
    pub server: String,
    /// The file of the credentials of this end.
    pub credentials: PathBuf,
    /// The certificate authority of the server; none: those of the system.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// What the host says is published below `SUBJECT.up`, and what home says below `SUBJECT.down`.
    pub subject: String,
}

impl NatsLink {
    /// Makes sure that it names a server that speaks TLS, and one subject.
    ///
    /// # Errors
    /// Why it does not, and the next step.
    pub fn can_link(&self) -> Result<(), (String, &'static str)> {
        let server = &self.server;
        let host = server.strip_prefix("tls://").unwrap_or_default();
        let is_plain = |it: char| it.is_ascii_graphic() && !"@/,".contains(it);
        if host.is_empty() || !host.chars().all(is_plain) {
            let why = format!("{server:?} is no address of a server that speaks TLS");
            return Err((why, "name it as tls://HOST:PORT"));
        }
        let is_token = |token: &str| {
            let is_of_token = |it: char| it.is_ascii_alphanumeric() || "-_".contains(it);
            !token.is_empty() && token.chars().all(is_of_token)
        };
        if !self.subject.split('.').all(is_token) {
            let why = format!("{:?} is no subject", self.subject);
            return Err((why, "`teamctl host invite` at home prints it"));
        }
        Ok(())
    }
}

impl HostWay {
    /// Makes sure that a link can be made this way.
    ///
    /// # Errors
    /// Why it cannot, and the next step.
    pub fn can_link(&self) -> Result<(), (String, &'static str)> {
        match self {
            Self::Ssh(place) => {
                can_be_dialled(place).map_err(|why| (why, "name it as for ssh: `--ssh USER@HOST`"))
            }
            Self::Invited(key) => can_let_in(key)
                .map_err(|why| (why, "take the line of a file like ~/.ssh/id_ed25519.pub")),
            Self::Nats(link) => link.can_link(),
        }
    }

    /// Tells whether the host dials home.
    pub fn dials_home(&self) -> bool {
        match self {
            Self::Ssh(_) => false,
            Self::Invited(_) | Self::Nats(_) => true,
        }
    }

    /// Returns what a host that dials home shows to be let in; none if home dials.
    pub fn invitation(&self) -> Option<String> {
        match self {
            Self::Ssh(_) => None,
            Self::Invited(key) => Some(key_id(key)),
            Self::Nats(link) => Some(link.subject.clone()),
        }
    }

    /// Tells whether this leads to another machine than `other` may do.
    pub fn is_elsewhere(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nats(one), Self::Nats(other)) => one.subject != other.subject,
            _ => self != other,
        }
    }
}

impl fmt::Display for HostWay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(place) => write!(formatter, "ssh {place}"),
            Self::Invited(_) => formatter.write_str("it dials"),
            Self::Nats(_) => formatter.write_str("nats"),
        }
    }
}

/// What holds for all teammates on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostTerms {
    /// How many run there at the most; left out: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Where those work that name no directory, absolute there or beginning with `~/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The names of variables of the spawning shell that they get, beside what each host gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

/// The link to a host, as the daemon sees it now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum LinkState {
    /// Frames pass.
    Up,
    /// They do not, and it is dialled again.
    Unreachable {
        /// Why, in plain words.
        why: String,
    },
    /// A person must do something first.
    NeedsAttention {
        /// What is wrong.
        why: String,
        /// What to type.
        hint: String,
    },
}

/// A host, with its link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostStatus {
    /// The host.
    #[serde(flatten)]
    pub host: Host,
    /// Its link.
    pub link: LinkState,
    /// Seconds since 1970, when that began.
    pub since: f64,
    /// The version of `teamd` there, where it is known.
    pub version: Option<String>,
    /// How many teammates run there.
    pub teammates: u32,
    /// Why commands cannot be confined there as promised; left out where they can, or that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weakness: Option<String>,
    /// What it has to give; left out while it does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vitals: Option<HostVitals>,
}

/// How many of its checkouts a host names.
pub const MOST_CHECKOUTS: usize = 1000;

/// What a host has to give now, and what it has of the team.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostVitals {
    /// How many processes wanted a processor in the last minute.
    pub load: f64,
    /// How many processors it has.
    pub processors: u32,
    /// How much memory it has, in bytes; of a cgroup with a limit, that.
    pub memory: u64,
    /// How much of that can be had, in bytes.
    pub memory_available: u64,
    /// For which share of the last ten seconds a process waited for memory, in percent; null where
    /// the kernel does not say so.
    pub memory_stalled: Option<f64>,
    /// Whether what has begun in a session ends with it there; null where that is not known.
    pub ends_at_logout: Option<bool>,
    /// The checkouts of the team there, also those of no teammate.
    #[serde(default)]
    pub checkouts: Vec<String>,
}

impl HostVitals {
    /// From this share on, in percent, a machine is short of memory whatever is available.
    const MOST_STALLED: f64 = 10.0;

    /// Returns how much it has to give, for a comparison: the greatest is the best.
    pub fn room(&self) -> (bool, u64) {
        let is_short = self
            .memory_stalled
            .is_some_and(|share| share >= Self::MOST_STALLED);
        (!is_short, self.memory_available)
    }
}

/// A piece of a log on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its text: whole lines, but for the last one of the log.
    pub text: String,
    /// Where it ends, in bytes.
    pub end: u64,
    /// How long the log is now, in bytes.
    pub length: u64,
}

/// A host that something waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AwaitedHost {
    /// The host.
    pub name: Name,
    /// Since when it cannot be reached, seconds since 1970; none: it can, and has not answered yet.
    pub unreachable_since: Option<f64>,
}

/// Tells why no further teammate may run on a host with so many; none if one may.
pub fn is_full(host: &Host, teammates: u32) -> Option<String> {
    let most = host.terms.max.filter(|most| teammates >= *most)?;
    Some(format!("it has {teammates} of {most} teammates"))
}

/// Refuses the name of a host that means something else.
///
/// # Errors
/// Why it cannot be the name of a host.
pub fn can_be_host(name: &Name) -> Result<(), String> {
    if RESERVED.contains(&name.as_str()) {
        return Err(format!(
            "{name} cannot be the name of a host: it has a meaning of its own"
        ));
    }
    Ok(())
}

/// Refuses a place that `ssh` would read as an option, or that is not one word.
///
/// # Errors
/// Why it is no place for `ssh`.
pub fn can_be_dialled(place: &str) -> Result<(), String> {
    let is_word =
        !place.is_empty() && !place.contains(|it: char| it.is_whitespace() || it.is_control());
    let scheme = place.split_once("://").map(|(scheme, _)| scheme);
    if place.starts_with('-') || !is_word || scheme.is_some_and(|scheme| scheme != "ssh") {
        return Err(format!("{place:?} is no [USER@]HOST for ssh"));
    }
    Ok(())
}

/// The kinds of public keys that OpenSSH takes (`sshd(8)`, AUTHORIZED_KEYS FILE FORMAT).
const KEYS: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// Returns the public key of a line of a `.pub` file, as `TYPE BASE64`, without its comment.
///
/// # Errors
/// Why it is no public key.
pub fn public_key(line: &str) -> Result<String, String> {
    let lines = line.lines().filter(|line| !line.trim().is_empty());
    if lines.count() > 1 {
        return Err("there is more than one line, and a public key is one".to_owned());
    }
    let mut words = line.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let key = format!("{kind} {}", words.next().unwrap_or_default());
    can_let_in(&key)?;
    Ok(key)
}

/// Returns what the line of a key in `authorized_keys` says of it: a key that is not invited any more
/// opens no link.
pub fn key_id(key: &str) -> String {
    let hash = Sha256::digest(key.as_bytes());
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Refuses what is no public key: it would be a line of another meaning in `authorized_keys`.
fn can_let_in(key: &str) -> Result<(), String> {
    let no_key = || format!("{key:?} is no public key for ssh");
    let (kind, bytes) = key.split_once(' ').ok_or_else(no_key)?;
    let is_base64 = |it: char| it.is_ascii_alphanumeric() || "+/=".contains(it);
    // It begins with the length of the name of its kind, which is short.
    if !KEYS.contains(&kind) || !bytes.starts_with("AAAA") || !bytes.chars().all(is_base64) {
        return Err(no_key());
    }
    Ok(())
}

/// Refuses a workspace that does not say where on a host it is.
///
/// # Errors
/// Why it names no directory there.
pub fn can_be_workspace(named: &str, host: &Name) -> Result<(), String> {
    if is_place(named) {
        return Ok(());
    }
    Err(format!(
        "the workspace {named} does not say where on {host} it is"
    ))
}

/// Tells whether a path says where on any machine it is.
pub fn is_place(named: &str) -> bool {
    named.starts_with('/') || named == "~" || named.starts_with("~/")
}

/// The folder below the login directory of a host into which `host add --install` puts programs.
pub const INSTALLED: &str = ".local/share/teamd";

/// Returns the line for the login shell of a host that runs a command of `teamd`: of this version, if
/// `host add --install` has put it there. A shell that is no login shell has not read the files in
/// which installers extend the PATH. The quotes mean the same to every shell.
pub fn line_there(command: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#"exec sh -c 'own="$HOME/{INSTALLED}/{version}-$(uname -m)"; [ ! -d "$own" ] || PATH="$own:$PATH"; PATH="$PATH:$HOME/.local/bin:$HOME/.cargo/bin"; export PATH; exec teamd {command}'"#
    )
}

impl Hosts {
    /// Returns the host with this name.
    pub fn get(&self, name: &Name) -> Option<&Host> {
        self.list.iter().find(|host| host.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_ssh_would_read_as_an_option_is_refused() {
        for bad in ["", "-oProxyCommand=touch x", "a b", "a\nb", "nats://box"] {
            assert!(can_be_dialled(bad).is_err(), "{bad:?}");
        }
        for good in ["box", "user@box", "ssh://user@box:2222"] {
            assert_eq!(can_be_dialled(good), Ok(()));
        }
    }

    #[test]
    fn a_link_over_nats_names_a_server_that_speaks_tls_and_one_subject() {
        let link = |server: &str, subject: &str| NatsLink {
            server: server.to_owned(),
            credentials: PathBuf::new(),
            ca: None,
            subject: subject.to_owned(),
        };
        let subject = "teamd.box.0f3a";
        assert_eq!(
            link("tls://nats.example.com:4222", subject).can_link(),
            Ok(())
        );
        for bad in [
            "",
            "nats.example.com",
            "nats://nats.example.com",
            "tls://",
            "tls://user:password@host",
            "tls://a,tls://b",
        ] {
            assert!(link(bad, subject).can_link().is_err(), "{bad:?}");
        }
        for bad in ["", "a..b", "a.*", "a.>", "a b", ".a"] {
            assert!(link("tls://host", bad).can_link().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_a_public_key_lets_a_host_in() {
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA+/==";
        assert_eq!(public_key(&format!("{key} me@box\n")), Ok(key.to_owned()));
        for bad in [
            "",
            "ssh-ed25519",
            "AAAA ssh-ed25519",
            "command=\"sh\" ssh-ed25519 AAAA",
            "ssh-ed25519 AAAA\"AA",
            "ssh-ed25519 ====",
            "ssh-ed25519 AAAA\nssh-ed25519 AAAB",
        ] {
            assert!(public_key(bad).is_err(), "{bad:?}");
        }
        let way = HostWay::Invited(format!("{key}\nssh-ed25519 BBBB"));
        assert!(way.can_link().is_err(), "two lines");
    }

    #[test]
    fn a_machine_that_is_short_of_memory_has_less_to_give_than_any_other() {
        let vitals = |stalled, available| HostVitals {
            load: 1.0,
            processors: 4,
            memory: 1 << 30,
            memory_available: available,
            memory_stalled: stalled,
            ends_at_logout: None,
            checkouts: Vec::new(),
        };
        let small = vitals(Some(0.0), 1000);
        assert!(vitals(None, 2000).room() > small.room());
        assert!(vitals(Some(40.0), 9000).room() < small.room());
    }

    #[test]
    fn a_host_is_not_called_as_something_else_is() {
        let name = |text: &str| Name::new(text).unwrap();
        assert!(can_be_host(&name("home")).is_err());
        assert_eq!(can_be_host(&name("box")), Ok(()));
    }
}
