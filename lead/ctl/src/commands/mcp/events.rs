//! What came for the lead after a cursor, as the lead agent reads it. A cursor is a place in the
//! lead's inbox: nothing is consumed, and each lead has its own.

use std::time::Duration;

use teamd_client::context::{Context, block_on};
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::lead_mail::{self, LeadMail};
use teamd_client::read::wake::Wake;
use teamd_shared::message_text::show;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// How much is shown at a time, in characters; one message may be longer.
const MOST: usize = 60_000;

/// What came after a cursor.
pub(crate) struct EventPage {
    /// As the lead reads it; the last line has the next cursor.
    pub(crate) text: String,
    /// Whether there is anything.
    pub(crate) has_any: bool,
    /// The next cursor.
    pub(crate) next: u64,
}

/// Shows what came after a cursor.
///
/// # Errors
/// If the cursor is none, or the inbox cannot be read.
pub(crate) fn since(dir: &TeamDir, cursor: u64) -> Result<EventPage, CommandError> {
    let mail = read(dir, cursor)?;
    let mut lines = Vec::new();
    if mail.was_replaced {
        lines.push("the inbox of the lead was replaced: this is all that it holds".to_owned());
    }
    let mut next = mail.end;
    let mut has_more = mail.has_more;
    let mut length = 0;
    let mut has_any = false;
    for placed in &mail.messages {
        let Some(text) = show(&placed.message, &Name::lead()) else {
            continue;
        };
        length += text.len();
        if length > MOST && !lines.is_empty() {
            has_more = true;
            break;
        }
        lines.push(text);
        next = placed.end;
        has_any = true;
    }
    if has_more {
        lines.push("more has come: name this cursor in the next call".to_owned());
    } else {
        next = mail.end;
    }
    lines.push(format!("cursor: {next}"));
    Ok(EventPage {
        text: lines.join("\n"),
        has_any,
        next,
    })
}

/// Waits until something for the lead comes after a cursor, or the time is over.
///
/// # Errors
/// As [`since`].
pub(super) fn wait(
    context: &Context,
    dir: &TeamDir,
    cursor: u64,
    time: Duration,
) -> Result<(), CommandError> {
    block_on(async {
        match tokio::time::timeout(time, until_any(context, dir, cursor)).await {
            Ok(result) => result,
            Err(_) => Ok(()),
        }
    })
}

/// Waits until something for the lead comes after a cursor.
///
/// # Errors
/// As [`since`].
pub(crate) async fn until_any(
    context: &Context,
    dir: &TeamDir,
    cursor: u64,
) -> Result<(), CommandError> {
    let mut inbox = Wake::new(dir, &TeamPath::inbox(&Name::lead()), context.settings.poll);
    let mut place = cursor;
    let coming = inbox.until(|| {
        let mail = read(dir, place)?;
        let is_there = mail
            .messages
            .iter()
            .any(|placed| show(&placed.message, &Name::lead()).is_some());
        place = mail.end;
        Ok::<_, CommandError>(is_there.then_some(()))
    });
    coming.await
}

fn read(dir: &TeamDir, cursor: u64) -> Result<LeadMail, CommandError> {
    lead_mail::since(dir, cursor).map_err(|error| {
        if error.code() == ExitCode::Usage {
            let message = format!("{cursor} is no cursor that a result gave");
            CommandError::new(ExitCode::Usage, message).hint("leave it out")
        } else {
            error
        }
    })
}
