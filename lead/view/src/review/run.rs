//! `teamctl review`: a review on the whole screen, in a pipe, or in a program of the user's own.

use std::future::ready;
use std::pin::pin;
use std::time::Instant;

use crossterm::event::{Event, EventStream};
use futures_util::{FutureExt, StreamExt};
use ratatui::Frame;
use teamd_client::act::answer::{Answer, record};
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use tokio::signal::unix::SignalKind;

use super::colours::loading;
use super::overview;
use super::print::print;
use super::read::{Reviewed, run_tool};
use super::screen::{ReviewScreen, ReviewWish};
use crate::act;
use crate::terminal::{Screen, is_possible};

/// Runs the command. `tool` is a program of the user's own.
pub fn run(context: &Context, word: &str, tool: Option<&str>) -> CommandResult {
    if let Some(tool) = tool {
        return with_tool(context, &Reviewed::find(context, word)?, tool);
    }
    if !is_possible(context) {
        return print(context, &Reviewed::find(context, word)?);
    }
    // While the work is read.
    drop(loading(Vec::new()));
    let reviewed = Reviewed::find(context, word)?;
    block_on(on_screen(context, reviewed))
}

/// Runs a program of the user, and asks for the answer.
fn with_tool(context: &Context, reviewed: &Reviewed, tool: &str) -> CommandResult {
    let Some(commits) = &reviewed.commits else {
        return Err(CommandError::new(ExitCode::NotFound, reviewed.summary())
            .hint("only work in a checkout has commits: `spawn --checkout`"));
    };
    run_tool(tool, commits)?;
    let request = reviewed.request.as_ref().filter(|_| context.out.can_ask());
    let Some(request) = request else {
        return Ok(ExitCode::Done);
    };
    for line in overview(reviewed) {
        context.out.aside(line);
    }
    let id = &request.request_id;
    if context.out.ask(&format!("Approve {}?", reviewed.title()))? {
        return block_on(answer(context, reviewed, true, String::new(), None));
    }
    context.out.hint(format_args!(
        "`teamctl reject {id} --feedback TEXT` sends it back"
    ));
    Ok(ExitCode::Done)
}

async fn on_screen(context: &Context, reviewed: Reviewed) -> CommandResult {
    let mut term = act::on_signal(SignalKind::terminate())?;
    let mut hup = act::on_signal(SignalKind::hangup())?;
    let mut int = act::on_signal(SignalKind::interrupt())?;
    let dir = context.dir()?;
    let mut view = ReviewScreen::new(reviewed);
    let mut loaded = pin!(loading(view.samples()).fuse());
    if let Some(id) = view.request_id().cloned() {
        let codes = act::ask_for_codes(&dir).await.unwrap_or_default();
        let code = codes.into_iter().find(|it| it.request_id == id);
        view.code = code.map(|it| it.code);
    }
    let mut screen = Screen::open().map_err(unusable)?;
    let mut keys = EventStream::new();
    loop {
        let draw = |frame: &mut Frame<'_>| view.draw(frame, frame.area());
        screen.draw(draw).map_err(unusable)?;
        view.drawn(Instant::now());
        let event = tokio::select! {
            biased;
            Some(()) = term.recv() => return Ok(ExitCode::Terminated),
            Some(()) = hup.recv() => return Ok(ExitCode::Interrupted),
            Some(()) = int.recv() => return Ok(ExitCode::Interrupted),
            event = keys.next() => event,
            () = ready(()), if view.is_behind() => continue,
            () = &mut loaded => {
                view.colour();
                continue;
            }
        };
        let Some(Ok(event)) = event else {
            // The terminal is gone.
            return Ok(ExitCode::Interrupted);
        };
        let wish = match event {
            Event::Key(key) => view.key(key, Instant::now()),
            Event::Paste(text) => {
                view.paste(&text);
                None
            }
            Event::Mouse(mouse) => {
                view.mouse(mouse);
                None
            }
            Event::Resize(..) | Event::FocusGained | Event::FocusLost => None,
        };
        match wish {
            Some(ReviewWish::Leave) => return Ok(ExitCode::Done),
            Some(ReviewWish::Suspend) => screen.suspend().map_err(unusable)?,
            Some(ReviewWish::Answer {
                approve, feedback, ..
            }) => {
                drop(screen);
                return answer(context, &view.reviewed, approve, feedback, view.code).await;
            }
            None => {}
        }
    }
}

/// Gives the answer, and prints it.
async fn answer(
    context: &Context,
    reviewed: &Reviewed,
    approve: bool,
    feedback: String,
    code: Option<String>,
) -> CommandResult {
    let dir = context.dir()?;
    let Some(request) = &reviewed.request else {
        return Ok(ExitCode::Done);
    };
    let id = &request.request_id;
    let answer = Answer {
        approve,
        feedback,
        permissions: None,
        code,
        plan_sha256: None,
    };
    let already = if record(&dir, id, answer).await? {
        "already "
    } else {
        ""
    };
    let status = if approve { "approved" } else { "rejected" };
    context
        .out
        .text(format_args!(
            "the review {id} of {} is {already}{status}",
            reviewed.author()
        ))
        .map(|()| ExitCode::Done)
}

fn unusable(error: std::io::Error) -> CommandError {
    CommandError::refused("cannot use the terminal", &error)
}
