//! `teamctl wait --events`: returns when something comes for the lead, and shows it. An agent that
//! leads by `teamctl mcp` is woken by it, and gets nothing that a call has given it already.

use serde_json::json;
use teamd_client::act::waiting::within;
use teamd_client::args::Wait;
use teamd_client::connection::{Client, unexpected};
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::read::wake::Wake;
use teamd_client::read::{lead_mail, roster};
use teamd_shared::control::{Command, ConnectedLead, Done};
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::commands::mcp::events::{self, EventPage};

/// Runs the command.
pub(super) fn run(context: &Context, dir: &TeamDir, args: &Wait) -> CommandResult {
    let came = block_on(async {
        let lead = match connect(dir, args.below_lead).await? {
            Some(mut client) => own_lead(&mut client).await?.map(|lead| (client, lead)),
            None => None,
        };
        let waiting = async {
            match lead {
                Some((client, lead)) => for_lead(context, dir, client, lead).await,
                None if args.below_lead => Err(CommandError::new(
                    ExitCode::Conflict,
                    "no agent that leads by `teamctl mcp` runs this command",
                )
                .hint("leave out --below-lead to wait for a person")),
                None => for_person(context, dir).await,
            }
        };
        match within(args.timeout, waiting).await? {
            Ok(came) => Ok(came),
            Err(early) => Err(early.error(
                "what comes for the lead",
                "nothing has come for the lead".to_owned(),
                "`teamctl inbox` shows the last messages",
            )),
        }
    })?;
    let json = json!({"events": came.text, "cursor": came.next});
    context.out.result(&json, escape::text(&came.text))?;
    Ok(ExitCode::Done)
}

/// Connects to the daemon; none if that does not run, and need not.
async fn connect(dir: &TeamDir, is_needed: bool) -> Result<Option<Client>, CommandError> {
    match Client::connect(dir).await {
        Ok(client) => Ok(Some(client)),
        Err(error) if error.code() == ExitCode::NotRunning && !is_needed => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the connected lead that runs this command.
async fn own_lead(client: &mut Client) -> Result<Option<ConnectedLead>, CommandError> {
    let leads = match client.call(Command::Leads).await? {
        Done::Leads(leads) => leads,
        other => return Err(unexpected(&other)),
    };
    let this = Identity::of_self();
    let this =
        this.map_err(|error| CommandError::refused("cannot look at this process", &error))?;
    for lead in leads {
        let is_above = this.descends_from(&lead.process).map_err(|error| {
            CommandError::refused("cannot see which process runs this command", &error)
        })?;
        if is_above {
            return Ok(Some(lead));
        }
    }
    Ok(None)
}

/// Waits for what comes from now on.
async fn for_person(context: &Context, dir: &TeamDir) -> Result<EventPage, CommandError> {
    let place = lead_mail::end(dir)?;
    events::until_any(context, dir, place).await?;
    events::since(dir, place)
}

/// Waits for what the lead has not got yet, as long as it is connected, no other command waits for
/// it, and a teammate runs: an agent that runs without a person ends when this does.
async fn for_lead(
    context: &Context,
    dir: &TeamDir,
    mut waiting: Client,
    lead: ConnectedLead,
) -> Result<EventPage, CommandError> {
    let mut asking = Client::connect(dir).await?;
    let mut place = match lead.read {
        Some(place) => place,
        None => lead_mail::end(dir)?,
    };
    let ended = waiting.call_and_wait(Command::AwaitEvents);
    tokio::pin!(ended);
    loop {
        let is_over = tokio::select! {
            came = events::until_any(context, dir, place) => {
                came?;
                false
            }
            over = until_none_runs(context, dir) => {
                over?;
                true
            }
            answer = &mut ended => match answer {
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => return Err(error.into()),
            },
        };
        // A call may have given it to the lead meanwhile.
        let now = own_lead(&mut asking).await?;
        let came = events::since(dir, now.and_then(|lead| lead.read).unwrap_or(place))?;
        place = came.next;
        if !came.has_any {
            if is_over {
                return Err(CommandError::new(
                    ExitCode::Conflict,
                    "no teammate runs that something could come from",
                )
                .hint("`teamctl spawn NAME` starts one"));
            }
            continue;
        }
        let recorded = asking.call(Command::LeadRead { place }).await?;
        match recorded {
            Done::LeadRead { is_news: true } => return Ok(came),
            Done::LeadRead { is_news: false } => {}
            other => return Err(unexpected(&other)),
        }
    }
}

/// Waits until no teammate runs.
async fn until_none_runs(context: &Context, dir: &TeamDir) -> Result<(), CommandError> {
    let mut roster_file = Wake::new(dir, &TeamPath::config(), context.settings.poll);
    let none_runs = roster_file.until(|| {
        let roster = roster::load(dir)?;
        let runs = roster.members.iter().any(|it| !it.status.is_ended());
        Ok::<_, CommandError>((!runs).then_some(()))
    });
    none_runs.await
}
