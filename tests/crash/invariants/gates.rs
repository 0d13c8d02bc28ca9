//! A gate is open only where the journal says why: an incarnation that began without `--plan`, or a
//! person's approval of a plan of that member in that conversation. What a closed gate should have
//! refused did not happen.
//!
//! The journal's own records of the gate are compared with what follows from its events here, so
//! that no fold is believed.

use std::collections::{BTreeMap, HashMap, HashSet};

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Record, RequestEvent};
use teamd_shared::member::Gate;
use teamd_shared::request::{Kind, Request};

use crate::stage::{Checked, Stage, hold};

/// What was true of a gate, and since when.
type Changes = Vec<(f64, Gate)>;

#[derive(Default)]
struct Gates {
    /// Of each member: its gate, and the incarnation in which its conversation began.
    now: HashMap<String, (Gate, u32)>,
    changes: BTreeMap<String, Changes>,
    /// The plans that are pending.
    pending: HashSet<RequestId>,
}

/// Checks the gates, and what was done behind them.
pub(super) fn check(stage: &Stage) -> Checked {
    let mut gates = Gates::default();
    for line in stage.journal() {
        gates.follow(stage, &line)?;
    }
    for (name, changes) in &gates.changes {
        nothing_passed(stage, name, changes)?;
    }
    Ok(())
}

impl Gates {
    fn follow(&mut self, stage: &Stage, line: &Line) -> Checked {
        self.expires(line)?;
        match &line.record {
            Record::Member(record) => self.member(line, record),
            Record::Request(record)
                if record.derived_from.is_none() && record.request.kind == Kind::PlanApproval =>
            {
                self.plan(stage, line, record.event, &record.request)
            }
            Record::Team(_) | Record::Request(_) | Record::Task(_) | Record::Snapshot(_) => Ok(()),
        }
    }

    /// A plan expires with the conversation of its author, or when the author leaves. A crash that
    /// another incarnation follows keeps it.
    fn expires(&mut self, line: &Line) -> Checked {
        let (expired, ends) = match &line.record {
            Record::Member(record) => {
                let goes_on =
                    record.event == MemberEvent::Exited && record.ended_incarnation.is_some();
                (
                    &record.expired,
                    matches!(record.event, MemberEvent::Exited | MemberEvent::Spawning) && !goes_on,
                )
            }
            Record::Request(record) => {
                let id = record.request.request_id.clone();
                if record.request.kind == Kind::PlanApproval && record.event == RequestEvent::Asked
                {
                    self.pending.insert(id);
                }
                let leaves =
                    record.request.kind == Kind::Shutdown && record.event == RequestEvent::Approved;
                (&record.expired, leaves)
            }
            Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => return Ok(()),
        };
        let plan = expired.iter().find(|id| self.pending.contains(id));
        hold(plan.is_none() || ends, || {
            format!(
                "line {} gives up the plan {plan:?} of a teammate that goes on",
                line.seq
            )
        })
    }

    fn member(&mut self, line: &Line, record: &MemberRecord) -> Checked {
        let member = &record.member;
        let name = member.name.to_string();
        let before = self.now.get(&name).map(|(gate, _)| *gate);
        let ended_for_good =
            record.event == MemberEvent::Exited && record.ended_incarnation.is_none();
        let expected = match (record.event, before) {
            (MemberEvent::Spawning, _) if member.conversation == member.incarnation => {
                if member.terms.plan {
                    Gate::Closed
                } else {
                    Gate::Open
                }
            }
            // Going on may ask for a plan; it opens nothing.
            (MemberEvent::Spawning, Some(before))
                if before == Gate::Closed || member.gate == Gate::Open =>
            {
                before
            }
            (MemberEvent::Spawning, _) => Gate::Closed,
            (MemberEvent::GateClosed, _) => Gate::Closed,
            (MemberEvent::Exited, _) if ended_for_good && member.terms.plan => Gate::Closed,
            (_, before) => before.unwrap_or(Gate::Closed),
        };
        hold(member.gate == expected, || {
            format!(
                "line {} says that the gate of {name} is {:?}: it is {expected:?}",
                line.seq, member.gate
            )
        })?;
        self.set(line, name, (expected, member.conversation));
        Ok(())
    }

    fn plan(&mut self, stage: &Stage, line: &Line, event: RequestEvent, plan: &Request) -> Checked {
        let id = plan.request_id.to_string();
        let name = plan.from.clone();
        let Some((_, conversation)) = self.now.get(&name).copied() else {
            return hold(event == RequestEvent::Expired, || {
                format!("plan {id} is of no member: {name}")
            });
        };
        let gate = match event {
            RequestEvent::Asked => Gate::Closed,
            RequestEvent::Approved => {
                let given = stage.ledger.approved.iter().any(|(known, _)| *known == id);
                hold(given, || format!("no person approved plan {id}"))?;
                hold(plan.incarnation >= conversation, || {
                    format!(
                        "plan {id} of incarnation {} opens conversation {conversation}",
                        plan.incarnation
                    )
                })?;
                Gate::Open
            }
            RequestEvent::Joined | RequestEvent::Rejected | RequestEvent::Expired => return Ok(()),
        };
        self.set(line, name, (gate, conversation));
        Ok(())
    }

    fn set(&mut self, line: &Line, name: String, (gate, conversation): (Gate, u32)) {
        let changes = self.changes.entry(name.clone()).or_default();
        if changes.last().is_none_or(|(_, before)| *before != gate) {
            changes.push((line.at, gate));
        }
        self.now.insert(name, (gate, conversation));
    }
}

/// Whatever a tool changed, it changed while the gate was open: at some moment between the entry
/// before its result, and that.
fn nothing_passed(stage: &Stage, name: &str, changes: &Changes) -> Checked {
    let mut before = 0.0;
    let mut commands: HashMap<String, String> = HashMap::new();
    for entry in stage.transcript(name) {
        let at = entry["at"].as_f64().unwrap_or_default();
        for block in entry["content"].as_array().into_iter().flatten() {
            let id = block["id"].as_str().unwrap_or_default().to_owned();
            let what = block["input"]["command"]
                .as_str()
                .or(block["input"]["path"].as_str());
            let changes = block["name"] == "write_file"
                || block["name"] == "edit_file"
                || what.is_some_and(|what| what.contains(">> "));
            if changes {
                commands.insert(id, what.unwrap_or_default().to_owned());
            }
        }
        let done = entry["entry"] == "result" && entry["is_error"] != true;
        let command = if done {
            commands.get(entry["tool_use_id"].as_str().unwrap_or_default())
        } else {
            None
        };
        if let Some(command) = command {
            hold(was_open(changes, before, at), || {
                format!(
                    "{name} did {command:?} between {before} and {at}, and its gate was closed: {changes:?}"
                )
            })?;
        }
        before = at;
    }
    Ok(())
}

fn was_open(changes: &Changes, from: f64, to: f64) -> bool {
    let ends = changes
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain([f64::INFINITY]);
    changes
        .iter()
        .zip(ends)
        .any(|((begins, gate), ends)| *gate == Gate::Open && *begins <= to && ends >= from)
}
