//! `teamctl shutdown`: asks teammates to leave, and waits until their processes are gone. Every name is tried,
//! whatever becomes of the others.

mod target;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use teamd_shared::control::{Await, Command, Done, ShutdownOrder};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use target::{End, Target, tell};

use super::send::running;
use crate::client::{ANSWER, CallError, Client, not_running, unexpected};
use crate::ctl::args::Shutdown;
use crate::ctl::context::{Context, block_on};
use crate::ctl::roster;
use crate::ctl::waiting::{self, Interrupt, Waiting};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How long to wait before signals are sent.
const PATIENCE_BEFORE_FORCE: Duration = Duration::from_secs(10);
/// How many are asked before the first reply is read: fewer than the replies that the daemon keeps for a command, and a
/// team if that is possible. Those who are asked are not told that the others have left.
const AT_ONCE: usize = 2048;
/// Beyond what the signals are given: time to end what a worker started, on a slow machine.
const MARGIN: Duration = Duration::from_secs(30);

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Shutdown) -> CommandResult {
    let dir = context.dir()?;
    let mut targets = targets(&dir, &args)?;
    if targets.is_empty() {
        context.out.note("nobody runs");
    } else {
        block_on(async {
            let mut interrupt = Interrupt::catch()?;
            let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
            let names = names.join(", ");
            let began = Instant::now();
            let asking = ask_all(context, &dir, &args, &mut targets);
            let client = interrupt.or(&names, asking).await?;
            if args.no_wait {
                targets
                    .iter_mut()
                    .filter(|target| target.end.is_none())
                    .for_each(|it| it.end = Some(End::Pending(None)));
            }
            for target in &targets {
                tell(context, target)?;
            }
            let left = timeout(context, &args).saturating_sub(began.elapsed());
            let waiting = Waiting { dir: &dir, out: &context.out, timeout: Some(left) };
            wait(context, &waiting, &args, (client, interrupt), &mut targets).await
        })?;
    }
    if context.out.is_json() {
        let results: Vec<Value> = targets.iter().map(Target::to_json).collect();
        context.out.json(&json!({"results": results}))?;
    }
    Ok(ExitCode::highest(targets.iter().map(Target::code)))
}

fn targets(dir: &TeamDir, args: &Shutdown) -> Result<Vec<Target>, CommandError> {
    let mut names = args.names.clone();
    let roster = match roster::load(dir) {
        // Whoever is named can be asked all the same: only a second time it is not known which life was meant.
        Err(_) if !args.all => None,
        loaded => Some(loaded?),
    };
    let members = roster.iter().flat_map(|roster| &roster.members);
    let spawned: HashMap<&Name, u64> = members.map(|member| (&member.name, member.spawned_seq)).collect();
    let spawned = |name: &Name| roster.as_ref().map(|_| spawned.get(name).copied().unwrap_or_default());
    if let (true, Some(roster)) = (args.all, &roster) {
        // The lead agent leads the team: it stays, and is asked by its name.
        names = running(roster)
            .into_iter()
            .map(|member| &member.name)
            .filter(|name| **name != Name::lead())
            .cloned()
            .collect();
        // As `teamd stop` does: who was spawned last goes first.
        names.sort_by_key(|name| std::cmp::Reverse(spawned(name)));
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let target =
        |name| Target { spawned: spawned(&name), name, sent: false, repeated: false, asked: None, end: None };
    Ok(names.into_iter().map(target).collect())
}

/// Asks everybody, before anybody is waited for. A daemon that is lost before it has answered may have recorded the
/// request: the next one is asked the same about the same life, and the order joins what is pending. One that ended in
/// order has nobody left to be asked.
async fn ask_all(
    context: &Context,
    dir: &TeamDir,
    args: &Shutdown,
    targets: &mut [Target],
) -> Result<Option<Client>, CommandError> {
    let mut client = Some(Client::connect(dir).await?);
    let mut lost = None;
    let asking = async {
        while let Some(live) = &mut client {
            match ask(live, (context, dir), args, targets).await {
                Err(error @ (CallError::Lost(_) | CallError::Untaken(_))) => {
                    lost = Some(error);
                    targets.iter_mut().for_each(|target| target.repeated = true);
                    client = waiting::reconnect(dir).await;
                }
                other => return other.map_err(CommandError::from),
            }
        }
        Ok(())
    };
    let patience = if args.no_wait { Duration::ZERO } else { timeout(context, args) };
    // However short the waiting: the asking itself may take as long as that of any other command.
    let silent = match tokio::time::timeout(patience.max(ANSWER), asking).await {
        Ok(asked) => asked.map(|()| false)?,
        Err(_) => true,
    };
    for target in targets.iter_mut().filter(|target| target.asked.is_none() && target.end.is_none()) {
        target.end = Some(match silent {
            true => End::Failed(target.unheard(dir, lost.as_ref())),
            false => target.gone_or((context, dir), not_running(dir)),
        });
    }
    Ok(client)
}

/// Asks everybody who has not been. The daemon records together what it is asked together.
async fn ask(
    client: &mut Client,
    (context, dir): (&Context, &TeamDir),
    args: &Shutdown,
    targets: &mut [Target],
) -> Result<(), CallError> {
    let decide_within = args.decide_within.unwrap_or(context.settings.decide_within).as_secs_f64();
    let patience = args.timeout.unwrap_or(PATIENCE_BEFORE_FORCE);
    for some in targets.chunks_mut(AT_ONCE) {
        let mut asked = HashMap::new();
        let open = some.iter_mut().enumerate().filter(|(_, it)| it.asked.is_none() && it.end.is_none());
        for (index, target) in open {
            let order = ShutdownOrder {
                name: target.name.clone(),
                reason: args.reason.clone(),
                decide_within,
                force_after: args.force.then_some(patience.as_secs_f64()),
                spawned: target.spawned.filter(|_| target.repeated),
            };
            target.sent = true;
            asked.insert(client.send(Command::Shutdown(order)).await?, index);
        }
        while !asked.is_empty() {
            let reply = client.reply().await?;
            let Some(target) = asked.remove(&reply.tag).map(|index| &mut some[index]) else { continue };
            match reply.result {
                Ok(Done::Asked { request_id, incarnation }) => target.asked = Some((request_id, incarnation)),
                Ok(other) => target.end = Some(End::Failed(unexpected(&other))),
                Err(refusal) => {
                    target.end = Some(target.refused((context, dir), args, refusal));
                }
            }
        }
    }
    Ok(())
}

async fn wait(
    context: &Context,
    waiting: &Waiting<'_>,
    args: &Shutdown,
    line: (Option<Client>, Interrupt),
    targets: &mut [Target],
) -> Result<(), CommandError> {
    let mut open = Vec::new();
    for (index, target) in targets.iter().enumerate().filter(|(_, target)| target.end.is_none()) {
        if let Some((request_id, incarnation)) = target.asked.clone() {
            let what = Await::Ended { request_id };
            open.push((index, Command::Await { name: target.name.clone(), incarnation, what }));
        }
    }
    let (indices, commands): (Vec<usize>, Vec<Command>) = open.into_iter().unzip();
    let mut failure = Ok(());
    let waited = waiting
        .all(line, commands, |answered, result| {
            let target = &mut targets[indices[answered]];
            target.end = Some(target.answered((context, waiting.dir), args, result));
            if let Err(error) = tell(context, target) {
                failure = Err(error);
            }
        })
        .await;
    failure?;
    for target in targets.iter_mut().filter(|target| target.end.is_none()) {
        target.end = Some(End::Pending(target.unanswered(waited, args.force, timeout(context, args))));
        tell(context, target)?;
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
