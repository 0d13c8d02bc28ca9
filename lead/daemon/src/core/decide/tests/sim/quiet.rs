//! The end of a schedule: nothing breaks any more, everything is delivered, and time passes.

use jiff::tz::TimeZone;
use teamd_shared::id::RequestId;
use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload};

use super::worker::Worker;
use super::world::World;
use crate::core::dispatcher::Dispatcher;
use crate::core::quiet::obstacles;

/// More than every deadline, in steps of five seconds.
const ROUNDS: usize = 24;

impl World {
    /// Lets everything come to rest, and looks whether it did.
    pub(super) fn settle(&mut self) {
        if self.broken.is_some() {
            return;
        }
        self.note(|| "now all is calm".to_owned());
        self.calm = true;
        for worker in self.processes.values_mut() {
            worker.frozen = false;
        }
        if self.daemon.is_none() {
            self.start_daemon();
        }
        for _ in 0..ROUNDS {
            for _ in 0..3 {
                let pids: Vec<u32> = self.processes.keys().copied().collect();
                for pid in pids {
                    (0..4).for_each(|_| self.worker_step(pid));
                }
                self.shims_work();
                (0..8).for_each(|_| self.host_step());
                self.daemon_step();
            }
            self.time_passes(5.0);
        }
        let checked = self.is_at_rest();
        self.check(checked);
    }

    /// Checks that nothing is left that an order is to make.
    fn orders_rest(&self) -> Result<(), String> {
        let fold = &self.promises.fold;
        if self.daemon.is_none() || fold.stopping {
            return Ok(());
        }
        // What has come due since the last step of the daemon is not lost.
        let before = self.clocks.wall - 5.0;
        let left = fold.orders.values().find(|state| {
            let due = state.due(self.clocks.wall, &TimeZone::UTC);
            due.is_some_and(|due| due.at <= before)
        });
        match left {
            Some(state) => Err(format!("{} was due, and made nothing", state.order.name)),
            None => Ok(()),
        }
    }

    fn is_at_rest(&self) -> Result<(), String> {
        self.promises.at_rest()?;
        if self.daemon.is_some() {
            self.promises.all_is_quarantined(&self.disk.bad)?;
        }
        self.questions_rest()?;
        self.tasks_rest()?;
        self.orders_rest()?;
        let fold = &self.promises.fold;
        let alive = fold
            .members
            .values()
            .map(|state| &state.record)
            .filter(|member| !member.phase.is_ended());
        let mut hung = false;
        for member in alive.clone() {
            let worker = self.processes.values().find(|worker| {
                worker.incarnation.name == member.name
                    && worker.incarnation.number == member.incarnation
            });
            let worker =
                worker.ok_or_else(|| format!("{} runs in the journal alone", member.name))?;
            hung |= worker.hung;
            let rests = if worker.hung {
                self.may_hang(member)
            } else {
                self.rests(member, worker)
            };
            rests.map_err(|why| format!("{}: {why}", member.name))?;
        }
        for worker in self.processes.values().filter(|worker| !worker.hung) {
            if !alive
                .clone()
                .any(|member| member.name == worker.incarnation.name)
            {
                return Err(format!(
                    "process {} of {} is there, and the journal does not know it",
                    worker.pid, worker.incarnation.name
                ));
            }
        }
        let sees = |dispatcher: &Dispatcher| {
            obstacles(&dispatcher.team, &dispatcher.runtime, Some(1)).is_some()
        };
        match &self.daemon {
            Some(daemon) if !fold.stopping && !hung && !sees(&daemon.dispatcher) => {
                Err("all is at rest, and the daemon does not see it".to_owned())
            }
            Some(_) if fold.stopping && !hung => {
                Err("the team is stopping, and does not end".to_owned())
            }
            Some(daemon) if !daemon.dispatcher.team.undone.is_empty() => {
                Err("effects are not complete".to_owned())
            }
            None if alive.count() > 0 => Err("the daemon left before the others".to_owned()),
            _ => Ok(()),
        }
    }

    /// A worker that reacts to nothing is there only as long as no signal is due.
    fn may_hang(&self, member: &Member) -> Result<(), String> {
        let fold = &self.promises.fold;
        let forced = |payload: &Payload| {
            matches!(
                payload,
                Payload::Shutdown {
                    force_after: Some(_),
                    ..
                }
            )
        };
        let forced = fold
            .shutdown_of(&member.name)
            .is_some_and(|request| forced(&request.payload));
        if member.ending.is_some() || forced || fold.release(&member.name).is_some() {
            return Err("it hangs, and was not killed".to_owned());
        }
        Ok(())
    }

    fn rests(&self, member: &Member, worker: &Worker) -> Result<(), String> {
        let fold = &self.promises.fold;
        let name: &Name = &member.name;
        let Some(_) = worker.link else {
            return Err("it has no connection or heard no directive".to_owned());
        };
        let Some(directive) = &worker.directive else {
            return Err("it has no connection or heard no directive".to_owned());
        };
        let seq = fold.members.get(name).map(|state| state.seq);
        if seq != Some(directive.seq) || directive.gate != member.gate {
            return Err(format!(
                "it has not heard the last directive: {seq:?}, {directive:?}"
            ));
        }
        if member.ending.is_some()
            || fold.pending(name, Kind::Shutdown).is_some()
            || fold.release(name).is_some()
        {
            return Err("it should have left".to_owned());
        }
        let pending = fold
            .awaited_by(name)
            .map(|request| request.request_id.clone());
        let awaited: Option<RequestId> = worker.plan.as_ref().map(|plan| plan.request_id.clone());
        if pending != awaited {
            return Err(format!(
                "it waits for {awaited:?}, and {pending:?} is pending"
            ));
        }
        if worker
            .said
            .as_ref()
            .is_none_or(|said| said.applied_seq != directive.seq)
        {
            return Err("it has not said that it has applied the last directive".to_owned());
        }
        Ok(())
    }
}
