//! Handing over: the daemon becomes another program (`teamd start --replace`), and nobody is stopped.
//!
//! It is the same process before and after (`execve(2)`): the workers stay its children, the lock of the team directory is
//! held throughout, and a service manager sees nothing. What the new program must know stands in the files, as after
//! a crash; the connections close, and workers and commands come again. This module decides when, and does it.

use std::io;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use teamd_shared::control::{Done, FromWorker, Refusal, RefusalCode, Request, Successor};
use teamd_shared::member::{Member, Phase};

use super::batcher::End;
use super::control_server::{Connections, Input};
use super::dispatcher::Dispatcher;
use super::ear::Heard;
use super::event::{Client, Life};
use super::lock::TeamLock;
use super::start::worker_arguments;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::programs::Program;

/// How long a life that begins just now may take to come so far that it outlives the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to refuse what came too late.
const REFUSING: Duration = Duration::from_secs(1);

/// The prefix of the variables that are the daemon's own.
const OURS: &str = "TEAM_";

/// Somebody who wants another program to be the daemon.
#[derive(Debug)]
pub(super) struct HandOver {
    client: Client,
    successor: Box<Successor>,
    /// The program itself, and the worker's.
    programs: (Program, Program),
    /// When it is refused, if it could not be done.
    pub(super) by: Instant,
}

impl Dispatcher {
    /// Begins to hand over: from now on no life is begun that nobody needs.
    pub(super) fn begin_to_hand_over(&mut self, client: Client, successor: Box<Successor>) {
        if self.hand_over.is_some() {
            self.connections.reply(client, Err(handing_over()));
            return;
        }
        let programs = match open_programs(&successor) {
            Ok(programs) => programs,
            Err(error) => {
                let what = format!("cannot open the programs of process {}: {error}", successor.process.pid);
                let refusal =
                    Refusal::new(RefusalCode::Failed, format!("the daemon does not hand over: {what}"));
                return self.connections.reply(client, Err(refusal.hint("`teamd stop`, then `teamd start`")));
            }
        };
        self.hand_over = Some(HandOver { client, successor, programs, by: Instant::now() + PATIENCE });
    }

    /// Hands over as soon as nobody would be hurt by it: everything that was decided is done and told, and each life is
    /// welcomed, and so outlives the daemon.
    pub(super) fn hand_over_if_ready(&mut self) {
        let Some(wanted) = self.hand_over.as_ref().filter(|_| self.batcher.end.is_none()) else { return };
        let why = if !self.connections.waits(wanted.client) {
            Some("nobody waits for it any more".to_owned())
        } else if self.batcher.team.stopping {
            Some("the daemon is stopping".to_owned())
        } else {
            self.unfinished().filter(|_| wanted.by <= Instant::now())
        };
        if why.is_none() && self.unfinished().is_some() {
            return;
        }
        let client = wanted.client;
        if let Some(why) = why {
            self.hand_over = None;
            tracing::warn!("does not hand over: {why}");
            let refusal =
                Refusal::new(RefusalCode::Conflict, format!("the daemon does not hand over: {why}"));
            self.connections.reply(client, Err(refusal.hint("try again in a moment")));
            return;
        }
        // What the workers last said is found there until they say it again.
        self.write_roster();
        self.connections.reply(client, Ok(Done::HandingOver));
        let told = self.supervisor.strays().told();
        if let Some(HandOver { successor, .. }) = &mut self.hand_over {
            successor.variables.push(told);
        }
        self.batcher.end = Some(End::HandedOver);
    }

    /// Says what would be lost.
    fn unfinished(&self) -> Option<String> {
        if self.batcher.waits_to_try_again() {
            return Some("something could not be written, and is tried again".to_owned());
        }
        if self.batcher.owes_answers() || self.batcher.is_unsettled() {
            return Some("what was decided is not done yet".to_owned());
        }
        if self.batcher.has_undecided() {
            return Some("somebody waits for a name to be free".to_owned());
        }
        // How it ended, and the environment to start it again with, are known to this program alone.
        if let Some(life) = self.gone_at.keys().next() {
            return Some(format!("{} ends just now", life.name));
        }
        let begins = |member: &&Member| {
            let life = Life { name: member.name.clone(), incarnation: member.incarnation };
            member.phase == Phase::Spawning || self.batcher.is_being_born(&life)
        };
        let alive = self.batcher.team.members.values().map(|state| &state.record);
        let beginning = alive.filter(|member| !member.phase.is_ended()).find(begins)?;
        Some(format!("{} begins just now", beginning.name))
    }
}

/// Refuses what must wait for the next program: nothing of it was done, and `teamctl` asks again by itself.
pub(super) fn handing_over() -> Refusal {
    let message = "the daemon hands over to another program just now";
    Refusal::new(RefusalCode::HandingOver, message).hint("try again in a moment")
}

/// Refuses what was read and is not decided when the daemon hands over. All else that is
/// said now is said again to the next program, or stands in the files.
pub(super) async fn refuse_the_rest(connections: &mut Connections, heard: Heard) {
    let mut rest = heard.close();
    let refusing = async {
        while let Some(input) = rest.recv().await {
            match input {
                Input::ClientHere { connection, replies } => connections.add_client(connection, replies),
                Input::ClientAsks { connection, request: Request { tag, .. } } => {
                    let client = Client { connection, tag, agent: false };
                    connections.reply(client, Err(handing_over()));
                }
                // What can be repeated, the lead agent asks the next program by itself.
                Input::WorkerSays {
                    connection, frame: FromWorker::Asks(Request { tag, command }), ..
                } if !command.can_be_repeated() => {
                    let client = Client { connection, tag, agent: true };
                    connections.reply(client, Err(handing_over()));
                }
                Input::WorkerHere(_) | Input::WorkerSays { .. } | Input::Gone { .. } => {}
            }
        }
    };
    if tokio::time::timeout(REFUSING, refusing).await.is_err() {
        tracing::warn!("hands over although somebody may not have been told to ask again");
    }
}

/// Opens what another process runs, and the worker's program that it has open: never by a path, at which something else
/// may stand by now.
fn open_programs(successor: &Successor) -> io::Result<(Program, Program)> {
    let Successor { process, worker, program, .. } = successor;
    let own = Program::run_by(process.pid, program)?;
    let worker = Program::of_process(process.pid, *worker, "team-worker")?;
    // Looked at last: what was opened is of that process, and of no other that has its pid by now.
    if process.runs()? { Ok((own, worker)) } else { Err(io::Error::other("it has ended")) }
}

/// Becomes the other program, with the lock as its standard input; returns only if that fails.
pub(super) fn become_successor(wanted: &HandOver, lock: TeamLock) -> CommandError {
    let HandOver { successor, programs: (program, worker), .. } = wanted;
    let failed = |what: &str, error: io::Error| {
        CommandError::new(ExitCode::Failed, format!("{what}: {error}; its workers go on"))
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
    command.envs(successor.variables.iter().map(|(name, value)| (name, value)));
    failed(&format!("cannot become {}", successor.program), command.exec())
}

/// Returns the variables that are the daemon's own, as this process has them.
pub(super) fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(OURS))
}

#[cfg(test)]
mod tests {
    use teamd_shared::control::{Command, Connection, Reply, pair};

    use super::super::control_server::Outbound;
    use super::super::ear::Ear;
    use super::*;

    #[test]
    fn what_is_received_and_not_decided_is_refused_and_not_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = pair().unwrap();
            let (out, _incoming) = Connection::from_fd(ours).unwrap().split::<Reply, Request>();
            let (replies, _ended) = Outbound::start(out);
            let (ear, heard) = Ear::new();
            let mut connections = Connections::default();
            connections.add_client(1, replies);
            for tag in [7, 8] {
                let request = Request { tag, command: Command::Stop { force: false } };
                assert!(ear.tell(Input::ClientAsks { connection: 1, request }).await);
            }
            drop(ear);
            refuse_the_rest(&mut connections, heard).await;
            connections.drain().await;
            let mut client = Connection::from_fd(theirs).unwrap();
            for tag in [7, 8] {
                let reply: Reply = client.receive().await.unwrap().unwrap();
                assert_eq!(reply, Reply { tag, result: Err(handing_over()) });
            }
        });
    }
}
