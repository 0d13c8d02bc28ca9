//! When the daemon hands over to another program: as soon as nothing would be lost.

use std::time::{Duration, Instant};

use teamd_shared::control::{Done, Refusal, RefusalCode, Successor};
use teamd_shared::member::{Member, Phase};

use super::EventLoop;
use crate::core::caller::ReplyTo;
use crate::core::dispatcher::DaemonEnd;
use crate::core::incarnation::Incarnation;
use crate::core::runtime::WorkerLink;
use crate::hand_over::{self, HandOver};

/// How long a hand-over waits for a worker that begins just now to be welcomed, so that it outlives
/// the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

impl EventLoop {
    /// Begins to hand over: it happens as soon as nothing would be lost.
    pub(super) fn begin_to_hand_over(&mut self, client: ReplyTo, successor: Box<Successor>) {
        if self.hand_over.is_some() {
            let refusal = conflict("the daemon is handing over to another program".to_owned());
            return self.resources.connections.reply(client, Err(refusal));
        }
        // The next daemon may have other settings.
        let lead = self.resources.connections.lead_above(client.connection);
        if let Some(lead) = lead
            && self.resources.codes.is_on()
        {
            let message = format!(
                "the daemon does not hand over: with `approve_code` a person asks for that, and {} runs this",
                lead.shown()
            );
            let refusal = Refusal::new(RefusalCode::Rejected, message)
                .hint("run it in a terminal that it has not opened");
            return self.resources.connections.reply(client, Err(refusal));
        }
        let programs = match hand_over::open_programs(&successor) {
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
                return self.resources.connections.reply(
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

    /// Hands over as soon as nothing would be lost: everything that was decided is done and
    /// answered, and each incarnation is welcomed, and so outlives the daemon.
    pub(super) fn hand_over_if_ready(&mut self) {
        if self.dispatcher.end().is_some() {
            return;
        }
        let Some(wanted) = self.hand_over.as_ref() else {
            return;
        };
        let client = wanted.client;
        let unfinished = self.unfinished();
        let why = if !self.resources.connections.waits(client) {
            Some("the command that asked for it does not wait any more".to_owned())
        } else if self.dispatcher.team.stopping {
            Some("the daemon is stopping".to_owned())
        } else if unfinished.is_some() && wanted.by > Instant::now() {
            return;
        } else {
            unfinished
        };
        if let Some(why) = why {
            self.hand_over = None;
            tracing::warn!("does not hand over: {why}");
            let refusal = conflict(format!("the daemon does not hand over: {why}"));
            return self.resources.connections.reply(client, Err(refusal));
        }
        // The next program finds the last reports of the workers there until they report again.
        self.write_roster();
        self.resources
            .connections
            .reply(client, Ok(Done::HandingOver));
        let preexisting = self.resources.supervisor.orphans().variable();
        if let Some(HandOver { successor, .. }) = &mut self.hand_over {
            successor.variables.push(preexisting);
        }
        self.dispatcher.end_with(DaemonEnd::HandedOver);
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
        for state in self.dispatcher.team.members.values() {
            if self.begins(&state.record) {
                return Some(format!("{} begins just now", state.record.name));
            }
        }
        None
    }

    /// Tells whether a member was not welcomed yet.
    fn begins(&self, member: &Member) -> bool {
        let worker = self.dispatcher.runtime.of(&Incarnation::of(member));
        match member.phase {
            Phase::Spawning => true,
            Phase::Running => worker.is_some_and(|worker| worker.link == WorkerLink::Inherited),
            _ => false,
        }
    }
}

fn conflict(message: String) -> Refusal {
    Refusal::new(RefusalCode::Conflict, message).hint("try again in a moment")
}
