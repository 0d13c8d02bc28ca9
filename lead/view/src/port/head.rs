//! The heads of requests and answers as they are sent on. The server of the teammate is asked as
//! `localhost`, and what belongs to another address here goes neither in nor out. Pure.

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, COOKIE, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, REFERER, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::guard::{COOKIES, cookies};

/// What concerns one connection alone.
const OF_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The names of both sides.
#[derive(Debug)]
pub(super) struct HostNames {
    /// As a browser names this side: host and port.
    here: String,
    /// As the server of the teammate is named.
    there: String,
}

impl HostNames {
    /// Makes the names of a port of a teammate.
    pub(super) fn new(here: &str, port: u16) -> Self {
        Self {
            here: format!("http://{here}"),
            there: format!("localhost:{port}"),
        }
    }

    /// Makes the head of a request ready for the server of the teammate.
    pub(super) fn inwards(&self, headers: &mut HeaderMap) {
        let upgrade = take_connection(headers);
        let kept: Vec<_> = cookies(headers)
            .filter(|pair| !pair.is_empty() && !pair.starts_with(COOKIES.as_bytes()))
            .collect();
        let kept = HeaderValue::from_bytes(&kept.join(&b"; "[..])).ok();
        headers.remove(COOKIE);
        if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
            headers.insert(COOKIE, kept);
        }
        headers.remove(HOST);
        if let Ok(host) = HeaderValue::from_str(&self.there) {
            headers.insert(HOST, host);
        }
        let there = format!("http://{}", self.there);
        for name in [ORIGIN, REFERER] {
            replace_beginning(headers, &name, &self.here, &there);
        }
        put_upgrade(headers, upgrade);
    }

    /// Makes the head of an answer ready for the browser.
    pub(super) fn outwards(&self, headers: &mut HeaderMap) {
        let upgrade = take_connection(headers);
        let set: Vec<_> = headers
            .get_all(SET_COOKIE)
            .into_iter()
            .filter_map(|cookie| own_cookie(cookie.as_bytes()))
            .collect();
        headers.remove(SET_COOKIE);
        for cookie in set {
            headers.append(SET_COOKIE, cookie);
        }
        let port = self.there.rsplit_once(':').map_or("", |(_, port)| port);
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let there = format!("http://{host}:{port}");
            replace_beginning(headers, &LOCATION, &there, &self.here);
        }
        put_upgrade(headers, upgrade);
    }
}

/// Takes out what concerns one connection alone; returns what it is to become, if that is asked for.
fn take_connection(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let named: Vec<_> = headers
        .get_all(CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let upgrade = headers.get(UPGRADE).cloned();
    // Anything else could speak past the rules for cookies.
    let upgrade = upgrade.filter(|protocol| {
        protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
            && named.iter().any(|name| name == "upgrade")
    });
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    for name in named {
        headers.remove(name.as_str());
    }
    upgrade
}

fn put_upgrade(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
}

/// Replaces the origin with which a header begins.
fn replace_beginning(headers: &mut HeaderMap, name: &HeaderName, before: &str, after: &str) {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    let rest = value.and_then(|value| value.strip_prefix(before));
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    let replaced = rest.and_then(|rest| HeaderValue::from_str(&format!("{after}{rest}")).ok());
    if let Some(replaced) = replaced {
        headers.insert(name, replaced);
    }
}

/// Makes a cookie one of this host alone; none if it has the name of one of ours.
fn own_cookie(cookie: &[u8]) -> Option<HeaderValue> {
    if cookie.trim_ascii_start().starts_with(COOKIES.as_bytes()) {
        return None;
    }
    let kept: Vec<_> = cookie
        .split(|byte| *byte == b';')
        .filter(|part| {
            let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
            !name.trim_ascii().eq_ignore_ascii_case(b"domain")
        })
        .collect();
    HeaderValue::from_bytes(&kept.join(&b";"[..])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut shown: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        shown.sort();
        shown
    }

    fn names() -> HostNames {
        HostNames::new("alice-3000.localhost:4000", 3000)
    }

    #[test]
    fn neither_our_cookie_nor_our_name_goes_in() {
        let mut sent = headers(&[
            ("host", "alice-3000.localhost:4000"),
            ("origin", "http://alice-3000.localhost:4000"),
            ("referer", "http://alice-3000.localhost:4000/a?b"),
            ("cookie", "sid=1; teamd-port-4000=key"),
            ("cookie", "teamd-port-4001=key"),
            ("connection", "keep-alive, x-hop, Upgrade"),
            ("x-hop", "1"),
            ("upgrade", "websocket"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ]);
        names().inwards(&mut sent);
        let expected = [
            "accept: */*",
            "connection: upgrade",
            "cookie: sid=1",
            "host: localhost:3000",
            "origin: http://localhost:3000",
            "referer: http://localhost:3000/a?b",
            "upgrade: websocket",
        ];
        assert_eq!(shown(&sent), expected);
        let mut foreign = headers(&[
            ("origin", "http://alice-3000.localhost:40001"),
            ("cookie", "teamd-port-4000=key"),
        ]);
        names().inwards(&mut foreign);
        let expected = [
            "host: localhost:3000",
            "origin: http://alice-3000.localhost:40001",
        ];
        assert_eq!(shown(&foreign), expected);
    }

    #[test]
    fn a_cookie_goes_out_for_this_host_alone() {
        let mut answered = headers(&[
            ("set-cookie", "sid=1; Domain=localhost; Path=/; HttpOnly"),
            ("set-cookie", "b=2;domain=.localhost"),
            ("set-cookie", " teamd-port-4000=mine"),
            ("location", "http://127.0.0.1:3000/login"),
            ("transfer-encoding", "chunked"),
        ]);
        names().outwards(&mut answered);
        let expected = [
            "location: http://alice-3000.localhost:4000/login",
            "set-cookie: b=2",
            "set-cookie: sid=1; Path=/; HttpOnly",
        ];
        assert_eq!(shown(&answered), expected);
        let mut elsewhere = headers(&[("location", "http://localhost:30001/")]);
        names().outwards(&mut elsewhere);
        assert_eq!(shown(&elsewhere), ["location: http://localhost:30001/"]);
    }
}
