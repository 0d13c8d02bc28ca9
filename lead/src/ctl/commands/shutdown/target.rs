//! One name of a shutdown: how far it has come, what became of it, and how that is told.

use serde_json::{Value, json};
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Done, Refusal};
use teamd_shared::id::RequestId;
use teamd_shared::member::{Exit, Status};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::client::unexpected;
use crate::ctl::args::Shutdown;
use crate::ctl::context::Context;
use crate::ctl::render;
use crate::ctl::waiting::Waited;
use crate::ctl::{clock, journal, roster};
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use std::time::Duration;

/// One name, and how far it has come.
pub(super) struct Target {
    pub(super) name: Name,
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
    pub(super) fn answered(
        &self,
        dir: &TeamDir,
        args: &Shutdown,
        result: Result<Done, Refusal>,
    ) -> Result<End, CommandError> {
        match result {
            Ok(Done::Ended { status }) => self.gone(dir, status),
            Ok(other) => Ok(End::Failed(unexpected(&other))),
            Err(refusal) => self.refused(dir, args, refusal),
        }
    }

    pub(super) fn refused(
        &self,
        dir: &TeamDir,
        args: &Shutdown,
        refusal: Refusal,
    ) -> Result<End, CommandError> {
        let error = CommandError::from(refusal);
        match error.code() {
            ExitCode::Rejected => Ok(End::Rejected(error.message().to_owned())),
            // Whoever ended between the look at the roster, or the first order, and this one is what was wanted.
            ExitCode::Conflict if args.all || self.repeated => self.gone_or(dir, error),
            // Whoever was asked, left, and was forgotten meanwhile.
            _ => Ok(self.end_in_journal(dir)?.unwrap_or(End::Failed(error))),
        }
    }

    /// What became of somebody who may have ended; if not, it is an error.
    pub(super) fn gone_or(&self, dir: &TeamDir, error: CommandError) -> Result<End, CommandError> {
        let roster = roster::load_one(dir, &self.name)?;
        let ended = roster.member(&self.name).map(|member| member.status).filter(|status| status.is_ended());
        ended.map_or(Ok(End::Failed(error)), |status| self.gone(dir, status))
    }

    /// How it ended stands in the roster before the daemon says that it ended; if the next life stands there already,
    /// in the journal.
    fn gone(&self, dir: &TeamDir, status: Status) -> Result<End, CommandError> {
        let roster = roster::load_one(dir, &self.name)?;
        let asked = self.asked.as_ref().map(|(_, incarnation)| *incarnation);
        let this = |member: &&RosterMember| {
            member.status.is_ended() && asked.is_none_or(|asked| asked == member.incarnation)
        };
        if let Some(member) = roster.member(&self.name).filter(this) {
            return Ok(End::Gone(member.status, member.exit.clone()));
        }
        Ok(self.end_in_journal(dir)?.unwrap_or(End::Gone(status, None)))
    }

    fn end_in_journal(&self, dir: &TeamDir) -> Result<Option<End>, CommandError> {
        let Some((_, incarnation)) = &self.asked else { return Ok(None) };
        let end = journal::end_of(dir, &self.name, *incarnation)?;
        Ok(end.map(|(status, exit)| End::Gone(status, exit)))
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
