//! `teamctl send`: appends a message to an inbox. The daemon is not on this way, and need not run.
//!
//! The roster is looked at before the append, so that nobody writes to a name that is not there, and once more
//! after it: whoever ended in between may never read the message, and the sender must know.

use std::fmt::Display;

use serde_json::json;
use teamd_shared::clock;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::{Appended, append};
use teamd_shared::member::Exit;
use teamd_shared::message::{Body, LEAD, Message, USER};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript;
use uuid::Uuid;

use crate::ctl::args::Send;
use crate::ctl::context::Context;
use crate::ctl::{roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Send) -> CommandResult {
    let dir = context.dir()?;
    let to = &args.name;
    let is_lead = to.owner == Name::lead();
    let content = text::not_blank(text::given(&args.text)?, "message")?;
    // A person may have typed for long.
    let receiver = match is_lead {
        true => None,
        false => Some(receiver(&dir, &to.owner, args.queue)?),
    };
    text::note_if_cut(context, &content, "message");
    // A person with teamctl has the lead's role, but nobody writes to itself.
    let from = if is_lead { USER } else { LEAD };
    let id = RandomIds.message();
    let message = Message::new(id, from, &to.to, clock::wall(), Body::Message).with_content(content);
    let appended = append(&dir, &to.owner, &message, context.settings.durability)?;
    let fate = match &receiver {
        None => Fate::Sent,
        Some(to) => Posted { id, to, at: appended }.look_again(&dir)?,
    };
    if fate == Fate::Waits && !args.queue {
        return Err(ended_meanwhile(&to.owner));
    }
    if context.out.is_json() {
        context.out.json(&json!({"id": id, "to": to.to, "offset": appended.offset}))?;
    } else {
        let what = if fate == Fate::Waits { "waits for the next incarnation of" } else { "sent to" };
        context.out.text(format_args!("{what} {} ({id})", to.to))?;
    }
    Ok(ExitCode::Done)
}

/// Returns the member, if a message to it will be read, as far as the roster knows.
fn receiver(dir: &TeamDir, name: &Name, queue: bool) -> Result<RosterMember, CommandError> {
    let mut roster = roster::load_one(dir, name)?;
    // A daemon that runs records the end of a process that is gone in a moment: what may wait is sent behind it.
    if queue && roster::daemon_pid(&roster).is_some() {
        roster = roster::load_settled(dir, name)?;
    }
    check(&roster, name, queue).cloned()
}

fn check<'r>(roster: &'r Roster, name: &Name, queue: bool) -> Result<&'r RosterMember, CommandError> {
    let member = roster::find(roster, name)?;
    let not_running = |status: &str| {
        let message = format!("{name} is not running ({status}): nothing was sent");
        CommandError::new(ExitCode::Conflict, message)
    };
    if member.status.is_ended() {
        return match queue {
            true => Ok(member),
            false => Err(not_running(member.status.as_str()).hint(format!(
                "`--queue` leaves it for the next incarnation; `teamctl spawn {name}` starts one"
            ))),
        };
    }
    // What stands in the inbox when an end is recorded is mail of that life, and a fresh one passes over it.
    let unrecorded = |hint: &str| Err(not_running("gone, though nobody recorded it").hint(hint));
    if !runs(roster, member) {
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

/// Tells whether a member runs, as far as roster and processes tell.
pub(in crate::ctl) fn runs(roster: &Roster, member: &RosterMember) -> bool {
    !member.status.is_ended() && !roster::ended_unnoticed(roster, member)
}

/// Returns those who run, as far as roster and processes tell.
pub(in crate::ctl) fn running(roster: &Roster) -> Vec<&RosterMember> {
    let kept = roster::daemon_pid(roster).is_some();
    let runs =
        |member: &&RosterMember| !member.status.is_ended() && (kept || !roster::is_gone(roster, member));
    roster.members.iter().filter(runs).collect()
}

/// What becomes of a message that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ctl) enum Fate {
    /// Its receiver runs, or has taken it in.
    Sent,
    /// The end of its receiver is recorded, and was before it came: the next life reads it.
    Waits,
}

/// A message that stands in the inbox of a member.
#[derive(Debug, Clone, Copy)]
pub(in crate::ctl) struct Posted<'m> {
    /// Its id.
    pub(in crate::ctl) id: Uuid,
    /// Whom it was sent to, as the roster showed it before.
    pub(in crate::ctl) to: &'m RosterMember,
    /// Where it stands.
    pub(in crate::ctl) at: Appended,
}

impl Posted<'_> {
    /// Looks at the roster again, and tells what becomes of the message.
    ///
    /// A process that lives after the append reads the message, or it is counted as unread at its end. Of one that is
    /// gone the roster will say so in a moment, and where its inbox stood.
    ///
    /// # Errors
    /// [`ExitCode::Conflict`] or [`ExitCode::NotFound`] if a next life will not read it by itself, or it is not known whether it
    /// will, else [`Posted::unseen`].
    pub(in crate::ctl) fn look_again(&self, dir: &TeamDir) -> Result<Fate, CommandError> {
        let name = &self.to.name;
        let roster = roster::load_settled(dir, name).map_err(|error| self.unseen(&error))?;
        let Some(member) = roster.member(name) else { return Err(self.forgotten()) };
        let end = self.at.offset + self.at.len;
        // A fresh life begins where the inbox stood when the last one ended.
        let ended_behind = |exit: &Option<Exit>| exit.as_ref().is_some_and(|exit| exit.inbox.offset >= end);
        if member.spawned_seq != self.to.spawned_seq {
            match (&member.last_exit, &member.exit) {
                (None, None) => return Err(self.forgotten()),
                (last, now) if ended_behind(last) || ended_behind(now) => {
                    return Err(self.spawned_meanwhile());
                }
                _ => {}
            }
        }
        let read = transcript::position(dir, name).map_err(|error| self.unseen(&error))?;
        if read.is_some_and(|position| position.offset >= end) {
            return Ok(Fate::Sent);
        }
        let gone = roster.process_is_gone(member).map_err(|error| self.unseen(&error))?;
        if runs(&roster, member) && !gone {
            return Ok(Fate::Sent);
        }
        if !member.status.is_ended() {
            return Err(self.unrecorded());
        }
        if ended_behind(&member.exit) {
            return Err(self.left_to_a_resume());
        }
        Ok(Fate::Waits)
    }

    /// Where its inbox stood may have been looked up before the message came, and is recorded later; and it may be started
    /// again by the policy.
    fn unrecorded(&self) -> CommandError {
        let Self { id, to: RosterMember { name, .. }, .. } = self;
        let message = format!(
            "{name} ended while the message was sent, and its end is not recorded yet: the message is in its inbox ({id}), \
             but whether it was read, or will be, is not known"
        );
        CommandError::new(ExitCode::Conflict, message).hint(format!(
            "look with `teamctl status {name}`, or `teamctl inbox {name}`, before you send it again"
        ))
    }

    fn left_to_a_resume(&self) -> CommandError {
        let name = &self.to.name;
        ended_meanwhile(name)
            .hint(format!("only `teamctl spawn {name} --resume` reads it; a fresh conversation does not"))
    }

    /// Makes the error of a message of which it cannot be seen what becomes of it: it is there, and not to be sent again
    /// as whatever failed before it may be.
    pub(in crate::ctl) fn unseen(&self, why: &dyn Display) -> CommandError {
        let Self { id, to: RosterMember { name, .. }, .. } = self;
        let message = format!(
            "the message is in the inbox of {name} ({id}), but whether it is read cannot be seen: {why}"
        );
        CommandError::new(ExitCode::Failed, message).hint(format!(
            "look with `teamctl status {name}`, or `teamctl inbox {name}`, before you send it again"
        ))
    }

    fn forgotten(&self) -> CommandError {
        let message = format!("{} was forgotten while the message was sent", self.to.name);
        CommandError::new(ExitCode::NotFound, message).hint("the message lies with its files in the archive")
    }

    fn spawned_meanwhile(&self) -> CommandError {
        let name = &self.to.name;
        let message = format!("{name} ended, and was spawned again, while the message was sent");
        CommandError::new(ExitCode::Conflict, message).hint(format!(
            "a fresh life does not read it, one that `--resume` began does: `teamctl transcript {name}` shows which it is"
        ))
    }
}

/// Makes the error of a message to somebody who ended while it was sent.
pub(in crate::ctl) fn ended_meanwhile(name: &Name) -> CommandError {
    let message = format!("{name} ended while the message was sent");
    CommandError::new(ExitCode::Conflict, message)
        .hint(format!("the message is in its inbox: `teamctl spawn {name}` starts the next incarnation"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::roster::tests::{member, team};
    use teamd_shared::fs::replace;
    use teamd_shared::position::Position;
    use teamd_shared::process::Identity;
    use teamd_shared::team_dir::TeamPath;

    fn name() -> Name {
        Name::new("alice").unwrap()
    }

    fn code(result: Result<&RosterMember, CommandError>) -> ExitCode {
        result.map_or_else(|error| error.code(), |_| ExitCode::Done)
    }

    /// A message to alice, whom the roster showed like this before, and which stands from 100 to 150.
    fn look_again(dir: &TeamDir, before: serde_json::Value) -> Result<Fate, CommandError> {
        let to = &serde_json::from_value(before).unwrap();
        Posted { id: Uuid::from_u128(7), to, at: Appended { offset: 100, len: 50 } }.look_again(dir)
    }

    fn exit(stood_at: u64) -> Exit {
        let (inbox, usage) = (Position { offset: stood_at, tail: 0 }, Default::default());
        Exit {
            code: None,
            signal: Some(9),
            at: 1.0,
            request_id: None,
            unread: 1,
            inbox,
            note: None,
            usage,
            ending: None,
            emptied: None,
            left_behind: None,
        }
    }

    #[test]
    fn only_who_runs_is_written_to_unless_it_may_wait() {
        for (status, queue, expected) in [
            ("idle", false, ExitCode::Done),
            ("shutting_down", false, ExitCode::Done),
            ("shutdown", false, ExitCode::Conflict),
            ("crashed", true, ExitCode::Done),
        ] {
            let (_scratch, dir) = team(&json!([member("alice", status)]));
            assert_eq!(code(check(&roster::load(&dir).unwrap(), &name(), queue)), expected, "{status}");
        }
        let (_scratch, dir) = team(&json!([]));
        assert_eq!(code(check(&roster::load(&dir).unwrap(), &name(), true)), ExitCode::NotFound);
    }

    /// Alice in a second life as the roster shows her whose process is gone, and nobody has recorded that.
    fn gone() -> serde_json::Value {
        let mut gone = member("alice", "idle");
        gone["start_ticks"] = json!(1);
        gone["last_exit"] = serde_json::to_value(exit(100)).unwrap();
        gone
    }

    #[test]
    fn nothing_waits_for_a_next_life_before_the_end_of_the_last_one_is_recorded() {
        // No daemon runs.
        let (_scratch, dir) = team(&json!([gone()]));
        let refused = check(&roster::load(&dir).unwrap(), &name(), true).unwrap_err();
        assert_eq!(refused.code(), ExitCode::Conflict);
        assert!(refused.next_step().unwrap().starts_with("`teamd start` records its end"), "{refused:?}");
        assert!(receiver(&dir, &name(), true).is_err());
        // One runs, and cannot record it yet.
        let of = |daemon: serde_json::Value| {
            let roster =
                json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": [gone()]});
            serde_json::from_value::<Roster>(roster).unwrap()
        };
        let roster = of(this_process());
        assert_eq!(code(check(&roster, &name(), true)), ExitCode::Conflict);
        // It went just after the first look: also then it is not known where its inbox will be said to have stood.
        for before in [member("alice", "idle"), earlier_life()] {
            is_unclear(&look_again(&dir, before).unwrap_err());
        }
    }

    #[test]
    fn of_whom_the_end_is_not_recorded_yet_nobody_says_who_will_read_the_message() {
        // A daemon runs, and does not record it as long as it is waited for.
        let (_scratch, dir) = team(&json!([]));
        let daemon = this_process();
        let roster = json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": [gone()]});
        replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
        let lock = std::fs::File::open(dir.root()).unwrap();
        lock.try_lock().unwrap();
        std::thread::scope(|scope| {
            for before in [member("alice", "idle"), earlier_life()] {
                scope.spawn(|| is_unclear(&look_again(&dir, before).unwrap_err()));
            }
        });
    }

    fn is_unclear(fate: &CommandError) {
        assert_eq!(fate.code(), ExitCode::Conflict);
        assert!(fate.message().contains("its end is not recorded yet"), "{fate}");
        assert!(fate.next_step().unwrap().ends_with("before you send it again"), "{fate:?}");
    }

    /// Alice as she was a life before.
    fn earlier_life() -> serde_json::Value {
        let mut before = member("alice", "idle");
        before["spawned_seq"] = json!(3);
        before
    }

    fn this_process() -> serde_json::Value {
        let me = Identity::of_self().unwrap();
        json!({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "started_at": 1.0})
    }

    #[test]
    fn what_became_of_a_message_to_somebody_who_ended_meanwhile_is_known() {
        let before = || member("alice", "idle");
        for (stood_at, fate) in [(100, Ok(Fate::Waits)), (150, Err(ExitCode::Conflict))] {
            let mut ended = member("alice", "crashed");
            ended["exit"] = serde_json::to_value(exit(stood_at)).unwrap();
            let (_scratch, dir) = team(&json!([ended]));
            let looked = look_again(&dir, before());
            assert_eq!(looked.map_err(|error| error.code()), fate, "the inbox stood at {stood_at}");
        }
        let (_scratch, dir) = team(&json!([member("alice", "working")]));
        assert_eq!(look_again(&dir, before()), Ok(Fate::Sent));
        // Its process is gone, and the roster does not say so yet: it will.
        let daemon = this_process();
        let write = |member: &serde_json::Value| {
            let roster =
                json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": [member]});
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
        assert_eq!(look_again(&dir, before()).unwrap_err().code(), ExitCode::NotFound);
    }

    #[test]
    fn what_became_of_a_message_to_somebody_who_was_spawned_again_meanwhile_is_known() {
        for (last_exit, fate) in [
            // It was written when the earlier life had ended already.
            (Some(exit(100)), Ok(Fate::Sent)),
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
        // The policy starts a life again that reads all of it.
        let mut restarted = member("alice", "idle");
        restarted["incarnation"] = json!(2);
        restarted["last_exit"] = serde_json::to_value(exit(150)).unwrap();
        let (_scratch, dir) = team(&json!([restarted]));
        assert_eq!(look_again(&dir, member("alice", "idle")), Ok(Fate::Sent));
    }

    #[test]
    fn whoever_cannot_look_again_is_not_told_to_try_again() {
        let (_scratch, dir) = team(&json!([member("alice", "idle")]));
        // Not a file that can be read.
        let transcript = dir.path(&TeamPath::transcript(&name()));
        std::fs::create_dir_all(&transcript).unwrap();
        let error = look_again(&dir, member("alice", "idle")).unwrap_err();
        assert!(error.message().contains("is in the inbox of alice"), "{error}");
        assert!(error.next_step().unwrap().ends_with("before you send it again"), "{error:?}");
    }
}
