//! The loop: gather what has happened → decide → journal → effects → directives → roster → replies.
//!
//! The [`Dispatcher`] decides, and the [`DaemonResources`] carry out what follows, up to the
//! directives. The workers get those first, then the roster is written and commands are answered,
//! and only then are inbox lines synced.

mod answers;
mod deliveries;
pub(super) mod gather;
mod handing_over;
mod host_logs;
mod hosts;
mod links;
pub(super) mod sources;
pub(super) mod upkeep;

use std::path::PathBuf;
use std::time::Instant;

use teamd_shared::member::{Ending, Member, Restart};
use teamd_shared::process::How;
use teamd_shared::watch::SLOW_TICK;

use self::sources::{Sources, changed, sleep_until};
use super::core::dispatcher::Dispatcher;
use super::core::event::{Event, Now};
use super::core::incarnation::Incarnation;
use super::core::io::{Io, IoFailed};
use super::hand_over::HandOver;
use super::io::lead_inbox::LeadInbox;
use super::io::reaper::{Beginning, ExitContext, Reaper};
use super::io::resources::DaemonResources;
use super::io::workers::Reaped;

/// Everything that the daemon owns.
pub(super) struct EventLoop {
    pub(super) dispatcher: Dispatcher,
    pub(super) resources: DaemonResources,
    pub(super) reaper: Reaper,
    pub(super) lead: LeadInbox,
    /// An order that another program becomes the daemon.
    pub(super) hand_over: Option<HandOver>,
    /// When the lead last got a notice about restored modes.
    pub(super) modes_reported: Option<Instant>,
}

impl EventLoop {
    /// Takes one turn after the other, until the daemon is to end.
    pub(super) async fn run(&mut self, sources: &mut Sources) {
        let mut tick = tokio::time::interval(SLOW_TICK);
        while self.dispatcher.end().is_none() {
            let wake_up = self.next_wake_up();
            let mut events = Vec::new();
            tokio::select! {
                Some(input) = sources.inputs.recv() => events.extend(self.take_input(input)),
                Some(number) = sources.exited.recv() => events.extend(self.process_exited(number)),
                Some(event) = sources.empty.recv() => events.extend(self.incarnation_ended(event)),
                () = changed(sources.inboxes.as_ref()) => {}
                () = changed(sources.names.as_ref()) => events.extend(self.look_after_files(sources)),
                synced = self.resources.effects.synced() => self.synced(synced),
                () = sources.signals.received() => events.push(Event::Terminate),
                () = sleep_until(wake_up) => {}
                _ = tick.tick() => events.extend(self.tick(sources)),
            }
            self.gather(sources, &mut events);
            self.handle(events);
            for notice in std::mem::take(&mut self.lead.ended_work) {
                self.resources.work_ended(&self.dispatcher.team, &notice);
            }
            if self.dispatcher.has_answers() {
                // What was said to the workers goes out first.
                tokio::task::yield_now().await;
                self.dispatcher.answer(&mut self.resources);
            }
            self.reply();
            if self.dispatcher.has_unfinished_effects() {
                tokio::task::yield_now().await;
                self.sync_effects();
            }
            self.hand_over_if_ready();
        }
    }

    /// Returns the time now.
    pub(super) fn now(&self) -> Now {
        self.resources.now()
    }

    /// Returns when something is due without any event.
    fn next_wake_up(&self) -> Option<Instant> {
        let due = self
            .dispatcher
            .next_due()
            .map(|at| self.resources.began + at);
        let more = (self.lead.has_more() || self.resources.effects.is_waiting()).then(Instant::now);
        let refused = self.hand_over.as_ref().map(|wanted| wanted.by);
        [
            due,
            self.resources.roster.due(),
            self.resources.task_files.due(),
            self.resources.links.measurements.due(),
            more,
            refused,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due, and handles events until none is left.
    pub(super) fn handle(&mut self, events: Vec<Event>) {
        self.dispatcher.handle(events, &mut self.resources);
        if self
            .resources
            .roster
            .due()
            .is_some_and(|due| due <= Instant::now())
        {
            self.write_roster();
        }
        self.resources.task_files.write_some(&self.resources.dir);
        let DaemonResources {
            memory_file, dir, ..
        } = &mut self.resources;
        memory_file.show(dir, &self.dispatcher.team);
        self.tell_hosts();
    }

    /// Answers the commands whose answer can be given now.
    fn reply(&mut self) {
        for (client, answer) in self.dispatcher.take_replies() {
            self.resources.connections.reply(client, answer);
        }
    }

    /// Does some of the effects that no command waits for, and has another thread sync what is
    /// done.
    fn sync_effects(&mut self) {
        if self.resources.effects.do_some().is_err() {
            self.dispatcher.try_again_later(self.now());
        }
        // What has just failed is not tried again at once.
        if !self.dispatcher.has_just_failed(self.now())
            && let Some(seq) = self.resources.effects.sync_in_background()
        {
            self.dispatcher.mark_done(seq);
        }
    }

    fn synced(&mut self, synced: Result<u64, IoFailed>) {
        match synced {
            Ok(seq) => self.dispatcher.mark_done(seq),
            Err(IoFailed) => self.dispatcher.try_again_later(self.now()),
        }
    }

    /// Handles the end of a process.
    fn process_exited(&mut self, number: u64) -> Vec<Event> {
        match self.resources.supervisor.reap(number) {
            Some(Reaped::Worker(incarnation, how)) => {
                self.wait_until_empty(incarnation, how);
                Vec::new()
            }
            Some(Reaped::Job(number, how)) => {
                let (jobs, mut means) = self.resources.jobs();
                jobs.process_ended(number, how, &mut means)
            }
            None => Vec::new(),
        }
    }

    /// Has the end of an incarnation reported once nothing of it is left.
    pub(super) fn wait_until_empty(&mut self, incarnation: Incarnation, how: How) {
        self.dispatcher.runtime.process_exited(&incarnation);
        let member = self
            .dispatcher
            .team
            .members
            .get(&incarnation.name)
            .map(|state| &state.record);
        let beginning = member.map(|it| {
            let before = it.exit.as_ref();
            Beginning::of(it, before.and_then(|exit| exit.returned_up_to))
        });
        let next = member
            .filter(|it| self.may_begin_again(it))
            .map(|it| PathBuf::from(&it.terms.workspace));
        let context = ExitContext {
            how,
            beginning: beginning.unwrap_or_default(),
            next_works_in: next,
        };
        let DaemonResources {
            connections,
            supervisor,
            ..
        } = &mut self.resources;
        self.reaper
            .process_exited(incarnation, context, connections, supervisor);
    }

    fn incarnation_ended(&mut self, event: Event) -> Option<Event> {
        let ended = self
            .reaper
            .on_empty(event, &mut self.resources.supervisor)?;
        if let Event::Ended { incarnation, .. } = &ended {
            self.resources.connections.forget(incarnation);
        }
        Some(ended)
    }

    /// Tells whether a member that ends now may be started again. Only then is its workspace looked
    /// at.
    fn may_begin_again(&self, member: &Member) -> bool {
        member.terms.restart == Restart::OnFailure
            && matches!(member.ending, None | Some(Ending::Hung))
            && self.dispatcher.team.shutdown_of(&member.name).is_none()
    }

    /// Writes the roster, if there is anything new.
    pub(super) fn write_roster(&mut self) {
        if self.resources.write_roster(&self.dispatcher.team).is_err() {
            self.dispatcher.try_again_later(self.now());
        }
    }
}
