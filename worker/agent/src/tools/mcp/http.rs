//! An MCP server that is reached over HTTP. Its headers are added here, outside of every sandbox.

use std::collections::{BTreeMap, HashMap};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use teamd_shared::terms::variable_of;
use teamd_worker_core::secret::Secret;

/// Says how a server is reached.
///
/// # Errors
/// Which header cannot be sent.
pub(super) fn config(
    url: &str,
    headers: &BTreeMap<String, String>,
    secrets: &[Secret],
) -> Result<StreamableHttpClientTransportConfig, String> {
    let mut sent = HashMap::new();
    for (name, written) in headers {
        let value = match variable_of(written) {
            Some(variable) => {
                let mut set = secrets.iter();
                let secret = set.find(|secret| secret.variable() == variable);
                secret.map_or("", Secret::expose)
            }
            None => written,
        };
        let header = HeaderName::try_from(name.as_str());
        let header = header.map_err(|_| format!("{name:?} is no name of a header"))?;
        let value = HeaderValue::try_from(value);
        let mut value =
            value.map_err(|_| format!("the value of the header {name} cannot be sent"))?;
        value.set_sensitive(true);
        sent.insert(header, value);
    }
    Ok(StreamableHttpClientTransportConfig::with_uri(url).custom_headers(sent))
}
