//! The machine that `-H` names, and the directory there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::builder::{OsStringValueParser, TypedValueParser};

/// The beginning of an address with a port.
const SCHEME: &[u8] = b"ssh://";

/// What no name of a machine or user has: a shell or `ssh` itself would read something else in it,
/// also where the configuration of the person puts the name into a command (`ProxyCommand`, `%h`).
const UNSAFE: &[u8] = b"'\"`$;&<>|(){}[]*?!#~^=,/";

/// A machine that `ssh` reaches, and a directory there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// What `ssh` is given: a machine, or a user and a machine.
    pub destination: String,
    /// The port, if it is named.
    pub port: Option<u16>,
    /// The directory there: if it is relative, it counts from the home. None is the home itself.
    pub dir: Option<OsString>,
}

/// Reads `[USER@]HOST[:DIR]`, as `scp` and `rsync` do, or `ssh://[USER@]HOST[:PORT][/DIR]`.
pub(super) fn at() -> impl TypedValueParser<Value = At> {
    OsStringValueParser::new().try_map(|text| At::read(&text))
}

impl At {
    /// Reads what `-H` is given.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &OsStr) -> Result<Self, String> {
        match text.as_bytes().strip_prefix(SCHEME) {
            Some(address) => Self::of_address(address),
            None => Self::of_words(text.as_bytes()),
        }
    }

    fn of_words(text: &[u8]) -> Result<Self, String> {
        let (user, rest) = split_user(text);
        let (host, rest) = split_host(rest)?;
        let dir = match rest.strip_prefix(b":") {
            Some(dir) if dir.starts_with(b":") => {
                return Err("an address with colons stands in brackets: [::1]:DIR".to_owned());
            }
            Some(dir) => Some(dir),
            None if rest.is_empty() => None,
            None => return Err("behind ] stands :DIR, or nothing".to_owned()),
        };
        Ok(Self {
            destination: destination(user, host)?,
            port: None,
            dir: dir.and_then(directory),
        })
    }

    /// As `git` reads such an address: behind the first slash is an absolute path, or `~/` and one
    /// that counts from the home.
    fn of_address(address: &[u8]) -> Result<Self, String> {
        let slash = address.iter().position(|byte| *byte == b'/');
        let (machine, path) = address.split_at(slash.unwrap_or(address.len()));
        let (user, rest) = split_user(machine);
        let (host, rest) = split_host(rest)?;
        let port = match rest.strip_prefix(b":") {
            Some(port) => Some(read_port(port)?),
            None if rest.is_empty() => None,
            None => return Err("behind ] stands :PORT, or nothing".to_owned()),
        };
        let dir = match path {
            b"" | b"/" => None,
            path if path.starts_with(b"/~") => directory(&path[1..]),
            path => directory(path),
        };
        Ok(Self {
            destination: destination(user, host)?,
            port,
            dir,
        })
    }
}

/// Splits off the user, before the last `@` of what names the machine.
fn split_user(text: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let machine = text.iter().position(|byte| *byte == b':');
    let machine = &text[..machine.unwrap_or(text.len())];
    match machine.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (Some(&text[..at]), &text[at + 1..]),
        None => (None, text),
    }
}

/// Splits off the name of the machine: what is before the colon, or in brackets.
fn split_host(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    if let Some(inside) = text.strip_prefix(b"[") {
        let end = inside.iter().position(|byte| *byte == b']');
        let end = end.ok_or("a ] is missing")?;
        return Ok((&inside[..end], &inside[end + 1..]));
    }
    let end = text.iter().position(|byte| *byte == b':');
    Ok(text.split_at(end.unwrap_or(text.len())))
}

fn read_port(port: &[u8]) -> Result<u16, String> {
    let port = std::str::from_utf8(port).ok();
    let port = port.and_then(|port| port.parse().ok());
    port.filter(|port| *port > 0)
        .ok_or_else(|| "behind the colon of ssh://HOST:PORT stands a number".to_owned())
}

/// Returns what `ssh` is given. It never begins as an option does.
fn destination(user: Option<&[u8]>, host: &[u8]) -> Result<String, String> {
    let host = word(host, "HOST", false)?;
    let Some(user) = user else {
        return Ok(host.to_owned());
    };
    // A user of a Windows domain is DOMAIN\user.
    let user = word(user, "USER", true)?;
    Ok(format!("{user}@{host}"))
}

/// Reads a name of which `ssh`, its configuration and a shell make nothing else.
fn word<'a>(text: &'a [u8], what: &str, may_have_domain: bool) -> Result<&'a str, String> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(format!("{what} is no UTF-8 text"));
    };
    if text.is_empty() {
        return Err(format!("{what} is empty: USER@HOST:DIR is expected"));
    }
    if text.starts_with('-') {
        return Err(format!("{what} begins with a hyphen"));
    }
    let is_bad = |c: &char| {
        c.is_control()
            || c.is_whitespace()
            || (*c == '\\' && !may_have_domain)
            || u8::try_from(*c).is_ok_and(|byte| UNSAFE.contains(&byte))
    };
    if let Some(bad) = text.chars().find(is_bad) {
        return Err(format!("{what} has the character {bad:?}"));
    }
    if text.ends_with('\\') {
        return Err(format!("{what} ends with a backslash"));
    }
    Ok(text)
}

/// Returns the directory; none is the home. `~/DIR` is below the home, as DIR alone is.
fn directory(path: &[u8]) -> Option<OsString> {
    let below = match path {
        b"~" => b"",
        path => path.strip_prefix(b"~/").unwrap_or(path),
    };
    (!below.is_empty()).then(|| OsString::from_vec(below.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<At, String> {
        At::read(OsStr::new(text))
    }

    fn is(destination: &str, port: Option<u16>, dir: Option<&str>) -> Result<At, String> {
        Ok(At {
            destination: destination.to_owned(),
            port,
            dir: dir.map(OsString::from),
        })
    }

    #[test]
    fn a_machine_is_named_as_for_scp_or_as_an_address() {
        for (text, expected) in [
            ("box", is("box", None, None)),
            ("u@box", is("u@box", None, None)),
            ("box:", is("box", None, None)),
            ("box:~", is("box", None, None)),
            ("box:~/web", is("box", None, Some("web"))),
            ("u@box:web/a b", is("u@box", None, Some("web/a b"))),
            ("box:/srv/web", is("box", None, Some("/srv/web"))),
            ("box:a@b:c", is("box", None, Some("a@b:c"))),
            ("box:-x", is("box", None, Some("-x"))),
            ("box:2222", is("box", None, Some("2222"))),
            (
                "u@[fe80::1%eth0]:web",
                is("u@fe80::1%eth0", None, Some("web")),
            ),
            ("[::1]", is("::1", None, None)),
            ("DOM\\u@box", is("DOM\\u@box", None, None)),
            // As `ssh` does: the last @ divides.
            ("a@b@box", is("a@b@box", None, None)),
            ("ssh://u@box:2222", is("u@box", Some(2222), None)),
            ("ssh://box/", is("box", None, None)),
            ("ssh://box/srv/web", is("box", None, Some("/srv/web"))),
            ("ssh://[::1]:22/~/web", is("::1", Some(22), Some("web"))),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_name_is_never_an_option_or_a_piece_of_a_command() {
        for text in [
            "",
            "@box",
            "u@",
            ":dir",
            "-oProxyCommand=x",
            "u@-x",
            "-l@box",
            "a b",
            "u@a\tb",
            "box\n",
            "box;id",
            "$(id)",
            "`id`",
            "a'b",
            "a\"b",
            "a|b",
            "u\\@box",
            "a\\b",
            "::1",
            "fe80::1",
            "[::1",
            "[::1]x",
            "\u{1b}[2J",
            "ssh://",
            "ssh://-x",
            "ssh://box:",
            "ssh://box:0",
            "ssh://box:99999",
            "ssh://box:22x/",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert!(At::read(OsStr::from_bytes(b"bo\xffx")).is_err());
        let dir = At::read(OsStr::from_bytes(b"box:\xff")).unwrap().dir;
        assert_eq!(dir, Some(OsString::from_vec(b"\xff".to_vec())));
    }
}
