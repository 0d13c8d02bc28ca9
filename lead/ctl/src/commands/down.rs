//! `teamctl down`, which is `teamd stop`: shuts every teammate down, and then stops the daemon.

use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;
use teamd_client::act::stop::request_stop;
use teamd_client::act::unreachable::{UnreachableNotes, unreachable_host, waiting_for};
use teamd_client::args::Down;
use teamd_client::context::{Context, block_on};
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::clock;
use teamd_client::read::roster;
use teamd_client::read::wake::Wake;
use teamd_shared::config::RosterMember;
use teamd_shared::control::StopOutcome;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// How long the daemon may take before the command shows what holds it up.
const MOMENT: Duration = Duration::from_millis(100);

/// Runs `teamctl down`: a team that is down already is no error.
pub(crate) fn run_or_is_down(context: &Context, args: &Down) -> CommandResult {
    let error = match run(context, args) {
        Err(error) if error.code() == ExitCode::NotRunning => error,
        result => return result,
    };
    let Ok(dir) = context.dir() else {
        return Err(error);
    };
    if is_locked(&dir) || !roster::running_names(&roster::load(&dir)?).is_empty() {
        return Err(error);
    }
    let json = json!({"stopped": true, "team_dir": context.path});
    context
        .out
        .result(&json, "teamd is not running, and no teammate is")
        .map(|()| ExitCode::Done)
}

/// Runs the command.
pub fn run(context: &Context, args: &Down) -> CommandResult {
    let dir = context.dir()?;
    block_on(async {
        let stopped = tokio::select! {
            stopped = request_stop(&dir, args.force, &[]) => stopped?,
            never = note_unreachable(context, &dir) => match never {},
            () = tokio::time::sleep(args.timeout) => return Err(still_there(&dir, args.timeout, args.force)),
            Ok(()) = tokio::signal::ctrl_c() => {
                return Err(CommandError::new(ExitCode::Interrupted, "interrupted: no longer waiting for the daemon")
                    .hint("the daemon still shuts the teammates down and then stops; `teamd status` shows whether it runs"));
            }
        };
        if let StopOutcome::Rejected(names) = stopped {
            return Err(rejected(&names));
        }
        let json = json!({"stopped": true, "team_dir": context.path});
        context
            .out
            .result(&json, "teamd has stopped, and all teammates with it")?;
        Ok(ExitCode::Done)
    })
}

/// Notes the hosts that the daemon waits for.
async fn note_unreachable(context: &Context, dir: &TeamDir) -> Infallible {
    tokio::time::sleep(MOMENT).await;
    let mut wake = Wake::new(dir, &TeamPath::config(), context.settings.poll);
    let mut notes = UnreachableNotes::default();
    loop {
        // The waiting continues without these notes.
        let Ok(roster) = roster::load(dir) else {
            std::future::pending().await
        };
        let names = roster.members.iter().map(|member| &member.name);
        notes.note(&context.out, &roster, names);
        wake.changed().await;
    }
}

fn still_there(dir: &TeamDir, waited: Duration, force: bool) -> CommandError {
    let who = roster::load(dir).map_or_else(
        |unreadable| format!("its teammates ({unreadable})"),
        |roster| {
            let alive = roster
                .members
                .iter()
                .filter(|member| !member.status.is_ended());
            let names: Vec<String> = alive.map(shown).collect();
            if names.is_empty() {
                "no teammate".to_owned()
            } else {
                names.join(", ")
            }
        },
    );
    let time = clock::span(waited.as_secs_f64());
    let message = format!("the daemon has not stopped within {time}: it is waiting for {who}");
    let hint = if force {
        "the daemon sends SIGTERM, then SIGKILL after a grace period, and then stops"
    } else {
        "the daemon stops once they have shut down; `teamd stop --force` terminates them"
    };
    CommandError::new(ExitCode::TimedOut, message).hint(hint)
}

/// Names a teammate, and its host if that cannot be reached.
fn shown(member: &RosterMember) -> String {
    let name = &member.name;
    match unreachable_host(member) {
        Some(host) => format!("{name} ({})", waiting_for(&host)),
        None => name.to_string(),
    }
}

fn rejected(names: &[(Name, String)]) -> CommandError {
    let listed: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    let message = format!(
        "{} rejected the shutdown: the daemon keeps running",
        listed.join(", ")
    );
    CommandError::new(ExitCode::Rejected, message)
        .candidates(
            names
                .iter()
                .map(|(name, reason)| format!("{name}: {reason}"))
                .collect(),
        )
        .hint("wait for them, or `teamd stop --force`")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use teamd_client::testing::context;
    use teamd_client::testing::{daemon as answering, scratch};
    use teamd_shared::control::{Command as Order, Done};

    /// A team directory whose journal is no file, as none would be of which no descriptor is left.
    fn unreadable() -> (tempfile::TempDir, TeamDir) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        std::fs::create_dir(dir.path(&TeamPath::journal())).unwrap();
        (scratch, dir)
    }

    #[test]
    fn who_does_not_want_to_leave_is_named_with_the_reason() {
        let names = [("alice", "still writing"), ("bob", "")]
            .map(|(name, why)| (Name::new(name).unwrap(), why.to_owned()));
        let error = rejected(&names);
        assert_eq!(error.code(), ExitCode::Rejected);
        assert_eq!(
            error.message(),
            "alice, bob rejected the shutdown: the daemon keeps running"
        );
        assert_eq!(error.choices(), ["alice: still writing", "bob: "]);
    }

    #[test]
    fn a_daemon_that_ends_before_it_looks_at_a_stop_runs_no_more() {
        let (_scratch, dir) = scratch();
        let socket = dir.path(&TeamPath::socket());
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            // What is left unread is lost, and the connection with it.
            connection.read_exact(&mut [0]).unwrap();
            std::fs::remove_file(socket).unwrap();
        });
        let (context, ..) = context(&dir, false);
        let args = Down {
            force: false,
            timeout: Duration::from_secs(60),
        };
        assert_eq!(
            run(&context, &args).unwrap_err().code(),
            ExitCode::NotRunning
        );
        daemon.join().unwrap();
    }

    #[test]
    fn who_has_heard_that_the_daemon_stopped_need_not_read_it() {
        let (_scratch, dir) = unreadable();
        let mut process = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = process.id();
        let daemon = answering(&dir, move |order| {
            Some(Ok(match order {
                Order::Stop { .. } => {
                    process.kill().unwrap();
                    process.wait().unwrap();
                    Done::Stop(StopOutcome::Stopped)
                }
                _ => Done::Pong {
                    pid,
                    team_name: "t".to_owned(),
                    version: "0".to_owned(),
                    stopping: false,
                    trouble: None,
                },
            }))
        });
        let (context, stdout, _) = context(&dir, false);
        let args = Down {
            force: false,
            timeout: Duration::from_secs(60),
        };
        assert_eq!(run(&context, &args), Ok(ExitCode::Done));
        assert_eq!(
            stdout.text(),
            "teamd has stopped, and all teammates with it\n"
        );
        daemon.join().unwrap();
    }
}
