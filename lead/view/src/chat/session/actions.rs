//! What a chat does apart from sending messages: commands, another model, programs of the person.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{AfterInput, ChatSession, unusable};
use crate::chat::agent::ChatTarget;
use crate::chat::console::{ShellEnd, UnfinishedWork};
use crate::chat::prompt::commands;
use teamd_client::args::{Approve, TeamctlCommand};
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::BAD;
use teamd_client::print::style::paint;

/// How long the prompt waits for the output of a command. A shutdown may take longer: its output is
/// shown above the prompt.
const COMMAND: Duration = Duration::from_secs(1);

impl ChatSession<'_> {
    /// Carries a command out. One that answers the plan of the question ends the question.
    pub(super) async fn call(&mut self, command: TeamctlCommand) {
        let answers = match &command {
            TeamctlCommand::Approve(Approve { verdict, .. }) | TeamctlCommand::Reject(verdict) => {
                Some(verdict.id.clone())
            }
            _ => None,
        };
        let done = matches!(self.carry_out(command).await, Some(Ok(_)));
        if done && let Some(id) = answers {
            self.questions
                .open
                .take_if(|open| open.request_id().as_str().starts_with(&id));
        }
    }

    /// Carries a command out. Returns its result, unless it takes longer than the prompt waits:
    /// then it continues.
    pub(super) async fn carry_out(&mut self, command: TeamctlCommand) -> Option<CommandResult> {
        // The answer to a plan that the chat follows is shown from the journal.
        let followed = (!self.target.is_lead()).then(|| self.target.name.clone());
        let perform = self.perform;
        self.in_thread(None, move |context| {
            commands::run(context, command, perform, |from| {
                followed.is_some_and(|name| name.as_str() != from)
            })
        })
        .await
    }

    /// Runs an action in a thread: it has a runtime of its own, and may take long. With `what` the
    /// chat does not end before the action, and says what it waits for.
    async fn in_thread(
        &mut self,
        what: Option<String>,
        action: impl FnOnce(&Context) -> CommandResult + Send + 'static,
    ) -> Option<CommandResult> {
        let (done, is_done) = oneshot::channel();
        let (ends, end) = oneshot::channel();
        self.console
            .unfinished
            .extend(what.map(|what| UnfinishedWork { what, end }));
        let output = self.console.printed.output();
        let columns = self.console.screen.columns();
        let elsewhere = self.context.elsewhere();
        std::thread::spawn(move || {
            let context = elsewhere(output(columns).in_words(commands::in_chat));
            let result = action(&context);
            if let Err(error) = &result {
                context.out.error(error);
            }
            // The prompt may have stopped waiting.
            done.send(result).ok();
            drop(ends);
        });
        // If the terminal is gone, the next frame fails.
        self.draw().ok();
        tokio::time::timeout(COMMAND, is_done).await.ok()?.ok()
    }

    /// Shows the model of the agent, or takes another one.
    pub(super) async fn model(&mut self, model: Option<String>) {
        if model.is_some() {
            return self.restart(model, false).await;
        }
        self.context.out.aside(format_args!(
            "{} runs {}",
            self.target.name,
            escape::line(&self.seen.model)
        ));
        if self.target.is_lead() {
            self.context
                .out
                .hint("/model anthropic (or openai:MODEL) switches to another one");
        }
    }

    /// Ends the lead agent and starts it again: with another model, or with a fresh conversation.
    pub(super) async fn restart(&mut self, model: Option<String>, fresh: bool) {
        let Some(start) = &mut self.target.start else {
            let message = format!(
                "a chat restarts only the lead agent, not {}",
                self.target.name
            );
            let hint = format!(
                "`teamctl shutdown {0}`, then `teamctl spawn {0}` with what you want",
                self.target.name
            );
            return self
                .context
                .out
                .error(&CommandError::new(ExitCode::Usage, message).hint(hint));
        };
        let before = start.clone();
        start.model = model.or(start.model.take());
        if let Err(error) = start.model() {
            *start = before;
            return self.context.out.error(&error);
        }
        let mut options = start.clone();
        options.fresh = fresh;
        let target = ChatTarget {
            name: self.target.name.clone(),
            start: Some(options),
        };
        let what = format!("until {} is started again", target.name);
        self.in_thread(Some(what), move |context| {
            let dir = context.dir()?;
            block_on(target.restart(context, &dir))?;
            let how = if fresh {
                "begins a new conversation"
            } else {
                "continues the conversation"
            };
            context.out.note(format_args!("{} {how}", target.name));
            Ok(ExitCode::Done)
        })
        .await;
    }

    /// Runs a command of the person, who has the terminal meanwhile. Its output goes to nothing
    /// else.
    pub(super) async fn shell(&mut self, command: &str) -> Result<AfterInput, CommandError> {
        let end = self.console.shell(command).await.map_err(unusable)?;
        // Keys that were meant for the command must not answer a question.
        if let Some(open) = &mut self.questions.open {
            open.note_hidden();
        }
        let line = match end {
            ShellEnd::ChatEnds => return Ok(AfterInput::Leave),
            ShellEnd::Exited(Ok(status)) if status.success() => return Ok(AfterInput::Stay),
            ShellEnd::Exited(Ok(status)) => status.to_string(),
            ShellEnd::Exited(Err(error)) => format!("cannot run sh: {error}"),
        };
        self.context.out.aside(paint(BAD, escape::line(&line)));
        Ok(AfterInput::Stay)
    }
}
