//! What was used when, and for what. Pure, but for reading the journal.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::name::Name;
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::request::Kind;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::{Entry, Event, Usage};

use crate::error::CommandError;

/// A time from when to when, in seconds since 1970; it goes on while there is no end.
type Span = (f64, Option<f64>);

/// What the journal says that counts here.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// The tasks as they are now.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    /// When processes of members ended.
    exits: BTreeMap<Name, Vec<f64>>,
    /// When plans of members waited for an answer.
    waits: BTreeMap<String, BTreeMap<String, Span>>,
    /// When a member held a task.
    held: Vec<(TaskId, Name, Span)>,
    /// When a task was in review.
    reviewed: Vec<(TaskId, Span)>,
}

/// What a member or a task took.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Share {
    /// How many answers the model gave.
    pub(super) turns: usize,
    /// By model.
    usage: BTreeMap<String, Usage>,
    /// Seconds.
    pub(super) working: f64,
    /// Seconds.
    pub(super) waiting: f64,
}

/// The account of a team.
pub(super) struct Account<'d> {
    decided: &'d Decided,
    now: f64,
    pub(super) members: BTreeMap<Name, Share>,
    pub(super) tasks: BTreeMap<TaskId, Share>,
}

impl Decided {
    /// Reads the whole journal.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(dir: &TeamDir) -> Result<Self, CommandError> {
        let mut decided = Self::default();
        load(dir, Since::Start, |_, line| decided.line(line.at, &line.record))?;
        Ok(decided)
    }

    fn line(&mut self, at: f64, record: &Record) {
        match record {
            Record::Member(record) if record.event == MemberEvent::Exited => {
                self.exits.entry(record.member.name.clone()).or_default().push(at);
            }
            // Work on other tasks goes on while a review waits.
            Record::Request(record) if record.request.kind == Kind::PlanApproval => {
                let request = &record.request;
                let waits = self.waits.entry(request.from.clone()).or_default();
                waits.insert(request.request_id.to_string(), (request.created_at, request.resolved_at));
            }
            Record::Task(record) => self.task(at, &record.task),
            _ => {}
        }
    }

    fn task(&mut self, at: f64, task: &Task) {
        let is_open = |id: &TaskId, span: &Span| *id == task.id && span.1.is_none();
        let owner = task.owner.as_ref().filter(|_| task.status == TaskStatus::InProgress);
        let held = self.held.iter_mut().find(|(id, _, span)| is_open(id, span));
        match (held, owner) {
            (Some((_, holder, _)), Some(owner)) if holder == owner => {}
            (held, owner) => {
                held.into_iter().for_each(|(_, _, span)| span.1 = Some(at));
                self.held.extend(owner.map(|owner| (task.id, owner.clone(), (at, None))));
            }
        }
        let reviewed = self.reviewed.iter_mut().find(|(id, span)| is_open(id, span));
        match (reviewed, task.status == TaskStatus::InReview) {
            (None, true) => self.reviewed.push((task.id, (at, None))),
            (Some((_, span)), false) => span.1 = Some(at),
            _ => {}
        }
        self.tasks.insert(task.id, task.clone());
    }
}

impl<'d> Account<'d> {
    /// Begins with what the tasks waited for their checks.
    pub(super) fn new(decided: &'d Decided, now: f64) -> Self {
        let mut tasks: BTreeMap<TaskId, Share> = BTreeMap::new();
        for (id, (from, to)) in &decided.reviewed {
            tasks.entry(*id).or_default().waiting += (to.unwrap_or(now) - from).max(0.0);
        }
        for (id, _, (from, to)) in &decided.held {
            tasks.entry(*id).or_default().working += (to.unwrap_or(now) - from).max(0.0);
        }
        Self { decided, now, members: BTreeMap::new(), tasks }
    }

    /// Takes in the conversation of a member: its name, its model, and whether it runs.
    pub(super) fn member(&mut self, (name, model, runs): (&Name, &str, bool), entries: &[Entry]) {
        let exits = self.decided.exits.get(name).map(Vec::as_slice).unwrap_or_default();
        let spans = work(name, entries, exits, runs.then_some(self.now));
        let waits = self.decided.waits.get(name.as_str());
        let waits = waits.into_iter().flat_map(BTreeMap::values);
        let waits: Vec<_> = waits.map(|(from, to)| (*from, to.unwrap_or(self.now))).collect();
        let share = self.members.entry(name.clone()).or_default();
        for (from, to) in spans {
            let overlap = |(a, b): &(f64, f64)| (b.min(to) - a.max(from)).max(0.0);
            let waited = waits.iter().map(overlap).sum::<f64>().min(to - from);
            share.waiting += waited;
            share.working += to - from - waited;
        }
        for entry in entries {
            let Some((usage, is_turn)) = spent(&entry.event) else { continue };
            let during = |span: &Span| entry.at >= span.0 && span.1.is_none_or(|end| entry.at <= end);
            let held = self.decided.held.iter().find(|(_, owner, span)| owner == name && during(span));
            share.add(model, usage, is_turn);
            if let Some((id, ..)) = held {
                self.tasks.entry(*id).or_default().add(model, usage, is_turn);
            }
        }
    }
}

/// Returns when an agent worked: from what starts a turn to the end of that work, or of the process.
fn work(name: &Name, entries: &[Entry], exits: &[f64], now: Option<f64>) -> Vec<(f64, f64)> {
    let (mut spans, mut since) = (Vec::new(), None);
    let killed = |from: f64| exits.iter().copied().find(|&exit| exit >= from);
    for entry in entries {
        let end = match entry.event {
            Event::Idle { .. } | Event::Left { .. } => Some(entry.at),
            // What it did before did not end by itself.
            Event::Incarnation { .. } => {
                since.and_then(killed).map(|exit| exit.min(entry.at)).or(Some(entry.at))
            }
            _ => None,
        };
        if let Some(from) = since.take_if(|_| end.is_some()) {
            spans.push((from, end.unwrap_or(from)));
        }
        if since.is_none() && !entry.event.is_rest(name) {
            since = Some(entry.at);
        }
    }
    let end = |from: f64| now.or(killed(from)).or(entries.last().map(|entry| entry.at));
    spans.extend(since.and_then(|from| Some((from, end(from)?.max(from)))));
    spans
}

/// Returns what an entry cost, and whether it is an answer.
fn spent(event: &Event) -> Option<(Usage, bool)> {
    match event {
        Event::Answer { usage, .. } => Some((*usage, true)),
        Event::Charged { usage } | Event::Compacted { usage, .. } => Some((*usage, false)),
        _ => None,
    }
}

impl Share {
    fn add(&mut self, model: &str, usage: Usage, is_turn: bool) {
        self.turns += usize::from(is_turn);
        *self.usage.entry(model.to_owned()).or_default() += usage;
    }

    /// Sums up the tokens.
    pub(super) fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        self.usage.values().for_each(|usage| sum += *usage);
        sum
    }

    /// Returns what it cost; none if a price is not known.
    pub(super) fn cost(&self, prices: &Prices) -> Option<Dollars> {
        let used = self.usage.iter().filter(|(_, usage)| !usage.is_nothing());
        used.map(|(model, usage)| prices.cost(model, usage))
            .try_fold(Dollars::default(), |sum, cost| Some(sum + cost?))
    }

    /// Adds it to what it is of, for programs.
    pub(super) fn to_json(&self, prices: &Prices, mut of: Value) -> Value {
        of["turns"] = json!(self.turns);
        of["usage"] = json!(self.usage());
        of["cost"] = json!(self.cost(prices));
        of["working_seconds"] = json!(self.working);
        of["waiting_seconds"] = json!(self.waiting);
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(at: f64, event: Value) -> Entry {
        let mut line = json!({"at": at, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    fn conversation() -> Vec<Entry> {
        let begins = |n: u32| json!({"entry": "life", "incarnation": n, "conversation": 1, "prompt": (n == 1).then_some("go")});
        let answer =
            json!({"entry": "answer", "content": [], "usage": {"input_tokens": 10, "output_tokens": 5}});
        let idle = json!({"entry": "idle", "idle_reason": "available", "content": "",
            "message_id": "018f0000-0000-7000-8000-000000000000"});
        let says =
            json!({"entry": "messages", "messages": [{"type": "message", "from": "lead", "content": "x"}]});
        vec![
            entry(0.0, begins(1)),
            entry(2.0, answer.clone()),
            entry(10.0, idle.clone()),
            entry(20.0, says.clone()),
            entry(21.0, answer),
            // Killed at 25, started again at 30.
            entry(30.0, begins(2)),
            entry(31.0, idle),
            entry(40.0, says),
        ]
    }

    #[test]
    fn work_lasts_from_a_message_to_the_answer_or_to_the_end_of_the_process() {
        let alice = Name::new("alice").unwrap();
        let spans = work(&alice, &conversation(), &[25.0], Some(50.0));
        assert_eq!(spans, [(0.0, 10.0), (20.0, 25.0), (40.0, 50.0)]);
        assert_eq!(work(&alice, &conversation(), &[25.0, 45.0], None)[2], (40.0, 45.0));
    }

    #[test]
    fn what_waits_for_an_answer_is_no_work_and_a_task_has_what_its_owner_used() {
        let alice = Name::new("alice").unwrap();
        let mut decided = Decided::default();
        decided.waits.insert("alice".to_owned(), BTreeMap::from([("a1".to_owned(), (4.0, Some(7.0)))]));
        let fields = teamd_shared::task::TaskFields { subject: Some("x".to_owned()), ..Default::default() };
        let task = fields.create(7, "user", 0.0).unwrap();
        let at = |status, owner: Option<&Name>| Task { status, owner: owner.cloned(), ..task.clone() };
        decided.task(0.0, &at(TaskStatus::Pending, None));
        decided.task(1.0, &at(TaskStatus::InProgress, Some(&alice)));
        decided.task(3.0, &at(TaskStatus::InReview, Some(&alice)));
        decided.task(9.0, &at(TaskStatus::Completed, None));
        let mut account = Account::new(&decided, 50.0);
        account.member((&alice, "script", true), &conversation());
        let (member, task) = (&account.members[&alice], &account.tasks[&7]);
        assert_eq!((member.turns, member.working, member.waiting), (2, 27.0, 3.0));
        assert_eq!((task.turns, task.usage().input_tokens, task.working, task.waiting), (1, 10, 2.0, 6.0));
    }
}
