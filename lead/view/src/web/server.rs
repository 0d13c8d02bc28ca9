//! The server: connections within limits of number, size and time. The files of the page come over a few of
//! them; whatever needs the key has one of its own.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONNECTION, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use teamd_shared::name::Name;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::guard::{ChangesOf, Guard, HttpRefusal, PageView, Route};
use super::order::PageOrder;
use super::page::POLICY;
use super::visitors::{Visit, Visitors};
use crate::model::{ImagePlace, ReadImage};

/// The most streams.
const STREAMS: usize = 8;
/// The most diffs that are read at once, and how many lines of one wait for the browser.
const DIFFS: usize = 4;
const LINES: usize = 16;
/// The longest head and body of a request, in bytes.
const HEAD: usize = 16 << 10;
const BODY: usize = 64 << 10;
/// How long a client may take for each of them.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the next attempt where no connection can be accepted: no descriptor is left, say.
const PAUSE: Duration = Duration::from_millis(100);

/// What a response carries beside its body, so that a browser does nothing with it that the page
/// does not want.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

pub(super) type HttpBody = UnsyncBoxBody<Bytes, Infallible>;

/// What the server asks of the one that has the files.
pub(super) enum Ask {
    /// What a view shows; none if that does not exist.
    View(PageView, oneshot::Sender<Option<Map<String, Value>>>),
    /// Do this, and say what came of it, and whether it is done.
    Act(PageOrder, oneshot::Sender<(bool, String)>),
    /// What a teammate or a submission has changed, line by line.
    Changes(ChangesOf, mpsc::Sender<Bytes>),
    /// An image in the conversation of an agent, if it is there and is shown.
    Image(Name, ImagePlace, oneshot::Sender<Option<ReadImage>>),
}

/// What all connections share.
pub(super) struct Site {
    pub(super) guard: Guard,
    pub(super) asks: mpsc::Sender<Ask>,
    /// Changes when a file has.
    pub(super) changed: watch::Receiver<()>,
    pub(super) streams: Arc<Semaphore>,
    diffs: Arc<Semaphore>,
}

impl Site {
    pub(super) fn new(guard: Guard, asks: mpsc::Sender<Ask>, changed: watch::Receiver<()>) -> Self {
        Self {
            guard,
            asks,
            changed,
            streams: Arc::new(Semaphore::new(STREAMS)),
            diffs: Arc::new(Semaphore::new(DIFFS)),
        }
    }
}

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, site: Site) {
    let site = Arc::new(site);
    let visitors = Arc::new(Visitors::default());
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                let visit = visitors.enter();
                let number = visit.number();
                let task = tokio::spawn(converse(connection, Arc::clone(&site), visit));
                visitors.served_by(number, task.abort_handle());
            }
            Err(_) => {
                // No descriptor is left, say: one that has not shown the key gives its own.
                visitors.close_oldest();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn converse(connection: TcpStream, site: Arc<Site>, visit: Visit) {
    let visit = Mutex::new(visit);
    let answer = service_fn(|request| {
        let site = Arc::clone(&site);
        let visit = &visit;
        async move { Ok::<_, Infallible>(respond(&site, visit, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(connection), answer);
    // A client that goes away is no error.
    served.await.ok();
}

async fn respond(
    site: &Arc<Site>,
    visit: &Mutex<Visit>,
    request: Request<Incoming>,
) -> Response<HttpBody> {
    let (head, body) = request.into_parts();
    let mut route = site.guard.check(&head);
    if site.guard.has_key(&head.headers)
        && !visit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .becomes_known()
    {
        route = Err(HttpRefusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many connections are open: close a page",
        ));
    }
    let answer = match route {
        Ok(Route::Asset(asset)) => return response(StatusCode::OK, asset.kind, full(asset.text)),
        Ok(Route::Once(view)) => site.once(view).await,
        Ok(Route::Stream(view)) => site.follow(view).await,
        Ok(Route::Act(kind)) => site.act(kind, body).await,
        Ok(Route::Changes(asked)) => site.changes(asked).await,
        Ok(Route::Image(name, place)) => site.image(name, place).await,
        Err(refusal) => Err(refusal),
    };
    let mut answer =
        answer.unwrap_or_else(|HttpRefusal(code, why)| json_response(code, &json!({"error": why})));
    // An order that is sent over a connection which is just being closed may be done, and seem not to be.
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

impl Site {
    async fn view(&self, view: PageView) -> Option<Map<String, Value>> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(Ask::View(view, answer)).await.ok()?;
        answered.await.ok()?
    }

    async fn once(&self, view: PageView) -> Result<Response<HttpBody>, HttpRefusal> {
        let is_metrics = view == PageView::Metrics;
        let shown = self.view(view).await.ok_or_else(missing)?;
        Ok(
            match if is_metrics {
                shown.get("metrics").and_then(Value::as_str)
            } else {
                None
            } {
                Some(text) => response(
                    StatusCode::OK,
                    "text/plain; version=0.0.4",
                    full(text.to_owned()),
                ),
                None => json_response(StatusCode::OK, &Value::Object(shown)),
            },
        )
    }

    /// As [`Site::stream`], if there is such a thing.
    async fn follow(self: &Arc<Self>, view: PageView) -> Result<Response<HttpBody>, HttpRefusal> {
        let is_of_one = matches!(
            view,
            PageView::Task(_) | PageView::Teammate(_) | PageView::Request(_)
        );
        if is_of_one && self.view(view.clone()).await.is_none() {
            return Err(missing());
        }
        self.stream(view)
    }

    /// Sends what a view shows, and then each part of it that has changed.
    pub(super) fn stream(
        self: &Arc<Self>,
        view: PageView,
    ) -> Result<Response<HttpBody>, HttpRefusal> {
        let busy = HttpRefusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages are open: close one",
        );
        let place = Arc::clone(&self.streams)
            .try_acquire_owned()
            .map_err(|_| busy)?;
        let mut changed = self.changed.clone();
        changed.mark_changed();
        let began = (Arc::clone(self), view, changed, Map::new(), place);
        let events = stream::unfold(began, async |(site, view, mut changed, mut sent, place)| {
            loop {
                // Nothing is asked and nothing sent while nothing happens.
                changed.changed().await.ok()?;
                let shown = site.view(view.clone()).await?;
                if let Some(new) = difference(&mut sent, shown) {
                    let event = format!("data: {}\n\n", Value::Object(new));
                    let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(event)));
                    return Some((frame, (site, view, changed, sent, place)));
                }
            }
        });
        Ok(response(
            StatusCode::OK,
            "text/event-stream",
            StreamBody::new(events).boxed_unsync(),
        ))
    }

    async fn act(&self, kind: &str, body: Incoming) -> Result<Response<HttpBody>, HttpRefusal> {
        let body = tokio::time::timeout(PATIENCE, Limited::new(body, BODY).collect()).await;
        let body =
            body.map_err(|_| HttpRefusal(StatusCode::REQUEST_TIMEOUT, "the body did not come"))?;
        let body =
            body.map_err(|_| HttpRefusal(StatusCode::PAYLOAD_TOO_LARGE, "the text is too long"))?;
        let order = PageOrder::read(kind, &body.to_bytes())
            .map_err(|_| HttpRefusal(StatusCode::BAD_REQUEST, "the body is not such an order"))?;
        let (is_done, said) = self.told(|answer| Ask::Act(order, answer)).await?;
        let code = if is_done {
            StatusCode::OK
        } else {
            StatusCode::CONFLICT
        };
        Ok(json_response(code, &json!({"said": said})))
    }

    /// Sends changes as they are read.
    async fn changes(&self, asked: ChangesOf) -> Result<Response<HttpBody>, HttpRefusal> {
        let busy = HttpRefusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many diffs are being read: try again in a moment",
        );
        let place = Arc::clone(&self.diffs)
            .try_acquire_owned()
            .map_err(|_| busy)?;
        let (lines, taken) = mpsc::channel(LINES);
        let ask = Ask::Changes(asked, lines);
        self.asks.send(ask).await.map_err(|_| ending())?;
        let lines = stream::unfold((taken, place), async |(mut taken, place)| {
            let line = taken.recv().await?;
            let frame = Ok::<_, Infallible>(Frame::data(line));
            Some((frame, (taken, place)))
        });
        Ok(response(
            StatusCode::OK,
            "application/x-ndjson",
            StreamBody::new(lines).boxed_unsync(),
        ))
    }

    /// The media type is that of the bytes: nothing else is served as an image.
    async fn image(
        &self,
        name: Name,
        place: ImagePlace,
    ) -> Result<Response<HttpBody>, HttpRefusal> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask::Image(name, place, answer);
        self.asks.send(ask).await.map_err(|_| ending())?;
        let image = answered.await.map_err(|_| ending())?.ok_or_else(missing)?;
        Ok(response(
            StatusCode::OK,
            image.kind.media_type(),
            full(image.bytes),
        ))
    }

    async fn told(
        &self,
        ask: impl FnOnce(oneshot::Sender<(bool, String)>) -> Ask,
    ) -> Result<(bool, String), HttpRefusal> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(ask(answer)).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())
    }
}

/// Returns the parts that differ from what was sent before; none if none does.
fn difference(
    sent: &mut Map<String, Value>,
    shown: Map<String, Value>,
) -> Option<Map<String, Value>> {
    let mut new = Map::new();
    for (part, value) in &shown {
        if sent.get(part) != Some(value) {
            new.insert(part.clone(), value.clone());
        }
    }
    *sent = shown;
    (!new.is_empty()).then_some(new)
}

fn missing() -> HttpRefusal {
    HttpRefusal(StatusCode::NOT_FOUND, "there is no such thing")
}

fn ending() -> HttpRefusal {
    HttpRefusal(StatusCode::SERVICE_UNAVAILABLE, "`teamctl web` is ending")
}

fn json_response(code: StatusCode, value: &Value) -> Response<HttpBody> {
    response(code, "application/json", full(value.to_string()))
}

fn full(text: impl Into<Bytes>) -> HttpBody {
    Full::new(text.into()).boxed_unsync()
}

fn response(code: StatusCode, kind: &'static str, body: HttpBody) -> Response<HttpBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    for (name, value) in HEADERS.into_iter().chain([("content-type", kind)]) {
        response.headers_mut().insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_sent_again() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let mut sent = Map::new();
        let first = map(json!({"team": "t", "members": [1]}));
        assert_eq!(difference(&mut sent, first.clone()), Some(first.clone()));
        assert_eq!(difference(&mut sent, first), None);
        let next = map(json!({"team": "t", "members": [1, 2]}));
        assert_eq!(
            difference(&mut sent, next),
            Some(map(json!({"members": [1, 2]})))
        );
    }
}
