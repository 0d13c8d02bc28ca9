//! Spawn, interrupt, forget: what people do to members.

use std::time::Duration;

use teamd_shared::control::{Done, Refusal, RefusalCode, SpawnOrder, ToWorker};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{MemberEvent, MemberRecord, MemberState, Notice, Record, Team};
use teamd_shared::member::{Gate, Member, Phase, Terms};
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use super::{Decision, View, conflict};
use crate::core::event::{Action, Incarnation, ReplyTo, SpawnFacts, Until};
use crate::core::notices::archive_names;

impl View<'_> {
    /// Decides on a spawn. A repeated order waits with the first one.
    pub(super) fn spawn(
        &self,
        client: ReplyTo,
        (id, order): (&RequestId, &SpawnOrder),
        facts: &SpawnFacts,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        // Names are validated where they are read; `lead` is the lead agent.
        let before = self.team.members.get(&order.name);
        if let Some(MemberState { record, .. }) =
            before.filter(|it| it.spawn_id.as_ref() == Some(id))
        {
            let first = record.incarnation - record.restarted.min(record.incarnation);
            return Ok(Decision::default().act(Action::Wait(
                client,
                order.name.clone(),
                Until::Ready(first),
            )));
        }
        let before = before.map(|state| &state.record);
        self.may_begin(before, order, facts)?;
        let member = self.begun(before, order, facts);
        let name = member.name.clone();
        let number = member.incarnation;
        let prompt = order.terms.prompt.clone();
        // To a conversation that goes on it is the next message: its line is appended once, by its
        // id, also after a kill.
        let content = if order.resume { prompt.clone() } else { None };
        let tell = content
            .iter()
            .map(|_| Notice {
                to: name.clone(),
                id: ids.message(),
            })
            .collect();
        let record = MemberRecord {
            prompt: if !order.resume { prompt } else { None },
            content,
            tell,
            command_id: Some(id.clone()),
            ..MemberRecord::of(MemberEvent::Spawning, member)
        };
        Ok(Decision::default()
            .record(Record::Member(Box::new(record)))
            .act(Action::Start(
                Incarnation {
                    name: name.clone(),
                    number,
                },
                Some(order.environment.clone()),
            ))
            .act(Action::Wait(client, name, Until::Ready(number))))
    }

    fn may_begin(
        &self,
        before: Option<&Member>,
        order: &SpawnOrder,
        facts: &SpawnFacts,
    ) -> Result<(), Refusal> {
        let name = &order.name;
        let terms = &order.terms;
        if self.team.stopping {
            return Err(conflict(
                "the daemon is stopping",
                "`teamd start` again, later",
            ));
        }
        if before.is_some_and(|member| !member.phase.is_ended()) {
            let hint = format!("take another name, or `teamctl shutdown {name}` first");
            return Err(conflict(format!("{name} is running already"), hint));
        }
        if order.resume && before.is_none() {
            let message = format!("{name} has no earlier incarnation to resume");
            return Err(Refusal::new(RefusalCode::NotFound, message)
                .hint(format!("`teamctl spawn {name}` without --resume starts it")));
        }
        let works =
            terms.plan == Some(true) || terms.approve_by.is_some() || terms.auto == Some(true);
        if *name == Name::lead() && works {
            return Err(Refusal::new(
                RefusalCode::Usage,
                "the lead agent submits no plans, and cannot hold tasks",
            )
            .hint("`teamctl chat` starts it"));
        }
        if is_being_archived(self.team, name) {
            return Err(conflict(
                format!("the files of the {name} that was forgotten are not in the archive yet"),
                "`teamctl log teamd` says why; fix that, then try again",
            ));
        }
        if let Some(holder) = &facts.held {
            return Err(conflict(
                format!("something of an earlier incarnation of {name} is still there: {holder}"),
                "wait until it has ended, or end it",
            ));
        }
        Ok(())
    }

    /// Returns the member of an incarnation that begins: a fresh one, or a resumed one with the
    /// same conversation, of which the order changes what it names.
    fn begun(&self, before: Option<&Member>, order: &SpawnOrder, facts: &SpawnFacts) -> Member {
        let incarnation = self.team.last_incarnation(&order.name) + 1;
        let resumed = if order.resume { before } else { None };
        let exit = before.and_then(|member| member.exit.clone());
        let mut terms = resumed
            .map_or_else(
                || {
                    let role = before
                        .map(|member| member.terms.role.clone())
                        .unwrap_or_default();
                    Terms {
                        role,
                        ..Terms::of_workspace(facts.default_workspace.clone())
                    }
                },
                |member| member.terms.clone(),
            )
            .with(&order.terms);
        terms.checkout.clone_from(&facts.checkout);
        let read_so_far = exit.as_ref().map_or(Position::START, |exit| exit.inbox);
        Member {
            name: order.name.clone(),
            terms,
            incarnation,
            conversation: resumed.map_or(incarnation, |member| member.conversation),
            begins_at: resumed.map_or(facts.lead_inbox.unwrap_or(read_so_far), |member| {
                member.begins_at
            }),
            phase: Phase::Spawning,
            process: None,
            cgroup: None,
            gate: match order.terms.plan {
                Some(true) => Gate::Closed,
                _ => resumed.map_or(Gate::Open, |member| member.gate),
            },
            ending: None,
            ending_note: None,
            restarts: Vec::new(),
            restarted: 0,
            silent_since: None,
            exit,
            spawned_at: self.now.wall,
            updated_at: self.now.wall,
        }
    }

    pub(super) fn interrupt(
        &self,
        client: ReplyTo,
        name: &Name,
        asked_at: Duration,
    ) -> Result<Decision, Refusal> {
        let incarnation = Incarnation::of(self.running(name)?);
        if !self
            .live
            .of(&incarnation)
            .is_some_and(|alive| alive.connected && alive.ready)
        {
            return Err(conflict(
                format!("{name} cannot be reached just now"),
                "try again in a moment",
            ));
        }
        let done = Done::Recorded {
            incarnation: incarnation.number,
        };
        Ok(Decision::default()
            .act(Action::Say(incarnation, ToWorker::Interrupt { asked_at }))
            .act(Action::Reply(client, Ok(done))))
    }

    pub(super) fn forget(&self, client: ReplyTo, name: &Name) -> Result<Decision, Refusal> {
        let member = self.known(name)?;
        if !member.phase.is_ended() {
            return Err(conflict(
                format!("{name} is running"),
                format!("`teamctl shutdown {name}` first"),
            ));
        }
        if let Some(task) = self.team.in_review_of(name) {
            let message = format!("the work of {name} on {} is in review", task.title());
            let hint = format!(
                "wait for the check, answer the review, or release the task: `teamctl task release {}`",
                task.id
            );
            return Err(conflict(message, hint));
        }
        let files = archive_names(name, self.team.seq + 1);
        Ok(Decision::default()
            .member(MemberEvent::Forgotten, self.updated(member))
            .act(Action::Reply(client, Ok(Done::Forgotten { files }))))
    }
}

/// Tells whether the files of a forgotten member may not be in the archive yet.
fn is_being_archived(team: &Team, name: &Name) -> bool {
    team.undone.iter().any(|line| {
        matches!(&line.record, Record::Member(it) if it.event == MemberEvent::Forgotten && it.member.name == *name)
    })
}
