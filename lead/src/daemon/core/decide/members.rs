//! Spawn, interrupt, forget: what people do to members.

use std::time::Duration;

use teamd_shared::control::{Done, Refusal, RefusalCode, SpawnOrder, ToWorker};
use teamd_shared::id::RequestId;
use teamd_shared::journal::{MemberEvent, MemberRecord, MemberState, Record, Team};
use teamd_shared::member::{Gate, Member, Phase, Terms};
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use super::{Decision, View, or_refuse};
use crate::daemon::core::event::{Action, Client, Incarnation, SpawnFacts, Until};

impl View<'_> {
    /// Decides on a spawn. A repeated order waits with the first one.
    pub(super) fn spawn(
        &self,
        client: Client,
        id: &RequestId,
        order: &SpawnOrder,
        facts: &SpawnFacts,
    ) -> Decision {
        let before = self.team.members.get(&order.name);
        match before.filter(|before| before.spawn_id.as_ref() == Some(id)) {
            Some(MemberState { record, .. }) => {
                let first = record.incarnation - record.restarted.min(record.incarnation);
                Decision::default().act(Action::Wait(client, order.name.clone(), Until::Ready(first)))
            }
            None => or_refuse(client, self.try_spawn(client, id, order, facts)),
        }
    }

    fn try_spawn(
        &self,
        client: Client,
        id: &RequestId,
        order: &SpawnOrder,
        facts: &SpawnFacts,
    ) -> Result<Decision, Refusal> {
        // Names are validated where they are read; `lead` is the lead agent.
        let name = order.name.clone();
        let before = self.team.members.get(&name).map(|state| &state.record);
        self.may_begin(&name, before, order, facts)?;
        let member = match before.filter(|_| order.resume) {
            Some(before) => self.resumed(before, order),
            None => self.fresh(&name, before, order, facts),
        };
        let incarnation = member.incarnation;
        let prompt = if order.resume { None } else { order.terms.prompt.clone() };
        let record = MemberRecord {
            prompt,
            command_id: Some(id.clone()),
            ..MemberRecord::of(MemberEvent::Spawning, member)
        };
        Ok(Decision::default()
            .record(Record::Member(Box::new(record)))
            .act(Action::Start(Incarnation { name: name.clone(), number: incarnation }))
            .act(Action::Wait(client, name, Until::Ready(incarnation))))
    }

    fn may_begin(
        &self,
        name: &Name,
        before: Option<&Member>,
        order: &SpawnOrder,
        facts: &SpawnFacts,
    ) -> Result<(), Refusal> {
        let refuse = |code, message: String, hint: String| Err(Refusal::new(code, message).hint(hint));
        if self.team.stopping {
            return refuse(
                RefusalCode::Conflict,
                "the daemon is stopping".into(),
                "`teamd start` again, later".into(),
            );
        }
        if before.is_some_and(|member| !member.phase.is_ended()) {
            let hint = format!("take another name, or `teamctl shutdown {name}` first");
            return refuse(RefusalCode::Conflict, format!("{name} is running already"), hint);
        }
        if order.resume && before.is_none() {
            let hint = format!("`teamctl spawn {name}` without --resume begins afresh");
            return refuse(
                RefusalCode::NotFound,
                format!("{name} has no earlier incarnation to resume"),
                hint,
            );
        }
        if order.resume && order.terms.prompt.is_some() {
            let hint = format!("`teamctl spawn {name} --resume`, then `teamctl send {name} TEXT`");
            return refuse(RefusalCode::Usage, "a resumed teammate takes no prompt".into(), hint);
        }
        if *name == Name::lead() && (order.terms.plan == Some(true) || order.terms.approve_by.is_some()) {
            let hint = "`teamctl chat` starts it".into();
            return refuse(RefusalCode::Usage, "the lead agent submits no plans".into(), hint);
        }
        if is_being_archived(self.team, name) {
            let message = format!("the files of the {name} that was forgotten are not in the archive yet");
            let hint = "`teamctl log teamd` says why; try again when that is repaired".into();
            return refuse(RefusalCode::Conflict, message, hint);
        }
        if let Some(holder) = &facts.held {
            let message = format!("something of an earlier incarnation of {name} is still there: {holder}");
            return refuse(RefusalCode::Conflict, message, "wait until it has ended, or end it".into());
        }
        Ok(())
    }

    fn fresh(&self, name: &Name, before: Option<&Member>, order: &SpawnOrder, facts: &SpawnFacts) -> Member {
        let incarnation = self.team.last_incarnation(name) + 1;
        let exit = before.and_then(|member| member.exit.clone());
        let role = before.map(|member| member.terms.role.clone()).unwrap_or_default();
        let terms = Terms { role, ..Terms::of_workspace(facts.default_workspace.clone()) };
        Member {
            name: name.clone(),
            terms: terms.with(&order.terms),
            incarnation,
            conversation: incarnation,
            begins_at: facts
                .lead_inbox
                .unwrap_or_else(|| exit.as_ref().map_or(Position::START, |exit| exit.inbox)),
            phase: Phase::Spawning,
            process: None,
            cgroup: None,
            gate: if order.terms.plan == Some(true) { Gate::Closed } else { Gate::Open },
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

    /// Returns the member for a resume: the same conversation in another process. What the order names is changed.
    fn resumed(&self, before: &Member, order: &SpawnOrder) -> Member {
        Member {
            terms: before.terms.clone().with(&order.terms),
            incarnation: before.incarnation + 1,
            phase: Phase::Spawning,
            process: None,
            cgroup: None,
            gate: if order.terms.plan == Some(true) { Gate::Closed } else { before.gate },
            ending: None,
            ending_note: None,
            restarts: Vec::new(),
            restarted: 0,
            silent_since: None,
            spawned_at: self.now.wall,
            updated_at: self.now.wall,
            ..before.clone()
        }
    }

    pub(super) fn interrupt(&self, client: Client, name: &Name, asked_at: Duration) -> Decision {
        or_refuse(
            client,
            self.running(name).and_then(|member| {
                let incarnation = Incarnation::of(member);
                if !self.live.of(&incarnation).is_some_and(|alive| alive.connected && alive.ready) {
                    let message = format!("{name} cannot be reached just now");
                    return Err(Refusal::new(RefusalCode::Conflict, message).hint("try again in a moment"));
                }
                let done = Done::Recorded { incarnation: member.incarnation };
                Ok(Decision::default()
                    .act(Action::Say(incarnation, ToWorker::Interrupt { asked_at }))
                    .act(Action::Reply(client, Ok(done))))
            }),
        )
    }

    pub(super) fn forget(&self, client: Client, name: &Name) -> Decision {
        or_refuse(
            client,
            self.known(name).and_then(|member| {
                if !member.phase.is_ended() {
                    let message = format!("{name} is running");
                    let hint = format!("`teamctl shutdown {name}` first");
                    return Err(Refusal::new(RefusalCode::Conflict, message).hint(hint));
                }
                let seq = self.team.seq + 1;
                let files = crate::daemon::core::notices::archive_names(name, seq);
                Ok(Decision::default()
                    .member(MemberEvent::Forgotten, self.updated(member))
                    .act(Action::Reply(client, Ok(Done::Forgotten { files }))))
            }),
        )
    }
}

/// Tells whether the files of a forgotten member may not be in the archive yet.
pub(crate) fn is_being_archived(team: &Team, name: &Name) -> bool {
    team.undone.iter().any(|line| {
        matches!(&line.record, Record::Member(it) if it.event == MemberEvent::Forgotten && it.member.name == *name)
    })
}
