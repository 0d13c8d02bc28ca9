//! The gateway of an agent, or of a command whose network is a list of hosts: all that it reaches
//! from a network namespace with a loopback interface alone.
//!
//! The listeners are in that namespace; the worker accepts connections from outside. The first one
//! takes HTTP: requests for the service of a model go to [`Models`], whatever the gate; `CONNECT`
//! opens a tunnel to a host ([`tunnel`]), and each further listener stands for a port of this
//! machine. These two need an open gate, and a gate that closes cuts them. An agent that logs in
//! itself reaches the host of its vendor whatever the gate: its model is there.
//!
//! Where the agent has the network of the machine, there is the first listener only, on the
//! machine's own loopback interface. So each request must show a token that only this agent was
//! given.

mod tunnel;

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::json;
use teamd_shared::member::{Gate, Sandbox};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use teamd_shared::terms::GATEWAY_PORT;
use tunnel::Hosts;

/// How many connections of one listener are served at once.
const AT_ONCE: usize = 256;

/// The body of an answer, which may come piece by piece.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// An answer that is on its way.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Response<Body>> + Send + 'a>>;

/// The services of models behind a gateway. The key of a service never enters the sandbox.
pub trait Models: Debug + Send + Sync {
    /// Returns the variables by which programs find them, given the address of the gateway and the
    /// token that programs show to it.
    fn variables(&self, gateway: &str, token: &str) -> Vec<(&'static str, String)>;
    /// Sends a request on that shows the token; none if its path leads to none of them.
    fn forward<'a>(&'a self, request: Request<Incoming>, token: &'a str) -> Option<Answering<'a>>;
}

/// The tools of the team behind a gateway, for an agent that does not get them by its pipe.
pub trait TeamEndpoint: Debug + Send + Sync {
    /// Tells whether a path leads to it.
    fn serves(&self, path: &str) -> bool;
    /// Answers a request, whatever the gate: the session decides what a call may do.
    fn answer(&self, request: Request<Incoming>) -> Answering<'_>;
}

/// The gateway of one agent or command.
#[derive(Debug)]
pub struct Gateway {
    models: Option<Arc<dyn Models>>,
    team: Option<Arc<dyn TeamEndpoint>>,
    /// None: the agent has the network of the machine, or none.
    hosts: Option<Hosts>,
    ports: Vec<u16>,
    vendor: Option<Vendor>,
    token: String,
}

/// The service of a vendor, which an agent reaches whatever its gate: the agent logs in there
/// itself, and its model is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor {
    /// Its host.
    pub host: &'static str,
    /// Its port.
    pub port: u16,
}

impl Vendor {
    /// Tells whether a request asks for a tunnel to it.
    fn is_asked_by(self, asked: &Uri) -> bool {
        let host = asked.host().unwrap_or_default();
        host.eq_ignore_ascii_case(self.host) && asked.port_u16() == Some(self.port)
    }
}

/// A tunnel that begins when the answer to its request has been sent.
struct Tunnel {
    upgrade: OnUpgrade,
    host: TcpStream,
    /// Whether a gate that closes cuts it.
    is_gated: bool,
}

impl Gateway {
    /// Makes a gateway to the hosts and ports of a sandbox, where that has network. Nothing is sent
    /// yet.
    pub fn new(sandbox: &Sandbox, has_network: bool) -> Self {
        Self {
            models: None,
            team: None,
            hosts: has_network.then(|| Hosts::new(&sandbox.hosts)),
            ports: if has_network {
                sandbox.ports.clone()
            } else {
                Vec::new()
            },
            vendor: None,
            token: format!("teamd-{}", Uuid::new_v4().simple()),
        }
    }

    /// Adds the services of models.
    #[must_use]
    pub fn with_models(self, models: Option<Arc<dyn Models>>) -> Self {
        Self { models, ..self }
    }

    /// Adds the tools of the team.
    #[must_use]
    pub fn with_team(self, team: Option<Arc<dyn TeamEndpoint>>) -> Self {
        Self { team, ..self }
    }

    /// Adds the service of a vendor.
    #[must_use]
    pub fn with_vendor(self, vendor: Option<Vendor>) -> Self {
        Self { vendor, ..self }
    }

    /// Tells whether it serves the agent itself, and not only the network of its tools.
    pub(crate) fn serves_agent(&self) -> bool {
        self.has_model() || self.team.is_some() || self.vendor.is_some()
    }

    /// Tells whether a model can be reached through it.
    pub fn has_model(&self) -> bool {
        self.models.is_some()
    }

    /// Tells whether anything can.
    pub(crate) fn is_of_use(&self) -> bool {
        self.serves_agent() || self.hosts.is_some()
    }

    /// Returns the ports of its listeners, in a network namespace of the agent.
    pub fn ports(&self) -> Vec<u16> {
        [GATEWAY_PORT]
            .into_iter()
            .chain(self.ports.iter().copied())
            .collect()
    }

    /// Returns the variables by which programs find it, given the port of its first listener.
    pub fn variables(&self, port: u16) -> Vec<(&'static str, String)> {
        let own = format!("http://{}:{port}", Ipv4Addr::LOCALHOST);
        let mut variables: Vec<_> = self
            .models
            .iter()
            .flat_map(|models| models.variables(&own, &self.token))
            .collect();
        if self.hosts.is_some() || self.vendor.is_some() {
            variables.extend(["HTTPS_PROXY", "https_proxy"].map(|name| (name, own.clone())));
            variables.extend(
                ["NO_PROXY", "no_proxy"].map(|name| (name, "127.0.0.1,localhost".to_owned())),
            );
        }
        variables
    }

    /// Serves until it is dropped, as the gate says.
    ///
    /// # Errors
    /// The system's error if a listener cannot be used.
    pub async fn serve(
        self: Arc<Self>,
        listeners: Vec<TcpListener>,
        gate: watch::Receiver<Gate>,
    ) -> std::io::Result<()> {
        let mut serving = JoinSet::new();
        for (place, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let port = place
                .checked_sub(1)
                .and_then(|place| self.ports.get(place).copied());
            serving.spawn(Arc::clone(&self).accept(listener, port, gate.clone()));
        }
        while serving.join_next().await.is_some() {}
        Ok(())
    }

    /// Accepts for one listener. The connections end with it.
    async fn accept(
        self: Arc<Self>,
        from: tokio::net::TcpListener,
        port: Option<u16>,
        gate: watch::Receiver<Gate>,
    ) {
        let mut connections = JoinSet::new();
        let room = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            match from.accept().await {
                Ok((stream, _)) => {
                    let gateway = Arc::clone(&self);
                    let gate = gate.clone();
                    connections.spawn(async move {
                        match port {
                            None => gateway.speak(stream, gate).await,
                            Some(port) => to_port(stream, port, gate).await,
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::debug!("the gateway cannot accept a connection: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Serves a connection that speaks HTTP.
    async fn speak(&self, stream: TcpStream, gate: watch::Receiver<Gate>) {
        let tunnel: Mutex<Option<Tunnel>> = Mutex::new(None);
        let answer = service_fn(|request| self.answer(request, &gate, &tunnel));
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!("a connection to the gateway broke: {error}");
        }
        let begun = tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Tunnel {
            upgrade,
            mut host,
            is_gated,
        }) = begun
            && let Ok(upgraded) = upgrade.await
        {
            let mut agent = TokioIo::new(upgraded);
            let copied = copy_bidirectional(&mut agent, &mut host);
            if is_gated {
                while_open(gate, copied).await;
            } else if let Err(error) = copied.await {
                tracing::debug!("a connection of the agent to its vendor broke: {error}");
            }
        }
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        gate: &watch::Receiver<Gate>,
        begun: &Mutex<Option<Tunnel>>,
    ) -> Result<Response<Body>, Infallible> {
        if request.method() != Method::CONNECT {
            if let Some(team) = &self.team
                && team.serves(request.uri().path())
            {
                return Ok(team.answer(request).await);
            }
            let answering = self
                .models
                .as_ref()
                .and_then(|models| models.forward(request, &self.token));
            return Ok(match answering {
                Some(answering) => answering.await,
                None => refused(
                    StatusCode::NOT_FOUND,
                    "the gateway knows no such path, or has no key for it",
                ),
            });
        }
        let vendor = self
            .vendor
            .filter(|vendor| vendor.is_asked_by(request.uri()));
        let host = match (vendor, &self.hosts) {
            (Some(vendor), _) => {
                Hosts::new(&[vendor.host.to_owned()])
                    .connect(request.uri())
                    .await
            }
            (None, None) => Err("this teammate has no network".to_owned()),
            (None, Some(_)) if *gate.borrow() == Gate::Closed => {
                Err("the gate is closed".to_owned())
            }
            (None, Some(hosts)) => hosts.connect(request.uri()).await,
        };
        Ok(match host {
            Ok(host) => {
                let upgrade = hyper::upgrade::on(&mut request);
                *begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Tunnel {
                    upgrade,
                    host,
                    is_gated: vendor.is_none(),
                });
                Response::new(body_of(Full::default()))
            }
            Err(why) => refused(StatusCode::FORBIDDEN, &why),
        })
    }
}

/// Serves a connection to a port of this machine.
async fn to_port(mut stream: TcpStream, port: u16, gate: watch::Receiver<Gate>) {
    let opened = async {
        let mut service = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        copy_bidirectional(&mut stream, &mut service).await
    };
    while_open(gate, opened).await;
}

/// Waits for something as long as the gate is open.
async fn while_open<O>(
    mut gate: watch::Receiver<Gate>,
    what: impl Future<Output = std::io::Result<O>>,
) {
    tokio::select! {
        biased;
        // The other end is only dropped with the agent.
        _ = gate.wait_for(|gate| *gate == Gate::Closed) => {}
        done = what => if let Err(error) = done {
            tracing::debug!("a connection of the agent broke: {error}");
        },
    }
}

fn body_of(text: Full<Bytes>) -> Body {
    text.map_err(|never| match never {}).boxed_unsync()
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    refusal(status, why).map(body_of)
}

/// Refuses a request, in the form of an error of a model's service: programs show its message.
pub fn refusal<B: From<String>>(status: StatusCode, why: &str) -> Response<B> {
    let error = json!({"type": "error", "error": {"type": "gateway_error", "message": format!("teamd: {why}")}});
    let mut response = Response::new(B::from(error.to_string()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    // The libraries of both providers read it: to ask again does not help.
    if status.is_client_error() {
        let never = hyper::header::HeaderValue::from_static("false");
        response.headers_mut().insert("x-should-retry", never);
    }
    response
}
