//! Who is answered: a browser that was given the printed address. The key in it is taken off in the
//! first request, for a cookie that no script reads and no other site sends. Pure.

use hyper::header::{COOKIE, HOST, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use teamd_shared::name::Name;

use crate::web::guard::{is_same, only};

/// The name of the key in the first address.
const KEY: &str = "teamd-key";

/// How the names of our cookies begin: none of a teammate may.
pub(super) const COOKIES: &str = "teamd-port-";

/// What a request may do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is sent on.
    Passes,
    /// It has shown the key: it comes again by this address, with this cookie.
    Begins {
        /// The address without the key.
        url: String,
        /// The value of `Set-Cookie`.
        cookie: String,
    },
    /// It is refused.
    Refused(StatusCode, &'static str),
}

/// The host of one port of a teammate, and its key.
#[derive(Debug)]
pub(super) struct PortGuard {
    /// With its port, as a browser names it.
    pub(super) host: String,
    cookie: String,
    key: String,
}

impl PortGuard {
    /// Makes the host of a port that is served at another one here. `unique`: what no other host has.
    pub(super) fn new(name: &Name, port: u16, at: u16, key: &str, unique: &str) -> Self {
        // A browser takes no `_` for part of a host.
        let label = name.as_str().replace('_', "-");
        Self {
            host: format!("{label}-{port}-{unique}.localhost:{at}"),
            // Another address with the same host has another port here, and another cookie.
            cookie: format!("{COOKIES}{at}"),
            key: key.to_owned(),
        }
    }

    /// Returns the address that a person opens.
    pub(super) fn first_url(&self) -> String {
        format!("http://{}/?{KEY}={}", self.host, self.key)
    }

    /// Decides about a request.
    pub(super) fn admit(&self, head: &Parts) -> Admission {
        let named = head.uri.authority();
        let is_ours = only(&head.headers, &HOST) == Some(&self.host)
            && named.is_none_or(|named| *named.as_str() == self.host);
        if !is_ours {
            return Admission::Refused(
                StatusCode::FORBIDDEN,
                "this server has another name: use the address that `teamctl port` printed",
            );
        }
        let query = head.uri.query().unwrap_or_default();
        let given = query.split('&').find_map(key_of);
        if head.method == Method::GET
            && given.is_some_and(|given| is_same(given.as_bytes(), self.key.as_bytes()))
        {
            let rest: Vec<_> = query
                .split('&')
                .filter(|pair| key_of(pair).is_none())
                .collect();
            let query = if rest.is_empty() {
                String::new()
            } else {
                format!("?{}", rest.join("&"))
            };
            return Admission::Begins {
                url: format!("http://{}{}{query}", self.host, head.uri.path()),
                cookie: format!(
                    "{}={}; Path=/; HttpOnly; SameSite=Lax",
                    self.cookie, self.key
                ),
            };
        }
        if self.has_cookie(&head.headers) {
            Admission::Passes
        } else {
            Admission::Refused(
                StatusCode::UNAUTHORIZED,
                "open the address that `teamctl port` printed",
            )
        }
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let mut all = cookies(headers);
        all.any(|pair| {
            let value = pair.strip_prefix(self.cookie.as_bytes());
            let value = value.and_then(|rest| rest.strip_prefix(b"="));
            value.is_some_and(|value| is_same(value, self.key.as_bytes()))
        })
    }
}

fn key_of(pair: &str) -> Option<&str> {
    pair.strip_prefix(KEY)?.strip_prefix('=')
}

/// Returns the cookies of a request, each as `NAME=VALUE`. Scripts may set any bytes.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let all = headers.get_all(COOKIE).into_iter();
    all.flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn guard() -> PortGuard {
        PortGuard::new(
            &Name::new("al_ice").unwrap(),
            3000,
            4000,
            "0123456789abcdef",
            "1a2b3c4d",
        )
    }

    fn admit(line: &str, headers: &[(&str, &str)]) -> Admission {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard().admit(&request.body(()).unwrap().into_parts().0)
    }

    const HOST: (&str, &str) = ("host", "al-ice-3000-1a2b3c4d.localhost:4000");

    fn code(admission: Admission) -> u16 {
        match admission {
            Admission::Refused(code, _) => code.as_u16(),
            Admission::Passes => 200,
            Admission::Begins { .. } => 303,
        }
    }

    #[test]
    fn the_key_is_changed_for_a_cookie_that_passes() {
        let url = guard().first_url();
        assert_eq!(
            url,
            "http://al-ice-3000-1a2b3c4d.localhost:4000/?teamd-key=0123456789abcdef"
        );
        let begun = admit("GET //x?a=1&teamd-key=0123456789abcdef&b", &[HOST]);
        let cookie = "teamd-port-4000=0123456789abcdef; Path=/; HttpOnly; SameSite=Lax";
        let expected = Admission::Begins {
            url: "http://al-ice-3000-1a2b3c4d.localhost:4000//x?a=1&b".to_owned(),
            cookie: cookie.to_owned(),
        };
        assert_eq!(begun, expected);
        let sent = ("cookie", "a=b; teamd-port-4000=0123456789abcdef");
        assert_eq!(admit("POST /x", &[HOST, sent]), Admission::Passes);
        let odd = ("cookie", "x=\u{e9}; teamd-port-4000=0123456789abcdef");
        assert_eq!(admit("GET /", &[HOST, odd]), Admission::Passes);
    }

    #[test]
    fn without_the_key_or_by_another_name_nothing_is_answered() {
        let cookie = ("cookie", "teamd-port-4000=0123456789abcdef");
        for (line, headers, expected) in [
            ("GET /", &[HOST][..], 401),
            ("GET /?teamd-key=0123456789abcdeF", &[HOST], 401),
            ("GET /?teamd-key=", &[HOST], 401),
            ("POST /?teamd-key=0123456789abcdef", &[HOST], 401),
            (
                "GET /",
                &[HOST, ("cookie", "teamd-port-4001=0123456789abcdef")],
                401,
            ),
            (
                "GET /",
                &[HOST, ("cookie", "x=teamd-port-4000=0123456789abcdef")],
                401,
            ),
            ("GET /", &[("host", "127.0.0.1:4000"), cookie], 403),
            ("GET /", &[("host", "evil.example:4000"), cookie], 403),
            ("GET /", &[cookie], 403),
            ("GET /", &[HOST, HOST, cookie], 403),
            ("GET http://evil.example/", &[HOST, cookie], 403),
            (
                "GET /?teamd-key=0123456789abcdef",
                &[("host", "localhost:4000")],
                403,
            ),
        ] {
            assert_eq!(code(admit(line, headers)), expected, "{line} {headers:?}");
        }
    }
}
