//! Who is talked to: how a message reaches it, and how the lead agent is started when it does not run.

use std::time::Duration;

use teamd_shared::clock;
use teamd_shared::config::RosterMember;
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::append;
use teamd_shared::message::{Body, Message, USER};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::resolve::Flags;
use uuid::Uuid;

use crate::client::{is_locked, not_running};
use crate::ctl::commands::send::{Fate, ended_meanwhile, look_again, runs};
use crate::ctl::commands::spawn;
use crate::ctl::context::Context;
use crate::ctl::roster;
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// How long the lead agent may take until it is ready.
const READY: Duration = Duration::from_secs(30);
/// What the lead agent is for.
const LEAD_ROLE: &str = "lead";

/// Who is talked to.
pub(in crate::ctl) struct Party {
    /// Its name.
    pub(in crate::ctl) name: Name,
    /// How it is begun when it does not run: the lead agent. Others are not begun by talking to them.
    pub(in crate::ctl) begin: Option<Begin>,
}

/// How the lead agent is begun.
#[derive(Debug, Clone, Default)]
pub(in crate::ctl) struct Begin {
    /// The model, as `PROVIDER[:MODEL]`.
    pub(in crate::ctl) model: Option<String>,
    /// The directory to work in, absolute.
    pub(in crate::ctl) workspace: Option<String>,
    /// Whether a new conversation begins; else the last one goes on.
    pub(in crate::ctl) fresh: bool,
}

impl Party {
    /// Tells whether it is the lead agent, whose work the whole team is.
    pub(super) fn leads(&self) -> bool {
        self.begin.is_some()
    }

    /// Returns it, if it runs.
    ///
    /// # Errors
    /// [`ExitCode::NotFound`] if a teammate is not on the roster.
    pub(super) fn running(&self, dir: &TeamDir) -> Result<Option<RosterMember>, CommandError> {
        let roster = roster::load(dir)?;
        let member = match (roster.member(&self.name), &self.begin) {
            (None, None) => return Err(roster::unknown(&self.name)),
            (member, _) => member.filter(|member| runs(&roster, member)),
        };
        Ok(member.cloned())
    }

    /// Begins it if it does not run. Returns whether it was begun.
    ///
    /// # Errors
    /// [`ExitCode::NotRunning`] without a daemon, [`ExitCode::Conflict`] if it is not to be begun from here, else as
    /// `teamctl spawn`.
    pub(super) async fn ensure(
        &self,
        context: &Context,
        dir: &TeamDir,
        again: bool,
    ) -> Result<bool, CommandError> {
        if self.running(dir)?.is_some() {
            return Ok(false);
        }
        let name = &self.name;
        let Some(begin) = &self.begin else {
            let message = format!("{name} is not running: nothing was sent");
            return Err(CommandError::new(ExitCode::Conflict, message)
                .hint(format!("`teamctl spawn {name} --resume` goes on with its conversation")));
        };
        if !is_locked(dir) {
            return Err(not_running(dir));
        }
        let known = roster::load(dir)?.member(name).is_some();
        let model = begin.model.as_deref().map(str::parse::<ModelSpec>).transpose();
        let flags = Flags {
            role: Some(LEAD_ROLE.to_owned()),
            model: model
                .map_err(|error| CommandError::new(ExitCode::Usage, error.to_string()).hint(error.hint()))?,
            workspace: begin.workspace.clone(),
            // A conversation that was begun afresh goes on when the agent has to be started again.
            resume: known && (again || !begin.fresh),
            ..Flags::default()
        };
        let environment = Environment::of_self();
        let resolved = spawn::settle(context, dir, (name, &flags), &environment)?;
        let order = resolved.order(name.clone(), environment);
        spawn::start(context, dir, order, READY).await?;
        Ok(true)
    }

    /// Sends it a message of the person. Returns the id.
    ///
    /// # Errors
    /// If it cannot be appended, or the receiver ended meanwhile.
    pub(super) fn say(&self, context: &Context, dir: &TeamDir, text: &str) -> Result<Uuid, CommandError> {
        let id = RandomIds.message();
        let message =
            Message::new(id, USER, self.name.as_str(), clock::wall(), Body::Message).with_content(text);
        let appended = append(dir, &self.name, &message, context.settings.durability)?;
        match look_again(dir, &self.name, appended)? {
            Fate::Sent => Ok(id),
            Fate::Waits => Err(ended_meanwhile(&self.name)),
        }
    }
}
