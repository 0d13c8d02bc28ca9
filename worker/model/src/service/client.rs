//! The HTTP client, and the headers and the address of a request. Nothing here shows a key, or an
//! address that may hold a password.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Proxy, Url, redirect};
use teamd_shared::environment::Environment;

use super::failure::{cut, error_chain};
use super::setting_errors::bad_setting;
use teamd_worker_core::secret::Secret;

use super::settings::{ServiceSettings, TrustedRoots, proxies, roots};
use super::wire::Wire;
use crate::ModelError;

/// How long a connection may take to be established.
const CONNECT: Duration = Duration::from_secs(15);

/// Builds the client. Only the settings of the member count, not the variables of this process.
/// Redirects are not followed, since they would carry the key along.
///
/// # Errors
/// [`ModelError::Unusable`] if the certificate authorities cannot be read.
pub(super) fn build(settings: &ServiceSettings) -> Result<Client, ModelError> {
    build_with(&settings.roots, &settings.proxies)
}

/// Builds a client for servers that are no service of a model, as the variables of a member say.
/// Redirects are not followed.
///
/// # Errors
/// What is wrong with a variable, and what to do.
pub fn http_client(environment: &Environment) -> Result<Client, String> {
    let get = |name: &str| {
        let value = environment.value(name)?.trim().to_owned();
        Some(value).filter(|value| !value.is_empty())
    };
    let built = proxies(&get).and_then(|proxies| build_with(&roots(&get), &proxies));
    built.map_err(|error| format!("{error} ({})", error.hint()))
}

fn build_with(roots: &TrustedRoots, proxies: &[Proxy]) -> Result<Client, ModelError> {
    // It fails only if one is there already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = Client::builder()
        .user_agent(concat!("teamd/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .redirect(redirect::Policy::none())
        .no_proxy();
    for proxy in proxies {
        builder = builder.proxy(proxy.clone());
    }
    let own = match roots {
        TrustedRoots::Platform => None,
        TrustedRoots::Embedded => Some(Vec::new()),
        TrustedRoots::File(path) => Some(read_pem(path).map_err(bad_roots)?),
    };
    if let Some(own) = own {
        let embedded = webpki_root_certs::TLS_SERVER_ROOT_CERTS
            .iter()
            .map(|der| Certificate::from_der(der));
        let mut all = embedded
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| bad_roots(error_chain(error)))?;
        all.extend(own);
        builder = builder.tls_certs_only(all);
    }
    builder
        .build()
        .map_err(|error| bad_roots(error_chain(error)))
}

fn bad_roots(why: String) -> ModelError {
    bad_setting("TEAM_CA", &cut(&why))
}

fn read_pem(path: &Path) -> Result<Vec<Certificate>, String> {
    let shown = path.display();
    let pem = std::fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .map_err(|error| format!("{shown}: {}", error_chain(error)))?;
    if certificates.is_empty() {
        return Err(format!("{shown} holds no certificate in PEM"));
    }
    Ok(certificates)
}

/// Appends a path to a base URL that may already contain its beginning: both `…/` and `…/v1` are
/// common.
pub(super) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let there = base.path().trim_end_matches('/');
    let joined = match path.split_once('/') {
        _ if there.ends_with(&format!("/{path}")) => there.to_owned(),
        Some((first, rest)) if there.ends_with(&format!("/{first}")) => format!("{there}/{rest}"),
        _ => format!("{there}/{path}"),
    };
    url.set_path(&joined);
    url
}

/// Returns the headers of a request.
pub(super) fn headers(wire: &dyn Wire, key: Option<&Secret>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in wire.headers(key) {
        #[expect(
            clippy::expect_used,
            reason = "settings refuse a key with any but graphic ASCII characters"
        )]
        let mut value =
            HeaderValue::from_str(&value).expect("graphic ASCII and spaces fit into a header");
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_below_every_common_base() {
        for (base, path, url) in [
            (
                "https://api.anthropic.com",
                "v1/messages",
                "https://api.anthropic.com/v1/messages",
            ),
            (
                "https://gateway/x/v1/",
                "v1/messages",
                "https://gateway/x/v1/messages",
            ),
            (
                "http://localhost:1234/v1",
                "chat/completions",
                "http://localhost:1234/v1/chat/completions",
            ),
            (
                "http://h/v1/chat/completions",
                "chat/completions",
                "http://h/v1/chat/completions",
            ),
            (
                "https://h/v1?api-version=1",
                "chat/completions",
                "https://h/v1/chat/completions?api-version=1",
            ),
        ] {
            assert_eq!(below(&base.parse().unwrap(), path).as_str(), url);
        }
    }
}
