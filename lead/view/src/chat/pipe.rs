//! A chat without a terminal: stdin is the message, and the agent's answers are the result. It ends
//! with the work that the message sets off.

use std::io::{self, IsTerminal};

use teamd_client::act::waiting::within;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::render::{BAD, DIM};
use teamd_client::print::style::paint;
use teamd_client::print::{clock, escape};
use teamd_client::read::tail::as_it_stands;
use teamd_client::read::text;
use teamd_client::read::wake::Wake;
use teamd_shared::clock::wall;
use teamd_shared::member::Waiting;
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use super::conversation::view::ConversationView;
use super::prompt::commands::{self, ChatInput};
use super::{ChatOptions, SCRIPT};
use crate::model::{Activity, Follower};
use crate::model::{ConversationPart, NewEntries};
use crate::terminal::list_commands;

/// Sends what is on stdin, and waits until the work is done.
///
/// # Errors
/// If the agent cannot be reached; [`ExitCode::Failed`] if its work failed, [`ExitCode::TimedOut`],
/// [`ExitCode::Interrupted`].
pub(super) fn run(context: &Context, dir: &TeamDir, options: &ChatOptions) -> CommandResult {
    let target = &options.target;
    let inputs = inputs(&text::given("-")?, &target.name)?;
    if target.is_lead() && inputs.is_empty() {
        return Err(
            CommandError::new(ExitCode::Usage, "there is no message on stdin")
                .hint("`echo TEXT | teamctl chat`, or run it at a terminal"),
        );
    }
    let says = inputs
        .iter()
        .any(|input| matches!(input, ChatInput::Say(_) | ChatInput::Unknown(..)));
    let mut pipe = block_on(Pipe::begin(context, dir, options, says))?;
    let member = pipe.follower.member()?;
    let is_script = member.is_some_and(|(member, _)| member.model == SCRIPT);
    let inputs = inputs
        .into_iter()
        .map(|input| checked(input.for_model(is_script)));
    for input in inputs.collect::<Result<Vec<_>, _>>()? {
        match input {
            ChatInput::Quit => return Ok(ExitCode::Done),
            ChatInput::Help => context
                .out
                .text(list_commands(context.out.width().unwrap_or(usize::MAX)))?,
            ChatInput::Call(command) => {
                commands::run(context, *command, options.perform, |_| true)?;
            }
            ChatInput::Say(text) => pipe.view.sent(target.send(context, dir, &text)?),
            _ => {}
        }
    }
    // Commands alone set no work off.
    if !says && target.is_lead() {
        return Ok(ExitCode::Done);
    }
    block_on(pipe.wait())
}

/// Reads one message, or commands line by line. Nothing is sent if a part of it is wrong.
fn inputs(text: &str, agent: &Name) -> Result<Vec<ChatInput>, CommandError> {
    if text.starts_with('/') {
        let lines = text.lines();
        return lines
            .map(|line| checked(commands::parse(line, agent)))
            .collect();
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![ChatInput::Say(text.to_owned())])
}

fn checked(input: ChatInput) -> Result<ChatInput, CommandError> {
    match input {
        ChatInput::Wrong(error) => Err(error),
        ChatInput::Shell(_) | ChatInput::Attach(_) | ChatInput::Model(_) | ChatInput::Clear => Err(
            CommandError::new(ExitCode::Usage, "this command needs a terminal"),
        ),
        input => Ok(input),
    }
}

/// A chat.
struct Pipe<'a> {
    context: &'a Context,
    options: &'a ChatOptions,
    view: ConversationView,
    follower: Follower<'a>,
}

impl<'a> Pipe<'a> {
    async fn begin(
        context: &'a Context,
        dir: &'a TeamDir,
        options: &'a ChatOptions,
        says: bool,
    ) -> Result<Self, CommandError> {
        let target = &options.target;
        if says {
            target.ensure(context, dir, false).await?;
        } else {
            target.running(dir)?;
        }
        let last = if says { 0 } else { options.last };
        let follower = Follower::begin(dir, &target.name, last, context.settings.poll)?;
        Ok(Self {
            context,
            options,
            view: ConversationView::new(&target.name, false),
            follower,
        })
    }

    async fn wait(mut self) -> CommandResult {
        let name = &self.options.target.name;
        let timeout = self.options.timeout;
        within(timeout, self.follow()).await?.map_err(|early| {
            let time = clock::span(timeout.unwrap_or_default().as_secs_f64());
            let hint = format!("{name} continues: `teamctl attach {name}` shows it, `teamctl interrupt {name}` interrupts its turn");
            early.error(name, format!("the work is not done after {time}"), hint)
        })
    }

    async fn follow(&mut self) -> CommandResult {
        let target = &self.options.target;
        let mut has_reported_loss = false;
        let mut shown_pause = None;
        let mut transcripts = Wake::of_transcripts(self.follower.dir(), self.context.settings.poll);
        while !self.context.out.closed() {
            // Read before the conversation: of a team that is quiet here, the files have
            // everything.
            let activity = self.follower.activity(target.is_lead())?;
            let added = self.follower.conversation()?;
            self.show(&added)?;
            match &activity {
                Activity::Working | Activity::MailWaits => {}
                _ if !added.entries.is_empty() => continue,
                quiet => return self.end(quiet),
            }
            let pause = self
                .follower
                .member()?
                .and_then(|(member, _)| member.waiting);
            let pause = pause.filter(Waiting::is_outage);
            if pause != shown_pause
                && let Some(pause) = pause.as_ref()
            {
                let line = format!("{}: {}", target.name, pause.describe(wall()));
                self.context.out.aside(paint(DIM, escape::line(&line)));
            }
            shown_pause = pause;
            if !has_reported_loss && !self.follower.has_daemon() {
                has_reported_loss = true;
                self.context
                    .out
                    .note("the daemon is gone; still waiting (`teamd start` starts it again)");
            }
            tokio::select! {
                () = self.follower.changed() => {}
                // A teammate reads its mail, perhaps without a turn.
                () = transcripts.changed(), if activity == Activity::MailWaits => {}
            }
        }
        Ok(ExitCode::Done)
    }

    fn show(&mut self, added: &NewEntries) -> Result<(), CommandError> {
        let out = &self.context.out;
        if out.is_json() {
            added
                .lines
                .iter()
                .try_for_each(|line| out.json(&as_it_stands(line)))?;
        }
        // Answers are shown when they are complete: a pipe cannot take back what was printed.
        for part in self.view.update("", &added.entries) {
            match part {
                ConversationPart::Answer(_) if out.is_json() => {}
                ConversationPart::Answer(text) if io::stdout().is_terminal() => {
                    out.text(escape::text(&text))?
                }
                ConversationPart::Answer(text) => out.text(text)?,
                ConversationPart::Failure(_) | ConversationPart::Result { is_error: true, .. } => {
                    out.aside(paint(BAD, escape::line(&part.line())));
                }
                _ => out.aside(paint(DIM, escape::line(&part.line()))),
            }
        }
        Ok(())
    }

    fn end(&self, activity: &Activity) -> CommandResult {
        let name = &self.options.target.name;
        if *activity == Activity::Ended {
            let message = format!("{name} has ended before the work was done");
            return Err(CommandError::new(ExitCode::Failed, message).hint(format!(
                "`teamctl status {name}` and `teamctl log {name}` show why"
            )));
        }
        if let Activity::PlansWait(names) = activity {
            let names = names
                .iter()
                .map(Name::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            self.context
                .out
                .note(format_args!("a plan waits for a person: {names}"));
            self.context
                .out
                .hint("`teamctl plans` shows it; `teamctl approve ID` or `reject ID` answers it");
        }
        match self.view.ended() {
            None | Some(IdleReason::Available) => Ok(ExitCode::Done),
            Some(reason) => {
                let message = format!("the work of {name} was not done: {}", reason.as_str());
                Err(CommandError::new(ExitCode::Failed, message).hint(format!(
                    "`teamctl transcript {name} --last 5` shows the end of it"
                )))
            }
        }
    }
}
