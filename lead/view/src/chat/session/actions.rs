//! What a chat does besides sending messages: commands, another model, programs of the person.

use std::process::{Command as Program, Stdio};
use std::time::Duration;

use teamd_client::args::{Approve, Command};
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::output::{lines, paint};
use teamd_client::print::render::BAD;
use tokio::sync::oneshot;

use super::{Session, output};
use crate::chat::agent::ChatTarget;
use crate::chat::prompt::commands;

/// How long the prompt waits for the output of a command. A shutdown may take longer: its output is
/// shown above the prompt.
const COMMAND: Duration = Duration::from_secs(1);
/// The exit code of a shell for a program that is not there.
const NOT_FOUND: i32 = 127;

impl Session<'_> {
    /// Carries a command out. One that answers the plan of the question ends the question.
    pub(super) async fn call(&mut self, command: Command) {
        let answers = match &command {
            Command::Approve(Approve { verdict, .. }) | Command::Reject(verdict) => {
                Some(verdict.id.clone())
            }
            _ => None,
        };
        let done = matches!(self.carry_out(command).await, Some(Ok(_)));
        if done && let Some(id) = answers {
            self.question
                .take_if(|question| question.request_id.as_str().starts_with(&id));
        }
    }

    /// Carries a command out. Returns its result, unless it takes longer than the prompt waits:
    /// then it goes on.
    pub(super) async fn carry_out(&self, command: Command) -> Option<CommandResult> {
        // The answer to a plan that the chat follows is shown from the journal.
        let followed = (!self.target.is_lead()).then(|| self.target.name.clone());
        let perform = self.perform;
        self.in_thread(move |context| {
            commands::run(context, command, perform, |from| {
                followed.is_some_and(|name| name.as_str() != from)
            })
        })
        .await
    }

    /// Does something in a thread: it has a runtime of its own, and may take long.
    async fn in_thread(
        &self,
        action: impl FnOnce(&Context) -> CommandResult + Send + 'static,
    ) -> Option<CommandResult> {
        let (done, is_done) = oneshot::channel();
        let screen = self.console.screen.clone();
        let elsewhere = self.context.elsewhere();
        std::thread::spawn(move || {
            let context = elsewhere(output(&screen));
            let result = action(&context);
            if let Err(error) = &result {
                context.out.error(error);
            }
            // The prompt may have stopped waiting.
            done.send(result).ok();
        });
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
            escape::line(&self.model)
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
        self.in_thread(move |context| {
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
    pub(super) async fn shell(&mut self, command: String) {
        let mut program = Program::new("sh");
        program.args(["-c", &command]);
        let line = match self.hand_over(move || program.status()).await {
            Some(Ok(status)) if status.success() => return,
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => format!("cannot run sh: {error}"),
            None => return,
        };
        self.context.out.aside(paint(BAD, escape::line(&line)));
    }

    /// Shows a long text in the person's pager; without one all of it is printed.
    pub(super) async fn page(&mut self, text: String) {
        let mut program = Program::new("sh");
        program
            .args(["-c", "exec ${PAGER:-less}"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        let shown = escape::text(&text).into_owned() + "\n";
        let indented = shown.lines().map(|line| format!("    {line}\n")).collect();
        let run = move || -> std::io::Result<Option<i32>> {
            let mut child = program.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // A pager may be left before it has read everything.
                drop(std::io::Write::write_all(&mut stdin, shown.as_bytes()));
            }
            Ok(child.wait()?.code())
        };
        let is_shown =
            matches!(self.hand_over(run).await, Some(Ok(Some(code))) if code != NOT_FOUND);
        if !is_shown {
            self.console.screen.print(lines(indented));
        }
    }

    /// Leaves the terminal to a program until it ends.
    async fn hand_over<T: Send + 'static>(
        &mut self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.console.screen.suspend();
        self.console.keyboard.leave();
        let (done, mut is_done) = oneshot::channel();
        std::thread::spawn(move || done.send(run()).ok());
        let ended = loop {
            tokio::select! {
                ended = &mut is_done => break ended.ok(),
                // Ctrl-C is for the program.
                _ = self.console.signals[0].recv() => {}
            }
        };
        self.resumed();
        ended
    }
}
