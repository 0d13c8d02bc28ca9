//! `teamctl interrupt`: interrupts a teammate's current turn, and waits for its end in the
//! transcript.

use std::time::Duration;

use serde_json::json;
use teamd_client::act::interrupt::{ask, rests};
use teamd_client::act::waiting::within;
use teamd_client::args::Teammate;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::tail::Tail;
use teamd_client::read::wake::Wake;
use teamd_shared::json;
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript::{Entry, Event};

/// How long a turn may take to end: commands are killed, but a machine may be slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the command.
pub(crate) fn run(context: &Context, args: Teammate) -> CommandResult {
    let dir = context.dir()?;
    let name = &args.name;
    let is_interrupted = block_on(async {
        // What ends from now on is read.
        let mut transcript = Tail::new(&dir, TeamPath::transcript(name));
        transcript.begin(Some(0), |_| true)?;
        if ask(&dir, name).await? {
            within(
                Some(PATIENCE),
                ended(context, &mut transcript, (&dir, name)),
            )
            .await
        } else {
            Ok(Ok(false))
        }
    })?;
    let is_interrupted = is_interrupted.map_err(|early| {
        early.error(
            name,
            format!("{name} has not ended its turn yet"),
            format!("`teamctl status {name}` shows what it does"),
        )
    })?;
    let done = if is_interrupted {
        format!("interrupted {name}")
    } else {
        format!("{name} is idle: nothing to interrupt")
    };
    context
        .out
        .result(&json!({"name": name, "interrupted": is_interrupted}), done)?;
    Ok(ExitCode::Done)
}

/// Waits until the work ends that is interrupted. Returns whether that was because of the
/// interruption.
async fn ended(
    context: &Context,
    transcript: &mut Tail<'_>,
    (dir, name): (&TeamDir, &Name),
) -> Result<bool, CommandError> {
    let mut wake = Wake::new(dir, &TeamPath::transcript(name), context.settings.poll);
    wake.until(|| {
        // Checked first: an end that the transcript already shows is read below.
        let is_over = rests(dir, name)?;
        for line in transcript.read()? {
            match json::read::<Entry>(&line).map(|entry| entry.event) {
                Ok(Event::Idle { idle_reason, .. }) => {
                    return Ok(Some(idle_reason == IdleReason::Interrupted));
                }
                Ok(Event::Left { .. }) => return Ok(Some(false)),
                _ => {}
            }
        }
        Ok(is_over.then_some(false))
    })
    .await
}
