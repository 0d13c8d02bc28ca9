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
    /// How it may stand in a text, the longest form first: within quotes a part of it is written as
    /// it is. Nothing if it is too short to be told from a word.
    forms: Vec<String>,
}

impl Secret {
    /// Makes it of a variable and its value.
    pub fn new(variable: &str, value: String) -> Self {
        let forms = forms_of(&value);
        Self {
            variable: variable.to_owned(),
            value,
            forms,
        }
    }

    /// Makes what is handed over like a secret, and may be shown.
    pub fn shown(variable: &str, value: String) -> Self {
        Self {
            variable: variable.to_owned(),
            value,
            forms: Vec::new(),
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

/// Returns how a value may stand in a text, the longest form first. A program repeats it with or
/// without what is around it: blanks, and the word before a token (`Bearer TOKEN`).
fn forms_of(value: &str) -> Vec<String> {
    let trimmed = value.trim();
    let behind_word = match trimmed.split_once(' ') {
        Some((_, token)) if !token.contains(' ') => token,
        _ => "",
    };
    let mut forms = Vec::new();
    for secret in [value, trimmed, behind_word] {
        if is_secret(secret) {
            forms.extend(written(secret));
        }
    }
    forms.sort();
    forms.dedup();
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms
}

/// Returns a text as programs write it: as it is, within quotes as Rust does it, and in JSON, of
/// which some programs escape `/` (PHP), `&`, `<` and `>` (Go), and what is not ASCII (Python).
fn written(text: &str) -> Vec<String> {
    let json = inner(&serde_json::Value::from(text).to_string());
    let of_go = json
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e");
    vec![
        text.to_owned(),
        inner(&format!("{text:?}")),
        json.replace('/', "\\/"),
        ascii(&json),
        ascii(&json.replace('/', "\\/")),
        of_go,
        json,
    ]
}

fn inner(quoted: &str) -> String {
    quoted[1..quoted.len() - 1].to_owned()
}

/// Writes what is not ASCII as escapes of JSON.
fn ascii(json: &str) -> String {
    let mut escaped = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
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
    fn no_form_in_which_a_program_repeats_a_value_is_left() {
        let written = "/to\"k\\\\e&<n>/ü\\";
        let token = secret("TOKEN", &format!("Bearer {written}\n"));
        let json = serde_json::Value::from(written).to_string();
        let of_go = json
            .replace('&', r"\u0026")
            .replace('<', r"\u003c")
            .replace('>', r"\u003e");
        let of_php = json.replace('/', r"\/").replace('ü', r"\u00fc");
        let of_python = json.replace('ü', r"\u00fc");
        let in_debug = format!("{written:?}");
        for quoted in [json, of_go, of_php, of_python, in_debug] {
            let hidden = token.hide(quoted.as_str().into());
            assert_eq!(hidden, "\"[the value of TOKEN]\"", "{quoted}");
        }
        let hidden = token.hide(written.into());
        assert_eq!(hidden, "[the value of TOKEN]");
        let hidden = token.hide(format!("<Bearer {written}>").into());
        assert_eq!(hidden, "<[the value of TOKEN]>");
    }

    #[test]
    fn what_may_be_shown_is_not_hidden() {
        let path = Secret::shown("ROOT", "/srv/project".to_owned());
        assert_eq!(path.hide("/srv/project/a".into()), "/srv/project/a");
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
