//! What a sandbox promises, and which layers of the kernel keep each promise, pure.
//!
//! The worker's program finds out which layers exist (`team-worker probe`). The daemon refuses to
//! start where a promise cannot be kept, and passes the layers to every worker. Nothing here asks
//! the kernel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The first words of the worker's program if it has no place for the files that it tries the
/// sandbox with.
pub const NO_PLACE_FOR_PROBE: &str = "cannot make what it is to be tried with in";

/// Who makes the namespaces that a command runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespaces {
    /// No program may make any.
    #[default]
    None,
    /// The helper itself.
    Own,
    /// `bwrap`, where only it may.
    Bubblewrap,
}

/// The layers that are available on this machine, for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Layers {
    /// A command's own mounts, processes and, without network access, its own network.
    pub namespaces: Namespaces,
    /// The version of Landlock's interface; 0: there is none.
    pub landlock: u8,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
}

/// The first version of Landlock that keeps files outside from being cut off (`truncate`).
const LANDLOCK_FILES: u8 = 3;
/// The first version of Landlock that keeps signals inside.
const LANDLOCK_SIGNALS: u8 = 6;

/// What a sandbox promises of a command (section 10 of the specification).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// Nothing in the team directory can be written.
    TeamDirectory,
    /// Nothing outside the workspace and what is allowed by name can be written.
    Outside,
    /// No approval, spawn or shutdown comes from a tool.
    Commands,
    /// A process that a tool of an agent starts cannot send as that agent, read its messages, or
    /// take it over.
    Agents,
    /// Daemon, workers and the tools of others cannot be signalled, traced or read.
    Processes,
    /// No file is made that runs as its owner or its group for each account that starts it.
    SetId,
    /// No API key is in the environment.
    Keys,
    /// When the call ends, everything that it started is gone.
    Ends,
    /// What is secret in the home directory cannot be read.
    Secrets,
    /// Without network, nothing is reached.
    Network,
    /// `.git/hooks` and `.git/config` cannot be written.
    Settings,
    /// Modes, times and attributes of files outside cannot be changed.
    Metadata,
    /// Named pipes outside cannot be written: mounts do not keep a command from that.
    Pipes,
}

impl Promise {
    /// All of them, the most important first.
    pub const ALL: [Self; 13] = [
        Self::TeamDirectory,
        Self::Outside,
        Self::Commands,
        Self::Agents,
        Self::Processes,
        Self::SetId,
        Self::Keys,
        Self::Ends,
        Self::Secrets,
        Self::Network,
        Self::Settings,
        Self::Metadata,
        Self::Pipes,
    ];

    /// Tells whether a team is not started if this cannot be kept. The other promises are only
    /// reported.
    pub fn is_vital(self) -> bool {
        !matches!(self, Self::Settings | Self::Metadata | Self::Pipes)
    }

    /// Describes it in a few words that fit behind "not held: ".
    pub fn describe(self) -> &'static str {
        match self {
            Self::TeamDirectory => "nothing in the team directory can be written",
            Self::Outside => "nothing outside the workspace can be written",
            Self::Commands => "no approval, spawn or shutdown comes from a tool",
            Self::Agents => "no tool speaks as its agent",
            Self::Processes => "other processes cannot be signalled, traced or read",
            Self::SetId => "no setuid or setgid file can be made",
            Self::Keys => "no API key is in the environment",
            Self::Ends => "when a call ends, everything that it started is gone",
            Self::Secrets => "secrets in the home directory cannot be read",
            Self::Network => "without network nothing is reached",
            Self::Settings => ".git/hooks and .git/config cannot be written",
            Self::Metadata => "modes and times of files outside cannot be changed",
            Self::Pipes => "named pipes outside cannot be written",
        }
    }
}

/// What keeps a promise, or why nothing does.
pub type Enforcement = Result<Vec<&'static str>, &'static str>;

impl Layers {
    /// Tells what keeps a promise with these layers; `apart`: the team directory lies outside the
    /// workspace.
    ///
    /// # Errors
    /// Why it is not kept.
    pub fn enforcement(self, promise: Promise, apart: bool) -> Enforcement {
        let namespaces = match self.namespaces {
            Namespaces::None => None,
            Namespaces::Own => Some("namespaces"),
            Namespaces::Bubblewrap => Some("bubblewrap"),
        };
        let landlock = |least: u8| (self.landlock >= least).then_some("landlock");
        let seccomp = self.seccomp.then_some("seccomp");
        let (by, why_not) = match promise {
            Promise::TeamDirectory => (
                if apart {
                    vec![namespaces, landlock(LANDLOCK_FILES)]
                } else {
                    vec![namespaces]
                },
                if apart {
                    "needs namespaces, or Landlock 3 (Linux 6.2)"
                } else {
                    "the team directory lies in the workspace: without namespaces nothing parts them"
                },
            ),
            Promise::Outside => (
                vec![namespaces, landlock(LANDLOCK_FILES)],
                "needs namespaces, or Landlock 3 (Linux 6.2)",
            ),
            Promise::Commands | Promise::SetId => (vec![seccomp], "needs seccomp"),
            // Its descriptors are sockets. The other way in is its memory: system calls, and a file
            // in `/proc`.
            Promise::Agents => (
                seccomp
                    .zip(namespaces.or(landlock(1)))
                    .map_or(Vec::new(), |(one, other)| vec![Some(one), Some(other)]),
                "needs seccomp, and namespaces or Landlock; without them a lead agent only recommends, and a person decides",
            ),
            Promise::Processes => (
                vec![namespaces, landlock(LANDLOCK_SIGNALS)],
                "needs namespaces, or Landlock 6 (Linux 6.12)",
            ),
            Promise::Keys => (vec![Some("the worker")], ""),
            Promise::Ends => (vec![Some("the shim"), namespaces], ""),
            Promise::Secrets => (
                vec![namespaces, landlock(1)],
                "needs namespaces, or Landlock (Linux 5.13)",
            ),
            // A namespace alone leaves sockets with a path, and those of virtual machines
            // (`vsock(7)`).
            Promise::Network => (
                seccomp
                    .map(|it| [namespaces, Some(it)])
                    .into_iter()
                    .flatten()
                    .collect(),
                "needs seccomp",
            ),
            Promise::Settings => (vec![namespaces], "needs namespaces"),
            Promise::Metadata => (
                vec![namespaces],
                if self.seccomp {
                    "needs namespaces: with an open gate a command can open files of this user, keys among them, to other \
                     accounts (the daemon closes the team directory again); behind a closed gate seccomp refuses it"
                } else {
                    "needs namespaces: a command can open files of this user, keys among them, to other accounts (the \
                     daemon closes the team directory again)"
                },
            ),
            Promise::Pipes => (vec![landlock(1)], "needs Landlock (Linux 5.13)"),
        };
        let by: Vec<_> = by.into_iter().flatten().collect();
        if by.is_empty() { Err(why_not) } else { Ok(by) }
    }

    /// Returns the promises that cannot be kept, each with the reason.
    pub fn broken(self, apart: bool) -> Vec<(Promise, &'static str)> {
        Promise::ALL
            .into_iter()
            .filter_map(|promise| Some((promise, self.enforcement(promise, apart).err()?)))
            .collect()
    }

    /// Describes in one line the promises that cannot be kept although a team needs them; none if
    /// all can.
    pub fn weakness(self, apart: bool) -> Option<String> {
        let vital = self
            .broken(apart)
            .into_iter()
            .filter(|(promise, _)| promise.is_vital());
        let named: Vec<_> = vital
            .map(|(promise, why)| format!("{} ({why})", promise.describe()))
            .collect();
        (!named.is_empty()).then(|| named.join("; "))
    }
}

/// As `own,landlock=7,seccomp`, the form on the command line of a worker.
impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces = match self.namespaces {
            Namespaces::None => None,
            Namespaces::Own => Some("own".to_owned()),
            Namespaces::Bubblewrap => Some("bubblewrap".to_owned()),
        };
        let landlock = (self.landlock > 0).then(|| format!("landlock={}", self.landlock));
        let seccomp = self.seccomp.then(|| "seccomp".to_owned());
        let all: Vec<_> = [namespaces, landlock, seccomp]
            .into_iter()
            .flatten()
            .collect();
        f.write_str(
            if all.is_empty() {
                "none".to_owned()
            } else {
                all.join(",")
            }
            .as_str(),
        )
    }
}

impl FromStr for Layers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut layers = Self::default();
        for word in text.split(',') {
            match (
                word,
                word.strip_prefix("landlock=")
                    .and_then(|abi| abi.parse().ok()),
            ) {
                (_, Some(abi)) => layers.landlock = abi,
                ("own", _) => layers.namespaces = Namespaces::Own,
                ("bubblewrap", _) => layers.namespaces = Namespaces::Bubblewrap,
                ("seccomp", _) => layers.seccomp = true,
                ("none", _) => {}
                _ => return Err(format!("{word:?} is no layer of a sandbox")),
            }
        }
        Ok(layers)
    }
}

/// What `team-worker probe` prints: one JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The layers that were tried and work.
    pub layers: Layers,
    /// Why a layer does not, each in one line.
    pub missing: Vec<String>,
    /// The attacks that a confined child tried, if that was asked for.
    pub attacks: Vec<Attack>,
}

/// One attack from inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attack {
    /// The promise that it tries to break.
    pub promise: Promise,
    /// What was tried.
    pub tried: String,
    /// Whether it was refused.
    pub refused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Layers = Layers {
        namespaces: Namespaces::Own,
        landlock: 7,
        seccomp: true,
    };

    #[test]
    fn with_every_layer_every_promise_is_kept() {
        assert_eq!(FULL.broken(false), []);
        assert_eq!(FULL.weakness(false), None);
        assert_eq!(
            FULL.enforcement(Promise::Outside, false),
            Ok(vec!["namespaces", "landlock"])
        );
    }

    #[test]
    fn without_namespaces_it_counts_where_the_team_directory_lies() {
        let bare = Layers {
            namespaces: Namespaces::None,
            ..FULL
        };
        assert_eq!(bare.weakness(true), None);
        let told: Vec<_> = bare
            .broken(true)
            .into_iter()
            .map(|(promise, _)| promise)
            .collect();
        assert_eq!(told, [Promise::Settings, Promise::Metadata]);
        let mounts = Layers {
            landlock: 0,
            ..FULL
        };
        let told: Vec<_> = mounts
            .broken(false)
            .into_iter()
            .map(|(promise, _)| promise)
            .collect();
        assert_eq!((told, mounts.weakness(false)), (vec![Promise::Pipes], None));
        assert!(
            bare.weakness(false)
                .unwrap()
                .starts_with("nothing in the team directory can be written (")
        );
    }

    #[test]
    fn an_old_landlock_is_not_enough_alone() {
        for (landlock, broken) in [(2, Promise::Outside), (5, Promise::Processes)] {
            let old = Layers {
                namespaces: Namespaces::None,
                landlock,
                seccomp: true,
            };
            assert!(old.enforcement(broken, true).is_err(), "{landlock}");
            assert!(old.weakness(true).is_some());
        }
    }

    #[test]
    fn without_seccomp_a_tool_could_give_commands_and_reach_services_of_this_machine() {
        let open = Layers {
            seccomp: false,
            ..FULL
        };
        assert!(
            open.enforcement(Promise::Network, true).is_err()
                && open.enforcement(Promise::SetId, true).is_err()
        );
        assert!(open.weakness(true).unwrap().starts_with("no approval"));
    }

    #[test]
    fn layers_are_read_as_they_are_written() {
        for layers in [
            FULL,
            Layers::default(),
            Layers {
                namespaces: Namespaces::Bubblewrap,
                ..FULL
            },
        ] {
            assert_eq!(layers.to_string().parse(), Ok(layers));
        }
        assert_eq!(FULL.to_string(), "own,landlock=7,seccomp");
        assert!("magic".parse::<Layers>().is_err());
    }
}
