//! One name of a shutdown: how far it has come, what became of it, and how that is told.

use serde_json::{Value, json};
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Done, Refusal};
use teamd_shared::id::RequestId;
use teamd_shared::member::{Exit, Status};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::client::{CallError, is_locked, not_running, unexpected};
use crate::ctl::args::Shutdown;
use crate::ctl::context::Context;
use crate::ctl::render;
use crate::ctl::waiting::Waited;
use crate::ctl::{clock, journal, roster};
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use std::time::Duration;

/// Where it is said what cannot be read, and looked up how somebody ended.
type Place<'a> = (&'a Context, &'a TeamDir);

/// One name, and how far it has come.
pub(super) struct Target {
    pub(super) name: Name,
    /// The line of the journal in which somebody spawned it, as the roster showed it before it was asked; 0: nobody had; none:
    /// the roster could not be read.
    pub(super) spawned: Option<u64>,
    /// Whether an order for it has gone out to a daemon.
    pub(super) sent: bool,
    /// Whether a daemon was lost that may have been asked: the order was perhaps carried out before it is repeated.
    pub(super) repeated: bool,
    pub(super) asked: Option<(RequestId, u32)>,
    pub(super) end: Option<End>,
}

/// What became of a request.
pub(super) enum End {
    /// The process is gone.
    Gone(Status, Option<Exit>),
    /// The teammate did not want to.
    Rejected(String),
    /// It still runs.
    Pending(Option<CommandError>),
    /// It could not be asked, or not be waited for.
    Failed(CommandError),
}

impl Target {
    /// What became of it is its own outcome, also where something cannot be read: the others have theirs.
    pub(super) fn answered(&self, at: Place<'_>, args: &Shutdown, result: Result<Done, Refusal>) -> End {
        match result {
            Ok(Done::Ended { status }) => self.gone(at, status),
            Ok(other) => End::Failed(unexpected(&other)),
            Err(refusal) => self.refused(at, args, refusal),
        }
    }

    pub(super) fn refused(&self, at: Place<'_>, args: &Shutdown, refusal: Refusal) -> End {
        let error = CommandError::from(refusal);
        match error.code() {
            ExitCode::Rejected => End::Rejected(error.message().to_owned()),
            // Whoever ended between the look at the roster, or the first order, and this one is what was wanted.
            ExitCode::Conflict if args.all || self.repeated => self.gone_or(at, error),
            // Whoever was asked, left, and was forgotten meanwhile.
            _ => self.gone_in_journal_or(at, error),
        }
    }

    /// What became of somebody who may have ended; if not, it is an error.
    pub(super) fn gone_or(&self, at @ (_, dir): Place<'_>, error: CommandError) -> End {
        // What cannot be read there may stand in the journal.
        let roster = roster::load_one(dir, &self.name).ok();
        let member = roster.as_ref().and_then(|roster| roster.member(&self.name));
        match member.map(|member| member.status).filter(|status| status.is_ended()) {
            Some(status) => self.gone(at, status),
            None => self.gone_in_journal_or(at, error),
        }
    }

    fn gone_in_journal_or(&self, (context, dir): Place<'_>, error: CommandError) -> End {
        let end = self.end_in_journal(dir).unwrap_or_else(|unreadable| {
            context.out.note(format_args!("whether {} has ended cannot be read: {unreadable}", self.name));
            None
        });
        end.unwrap_or(End::Failed(error))
    }

    /// It is gone; what cannot be read of how it ended leaves only that unknown.
    fn gone(&self, (context, dir): Place<'_>, status: Status) -> End {
        let end = self.end_on_disk(dir).unwrap_or_else(|error| {
            context.out.note(format_args!("how {} ended in detail cannot be read: {error}", self.name));
            None
        });
        end.unwrap_or(End::Gone(status, None))
    }

    /// How it ended stands in the roster before the daemon says that it ended; if the next life stands there already,
    /// in the journal.
    fn end_on_disk(&self, dir: &TeamDir) -> Result<Option<End>, CommandError> {
        let roster = roster::load_one(dir, &self.name)?;
        let this = |member: &&RosterMember| {
            member.status.is_ended()
                && match &self.asked {
                    Some((_, incarnation)) => *incarnation == member.incarnation,
                    None => [None, Some(0), Some(member.spawned_seq)].contains(&self.spawned),
                }
        };
        match roster.member(&self.name).filter(this) {
            Some(member) => Ok(Some(End::Gone(member.status, member.exit.clone()))),
            None => self.end_in_journal(dir),
        }
    }

    fn end_in_journal(&self, dir: &TeamDir) -> Result<Option<End>, CommandError> {
        let end = match &self.asked {
            Some((_, incarnation)) => journal::end_of(dir, &self.name, *incarnation)?,
            // The order was perhaps carried out, and nobody has heard for which life.
            None => match self.spawned.filter(|_| self.repeated) {
                Some(spawned) => journal::end_of_spawned(dir, &self.name, spawned)?,
                None => None,
            },
        };
        Ok(end.map(|(status, exit)| End::Gone(status, exit)))
    }

    /// Why nothing was heard of an order in time: a daemon that runs does not answer, or none does.
    pub(super) fn unheard(&self, dir: &TeamDir, lost: Option<&CallError>) -> CommandError {
        match lost {
            _ if is_locked(dir) && self.sent => CallError::Unanswered.into(),
            _ if is_locked(dir) => CallError::Silent.into(),
            _ if !self.sent => not_running(dir),
            Some(CallError::Lost(why)) => CallError::Lost(why.clone()).into(),
            _ => CallError::Lost("it does not run any more".to_owned()).into(),
        }
    }

    pub(super) fn unanswered(&self, waited: Waited, force: bool, patience: Duration) -> Option<CommandError> {
        let name = &self.name;
        let pending = match &self.asked {
            Some((request_id, _)) => format!("the request {request_id} stays pending"),
            None => "the request stays pending".to_owned(),
        };
        let error = match waited {
            Waited::Interrupted => {
                CommandError::new(ExitCode::Interrupted, format!("the waiting for {name} was ended"))
                    .hint(format!("{pending}; `teamctl wait {name} --for shutdown` waits again"))
            }
            Waited::TimedOut | Waited::Answered if force => CommandError::new(
                ExitCode::TimedOut,
                format!("{name} is not gone, although signals were sent"),
            )
            .hint(format!("{pending}; `teamctl log teamd` tells what holds it")),
            Waited::TimedOut | Waited::Answered => {
                let time = clock::span(patience.as_secs_f64());
                CommandError::new(ExitCode::TimedOut, format!("{name} has not left within {time}")).hint(
                    format!("{pending}, it leaves when it can; `teamctl shutdown {name} --force` ends it"),
                )
            }
        };
        Some(error)
    }

    fn error(&self) -> Option<CommandError> {
        match self.end.as_ref()? {
            End::Gone(..) => None,
            End::Rejected(reason) => {
                let said = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let message = format!("{} does not want to leave{said}", self.name);
                let hint = format!("ask again later, or end it: `teamctl shutdown {} --force`", self.name);
                Some(CommandError::new(ExitCode::Rejected, message).hint(hint))
            }
            End::Pending(error) => error.clone(),
            End::Failed(error) => Some(error.clone()),
        }
    }

    pub(super) fn code(&self) -> ExitCode {
        self.error().map_or(ExitCode::Done, |error| error.code())
    }

    pub(super) fn to_json(&self) -> Value {
        let (outcome, reason, exit) = match &self.end {
            Some(End::Gone(status, exit)) => (Some(status.as_str()), None, exit.as_ref()),
            Some(End::Rejected(reason)) => (Some("rejected"), Some(reason), None),
            Some(End::Pending(_)) | None => (Some("pending"), None, None),
            Some(End::Failed(_)) => (None, None, None),
        };
        let request_id = self.asked.as_ref().map(|(id, _)| id);
        let mut result = json!({"name": self.name, "request_id": request_id, "outcome": outcome, "reason": reason, "exit": exit});
        if let Some(End::Failed(error)) = &self.end {
            result["error"] = error.to_json();
        }
        result
    }
}

/// Tells what became of one name as soon as it is known.
pub(super) fn tell(context: &Context, target: &Target) -> Result<(), CommandError> {
    if let Some(error) = target.error() {
        context.out.error(&error);
        return Ok(());
    }
    if context.out.is_json() {
        return Ok(());
    }
    let name = &target.name;
    match (&target.end, &target.asked) {
        (Some(End::Gone(status, Some(exit))), _) => {
            context.out.text(format_args!("{name} is gone: {} ({})", status.as_str(), render::exit(exit)))
        }
        (Some(End::Gone(status, None)), _) => {
            context.out.text(format_args!("{name} is gone: {}", status.as_str()))
        }
        (Some(_), Some((request_id, _))) => {
            context.out.text(format_args!("{name} is asked to leave ({request_id})"))
        }
        _ => Ok(()),
    }
}
