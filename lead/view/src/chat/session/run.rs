//! A chat from taking the terminal to giving it back: with one agent after the other, and at the
//! end what was said is printed.

use teamd_shared::team_dir::TeamDir;
use tokio::sync::oneshot::error::TryRecvError;

use super::{AfterInput, ChatSession, output, unusable};
use crate::chat::ChatOptions;
use crate::chat::agent::ChatTarget;
use crate::chat::console::{ChatSignals, Console};
use crate::chat::log::LogBlock;
use crate::chat::print_queue::PrintQueue;
use crate::chat::prompt::history::LineHistory;
use crate::chat::prompt::line::PromptLine;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::output::wrap;

/// How many entries are shown of a teammate to which the person turns.
const ATTACHED: usize = 10;
/// The columns of the messages before the terminal is taken.
const COLUMNS: usize = 80;

/// Runs the chat until the person leaves.
///
/// # Errors
/// If the agent cannot be reached, or the terminal cannot be used.
pub(in crate::chat) async fn run(
    context: &Context,
    dir: &TeamDir,
    options: &ChatOptions,
) -> CommandResult {
    let target = &options.target;
    // Caught before the terminal is taken: none of them leaves it taken.
    let signals = ChatSignals::catch().map_err(unusable)?;
    // A teammate that has ended is only shown, until something is sent.
    let begun = target.is_lead() && target.ensure(context, dir, false).await?;
    target.running(dir)?;
    let printed = PrintQueue::new();
    let history = LineHistory::load(&output(&printed, COLUMNS));
    let mut console =
        Console::open(PromptLine::new(history), printed, signals).map_err(unusable)?;
    let last = converse(context, dir, options, begun, &mut console).await;
    console.screen.give_back();
    let printed = print(context, &console.spoken, console.screen.columns());
    // Also if nothing can be printed: what the person ordered is done to its end.
    finish(context, &mut console).await?;
    printed?;
    let last = last?;
    // A teammate that was forgotten does not run either.
    if matches!(last.running(dir), Ok(Some(_))) {
        let name = last.name.as_str();
        let running = if last.is_lead() { "the team" } else { name };
        context
            .out
            .note(format_args!("{running} continues without you"));
    }
    Ok(ExitCode::Done)
}

/// Talks to one agent after the other. Returns the last one.
async fn converse(
    context: &Context,
    dir: &TeamDir,
    options: &ChatOptions,
    begun: bool,
    console: &mut Console,
) -> Result<ChatTarget, CommandError> {
    let mut options = options.clone();
    let mut begun = begun;
    loop {
        let mut session = ChatSession::begin(context, dir, &options, console)?;
        session.greet(begun)?;
        let next = session.converse().await;
        session.end();
        match next? {
            AfterInput::Turn(other) => {
                options.target = other;
                options.last = ATTACHED;
                begun = false;
            }
            AfterInput::Stay | AfterInput::Leave => return Ok(options.target),
        }
    }
}

/// Waits for work that must not end with the chat, and prints what it says. A signal ends the wait.
async fn finish(context: &Context, console: &mut Console) -> Result<(), CommandError> {
    let signals = &mut console.signals;
    for work in &mut console.unfinished {
        if work.end.try_recv() == Err(TryRecvError::Closed) {
            continue;
        }
        context.out.note(format_args!("waiting {}", work.what));
        tokio::select! {
            // The sender is dropped.
            _ = &mut work.end => {}
            _ = signals.interrupt.recv() => break,
            _ = signals.terminate.recv() => break,
            _ = signals.hang_up.recv() => break,
            _ = signals.quit.recv() => break,
        }
    }
    while let Some(text) = console.printed.take() {
        print(
            context,
            &[LogBlock::Printed(text)],
            console.screen.columns(),
        )?;
    }
    Ok(())
}

/// Prints what was said to the normal screen, once.
fn print(context: &Context, blocks: &[LogBlock], columns: usize) -> Result<(), CommandError> {
    for block in blocks {
        let text = block.write(false, columns);
        context.out.text(wrap(&text, columns))?;
    }
    Ok(())
}
