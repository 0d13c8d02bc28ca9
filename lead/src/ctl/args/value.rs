//! How single values of the command line are read.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use teamd_shared::amount::{parse_count, parse_duration, parse_memory, parse_seconds};
use teamd_shared::member::{ApproveBy, Restart, SandboxMode, Status};
use teamd_shared::message::{LEAD, TEAMD, USER};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::{Name, NameError};
use teamd_shared::schema::Of;

const STATUSES: [Status; 8] = [
    Status::Starting,
    Status::Idle,
    Status::Working,
    Status::AwaitingApproval,
    Status::ShuttingDown,
    Status::Shutdown,
    Status::Killed,
    Status::Crashed,
];

/// Whom a message can be sent to, or whose messages can be shown: `user` shares the inbox of the lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mailbox {
    /// The name as it stands in `to`.
    pub(crate) to: String,
    /// Whose inbox it is.
    pub(crate) owner: Name,
}

/// Whose log: a member's, the lead's, or the daemon's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogName(pub(crate) String);

/// Reads the name of a teammate to be.
pub(super) fn teammate(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| match text == LEAD {
        true => format!("{error}: `teamctl chat` starts the lead agent"),
        false => error.to_string(),
    })
}

/// Reads whom a message is for, or whose messages are meant.
pub(super) fn mailbox(text: &str) -> Result<Mailbox, NameError> {
    let owner = if text == USER { Name::lead() } else { Name::of_inbox(text)? };
    Ok(Mailbox { to: text.to_owned(), owner })
}

/// Reads whose log is meant.
pub(super) fn log_name(text: &str) -> Result<LogName, NameError> {
    if text != TEAMD {
        Name::of_inbox(text)?;
    }
    Ok(LogName(text.to_owned()))
}

/// Reads a time.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("expected a time such as 500ms, 30s, 2m or 1h")
}

/// Reads a model.
pub(super) fn model(text: &str) -> Result<ModelSpec, String> {
    text.parse().map_err(|error: teamd_shared::model_spec::UnknownModel| format!("{error}: {}", error.hint()))
}

/// Reads a number of tokens.
pub(super) fn tokens(text: &str) -> Result<u64, &'static str> {
    parse_count(text).filter(|&count| count > 0).ok_or("expected a number above 0, such as 50000, 200k or 2M")
}

/// Reads a bound of memory, in bytes.
pub(super) fn memory(text: &str) -> Result<u64, &'static str> {
    parse_memory(text).ok_or("expected a size of at least 64M, such as 512M or 2G")
}

/// Reads a bound of time, in seconds.
pub(super) fn seconds(text: &str) -> Result<u64, &'static str> {
    parse_seconds(text).ok_or("expected a time above 0, such as 30s, 10m or 8h")
}

/// Reads what commands may write; a shell completes it.
pub(super) fn sandbox() -> impl TypedValueParser<Value = SandboxMode> {
    one_of(&[
        ("workspace-write", SandboxMode::WorkspaceWrite),
        ("read-only", SandboxMode::ReadOnly),
        ("off", SandboxMode::Off),
    ])
}

/// Reads a status; a shell completes it.
pub(super) fn status() -> impl TypedValueParser<Value = Status> {
    PossibleValuesParser::new(STATUSES.map(Status::as_str)).try_map(|text| text.parse::<Status>())
}

/// Reads who answers plans; a shell completes it.
pub(super) fn approve_by() -> impl TypedValueParser<Value = ApproveBy> {
    one_of(&[("person", ApproveBy::Person), ("lead", ApproveBy::Lead)])
}

/// Reads when a worker is started again; a shell completes it.
pub(super) fn restart() -> impl TypedValueParser<Value = Restart> {
    one_of(&[("never", Restart::Never), ("on-failure", Restart::OnFailure)])
}

/// Reads what there is a schema of; a shell completes it.
pub(super) fn schema() -> impl TypedValueParser<Value = Of> {
    PossibleValuesParser::new(Of::all().map(Of::as_str))
        .try_map(|given| Of::all().find(|of| of.as_str() == given).ok_or("not one of the possible values"))
}

fn one_of<T: Copy + Send + Sync>(values: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.iter().map(|(text, _)| *text)).try_map(move |given| {
        let value = values.iter().find(|(text, _)| *text == given);
        value.map(|(_, value)| *value).ok_or("not one of the possible values")
    })
}
