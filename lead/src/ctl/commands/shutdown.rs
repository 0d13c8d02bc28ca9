//! `teamctl shutdown`: asks teammates to leave, and waits until their processes are gone. Every name is tried,
//! whatever becomes of the others.

mod target;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use teamd_shared::control::{Command, ShutdownOrder};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use target::{Target, print};

use super::send::running;
use crate::client::ANSWER;
use crate::ctl::args::Shutdown;
use crate::ctl::context::{Context, block_on};
use crate::ctl::roster;
use crate::ctl::waiting::{CtrlC, Waiting};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How long to wait before signals are sent.
const PATIENCE_BEFORE_FORCE: Duration = Duration::from_secs(10);
/// Beyond what the signals are given: time to end what a worker started, on a slow machine.
const MARGIN: Duration = Duration::from_secs(30);
/// However short the waiting: so long the daemon has to record the request, which then goes on.
const LEAST: Duration = Duration::from_secs(1);

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Shutdown) -> CommandResult {
    let dir = context.dir()?;
    let mut targets = targets(&dir, &args)?;
    if targets.is_empty() {
        context.out.note("no teammate is running");
    } else {
        block_on(ask(context, &dir, &args, &mut targets))?;
    }
    if context.out.is_json() {
        let results: Vec<Value> = targets.iter().map(Target::to_json).collect();
        context.out.json(&json!({"results": results}))?;
    }
    Ok(ExitCode::highest(targets.iter().map(Target::code)))
}

fn targets(dir: &TeamDir, args: &Shutdown) -> Result<Vec<Target>, CommandError> {
    let mut names = args.names.clone();
    if args.all {
        let roster = roster::load(dir)?;
        let spawned: HashMap<&Name, u64> =
            roster.members.iter().map(|member| (&member.name, member.spawned_seq)).collect();
        // The lead agent leads the team: it stays, and is asked by its name.
        let members = running(&roster).into_iter().map(|member| &member.name);
        names = members.filter(|name| **name != Name::lead()).cloned().collect();
        // As `teamd stop` does: the teammate that was spawned last goes first.
        names.sort_by_key(|name| std::cmp::Reverse(spawned.get(name).copied()));
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names.into_iter().map(|name| Target { name, end: None }).collect())
}

/// Asks every teammate at once, and tells each outcome when it is known.
async fn ask(
    context: &Context,
    dir: &TeamDir,
    args: &Shutdown,
    targets: &mut [Target],
) -> Result<(), CommandError> {
    let interrupt = CtrlC::catch()?;
    let decide_within = args.decide_within.unwrap_or(context.settings.decide_within).as_secs_f64();
    let patience = args.timeout.unwrap_or(PATIENCE_BEFORE_FORCE);
    let order = |target: &Target| {
        Command::Shutdown(ShutdownOrder {
            request_id: RandomIds.request(),
            name: target.name.clone(),
            reason: args.reason.clone(),
            decide_within,
            force_after: args.force.then_some(patience.as_secs_f64()),
            wait: !args.no_wait,
        })
    };
    let commands = targets.iter().map(order).collect();
    let timeout = if args.no_wait { ANSWER } else { timeout(context, args) };
    let waiting = Waiting { dir, out: &context.out, timeout: Some(timeout.max(LEAST)) };
    let mut told = Ok(());
    let waited = waiting
        .all(interrupt, commands, |answer| {
            let target = &mut targets[answer.index];
            target.end = Some(target.answered((context, dir), args, answer));
            if let Err(error) = print(context, target) {
                told = Err(error);
            }
        })
        .await?;
    told?;
    for target in targets.iter_mut().filter(|target| target.end.is_none()) {
        target.end = Some(target.unanswered(dir, waited, (args.force, timeout)));
        print(context, target)?;
    }
    Ok(())
}

/// With `--force` the daemon keeps the time and sends the signals. Waiting goes on until they must have worked.
fn timeout(context: &Context, args: &Shutdown) -> Duration {
    match args.force {
        true => args.timeout.unwrap_or(PATIENCE_BEFORE_FORCE) + 2 * context.settings.grace + MARGIN,
        false => args.timeout.unwrap_or(context.settings.shutdown_timeout),
    }
}

#[cfg(test)]
mod tests;
