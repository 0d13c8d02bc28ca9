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
use crate::client::{CallError, Client, not_running, unexpected};
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

/// How long the asking itself may take at the least, however short the waiting: the daemon has to write to the disk.
const ASKING: Duration = Duration::from_secs(2);

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
    if args.all {
        let roster = roster::load(dir)?;
        // The lead agent leads the team: it stays, and is asked by its name.
        names = running(&roster)
            .into_iter()
            .map(|member| &member.name)
            .filter(|name| **name != Name::lead())
            .cloned()
            .collect();
        // As `teamd stop` does: who was spawned last goes first.
        let spawned: HashMap<&Name, u64> =
            roster.members.iter().map(|member| (&member.name, member.spawned_seq)).collect();
        names.sort_by_key(|name| std::cmp::Reverse(spawned.get(name).copied().unwrap_or_default()));
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names.into_iter().map(|name| Target { name, repeated: false, asked: None, end: None }).collect())
}

/// Asks everybody, before anybody is waited for. A daemon that is lost before it has answered may have recorded the
/// request: the next one is asked the same, and the order joins what is pending. One that ended in order has nobody
/// left to be asked.
async fn ask_all(
    context: &Context,
    dir: &TeamDir,
    args: &Shutdown,
    targets: &mut [Target],
) -> Result<Option<Client>, CommandError> {
    let mut client = Some(Client::connect(dir).await?);
    let asking = async {
        while let Some(live) = &mut client {
            match ask(live, (context, dir), args, targets).await {
                Err(CallError::Lost(_) | CallError::Untaken(_)) => {
                    targets.iter_mut().for_each(|target| target.repeated = true);
                    client = waiting::reconnect(dir).await;
                }
                other => return other.map_err(CommandError::from),
            }
        }
        Ok(())
    };
    let patience = if args.no_wait { Duration::ZERO } else { timeout(context, args) };
    let silent = match tokio::time::timeout(patience.max(ASKING), asking).await {
        Ok(asked) => asked.map(|()| false)?,
        Err(_) => true,
    };
    for target in targets.iter_mut().filter(|target| target.asked.is_none() && target.end.is_none()) {
        target.end = Some(match silent {
            true => End::Failed(CallError::Silent.into()),
            false => target.gone_or(dir, not_running(dir))?,
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
        let open = some.iter().enumerate().filter(|(_, it)| it.asked.is_none() && it.end.is_none());
        for (index, target) in open {
            let order = ShutdownOrder {
                name: target.name.clone(),
                reason: args.reason.clone(),
                decide_within,
                force_after: args.force.then_some(patience.as_secs_f64()),
            };
            asked.insert(client.send(Command::Shutdown(order)).await?, index);
        }
        while !asked.is_empty() {
            let reply = client.reply().await?;
            let Some(target) = asked.remove(&reply.tag).map(|index| &mut some[index]) else { continue };
            match reply.result {
                Ok(Done::Asked { request_id, incarnation }) => target.asked = Some((request_id, incarnation)),
                Ok(other) => target.end = Some(End::Failed(unexpected(&other))),
                Err(refusal) => {
                    target.end = Some(target.refused(dir, args, refusal).unwrap_or_else(End::Failed));
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
            let told = target.answered(waiting.dir, args, result).and_then(|end| {
                target.end = Some(end);
                tell(context, target)
            });
            if let Err(error) = told {
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
mod tests {
    use super::*;
    use crate::ctl::args::Cli;
    use crate::ctl::output::tests::{Captured, captured};
    use crate::ctl::roster::tests::{member, team};
    use clap::Parser;
    use teamd_shared::control::{Greeting, Listener, Refusal, RefusalCode, Reply, Request};
    use teamd_shared::id::RequestId;
    use teamd_shared::member::Status;
    use teamd_shared::settings::Settings;
    use teamd_shared::team_file::TeamFile;

    fn args(line: &str) -> Shutdown {
        let cli = Cli::try_parse_from(format!("teamctl shutdown {line}").split(' ')).unwrap();
        let crate::ctl::args::Command::Shutdown(args) = cli.command else { panic!() };
        args
    }

    fn context(dir: &TeamDir, json: bool) -> (Context, Captured, Captured) {
        let (out, stdout, stderr) = captured(json);
        (
            Context {
                out,
                path: dir.root().to_owned(),
                settings: Settings::default(),
                file: Ok(TeamFile::default()),
            },
            stdout,
            stderr,
        )
    }

    /// A daemon that says what it is told to, in a thread of its own.
    fn daemon(
        dir: &TeamDir,
        answer: fn(&Command) -> Option<Result<Done, Refusal>>,
    ) -> std::thread::JoinHandle<()> {
        let dir = TeamDir::open(dir.root()).unwrap();
        let (bound, is_bound) = std::sync::mpsc::channel();
        let daemon = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = Listener::bind(&dir).unwrap();
                bound.send(()).unwrap();
                let mut peer = listener.accept().await.unwrap();
                peer.receive::<Greeting>().await.unwrap().unwrap();
                while let Some(Request { tag, command }) = peer.receive().await.unwrap() {
                    if let Some(result) = answer(&command) {
                        peer.send(&Reply { tag, result }).await.unwrap();
                    }
                }
            });
        });
        is_bound.recv().unwrap();
        daemon
    }

    fn answer(command: &Command) -> Option<Result<Done, Refusal>> {
        match command {
            Command::Shutdown(order) if order.name.as_str() == "nobody" => {
                Some(Err(Refusal::new(RefusalCode::NotFound, "there is no teammate named nobody")))
            }
            Command::Shutdown(order) => {
                let bits = order.name.as_str().len();
                Some(Ok(Done::Asked {
                    request_id: RequestId::from_bits(u32::try_from(bits).unwrap()),
                    incarnation: 1,
                }))
            }
            Command::Await { name, .. } if name.as_str() == "alice" => {
                Some(Ok(Done::Ended { status: Status::Shutdown }))
            }
            Command::Await { name, .. } if name.as_str() == "bob" => {
                Some(Err(Refusal::new(RefusalCode::Rejected, "still writing")))
            }
            _ => None,
        }
    }

    fn roster() -> Value {
        let mut alice = member("alice", "shutdown");
        alice["exit"] = json!({"code": 0, "signal": null, "at": 2.5, "request_id": "00000005"});
        json!([alice, member("bob", "idle"), member("stuck", "working")])
    }

    #[test]
    fn every_name_is_tried_and_the_highest_ranking_code_counts() {
        let (_scratch, dir) = team(&roster());
        let daemon = daemon(&dir, answer);
        let (context, stdout, stderr) = context(&dir, false);
        let code = run(&context, args("nobody alice bob alice stuck --timeout 100ms")).unwrap();
        assert_eq!(code, ExitCode::TimedOut);
        assert_eq!(stdout.text(), "alice is gone: shutdown (exit code 0)\n");
        insta::assert_snapshot!(stderr.text(), @r"
        error: there is no teammate named nobody
        error: bob does not want to leave: still writing
        hint: ask again later, or end it: `teamctl shutdown bob --force`
        error: stuck has not left within 0s
        hint: the request 00000005 stays pending, it leaves when it can; `teamctl shutdown stuck --force` ends it
        ");
        daemon.join().unwrap();
    }

    #[test]
    fn the_json_result_has_one_entry_a_name() {
        let (_scratch, dir) = team(&roster());
        let daemon = daemon(&dir, answer);
        let (context, stdout, _) = context(&dir, true);
        assert_eq!(run(&context, args("alice bob")).unwrap(), ExitCode::Rejected);
        let expected = json!({"results": [
            {"name": "alice", "request_id": "00000005", "outcome": "shutdown", "reason": null,
             "exit": {"code": 0, "signal": null, "at": 2.5, "request_id": "00000005", "unread": 0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"},
             "ending": null, "emptied": null, "left_behind": null}},
            {"name": "bob", "request_id": "00000003", "outcome": "rejected", "reason": "still writing", "exit": null}]});
        assert_eq!(serde_json::from_str::<Value>(&stdout.text()).unwrap(), expected);
        daemon.join().unwrap();
    }

    #[test]
    fn without_waiting_the_outcome_is_pending() {
        let (_scratch, dir) = team(&roster());
        let daemon = daemon(&dir, answer);
        let (context, stdout, _) = context(&dir, false);
        assert_eq!(run(&context, args("stuck --no-wait")).unwrap(), ExitCode::Done);
        assert_eq!(stdout.text(), "stuck is asked to leave (00000005)\n");
        daemon.join().unwrap();
    }

    #[test]
    fn all_of_nobody_is_done_without_a_daemon_and_a_name_is_not() {
        let (_scratch, dir) = team(&json!([member("alice", "shutdown")]));
        let (context, ..) = context(&dir, false);
        assert_eq!(run(&context, args("--all")), Ok(ExitCode::Done));
        assert_eq!(run(&context, args("alice")).unwrap_err().code(), ExitCode::NotRunning);
    }

    #[test]
    fn force_has_its_own_patience() {
        let (_scratch, dir) = team(&json!([]));
        let (context, ..) = context(&dir, false);
        for (line, seconds) in
            [("a", 120), ("a --timeout 5s", 5), ("a --force", 60), ("a --force --timeout 0", 50)]
        {
            assert_eq!(timeout(&context, &args(line)), Duration::from_secs(seconds), "{line}");
        }
    }
}
