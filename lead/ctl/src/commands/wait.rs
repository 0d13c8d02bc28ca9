//! `teamctl wait`: returns when a teammate has a status, or can no longer come to have it.

use serde_json::{Value, json};
use teamd_client::act::waiting::{Early, within};
use teamd_client::args::Wait;
use teamd_client::connection::not_running;
use teamd_client::context::{Context, block_on};
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::clock;
use teamd_client::read::roster;
use teamd_client::read::wake::Wake;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::task;

mod events;

/// The members that a command waits for.
struct MembersWait<'a> {
    context: &'a Context,
    dir: &'a TeamDir,
    wanted: Vec<MemberStatus>,
    /// Without `--for`: until nothing more happens by itself.
    until_rest: bool,
    /// Whether a single name was given: then its error is that of the command.
    is_single: bool,
    open: Vec<Name>,
    outcomes: Vec<WaitOutcome>,
}

struct WaitOutcome {
    name: Name,
    result: Result<MemberStatus, CommandError>,
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Wait) -> CommandResult {
    let dir = context.dir()?;
    if args.events {
        return events::run(context, &dir, args);
    }
    if args.tasks || args.task.is_some() {
        return task::wait(context, &dir, (args.task, args.timeout));
    }
    let names = roster::named_or_running(&dir, &args.names, args.all)?;
    let mut wanted = args.status.clone();
    let until_rest = wanted.is_empty();
    if until_rest {
        wanted.push(MemberStatus::Idle);
    }
    if args.all {
        // A teammate that has left does nothing more.
        wanted.extend([MemberStatus::Shutdown, MemberStatus::Killed]);
    }
    let mut wait = MembersWait {
        context,
        dir: &dir,
        wanted,
        until_rest,
        is_single: !args.all && names.len() == 1,
        open: names,
        outcomes: Vec::new(),
    };
    block_on(wait.wait(args))?;
    wait.conclude()
}

impl MembersWait<'_> {
    async fn wait(&mut self, args: &Wait) -> Result<(), CommandError> {
        let waited = within(args.timeout, self.watch()).await;
        self.context.out.passed();
        let Err(early) = waited? else {
            return Ok(());
        };
        for name in std::mem::take(&mut self.open) {
            let hint = format!("`teamctl status {name}` shows what it does");
            let late = if early == Early::TimedOut {
                late(self.dir, args, &name)?
            } else {
                String::new()
            };
            let error = early.error(&name, late, hint);
            self.record(name, Err(error))?;
        }
        Ok(())
    }

    /// Watches the members until each has one of the statuses, or can no longer come to have it.
    async fn watch(&mut self) -> Result<(), CommandError> {
        let poll = self.context.settings.poll;
        let mut roster_file = Wake::new(self.dir, &TeamPath::config(), poll);
        let mut transcripts = Wake::of_transcripts(self.dir, poll);
        loop {
            let roster = roster::load(self.dir)?;
            let mut is_reading_mail = false;
            for name in std::mem::take(&mut self.open) {
                match self.status(&roster, &name).transpose() {
                    Some(result) => self.record(name, result)?,
                    None => {
                        let member = roster::find(&roster, &name)?;
                        is_reading_mail |= self.wanted.contains(&member.status);
                        self.open.push(name);
                    }
                }
            }
            if self.open.is_empty() {
                return Ok(());
            }
            self.context
                .out
                .passing(&roster::waited_for(&roster, &self.open));
            tokio::select! {
                () = roster_file.changed() => {}
                // An idle teammate has mail: the roster need not change when it has read that.
                () = transcripts.changed(), if is_reading_mail => {}
            }
        }
    }

    /// Returns the status of a member if it is wanted, and none if it still can become so.
    fn status(&self, roster: &Roster, name: &Name) -> Result<Option<MemberStatus>, CommandError> {
        let member = roster::find(roster, name)?;
        if self.until_rest && member.status == MemberStatus::AwaitingApproval {
            return Err(waits_for_a_plan(name));
        }
        reached(self.dir, roster, member, &self.wanted)
    }

    /// Prints an outcome, and keeps it.
    fn record(
        &mut self,
        name: Name,
        result: Result<MemberStatus, CommandError>,
    ) -> Result<(), CommandError> {
        let out = &self.context.out;
        let mut printed = Ok(());
        match &result {
            Ok(status) if !out.is_json() => {
                printed = out.text(format_args!("{name} is {}", status.as_str()));
            }
            Err(error) if !self.is_single => out.error(error),
            Ok(_) | Err(_) => {}
        }
        self.outcomes.push(WaitOutcome { name, result });
        printed
    }

    /// Prints the outcomes for programs, and returns the exit code.
    fn conclude(self) -> CommandResult {
        let out = &self.context.out;
        if self.is_single {
            let outcome = self.outcomes.into_iter().next();
            let WaitOutcome { name, result } = outcome.ok_or_else(|| not_running(self.dir))?;
            let status = result?.as_str();
            if out.is_json() {
                out.json(&json!({"name": name, "status": status}))?;
            }
            return Ok(ExitCode::Done);
        }
        if out.is_json() {
            let results: Vec<Value> = self.outcomes.iter().map(WaitOutcome::to_json).collect();
            out.json(&json!({"results": results}))?;
        } else if self.outcomes.is_empty() {
            out.note("no teammate is running");
        }
        Ok(ExitCode::highest(
            self.outcomes
                .iter()
                .filter_map(|outcome| outcome.result.as_ref().err())
                .map(CommandError::code),
        ))
    }
}

impl WaitOutcome {
    fn to_json(&self) -> Value {
        let name = &self.name;
        match &self.result {
            Ok(status) => json!({"name": name, "status": status}),
            Err(error) => json!({"name": name, "status": null, "error": error.to_json()}),
        }
    }
}

/// Returns the status if it is one of those, and none if it still can become one.
fn reached(
    dir: &TeamDir,
    roster: &Roster,
    member: &RosterMember,
    wanted: &[MemberStatus],
) -> Result<Option<MemberStatus>, CommandError> {
    let is_so = member.status.is_ended() || roster::runs(roster, member);
    if wanted.contains(&member.status) && is_so {
        // Its worker reads its mail, with a daemon or without.
        let is_at_rest = roster::is_at_rest(dir, member)?;
        return Ok(is_at_rest.then_some(member.status));
    }
    if member.status.is_ended() {
        let message = format!(
            "{} has ended ({}) and will not be {}",
            member.name,
            member.status.as_str(),
            any(wanted)
        );
        return Err(CommandError::new(ExitCode::Conflict, message).hint(next_spawn(&member.name)));
    }
    // A daemon that begins just now has not written the roster yet.
    if roster::daemon_pid(roster).is_none() && !is_locked(dir) {
        return Err(not_running(dir));
    }
    Ok(None)
}

fn waits_for_a_plan(name: &Name) -> CommandError {
    let message =
        format!("{name} waits for an answer to its plan, and will not be idle before it has one");
    CommandError::new(ExitCode::Conflict, message).hint(
        "`teamctl plans` shows it; `teamctl approve ID` or `reject ID` answers, then wait again",
    )
}

fn next_spawn(name: &Name) -> String {
    let command = if *name == Name::lead() {
        "chat".to_owned()
    } else {
        format!("spawn {name} --resume")
    };
    format!("`teamctl {command}` continues its conversation")
}

fn late(dir: &TeamDir, args: &Wait, name: &Name) -> Result<String, CommandError> {
    let roster = roster::load(dir)?;
    let status = roster
        .member(name)
        .map_or("not there", |member| member.status.as_str());
    let time = clock::span(args.timeout.unwrap_or_default().as_secs_f64());
    let wanted = if args.status.is_empty() {
        &[MemberStatus::Idle]
    } else {
        args.status.as_slice()
    };
    Ok(format!(
        "{name} is {status} after {time}, not {}",
        any(wanted)
    ))
}

fn any(wanted: &[MemberStatus]) -> String {
    wanted
        .iter()
        .map(|status| status.as_str())
        .collect::<Vec<_>>()
        .join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;
    use teamd_client::testing::context;
    use teamd_client::testing::{member, team};
    use teamd_shared::process::Identity;

    fn with_daemon(dir: &TeamDir, members: &Value) {
        let me = Identity::of_self().unwrap();
        let daemon = json!({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "started_at": 1.0});
        let roster = json!({"version": 1, "seq": 1, "team_name": "default", "daemon": daemon, "members": members});
        teamd_shared::fs::replace(dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
    }

    /// Holds the lock of the team directory, as a daemon that runs does.
    fn lock(dir: &TeamDir) -> std::fs::File {
        let folder = std::fs::File::open(dir.root()).unwrap();
        // Waited for: a look at the lock is in what another test starts for a moment.
        folder.lock().unwrap();
        folder
    }

    fn wait(dir: &TeamDir, status: &[MemberStatus], timeout: u64) -> CommandResult {
        let (context, ..) = context(dir, false);
        let names = vec![Name::new("alice").unwrap()];
        let timeout = Some(Duration::from_millis(timeout));
        run(
            &context,
            &Wait {
                names,
                task: None,
                tasks: false,
                all: false,
                events: false,
                below_lead: false,
                status: status.to_vec(),
                timeout,
            },
        )
    }

    fn code(result: CommandResult) -> ExitCode {
        result.unwrap_or_else(|error| error.code())
    }

    /// One message.
    const MAIL: &[u8] = b"{\"type\":\"message\",\"from\":\"user\",\"content\":\"Begin.\"}\n";

    #[test]
    fn it_returns_when_the_status_is_reached() {
        let (_scratch, dir) = team(&json!([]));
        let _daemon = lock(&dir);
        with_daemon(&dir, &json!([member("alice", "working")]));
        let writer = TeamDir::open(dir.root()).unwrap();
        let later =
            std::thread::spawn(move || with_daemon(&writer, &json!([member("alice", "idle")])));
        assert_eq!(
            code(wait(
                &dir,
                &[MemberStatus::Idle, MemberStatus::Crashed],
                20_000
            )),
            ExitCode::Done
        );
        later.join().unwrap();
    }

    #[test]
    fn it_says_why_the_status_cannot_be_reached() {
        let (_scratch, dir) = team(&json!([member("alice", "working")]));
        assert_eq!(
            code(wait(&dir, &[MemberStatus::Idle], 20_000)),
            ExitCode::NotRunning
        );
        let _daemon = lock(&dir);
        with_daemon(&dir, &json!([member("alice", "working")]));
        assert_eq!(
            code(wait(&dir, &[MemberStatus::Idle], 50)),
            ExitCode::TimedOut
        );
        with_daemon(&dir, &json!([member("alice", "killed")]));
        assert_eq!(
            code(wait(&dir, &[MemberStatus::Shutdown], 20_000)),
            ExitCode::Conflict
        );
        assert_eq!(
            code(wait(&dir, &[MemberStatus::Killed], 20_000)),
            ExitCode::Done
        );
        with_daemon(&dir, &json!([]));
        assert_eq!(
            code(wait(&dir, &[MemberStatus::Idle], 20_000)),
            ExitCode::NotFound
        );
    }

    #[test]
    fn without_a_daemon_the_mail_of_a_worker_that_runs_is_waited_for() {
        let (_scratch, dir) = team(&json!([member("alice", "idle")]));
        let alice = Name::new("alice").unwrap();
        teamd_shared::fs::replace(&dir, &TeamPath::inbox(&alice), MAIL).unwrap();
        let code_with_mail = code(wait(&dir, &[MemberStatus::Idle], 50));
        assert_eq!(code_with_mail, ExitCode::TimedOut);
        dir.remove(&TeamPath::inbox(&alice)).unwrap();
        let code_without = code(wait(&dir, &[MemberStatus::Idle], 20_000));
        assert_eq!(code_without, ExitCode::Done);
    }
}
