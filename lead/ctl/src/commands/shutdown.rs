//! `teamctl shutdown`: asks teammates to leave, and waits until their processes are gone. Every
//! name is tried, whatever becomes of the others.

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use teamd_client::act::unreachable::{UnreachableNotes, unreachable_host, waiting_for};
use teamd_client::act::waiting::{CommandAnswer, Early, Requester};
use teamd_client::args::Shutdown;
use teamd_client::connection::{ANSWER, CallError, unexpected};
use teamd_client::context::Context;
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{clock, render};
use teamd_client::read::wake::Wake;
use teamd_client::read::{journal, roster};
use teamd_shared::amount::parse_duration;
use teamd_shared::control::{Command, Done, Refusal, ShutdownOrder};
use teamd_shared::id::{Ids, RandomIds, RequestId};
use teamd_shared::member::{Exit, MemberStatus};
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// How long to wait before signals are sent.
const PATIENCE_BEFORE_FORCE: Duration = Duration::from_secs(10);
/// Beyond what the signals are given: time to end what a worker started, on a slow machine.
const MARGIN: Duration = Duration::from_secs(30);
/// The shortest wait: the daemon has this long to record the request, which then continues.
const LEAST: Duration = Duration::from_secs(1);

/// How long an answer may take before the command shows for whom it waits: an idle teammate leaves
/// sooner, and a watch of the roster would take longer than that.
const MOMENT: Duration = Duration::from_millis(100);

/// The outcome for one whose checkout was being made.
const WITHDRAWN: &str = "withdrawn";

/// What became of one name.
#[derive(Serialize)]
struct ShutdownOutcome {
    name: Name,
    request_id: Option<RequestId>,
    /// The last status of a teammate that is gone, else `rejected`, `pending` or `withdrawn`; none
    /// if it could not be asked.
    outcome: Option<&'static str>,
    reason: Option<String>,
    exit: Option<Exit>,
    /// Whether it had ended before the command began: that is also what was wanted.
    #[serde(skip)]
    already: bool,
    #[serde(skip)]
    error: Option<CommandError>,
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: Shutdown) -> CommandResult {
    let dir = context.dir()?;
    refuse_value_of_force(&dir, &args)?;
    if args.all
        && let [name, ..] = args.names.as_slice()
    {
        let message =
            format!("--all cannot be combined with names, such as {name}: nothing was done");
        return Err(
            CommandError::new(ExitCode::Usage, message).hint("leave out `--all`, or the names")
        );
    }
    let names = roster::named_or_running(&dir, &args.names, args.all)?;
    let mut outcomes = Vec::new();
    if names.is_empty() {
        context.out.note("no teammate is running");
    } else {
        outcomes = context.block_on(ask(context, &dir, &args, &names))?;
    }
    if context.out.is_json() {
        let results: Vec<Value> = outcomes.iter().map(ShutdownOutcome::to_json).collect();
        context.out.json(&json!({"results": results}))?;
    }
    Ok(ExitCode::highest(
        outcomes
            .iter()
            .filter_map(|it| it.error.as_ref())
            .map(CommandError::code),
    ))
}

/// Refuses `--force 0` before anything is done: `--force` takes no value, and the `0` would count
/// as a name.
fn refuse_value_of_force(dir: &TeamDir, args: &Shutdown) -> Result<(), CommandError> {
    if !args.force {
        return Ok(());
    }
    let Some(time) = args
        .names
        .iter()
        .find(|name| name.as_str() == "0" || parse_duration(name.as_str()).is_ok())
    else {
        return Ok(());
    };
    if roster::load_one(dir, time)?.member(time).is_some() {
        return Ok(());
    }
    let message =
        format!("--force takes no value, and there is no teammate named {time}: nothing was done");
    Err(CommandError::new(ExitCode::Usage, message)
        .hint("`--force --timeout 0s` sends the signals at once, `--force` alone after 10 seconds"))
}

/// Asks every teammate at once, and prints each outcome when it is known.
async fn ask(
    context: &Context,
    dir: &TeamDir,
    args: &Shutdown,
    names: &[Name],
) -> Result<Vec<ShutdownOutcome>, CommandError> {
    let timeout = if args.no_wait {
        ANSWER
    } else {
        timeout(context, args)
    };
    let requester = Requester {
        dir,
        out: &context.out,
        timeout: Some(timeout.max(LEAST)),
    };
    let mut outcomes = names.iter().map(|_| None).collect::<Vec<_>>();
    let mut printed = Ok(());
    let open = RefCell::new(names.to_vec());
    let mut record =
        |outcomes: &mut [Option<ShutdownOutcome>], index: usize, outcome: ShutdownOutcome| {
            let failed = print(context, &outcome).err();
            open.borrow_mut().retain(|name| *name != outcome.name);
            outcomes[index] = Some(outcome);
            if let Some(error) = failed {
                printed = Err(error);
            }
        };
    let orders = names.iter().map(|name| order(context, args, name));
    let asking = requester.all(orders.collect(), |answer| {
        let index = answer.index;
        let outcome = answered(dir, args, &names[index], answer);
        record(&mut outcomes, index, outcome);
    });
    let waited = tokio::select! {
        waited = asking => waited,
        never = show_whom(context, dir, &open) => match never {},
    };
    context.out.passed();
    let waited = waited?;
    let early = waited.err().unwrap_or(Early::TimedOut);
    for (index, name) in names.iter().enumerate() {
        if outcomes[index].is_none() {
            let outcome = unanswered(dir, name, early, (args.force, timeout));
            record(&mut outcomes, index, outcome);
        }
    }
    printed.map(|()| outcomes.into_iter().flatten().collect())
}

fn order(context: &Context, args: &Shutdown, name: &Name) -> Command {
    let decide_within = args.decide_within;
    let patience = args.timeout.unwrap_or(PATIENCE_BEFORE_FORCE);
    Command::Shutdown(ShutdownOrder {
        request_id: RandomIds.request(),
        name: name.clone(),
        reason: args.reason.clone(),
        decide_within: decide_within
            .unwrap_or(context.settings.decide_within)
            .as_secs_f64(),
        force_after: args.force.then_some(patience.as_secs_f64()),
        wait: !args.no_wait,
    })
}

/// Shows for whom the command still waits, and what they do.
async fn show_whom(context: &Context, dir: &TeamDir, open: &RefCell<Vec<Name>>) -> Infallible {
    tokio::time::sleep(MOMENT).await;
    let mut wake = Wake::new(dir, &TeamPath::config(), context.settings.poll);
    let mut notes = UnreachableNotes::default();
    loop {
        match roster::load(dir) {
            Ok(roster) => {
                let open = open.borrow();
                notes.note(&context.out, &roster, open.iter());
                let waited_for = roster::waited_for(&roster, &open);
                context.out.passing(&waited_for);
            }
            // The waiting continues without this display.
            Err(_) => std::future::pending().await,
        }
        wake.changed().await;
    }
}

/// With `--force` the daemon keeps the time and sends the signals. The command waits until they
/// must have worked.
fn timeout(context: &Context, args: &Shutdown) -> Duration {
    if args.force {
        args.timeout.unwrap_or(PATIENCE_BEFORE_FORCE) + 2 * context.settings.grace + MARGIN
    } else {
        args.timeout.unwrap_or(context.settings.shutdown_timeout)
    }
}

/// Returns what an answer means for one name.
fn answered(dir: &TeamDir, args: &Shutdown, name: &Name, answer: CommandAnswer) -> ShutdownOutcome {
    match answer.result {
        Ok(Done::Ended {
            request_id,
            status,
            exit,
        }) => ShutdownOutcome::gone(name, Some(request_id), status, exit.map(|exit| *exit)),
        Ok(Done::Rejected { request_id, reason }) => {
            let why = if reason.is_empty() {
                String::new()
            } else {
                format!(": {reason}")
            };
            let message = format!("{name} rejected the shutdown{why}");
            let hint = format!("ask again later, or end it: `teamctl shutdown {name} --force`");
            let error = CommandError::new(ExitCode::Rejected, message).hint(hint);
            let outcome = ShutdownOutcome {
                reason: Some(reason),
                ..ShutdownOutcome::new(name, Some("rejected"), Some(error))
            };
            ShutdownOutcome {
                request_id: Some(request_id),
                ..outcome
            }
        }
        Ok(Done::Asked { request_id }) => ShutdownOutcome {
            request_id: Some(request_id),
            ..ShutdownOutcome::new(name, Some("pending"), None)
        },
        Ok(Done::Withdrawn) => ShutdownOutcome::new(name, Some(WITHDRAWN), None),
        Ok(other) => ShutdownOutcome::new(name, None, Some(unexpected(&other))),
        Err(refusal) => refused(dir, name, args.all || answer.said_again, refusal),
    }
}

/// A teammate that ended before it was asked is what was wanted, but not one that had crashed
/// before: what it was to finish is not done. `ran`: it ran when the command began.
fn refused(dir: &TeamDir, name: &Name, ran: bool, refusal: Refusal) -> ShutdownOutcome {
    let error = CommandError::from(refusal);
    let roster = if error.code() == ExitCode::Conflict {
        roster::load_one(dir, name).ok()
    } else {
        None
    };
    let has_left =
        |status: MemberStatus| status.is_ended() && (ran || status != MemberStatus::Crashed);
    match roster
        .as_ref()
        .and_then(|roster| roster.member(name))
        .filter(|member| has_left(member.status))
    {
        Some(member) => ShutdownOutcome {
            already: !ran,
            ..ShutdownOutcome::gone(name, None, member.status, member.exit.clone())
        },
        None => ShutdownOutcome::new(name, None, Some(error)),
    }
}

/// Explains why there is no answer. The journal shows whether the request is recorded.
fn unanswered(
    dir: &TeamDir,
    name: &Name,
    early: Early,
    (force, patience): (bool, Duration),
) -> ShutdownOutcome {
    let team = journal::fold(dir).ok();
    let request = team
        .as_ref()
        .and_then(|team| team.shutdown_of(name))
        .filter(|request| matches!(request.status, Status::Pending | Status::Approved));
    let Some(request_id) = request.map(|request| request.request_id.clone()) else {
        let error = match early {
            Early::Interrupted => early.error(
                name,
                String::new(),
                "`teamctl events --last 5` shows what the daemon has recorded: that continues",
            ),
            Early::TimedOut if is_locked(dir) => CallError::Unanswered.into(),
            Early::TimedOut => CallError::Lost("it is no longer running".to_owned()).into(),
        };
        return ShutdownOutcome::new(name, None, Some(error));
    };
    let time = clock::span(patience.as_secs_f64());
    let roster = roster::load_one(dir, name).ok();
    let member = roster.as_ref().and_then(|roster| roster.member(name));
    let host = member.and_then(unreachable_host);
    let (late, hint) = match (early, force, &host) {
        (Early::TimedOut, _, Some(host)) => (
            format!("{name} has not left within {time}: {}", waiting_for(host)),
            format!(
                "it leaves when {host} is reached; if {host} is gone for good: `teamctl forget --lost {name}`",
                host = host.name
            ),
        ),
        (Early::Interrupted, ..) => (
            String::new(),
            format!("`teamctl wait {name} --for shutdown` waits again"),
        ),
        (_, true, None) => (
            format!("{name} is still there, although signals were sent"),
            "`teamctl log teamd` shows what holds it up".to_owned(),
        ),
        (_, false, None) => (
            format!("{name} has not left within {time}"),
            format!("it leaves when it can; `teamctl shutdown {name} --force` ends it"),
        ),
    };
    let error = early.error(
        name,
        late,
        format!("the request {request_id} stays pending; {hint}"),
    );
    ShutdownOutcome {
        request_id: Some(request_id),
        ..ShutdownOutcome::new(name, Some("pending"), Some(error))
    }
}

impl ShutdownOutcome {
    fn new(name: &Name, outcome: Option<&'static str>, error: Option<CommandError>) -> Self {
        Self {
            name: name.clone(),
            request_id: None,
            outcome,
            reason: None,
            exit: None,
            already: false,
            error,
        }
    }

    fn gone(
        name: &Name,
        request_id: Option<RequestId>,
        status: MemberStatus,
        exit: Option<Exit>,
    ) -> Self {
        Self {
            request_id,
            exit,
            ..Self::new(name, Some(status.as_str()), None)
        }
    }

    /// Only a teammate that could not be asked has an error here: the others have an outcome.
    fn to_json(&self) -> Value {
        let mut value = json!(self);
        if let (None, Some(error)) = (self.outcome, &self.error) {
            value["error"] = error.to_json();
        }
        value
    }
}

/// Prints what became of one name as soon as it is known.
fn print(context: &Context, report: &ShutdownOutcome) -> Result<(), CommandError> {
    let name = &report.name;
    let outcome = report.outcome.unwrap_or_default();
    let is_gone = if report.already {
        "has ended already"
    } else {
        "is gone"
    };
    match (&report.error, &report.request_id, &report.exit) {
        (Some(error), ..) => {
            context.out.error(error);
            Ok(())
        }
        _ if context.out.is_json() => Ok(()),
        (None, ..) if outcome == WITHDRAWN => context.out.text(format_args!(
            "{name} was still being prepared: it is not started (what was made of its checkout stays)"
        )),
        (None, Some(request_id), _) if outcome == "pending" => {
            context.out.text(format_args!("{name} is asked to leave ({request_id})"))
        }
        (None, _, Some(exit)) => {
            context.out.text(format_args!("{name} {is_gone}: {outcome} ({})", render::exit(exit)))
        }
        (None, _, None) => context.out.text(format_args!("{name} {is_gone}: {outcome}")),
    }
}

#[cfg(test)]
mod tests;
