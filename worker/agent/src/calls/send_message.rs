//! `send_message`: a line in another member's inbox, if the roster knows that member and it runs.
//! The sender looks at the roster again after the append ([`Delivery`]).

use std::cell::LazyCell;

use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::delivery::{Delivery, Doubt};
use teamd_shared::inbox::Appended;
use teamd_shared::message::{ALL, Body, USER};
use teamd_shared::name::Name;
use uuid::Uuid;

use crate::outbox::{Outbox, explained};
use crate::team::roster;

/// What a call sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letter<'a> {
    /// The id of each of its lines, which the transcript holds: a call that is repeated after a
    /// crash sends no second message.
    pub(super) id: Uuid,
    /// Whether an earlier incarnation may have begun this call.
    pub(super) repeated: bool,
    /// The text.
    pub(super) content: &'a str,
}

/// Sends a message to one member, to the lead or the user, or (`all`) to the lead and every other
/// member that runs. Each line is synced: after each, the worker serves its other events.
///
/// # Errors
/// A text for the model, of each receiver.
pub(super) async fn send_message(
    outbox: &Outbox,
    to: &str,
    letter: Letter<'_>,
) -> Result<String, String> {
    if to == outbox.from().as_str() {
        return Err("a message to yourself goes nowhere: you have its text".to_owned());
    }
    let only = match to {
        ALL => None,
        USER => Some(Name::lead()),
        _ => Some(Name::of_inbox(to).map_err(|_| unknown(to))?),
    };
    let look = || {
        roster(match &only {
            Some(owner) => Roster::load_one(outbox.dir(), owner),
            None => Roster::load(outbox.dir()),
        })
    };
    let receivers = match &only {
        Some(owner) if *owner == Name::lead() => vec![(Name::lead(), None)],
        Some(owner) => vec![(
            owner.clone(),
            Some(look()?.member(owner).ok_or_else(|| unknown(to))?.clone()),
        )],
        None => all_others(outbox.from(), look()?),
    };
    let mut sent = Vec::new();
    let mut before = Vec::new();
    let mut failed = Vec::new();
    let mut appended = Vec::new();
    for (owner, member) in receivers {
        let shown = match only {
            Some(_) => to.to_owned(),
            None => owner.to_string(),
        };
        match was_sent(outbox, &owner, letter) {
            Ok(true) => before.push(shown),
            Ok(false) => match member.as_ref().filter(|member| member.status.is_ended()) {
                Some(ended) => {
                    failed.push(format!("{to} is not running ({})", ended.status.as_str()))
                }
                None => match append(outbox, to, &owner, letter) {
                    Ok(line) => appended.push((shown, member, line)),
                    Err(error) => failed.push(format!("not sent to {shown} ({error})")),
                },
            },
            Err(error) => failed.push(error),
        }
        tokio::task::yield_now().await;
    }
    if before.is_empty() && failed.is_empty() && appended.is_empty() {
        return Err("no other member is running: the message was not sent".to_owned());
    }
    // One look for all of them.
    let now = LazyCell::new(look);
    let here = LazyCell::new(|| host_of_sender(outbox));
    let mut crossing = Vec::new();
    for (name, member, line) in appended {
        let Some(member) = member else {
            sent.push(name);
            continue;
        };
        // Its process is on another machine: only the roster tells whether it runs.
        if member.host != *here && still_runs(&now, &member) {
            crossing.push(on_its_way(&member));
            continue;
        }
        match check_delivery(outbox, &member, line, &now) {
            Ok(()) => sent.push(name),
            Err(why) => failed.push(why),
        }
    }
    let mut parts = Vec::new();
    parts.extend((!sent.is_empty()).then(|| format!("sent to {}", sent.join(", "))));
    parts.extend(crossing);
    parts.extend((!before.is_empty()).then(|| {
        format!(
            "sent to {} before the worker was restarted, and not a second time (a teammate that ended or was spawned \
             again since then may not have read it)",
            before.join(", ")
        )
    }));
    let is_done = failed.is_empty();
    parts.extend(failed);
    if is_done {
        Ok(parts.join("; "))
    } else {
        Err(parts.join("; "))
    }
}

/// Returns the host of this worker; none at home, and where the roster does not tell.
fn host_of_sender(outbox: &Outbox) -> Option<Name> {
    let from = outbox.from();
    let roster = roster(Roster::load_one(outbox.dir(), from)).ok()?;
    roster.member(from)?.host.clone()
}

fn still_runs(now: &Result<Roster, String>, before: &RosterMember) -> bool {
    let member = now.as_ref().ok().and_then(|now| now.member(&before.name));
    member
        .is_some_and(|member| member.spawned_seq == before.spawned_seq && !member.status.is_ended())
}

/// Says what is known of a message to a member on another machine: its line is in the outbox here.
fn on_its_way(to: &RosterMember) -> String {
    let name = &to.name;
    match (&to.host, to.unreachable_since) {
        (Some(host), Some(_)) => {
            format!("waiting for {host}, which cannot be reached now: {name} gets it then")
        }
        (Some(host), None) => format!("on its way to {name}, on {host}"),
        (None, _) => format!("on its way to {name}, on another machine"),
    }
}

/// Returns the lead, who reads broadcasts whether its agent runs or not, and every other member that
/// runs.
fn all_others(from: &Name, roster: Roster) -> Vec<(Name, Option<RosterMember>)> {
    let running = roster
        .members
        .into_iter()
        .filter(|member| !member.status.is_ended());
    let others = running.filter(|member| member.name != Name::lead());
    let others = others.map(|member| (member.name.clone(), Some(member)));
    [(Name::lead(), None)]
        .into_iter()
        .chain(others)
        .filter(|(name, _)| name != from)
        .collect()
}

/// Returns whether an earlier incarnation has written the line of this call.
fn was_sent(outbox: &Outbox, owner: &Name, letter: Letter<'_>) -> Result<bool, String> {
    if letter.repeated {
        outbox.has_sent(owner, letter.id)
    } else {
        Ok(false)
    }
}

fn append(outbox: &Outbox, to: &str, owner: &Name, letter: Letter<'_>) -> Result<Appended, String> {
    let body = if to == ALL {
        Body::Broadcast
    } else {
        Body::Message
    };
    let message = outbox
        .message(letter.id, to, body)
        .with_content(letter.content);
    outbox
        .send(owner, &message, false)
        .map_err(|error| explained(&error))
}

/// Looks at the roster again.
///
/// # Errors
/// Returns the fate of a message whose receiver may not read it.
fn check_delivery(
    outbox: &Outbox,
    to: &RosterMember,
    appended: Appended,
    now: &Result<Roster, String>,
) -> Result<(), String> {
    let delivery = match now {
        Ok(now) => Delivery::of(outbox.dir(), to, appended, now),
        Err(why) => Delivery::Unknown(Doubt::Unseen(why.clone())),
    };
    let name = &to.name;
    match delivery {
        Delivery::Sent => Ok(()),
        Delivery::Waits => Err(format!(
            "{name} ended while the message was sent: the message is in its inbox, and waits for its next incarnation"
        )),
        Delivery::Unknown(doubt) => Err(format!(
            "the message is in the inbox of {name}, but {doubt}: find out before you send it again"
        )),
    }
}

fn unknown(to: &str) -> String {
    format!("there is no teammate named {to}")
}

#[cfg(test)]
mod tests;
