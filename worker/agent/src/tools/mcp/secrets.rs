//! The secrets of an MCP server: the values of the variables that its definition names.

use teamd_shared::environment::Environment;
use teamd_shared::terms::McpServer;

/// How long a value must be to count as a secret, in bytes: a shorter one may be part of a word.
const SECRET: usize = 6;

/// The values of the variables of a server, by their names. Never shown.
#[derive(Clone, Default)]
pub(super) struct ServerSecrets(Vec<(String, String)>);

impl std::fmt::Debug for ServerSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerSecrets({})", self.0.len())
    }
}

impl ServerSecrets {
    /// Reads the variables that a server needs.
    ///
    /// # Errors
    /// Which one is not set, and what to do.
    pub(super) fn of(server: &McpServer, environment: &Environment) -> Result<Self, String> {
        let mut values = Vec::new();
        for name in server.variables() {
            let value = environment.value(name).ok_or_else(|| {
                format!("the variable {name} is not set: set it where the teammate is spawned, and spawn it again")
            })?;
            values.push((name.to_owned(), value));
        }
        Ok(Self(values))
    }

    /// Returns each variable with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns a text of the server without the values: some servers repeat a token that they
    /// refuse, and what a model reads is in files.
    pub(super) fn scrub(&self, text: &str) -> String {
        let mut scrubbed = text.to_owned();
        for (name, value) in self.iter() {
            if value.len() >= SECRET {
                scrubbed = scrubbed.replace(value, &format!("[the value of {name}]"));
            }
        }
        scrubbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_holds_a_value_that_could_be_a_secret() {
        let secrets = ServerSecrets(vec![
            ("TOKEN".to_owned(), "tok-3c1f".to_owned()),
            ("SHORT".to_owned(), "a".to_owned()),
        ]);
        let told = secrets.scrub("Bearer tok-3c1f is not a valid tok-3c1f");
        assert_eq!(
            told,
            "Bearer [the value of TOKEN] is not a valid [the value of TOKEN]"
        );
        assert!(!format!("{secrets:?}").contains("tok"));
    }
}
