//! What is set for a service, by the variables of the command that asked for the member. Pure.
//!
//! Keys are shown to nobody: neither by `Debug`, nor in an error, nor when a service repeats them.

use std::fmt;
use std::time::Duration;

use reqwest::Url;
use teamd_shared::amount::{parse_period, parse_window};
use teamd_shared::environment::Environment;
use teamd_shared::model_spec::{ModelSpec, Provider};

use super::catalog;
use super::trouble::{Trouble, key_variable};

/// How long a service may be silent, if nothing is set.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a key is at least that is one, in bytes.
const SECRET: usize = 8;

/// A key. It is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// The variable that it came from.
    pub(super) variable: &'static str,
    value: String,
}

impl Key {
    /// Returns the key itself, for a header.
    pub(super) fn expose(&self) -> &str {
        &self.value
    }

    /// Takes the key out of a text: some services repeat it when they refuse it.
    ///
    /// One that is hardly a secret (local servers take any) may well be a part of a word: it is left alone.
    pub(super) fn scrub(&self, text: &str) -> String {
        if self.value.len() < SECRET {
            return text.to_owned();
        }
        // Also as it stands in a text that is quoted.
        let quoted = self.value.escape_debug().to_string();
        text.replace(&self.value, "[the key]").replace(&quoted, "[the key]")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.variable)
    }
}

/// Whose certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    /// The web's, as they are built in.
    Embedded,
    /// Those that the system trusts.
    Platform,
    /// The web's, and those of a PEM file.
    File(std::path::PathBuf),
}

/// A proxy, and for what. Its address may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Through {
    /// `http`, `https` or `all`.
    pub(super) scheme: &'static str,
    /// The variable that names it.
    pub(super) variable: &'static str,
    /// Its address.
    pub(super) url: String,
}

impl fmt::Debug for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Through({})", self.variable)
    }
}

/// What is set for a service.
#[derive(Clone)]
pub(super) struct Settings {
    /// What the service calls the model.
    pub(super) model: String,
    /// The key; an error if there must be one and is none, it cannot be sent, or another setting makes no sense: then
    /// nothing is sent at all.
    pub(super) key: Result<Option<Key>, Trouble>,
    /// Where the service is.
    pub(super) base: Url,
    /// Whether that is the provider's own.
    pub(super) is_default_base: bool,
    /// Whose certificates are trusted.
    pub(super) roots: Roots,
    /// How long the service may be silent.
    pub(super) patience: Duration,
    /// The tokens that a prompt and its answer may have together, if that is set.
    pub(super) window: Option<u64>,
    /// What is reached through a proxy.
    pub(super) proxies: Vec<Through>,
    /// What is reached without.
    pub(super) no_proxy: Option<String>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The base may hold a password.
        f.debug_struct("Settings").field("model", &self.model).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads what is set. A value that can never work is told at the first prompt, in the place of the key: to end the
    /// worker would only start the next one with the same value.
    pub(super) fn read(spec: &ModelSpec, environment: &Environment) -> Self {
        let look = Variables(environment);
        let provider = spec.provider;
        let mut trouble = None;
        let (base, is_default_base) = base(provider, &look).unwrap_or_else(|wrong| {
            trouble = Some(wrong);
            (default_base(provider), false)
        });
        let model = spec.model.clone().or_else(|| look.get("MODEL_ID"));
        let mut window = None;
        if let Some(text) = look.get("TEAM_CONTEXT_WINDOW") {
            match parse_window(&text) {
                Ok(tokens) => window = Some(tokens),
                Err(expected) => {
                    trouble = trouble
                        .or_else(|| Some(bad("TEAM_CONTEXT_WINDOW", &format!("it is not {expected}"))));
                }
            }
        }
        let mut patience = None;
        if let Some(text) = look.get("TEAM_MODEL_TIMEOUT") {
            match parse_period(&text) {
                Ok(time) => patience = Some(time),
                Err(expected) => {
                    trouble =
                        trouble.or_else(|| Some(bad("TEAM_MODEL_TIMEOUT", &format!("it is not {expected}"))));
                }
            }
        }
        Self {
            model: model.unwrap_or_else(|| catalog::default_model(provider).to_owned()),
            key: trouble.map_or_else(|| key(provider, is_default_base, &look), Err),
            base,
            is_default_base,
            roots: roots(&look),
            patience: patience.unwrap_or(PATIENCE),
            window,
            proxies: proxies(&look),
            no_proxy: look.either("NO_PROXY", "no_proxy"),
        }
    }

    /// Names the service for those who share it: the provider, and eight hex digits for its address and the key, whose
    /// limits are its own. They part services, and are no secret's guard: far too few to tell a key from.
    pub(super) fn service(&self, provider: Provider) -> String {
        let key = self.key.as_ref().ok().and_then(Option::as_ref).map_or("", Key::expose);
        let of = format!("{}\n{key}", self.base.origin().ascii_serialization());
        // FNV-1a, 32 bits (http://www.isthe.com/chongo/tech/comp/fnv/).
        let hash =
            of.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        format!("{}-{hash:08x}", provider.as_str())
    }

    /// Returns the service's host, with its port if that is not the usual one: for messages.
    pub(super) fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

/// The variables of a command, the secret ones among them; an empty one counts as not set.
struct Variables<'a>(&'a Environment);

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let all = self.0.secrets.iter().chain(&self.0.variables);
        let value = all.into_iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value)?;
        let value = String::from_utf8_lossy(value).trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn either(&self, one: &str, other: &str) -> Option<String> {
        self.get(one).or_else(|| self.get(other))
    }
}

fn bad(variable: &'static str, why: &str) -> Trouble {
    Trouble::Setting { variable, why: why.to_owned() }
}

/// Where a provider's own service is.
fn default_base(provider: Provider) -> Url {
    let text = match provider {
        Provider::Anthropic => "https://api.anthropic.com",
        Provider::OpenAi | Provider::Script => "https://api.openai.com/v1",
    };
    #[expect(clippy::expect_used, reason = "both texts above are URLs")]
    Url::parse(text).expect("the address of a known service is one")
}

fn base(provider: Provider, look: &Variables<'_>) -> Result<(Url, bool), Trouble> {
    let variable = match provider {
        Provider::Anthropic => "ANTHROPIC_BASE_URL",
        Provider::OpenAi | Provider::Script => "OPENAI_BASE_URL",
    };
    let Some(set) = look.get(variable) else { return Ok((default_base(provider), true)) };
    let url = Url::parse(&set).map_err(|error| bad(variable, &format!("it is no URL ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(bad(variable, "it must begin with http:// or https:// and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let key = key_variable(provider);
        return Err(bad(variable, &format!("it names a user or a password: a key belongs into {key}")));
    }
    Ok((url, false))
}

/// OpenAI's own service wants a key, a server of one's own as a rule not.
fn key(provider: Provider, is_default_base: bool, look: &Variables<'_>) -> Result<Option<Key>, Trouble> {
    let variables: &[&'static str] = match provider {
        Provider::Anthropic => &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        Provider::OpenAi | Provider::Script => &["OPENAI_API_KEY"],
    };
    let found = variables.iter().find_map(|&variable| Some(Key { variable, value: look.get(variable)? }));
    match found {
        Some(key) if !key.value.chars().all(|c| c.is_ascii_graphic()) => Err(Trouble::Setting {
            variable: key.variable,
            why: "it holds a character that no key has (a line break, a space, a quotation mark of a text)"
                .to_owned(),
        }),
        None if provider == Provider::Anthropic || is_default_base => {
            Err(Trouble::NoKey { provider: provider.as_str(), variable: key_variable(provider) })
        }
        found => Ok(found),
    }
}

/// A relative path counts from where the command was given.
fn roots(look: &Variables<'_>) -> Roots {
    match look.get("TEAM_CA").as_deref() {
        None | Some("embedded") => Roots::Embedded,
        Some("platform") => Roots::Platform,
        Some(file) => Roots::File(std::path::Path::new(&look.get("PWD").unwrap_or_default()).join(file)),
    }
}

fn proxies(look: &Variables<'_>) -> Vec<Through> {
    let known = [
        ("http", "HTTP_PROXY", "http_proxy"),
        ("https", "HTTPS_PROXY", "https_proxy"),
        ("all", "ALL_PROXY", "all_proxy"),
    ];
    let through = |(scheme, upper, lower): (&'static str, &'static str, &str)| {
        let url = look.either(upper, lower)?;
        Some(Through { scheme, variable: upper, url })
    };
    known.into_iter().filter_map(through).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)], secrets: &[(&str, &str)]) -> Environment {
        let bytes = |list: &[(&str, &str)]| {
            list.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
        };
        Environment { variables: bytes(variables), secrets: bytes(secrets), umask: 0o22 }
    }

    fn read(spec: &str, environment: &Environment) -> Settings {
        Settings::read(&spec.parse().unwrap(), environment)
    }

    #[test]
    fn a_key_is_never_shown() {
        let settings = read("anthropic", &with(&[], &[("ANTHROPIC_API_KEY", "sk-very-secret")]));
        let key = settings.key.clone().unwrap().unwrap();
        assert_eq!(key.expose(), "sk-very-secret");
        assert!(!format!("{settings:?} {key:?}").contains("very-secret"));
        assert_eq!(key.scrub("Incorrect API key: sk-very-secret."), "Incorrect API key: [the key].");
        let odd = read("anthropic", &with(&[], &[("ANTHROPIC_API_KEY", "sk-a\nb")])).key.unwrap_err();
        assert!(
            odd.to_string().starts_with("ANTHROPIC_API_KEY cannot be used")
                && !odd.to_string().contains("sk-a")
        );
    }

    #[test]
    fn who_needs_a_key_says_which() {
        let missing = read("anthropic:x", &with(&[("ANTHROPIC_API_KEY", "")], &[])).key.unwrap_err();
        assert!(
            missing.to_string().contains("ANTHROPIC_API_KEY is not set")
                && missing.hint().contains("--resume")
        );
        assert!(read("openai:x", &with(&[], &[])).key.is_err());
        let local = with(&[("OPENAI_BASE_URL", "http://localhost:11434/v1")], &[]);
        assert_eq!(read("openai:x", &local).key, Ok(None));
        let token = read("anthropic", &with(&[], &[("ANTHROPIC_AUTH_TOKEN", "t")])).key.unwrap().unwrap();
        assert_eq!(token.variable, "ANTHROPIC_AUTH_TOKEN");
    }

    #[test]
    fn a_value_that_can_never_work_is_told_in_the_place_of_the_key() {
        for (variable, value) in [
            ("ANTHROPIC_BASE_URL", "localhost:8080"),
            ("ANTHROPIC_BASE_URL", "nonsense"),
            ("ANTHROPIC_BASE_URL", "ftp://x"),
            ("TEAM_MODEL_TIMEOUT", "soon"),
            ("TEAM_CONTEXT_WINDOW", "big"),
            ("TEAM_CONTEXT_WINDOW", "3000"),
            ("ANTHROPIC_BASE_URL", "http://user:PW@host"),
        ] {
            let error = read("anthropic", &with(&[(variable, value)], &[])).key.unwrap_err();
            assert!(error.to_string().contains(variable) && error.hint().contains(variable), "{error}");
            assert!(!error.to_string().contains("PW"), "{error}");
        }
    }

    #[test]
    fn services_are_parted_by_address_and_key() {
        let service = |base: &str, key: &str| {
            let environment = with(&[("OPENAI_BASE_URL", base)], &[("OPENAI_API_KEY", key)]);
            read("openai:x", &environment).service(Provider::OpenAi)
        };
        let one = service("http://localhost:1/v1", "sk-1");
        assert!(one.starts_with("openai-") && one.len() == 15 && !one.contains("sk-1"), "{one}");
        assert_eq!(one, service("http://localhost:1/other/", "sk-1"));
        for other in [service("http://localhost:2/v1", "sk-1"), service("http://localhost:1/v1", "sk-2")] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn the_model_the_proxies_and_the_roots_come_from_the_variables() {
        let all = [
            ("MODEL_ID", "claude-y"),
            ("https_proxy", "http://user:pw@proxy:3128"),
            ("NO_PROXY", "localhost"),
            ("TEAM_CA", "ca.pem"),
            ("PWD", "/home/me"),
            ("TEAM_MODEL_TIMEOUT", "0.5"),
        ];
        let settings = read("anthropic", &with(&all, &[]));
        assert_eq!(settings.model, "claude-y");
        assert_eq!(settings.roots, Roots::File("/home/me/ca.pem".into()));
        assert_eq!(settings.patience, Duration::from_millis(500));
        assert_eq!((settings.proxies.len(), settings.proxies[0].scheme), (1, "https"));
        assert!(!format!("{:?}", settings.proxies).contains("pw"));
        assert_eq!(read("anthropic:z", &with(&all, &[])).model, "z");
        assert_eq!(settings.host(), "api.anthropic.com");
    }
}
