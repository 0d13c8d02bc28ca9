//! `send_message`: a line in another member's inbox, if the roster knows that member and it runs.

use teamd_shared::config::{ConfigError, Roster};
use teamd_shared::inbox::{self, ReadError};
use teamd_shared::message::{ALL, Body, LEAD, USER};
use teamd_shared::name::Name;
use uuid::Uuid;

use super::Outcome;
use crate::outbox::Outbox;

/// Sends a message to one member, to the lead or the user, or (`all`) to everybody who runs.
///
/// Each line carries the id that the transcript holds: a call that is repeated after a crash sends no second message.
pub(crate) async fn send_message(outbox: &Outbox, id: Uuid, to: &str, content: &str) -> Outcome {
    let sent = match to {
        own if own == outbox.from().as_str() => {
            Err("a message to yourself goes nowhere: you have its text".to_owned())
        }
        LEAD | USER => deliver(outbox, id, to, &Name::lead(), content).map(|()| format!("sent to {to}")),
        ALL => broadcast(outbox, id, content).await,
        other => to_member(outbox, id, other, content),
    };
    sent.map_or_else(Outcome::error, Outcome::ok)
}

fn to_member(outbox: &Outbox, id: Uuid, to: &str, content: &str) -> Result<String, String> {
    let name = Name::new(to).map_err(|_| unknown(to))?;
    let spawned = running(outbox, &name).map_err(|absent| refused(outbox, id, &name, absent))?;
    deliver(outbox, id, to, &name, content)?;
    // It may have ended between the two looks, or be about to: then nobody reads the line in that life.
    look_again(running(outbox, &name), spawned, &name)
}

/// Says what becomes of a message that was delivered to whom somebody had spawned with this line of the journal.
fn look_again(now: Result<u64, Absent>, spawned: u64, name: &Name) -> Result<String, String> {
    match now {
        Ok(now) if now == spawned => Ok(format!("sent to {name}")),
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
pub(crate) async fn broadcast(outbox: &Outbox, id: Uuid, content: &str) -> Result<String, String> {
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
        tokio::task::yield_now().await;
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
    let roster = loaded(Roster::load_one(outbox.dir(), name)).map_err(Absent::Unclear)?;
    let member = roster.member(name).ok_or_else(|| Absent::Ended(unknown(name.as_str())))?;
    if member.status.is_ended() {
        return Err(Absent::Ended(format!("{name} is not running ({})", member.status.as_str())));
    }
    match roster.process_is_gone(member) {
        Ok(false) => Ok(member.spawned_seq),
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
mod tests {
    use std::sync::Arc;
    use std::task::Poll;

    use serde_json::{Value, json};
    use teamd_shared::inbox::Durability;
    use teamd_shared::process::Identity;
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
        write_roster(&dir, &members.iter().map(member).collect::<Vec<_>>());
        inbox::create(&dir, &Name::lead()).unwrap();
        for (name, _) in members {
            inbox::create(&dir, &Name::new(name).unwrap()).unwrap();
        }
        let outbox = Outbox::new(dir, Name::new("alice").unwrap(), Durability::Process);
        Team { _scratch: scratch, outbox }
    }

    fn write_roster(dir: &TeamDir, members: &[Value]) {
        let me = Identity::of_self().unwrap();
        let daemon =
            json!({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "started_at": 1.0});
        let roster = json!({"version": 1, "daemon": daemon, "members": members});
        teamd_shared::fs::replace(dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
    }

    fn send(team: &Team, to: &str) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(send_message(&team.outbox, Uuid::from_u128(5), to, "hello"))
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
    fn what_becomes_of_a_message_is_told_from_a_second_look_at_the_roster() {
        let team = team(&[("alice", "working"), ("bob", "idle")]);
        let (bob, me) = (Name::new("bob").unwrap(), Identity::of_self().unwrap());
        let bob_as = |change: Value| {
            let mut bob = json!({"name": "bob", "status": "idle", "gate": "open", "incarnation": 1, "spawned_seq": 7,
                "pid": me.pid, "start_ticks": me.start_ticks});
            bob.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            vec![bob]
        };
        let looks = |after: Vec<Value>| {
            write_roster(team.outbox.dir(), &bob_as(json!({})));
            let spawned = running(&team.outbox, &bob).unwrap();
            write_roster(team.outbox.dir(), &after);
            look_again(running(&team.outbox, &bob), spawned, &bob)
        };
        // The policy has started it again: it reads what is unread.
        assert_eq!(looks(bob_as(json!({"incarnation": 2}))).unwrap(), "sent to bob");
        for (change, told) in [
            (json!({"incarnation": 2, "spawned_seq": 9}), "may not be read"),
            (json!({"status": "shutdown"}), "will not be read in this life"),
            // Its process is gone, and the policy may start it again.
            (json!({"start_ticks": 1}), "do not send it again before you know"),
        ] {
            let said = looks(bob_as(change)).unwrap_err();
            assert!(said.contains("in its inbox") && said.contains(told), "{said}");
        }
        std::fs::remove_file(team.outbox.dir().path(&TeamPath::config())).unwrap();
        let said = look_again(running(&team.outbox, &bob), 7, &bob).unwrap_err();
        assert!(said.ends_with("do not send it again before you know"), "{said}");
    }

    #[test]
    fn a_repeated_call_that_finds_its_receiver_ended_says_that_the_message_is_there() {
        let team = team(&[("alice", "working"), ("bob", "idle")]);
        assert!(!send(&team, "bob").is_error);
        write_roster(
            team.outbox.dir(),
            &[json!({"name": "bob", "status": "shutdown", "gate": "open", "incarnation": 1})],
        );
        let again = send(&team, "bob");
        assert!(
            again.is_error
                && again
                    .content
                    .starts_with("bob is not running (shutdown): but the message is in its inbox"),
            "{again:?}"
        );
        assert_eq!(lines(&team, "bob").len(), 1);
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

    #[tokio::test]
    async fn a_broadcast_leaves_room_for_others_after_each_receiver() {
        let team = team(&[("alice", "working"), ("bob", "idle"), ("carol", "idle")]);
        let mut sending = std::pin::pin!(broadcast(&team.outbox, Uuid::from_u128(5), "hello"));
        for reached in [["lead"].as_slice(), &["lead", "bob"], &["lead", "bob", "carol"]] {
            let polled = std::future::poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
            assert!(polled.is_pending());
            let have = ["lead", "bob", "carol"].into_iter().filter(|name| !lines(&team, name).is_empty());
            assert_eq!(have.collect::<Vec<_>>(), reached);
        }
        assert_eq!(sending.await.unwrap(), "sent to lead, bob, carol");
    }
}
