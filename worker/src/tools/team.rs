//! `send_message`: a line in another member's inbox, if the roster knows that member and it runs.

use teamd_shared::config::{ConfigError, Roster};
use teamd_shared::message::{ALL, Body, LEAD, USER};
use teamd_shared::name::Name;
use uuid::Uuid;

use super::Outcome;
use crate::outbox::Outbox;

/// Sends a message to one member, to the lead or the user, or (`all`) to everybody who runs.
///
/// Each line carries the id that the transcript holds: a call that is repeated after a crash sends no second message.
pub(crate) fn send_message(outbox: &Outbox, id: Uuid, to: &str, content: &str) -> Outcome {
    let sent = match to {
        own if own == outbox.from().as_str() => {
            Err("a message to yourself goes nowhere: you have its text".to_owned())
        }
        LEAD | USER => deliver(outbox, id, to, &Name::lead(), content).map(|()| format!("sent to {to}")),
        ALL => broadcast(outbox, id, content),
        other => to_member(outbox, id, other, content),
    };
    sent.map_or_else(Outcome::error, Outcome::ok)
}

fn to_member(outbox: &Outbox, id: Uuid, to: &str, content: &str) -> Result<String, String> {
    let name = Name::new(to).map_err(|_| unknown(to))?;
    let life = running(outbox, &name)?;
    deliver(outbox, id, to, &name, content)?;
    // It may have ended between the two looks, or be about to: then nobody reads the line in that life.
    match running(outbox, &name) {
        Ok(now) if now == life => Ok(format!("sent to {name}")),
        Ok(_) => Err(format!(
            "{name} was spawned afresh while the message was sent, and will not read it: send it again"
        )),
        Err(why) => Err(format!("{why}: the message is in its inbox, and will not be read in this life")),
    }
}

/// Sends a message to the lead and to everybody who runs, but not to the sender.
pub(crate) fn broadcast(outbox: &Outbox, id: Uuid, content: &str) -> Result<String, String> {
    let running = roster(outbox)?.members.into_iter().filter(|member| !member.status.is_ended());
    // The lead reads what is said to all, whether its agent runs or not.
    let others = running.map(|member| member.name).filter(|name| *name != Name::lead());
    let mut failed = Vec::new();
    let mut sent = Vec::new();
    for name in [Name::lead()].into_iter().chain(others).filter(|name| name != outbox.from()) {
        let message = outbox.message(id, ALL, Body::Broadcast).with_content(content);
        match outbox.send(&name, &message) {
            Ok(_) => sent.push(name.to_string()),
            Err(error) => failed.push(format!("{name} ({error})")),
        }
    }
    if sent.is_empty() && failed.is_empty() {
        return Err("nobody else runs: the message was sent to nobody".to_owned());
    }
    let sent = format!("sent to {}", sent.join(", "));
    if failed.is_empty() { Ok(sent) } else { Err(format!("{sent}; not sent to {}", failed.join(", "))) }
}

fn deliver(outbox: &Outbox, id: Uuid, to: &str, owner: &Name, content: &str) -> Result<(), String> {
    let message = outbox.message(id, to, Body::Message).with_content(content);
    outbox.send(owner, &message).map(drop).map_err(|error| match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    })
}

/// Returns which life of a member runs.
fn running(outbox: &Outbox, name: &Name) -> Result<u32, String> {
    let roster = loaded(Roster::load_one(outbox.dir(), name))?;
    let member = roster.member(name).ok_or_else(|| unknown(name.as_str()))?;
    if member.status.is_ended() {
        return Err(format!("{name} is not running ({})", member.status.as_str()));
    }
    match roster.process_is_gone(member) {
        Ok(false) => Ok(member.incarnation),
        Ok(true) => Err(format!("{name} has just ended")),
        Err(error) => Err(format!("cannot see whether {name} runs: {error}")),
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
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use teamd_shared::inbox::{self, Durability};
    use teamd_shared::team_dir::{TeamDir, TeamPath};

    use super::*;

    struct Team {
        _scratch: tempfile::TempDir,
        outbox: Outbox,
    }

    fn team(members: &[(&str, &str)]) -> Team {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let member = |(name, status): &(&str, &str)| json!({"name": name, "status": status, "gate": "open", "incarnation": 1});
        let roster = json!({"version": 1, "members": members.iter().map(member).collect::<Vec<_>>()});
        teamd_shared::fs::replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
        inbox::create(&dir, &Name::lead()).unwrap();
        for (name, _) in members {
            inbox::create(&dir, &Name::new(name).unwrap()).unwrap();
        }
        let outbox = Outbox::new(dir, Name::new("alice").unwrap(), Durability::Process);
        Team { _scratch: scratch, outbox }
    }

    fn send(team: &Team, to: &str) -> Outcome {
        send_message(&team.outbox, Uuid::from_u128(5), to, "hello")
    }

    fn lines(team: &Team, owner: &str) -> Vec<Value> {
        let bytes = team.outbox.dir().read(&TeamPath::inbox(&Name::of_inbox(owner).unwrap())).unwrap();
        bytes
            .split(|&b| b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect()
    }

    #[test]
    fn a_running_teammate_gets_the_line_under_the_given_id() {
        let team = team(&[("alice", "working"), ("bob", "idle")]);
        let outcome = send(&team, "bob");
        assert!(!outcome.is_error, "{outcome:?}");
        let line = &lines(&team, "bob")[0];
        assert_eq!(line["id"], json!(Uuid::from_u128(5)));
        assert_eq!(
            (&line["from"], &line["to"], &line["content"]),
            (&json!("alice"), &json!("bob"), &json!("hello"))
        );
    }

    #[test]
    fn lead_and_user_are_reached_through_the_leads_inbox() {
        let team = team(&[]);
        assert!(!send(&team, "lead").is_error && !send(&team, "user").is_error);
        let receivers: Vec<_> = lines(&team, "lead").into_iter().map(|line| line["to"].clone()).collect();
        assert_eq!(receivers, [json!("lead"), json!("user")]);
    }

    #[test]
    fn nobody_is_written_to_who_is_unknown_ended_or_the_sender() {
        let team = team(&[("alice", "working"), ("carol", "shutdown")]);
        for (to, told) in [
            ("bob", "no such teammate: bob"),
            ("../x", "no such teammate: ../x"),
            ("carol", "carol is not running (shutdown)"),
            ("alice", "yourself"),
        ] {
            let outcome = send(&team, to);
            assert!(outcome.is_error && outcome.content.contains(told), "{outcome:?}");
        }
        assert!(lines(&team, "carol").is_empty());
        assert!(team.outbox.dir().identity(&TeamPath::inbox(&Name::new("bob").unwrap())).unwrap().is_none());
    }

    #[test]
    fn a_broadcast_reaches_the_lead_and_all_others_who_run() {
        let team = team(&[("alice", "working"), ("bob", "idle"), ("carol", "crashed"), ("dave", "working")]);
        assert_eq!(send(&team, "all").content, "sent to lead, bob, dave");
        for (owner, count) in [("lead", 1), ("alice", 0), ("bob", 1), ("carol", 0), ("dave", 1)] {
            assert_eq!(lines(&team, owner).len(), count, "{owner}");
        }
        assert_eq!(lines(&team, "bob")[0]["type"], json!("broadcast"));
    }
}
