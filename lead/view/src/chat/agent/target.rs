//! The agent of a chat: how a message reaches it, and how the lead agent is started when it is not
//! running.

use std::time::Duration;

use teamd_client::act::send::{delivery, undelivered};
use teamd_client::act::spawn;
use teamd_client::act::waiting::Requester;
use teamd_client::connection::{not_running, unexpected};
use teamd_client::context::Context;
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::read::roster;
use teamd_shared::clock;
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Command, Done, ShutdownOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::append;
use teamd_shared::message::{Body, Message, USER};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::spawn::{SpawnRequest, model_of_key, resolve};
use teamd_shared::team_dir::TeamDir;
use teamd_shared::terms::TermsPatch;
use teamd_shared::transcript;
use uuid::Uuid;

use super::compare_settings::{self, Difference};
use super::options::LeadOptions;

/// How long the lead agent may take until it is ready.
const READY: Duration = Duration::from_secs(30);
/// What the lead agent is for.
const LEAD_ROLE: &str = "lead";

/// The agent of a chat.
#[derive(Debug, Clone)]
pub struct ChatTarget {
    /// Its name.
    pub name: Name,
    /// How the lead agent is started when it is not running; none for a teammate, which a chat does
    /// not start.
    pub start: Option<LeadOptions>,
}

impl ChatTarget {
    /// Returns an agent by its name, the lead agent as it was started last.
    pub(in crate::chat) fn of(name: Name) -> Self {
        let start = (name == Name::lead()).then(LeadOptions::default);
        Self { name, start }
    }

    /// Tells whether it is the lead agent, whose work includes that of its team.
    pub(in crate::chat) fn is_lead(&self) -> bool {
        self.start.is_some()
    }

    /// Returns the agent, if it is running.
    ///
    /// # Errors
    /// [`ExitCode::NotFound`] if a teammate is not on the roster.
    pub(crate) fn running(&self, dir: &TeamDir) -> Result<Option<RosterMember>, CommandError> {
        let roster = roster::load(dir)?;
        let member = match (roster.member(&self.name), &self.start) {
            (None, None) => return Err(roster::unknown(&roster, &self.name)),
            (member, _) => member.filter(|member| roster::runs(&roster, member)),
        };
        Ok(member.cloned())
    }

    /// Starts the lead agent if it is not running, and returns whether it did. One that runs is
    /// compared with the command line first, unless that was done before (`again`).
    ///
    /// # Errors
    /// [`ExitCode::NotRunning`] without a daemon, [`ExitCode::Conflict`] if a teammate is not
    /// running or the lead agent differs from the command line, else as `teamctl spawn`.
    pub async fn ensure(
        &self,
        context: &Context,
        dir: &TeamDir,
        again: bool,
    ) -> Result<bool, CommandError> {
        if let Some(member) = self.running(dir)? {
            let stays = match &self.start {
                Some(options) if !again => compare(context, dir, &member, options)?,
                _ => true,
            };
            if stays {
                return Ok(false);
            }
            shut_down(context, dir, &self.name).await?;
        }
        let name = &self.name;
        let Some(options) = &self.start else {
            let message = format!("{name} is not running: nothing was sent");
            return Err(CommandError::new(ExitCode::Conflict, message).hint(format!(
                "`teamctl spawn {name} --resume` continues its conversation"
            )));
        };
        if !is_locked(dir) {
            return Err(not_running(dir));
        }
        let is_on_roster = roster::load(dir)?.member(name).is_some();
        let flags = TermsPatch {
            role: Some(LEAD_ROLE.to_owned()),
            model: options.model()?,
            agent: options.agent.clone(),
            workspace: options.workspace.clone(),
            ..TermsPatch::default()
        };
        // A fresh conversation continues when the agent is started again.
        let resume = is_on_roster && (again || !options.fresh);
        let order = spawn::order(
            context,
            dir,
            SpawnRequest {
                name,
                flags,
                ca: None,
                resume,
            },
        )?;
        let Err(error) = spawn::start(context, dir, order, READY).await else {
            return Ok(true);
        };
        // Another chat may have started it at the same moment.
        match if error.code() == ExitCode::Conflict {
            self.running(dir)?
        } else {
            None
        } {
            Some(member) => compare(context, dir, &member, options).map(|_| false),
            None => Err(error),
        }
    }

    /// Ends the lead agent, and starts it as its options say.
    ///
    /// # Errors
    /// As [`ChatTarget::ensure`], and [`ExitCode::Rejected`] if it does not leave.
    pub(in crate::chat) async fn restart(
        &self,
        context: &Context,
        dir: &TeamDir,
    ) -> Result<(), CommandError> {
        if self.running(dir)?.is_some() {
            shut_down(context, dir, &self.name).await?;
        }
        self.ensure(context, dir, false).await.map(drop)
    }

    /// Sends a message of the person, and returns its id.
    ///
    /// # Errors
    /// If it cannot be appended, or the receiver ended meanwhile.
    pub fn send(&self, context: &Context, dir: &TeamDir, text: &str) -> Result<Uuid, CommandError> {
        let roster = roster::load_one(dir, &self.name)?;
        let to = roster::find_one(dir, &roster, &self.name)?;
        let id = RandomIds.message();
        let message = Message::new(id, USER, self.name.as_str(), clock::wall(), Body::Message)
            .with_content(text);
        let at = append(dir, &self.name, &message, context.settings.durability)?;
        undelivered(&self.name, id, &delivery(dir, to, at)).map_or(Ok(id), Err)
    }
}

/// Compares the lead agent that runs with the command line and the settings, and tells what
/// differs. Returns whether it stays as it is.
fn compare(
    context: &Context,
    dir: &TeamDir,
    member: &RosterMember,
    options: &LeadOptions,
) -> Result<bool, CommandError> {
    let usual = usual_model(context, member);
    let last = transcript::last_entry(dir, &member.name)?;
    let failed = compare_settings::failure(member, last.as_ref().map(|entry| &entry.event));
    let difference = compare_settings::compare(member, options, failed, usual.as_ref())?;
    let Some(Difference { note, hint }) = difference else {
        return Ok(true);
    };
    context.out.note(escape::line(&note));
    if let Some(hint) = &hint {
        context.out.hint(hint);
    }
    Ok(hint.is_some())
}

/// Returns the model that a lead agent would get here if nothing was asked for. Settings that are
/// broken now do not matter to one that runs.
fn usual_model(context: &Context, member: &RosterMember) -> Option<ModelSpec> {
    let flags = TermsPatch::default();
    let environment = Environment::of_self();
    let request = SpawnRequest {
        name: &member.name,
        flags,
        ca: None,
        resume: false,
    };
    let default_model = model_of_key(&|name| environment.value(name));
    let order = resolve(
        request,
        default_model,
        Some(member),
        environment,
        context.team_file().ok()?,
    );
    order.ok()?.terms.model
}

/// Shuts the lead agent down, and waits for it.
async fn shut_down(context: &Context, dir: &TeamDir, name: &Name) -> Result<(), CommandError> {
    let order = ShutdownOrder {
        request_id: RandomIds.request(),
        name: name.clone(),
        reason: "it is started again with the current settings".to_owned(),
        decide_within: context.settings.decide_within.as_secs_f64(),
        force_after: None,
        wait: true,
    };
    let timeout = Some(context.settings.shutdown_timeout);
    match (Requester {
        dir,
        out: &context.out,
        timeout,
    })
    .one(Command::Shutdown(order))
    .await?
    {
        Ok(Ok(Done::Ended { .. })) => Ok(()),
        Ok(Ok(Done::Rejected { reason, .. })) => Err(CommandError::new(ExitCode::Rejected, reason)),
        Ok(answer) => Err(unexpected(&answer?)),
        Err(early) => {
            let hint = format!("`teamctl status {name}` shows what it does");
            Err(early.error(name, format!("{name} has not shut down yet"), hint))
        }
    }
}
