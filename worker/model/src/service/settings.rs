//! The settings of a service: the variables of the command that asked for the member. Pure.
//!
//! Keys are never shown: neither by `Debug`, nor in an error, nor when a service repeats them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{NoProxy, Proxy, Url};
use teamd_shared::amount::{parse_period, parse_window};
use teamd_shared::environment::Environment;
use teamd_shared::model_spec::{ModelSpec, Provider};
use teamd_worker_core::secret::Secret;

use super::catalog;
use super::failure::error_chain;
use super::setting_errors::{bad_setting, base_variable, key_variable, missing_key};
use crate::ModelError;

/// How long a service may be silent by default.
const SILENCE: Duration = Duration::from_secs(120);

/// Which certificate authorities are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrustedRoots {
    /// The web's, as they are built in.
    Embedded,
    /// Those that the system trusts.
    Platform,
    /// The web's, and those of a PEM file.
    File(PathBuf),
}

/// The settings of a service.
#[derive(Clone)]
pub(super) struct ServiceSettings {
    /// Who serves the model.
    pub(super) provider: Provider,
    /// What the service calls the model.
    pub(super) model: String,
    /// The key, if one is set.
    pub(super) key: Option<Secret>,
    /// Where the service is.
    pub(super) base: Url,
    /// Whether that is the provider's own.
    pub(super) is_default_base: bool,
    /// Which certificate authorities are trusted.
    pub(super) roots: TrustedRoots,
    /// How long the service may be silent.
    pub(super) silence: Duration,
    /// The tokens that a prompt and its answer may have together.
    pub(super) window: u64,
    /// The proxies, whose addresses may hold passwords.
    pub(super) proxies: Vec<Proxy>,
}

impl fmt::Debug for ServiceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Base and proxies may hold a password.
        f.debug_struct("ServiceSettings")
            .field("model", &self.model)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Returns how long a model may be silent.
///
/// # Errors
/// If the value of the variable is not a duration.
pub fn patience(environment: &Environment) -> Result<Duration, ModelError> {
    let Some(text) = environment
        .value("TEAM_MODEL_TIMEOUT")
        .filter(|text| !text.trim().is_empty())
    else {
        return Ok(SILENCE);
    };
    parse_period(text.trim())
        .map_err(|expected| bad_setting("TEAM_MODEL_TIMEOUT", &format!("it is not {expected}")))
}

impl ServiceSettings {
    /// Reads the variables.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] for a missing key, and for a value that can never work.
    pub(super) fn read(spec: &ModelSpec, environment: &Environment) -> Result<Self, ModelError> {
        let get = |name: &str| {
            let value = environment.value(name)?.trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        let provider = spec.provider;
        let (base, is_default_base) = base(provider, get(base_variable(provider)))?;
        let model = spec.model.clone().or_else(|| get("MODEL_ID"));
        let model =
            model.unwrap_or_else(|| provider.default_model().unwrap_or_default().to_owned());
        let window = match get("TEAM_CONTEXT_WINDOW") {
            Some(text) => parse_window(&text).map_err(|expected| {
                bad_setting("TEAM_CONTEXT_WINDOW", &format!("it is not {expected}"))
            })?,
            None => catalog::window(provider, &model),
        };
        let silence = patience(environment)?;
        Ok(Self {
            key: key(provider, is_default_base, &get)?,
            provider,
            model,
            base,
            is_default_base,
            roots: roots(&get),
            silence,
            window,
            proxies: proxies(&get)?,
        })
    }

    /// Names the service for those who share it: the provider, and eight hex digits for its address
    /// and the key, whose limits are its own. They part services, and are no secret's guard: far
    /// too few to tell a key from.
    pub(super) fn service(&self) -> String {
        self.hashed("")
    }

    /// Names the service of this model alone, as [`ServiceSettings::service`] does that of all.
    pub(super) fn service_of_model(&self) -> String {
        self.hashed(&format!("\n{}", self.model))
    }

    fn hashed(&self, model: &str) -> String {
        let key = self.key.as_ref().map_or("", Secret::expose);
        let of = format!("{}\n{key}{model}", self.base.origin().ascii_serialization());
        // FNV-1a, 32 bits (http://www.isthe.com/chongo/tech/comp/fnv/).
        let hash = of.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        format!("{}-{hash:08x}", self.provider.as_str())
    }

    /// Returns the service's host, with its port if that is not the usual one: for messages.
    pub(super) fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base
            .port()
            .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Takes the key out of a text.
    pub(super) fn scrub(&self, text: &str) -> String {
        match &self.key {
            Some(key) => key.hide(text.into()).into_owned(),
            None => text.to_owned(),
        }
    }
}

/// Returns where the service is, and whether that is the provider's own address.
fn base(provider: Provider, set: Option<String>) -> Result<(Url, bool), ModelError> {
    let own = match provider {
        Provider::Anthropic => "https://api.anthropic.com",
        Provider::OpenAi | Provider::Script => "https://api.openai.com/v1",
        Provider::Google => "https://generativelanguage.googleapis.com",
    };
    let bad = |why: &str| bad_setting(base_variable(provider), why);
    let url = Url::parse(set.as_deref().unwrap_or(own));
    let url = url.map_err(|error| bad(&format!("it is not a URL ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let key = key_variable(provider);
        return Err(bad(&format!(
            "it names a user or a password: put the key into {key}"
        )));
    }
    Ok((url, set.is_none()))
}

/// Returns the key. OpenAI's own service needs one; other servers may not.
fn key(
    provider: Provider,
    is_default_base: bool,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Secret>, ModelError> {
    let variables: &[&'static str] = match provider {
        Provider::Anthropic => &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        Provider::OpenAi | Provider::Script => &["OPENAI_API_KEY"],
        Provider::Google => &["GEMINI_API_KEY"],
    };
    let mut set = variables.iter();
    match set.find_map(|variable| Some(Secret::new(variable, get(variable)?))) {
        Some(key) if !key.expose().chars().all(|c| c.is_ascii_graphic()) => Err(bad_setting(
            key.variable(),
            "it holds a character that no key has (such as a line break, a space or a typographic quote)",
        )),
        None if provider != Provider::OpenAi || is_default_base => Err(missing_key(provider)),
        key => Ok(key),
    }
}

/// A relative path counts from where the command was given.
/// Returns which certificate authorities the variables name.
pub(super) fn roots(get: &dyn Fn(&str) -> Option<String>) -> TrustedRoots {
    match get("TEAM_CA").as_deref() {
        None | Some("embedded") => TrustedRoots::Embedded,
        Some("platform") => TrustedRoots::Platform,
        Some(file) => TrustedRoots::File(Path::new(&get("PWD").unwrap_or_default()).join(file)),
    }
}

/// Returns the proxies that the variables name.
///
/// # Errors
/// [`ModelError::Unusable`] for an address that is none.
pub(super) fn proxies(get: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Proxy>, ModelError> {
    let no_proxy = get("NO_PROXY").or_else(|| get("no_proxy"));
    let no_proxy = no_proxy.as_deref().and_then(NoProxy::from_string);
    let mut proxies = Vec::new();
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        let url = get(variable).or_else(|| get(&variable.to_lowercase()));
        let Some(url) = url else {
            continue;
        };
        let proxy = match variable {
            "HTTP_PROXY" => Proxy::http(url),
            "HTTPS_PROXY" => Proxy::https(url),
            _ => Proxy::all(url),
        };
        let proxy = proxy.map_err(|error| bad_setting(variable, &error_chain(error)))?;
        proxies.push(proxy.no_proxy(no_proxy.clone()));
    }
    Ok(proxies)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (&str, &str) = ("ANTHROPIC_API_KEY", "sk-any-of-them");

    fn with(variables: &[(&str, &str)], secrets: &[(&str, &str)]) -> Environment {
        let bytes = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect()
        };
        Environment {
            variables: bytes(variables),
            secrets: bytes(secrets),
            umask: 0o22,
        }
    }

    fn read(spec: &str, environment: &Environment) -> Result<ServiceSettings, ModelError> {
        ServiceSettings::read(&spec.parse().unwrap(), environment)
    }

    #[test]
    fn a_key_is_never_shown() {
        let settings = read(
            "anthropic",
            &with(&[], &[("ANTHROPIC_API_KEY", "sk-very-secret")]),
        )
        .unwrap();
        let key = settings.key.clone().unwrap();
        assert_eq!(key.expose(), "sk-very-secret");
        assert!(!format!("{settings:?} {key:?}").contains("very-secret"));
        assert_eq!(
            settings.scrub("Incorrect API key: sk-very-secret."),
            "Incorrect API key: [the value of ANTHROPIC_API_KEY]."
        );
        let odd = read("anthropic", &with(&[], &[("ANTHROPIC_API_KEY", "sk-a\nb")])).unwrap_err();
        assert!(
            odd.to_string()
                .starts_with("ANTHROPIC_API_KEY cannot be used")
                && !odd.to_string().contains("sk-a")
        );
    }

    #[test]
    fn a_missing_key_is_named() {
        let missing = read("anthropic:x", &with(&[("ANTHROPIC_API_KEY", "")], &[])).unwrap_err();
        assert!(
            missing.to_string().contains("ANTHROPIC_API_KEY is not set")
                && missing.hint().contains("--resume")
        );
        assert!(read("openai:x", &with(&[], &[])).is_err());
        let local = with(&[("OPENAI_BASE_URL", "http://localhost:11434/v1")], &[]);
        assert_eq!(read("openai:x", &local).unwrap().key, None);
        let token = read("anthropic", &with(&[], &[("ANTHROPIC_AUTH_TOKEN", "t")]))
            .unwrap()
            .key
            .unwrap();
        assert_eq!(token.variable(), "ANTHROPIC_AUTH_TOKEN");
    }

    #[test]
    fn a_value_that_can_never_work_is_an_error() {
        for (variable, value) in [
            ("ANTHROPIC_BASE_URL", "localhost:8080"),
            ("ANTHROPIC_BASE_URL", "nonsense"),
            ("ANTHROPIC_BASE_URL", "ftp://x"),
            ("TEAM_MODEL_TIMEOUT", "soon"),
            ("TEAM_CONTEXT_WINDOW", "big"),
            ("TEAM_CONTEXT_WINDOW", "3000"),
            ("ANTHROPIC_BASE_URL", "http://user:PW@host"),
        ] {
            let error = read("anthropic", &with(&[(variable, value)], &[KEY])).unwrap_err();
            assert!(
                error.to_string().contains(variable) && error.hint().contains(variable),
                "{error}"
            );
            assert!(!error.to_string().contains("PW"), "{error}");
        }
    }

    #[test]
    fn services_are_parted_by_address_and_key() {
        let service = |base: &str, key: &str| {
            let environment = with(&[("OPENAI_BASE_URL", base)], &[("OPENAI_API_KEY", key)]);
            read("openai:x", &environment).unwrap().service()
        };
        let one = service("http://localhost:1/v1", "sk-1");
        assert!(
            one.starts_with("openai-") && one.len() == 15 && !one.contains("sk-1"),
            "{one}"
        );
        assert_eq!(one, service("http://localhost:1/other/", "sk-1"));
        for other in [
            service("http://localhost:2/v1", "sk-1"),
            service("http://localhost:1/v1", "sk-2"),
        ] {
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
        let settings = read("anthropic", &with(&all, &[KEY])).unwrap();
        assert_eq!(settings.model, "claude-y");
        assert_eq!(settings.roots, TrustedRoots::File("/home/me/ca.pem".into()));
        assert_eq!(settings.silence, Duration::from_millis(500));
        assert_eq!(settings.proxies.len(), 1);
        assert!(!format!("{settings:?}").contains("pw"));
        assert_eq!(read("anthropic:z", &with(&all, &[KEY])).unwrap().model, "z");
        assert_eq!(settings.host(), "api.anthropic.com");
    }
}
