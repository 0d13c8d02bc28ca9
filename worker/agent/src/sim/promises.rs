//! What must hold of the files, once everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use teamd_shared::member::Doing;
use teamd_shared::request::Status;
use teamd_shared::transcript::{Block, Entry, Event};

use super::disk;
use super::machine::SAID;
use super::world::World;

/// More than every deadline and tick, in steps of eleven seconds.
const ROUNDS: usize = 14;

fn check(kept: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(why()) }
}

/// What a result says of its call.
#[derive(Debug, Clone, PartialEq)]
struct Recorded {
    content: String,
    is_error: bool,
}

impl World<'_> {
    /// Lets everything come to rest, and looks whether it did, and how.
    pub(super) fn settle(&mut self) {
        if self.is_broken() {
            return;
        }
        self.note(|| "now all is calm".to_owned());
        self.calm = true;
        self.machine.borrow_mut().calm = true;
        self.daemon.alive = true;
        disk::with(|disk| {
            disk.calm = true;
            disk.fuse = None;
        });
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                // What no work could tell an agent, the next does.
                self.writes("user", 0);
            }
            self.starts();
            self.reconnects();
            for _ in 0..12 {
                while !self.daemon.down.is_empty() && self.worker.is_some() {
                    self.delivers();
                    self.run_worker();
                }
                while !self.daemon.up.is_empty() {
                    self.daemon_receives();
                }
                self.run_worker();
                (0..4).for_each(|_| self.agent_acts());
                self.run_worker();
                self.looks_at_the_gate();
            }
            let kept = self
                .pending_plans_are_awaited()
                .and_then(|()| self.no_call_waits_for_a_person());
            self.promise(kept);
            self.judges(true);
            self.time_passes(11.0);
            self.run_worker();
            if self.is_broken() {
                return;
            }
        }
        let kept = self.is_at_rest().and_then(|()| self.transcript_is_true());
        self.promise(kept);
    }

    /// A plan without a waiting worker has expired.
    fn pending_plans_are_awaited(&self) -> Result<(), String> {
        let Some(plan) = self.daemon.pending_plan() else {
            return Ok(());
        };
        let Some(worker) = &self.worker else {
            return Ok(());
        };
        let awaited =
            worker.state.awaits.as_ref() == Some(&plan.request_id) || !self.daemon.up.is_empty();
        check(awaited, || {
            format!(
                "the plan {} is pending, and no worker waits for it",
                plan.request_id
            )
        })
    }

    /// While a plan has no verdict, an agent that calls a tool of the team has its outcome.
    fn no_call_waits_for_a_person(&self) -> Result<(), String> {
        let Some(_) = self.daemon.pending_plan() else {
            return Ok(());
        };
        let Some(worker) = &self.worker else {
            return Ok(());
        };
        let machine = self.machine.borrow();
        let waits = worker.state.awaits.as_ref().and(machine.agent_waits_for());
        waits.map_or(Ok(()), |call| {
            Err(format!("{call} of the agent waits for a person"))
        })
    }

    fn is_at_rest(&self) -> Result<(), String> {
        let Some(worker) = &self.worker else {
            return Err("there is no worker".to_owned());
        };
        let state = &worker.state;
        check(state.doing == Doing::Idle && state.awaits.is_none(), || {
            format!(
                "it does not come to rest: {:?}, {:?}, plan {:?}",
                state.doing, state.activity, state.awaits
            )
        })?;
        check(state.doubts == 0, || {
            "a forged line keeps its gate closed".to_owned()
        })?;
        check(state.applied_seq == self.daemon.seq, || {
            "it has not applied the last directive".to_owned()
        })?;
        check(self.daemon.pending_plan().is_none(), || {
            "a plan waits for ever".to_owned()
        })?;
        check(self.daemon.pending_shutdown().is_none(), || {
            "a shutdown is not answered".to_owned()
        })
    }

    fn entries(&self) -> Result<Vec<Entry>, String> {
        let bytes = std::fs::read(self.place.transcript()).map_err(|error| error.to_string())?;
        let lines = bytes.split_inclusive(|&byte| byte == b'\n');
        lines
            .map(|line| {
                serde_json::from_slice(line).map_err(|error| {
                    format!("no entry ({error}): {}", String::from_utf8_lossy(line))
                })
            })
            .collect()
    }

    fn transcript_is_true(&self) -> Result<(), String> {
        let entries = self.entries()?;
        self.mail_was_consumed_once(&entries)?;
        let (of_subagents, own): (Vec<Entry>, Vec<Entry>) = entries
            .iter()
            .cloned()
            .partition(|entry| entry.call.is_some());
        self.calls_have_one_result(&own)?;
        self.subagents_are_true(&of_subagents, &own)?;
        self.notices_were_sent(&entries)?;
        self.agent_got_each_once(&entries)?;
        for entry in &entries {
            if let Event::Left { reason, .. } = &entry.event {
                check(
                    reason != "the shutdown is approved" || !self.daemon.shutdowns.is_empty(),
                    || "it left as approved, and nothing was".to_owned(),
                )?;
            }
        }
        Ok(())
    }

    /// Each acknowledged message once, each sender's in order.
    fn mail_was_consumed_once(&self, entries: &[Entry]) -> Result<(), String> {
        let mut taken: Vec<&Value> = Vec::new();
        for entry in entries {
            if let Event::Messages { messages } = &entry.event {
                taken.extend(messages);
            }
        }
        let content = |value: &&Value| value["content"].as_str().unwrap_or_default().to_owned();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        for (number, sent) in self.sent.iter().enumerate() {
            numbers.insert(sent.content.clone(), number);
            let times = taken
                .iter()
                .filter(|value| content(value) == sent.content)
                .count();
            check(times <= 1, || {
                format!("{} is consumed {times} times", sent.content)
            })?;
            check(times == 1 || !sent.must, || {
                format!("{} is lost", sent.content)
            })?;
        }
        for from in ["user", "lead", "carol", "dave"] {
            let of_sender = taken.iter().filter(|value| value["from"] == from);
            let order: Vec<usize> = of_sender
                .filter_map(|value| numbers.get(&content(value)).copied())
                .collect();
            check(order.is_sorted(), || {
                format!("the messages of {from} are out of order: {order:?}")
            })?;
        }
        Ok(())
    }

    /// An agent got each message that was consumed for its mind once, in order.
    fn agent_got_each_once(&self, entries: &[Entry]) -> Result<(), String> {
        let machine = self.machine.borrow();
        let texts = &machine.session.texts;
        let mut last = 0;
        let entries = if self.is_of_agent { entries } else { &[] };
        for entry in entries {
            let Event::Messages { messages } = &entry.event else {
                continue;
            };
            for text in messages
                .iter()
                .filter(|message| message["type"] == "message")
                .filter_map(|message| message["content"].as_str())
            {
                let line = format!("\n{text}\n");
                let places: Vec<_> = (0..texts.len())
                    .filter(|&at| texts[at].contains(&line))
                    .collect();
                check(places.len() == 1, || {
                    format!("the agent got {} times {text:?}", places.len())
                })?;
                check(places[0] >= last, || {
                    format!("the agent got out of order {text:?}")
                })?;
                last = places[0];
            }
        }
        Ok(())
    }

    fn calls_have_one_result(&self, entries: &[Entry]) -> Result<(), String> {
        let results = results(entries);
        // What an incarnation left without a result as it ended by its own doing is given up.
        let mut abandoned = BTreeSet::new();
        let mut open: Vec<&str> = Vec::new();
        for entry in entries {
            match &entry.event {
                Event::Answer { content, .. } => open.extend(content.iter().filter_map(call_of)),
                Event::Result { tool_use_id, .. } => open.retain(|id| id != tool_use_id),
                Event::Left { .. } => abandoned.extend(open.drain(..)),
                _ => {}
            }
        }
        check(abandoned.is_empty(), || {
            format!("it left, and {abandoned:?} have no result")
        })?;
        check(open.is_empty(), || format!("{open:?} have no result"))?;
        for entry in entries {
            let Event::Answer { content, .. } = &entry.event else {
                continue;
            };
            for block in content {
                let Block::ToolUse { id, name, .. } = block else {
                    continue;
                };
                let recorded = results
                    .get(id.as_str())
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let [result] = recorded else {
                    return Err(format!("{id} has {} results", recorded.len()));
                };
                self.result_is_true(id, name, result)?;
            }
        }
        Ok(())
    }

    /// The calls of a subagent have one result, or none where the worker died; then its member knows
    /// that it was interrupted.
    fn subagents_are_true(&self, entries: &[Entry], own: &[Entry]) -> Result<(), String> {
        let of_subagents = results(entries);
        let of_members = results(own);
        for entry in entries {
            let Event::Answer { content, .. } = &entry.event else {
                continue;
            };
            let member_call = entry.call.as_deref().unwrap_or_default();
            let of_member = of_members.get(member_call).map(Vec::as_slice);
            let Some([of_member]) = of_member else {
                return Err(format!("{member_call} has {of_member:?} as its results"));
            };
            for block in content {
                let Block::ToolUse { id, name, .. } = block else {
                    continue;
                };
                match of_subagents.get(id.as_str()).map(Vec::as_slice) {
                    Some([result]) => self.result_is_true(id, name, result)?,
                    None => check(of_member.is_error, || {
                        format!("{id} has no result, and {member_call} gets {of_member:?}")
                    })?,
                    Some(many) => return Err(format!("{id} has {} results", many.len())),
                }
            }
        }
        Ok(())
    }

    fn result_is_true(&self, id: &str, name: &str, result: &Recorded) -> Result<(), String> {
        let Recorded { content, is_error } = result;
        let runs = self.machine.borrow().runs.get(id).copied().unwrap_or(0);
        match name {
            "bash" | "write_file" => {
                let untouched = content.starts_with("not run") || content.starts_with("refused");
                check(!untouched || runs == 0, || {
                    format!("{id} has run, and the model gets: {content}")
                })?;
                let is_doubtful = content.contains("may have run") || untouched;
                check(is_doubtful || runs == 1, || {
                    format!("{id} has not run, and the model gets: {content}")
                })
            }
            "send_message" => {
                let owners = ["lead", "bob"];
                let ids: BTreeSet<String> = owners
                    .iter()
                    .flat_map(|owner| self.ids_of(owner, id))
                    .collect();
                check(ids.len() <= 1, || {
                    format!("{id} has sent {} messages", ids.len())
                })?;
                check(*is_error || ids.len() == 1, || {
                    format!("{id} has sent nothing, and gets: {content}")
                })
            }
            "delegate" => check(*is_error || content == SAID, || {
                format!("{id} gets what no subagent has said: {content}")
            }),
            "plan_approval" => {
                let plans = self.daemon.plans.iter().filter(|plan| plan.text == id);
                let judged: Vec<Status> = plans.map(|plan| plan.status).collect();
                let approved = judged
                    .iter()
                    .filter(|&&status| status == Status::Approved)
                    .count();
                let rejected = judged
                    .iter()
                    .filter(|&&status| status == Status::Rejected)
                    .count();
                check(approved + rejected <= 1, || {
                    format!("{id} is judged twice: {judged:?}")
                })?;
                let says = |what: &str| content.starts_with(what);
                check(!says("approved") || approved == 1, || {
                    format!("{id} gets: {content}; it is {judged:?}")
                })?;
                check(!says("rejected") || rejected == 1, || {
                    format!("{id} gets: {content}; it is {judged:?}")
                })
            }
            _ => Ok(()),
        }
    }

    /// The ids of the lines in an inbox that a call has written.
    fn ids_of(&self, owner: &str, call: &str) -> Vec<String> {
        let lines = self.lines(owner);
        let own = lines.iter().filter(|line| line["content"] == call);
        own.map(|line| line["id"].to_string()).collect()
    }

    fn lines(&self, owner: &str) -> Vec<Value> {
        let bytes = std::fs::read(self.place.inbox(owner)).unwrap_or_default();
        let lines = bytes
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// The lead gets one line of each piece of work, and of each answer to a shutdown,
    /// whatever failed meanwhile.
    fn notices_were_sent(&self, entries: &[Entry]) -> Result<(), String> {
        let lines = self.lines("lead");
        for entry in entries {
            let (Event::Idle { message_id, .. } | Event::Rejected { message_id, .. }) =
                &entry.event
            else {
                continue;
            };
            let id = message_id.to_string();
            let notices = lines
                .iter()
                .filter(|line| line["id"] == id.as_str())
                .count();
            check(notices == 1, || {
                format!("the lead got {notices} times {:?}", entry.event)
            })?;
        }
        let mut answers = BTreeSet::new();
        let mut answer = lines
            .iter()
            .filter(|line| line["type"] == "shutdown_response");
        let copy = answer.find(|line| !answers.insert(line["id"].to_string()));
        check(copy.is_none(), || format!("the lead got twice {copy:?}"))
    }
}

/// Collects what each call got.
fn results(entries: &[Entry]) -> BTreeMap<&str, Vec<Recorded>> {
    let mut results: BTreeMap<&str, Vec<Recorded>> = BTreeMap::new();
    for entry in entries {
        if let Event::Result {
            tool_use_id,
            content,
            is_error,
            ..
        } = &entry.event
        {
            let result = Recorded {
                content: content.clone(),
                is_error: *is_error,
            };
            results.entry(tool_use_id).or_default().push(result);
        }
    }
    results
}

fn call_of(block: &Block) -> Option<&str> {
    match block {
        Block::ToolUse { id, .. } => Some(id),
        _ => None,
    }
}
