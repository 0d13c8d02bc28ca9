//! `teamctl send`: appends a message to an inbox. The daemon is not on this way, and need not run.
//!
//! The roster is looked at before the append, so that nobody writes to a name that is not there, and once more
//! after it: whoever ended in between may never read the message, and the sender must know.

use serde_json::json;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::{Appended, append};
use teamd_shared::message::{Body, LEAD, Message, USER};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript;
use uuid::Uuid;

use crate::ctl::args::Send;
use crate::ctl::context::Context;
use crate::ctl::{clock, roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Send) -> CommandResult {
    let dir = context.dir()?;
    let to = &args.name;
    let is_lead = to.owner == Name::lead();
    if !is_lead {
        check(&roster::load(&dir)?, &to.owner, args.queue)?;
    }
    let content = text::not_blank(text::given(&args.text)?, "message")?;
    // A person with teamctl has the lead's role, but nobody writes to itself.
    let from = if is_lead { USER } else { LEAD };
    let id = RandomIds.message();
    let message = Message::new(id, from, &to.to, clock::now(), Body::Message).with_content(content);
    let appended = append(&dir, &to.owner, &message, context.settings.durability)?;
    if !is_lead && !args.queue {
        check_again(&dir, &roster::load(&dir)?, &to.owner, appended)?;
    }
    report(context, id, args, appended)
}

/// Tells whether a message to this member will be read, as far as the roster knows.
fn check(roster: &Roster, name: &Name, queue: bool) -> Result<(), CommandError> {
    let member = roster::find(roster, name)?;
    if runs(roster, member) || queue {
        return Ok(());
    }
    let status =
        if member.status.is_ended() { member.status.as_str() } else { "gone, though nobody recorded it" };
    let message = format!("{name} is not running ({status}): nothing was sent");
    Err(CommandError::new(ExitCode::Conflict, message)
        .hint(format!("`--queue` leaves it for the next life, `teamctl spawn {name}` begins one")))
}

/// Tells whether a member runs, as far as roster and processes tell.
pub(super) fn runs(roster: &Roster, member: &RosterMember) -> bool {
    !member.status.is_ended() && !roster::ended_unnoticed(roster, member)
}

/// Looks whether the member ended while the message was sent, and what became of it then.
pub(super) fn check_again(
    dir: &TeamDir,
    roster: &Roster,
    name: &Name,
    appended: Appended,
) -> Result<(), CommandError> {
    let Some(member) = roster.member(name) else {
        let message = format!("{name} was forgotten while the message was sent");
        return Err(CommandError::new(ExitCode::NotFound, message)
            .hint("the message lies with its files in the archive"));
    };
    if runs(roster, member) {
        return Ok(());
    }
    let end = appended.offset + appended.len;
    let taken_in = transcript::position(dir, name)?;
    if taken_in.is_some_and(|position| position.offset >= end) {
        return Ok(());
    }
    let skipped = member.exit.as_ref().is_some_and(|exit| exit.inbox.offset >= end);
    let what = match skipped {
        true => format!("`teamctl spawn {name} --resume` reads the message, a fresh life does not"),
        false => format!("the message waits in its inbox: the next life reads it (`teamctl spawn {name}`)"),
    };
    let message = format!("{name} ended while the message was sent ({})", member.status.as_str());
    Err(CommandError::new(ExitCode::Conflict, message).hint(what))
}

fn report(context: &Context, id: Uuid, args: &Send, appended: Appended) -> CommandResult {
    let to = &args.name.to;
    if context.out.is_json() {
        context.out.json(&json!({"id": id, "to": to, "offset": appended.offset}))?;
    } else {
        context.out.text(format_args!("sent to {to} ({id})"))?;
    }
    Ok(ExitCode::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::roster::tests::{member, team};
    use teamd_shared::member::Exit;
    use teamd_shared::position::Position;

    fn name() -> Name {
        Name::new("alice").unwrap()
    }

    fn code(result: Result<(), CommandError>) -> ExitCode {
        result.map_or_else(|error| error.code(), |()| ExitCode::Done)
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

    #[test]
    fn whoever_ends_while_a_message_is_sent_makes_it_a_conflict_that_says_what_became_of_it() {
        let appended = Appended { offset: 100, len: 50 };
        for (stood_at, hint) in [(100, "waits in its inbox"), (150, "--resume")] {
            let mut ended = member("alice", "crashed");
            let inbox = Position { offset: stood_at, tail: 0 };
            let exit =
                Exit { code: None, signal: Some(9), at: 1.0, request_id: None, unread: 1, inbox, note: None };
            ended["exit"] = serde_json::to_value(exit).unwrap();
            let (_scratch, dir) = team(&json!([ended]));
            let error = check_again(&dir, &roster::load(&dir).unwrap(), &name(), appended).unwrap_err();
            assert_eq!(error.code(), ExitCode::Conflict);
            assert!(error.next_step().unwrap().contains(hint), "{error:?}");
        }
        let (_scratch, dir) = team(&json!([member("alice", "working")]));
        assert_eq!(check_again(&dir, &roster::load(&dir).unwrap(), &name(), appended), Ok(()));
    }
}
