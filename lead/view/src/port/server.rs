//! The server: each request of a browser that has the key goes to the teammate, over a connection
//! of its own.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE, UPGRADE};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, client, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::FarPort;
use super::guard::{Admission, PortGuard};
use super::head::HostNames;
use super::loopback::Loopback;

/// How long a browser may take for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most connections at once.
const CONNECTIONS: usize = 256;
/// Before the next attempt where no connection can be accepted: no descriptor is left, say.
const PAUSE: Duration = Duration::from_millis(100);

type HttpBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// What all connections share.
#[derive(Debug)]
pub(super) struct PortSite {
    guard: PortGuard,
    names: HostNames,
    far: Arc<FarPort>,
}

impl PortSite {
    /// Makes the site of a port.
    pub(super) fn new(guard: PortGuard, far: Arc<FarPort>) -> Self {
        Self {
            names: HostNames::new(&guard.host, far.port),
            guard,
            far,
        }
    }
}

/// Serves for ever.
pub(super) async fn serve(listener: Loopback, site: PortSite) {
    let site = Arc::new(site);
    accept(listener, |connection| {
        converse(connection, Arc::clone(&site))
    })
    .await;
}

/// Passes all that comes through, for ever.
pub(super) async fn pass_through(listener: Loopback, far: Arc<FarPort>) {
    accept(listener, |connection| relay(connection, Arc::clone(&far))).await;
}

async fn accept<F>(listener: Loopback, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS {
            connections.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok(connection) => drop(connections.spawn(serve(connection))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn relay(mut connection: TcpStream, far: Arc<FarPort>) {
    // Without a connection, that of the other side ends: there is no other answer.
    if let Ok(mut there) = far.connect().await {
        copied(copy_bidirectional(&mut connection, &mut there).await);
    }
}

/// A side that goes away is no error.
fn copied(_how: io::Result<(u64, u64)>) {}

async fn converse(connection: TcpStream, site: Arc<PortSite>) {
    let answer = service_fn(|request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.respond(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(connection), answer)
        .with_upgrades();
    // A browser that goes away is no error.
    served.await.ok();
}

impl PortSite {
    async fn respond(&self, request: Request<Incoming>) -> Response<HttpBody> {
        let (head, body) = request.into_parts();
        match self.guard.admit(&head) {
            Admission::Refused(code, why) => said(code, why),
            Admission::Begins { url, cookie } => begins(&url, &cookie),
            Admission::Passes if is_tunnel(&head.method) => {
                said(StatusCode::METHOD_NOT_ALLOWED, "this is no proxy")
            }
            Admission::Passes => {
                let asked = self.ask(Request::from_parts(head, body)).await;
                asked.unwrap_or_else(|why| said(StatusCode::BAD_GATEWAY, &why))
            }
        }
    }

    /// Sends a request on, and returns the answer as it comes.
    async fn ask(&self, mut request: Request<Incoming>) -> Result<Response<HttpBody>, String> {
        let there = self.far.connect().await?;
        let broken = |error: hyper::Error| format!("the connection broke: {error}");
        let handshake = client::conn::http1::handshake(TokioIo::new(there)).await;
        let (mut sender, connection) = handshake.map_err(broken)?;
        tokio::spawn(connection.with_upgrades());
        let browser = hyper::upgrade::on(&mut request);
        self.names.inwards(request.headers_mut());
        // Only the path: the host is in its header.
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let path: Result<Uri, _> = path.parse();
        *request.uri_mut() = path.map_err(|error| error.to_string())?;
        let mut response = sender.send_request(request).await.map_err(broken)?;
        self.names.outwards(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && response.headers().contains_key(UPGRADE)
        {
            let there = hyper::upgrade::on(&mut response);
            tokio::spawn(join(browser, there));
        }
        Ok(response.map(BodyExt::boxed_unsync))
    }
}

fn is_tunnel(method: &Method) -> bool {
    *method == Method::CONNECT || *method == Method::TRACE
}

/// Connects both sides of what was HTTP until now.
async fn join(browser: OnUpgrade, there: OnUpgrade) {
    if let (Ok(browser), Ok(there)) = tokio::join!(browser, there) {
        let (mut browser, mut there) = (TokioIo::new(browser), TokioIo::new(there));
        copied(copy_bidirectional(&mut browser, &mut there).await);
    }
}

/// Answers with a text of our own, which a browser takes for nothing else.
fn said(code: StatusCode, text: &str) -> Response<HttpBody> {
    let body = Full::new(Bytes::from(format!("{text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sends a browser on, with the cookie in place of the key.
fn begins(url: &str, cookie: &str) -> Response<HttpBody> {
    let mut response = said(StatusCode::SEE_OTHER, "");
    let headers = response.headers_mut();
    for (name, value) in [(LOCATION, url), (SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
