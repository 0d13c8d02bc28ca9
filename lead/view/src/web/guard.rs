//! Which requests of HTTP are answered. Pure.
//!
//! Any process and any web page can send a request to a port of 127.0.0.1. So each must name this
//! server (against DNS rebinding), must not come from another site, and needs the key for all that
//! tells of the team or changes it. The key is in no cookie: a browser sends a cookie to every port
//! of a host, so a server that a teammate runs would receive it.

use std::hint::black_box;

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;

use super::order;
use super::page::{self, Asset};
use crate::model::ImagePlace;

/// The longest text that is looked for, in bytes.
const LONGEST: usize = 400;

/// The header in which a browser says where a request comes from.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What this server is.
#[derive(Debug)]
pub(super) struct Guard {
    /// The port by which it is asked: its own, or the one that is forwarded to it.
    pub(super) port: u16,
    pub(super) key: String,
    pub(super) is_read_only: bool,
    pub(super) has_metrics: bool,
}

/// A view of the team.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PageView {
    Overview,
    /// With what only says how the team runs.
    OverviewOfAll,
    Requests,
    /// With the tasks that have this text.
    Board(String),
    Conversation(Name),
    /// What comes before a place in the transcript of an agent.
    Earlier(Name, u64),
    /// With so many of the last events and so many lifelines, of the last so many seconds.
    Sequence((usize, usize), Option<u32>),
    /// So many seconds, which end at a time (in seconds since 1970), or now.
    Timeline(u32, Option<u32>),
    Cost,
    Task(TaskId),
    Teammate(Name),
    Request(RequestId),
    Metrics,
}

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Route {
    /// A file of the page.
    Asset(&'static Asset),
    /// A view, once.
    Once(PageView),
    /// A view, and each change of it.
    Stream(PageView),
    /// An order of this kind: the rest of it is in the body.
    Act(&'static str),
    /// What a teammate, or the submission of a task, has changed.
    Changes(ChangesOf),
    /// An image in the conversation of an agent.
    Image(Name, ImagePlace),
}

/// What changes are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangesOf {
    /// A task, or a teammate.
    pub(super) of: String,
    /// Only what is new since the last submission.
    pub(super) is_since: bool,
}

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpRefusal(pub(super) StatusCode, pub(super) &'static str);

impl Guard {
    /// Finds what is asked for.
    ///
    /// # Errors
    /// [`HttpRefusal`] if it is not to be had.
    pub(super) fn check(&self, head: &Parts) -> Result<Route, HttpRefusal> {
        let host = self.host(head)?;
        from_here(&head.headers, host, &head.method)?;
        let path = head.uri.path();
        let is_post = match head.method {
            Method::GET => false,
            Method::POST => true,
            _ => {
                return Err(HttpRefusal(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "only GET and POST",
                ));
            }
        };
        if !is_post && let Some(asset) = page::find(path) {
            return Ok(Route::Asset(asset));
        }
        if !is_post && path == "/metrics" && self.has_metrics {
            return Ok(Route::Once(PageView::Metrics));
        }
        if !self.has_key(&head.headers) {
            return Err(HttpRefusal(
                StatusCode::UNAUTHORIZED,
                "open the address that `teamctl web` printed",
            ));
        }
        if is_post && self.is_read_only {
            return Err(HttpRefusal(
                StatusCode::FORBIDDEN,
                "this page only shows the team (--read-only)",
            ));
        }
        if is_post && only(&head.headers, &CONTENT_TYPE) != Some("application/json") {
            return Err(HttpRefusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body must be application/json",
            ));
        }
        let query = head.uri.query().unwrap_or_default();
        let route = match (is_post, path) {
            (false, "/view") => view(query).map(Route::Once),
            (false, "/events") => view(query).map(Route::Stream),
            (false, "/diff") => changed(query).map(Route::Changes),
            (false, "/image") => image(query),
            (true, _) => ordered(path).map(Route::Act),
            _ => None,
        };
        route.ok_or(HttpRefusal(StatusCode::NOT_FOUND, "there is no such thing"))
    }

    /// Returns the name by which this server was asked.
    fn host<'h>(&self, head: &'h Parts) -> Result<&'h str, HttpRefusal> {
        let is_ours = |host: &&str| {
            ["127.0.0.1", "localhost"]
                .iter()
                .any(|it| format!("{it}:{}", self.port) == **host)
        };
        let other = HttpRefusal(
            StatusCode::FORBIDDEN,
            "this server has another name: use the printed address",
        );
        let named = head
            .uri
            .authority()
            .is_none_or(|authority| is_ours(&authority.as_str()));
        let host = only(&head.headers, &HOST).filter(is_ours);
        if named { host.ok_or(other) } else { Err(other) }
    }

    /// Tells whether a request has the key.
    pub(super) fn has_key(&self, headers: &HeaderMap) -> bool {
        let given = only(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        given.is_some_and(|given| is_same(given.as_bytes(), self.key.as_bytes()))
    }
}

/// Refuses what a page of another site, or of another port, has a browser send. A browser names the
/// origin of each POST.
fn from_here(headers: &HeaderMap, host: &str, method: &Method) -> Result<(), HttpRefusal> {
    let origin = only(headers, &ORIGIN);
    let is_ours = match (headers.contains_key(ORIGIN), origin) {
        (true, origin) => origin.and_then(|it| it.strip_prefix("http://")) == Some(host),
        (false, _) => *method != Method::POST,
    };
    let is_near =
        !headers.contains_key(SITE) || matches!(only(headers, &SITE), Some("same-origin" | "none"));
    if is_ours && is_near {
        Ok(())
    } else {
        Err(HttpRefusal(
            StatusCode::FORBIDDEN,
            "the request comes from another site",
        ))
    }
}

/// Returns a header that is there once.
pub(crate) fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Compares in a time that does not tell how much of it is right.
pub(crate) fn is_same(given: &[u8], key: &[u8]) -> bool {
    let differ = given
        .iter()
        .zip(key)
        .fold(0, |differ, (a, b)| black_box(differ | (a ^ b)));
    given.len() == key.len() && differ == 0
}

fn view(query: &str) -> Option<PageView> {
    Some(match value(query, "view")? {
        "overview" if value(query, "news") == Some("all") => PageView::OverviewOfAll,
        "overview" => PageView::Overview,
        "requests" => PageView::Requests,
        "board" => PageView::Board(text(query, "find")?),
        "conversation" => PageView::Conversation(Name::of_inbox(value(query, "name")?).ok()?),
        "earlier" => PageView::Earlier(
            Name::of_inbox(value(query, "name")?).ok()?,
            value(query, "before")?.parse().ok()?,
        ),
        "sequence" => PageView::Sequence(
            (
                value(query, "last")?.parse().ok()?,
                value(query, "lifelines")?.parse().ok()?,
            ),
            seconds(query, "seconds"),
        ),
        "timeline" => PageView::Timeline(seconds(query, "seconds")?, seconds(query, "until")),
        "cost" => PageView::Cost,
        "task" => PageView::Task(value(query, "id")?.parse().ok()?),
        "teammate" => PageView::Teammate(Name::of_inbox(value(query, "name")?).ok()?),
        "request" => PageView::Request(RequestId::new(value(query, "id")?).ok()?),
        _ => return None,
    })
}

/// Returns the kind of order that is sent to a path.
fn ordered(path: &str) -> Option<&'static str> {
    let kind = path.strip_prefix('/')?;
    order::KINDS.into_iter().find(|it| *it == kind)
}

/// Returns of whom, or of which task, the changes are asked for.
fn changed(query: &str) -> Option<ChangesOf> {
    let of = value(query, "of")?;
    let is_known = of.parse::<TaskId>().is_ok() || Name::of_inbox(of).is_ok();
    is_known.then(|| ChangesOf {
        of: of.to_owned(),
        is_since: value(query, "since") == Some("1"),
    })
}

/// Returns which image is asked for. Its place is that of the part of the conversation in which it
/// stands.
fn image(query: &str) -> Option<Route> {
    let name = Name::of_inbox(value(query, "name")?).ok()?;
    let (file, rest) = value(query, "at")?.split_once('-')?;
    let (offset, _) = rest.split_once('-')?;
    let place = ImagePlace {
        file: file.parse().ok()?,
        offset: offset.parse().ok()?,
        number: value(query, "number")?.parse().ok()?,
    };
    Some(Route::Image(name, place))
}

/// Returns the value of a name in a query.
fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Returns a text that a person typed; a blank one if there is none.
fn text(query: &str, name: &str) -> Option<String> {
    let typed = value(query, name).unwrap_or_default();
    let typed = percent_decode_str(typed).decode_utf8().ok()?;
    (typed.len() <= LONGEST).then(|| typed.into_owned())
}

fn seconds(query: &str, name: &str) -> Option<u32> {
    value(query, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const KEY: &str = "0123456789abcdef";

    fn guard() -> Guard {
        Guard {
            port: 8080,
            key: KEY.to_owned(),
            is_read_only: false,
            has_metrics: false,
        }
    }

    /// Asks with the headers of a browser that has the key; an empty value leaves one out.
    fn ask(guard: &Guard, line: &str, changed: &[(&str, &str)]) -> Result<Route, u16> {
        let (method, uri) = line.split_once(' ').unwrap();
        let bearer = format!("Bearer {KEY}");
        let usual = [
            ("host", "127.0.0.1:8080"),
            ("origin", "http://127.0.0.1:8080"),
            ("sec-fetch-site", "same-origin"),
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let kept = usual
            .iter()
            .filter(|(name, _)| !changed.iter().any(|(other, _)| other == name));
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in kept.chain(changed).filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        guard
            .check(&request.body(()).unwrap().into_parts().0)
            .map_err(|refusal| refusal.0.as_u16())
    }

    #[test]
    fn a_browser_with_the_key_is_answered() {
        let guard = guard();
        assert_eq!(
            ask(&guard, "GET /events?view=overview", &[]),
            Ok(Route::Stream(PageView::Overview))
        );
        assert_eq!(
            ask(&guard, "GET /view?view=task&id=7", &[]),
            Ok(Route::Once(PageView::Task(7)))
        );
        let found = "GET /view?view=board&find=na%C3%AFve%20%26%201";
        assert_eq!(
            ask(&guard, found, &[]),
            Ok(Route::Once(PageView::Board("naïve & 1".to_owned())))
        );
        let window = "GET /view?view=timeline&seconds=60&until=99";
        assert_eq!(
            ask(&guard, window, &[]),
            Ok(Route::Once(PageView::Timeline(60, Some(99))))
        );
        for kind in order::KINDS {
            assert_eq!(
                ask(&guard, &format!("POST /{kind}"), &[]),
                Ok(Route::Act(kind))
            );
        }
        assert_eq!(
            ask(&guard, "GET /diff?of=7&since=1", &[]),
            Ok(Route::Changes(ChangesOf {
                of: "7".to_owned(),
                is_since: true
            }))
        );
        let place = ImagePlace {
            file: 5,
            offset: 70,
            number: 1,
        };
        assert_eq!(
            ask(&guard, "GET /image?name=ana&at=5-70-0&number=1", &[]),
            Ok(Route::Image(Name::new("ana").unwrap(), place))
        );
        let by_name = [
            ("host", "localhost:8080"),
            ("origin", "http://localhost:8080"),
        ];
        assert_eq!(ask(&guard, "POST /send", &by_name), Ok(Route::Act("send")));
        // The page itself reveals nothing.
        let bare = [
            ("authorization", ""),
            ("origin", ""),
            ("sec-fetch-site", "none"),
        ];
        assert!(matches!(ask(&guard, "GET /", &bare), Ok(Route::Asset(_))));
    }

    #[test]
    fn each_attack_is_refused() {
        let guard = guard();
        let get = "GET /view?view=overview";
        let post = "POST /answer";
        let cookie: &[(&str, &str)] = &[("authorization", ""), ("cookie", "key=0123456789abcdef")];
        for (line, changed, code) in [
            (get, &[("authorization", "")][..], 401),
            (get, &[("authorization", "Bearer 0123456789abcdeF")], 401),
            (get, &[("authorization", "Bearer 0123456789abcde")], 401),
            (get, &[("authorization", "Bearer ")], 401),
            (get, &[("authorization", "0123456789abcdef")], 401),
            (get, cookie, 401),
            (
                "GET /view?view=overview&key=0123456789abcdef",
                &[("authorization", "")],
                401,
            ),
            ("GET /metrics", &[("authorization", "")], 401),
            (get, &[("host", "evil.example:8080")], 403),
            (get, &[("host", "127.0.0.1:8081")], 403),
            (get, &[("host", "127.0.0.1")], 403),
            (get, &[("host", "")], 403),
            ("GET /", &[("host", "evil.example:8080")], 403),
            ("GET http://evil.example/view?view=overview", &[], 403),
            (get, &[("origin", "http://evil.example")], 403),
            (get, &[("origin", "http://127.0.0.1:9000")], 403),
            (get, &[("origin", "null")], 403),
            (get, &[("sec-fetch-site", "cross-site")], 403),
            (get, &[("sec-fetch-site", "same-site")], 403),
            (post, &[("origin", "")], 403),
            (post, &[("origin", "http://127.0.0.1:9000")], 403),
            (post, &[("content-type", "text/plain")], 415),
            (post, &[("content-type", "")], 415),
            ("PUT /answer", &[], 405),
            ("OPTIONS /answer", &[], 405),
            ("GET /answer", &[], 404),
            ("POST /view?view=overview", &[], 404),
            ("POST /forget", &[], 404),
            ("POST /", &[], 404),
            ("POST /spawn", &[("authorization", "")], 401),
            ("POST /spawn", &[("origin", "null")], 403),
            ("GET /diff?of=7", &[("authorization", "")], 401),
            ("GET /diff?of=--help", &[], 404),
            ("GET /diff?of=../x", &[], 404),
            (
                "GET /image?name=ana&at=5-70-0&number=1",
                &[("authorization", "")],
                401,
            ),
            ("GET /image?name=../x&at=5-70-0&number=1", &[], 404),
            ("GET /image?name=ana&at=../x&number=1", &[], 404),
            ("GET /image?name=ana&at=5--1-0&number=1", &[], 404),
            ("GET /view?view=conversation&name=../../config", &[], 404),
            ("GET /view?view=task&id=-1", &[], 404),
            ("GET /view?view=board&find=%ff", &[], 404),
            ("GET /view?view=teammate&name=../x", &[], 404),
            ("GET /view?view=request&id=../x", &[], 404),
            (
                "GET /view?view=earlier&name=../../config&before=9",
                &[],
                404,
            ),
            ("GET /view?view=earlier&name=ana&before=-9", &[], 404),
            ("GET /view?view=timeline&seconds=1e9", &[], 404),
            ("GET /../../config.json", &[], 404),
        ] {
            assert_eq!(ask(&guard, line, changed), Err(code), "{line} {changed:?}");
        }
        let twice = [("host", "127.0.0.1:8080"), ("host", "evil.example:8080")];
        assert_eq!(ask(&guard, get, &twice), Err(403));
    }

    #[test]
    fn read_only_refuses_each_action() {
        let guard = Guard {
            is_read_only: true,
            has_metrics: true,
            ..guard()
        };
        for kind in order::KINDS.into_iter().chain(["no-such"]) {
            assert_eq!(ask(&guard, &format!("POST /{kind}"), &[]), Err(403));
        }
        let bare = [("authorization", "")];
        assert_eq!(
            ask(&guard, "GET /metrics", &bare),
            Ok(Route::Once(PageView::Metrics))
        );
    }
}
