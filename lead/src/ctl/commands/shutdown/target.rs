//! One name of a shutdown: what became of it, and how that is told.

use std::time::Duration;

use serde_json::{Value, json};
use teamd_shared::control::{Done, Refusal};
use teamd_shared::id::RequestId;
use teamd_shared::member::{Exit, MemberStatus};
use teamd_shared::name::Name;
use teamd_shared::request::{self, Request};
use teamd_shared::team_dir::TeamDir;

use RequestOutcome::{Failed, Gone, Pending, Rejected};

use crate::client::{CallError, is_locked, unexpected};
use crate::ctl::args::Shutdown;
use crate::ctl::context::Context;
use crate::ctl::render;
use crate::ctl::waiting::{CommandAnswer, Waited};
use crate::ctl::{clock, journal, roster};
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Where it is said what cannot be read, and looked up how a teammate ended.
type Place<'a> = (&'a Context, &'a TeamDir);

/// One name, and what became of it.
pub(super) struct Target {
    pub(super) name: Name,
    pub(super) end: Option<RequestOutcome>,
}

/// What became of a request.
pub(super) enum RequestOutcome {
    /// The process is gone.
    Gone { request_id: Option<RequestId>, status: MemberStatus, exit: Option<Exit> },
    /// The teammate rejected it.
    Rejected { request_id: RequestId, reason: String },
    /// The process still runs.
    Pending { request_id: RequestId, error: Option<CommandError> },
    /// The teammate could not be asked, or not be waited for.
    Failed(CommandError),
}

impl Target {
    /// What became of it is its own outcome, also where something cannot be read: the others have theirs.
    pub(super) fn answered(&self, at: Place<'_>, args: &Shutdown, answer: CommandAnswer) -> RequestOutcome {
        match answer.result {
            Ok(Done::Ended { request_id, incarnation, status }) => {
                Gone { request_id: Some(request_id), status, exit: self.exit(at, incarnation) }
            }
            Ok(Done::Rejected { request_id, reason }) => Rejected { request_id, reason },
            Ok(Done::Asked { request_id }) => Pending { request_id, error: None },
            Ok(other) => Failed(unexpected(&other)),
            Err(refusal) => self.refused(at, args.all || answer.said_again, refusal),
        }
    }

    /// A teammate that ended before it was asked is what was wanted, if it ran when the command began.
    fn refused(&self, (_, dir): Place<'_>, ran: bool, refusal: Refusal) -> RequestOutcome {
        let error = CommandError::from(refusal);
        let roster = roster::load_one(dir, &self.name).ok().filter(|_| ran);
        let member = roster.as_ref().and_then(|roster| roster.member(&self.name));
        match member.filter(|member| error.code() == ExitCode::Conflict && member.status.is_ended()) {
            Some(member) => Gone { request_id: None, status: member.status, exit: member.exit.clone() },
            None => Failed(error),
        }
    }

    /// How an incarnation ended in detail stands in the roster before the daemon says that it ended.
    fn exit(&self, (context, dir): Place<'_>, incarnation: u32) -> Option<Exit> {
        let roster = match roster::load_one(dir, &self.name) {
            Ok(roster) => roster,
            Err(error) => {
                context.out.note(format_args!("how {} ended in detail cannot be read: {error}", self.name));
                return None;
            }
        };
        let member = roster.member(&self.name)?;
        if member.incarnation == incarnation { member.exit.clone() } else { member.last_exit.clone() }
    }

    /// Says why there is no answer. The journal shows whether the request is recorded.
    pub(super) fn unanswered(
        &self,
        dir: &TeamDir,
        waited: Waited,
        (force, patience): (bool, Duration),
    ) -> RequestOutcome {
        let name = &self.name;
        let Some(request_id) = self.recorded(dir) else { return Failed(self.unheard(dir, waited)) };
        let pending = format!("the request {request_id} stays pending");
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
        Pending { request_id, error: Some(error) }
    }

    fn recorded(&self, dir: &TeamDir) -> Option<RequestId> {
        let is_open =
            |it: &&Request| matches!(it.status, request::Status::Pending | request::Status::Approved);
        let team = journal::fold(dir).ok()?;
        team.shutdown_of(&self.name).filter(is_open).map(|request| request.request_id.clone())
    }

    /// A daemon that runs does not answer, or none runs any more.
    fn unheard(&self, dir: &TeamDir, waited: Waited) -> CommandError {
        match waited {
            Waited::Interrupted => {
                let message =
                    format!("the waiting for {} was ended before the daemon had answered", self.name);
                CommandError::new(ExitCode::Interrupted, message)
                    .hint("`teamctl events --last 5` shows whether it has recorded anything: that goes on")
            }
            _ if is_locked(dir) => CallError::Unanswered.into(),
            _ => CallError::Lost("it does not run any more".to_owned()).into(),
        }
    }

    fn error(&self) -> Option<CommandError> {
        match self.end.as_ref()? {
            Gone { .. } => None,
            Rejected { reason, .. } => {
                let said = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let message = format!("{} rejected the shutdown{said}", self.name);
                let hint = format!("ask again later, or end it: `teamctl shutdown {} --force`", self.name);
                Some(CommandError::new(ExitCode::Rejected, message).hint(hint))
            }
            Pending { error, .. } => error.clone(),
            Failed(error) => Some(error.clone()),
        }
    }

    pub(super) fn code(&self) -> ExitCode {
        self.error().map_or(ExitCode::Done, |error| error.code())
    }

    pub(super) fn to_json(&self) -> Value {
        let result = |request_id: Option<&RequestId>, outcome: Option<&str>| json!({"name": self.name, "request_id": request_id, "outcome": outcome, "reason": null, "exit": null});
        match &self.end {
            Some(Gone { request_id, status, exit }) => {
                let mut gone = result(request_id.as_ref(), Some(status.as_str()));
                gone["exit"] = json!(exit);
                gone
            }
            Some(Rejected { request_id, reason }) => {
                let mut rejected = result(Some(request_id), Some("rejected"));
                rejected["reason"] = json!(reason);
                rejected
            }
            Some(Pending { request_id, .. }) => result(Some(request_id), Some("pending")),
            Some(Failed(error)) => {
                let mut failed = result(None, None);
                failed["error"] = error.to_json();
                failed
            }
            None => result(None, Some("pending")),
        }
    }
}

/// Tells what became of one name as soon as it is known.
pub(super) fn print(context: &Context, target: &Target) -> Result<(), CommandError> {
    if let Some(error) = target.error() {
        context.out.error(&error);
        return Ok(());
    }
    if context.out.is_json() {
        return Ok(());
    }
    let name = &target.name;
    match &target.end {
        Some(Gone { status, exit: Some(exit), .. }) => {
            context.out.text(format_args!("{name} is gone: {} ({})", status.as_str(), render::exit(exit)))
        }
        Some(Gone { status, exit: None, .. }) => {
            context.out.text(format_args!("{name} is gone: {}", status.as_str()))
        }
        Some(Pending { request_id, .. }) => {
            context.out.text(format_args!("{name} is asked to leave ({request_id})"))
        }
        _ => Ok(()),
    }
}
