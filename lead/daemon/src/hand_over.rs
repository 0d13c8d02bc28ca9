//! Handing over: the daemon becomes another program (`teamd start --replace`), and no worker is
//! stopped.
//!
//! It is the same process before and after (`execve(2)`): the workers stay its children, the lock
//! of the team directory is held throughout, and a service manager sees nothing. What the new
//! program must know stands in the files, as after a crash. The connections close: workers connect
//! again, and commands that wait are said again to the next program. This module decides when, and
//! does it.

use std::io;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use teamd_shared::control::{Done, Refusal, RefusalCode, Successor};
use teamd_shared::member::{Member, Phase};

use super::core::dispatcher::End;
use super::core::event::{Incarnation, ReplyTo};
use super::event_loop::EventLoop;
use super::io::lock::TeamLock;
use super::options::worker_arguments;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::Program;

/// How long a hand-over waits for a worker that begins just now to be welcomed, so that it outlives
/// the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// The prefix of the variables that are the daemon's own.
const OURS: &str = "TEAM_";

/// An order that another program becomes the daemon.
#[derive(Debug)]
pub(super) struct HandOver {
    client: ReplyTo,
    successor: Box<Successor>,
    /// The program itself, and the worker's.
    programs: (Program, Program),
    /// When it is refused, if it could not be done.
    pub(super) by: Instant,
}

impl EventLoop {
    /// Begins to hand over: it happens as soon as nothing would be lost.
    pub(super) fn begin_to_hand_over(&mut self, client: ReplyTo, successor: Box<Successor>) {
        if self.hand_over.is_some() {
            let refusal = conflict("the daemon hands over to another program just now".to_owned());
            return self.owned.connections.reply(client, Err(refusal));
        }
        let programs = match open_programs(&successor) {
            Ok(programs) => programs,
            Err(error) => {
                let what = format!(
                    "cannot open the programs of process {}: {error}",
                    successor.process.pid
                );
                let refusal = Refusal::new(
                    RefusalCode::Failed,
                    format!("the daemon does not hand over: {what}"),
                );
                return self.owned.connections.reply(
                    client,
                    Err(refusal.hint("`teamd stop`, then `teamd start`")),
                );
            }
        };
        self.hand_over = Some(HandOver {
            client,
            successor,
            programs,
            by: Instant::now() + PATIENCE,
        });
    }

    /// Hands over as soon as nothing would be lost: everything that was decided is done and told,
    /// and each incarnation is welcomed, and so outlives the daemon.
    pub(super) fn hand_over_if_ready(&mut self) {
        if self.dispatcher.end.is_some() {
            return;
        }
        let Some(wanted) = self.hand_over.as_ref() else {
            return;
        };
        let why = if !self.owned.connections.waits(wanted.client) {
            Some("the command that asked for it does not wait any more".to_owned())
        } else if self.dispatcher.team.stopping {
            Some("the daemon is stopping".to_owned())
        } else {
            if wanted.by <= Instant::now() {
                self.unfinished()
            } else {
                None
            }
        };
        if why.is_none() && self.unfinished().is_some() {
            return;
        }
        let client = wanted.client;
        if let Some(why) = why {
            self.hand_over = None;
            tracing::warn!("does not hand over: {why}");
            let refusal = conflict(format!("the daemon does not hand over: {why}"));
            return self.owned.connections.reply(client, Err(refusal));
        }
        // What the workers last said is found there until they say it again.
        self.write_roster();
        self.owned.connections.reply(client, Ok(Done::HandingOver));
        let preexisting = self.owned.supervisor.orphans().variable();
        if let Some(HandOver { successor, .. }) = &mut self.hand_over {
            successor.variables.push(preexisting);
        }
        self.dispatcher.end = Some(End::HandedOver);
    }

    /// Returns what a hand-over would lose now.
    fn unfinished(&self) -> Option<String> {
        let dispatcher = &self.dispatcher;
        if dispatcher.waits_to_try_again() {
            return Some("something could not be written, and is tried again".to_owned());
        }
        if dispatcher.has_answers()
            || dispatcher.has_unfinished_effects()
            || dispatcher.has_undecided()
        {
            return Some("what was decided is not done yet".to_owned());
        }
        // How it ended, and the environment to start it again with, are known to this program
        // alone.
        if let Some(incarnation) = self.reaper.one_that_ends() {
            return Some(format!("{} ends just now", incarnation.name));
        }
        let begins = |member: &&Member| {
            let alive = self.dispatcher.live.of(&Incarnation::of(member));
            member.phase == Phase::Spawning || alive.is_some_and(|alive| alive.is_awaited)
        };
        let alive = self
            .dispatcher
            .team
            .members
            .values()
            .map(|state| &state.record);
        let beginning = alive
            .filter(|member| !member.phase.is_ended())
            .find(begins)?;
        Some(format!("{} begins just now", beginning.name))
    }
}

fn conflict(message: String) -> Refusal {
    Refusal::new(RefusalCode::Conflict, message).hint("try again in a moment")
}

/// Opens what another process runs, and the worker's program that it has open: never by a path, at
/// which something else may stand by now.
fn open_programs(successor: &Successor) -> io::Result<(Program, Program)> {
    let Successor {
        process,
        worker,
        program,
        ..
    } = successor;
    let own = Program::run_by(process.pid, program)?;
    let worker = Program::of_process(process.pid, *worker, "team-worker")?;
    // Looked at last: what was opened is of that process, and of no other that has its pid by now.
    if process.runs()? {
        Ok((own, worker))
    } else {
        Err(io::Error::other("it has ended"))
    }
}

/// Becomes the other program, with the lock as its standard input; returns only if that fails.
pub(super) fn become_successor(wanted: &HandOver, lock: TeamLock) -> CommandError {
    let HandOver {
        successor,
        programs: (program, worker),
        ..
    } = wanted;
    let failed = |what: &str, error: io::Error| {
        CommandError::new(
            ExitCode::Failed,
            format!("{what}: {error}; its workers go on"),
        )
        .hint("`teamd start` takes the workers over again")
    };
    if let Err(errno) = rustix::stdio::dup2_stdin(lock.into_file()) {
        return failed("cannot hand the lock over", errno.into());
    }
    tracing::info!("hands over to {}; the workers go on", successor.program);
    let worker = match worker.inherit() {
        Ok(descriptor) => worker_arguments(descriptor),
        Err(error) => return failed("cannot hand the worker's program over", error),
    };
    let mut command = program.command();
    command.args(&successor.arguments).args(worker);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(OURS.as_bytes()))
    {
        command.env_remove(name);
    }
    command.envs(
        successor
            .variables
            .iter()
            .map(|(name, value)| (name, value)),
    );
    failed(
        &format!("cannot become {}", successor.program),
        command.exec(),
    )
}

/// Returns the variables that are the daemon's own, as this process has them.
pub(super) fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(OURS))
}
