//! How single values of the command line are read.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use teamd_shared::amount::parse_duration;
use teamd_shared::clock::wall;
use teamd_shared::host::can_be_host;
use teamd_shared::message::{LEAD, TEAMD, USER};
use teamd_shared::name::{Name, NameError};
use teamd_shared::schema::Of;

use crate::print::clock;

/// The receiver of a message, or the owner of the messages to show: `user` shares the inbox of the
/// lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxName {
    /// The name as it is in `to`.
    pub to: String,
    /// The owner of that inbox.
    pub owner: Name,
}

/// How often a service is asked at most.
const SHORTEST_PACE: Duration = Duration::from_secs(5);

/// Reads the name of a teammate that is to be spawned.
pub(super) fn teammate(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| {
        if text == LEAD {
            format!("{error}: `teamctl chat` starts the lead agent")
        } else {
            error.to_string()
        }
    })
}

/// Reads the name of a host.
pub(super) fn host(text: &str) -> Result<Name, String> {
    let name = Name::new(text).map_err(|error| error.to_string())?;
    can_be_host(&name)?;
    Ok(name)
}

/// Reads the receiver of a message, or the owner of the messages to show.
pub(super) fn mailbox(text: &str) -> Result<MailboxName, NameError> {
    let owner = if text == USER {
        Name::lead()
    } else {
        Name::of_inbox(text)?
    };
    Ok(MailboxName {
        to: text.to_owned(),
        owner,
    })
}

/// Reads the owner of a log: a member, the lead agent, or the daemon.
pub(super) fn log_name(text: &str) -> Result<String, NameError> {
    if text == TEAMD {
        Ok(text.to_owned())
    } else {
        Ok(Name::of_inbox(text)?.to_string())
    }
}

/// Reads the SHA-256 of a text.
pub(super) fn sha256(text: &str) -> Result<String, &'static str> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("a SHA-256 has 64 hex digits: `teamctl plans --json` shows it")
}

/// Reads how often something is asked of a service: not more often than is polite.
pub(super) fn pace(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time < SHORTEST_PACE {
        return Err(format!("it is at least {}s", SHORTEST_PACE.as_secs()));
    }
    Ok(time)
}

/// Reads a time.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text)
}

/// Reads a time in the past, in seconds since 1970: a duration, a time of today or a date, as the
/// user's clock shows it.
pub(super) fn past(text: &str) -> Result<f64, &'static str> {
    if let Ok(duration) = parse_duration(text) {
        return Ok(wall() - duration.as_secs_f64());
    }
    clock::parse(text).ok_or("a time (14:05, 2026-11-23 14:05) or a duration (10m) is expected")
}

/// Reads what there is a schema of; a shell completes it.
pub(super) fn schema() -> impl TypedValueParser<Value = Of> {
    PossibleValuesParser::new(Of::all().map(Of::as_str)).try_map(|given| {
        Of::all()
            .find(|of| of.as_str() == given)
            .ok_or("not one of the possible values")
    })
}
