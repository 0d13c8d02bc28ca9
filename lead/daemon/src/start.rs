//! `teamd start`: takes the lock, brings a detached daemon up, and returns when it answers.
//!
//! The lock is taken here and handed on as the daemon's standard input: of twenty starts at once
//! one takes it, and the others wait until that one's daemon answers. The daemon says on its
//! standard output that it is ready, or why not.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_name;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use teamd_shared::control::{
    self, Command as Ask, Done, Greeting, PROTOCOL, Peer, Reply, TaggedCommand,
};
use teamd_shared::logging;
use teamd_shared::process::{Identity, ProcessHandle, close_inherited, is_gone, set_signals};
use teamd_shared::sandbox::Layers;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::confinement::{self, TeamConfinement};
use super::io::lock::TeamLock;
use super::options::{
    DaemonRole, HostOptions, SetAside, StartOptions, serve_arguments, worker_arguments,
};
use super::replace::replace;
use super::run::{self, ServeOptions};
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::Program;
use teamd_client::registered;

/// How long a start waits for another daemon that holds the lock and does not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon that answers.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its process id.
    pub pid: u32,
    /// Whether it ran before.
    pub already_running: bool,
    /// Whether the one that ran before became this program.
    pub replaced: bool,
    /// What it has set aside at this start.
    pub aside: SetAside,
}

/// What the daemon says to the command that starts it.
#[derive(Debug, Serialize, Deserialize)]
enum Readiness {
    Ready {
        pid: u32,
        aside: SetAside,
    },
    Failed {
        message: String,
        hint: Option<String>,
    },
}

/// Starts the daemon, or finds it running. In the foreground it returns when the daemon has ended.
///
/// # Errors
/// [`CommandError`] with the daemon's own reason.
pub fn start(options: StartOptions) -> Result<Started, CommandError> {
    if options.dir.to_str().is_none() {
        let message = format!(
            "the path of the team directory, {}, is not UTF-8",
            options.dir.display()
        );
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint("rename the directory: JSON files contain its path"));
    }
    // Whatever the umask of the shell: what the daemon makes is for its user alone, and usable.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let mut program_and_layers = None;
    if !is_there(&options.dir) && !options.adopt {
        let layers = program_and_layers
            .insert(look(options.allow_weak_sandbox)?)
            .1;
        confinement::part(&options.dir, layers, &options.register)?;
        if !is_there(&options.dir) {
            options.register.make(&options.dir)?;
        }
    }
    let dir = TeamDir::open(&options.dir)?;
    if !options.adopt {
        registered::check(&options.register, &dir, ExitCode::Rejected)?;
    } else if dir.looks_like_one()? {
        options.register.enter(&dir)?;
    } else {
        let message = format!(
            "{} is no team directory: it holds other files, and no journal",
            dir.root().display()
        );
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("name the directory itself, such as `.team`"));
    }
    dir.furnish()?;
    let taken = lock_or_running(&dir)?;
    if let Err(started) = &taken
        && !options.replace
    {
        return Ok(started.clone());
    }
    let (worker, layers) =
        program_and_layers.map_or_else(|| look(options.allow_weak_sandbox), Ok)?;
    let confinement = confinement::judge(layers, &dir, options.allow_weak_sandbox)?;
    let lock = match taken {
        Ok(lock) => lock,
        Err(_) => match take_the_place(&dir, &options, &confinement, &worker)? {
            Err(started) => return Ok(started),
            // It has ended before it answered: in what follows it says why.
            Ok(lock) => lock,
        },
    };
    if !options.foreground {
        let role = DaemonRole::Home { handed_over: false };
        let confined = (&confinement, &worker);
        return detach(&dir, lock, &options.settings, confined, role);
    }
    logging::to_stderr();
    let served = ServeOptions {
        dir: dir.root(),
        settings: options.settings,
        confinement: &confinement,
        worker,
        role: DaemonRole::Home { handed_over: false },
    };
    run::serve(served, lock, |_| Ok(()))?;
    Ok(Started {
        pid: std::process::id(),
        already_running: false,
        replaced: false,
        aside: SetAside::default(),
    })
}

/// Starts the host daemon of a home, or finds it running.
///
/// # Errors
/// [`CommandError`] with the daemon's own reason.
pub fn start_host(options: &HostOptions) -> Result<Started, CommandError> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let mut early_look = None;
    if !is_there(&options.dir) {
        // A person waits for the first contact: the layers are tried while directories are synced.
        let allow_weak_sandbox = options.allow_weak_sandbox;
        early_look = Some(std::thread::spawn(move || look(allow_weak_sandbox)));
        let above = options.dir.parent().unwrap_or(&options.dir);
        std::fs::create_dir_all(above).map_err(|e| {
            CommandError::refused("cannot make the directory of the host daemon", &e)
        })?;
        options.register.make(&options.dir)?;
    }
    let dir = TeamDir::open(&options.dir)?;
    registered::check(&options.register, &dir, ExitCode::Rejected)?;
    dir.furnish()?;
    let taken = match lock_or_running(&dir)? {
        Err(running) if options.replace || !is_this_version(&dir)? => {
            end_host_daemon(&dir, running.pid)?
        }
        taken => taken,
    };
    let lock = match taken {
        Ok(lock) => lock,
        Err(running) => return Ok(running),
    };
    let looked = early_look.and_then(|thread| thread.join().ok());
    let (worker, layers) = looked.unwrap_or_else(|| look(options.allow_weak_sandbox))?;
    let confinement = confinement::judge(layers, &dir, options.allow_weak_sandbox)?;
    let confined = (&confinement, &worker);
    detach(
        &dir,
        lock,
        &options.settings,
        confined,
        DaemonRole::Host(options.home),
    )
}

/// Tells whether the daemon that runs is of this version. One that does not answer ends by itself.
fn is_this_version(dir: &TeamDir) -> Result<bool, CommandError> {
    let pong = runtime()?.block_on(ping(dir));
    Ok(pong.is_none_or(|pong| pong.version == env!("CARGO_PKG_VERSION")))
}

/// Ends a host daemon, and takes its lock; or finds the next one. Its workers wait for that.
fn end_host_daemon(dir: &TeamDir, pid: u32) -> Result<Result<TeamLock, Started>, CommandError> {
    let refused =
        |error: &std::io::Error| CommandError::refused("cannot end the host daemon", error);
    let ended = runtime()?.block_on(async {
        let process = ProcessHandle::open(Identity::of(pid)?)?;
        process.signal(Signal::TERM)?;
        tokio::time::timeout(PATIENCE, process.ended())
            .await
            .ok()
            .transpose()
    });
    match ended {
        Ok(Some(())) => {}
        Ok(None) => {
            let message = format!("the host daemon (pid {pid}) does not end");
            return Err(CommandError::new(ExitCode::Failed, message)
                .hint("look for a stopped teamd there (`ps`), and at its log/teamd.log"));
        }
        Err(error) if is_gone(&error) => {}
        Err(error) => return Err(refused(&error)),
    }
    lock_or_running(dir)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Opens the worker's program, and has it find out which layers work.
fn look(allow_weak_sandbox: bool) -> Result<(Program, Layers), CommandError> {
    let worker = Program::worker().map_err(|why| {
        CommandError::new(ExitCode::Failed, why)
            .hint("install team-worker beside teamd, from the same version")
    })?;
    let layers = confinement::layers(&worker, allow_weak_sandbox)?;
    Ok((worker, layers))
}

/// Lets the running daemon become this program, and waits until it answers. If it has ended instead,
/// takes its lock.
fn take_the_place(
    dir: &TeamDir,
    options: &StartOptions,
    confinement: &TeamConfinement,
    worker: &Program,
) -> Result<Result<TeamLock, Started>, CommandError> {
    runtime()?.block_on(replace(dir, options, confinement, worker))?;
    // The earlier program does not answer any more: this program does.
    Ok(lock_or_running(dir)?.map_err(|it| Started {
        already_running: false,
        replaced: true,
        ..it
    }))
}

fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|e| CommandError::refused("cannot start a runtime", &e))
}

/// Takes the lock, or waits until the daemon that holds it answers or gives it up.
fn lock_or_running(dir: &TeamDir) -> Result<Result<TeamLock, Started>, CommandError> {
    let began = Instant::now();
    runtime()?.block_on(async {
        let mut pause = Duration::from_millis(1);
        loop {
            let lock = TeamLock::try_take(dir)
                .map_err(|e| CommandError::refused("cannot lock the team directory", &e))?;
            if let Some(lock) = lock {
                return Ok(Ok(lock));
            }
            let stopping = match ping(dir).await {
                Some(pong) if !pong.stopping => {
                    return Ok(Err(Started {
                        pid: pong.pid,
                        already_running: true,
                        replaced: false,
                        aside: SetAside::default(),
                    }));
                }
                // It ends, or a teammate rejects the shutdown and it stays: either is waited for.
                Some(pong) => Some(pong.pid),
                None => None,
            };
            if began.elapsed() > PATIENCE
                && let Some(pid) = stopping
            {
                let message = format!(
                    "the daemon (pid {pid}) is stopping, and waits for a teammate to leave"
                );
                return Err(CommandError::new(ExitCode::Conflict, message)
                    .hint("`teamctl status` shows for whom; `teamd stop --force` does not wait"));
            }
            if began.elapsed() > PATIENCE {
                let message = format!(
                    "{} is locked, but no daemon answers there",
                    dir.root().display()
                );
                return Err(CommandError::new(ExitCode::Failed, message)
                    .hint("look for a stopped teamd (`ps`), and at log/teamd.log"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    })
}

/// What a daemon that runs says of itself.
struct RunningDaemon {
    pid: u32,
    /// Whether it is about to end.
    stopping: bool,
    version: String,
}

/// Asks the daemon who it is; none if no daemon answers.
async fn ping(dir: &TeamDir) -> Option<RunningDaemon> {
    let ask = async {
        let mut connection = control::connect(dir).await.ok()?;
        connection
            .send(&Greeting {
                protocol: PROTOCOL,
                peer: Peer::Client,
            })
            .await
            .ok()?;
        connection
            .send(&TaggedCommand {
                tag: 0,
                command: Ask::Ping,
            })
            .await
            .ok()?;
        match connection.receive::<Reply>().await.ok()??.result {
            Ok(Done::Pong {
                pid,
                stopping,
                version,
                ..
            }) => Some(RunningDaemon {
                pid,
                stopping,
                version,
            }),
            _ => None,
        }
    };
    tokio::time::timeout(Duration::from_secs(2), ask)
        .await
        .ok()
        .flatten()
}

/// Starts this program again as the daemon, with the lock as its standard input.
fn detach(
    dir: &TeamDir,
    lock: TeamLock,
    settings: &Settings,
    (confinement, worker): (&TeamConfinement, &Program),
    role: DaemonRole,
) -> Result<Started, CommandError> {
    let log = logging::open(dir, &TeamPath::log("teamd"))?;
    let own = std::env::current_exe()
        .map_err(|e| CommandError::refused("cannot find its own program", &e))?;
    let worker = worker
        .inherit()
        .map_err(|e| CommandError::refused("cannot hand on the worker's program", &e))?;
    let mut child = Command::new("/proc/self/exe")
        .arg0(own)
        .args(serve_arguments(dir, confinement, role))
        .args(worker_arguments(worker))
        .current_dir("/")
        // A flag may have said otherwise, and be the default.
        .env_remove("TEAM_CGROUP")
        .envs(settings.variables())
        .stdin(lock.into_file())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|e| CommandError::refused("cannot start the daemon", &e))?;
    let mut answer = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout
            .read_to_string(&mut answer)
            .map_err(|e| CommandError::refused("cannot hear from the daemon", &e))?;
    }
    match serde_json::from_str(&answer) {
        Ok(Readiness::Ready { pid, aside }) => {
            // This process may run for long: what dials home does.
            let reaper = std::thread::Builder::new().spawn(move || child.wait());
            reaper.map_err(|e| CommandError::refused("cannot wait for the daemon", &e))?;
            Ok(Started {
                pid,
                already_running: false,
                replaced: false,
                aside,
            })
        }
        Ok(Readiness::Failed { message, hint }) => {
            let error = CommandError::new(ExitCode::Failed, message);
            Err(hint.into_iter().fold(error, CommandError::hint))
        }
        Err(_) => {
            let status = child
                .wait()
                .map_err(|e| CommandError::refused("cannot wait for the daemon", &e))?;
            Err(CommandError::new(
                ExitCode::Failed,
                format!("the daemon ended before it was ready ({status})"),
            )
            .hint(format!(
                "see {}",
                dir.root().join("log/teamd.log").display()
            )))
        }
    }
}

/// Runs as the daemon: `teamd serve`, which only `teamd start` and `teamd host` call, or the daemon
/// itself that is handed over.
pub fn serve(
    dir: &Path,
    (confinement, worker): (&TeamConfinement, i32),
    role: DaemonRole,
) -> ExitCode {
    // The start command does not listen where the daemon before wrote its log: the socket tells
    // that it answers.
    let is_unheard = role == DaemonRole::Home { handed_over: true };
    let say = |readiness: &Readiness| if is_unheard { Ok(()) } else { say(readiness) };
    let ended = become_daemon(worker).and_then(|(lock, worker)| {
        let served = ServeOptions {
            dir,
            settings: Settings::from_env()?,
            confinement,
            worker,
            role,
        };
        run::serve(served, lock, |aside| {
            say(&Readiness::Ready {
                pid: std::process::id(),
                aside,
            })
        })
    });
    let Err(error) = ended else {
        return ExitCode::Done;
    };
    tracing::error!("{error}");
    let hint = error.next_step().map(str::to_owned);
    // Once it was ready, the start command no longer listens.
    if let Err(unheard) = say(&Readiness::Failed {
        message: error.message().to_owned(),
        hint,
    }) {
        tracing::debug!("{unheard}");
    }
    error.code()
}

/// Becomes independent of the command that started it: a session of its own, no terminal, no
/// inherited descriptors, and the log as its output.
fn become_daemon(worker: i32) -> Result<(TeamLock, Program), CommandError> {
    // For `ps`: it was started as `/proc/self/exe`, or by a descriptor.
    set_name(c"teamd").map_err(|e| CommandError::refused("cannot name itself", &e.into()))?;
    close_inherited(&[worker])
        .map_err(|e| CommandError::refused("cannot close what it inherited", &e))?;
    let worker =
        Program::inherited(worker).map_err(|why| CommandError::new(ExitCode::Failed, why))?;
    set_signals().map_err(|e| CommandError::refused("cannot handle signals", &e))?;
    let lock = TeamLock::inherited()
        .map_err(|e| CommandError::refused("cannot take over the lock", &e))?;
    let lock = lock.ok_or_else(|| {
        CommandError::new(ExitCode::Failed, "another daemon holds the lock")
            .hint("use `teamd start`")
    })?;
    if let Err(errno) = nix::unistd::setsid() {
        tracing::debug!("it has a session of its own already: {errno}");
    }
    logging::to_stderr();
    Ok((lock, worker))
}

/// Tells the starting command, once: standard output is then the log.
fn say(readiness: &Readiness) -> Result<(), CommandError> {
    let text = serde_json::to_string(readiness).unwrap_or_default();
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|e| CommandError::refused("the starting command does not listen", &e))?;
    let stderr = std::io::stderr()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|e| CommandError::refused("cannot keep its log", &e))?;
    rustix::stdio::dup2_stdout(&stderr)
        .map_err(|e| CommandError::refused("cannot close its standard output", &e.into()))
}
