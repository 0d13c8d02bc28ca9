//! What an MCP server has told of its tools, as it is kept below the state directory of the user:
//! `mcp-tools/NAME-HASH.json`, one file for each definition.
//!
//! **Who writes**: the worker that the server has told, by renaming a complete file: the last one
//! wins, and all write the same. **Who reads**: workers and `teamctl mcp list`. A file that is lost
//! costs a start of the server.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::{StateDir, StateError};
use crate::terms::{McpName, McpServer};
use crate::visible::is_hidden;

/// The folder in the state directory.
const FOLDER: &str = "mcp-tools";

/// The longest description of a tool that is kept, in bytes.
const MAX_DESCRIPTION: usize = 4000;

/// The longest schema that is kept, in bytes.
pub const MAX_SCHEMA: usize = 32 << 10;

/// The longest name of a tool that models take, in bytes.
const MAX_NAME: usize = 64;

/// The longest line that a model is told of a tool, in characters.
const MAX_LINE: usize = 80;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerTool {
    /// Its name there.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
    /// Whether the server says that it changes nothing.
    pub is_read_only: bool,
}

impl ServerTool {
    /// Returns the tool within what is kept of one: a larger schema is left out.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.description = cut(&self.description, MAX_DESCRIPTION);
        let size = self.schema.to_string().len();
        if size > MAX_SCHEMA {
            self.schema = json!(format!("a schema of {size} bytes, which is not shown"));
        }
        self
    }
}

/// What a server has told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownServer {
    /// How it was defined.
    pub server: McpServer,
    /// Its tools.
    pub tools: Vec<ServerTool>,
}

/// Reads what a server has told that is defined exactly so.
///
/// # Errors
/// [`StateError`] if the file cannot be read.
pub fn read(state: &StateDir, server: &McpServer) -> Result<Option<KnownServer>, StateError> {
    let known = state.read::<KnownServer>(FOLDER, &file_name(server))?;
    Ok(known.filter(|known| known.server == *server))
}

/// Keeps what a server has told.
///
/// # Errors
/// [`StateError`] if the file cannot be written.
pub fn write(state: &StateDir, known: &KnownServer) -> Result<(), StateError> {
    state.put(FOLDER, &file_name(&known.server), known)
}

/// Returns the name of the file of a definition. Another release may name it differently.
fn file_name(server: &McpServer) -> String {
    let mut hash = DefaultHasher::new();
    format!("{server:?}").hash(&mut hash);
    format!("{}-{:016x}.json", server.name, hash.finish())
}

/// Returns how the names of the tools of a server begin for models.
pub fn prefix(server: &McpName) -> String {
    format!("mcp__{server}__")
}

/// Returns the name of a tool for models: what they do not take is replaced, and a long one is cut
/// and told apart by a hash.
pub fn name_for_models(server: &McpName, tool: &str) -> String {
    let mut name = prefix(server);
    name.extend(tool.chars().map(|c| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
            c
        } else {
            '_'
        }
    }));
    if name.len() <= MAX_NAME {
        return name;
    }
    let mut hash = DefaultHasher::new();
    tool.hash(&mut hash);
    let hash = format!("_{:07x}", hash.finish() & 0xfff_ffff);
    name.truncate(MAX_NAME - hash.len());
    name + &hash
}

/// Returns the line that a model is told of a tool.
pub fn listed_line(name: &str, tool: &ServerTool) -> String {
    let line = one_line(&tool.description, MAX_LINE);
    if line.is_empty() {
        name.to_owned()
    } else {
        format!("{name}: {line}")
    }
}

/// Returns the first line of a text, at most so many characters of it, without what is not shown.
pub fn one_line(text: &str, most: usize) -> String {
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let line: String = first.chars().filter(|c| !is_hidden(*c)).collect();
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most - 1).chain(['…']).collect()
}

/// Returns at most so many bytes of a text, and says what is missing.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let fits = (0..=most).rev().find(|&end| text.is_char_boundary(end));
    let (kept, rest) = text.split_at(fits.unwrap_or(0));
    format!("{kept}\n[{} more bytes are not shown]", rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::McpTransport;

    fn server(command: &str) -> McpServer {
        McpServer {
            name: McpName::new("files").unwrap(),
            transport: McpTransport::Stdio {
                command: vec![command.to_owned()],
                env: Vec::new(),
                hosts: Vec::new(),
            },
            timeout: 60,
        }
    }

    #[test]
    fn what_a_server_has_told_holds_for_that_definition_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateDir::at(scratch.path().join("state"));
        assert_eq!(read(&state, &server("a")).unwrap(), None);
        let tool = ServerTool {
            name: "read".to_owned(),
            description: "é".repeat(MAX_DESCRIPTION),
            schema: json!({"description": "x".repeat(MAX_SCHEMA)}),
            is_read_only: true,
        };
        let tool = tool.bounded();
        assert!(tool.description.len() < MAX_DESCRIPTION + 100);
        assert!(tool.schema.to_string().len() < 100);
        let known = KnownServer {
            server: server("a"),
            tools: vec![tool],
        };
        write(&state, &known).unwrap();
        assert_eq!(read(&state, &server("a")).unwrap(), Some(known));
        assert_eq!(read(&state, &server("b")).unwrap(), None);
    }
}
