//! Appends a message to an inbox. The daemon is not on this way, and need not run; only whether a
//! message has crossed a link is asked of it.
//!
//! The roster is read before the append, so that no line goes to a name that is not there, and
//! once more after it ([`Delivery`]): a teammate that ended in between may never read the message,
//! and the sender must know.

use serde_json::json;
use teamd_shared::clock;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::delivery::{Delivery, Doubt};
use teamd_shared::host::AwaitedHost;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::{Appended, Durability, append};
use teamd_shared::message::{Body, LEAD, Message, USER};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use crate::act::delivered::{HostedLine, awaited_hosts};
use crate::act::unreachable::waiting_for;
use crate::args::MailboxName;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;
use crate::read::{roster, text};

/// Sends a text, and reports what becomes of it.
pub fn deliver(context: &Context, to: &MailboxName, content: String, queue: bool) -> CommandResult {
    let dir = context.dir()?;
    let receiver = receiver_of(&dir, to, queue)?;
    text::note_if_cut(context, &content, "message");
    // A person with teamctl has the lead's role, but no member writes to itself.
    let from = if to.owner == Name::lead() { USER } else { LEAD };
    let durability = context.settings.durability;
    let id = RandomIds.message();
    let message =
        Message::new(id, from, &to.to, clock::wall(), Body::Message).with_content(content);
    let sent = hand_over(&dir, &to.owner, receiver.as_ref(), &message, durability)?;
    let waits = queue && sent.delivery == Delivery::Waits;
    if !waits && let Some(error) = undelivered(&to.owner, id, &sent.delivery) {
        return Err(error);
    }
    let what = if waits {
        "waits for the next incarnation of"
    } else {
        "sent to"
    };
    let mut shown = json!({"id": id, "to": to.to, "offset": sent.offset});
    let mut text = format!("{what} {} ({id})", to.to);
    // What waits for the next incarnation need not be there yet.
    let awaited = if waits {
        None
    } else {
        awaited_host(&dir, receiver.as_ref(), sent.offset)?
    };
    if let Some(host) = awaited {
        shown["delivery"] = json!("waiting");
        let waiting = waiting_for(&host);
        text = format!("{waiting}: {} reads it when it is there ({id})", to.to);
    }
    context.out.result(&shown, text)?;
    Ok(ExitCode::Done)
}

/// Returns the host that a message waits for; none if it is where its receiver lives.
fn awaited_host(
    dir: &TeamDir,
    receiver: Option<&RosterMember>,
    offset: u64,
) -> Result<Option<AwaitedHost>, CommandError> {
    let Some(line) = receiver.and_then(|receiver| hosted_line(receiver, offset)) else {
        return Ok(None);
    };
    let awaited = awaited_hosts(dir, &[line])?;
    Ok(awaited.into_iter().next().flatten())
}

/// Returns a line that crosses a link; none if its receiver is at home.
pub fn hosted_line(receiver: &RosterMember, offset: u64) -> Option<HostedLine> {
    Some(HostedLine {
        owner: receiver.name.clone(),
        host: receiver.host.clone()?,
        offset,
    })
}

/// Sends a text to a teammate that runs, or leaves it for the person, and prints nothing. Returns
/// the host that it waits for, if it is not where its receiver lives.
///
/// # Errors
/// If it runs not, or may not have read the message.
pub fn from(
    dir: &TeamDir,
    from: &str,
    to: &MailboxName,
    content: String,
    durability: Durability,
) -> Result<Option<AwaitedHost>, CommandError> {
    let receiver = receiver_of(dir, to, false)?;
    let id = RandomIds.message();
    let message =
        Message::new(id, from, &to.to, clock::wall(), Body::Message).with_content(content);
    let sent = hand_over(dir, &to.owner, receiver.as_ref(), &message, durability)?;
    if let Some(error) = undelivered(&to.owner, id, &sent.delivery) {
        return Err(error);
    }
    awaited_host(dir, receiver.as_ref(), sent.offset)
}

/// A message that was appended.
struct SentMessage {
    offset: u64,
    delivery: Delivery,
}

/// Returns the member that a message goes to; none for the lead and the person.
fn receiver_of(
    dir: &TeamDir,
    to: &MailboxName,
    queue: bool,
) -> Result<Option<RosterMember>, CommandError> {
    if to.owner == Name::lead() {
        return Ok(None);
    }
    receiver(dir, &to.owner, queue).map(Some)
}

/// Appends a message, and looks at the roster again.
fn hand_over(
    dir: &TeamDir,
    owner: &Name,
    receiver: Option<&RosterMember>,
    message: &Message,
    durability: Durability,
) -> Result<SentMessage, CommandError> {
    let appended = append(dir, owner, message, durability)?;
    let offset = appended.offset;
    let delivery = receiver.map_or(Delivery::Sent, |to| delivery(dir, to, appended));
    Ok(SentMessage { offset, delivery })
}

/// Returns the member, if a message to it will be read, as far as the roster knows.
fn receiver(dir: &TeamDir, name: &Name, queue: bool) -> Result<RosterMember, CommandError> {
    let mut roster = roster::load_one(dir, name)?;
    // A daemon that runs records the end of a process that is gone in a moment: what may wait is
    // sent behind it.
    if queue && roster::daemon_pid(&roster).is_some() {
        roster = roster::load_after_end(dir, name)?;
    }
    roster::find_one(dir, &roster, name)?;
    check(&roster, name, queue).cloned()
}

fn check<'r>(
    roster: &'r Roster,
    name: &Name,
    queue: bool,
) -> Result<&'r RosterMember, CommandError> {
    let member = roster::find(roster, name)?;
    if member.status.is_ended() {
        return if queue {
            Ok(member)
        } else {
            Err(not_running(name, member.status.as_str()).hint(format!(
                "`--queue` leaves it for the next incarnation; `teamctl spawn {name} --resume` starts one"
            )))
        };
    }
    // What is in the inbox when an end is recorded is mail of that incarnation, and a fresh one
    // skips it.
    let unrecorded =
        |hint: &str| Err(not_running(name, "gone, though its end is not recorded").hint(hint));
    if !roster::runs(roster, member) {
        return unrecorded(
            "`teamd start` records its end; then `--queue` leaves it for the next incarnation",
        );
    }
    if queue && roster.process_is_gone(member).unwrap_or(false) {
        return unrecorded(
            "its end is recorded once nothing of it is left (`teamctl log teamd`): then send it again",
        );
    }
    Ok(member)
}

/// Reads the roster again, once the end of a process that is gone is recorded, and returns what
/// becomes of a message. `to` is its receiver as the roster showed it before.
pub fn delivery(dir: &TeamDir, to: &RosterMember, appended: Appended) -> Delivery {
    match roster::load_after_end(dir, &to.name) {
        Ok(now) => Delivery::of(dir, to, appended, &now),
        Err(error) => Delivery::Unknown(Doubt::Unseen(error.to_string())),
    }
}

/// Makes the error of a message that is in an inbox and may not be read, so the hint is not to send
/// it again. None if its receiver has it.
pub fn undelivered(name: &Name, id: Uuid, delivery: &Delivery) -> Option<CommandError> {
    let doubt = match delivery {
        Delivery::Sent => return None,
        Delivery::Waits => {
            let message = format!("{name} ended while the message was sent");
            let hint = format!(
                "the message is in its inbox: `teamctl spawn {name} --resume` starts the next incarnation"
            );
            return Some(CommandError::new(ExitCode::Conflict, message).hint(hint));
        }
        Delivery::Unknown(doubt) => doubt,
    };
    let (code, hint) = match doubt {
        Doubt::Forgotten => (
            ExitCode::NotFound,
            "it is with the files of the teammate in the archive".to_owned(),
        ),
        Doubt::LeftToResume => (
            ExitCode::Conflict,
            format!("only `teamctl spawn {name} --resume` reads it, a fresh spawn does not"),
        ),
        Doubt::SpawnedAgain => (
            ExitCode::Conflict,
            format!(
                "a fresh spawn does not read it, `--resume` does: `teamctl transcript {name}` shows which it was"
            ),
        ),
        Doubt::EndNotRecorded | Doubt::Unseen(_) => (
            if *doubt == Doubt::EndNotRecorded {
                ExitCode::Conflict
            } else {
                ExitCode::Failed
            },
            format!(
                "check `teamctl status {name}` or `teamctl inbox {name}` before you send it again"
            ),
        ),
    };
    let message = format!("the message is in the inbox of {name} ({id}), but {doubt}");
    Some(CommandError::new(code, message).hint(hint))
}

fn not_running(name: &Name, status: &str) -> CommandError {
    let message = format!("{name} is not running ({status}): nothing was sent");
    CommandError::new(ExitCode::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{member, team};
    use teamd_shared::fs::replace;
    use teamd_shared::member::Exit;
    use teamd_shared::position::Position;
    use teamd_shared::process::Identity;
    use teamd_shared::team_dir::TeamPath;

    fn name() -> Name {
        Name::new("alice").unwrap()
    }

    fn code(result: Result<&RosterMember, CommandError>) -> ExitCode {
        result.map_or_else(|error| error.code(), |_| ExitCode::Done)
    }

    /// A message to alice, whom the roster showed like this before, and which stands from 100 to
    /// 150.
    fn look_again(dir: &TeamDir, before: serde_json::Value) -> Result<Delivery, CommandError> {
        let to = &serde_json::from_value(before).unwrap();
        match delivery(
            dir,
            to,
            Appended {
                offset: 100,
                len: 50,
            },
        ) {
            doubt @ Delivery::Unknown(_) => {
                Err(undelivered(&name(), Uuid::from_u128(7), &doubt).unwrap())
            }
            known => Ok(known),
        }
    }

    fn exit(stood_at: u64) -> Exit {
        let inbox = Position {
            offset: stood_at,
            tail: 0,
        };
        let usage = Default::default();
        Exit {
            code: None,
            signal: Some(9),
            at: 1.0,
            request_id: None,
            unread: 1,
            inbox,
            returned: 0,
            returned_up_to: None,
            note: None,
            usage,
            other_usage: Default::default(),
            ending: None,
            emptied: None,
        }
    }

    #[test]
    fn only_a_running_teammate_is_written_to_unless_the_message_may_wait() {
        for (status, queue, expected) in [
            ("idle", false, ExitCode::Done),
            ("shutting_down", false, ExitCode::Done),
            ("shutdown", false, ExitCode::Conflict),
            ("crashed", true, ExitCode::Done),
        ] {
            let (_scratch, dir) = team(&json!([member("alice", status)]));
            assert_eq!(
                code(check(&roster::load(&dir).unwrap(), &name(), queue)),
                expected,
                "{status}"
            );
        }
        let (_scratch, dir) = team(&json!([]));
        assert_eq!(
            code(check(&roster::load(&dir).unwrap(), &name(), true)),
            ExitCode::NotFound
        );
    }

    /// Alice as the roster shows her when her second incarnation is gone, and that is not recorded.
    fn gone() -> serde_json::Value {
        let mut gone = member("alice", "idle");
        gone["start_ticks"] = json!(1);
        gone["last_exit"] = serde_json::to_value(exit(100)).unwrap();
        gone
    }

    #[test]
    fn nothing_waits_for_a_next_incarnation_before_the_end_of_the_last_one_is_recorded() {
        // No daemon runs.
        let (_scratch, dir) = team(&json!([gone()]));
        let refused = check(&roster::load(&dir).unwrap(), &name(), true).unwrap_err();
        assert_eq!(refused.code(), ExitCode::Conflict);
        assert!(
            refused
                .next_step()
                .unwrap()
                .starts_with("`teamd start` records its end"),
            "{refused:?}"
        );
        assert!(receiver(&dir, &name(), true).is_err());
        // One runs, and cannot record it yet.
        let of = |daemon: serde_json::Value| {
            let roster = json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": [gone()]});
            serde_json::from_value::<Roster>(roster).unwrap()
        };
        let roster = of(this_process());
        assert_eq!(code(check(&roster, &name(), true)), ExitCode::Conflict);
        // It went just after the first look: also then it is not known where its inbox will be said
        // to have stood.
        for before in [member("alice", "idle"), earlier_incarnation()] {
            is_unclear(&look_again(&dir, before).unwrap_err());
        }
    }

    #[test]
    fn while_an_end_is_not_recorded_it_is_not_said_who_will_read_the_message() {
        // A daemon runs, and does not record it as long as it is waited for.
        let (_scratch, dir) = team(&json!([]));
        let daemon = this_process();
        let roster = json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": [gone()]});
        replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
        let lock = std::fs::File::open(dir.root()).unwrap();
        lock.try_lock().unwrap();
        std::thread::scope(|scope| {
            for before in [member("alice", "idle"), earlier_incarnation()] {
                scope.spawn(|| is_unclear(&look_again(&dir, before).unwrap_err()));
            }
        });
    }

    fn is_unclear(fate: &CommandError) {
        assert_eq!(fate.code(), ExitCode::Conflict);
        assert!(
            fate.message().contains("its end is not recorded yet"),
            "{fate}"
        );
        assert!(
            fate.next_step()
                .unwrap()
                .ends_with("before you send it again"),
            "{fate:?}"
        );
    }

    /// Alice as she was one incarnation before.
    fn earlier_incarnation() -> serde_json::Value {
        let mut before = member("alice", "idle");
        before["spawned_seq"] = json!(3);
        before
    }

    fn this_process() -> serde_json::Value {
        let me = Identity::of_self().unwrap();
        json!({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "started_at": 1.0})
    }

    #[test]
    fn what_becomes_of_a_message_to_a_teammate_that_ended_meanwhile_is_known() {
        let before = || member("alice", "idle");
        for (stood_at, fate) in [(100, Ok(Delivery::Waits)), (150, Err(ExitCode::Conflict))] {
            let mut ended = member("alice", "crashed");
            ended["exit"] = serde_json::to_value(exit(stood_at)).unwrap();
            let (_scratch, dir) = team(&json!([ended]));
            let looked = look_again(&dir, before());
            assert_eq!(
                looked.map_err(|error| error.code()),
                fate,
                "the inbox stood at {stood_at}"
            );
        }
        let (_scratch, dir) = team(&json!([member("alice", "working")]));
        assert_eq!(look_again(&dir, before()), Ok(Delivery::Sent));
        // Its process is gone, and the roster does not say so yet: it will.
        let daemon = this_process();
        let write = |member: &serde_json::Value| {
            let roster = json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": [member]});
            replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
        };
        // As long as its lock is held, the daemon counts as running.
        let lock = std::fs::File::open(dir.root()).unwrap();
        lock.try_lock().unwrap();
        write(&gone());
        let fate = std::thread::scope(|scope| {
            let looking = scope.spawn(|| look_again(&dir, before()));
            let mut ended = member("alice", "crashed");
            ended["exit"] = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 0,
                "inbox": {"offset": 150, "tail": "0000000000000000"}, "note": null});
            write(&ended);
            looking.join().unwrap()
        });
        // Where its inbox stood at the end is what decides.
        assert_eq!(fate.unwrap_err().code(), ExitCode::Conflict);
        let (_scratch, dir) = team(&json!([]));
        assert_eq!(
            look_again(&dir, before()).unwrap_err().code(),
            ExitCode::NotFound
        );
    }

    #[test]
    fn what_becomes_of_a_message_to_a_teammate_that_was_spawned_again_is_known() {
        for (last_exit, fate) in [
            // It was written when the earlier incarnation had ended already.
            (Some(exit(100)), Ok(Delivery::Sent)),
            (Some(exit(150)), Err(ExitCode::Conflict)),
            // Another one, with an inbox of its own.
            (None, Err(ExitCode::NotFound)),
        ] {
            let mut now = member("alice", "idle");
            now["spawned_seq"] = json!(12);
            now["last_exit"] = serde_json::to_value(last_exit).unwrap();
            let (_scratch, dir) = team(&json!([now]));
            let looked = look_again(&dir, member("alice", "idle"));
            assert_eq!(looked.map_err(|error| error.code()), fate, "{now}");
        }
        // The policy starts an incarnation that reads all of it.
        let mut restarted = member("alice", "idle");
        restarted["incarnation"] = json!(2);
        restarted["last_exit"] = serde_json::to_value(exit(150)).unwrap();
        let (_scratch, dir) = team(&json!([restarted]));
        assert_eq!(
            look_again(&dir, member("alice", "idle")),
            Ok(Delivery::Sent)
        );
    }

    #[test]
    fn a_sender_that_cannot_look_again_is_not_told_to_send_again() {
        let (_scratch, dir) = team(&json!([member("alice", "idle")]));
        // Not a file that can be read.
        let transcript = dir.path(&TeamPath::transcript(&name()));
        std::fs::create_dir_all(&transcript).unwrap();
        let error = look_again(&dir, member("alice", "idle")).unwrap_err();
        assert!(
            error.message().contains("is in the inbox of alice"),
            "{error}"
        );
        assert!(
            error
                .next_step()
                .unwrap()
                .ends_with("before you send it again"),
            "{error:?}"
        );
    }
}
