//! `send_message`: a line in another member's inbox, if the roster knows that member and it runs.

use teamd_shared::config::{ConfigError, Roster, RosterMember};
use teamd_shared::inbox::{self, ReadError};
use teamd_shared::message::{ALL, Body, LEAD, USER};
use teamd_shared::name::Name;
use uuid::Uuid;

use super::Outcome;
use crate::outbox::{Outbox, explained};

/// What a call sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter<'a> {
    /// The id of each of its lines, which the transcript holds: a call that is repeated after a crash sends no second message.
    pub(crate) id: Uuid,
    /// Whether an earlier life may have begun this call. A reader drops a second line only if the same life read the first.
    pub(crate) repeated: bool,
    /// The text.
    pub(crate) content: &'a str,
}

/// What a line has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivered {
    /// It was appended.
    Now,
    /// It stands there from before the worker was restarted.
    Before,
}

/// Sends a message to one member, to the lead or the user, or (`all`) to everybody who runs.
pub(crate) async fn send_message(outbox: &Outbox, to: &str, letter: Letter<'_>) -> Outcome {
    let sent = match to {
        own if own == outbox.from().as_str() => {
            Err("a message to yourself goes nowhere: you have its text".to_owned())
        }
        LEAD | USER => deliver(outbox, to, &Name::lead(), letter).map(|delivered| sent_to(to, delivered)),
        ALL => broadcast(outbox, letter).await,
        other => to_member(outbox, other, letter),
    };
    sent.map_or_else(Outcome::error, Outcome::ok)
}

fn to_member(outbox: &Outbox, to: &str, letter: Letter<'_>) -> Result<String, String> {
    let name = Name::new(to).map_err(|_| unknown(to))?;
    let spawned = running(outbox, &name).map_err(|absent| refused(outbox, letter.id, &name, absent))?;
    let delivered = deliver(outbox, to, &name, letter)?;
    // It may have ended between the two looks, or be about to: then nobody reads the line in that life.
    look_again(running(outbox, &name), spawned, &name)?;
    Ok(sent_to(to, delivered))
}

/// Says that a line stands in an inbox. Who had spawned its reader when an earlier life appended it, nobody knows any more.
fn sent_to(to: &str, delivered: Delivered) -> String {
    let doubt = match delivered {
        Delivered::Now => return format!("sent to {to}"),
        Delivered::Before if to == USER => String::new(),
        Delivered::Before => format!(" (if {to} was spawned afresh since, it may not have read it)"),
    };
    format!(
        "sent to {to} before the worker was restarted, and not a second time: the message is in its inbox{doubt}"
    )
}

/// Fails with what becomes of a message that is not sure to be read by whom somebody had spawned with this line of the
/// journal: it was delivered.
fn look_again(now: Result<u64, Absent>, spawned: u64, name: &Name) -> Result<(), String> {
    match now {
        Ok(now) if now == spawned => Ok(()),
        // One that goes on with the conversation reads it, a fresh one does not if it was there before the end.
        Ok(_) => Err(format!(
            "{name} was spawned again while the message was sent: it is in its inbox, but may not be read; ask {name} \
             before you send it again"
        )),
        Err(Absent::Ended(why)) => {
            Err(format!("{why}: the message is in its inbox, and will not be read in this life"))
        }
        Err(Absent::Unclear(why)) => Err(format!(
            "{why}: the message is in its inbox; whether it is read cannot be told now: do not send it again before you \
             know"
        )),
    }
}

/// Says why nothing is sent. A call that is repeated after a crash may have left its line the first time.
fn refused(outbox: &Outbox, id: Uuid, name: &Name, absent: Absent) -> String {
    let (Absent::Ended(why) | Absent::Unclear(why)) = absent;
    match inbox::holds(outbox.dir(), name, id) {
        Ok(true) => format!("{why}: but the message is in its inbox, from before the worker was restarted"),
        Ok(false) | Err(ReadError::NoInbox(_)) => why,
        Err(error) => format!("{why} (and whether the message is in its inbox cannot be seen: {error})"),
    }
}

/// Sends a message to the lead and to everybody who runs, but not to the sender. Each line is synced: between two of them
/// others have their turn.
pub(crate) async fn broadcast(outbox: &Outbox, letter: Letter<'_>) -> Result<String, String> {
    let running = roster(outbox)?.members.into_iter().filter(|member| !member.status.is_ended());
    // The lead reads what is said to all, whether its agent runs or not.
    let others = running.map(|member| (member.name, Some(member.spawned_seq)));
    let others = others.filter(|(name, _)| *name != Name::lead());
    let mut failed = Vec::new();
    let mut delivered = Vec::new();
    for (name, spawned) in [(Name::lead(), None)].into_iter().chain(others) {
        if name == *outbox.from() {
            continue;
        }
        match deliver(outbox, ALL, &name, letter) {
            Ok(when) => delivered.push((name, spawned, when)),
            Err(error) => failed.push(format!("not sent to {name} ({error})")),
        }
        tokio::task::yield_now().await;
    }
    if delivered.is_empty() && failed.is_empty() {
        return Err("nobody else runs: the message was sent to nobody".to_owned());
    }
    // As after a message to one: a single look for all of them.
    let (now, mut sent, mut before, mut unseen) = (roster(outbox), Vec::new(), Vec::new(), Vec::new());
    for (name, spawned, when) in delivered {
        match (&now, spawned) {
            (Err(_), Some(_)) => {
                unseen.push(name.to_string());
                continue;
            }
            (Ok(now), Some(spawned)) => {
                if let Err(fate) = look_again(runs(now, &name), spawned, &name) {
                    failed.push(fate);
                    continue;
                }
            }
            (_, None) => {}
        }
        before.extend((when == Delivered::Before).then(|| name.to_string()));
        sent.push(name.to_string());
    }
    if let Err(why) = now
        && !unseen.is_empty()
    {
        let names = unseen.join(", ");
        failed.push(format!(
            "{why}: the message is in the inboxes of {names}; whether it is read cannot be told now: do not send it \
             again before you know"
        ));
    }
    let mut told = Vec::new();
    if !sent.is_empty() {
        told.push(format!("sent to {}", sent.join(", ")));
    }
    if !before.is_empty() {
        told.push(format!(
            "before the worker was restarted, and not a second time, to {} (whoever was spawned afresh since may not have \
             read it)",
            before.join(", ")
        ));
    }
    if failed.is_empty() {
        return Ok(told.join("; "));
    }
    told.extend(failed);
    Err(told.join("; "))
}

/// Appends a line; not a second time if an earlier life has done so.
fn deliver(outbox: &Outbox, to: &str, owner: &Name, letter: Letter<'_>) -> Result<Delivered, String> {
    if letter.repeated && outbox.has_sent(owner, letter.id)? {
        return Ok(Delivered::Before);
    }
    let body = if to == ALL { Body::Broadcast } else { Body::Message };
    let message = outbox.message(letter.id, to, body).with_content(letter.content);
    outbox.send(owner, &message).map(|_| Delivered::Now).map_err(|error| explained(&error))
}

/// Why nobody is known to run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Absent {
    /// It is recorded that nobody does.
    Ended(String),
    /// Somebody may run, or is started again by the policy.
    Unclear(String),
}

/// Returns the line of the journal in which somebody spawned a member that runs: a restart by the policy keeps it, and
/// reads all that is unread.
fn running(outbox: &Outbox, name: &Name) -> Result<u64, Absent> {
    runs(&loaded(Roster::load_one(outbox.dir(), name)).map_err(Absent::Unclear)?, name)
}

/// As [`running`], from a roster.
fn runs(roster: &Roster, name: &Name) -> Result<u64, Absent> {
    let member = roster.member(name).ok_or_else(|| Absent::Ended(unknown(name.as_str())))?;
    let RosterMember { status, spawned_seq, .. } = member;
    if status.is_ended() {
        return Err(Absent::Ended(format!("{name} is not running ({})", status.as_str())));
    }
    match roster.process_is_gone(member) {
        Ok(false) => Ok(*spawned_seq),
        Ok(true) => Err(Absent::Unclear(format!("{name} has just ended"))),
        Err(error) => Err(Absent::Unclear(format!("cannot see whether {name} runs: {error}"))),
    }
}

fn roster(outbox: &Outbox) -> Result<Roster, String> {
    loaded(Roster::load(outbox.dir()))
}

fn loaded(roster: Result<Option<Roster>, ConfigError>) -> Result<Roster, String> {
    let roster = roster.map_err(|error| format!("cannot look up who runs: {error}"))?;
    roster.ok_or_else(|| "cannot look up who runs: there is no roster".to_owned())
}

fn unknown(to: &str) -> String {
    format!("no such teammate: {to}")
}

#[cfg(test)]
mod tests;
