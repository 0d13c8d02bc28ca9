//! The services of models, as an agent reaches them through its gateway: with a key that never enters
//! the sandbox.

mod meter;
mod scrub;
mod upstream;

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use teamd_shared::environment::Environment;
use teamd_shared::model_spec::Provider;
use teamd_worker_sandbox::{Answering, Models};

pub use meter::Meter;
use upstream::Upstream;

#[derive(Debug)]
struct Upstreams {
    all: Vec<Upstream>,
    meter: Meter,
}

/// Returns each model service whose key is in the environment. `meter`: counts the usage and limits
/// it.
pub fn upstreams(environment: &Environment, meter: Meter) -> Option<Arc<dyn Models>> {
    let all: Vec<_> = [Provider::Anthropic, Provider::OpenAi, Provider::Google]
        .into_iter()
        .filter_map(|provider| Upstream::new(provider, environment))
        .collect();
    if all.is_empty() {
        return None;
    }
    Some(Arc::new(Upstreams { all, meter }))
}

impl Models for Upstreams {
    fn variables(&self, gateway: &str, token: &str) -> Vec<(&'static str, String)> {
        let all = self.all.iter();
        all.flat_map(|upstream| upstream.variables(gateway, token))
            .collect()
    }

    fn forward<'a>(&'a self, request: Request<Incoming>, token: &'a str) -> Option<Answering<'a>> {
        let path = request.uri().path();
        let upstream = self.all.iter().find(|upstream| upstream.serves(path))?;
        Some(Box::pin(async move {
            let answer = upstream.forward(request, token, &self.meter).await;
            answer.map(|body| body.map_err(Into::into).boxed_unsync())
        }))
    }
}

#[cfg(test)]
mod tests;
