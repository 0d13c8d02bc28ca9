//! The hooks: commands of the user that the daemon runs when something happened, with the facts as
//! JSON on standard input.
//!
//! Only the user's own configuration contains them, and no tool can write there. The file is read
//! for each hook, so a change counts at once. A hook runs in the folder of that configuration, and
//! never where a teammate may write: an interpreter believes what lies in its directory. The daemon
//! never waits for a hook. It runs a few at once, each in a process group of its own and for a
//! limited time.

mod surroundings;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use teamd_shared::user_config::{HookCommands, UserConfig, UserConfigError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use surroundings::Surroundings;

/// The fact that is in no log: the code of a request.
pub(crate) const CODE: &str = "code";
/// How many hooks run at once.
const AT_ONCE: usize = 4;
/// How many others may wait, before further ones are left out.
const WAITING: usize = 256;
/// How long a hook may run.
const LIMIT: Duration = Duration::from_secs(30);
/// How long hooks may continue when the daemon ends.
const AT_THE_END: Duration = Duration::from_secs(2);
/// How much of its output is logged if a hook fails, in bytes.
const LOGGED: usize = 2_000;

/// The processes of hooks that run: they are no orphans of teammates.
pub(crate) type HookPids = Arc<Mutex<HashSet<u32>>>;

/// What happened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hook {
    /// A plan waits for a person.
    Request,
    /// A request was answered while a lead is connected by MCP.
    Answer,
    /// A piece of work has ended.
    Idle,
    /// An incarnation has ended.
    End,
}

/// A hook of the user's, with what it finds around it.
#[derive(Debug)]
struct Ready {
    command: String,
    surroundings: Surroundings,
}

impl Hook {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "on_request",
            Self::Answer => "on_answer",
            Self::Idle => "on_idle",
            Self::End => "on_end",
        }
    }

    /// Returns the user's command for it, if there is one. `territory`: where teammates write.
    fn ready(self, territory: &[PathBuf]) -> Result<Option<Ready>, UserConfigError> {
        let UserConfig { hooks, path, .. } = UserConfig::load(|name| std::env::var_os(name))?;
        let HookCommands {
            on_request,
            on_answer,
            on_idle,
            on_end,
            env,
        } = hooks;
        let command = match self {
            Self::Request => on_request,
            Self::Answer => on_answer,
            Self::Idle => on_idle,
            Self::End => on_end,
        };
        let (Some(command), Some(folder)) = (command, path.parent()) else {
            return Ok(None);
        };
        let surroundings =
            Surroundings::new(folder.to_owned(), std::env::vars_os(), &env, territory);
        Ok(Some(Ready {
            command,
            surroundings,
        }))
    }
}

/// The hooks that run or wait.
#[derive(Debug)]
pub(crate) struct Hooks {
    tasks: JoinSet<()>,
    room: Arc<Semaphore>,
    pids: HookPids,
}

impl Hooks {
    pub(crate) fn new(pids: HookPids) -> Self {
        Self {
            tasks: JoinSet::new(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
            pids,
        }
    }

    /// Runs the user's command for what happened, if there is one. `territory`: where teammates
    /// write.
    pub(crate) fn run(&mut self, hook: Hook, territory: &[PathBuf], mut facts: Value) {
        while self.tasks.try_join_next().is_some() {}
        let name = hook.as_str();
        let ready = match hook.ready(territory) {
            Ok(Some(ready)) => ready,
            Ok(None) => return,
            Err(why) => return tracing::error!("no hook `{name}`: {why}"),
        };
        if self.tasks.len() >= AT_ONCE + WAITING {
            return tracing::error!("a hook `{name}` is left out: {WAITING} wait already");
        }
        facts["hook"] = json!(name);
        let room = Arc::clone(&self.room);
        let pids = Arc::clone(&self.pids);
        let code = facts[CODE].as_str().map(str::to_owned);
        self.tasks.spawn(async move {
            // It is never closed.
            let _room = room.acquire().await;
            if let Err(mut why) = run(&ready, &facts.to_string(), &pids, LIMIT).await {
                // What it has printed may hold the code, and a log must not.
                if let Some(code) = code {
                    why = why.replace(&code, "[the code]");
                }
                tracing::error!("the hook `{name}` failed: {why}");
            }
        });
    }

    /// Waits a little for the hooks that run, then ends them.
    pub(crate) async fn end(mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(AT_THE_END, all).await.is_err() {
            // Nothing reaps them from here on: the numbers are theirs.
            let pids: Vec<u32> = locked(&self.pids).iter().copied().collect();
            tracing::warn!("{} hooks are ended with the daemon", pids.len());
            for pid in pids {
                kill(pid);
            }
            self.tasks.shutdown().await;
        }
    }
}

fn locked(pids: &HookPids) -> std::sync::MutexGuard<'_, HashSet<u32>> {
    pids.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the process group of a hook that is not reaped.
fn kill(pid: u32) {
    let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(Err(errno)) = group.map(|group| kill_process_group(group, Signal::KILL)) {
        tracing::debug!("cannot kill the hook {pid}: {errno}");
    }
}

/// Runs a hook to its end, or to its time limit.
async fn run(ready: &Ready, facts: &str, pids: &HookPids, limit: Duration) -> Result<(), String> {
    let Ready {
        command,
        surroundings: Surroundings { folder, variables },
    } = ready;
    let child = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child =
        child.map_err(|error| format!("cannot run it in {}: {error}", folder.display()))?;
    // Its number is known until it is reaped.
    let pid = child.id().unwrap_or_default();
    locked(pids).insert(pid);
    let ended = finish(&mut child, facts, pid, limit).await;
    locked(pids).remove(&pid);
    ended
}

/// Waits until a hook has ended and nothing of it holds its output open, or its time is over.
async fn finish(child: &mut Child, facts: &str, pid: u32, limit: Duration) -> Result<(), String> {
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let mut out = Vec::new();
    let mut err = Vec::new();
    let feed = async {
        // A hook need not read its facts.
        if let Some(mut stdin) = stdin {
            stdin.write_all(facts.as_bytes()).await.ok();
        }
    };
    // It is reaped last: until then its number is that of its group.
    let all = async {
        tokio::join!(feed, keep(stdout, &mut out), keep(stderr, &mut err));
        child.wait().await
    };
    let ended = match timeout(limit, all).await {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => format!("how it ended cannot be seen: {error}"),
        Err(_) => {
            kill(pid);
            child.wait().await.map_err(|error| error.to_string())?;
            format!("it took longer than {limit:?} and was killed")
        }
    };
    Err(format!(
        "{ended}; its output: {:?}",
        String::from_utf8_lossy(&[out, err].concat()).trim_end()
    ))
}

/// Reads all that a hook says, and keeps the beginning.
async fn keep(from: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        kept.extend(
            buffer[..read]
                .iter()
                .take((LOGGED / 2).saturating_sub(kept.len())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn ran(command: &str, limit: Duration) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let pids = HookPids::default();
        let surroundings = Surroundings::new("/".into(), std::env::vars_os(), &[], &[]);
        let ready = Ready {
            command: command.to_owned(),
            surroundings,
        };
        let ended = runtime.block_on(run(&ready, "{}", &pids, limit));
        assert!(locked(&pids).is_empty());
        ended
    }

    #[test]
    fn a_hook_is_killed_at_its_time_limit_with_all_that_it_started() {
        let began = Instant::now();
        for command in ["echo here; sleep 600 | sleep 600", "echo here; sleep 600 &"] {
            let why = ran(command, Duration::from_millis(300)).unwrap_err();
            assert_eq!(
                why,
                "it took longer than 300ms and was killed; its output: \"here\""
            );
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_hook_need_not_read_and_may_say_much() {
        assert_eq!(ran("exec <&-; seq 1 99999", LIMIT), Ok(()));
        let why = ran("seq 1 99999; exit 3", LIMIT).unwrap_err();
        assert!(
            why.starts_with("exit status: 3; its output: ") && why.len() < 2 * LOGGED,
            "{why}"
        );
    }
}
