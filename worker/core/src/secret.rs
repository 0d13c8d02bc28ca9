//! A secret that came from a variable, and taking it out of a text: agents, servers and services
//! repeat what they were given, and what they say ends up in files of the team.

use std::borrow::Cow;
use std::fmt;

/// From this length on a value is a secret, in bytes.
const LONG: usize = 8;

/// From this length on a value is a secret if no word is written like it, in bytes.
const SHORT: usize = 6;

/// The value of a variable that nothing may show. Never prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    variable: String,
    value: String,
    /// How it may stand in a text; nothing if it is too short to be told from a word.
    forms: Vec<String>,
}

impl Secret {
    /// Makes it of a variable and its value.
    pub fn new(variable: &str, value: String) -> Self {
        let mut forms = Vec::new();
        if is_secret(&value) {
            let in_json = serde_json::Value::from(value.as_str()).to_string();
            let in_debug = format!("{value:?}");
            forms.push(value.clone());
            for quoted in [in_json, in_debug] {
                let inner = quoted[1..quoted.len() - 1].to_owned();
                if !forms.contains(&inner) {
                    forms.push(inner);
                }
            }
        }
        Self {
            variable: variable.to_owned(),
            value,
            forms,
        }
    }

    /// Returns the variable that it came from.
    pub fn variable(&self) -> &str {
        &self.variable
    }

    /// Returns the value itself, for a header or the environment of a program.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// Returns how it may stand in a text: as it is, and within quotes. Nothing for a value that is
    /// too short: local servers accept any key, and it may be part of a word.
    pub fn forms(&self) -> &[String] {
        &self.forms
    }

    /// Returns a text without it.
    pub fn hide<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        let mut hidden = text;
        for form in &self.forms {
            if hidden.contains(form) {
                hidden = hidden
                    .replace(form, &format!("[the value of {}]", self.variable))
                    .into();
            }
        }
        hidden
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.variable)
    }
}

/// Returns a text without any of several secrets. The longest goes first: it may hold another one.
pub fn hide_all(secrets: &[Secret], text: &str) -> String {
    let mut secrets: Vec<&Secret> = secrets.iter().collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
    let mut hidden = Cow::Borrowed(text);
    for secret in secrets {
        hidden = secret.hide(hidden);
    }
    hidden.into_owned()
}

/// Tells whether a value is a secret. A short one may be the key of a local server, which accepts
/// any, and part of a word.
fn is_secret(value: &str) -> bool {
    let is_word = value.chars().all(char::is_alphabetic);
    value.len() >= LONG || value.len() >= SHORT && !is_word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(variable: &str, value: &str) -> Secret {
        Secret::new(variable, value.to_owned())
    }

    #[test]
    fn no_text_holds_a_value_that_could_be_a_secret() {
        let token = secret("TOKEN", "tok-3c1f");
        assert_eq!(
            token.hide("Bearer tok-3c1f is not a valid tok-3c1f".into()),
            "Bearer [the value of TOKEN] is not a valid [the value of TOKEN]"
        );
        assert!(matches!(
            token.hide("nothing".into()),
            Cow::Borrowed("nothing")
        ));
        assert_eq!(token.expose(), "tok-3c1f");
        assert!(!format!("{token:?}").contains("tok-"));
        for (value, is_hidden) in [
            ("", false),
            ("a", false),
            ("local", false),
            ("ollama", false),
            ("s3cret", true),
            ("passwords", true),
        ] {
            let hidden = secret("KEY", value).hide(format!("<{value}>").into());
            assert_eq!(hidden == "<[the value of KEY]>", is_hidden, "{hidden}");
        }
    }

    #[test]
    fn a_value_is_hidden_within_quotes_too() {
        let token = secret("TOKEN", "to\"k\\en\u{7f}");
        let json = serde_json::json!({"refused": token.expose()}).to_string();
        for text in [json, format!("{:?}", token.expose())] {
            let hidden = token.hide(text.as_str().into());
            assert!(hidden.contains("\"[the value of TOKEN]\""), "{hidden}");
        }
    }

    #[test]
    fn a_secret_that_holds_another_one_leaves_nothing() {
        let secrets = [secret("PART", "abc-123"), secret("WHOLE", "abc-123-xyz")];
        assert_eq!(
            hide_all(&secrets, "abc-123-xyz and abc-123"),
            "[the value of WHOLE] and [the value of PART]"
        );
    }
}
