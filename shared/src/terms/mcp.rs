//! The MCP servers whose tools a teammate has: `[mcp.NAME]` of `team.toml`.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::Network;
use crate::amount::{parse_seconds, written};
use crate::effects::KeyEffects;
use crate::environment::is_model_key;

/// How long a call of a tool may take by default, in seconds.
const DEFAULT_TIMEOUT: u64 = 60;

/// The longest name of a server: with that of a tool it must fit into what models take.
const MAX_NAME: usize = 16;

/// The name of the server that stands for the tools of the team.
const OF_THE_TEAM: &str = "team";

/// What stands before the name of a variable whose value a header has.
const FROM_VARIABLE: &str = "env:";

/// The name of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[schemars(extend("pattern" = "^[a-z0-9-]{1,16}$", "not" = {"const": "team"}))]
pub struct McpName(String);

impl McpName {
    /// Reads a name.
    ///
    /// # Errors
    /// What is expected.
    pub fn new(name: &str) -> Result<Self, String> {
        let is_in_range = (1..=MAX_NAME).contains(&name.len());
        let has_right_characters = name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !is_in_range || !has_right_characters {
            return Err(format!(
                "{name:?} is no name of an MCP server: 1 to {MAX_NAME} of a-z, 0-9 and -"
            ));
        }
        if name == OF_THE_TEAM {
            return Err(format!(
                "the MCP server {OF_THE_TEAM} is the one of the team itself: give yours another name"
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns the name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for McpName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for McpName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for McpName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::new(&name).map_err(D::Error::custom)
    }
}

/// An MCP server, as it is recorded with the teammate that has its tools.
///
/// It is also part of control frames: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServer {
    /// Its name.
    pub name: McpName,
    /// How it is reached.
    pub transport: McpTransport,
    /// How long a call of its tools may take, in seconds.
    pub timeout: u64,
}

/// How an MCP server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// The worker starts it, in a sandbox of its own.
    Stdio {
        /// The program and its arguments.
        command: Vec<String>,
        /// The names of the variables that it gets beside those of a command. Their values come
        /// from the environment of the spawn, and are in no file.
        env: Vec<String>,
        /// The hosts that it reaches while the gate is open; `*`: any. Empty: none.
        hosts: Vec<String>,
    },
    /// A server that runs already, over HTTP.
    Http {
        /// Its address.
        url: String,
        /// The headers of each request. The value `env:NAME` stands for that of a variable.
        headers: BTreeMap<String, String>,
    },
}

/// `[mcp.NAME]`: a server without its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "McpTable")]
pub struct McpDefinition {
    transport: McpTransport,
    timeout: u64,
}

/// The table as a person writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct McpTable {
    #[serde(default, deserialize_with = "program")]
    command: Option<Vec<String>>,
    #[serde(default, deserialize_with = "variables")]
    env: Vec<String>,
    network: Option<Network>,
    #[serde(default, deserialize_with = "address")]
    url: Option<String>,
    #[serde(default, deserialize_with = "headers")]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "seconds")]
    timeout: Option<u64>,
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, parse_seconds)
}

// What is wrong with one key is told at that key, and not at its table.
fn program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let command = Vec::<String>::deserialize(deserializer)?;
    if command.first().is_none_or(String::is_empty) {
        return Err(D::Error::custom("`command` is a program and its arguments"));
    }
    Ok(Some(command))
}

fn variables<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    match names.iter().find(|name| !is_variable(name)) {
        Some(name) => Err(D::Error::custom(no_variable(name))),
        None => Ok(names),
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let url = String::deserialize(deserializer)?;
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(D::Error::custom(format_args!(
            "{url:?} is no address of a server over HTTP"
        )));
    }
    Ok(Some(url))
}

fn headers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let headers = BTreeMap::<String, String>::deserialize(deserializer)?;
    let mut names = headers.values().filter_map(|value| variable_of(value));
    match names.find(|name| !is_variable(name)) {
        Some(name) => Err(D::Error::custom(no_variable(name))),
        None => Ok(headers),
    }
}

fn no_variable(name: &str) -> String {
    format!("{name:?} is not the name of a variable, or is a model's key")
}

impl TryFrom<McpTable> for McpDefinition {
    type Error = String;

    fn try_from(table: McpTable) -> Result<Self, String> {
        let McpTable {
            command,
            env,
            network,
            url,
            headers,
            timeout,
        } = table;
        let transport = match (command, url) {
            (Some(command), None) if headers.is_empty() => stdio(command, env, network),
            (None, Some(url)) if env.is_empty() && network.is_none() => {
                McpTransport::Http { url, headers }
            }
            (Some(_), None) => return Err("`headers` go with `url`, not with `command`".to_owned()),
            (None, Some(_)) => {
                return Err("`env` and `network` go with `command`, not with `url`".to_owned());
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err("either `command` or `url` is expected".to_owned());
            }
        };
        Ok(Self {
            transport,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        })
    }
}

fn stdio(command: Vec<String>, env: Vec<String>, network: Option<Network>) -> McpTransport {
    let hosts = match network.unwrap_or(Network::NONE).0 {
        Some(hosts) => hosts,
        None => vec!["*".to_owned()],
    };
    McpTransport::Stdio {
        command,
        env,
        hosts,
    }
}

/// Returns the name of the variable whose value a header has, if it has that of one.
pub fn variable_of(header: &str) -> Option<&str> {
    header.strip_prefix(FROM_VARIABLE)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains('=') && !is_model_key(name.as_bytes())
}

impl McpDefinition {
    /// Returns the server of this name.
    pub fn named(&self, name: &McpName) -> McpServer {
        McpServer {
            name: name.clone(),
            transport: self.transport.clone(),
            timeout: self.timeout,
        }
    }

    /// Reports what each key does: a server runs outside of what its teammate's commands may do.
    pub(crate) fn effects(&self, name: &McpName, to: &mut KeyEffects<'_>) {
        let Self {
            transport,
            timeout: _,
        } = self;
        to.table = format!("mcp.{name}.");
        match transport {
            McpTransport::Stdio {
                command,
                env,
                hosts,
            } => {
                to.widens("command", [command]);
                to.widens("env", env);
                to.widens("network", hosts);
            }
            McpTransport::Http { url, headers } => {
                to.widens("url", [url]);
                to.widens("headers", headers);
            }
        }
        to.neither(["command", "env", "network", "url", "headers", "timeout"]);
    }
}

impl McpServer {
    /// Tells whether one of these keys of `team.toml` is one of its table.
    pub fn is_among(&self, keys: &[String]) -> bool {
        let table = format!("mcp.{}.", self.name);
        keys.iter().any(|key| key.starts_with(&table))
    }

    /// Returns the names of the variables that it needs.
    pub fn variables(&self) -> Vec<&str> {
        match &self.transport {
            McpTransport::Stdio { env, .. } => env.iter().map(String::as_str).collect(),
            McpTransport::Http { headers, .. } => headers
                .values()
                .filter_map(|value| variable_of(value))
                .collect(),
        }
    }

    /// Tells whether what its tools do stays in its sandbox.
    pub fn is_confined(&self) -> bool {
        match &self.transport {
            McpTransport::Stdio { hosts, .. } => hosts.is_empty(),
            McpTransport::Http { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &str) -> Result<McpDefinition, String> {
        toml::from_str(table).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_server_is_a_command_or_an_address() {
        let files = read(
            "command = ['files', '.']\nenv = ['FILES_TOKEN']\nnetwork = ['x.org']\ntimeout = '2m'",
        );
        let files = files.unwrap().named(&McpName::new("files").unwrap());
        assert_eq!(files.timeout, 120);
        assert_eq!(files.variables(), ["FILES_TOKEN"]);
        assert!(!files.is_confined());
        let local = read("command = ['x']").unwrap();
        let local = local.named(&McpName::new("local").unwrap());
        assert!(local.is_confined());
        let search =
            read("url = 'https://x.org/mcp'\nheaders = {Authorization = 'env:TOKEN', A = 'b'}");
        let search = search.unwrap().named(&McpName::new("search").unwrap());
        assert_eq!(search.variables(), ["TOKEN"]);
        assert!(!search.is_confined());
        for (table, told) in [
            ("", "either `command` or `url`"),
            (
                "command = ['x']\nurl = 'http://x'",
                "either `command` or `url`",
            ),
            ("command = []", "a program and its arguments"),
            (
                "command = ['x']\nheaders = {A = 'b'}",
                "`headers` go with `url`",
            ),
            ("url = 'http://x'\nenv = ['A']", "go with `command`"),
            ("url = 'x.org'", "no address"),
            (
                "command = ['x']\nenv = ['OPENAI_API_KEY']",
                "is a model's key",
            ),
            (
                "url = 'http://x'\nheaders = {A = 'env:ANTHROPIC_API_KEY'}",
                "is a model's key",
            ),
            (
                "command = ['x']\nenv = ['A=b']",
                "not the name of a variable",
            ),
            ("command = ['x']\nmore = 1", "unknown field"),
        ] {
            let error = read(table).unwrap_err();
            assert!(error.contains(told), "{table}: {error}");
        }
    }

    #[test]
    fn a_name_fits_into_the_names_of_tools() {
        for name in ["files", "a", "a-1", "sixteen-letters-"] {
            assert_eq!(McpName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "seventeen-letters", "Files", "a_b", "a b", "team", "é"] {
            assert!(McpName::new(name).is_err(), "{name}");
        }
    }
}
