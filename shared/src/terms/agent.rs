//! The program that is the mind of a teammate, where that is not the built-in one.

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::effects::KeyEffects;
use crate::model_spec::{ModelSpec, Provider, full_name};

use super::Login;

/// The name of the built-in agent: the worker's own loop over a model.
pub const BUILT_IN: &str = "builtin";

/// The port of an agent's gateway, in a network namespace of its own.
pub const GATEWAY_PORT: u16 = 4141;

/// An agent that needs no table in `team.toml`. Its program has the same name.
#[derive(Debug, Clone, Copy)]
pub struct KnownProgram {
    /// Its name.
    pub name: &'static str,
    /// The arguments that have it speak its protocol.
    arguments: &'static [&'static str],
    /// How the worker drives it.
    pub protocol: Protocol,
}

/// The agents that need no table in `team.toml`.
pub const KNOWN: [KnownProgram; 4] = [
    KnownProgram {
        name: "claude",
        arguments: &[],
        protocol: Protocol::Claude,
    },
    KnownProgram {
        name: "codex",
        arguments: &[],
        protocol: Protocol::Codex,
    },
    KnownProgram {
        name: "opencode",
        arguments: &["acp"],
        protocol: Protocol::Acp,
    },
    KnownProgram {
        name: "gemini",
        arguments: &["--acp"],
        protocol: Protocol::Acp,
    },
];

/// Programs that fetch another one and run that. In a sandbox without a network they hang, and what
/// they fetch may differ each time.
const LAUNCHERS: [&str; 5] = ["npx", "uvx", "pipx", "bunx", "docker"];

/// An agent as the user defines it: `[agents.NAME]` of `team.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentProgram {
    /// The program and its arguments.
    #[serde(deserialize_with = "command")]
    pub command: Vec<String>,
    /// How the worker drives it.
    pub protocol: Protocol,
    /// How it logs in. The user's own configuration says it, and `team.toml` never does.
    #[serde(default)]
    pub login: Login,
}

impl AgentProgram {
    /// Returns the agent of this name that needs no table in `team.toml`.
    pub fn known(name: &str) -> Option<Self> {
        let known = KNOWN.iter().find(|known| known.name == name)?;
        let arguments = known.arguments.iter().copied();
        Some(Self {
            command: [name]
                .into_iter()
                .chain(arguments)
                .map(str::to_owned)
                .collect(),
            protocol: known.protocol,
            login: Login::Key,
        })
    }

    /// Tells whether it is the program that the agent of this name has without a table in
    /// `team.toml`.
    pub fn is_known(&self, name: &str) -> bool {
        Self::known(name)
            .is_some_and(|known| known.command == self.command && known.protocol == self.protocol)
    }

    /// Returns the line by which the agent of this name is trusted.
    pub fn trust_key(&self, name: &str) -> String {
        let mut effects = KeyEffects::default();
        self.effects(name, &mut effects);
        effects.widening.pop_first().unwrap_or_default()
    }

    /// Reports what each key does.
    pub(crate) fn effects(&self, name: &str, to: &mut KeyEffects<'_>) {
        let Self {
            command,
            protocol: _,
            login: _,
        } = self;
        to.table = format!("agents.{name:?}.");
        to.widens("command", [command]);
        to.neither(["protocol", "login"]);
    }
}

/// Returns the program of a command that fetches another one and runs that, if it is one.
pub(crate) fn launcher_of(command: &[String]) -> Option<&'static str> {
    let program = Path::new(command.first()?).file_name()?;
    LAUNCHERS.into_iter().find(|launcher| program == *launcher)
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let command = Vec::<String>::deserialize(deserializer)?;
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command),
        _ => Err(D::Error::custom("a program and its arguments are expected")),
    }
}

/// The agent of a teammate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Its name, as the user calls it.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How the worker drives it.
    pub protocol: Protocol,
    /// How it logs in.
    pub login: Login,
}

/// How a worker drives an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Protocol {
    /// One process for each piece of work: the messages on standard input, the answer on standard
    /// output.
    Run,
    /// Claude Code: one process for many turns.
    Claude,
    /// Codex: one process for many turns.
    Codex,
    /// Any agent that speaks the Agent Client Protocol: one process for many turns.
    Acp,
}

impl Protocol {
    /// Returns the protocol as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether such an agent gets the team tools over HTTP, instead of by its pipe.
    pub const fn has_tools_over_http(self) -> bool {
        matches!(self, Self::Acp)
    }

    /// Returns whose models each agent of this protocol works with, and how to name one; none: the
    /// protocol does not say.
    const fn service(self) -> Option<(Provider, &'static str)> {
        match self {
            Self::Run | Self::Acp => None,
            Self::Claude => Some((
                Provider::Anthropic,
                "`anthropic:MODEL`: Claude Code works with no other service",
            )),
            Self::Codex => Some((
                Provider::OpenAi,
                "`openai:MODEL`: Codex works with no other service",
            )),
        }
    }

    /// Returns the model that such an agent asks where none is named, in the newest version that
    /// was tested; none: it is not known.
    pub const fn default_model(self) -> Option<&'static str> {
        match self {
            Self::Run | Self::Acp => None,
            Self::Claude => Some("anthropic:claude-opus-5-5"),
            Self::Codex => Some("openai:gpt-6.1-sol"),
        }
    }
}

/// Returns whose models the agent of this name works with, and how to name one; none: it is not
/// known.
pub fn service_of(name: &str, protocol: Protocol) -> Option<(Provider, &'static str)> {
    if protocol == Protocol::Acp && name == "gemini" {
        let expected = "`google:MODEL`: Gemini CLI works with no other service";
        return Some((Provider::Google, expected));
    }
    protocol.service()
}

/// An agent that others publish.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Its package.
    pub package: &'static str,
    /// The oldest and the newest version that `scripts/test-agents` has driven.
    pub tested: [Version; 2],
}

impl Published {
    /// Returns what is known about the agent of this name; none for a program of the user's own.
    /// What speaks a protocol of one agent alone is that agent, whatever its name.
    pub fn of(name: &str, protocol: Protocol) -> Option<Self> {
        Some(match (protocol, name) {
            (Protocol::Claude, _) => Self {
                package: "@anthropic-ai/claude-code",
                tested: [Version([2, 1, 290]), Version([2, 1, 332])],
            },
            (Protocol::Codex, _) => Self {
                package: "@openai/codex",
                tested: [Version([0, 150, 0]), Version([0, 169, 0])],
            },
            (Protocol::Acp, "opencode") => Self {
                package: "opencode-ai",
                tested: [Version([1, 18, 33]), Version([1, 18, 33])],
            },
            (Protocol::Acp, "gemini") => Self {
                package: "@google/gemini-cli",
                tested: [Version([0, 61, 0]), Version([0, 61, 0])],
            },
            (Protocol::Run | Protocol::Acp, _) => return None,
        })
    }

    /// Explains that a version is too old, and what to do; none if it is not.
    pub fn too_old(&self, version: Version) -> Option<String> {
        let Self {
            package,
            tested: [oldest, _],
        } = self;
        (version < *oldest).then(|| {
            format!("version {version} is too old: {oldest} is needed; `npm install -g {package}` updates it")
        })
    }
}

/// A version: its first three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

impl Version {
    /// Reads `2.1.330` and `0.169.0-linux-x64`.
    pub fn read(text: &str) -> Option<Self> {
        let mut numbers = text
            .split(['.', '-', '+', ' '])
            .map_while(|number| number.parse().ok());
        Some(Self([numbers.next()?, numbers.next()?, numbers.next()?]))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.protocol {
            Protocol::Run => "a process for each piece of work",
            Protocol::Claude => "Claude Code",
            Protocol::Codex => "Codex",
            Protocol::Acp => "over ACP",
        };
        write!(f, "{} ({how}: {})", self.name, self.command.join(" "))
    }
}

/// Names the model of a teammate: its agent may have a default of its own.
pub fn model_of(model: &str, agent: Option<Protocol>) -> String {
    let names_none = model
        .parse::<ModelSpec>()
        .is_ok_and(|spec| spec.model.is_none());
    let default = if names_none {
        agent.and_then(Protocol::default_model)
    } else {
        None
    };
    default.map_or_else(|| full_name(model), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::Prices;

    #[test]
    fn each_default_model_has_a_price_or_is_known_to_have_none() {
        let prices = Prices::built_in();
        // No official list of Google's prices was at hand.
        let listed = Provider::ALL
            .into_iter()
            .filter(|it| *it != Provider::Google);
        for provider in listed {
            assert!(
                prices.of(provider.as_str()).is_some(),
                "{}",
                provider.as_str()
            );
        }
        // A long prompt to the model of Codex costs more for each token: no one price is true.
        let unpriced = [Protocol::Codex];
        for KnownProgram { protocol, .. } in KNOWN {
            let Some((provider, _)) = protocol.service() else {
                continue;
            };
            let model = model_of(provider.as_str(), Some(protocol));
            assert_eq!(
                prices.of(&model).is_none(),
                unpriced.contains(&protocol),
                "{model}"
            );
            assert_eq!(model_of("openai:x", Some(protocol)), "openai:x");
        }
        let hint = prices.require("openai:gpt-6.1-sol").unwrap_err().hint();
        assert!(
            hint.contains("--model openai:gpt-5.1") && hint.contains("--max-tokens"),
            "{hint}"
        );
    }
}
