//! Who is talked to: how a message reaches it, and how the lead agent is started when it does not run.

use std::time::Duration;

use teamd_shared::clock;
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Command, Done, ShutdownOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::append;
use teamd_shared::message::{Body, Message, USER};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::resolve::{self, Flags, Resolved};
use uuid::Uuid;

use super::agree::{self, Verdict};
use crate::client::{Client, is_locked, not_running, unexpected};
use crate::ctl::commands::send::{Fate, Posted, ended_meanwhile, runs};
use crate::ctl::commands::spawn;
use crate::ctl::context::Context;
use crate::ctl::waiting::{One, Waiting};
use crate::ctl::{escape, roster};
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

impl Begin {
    /// Tells whether one that runs is talked to as it is.
    fn asks_for_nothing(&self) -> bool {
        let Self { model, workspace, fresh } = self;
        model.is_none() && workspace.is_none() && !fresh
    }

    fn model(&self) -> Result<Option<ModelSpec>, CommandError> {
        let model = self.model.as_deref().map(str::parse::<ModelSpec>).transpose();
        model.map_err(|error| CommandError::new(ExitCode::Usage, error.to_string()).hint(error.hint()))
    }
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

    /// Begins it if it does not run. Returns whether it was begun. The first time, one that runs is looked at whether it is
    /// what is asked for; `again`: it was.
    ///
    /// # Errors
    /// [`ExitCode::NotRunning`] without a daemon, [`ExitCode::Conflict`] if it is not to be begun from here, or is another
    /// one than was asked for, else as `teamctl spawn`.
    pub(super) async fn ensure(
        &self,
        context: &Context,
        dir: &TeamDir,
        again: bool,
    ) -> Result<bool, CommandError> {
        if let Some(member) = self.running(dir)? {
            let goes_on = match &self.begin {
                Some(begin) if !again => agrees(context, dir, (&member, begin)).await?,
                _ => true,
            };
            if goes_on {
                return Ok(false);
            }
            end(context, dir, &self.name).await?;
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
        let flags = Flags {
            role: Some(LEAD_ROLE.to_owned()),
            model: begin.model()?,
            workspace: begin.workspace.clone(),
            // A conversation that was begun afresh goes on when the agent has to be started again.
            resume: known && (again || !begin.fresh),
            ..Flags::default()
        };
        let environment = Environment::of_self();
        let resolved = spawn::settle(context, dir, (name, &flags), &environment)?;
        let order = resolved.order(name.clone(), environment);
        let Err(error) = spawn::start(context, dir, order, READY).await else { return Ok(true) };
        // Somebody else may have begun it in the same moment.
        match self.running(dir)?.filter(|_| error.code() == ExitCode::Conflict) {
            Some(member) => agrees(context, dir, (&member, begin)).await.map(|_| false),
            None => Err(error),
        }
    }

    /// Sends it a message of the person. Returns the id.
    ///
    /// # Errors
    /// If it cannot be appended, or the receiver ended meanwhile.
    pub(super) fn say(&self, context: &Context, dir: &TeamDir, text: &str) -> Result<Uuid, CommandError> {
        let roster = roster::load_one(dir, &self.name)?;
        let to = roster::find(&roster, &self.name)?;
        let id = RandomIds.message();
        let message =
            Message::new(id, USER, self.name.as_str(), clock::wall(), Body::Message).with_content(text);
        let at = append(dir, &self.name, &message, context.settings.durability)?;
        match (Posted { id, to, at }).look_again(dir)? {
            Fate::Sent => Ok(id),
            Fate::Waits => Err(ended_meanwhile(&self.name)),
        }
    }
}

/// Looks whether the lead agent that runs is the one that is asked for, and says what differs. Returns whether it goes on
/// as it is.
async fn agrees(
    context: &Context,
    dir: &TeamDir,
    (member, begin): (&RosterMember, &Begin),
) -> Result<bool, CommandError> {
    let environment = Environment::of_self();
    let usual = match usual(context, member, &environment) {
        Ok(usual) => usual,
        // What is broken after it began stops nobody who talks to it as it is.
        Err(error) if begin.asks_for_nothing() => {
            context.out.note(format_args!(
                "what is set here is not compared with what {} has: {error}",
                member.name
            ));
            error.next_step().into_iter().for_each(|hint| context.out.hint(hint));
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    let (model, usual_model) = (begin.model()?, usual.model.clone());
    let differing = match member.model.parse::<ModelSpec>() {
        Ok(spec) if is_locked(dir) => {
            let set = usual.order(member.name.clone(), environment).environment.of_service(spec.provider);
            compare(dir, &member.name, set).await?
        }
        // Nobody can tell.
        _ => Vec::new(),
    };
    let asked = agree::Asked { begin, model, usual: usual_model, differing };
    match agree::judge(member, &asked)? {
        Verdict::Agrees => Ok(true),
        Verdict::Tell { note, hint } => {
            context.out.note(escape::line(&note));
            context.out.hint(hint);
            Ok(true)
        }
        Verdict::Anew { note } => {
            context.out.note(escape::line(&note));
            Ok(false)
        }
    }
}

/// Works out what the lead agent would be if it were begun here and nothing was asked for.
fn usual(
    context: &Context,
    member: &RosterMember,
    environment: &Environment,
) -> Result<Resolved, CommandError> {
    let flags = Flags::default();
    let asked = resolve::Asked { name: &member.name, flags: &flags, earlier: Some(member) };
    let lookup = |variable: &str| environment.value(variable);
    Ok(resolve::resolve(asked, &lookup, context.team_file()?)?)
}

async fn compare(dir: &TeamDir, name: &Name, environment: Environment) -> Result<Vec<String>, CommandError> {
    let mut client = Client::connect(dir).await?;
    match client.call(Command::Compare { name: name.clone(), environment }).await? {
        Done::Compared { differing } => Ok(differing),
        other => Err(unexpected(&other)),
    }
}

/// Asks it to leave, and waits until it is gone.
async fn end(context: &Context, dir: &TeamDir, name: &Name) -> Result<(), CommandError> {
    let order = ShutdownOrder {
        request_id: RandomIds.request(),
        name: name.clone(),
        reason: "it is begun again with what is set now".to_owned(),
        decide_within: context.settings.decide_within.as_secs_f64(),
        force_after: None,
        wait: true,
    };
    let timeout = Some(context.settings.shutdown_timeout);
    let hint = format!("`teamctl status {name}` shows what it does");
    match (Waiting { dir, out: &context.out, timeout }).one(Command::Shutdown(order)).await? {
        One::Done(Done::Ended { .. }) => Ok(()),
        One::Done(Done::Rejected { reason, .. }) => Err(CommandError::new(ExitCode::Rejected, reason)),
        One::Done(other) => Err(unexpected(&other)),
        One::Refused(refusal) => Err(refusal.into()),
        One::TimedOut => {
            Err(CommandError::new(ExitCode::TimedOut, format!("{name} has not left yet")).hint(hint))
        }
        One::Interrupted => {
            Err(CommandError::new(ExitCode::Interrupted, format!("the waiting for {name} was ended"))
                .hint(hint))
        }
    }
}
