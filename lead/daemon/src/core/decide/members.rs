//! Spawn, interrupt, forget: the commands of people about members.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use teamd_shared::control::{Command, Done, Refusal, RefusalCode, SpawnOrder, ToWorker};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::job::{GitStep, JobReport};
use teamd_shared::journal::{MemberEvent, MemberRecord, Notice, Record, Team};
use teamd_shared::member::{Gate, Member, Phase, Terms, TermsPatch};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::terms::SandboxMode;

use super::ends::notice_of_returned;
use super::jobs::{begin_job, unexpected_report};
use super::{Decision, DecisionView, conflict};
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::{Action, Ordered, Until};
use crate::core::incarnation::Incarnation;
use crate::core::job::SpawnFacts;
use crate::core::job::Then;
use crate::core::notices::archive_names;

impl DecisionView<'_> {
    /// Looks up the facts that a spawn depends on, unless it is refused in any case. A repeated
    /// order waits with the first one.
    pub(super) fn look_for_spawn(
        &self,
        client: ReplyTo,
        id: &RequestId,
        order: &SpawnOrder,
    ) -> Result<Decision, Refusal> {
        if let Some(number) = self.repeats(id, order) {
            return Ok(wait_until_ready(client, order, number));
        }
        self.may_begin(client, order)?;
        let terms = Box::new(self.terms_of(order));
        let order = Box::new(order.clone());
        Ok(Decision::default().act(Action::Look(client, id.clone(), order, terms)))
    }

    /// Decides on a spawn whose facts are known. Its checkout is made first.
    pub(super) fn spawn(
        &self,
        client: ReplyTo,
        (id, order): (&RequestId, &SpawnOrder),
        facts: &SpawnFacts,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        if let Some(number) = self.repeats(id, order) {
            return Ok(wait_until_ready(client, order, number));
        }
        self.may_begin(client, order)?;
        if let Some(holder) = &facts.held {
            let name = &order.name;
            return Err(conflict(
                format!("something of an earlier incarnation of {name} is still there: {holder}"),
                "wait until it has ended, or end it",
            ));
        }
        let recorded = self.resumed(order).map(|member| &member.terms);
        let has_checkout = recorded.is_some_and(|terms| terms.checkout.is_some());
        if !order.terms.checkout.unwrap_or(has_checkout) {
            self.can_commit(order, facts)?;
            let terms = Terms {
                checkout: None,
                ..self.terms_of(order)
            };
            let member = self.begun(order, terms, facts)?;
            let wait = wait_until_ready(client, order, member.incarnation);
            return Ok(begin(id, order, member, ids).and(wait));
        }
        match self.prepared {
            None => {
                let spawn = Box::new(order.clone());
                let then = Then::Spawn(client, id.clone(), spawn, facts.clone());
                Ok(self.make_checkout(order, then))
            }
            Some(JobReport::Made {
                checkout,
                workspace,
            }) => {
                let mut patch = order.terms.clone();
                if Path::new(workspace) != Path::new(&checkout.root) {
                    patch.sandbox.writable.push(checkout.root.clone());
                }
                patch.workspace = Some(workspace.clone());
                let terms = Terms {
                    checkout: Some(checkout.clone()),
                    ..self.patched(order, &patch)
                };
                let member = self.begun(order, terms, facts)?;
                let wait = wait_until_ready(client, order, member.incarnation);
                Ok(begin(id, order, member, ids).and(wait))
            }
            Some(_) => Err(unexpected_report()),
        }
    }

    /// Returns the first incarnation that this very order has led to, if it has.
    fn repeats(&self, id: &RequestId, order: &SpawnOrder) -> Option<u32> {
        let state = self.team.members.get(&order.name)?;
        let record = &state.record;
        (state.spawn_id.as_ref() == Some(id))
            .then(|| record.incarnation - record.restarted.min(record.incarnation))
    }

    /// Returns the member whose conversation continues, if one does.
    pub(super) fn resumed(&self, order: &SpawnOrder) -> Option<&Member> {
        let before = self.team.members.get(&order.name)?;
        order.resume.then_some(&before.record)
    }

    /// Returns the terms of the incarnation that is ordered: fresh ones, or those of its record, of
    /// which the order changes what it names.
    pub(super) fn terms_of(&self, order: &SpawnOrder) -> Terms {
        self.patched(order, &order.terms)
    }

    fn patched(&self, order: &SpawnOrder, patch: &TermsPatch) -> Terms {
        let before = self.team.members.get(&order.name);
        let terms = match before.map(|state| &state.record.terms) {
            Some(terms) if order.resume => terms.clone(),
            before => Terms {
                role: before.map(|terms| terms.role.clone()).unwrap_or_default(),
                ..Terms::of_workspace(self.places.workspace.clone())
            },
        };
        terms.with(patch)
    }

    fn may_begin(&self, client: ReplyTo, order: &SpawnOrder) -> Result<(), Refusal> {
        // Names are validated where they are read; `lead` is the lead agent.
        let name = &order.name;
        let terms = &order.terms;
        name.can_begin().map_err(|error| {
            Refusal::new(RefusalCode::Usage, error.to_string()).hint("take another name")
        })?;
        let before = self.team.members.get(name).map(|state| &state.record);
        if self.runtime.jobs.is_called_off(order) {
            return Err(called_off(name));
        }
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
        if self.runtime.jobs.forgets(name) {
            let message = format!("{name} is being forgotten, and its checkout removed");
            return Err(conflict(message, "try again when that is done"));
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
        if client.agent {
            self.has_room(name)?;
        }
        if is_being_archived(self.team, name) {
            return Err(conflict(
                format!("the files of the {name} that was forgotten are not in the archive yet"),
                "`teamctl log teamd` says why; fix that, then try again",
            ));
        }
        self.may_begin_there(order)?;
        let terms = self.terms_of(order);
        if terms.host.is_some() {
            // What the machine at home can confine says nothing about another one.
            return Ok(());
        }
        let has_agent = terms.program.is_some();
        let sandbox = terms.sandbox;
        let layers = self.places.layers;
        sandbox
            .can_have_localhost(layers, has_agent)
            .map_err(|(why, hint)| Refusal::new(RefusalCode::Failed, why).hint(hint))?;
        sandbox.is_kept_by(layers).map_err(|why| {
            let hint = "set `network` of `[sandbox]` to true or false, or spawn it with --no-network; `teamctl doctor` says what is missing";
            Refusal::new(RefusalCode::Failed, why).hint(hint)
        })
    }

    /// Refuses a teammate that would make the team larger than the lead agent may make it.
    fn has_room(&self, name: &Name) -> Result<(), Refusal> {
        let is_other = |other: &Name| other != name && *other != Name::lead();
        let mut others: BTreeSet<&Name> = self.runtime.jobs.spawning().collect();
        others.extend(self.alive().map(|member| &member.name));
        let count = others.into_iter().filter(|other| is_other(other)).count();
        let most = self.rules.max_members;
        if count < most as usize {
            return Ok(());
        }
        let hint = "ask one that has nothing to do to leave, or give the work to one that runs; a person raises the limit \
                    with `max_members` of `[team]` in team.toml";
        Err(conflict(
            format!("{count} teammates run, and the lead agent may make the team {most} large"),
            hint,
        ))
    }

    /// Refuses a teammate that could write its workspace but could not commit there: that would
    /// show only when the work is done.
    fn can_commit(&self, order: &SpawnOrder, facts: &SpawnFacts) -> Result<(), Refusal> {
        let writes = self.terms_of(order).sandbox.mode == SandboxMode::WorkspaceWrite;
        if !writes {
            return Ok(());
        }
        let Some((why, next)) = &facts.cannot_commit else {
            return Ok(());
        };
        let hint = format!(
            "{next}; or spawn {0} with --checkout, or with `--sandbox read-only` if it is to commit nothing",
            order.name
        );
        Err(conflict(format!("no command could commit: {why}"), hint))
    }

    /// Returns the member that begins by these terms: a fresh one, or a resumed one with the same
    /// conversation.
    fn begun(
        &self,
        order: &SpawnOrder,
        terms: Terms,
        facts: &SpawnFacts,
    ) -> Result<Member, Refusal> {
        let lead_inbox = facts.lead_inbox.clone().map_err(|error| {
            let message = format!("cannot see where the inbox of the lead ends: {error}");
            Refusal::new(RefusalCode::Failed, message).hint("repair that file, and try again")
        })?;
        let before = self.team.members.get(&order.name);
        let exit = before.and_then(|state| state.record.exit.clone());
        let resumed = self.resumed(order);
        let incarnation = self.team.last_incarnation(&order.name) + 1;
        let read_so_far = exit.as_ref().map_or(Position::START, |exit| exit.inbox);
        Ok(Member {
            name: order.name.clone(),
            terms,
            incarnation,
            conversation: resumed.map_or(incarnation, |member| member.conversation),
            begins_at: resumed.map_or(lead_inbox.unwrap_or(read_so_far), |member| member.begins_at),
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
        })
    }

    pub(super) fn interrupt(
        &self,
        client: ReplyTo,
        name: &Name,
        asked_at: Duration,
    ) -> Result<Decision, Refusal> {
        let incarnation = Incarnation::of(self.running(name)?);
        if !self
            .runtime
            .of(&incarnation)
            .is_some_and(|worker| worker.is_connected() && worker.ready)
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

    /// Asks a built-in agent to put its conversation into a summary.
    pub(super) fn compact(
        &self,
        client: ReplyTo,
        id: &RequestId,
        name: &Name,
    ) -> Result<Decision, Refusal> {
        let member = self.running(name)?;
        let script = ModelSpec::script().to_string();
        let why = match &member.terms.program {
            Some(agent) => Some(format!(
                "{name} is an agent of its own ({}), which keeps its conversation itself",
                agent.name
            )),
            None if member.terms.model == script => Some(format!(
                "{name} has the built-in script as its model, which needs no summary"
            )),
            None => None,
        };
        if let Some(why) = why {
            return Err(conflict(
                why,
                "only the built-in agent with a model of a service can",
            ));
        }
        let incarnation = Incarnation::of(member);
        let worker = self.runtime.of(&incarnation);
        let until = Until::Compacted(incarnation.number, id.clone());
        let waits = Action::Wait(client, name.clone(), until);
        if worker.is_some_and(|worker| worker.compacted.contains_key(id)) {
            // A command that is repeated after the end of a daemon asks for no second summary.
            return Ok(Decision::default().act(waits));
        }
        if !worker.is_some_and(|worker| worker.is_connected() && worker.ready) {
            return Err(conflict(
                format!("{name} cannot be reached just now"),
                "try again in a moment",
            ));
        }
        let say = Action::Say(incarnation, ToWorker::Compact { id: id.clone() });
        Ok(Decision::default().act(say).act(waits))
    }

    /// Forgets a member that has ended. Its checkout is removed first.
    pub(super) fn forget(
        &self,
        client: ReplyTo,
        name: &Name,
        discard: bool,
    ) -> Result<Decision, Refusal> {
        if self.runtime.jobs.spawns(name) {
            let hint = format!("wait until it is ready, then `teamctl shutdown {name}` first");
            return Err(conflict(format!("{name} is being started"), hint));
        }
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
        match (&member.terms.checkout, self.prepared) {
            (None, _) | (_, Some(JobReport::Removed)) => {}
            (Some(checkout), None) if self.is_away(name) => {
                // What was lost with its host cannot be reached any more.
                if !discard && member.phase != Phase::Lost {
                    return Err(cannot_remove(member, &checkout.root));
                }
            }
            (Some(checkout), None) => {
                let root = checkout.root.clone();
                let forget = Command::Forget {
                    name: name.clone(),
                    discard,
                };
                let then = self.then(client, &Actor::Person, forget);
                let step = GitStep::Remove { root, discard };
                return Ok(begin_job(self.git(name, None, step), then));
            }
            (_, Some(_)) => return Err(unexpected_report()),
        }
        let files = archive_names(name, self.team.seq + 1);
        // What came since its end waited for an incarnation that will not be.
        let returned = self.returned_by(name, &self.unread.mail);
        let record = MemberRecord {
            tell: returned.iter().filter_map(notice_of_returned).collect(),
            returned,
            ..MemberRecord::of(MemberEvent::Forgotten, self.updated(member))
        };
        Ok(Decision::default()
            .record(Record::Member(Box::new(record)))
            .act(Action::Reply(client, Ok(Done::Forgotten { files }))))
    }
}

/// Refuses to forget a member whose checkout cannot be removed now.
fn cannot_remove(member: &Member, root: &str) -> Refusal {
    let name = &member.name;
    let host = member.terms.host.as_ref().map_or("its host", Name::as_str);
    Refusal::new(
        RefusalCode::Failed,
        format!("{host} cannot be reached, and the checkout {root} of {name} is there"),
    )
    .hint(format!(
        "try again when it can; `teamctl forget {name} --discard` forgets {name} here, and leaves that where it is"
    ))
}

/// Records and starts the incarnation of a member that this order spawns.
fn begin(id: &RequestId, order: &SpawnOrder, member: Member, ids: &mut dyn Ids) -> Decision {
    let incarnation = Incarnation::of(&member);
    let prompt = order.terms.prompt.clone();
    // To a conversation that continues it is the next message: its line is appended once, by its
    // id, also after a kill.
    let content = if order.resume { prompt.clone() } else { None };
    let tell = content
        .iter()
        .map(|_| Notice {
            to: member.name.clone(),
            id: ids.message(),
        })
        .collect();
    let record = MemberRecord {
        prompt: if order.resume { None } else { prompt },
        content,
        tell,
        command_id: Some(id.clone()),
        ..MemberRecord::of(MemberEvent::Spawning, member)
    };
    let ordered = Ordered {
        environment: order.environment.clone(),
        writable: order.terms.sandbox.writable.clone(),
    };
    let start = Action::Start(incarnation, Some(ordered));
    Decision::default()
        .record(Record::Member(Box::new(record)))
        .act(start)
}

fn wait_until_ready(client: ReplyTo, order: &SpawnOrder, incarnation: u32) -> Decision {
    let until = Until::Ready(incarnation);
    Decision::default().act(Action::Wait(client, order.name.clone(), until))
}

/// Refuses a spawn whose member was asked to leave since.
pub(crate) fn called_off(name: &Name) -> Refusal {
    conflict(
        format!("{name} was shut down before it had started"),
        format!("`teamctl spawn {name}` again starts it"),
    )
}

/// Tells whether the files of a forgotten member may not be in the archive yet.
fn is_being_archived(team: &Team, name: &Name) -> bool {
    team.undone.iter().any(|line| {
        matches!(&line.record, Record::Member(it) if it.event == MemberEvent::Forgotten && it.member.name == *name)
    })
}
