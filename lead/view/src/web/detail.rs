//! One task, one teammate, one request: each with all that a person decides on.

use serde_json::{Value, json};
use teamd_client::print::escape;
use teamd_client::print::task::{blockers, fields, status};
use teamd_client::read::outputs::{OutputState, outputs};
use teamd_client::read::tasks;
use teamd_shared::config::RosterMember;
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::task::{Stage, Task, TaskEvent, TaskId, TaskStatus};

use super::shown::{TEXT, TeamPage, WINDOW, body, event, line, member, request};
use crate::model::{Item, OUTPUTS, member_facts, rows, standing};

/// How many events of a member or a request are shown.
const EVENTS: usize = 30;
/// How much of the end of an output of a command is shown, in bytes.
const OUTPUT: u64 = 8 << 10;

impl TeamPage<'_, '_> {
    /// A task, with the end of the output of its last check.
    pub(super) fn task(&self, id: TaskId) -> Option<Value> {
        let team = self.seen.team;
        let task = tasks::find(team, self.dir, id).ok()?;
        let blocked_by = blockers(team, &task);
        let sender = self.seen.roster.sender_of(&task);
        let (how, group) = standing(&task, &blocked_by, sender);
        let mut facts = fields(team, &task, sender);
        facts.retain(|(label, _)| *label != "description");
        let is = |event: TaskEvent| event.leads_to(task.status).is_some();
        let log = tasks::read_log(self.dir, id);
        let log = log.unwrap_or_else(|error| Some(error.to_string()));
        let waits_for = task.blocked_by.iter().map(|id| self.reference(*id));
        let waiting = task.blocks.iter().map(|id| self.reference(*id));
        Some(json!({"task": {
            "id": task.id, "subject": escape::line(&task.subject), "description": body(&task.description),
            // A text that is cut cannot be edited.
            "whole": task.description.len() <= TEXT, "status": status(&task, sender).replace('_', " "), "how": line(&how), "group": group.title(),
            "owner": worked_on_by(&task), "for": task.reserved_for.as_deref().map(line), "after": task.blocked_by,
            "check": task.check.as_ref().map(|check| body(&check.command)), "review": task.review,
            "request": task.review_id(), "blockers": waits_for.collect::<Vec<_>>(), "blocks": waiting.collect::<Vec<_>>(),
            "facts": shown(&facts), "checking": is_checking(&task), "submitted": task.submission.is_some(),
            "edit": is(TaskEvent::Edited), "retry": is(TaskEvent::Retried), "cancel": is(TaskEvent::Cancelled)},
            "log": log.map(|log| end(&log))}))
    }

    fn reference(&self, id: TaskId) -> Value {
        let task = tasks::find(self.seen.team, self.dir, id).ok();
        let subject = task.as_ref().map(|task| line(&task.subject));
        let is_done = task.is_some_and(|task| task.status == TaskStatus::Completed);
        json!({"id": id, "subject": subject, "done": is_done})
    }

    /// A teammate, with what it asks, its tasks and its last events.
    pub(super) fn teammate(&self, name: &Name) -> Option<Value> {
        let team = self.seen.team;
        let found = self.seen.roster.member(name)?;
        let mut row = rows([found], self.seen.running, team, self.prices).pop()?;
        row.unread = teamd_client::read::roster::unread(self.dir, found).ok();
        row.serves = self.serves.clone();
        let mut shown_member = member(&row);
        shown_member["group"] = json!(row.standing.group.title());
        shown_member["ended"] = json!(found.status.is_ended());
        shown_member["facts"] = shown(&member_facts(&row));
        let mut tasks: Vec<&Task> = team
            .tasks
            .values()
            .filter(|task| worked_on_by(task) == Some(name))
            .collect();
        tasks.sort_by(|a, b| b.updated_at.total_cmp(&a.updated_at));
        let tasks = tasks.into_iter().take(WINDOW).map(|task| {
            let (how, group) = standing(task, &blockers(team, task), self.seen.roster.sender_of(task));
            json!({"id": task.id, "subject": line(&task.subject), "how": line(&how), "group": group.title()})
        });
        let requests = self.asked_by(name);
        let is_running = self.seen.running.contains(name);
        let (about, texts) = self.outputs(found, is_running);
        let name = name.as_str();
        let concerns = |item: &&Item| {
            item.steps
                .iter()
                .any(|step| step.from == name || step.to == name)
        };
        let mut shown = json!({"member": shown_member, "requests": requests, "tasks": tasks.collect::<Vec<_>>(),
            "events": self.events(concerns), "outputs": about});
        // Each in a part of its own: what did not change is not sent again.
        for (part, text) in texts {
            shown[part] = json!(text);
        }
        Some(shown)
    }

    /// Says which outputs of a teammate's commands there are, and what each ends with.
    fn outputs(
        &self,
        member: &RosterMember,
        is_running: bool,
    ) -> (Vec<Value>, Vec<(String, String)>) {
        let found = outputs(self.dir, &member.name, OUTPUTS, OUTPUT).unwrap_or_default();
        let is_calling = is_running && member.activity.starts_with("bash");
        let mut about = Vec::new();
        let mut texts = Vec::new();
        for output in found {
            let (title, state) = match (output.id, &output.state) {
                (None, _) if is_calling => ("Its command".to_owned(), "it runs…"),
                (None, _) => ("Its last command".to_owned(), ""),
                (Some(id), OutputState::Growing(_)) if is_running => {
                    (format!("In the background: {id}"), "it runs…")
                }
                (Some(id), OutputState::Logged) => (format!("In the background: {id}"), "ended"),
                (Some(id), _) => (
                    format!("In the background: {id}"),
                    "lost with the process of its worker",
                ),
            };
            let part = output
                .id
                .map_or_else(|| "output-last".to_owned(), |id| format!("output-{id}"));
            about.push(json!({"part": part, "title": title, "state": state}));
            let cut = if output.before > 0 { "… (cut)\n" } else { "" };
            texts.push((part, format!("{cut}{}", printed(&output.end))));
        }
        (about, texts)
    }

    /// A request, answered or not.
    pub(super) fn one_request(&self, id: &RequestId) -> Option<Value> {
        let found = self.seen.team.requests.get(id)?;
        let mut one = request(found, self.codes.of(id));
        one["status"] = json!(found.status.as_str());
        one["reason"] = json!(found.reason.as_deref().map(body));
        one["resolved"] = json!(found.resolved_at);
        one["by"] = json!(found.answered_from.as_deref().map(line));
        one["pending"] = json!(found.is_pending());
        let concerns = |item: &&Item| {
            item.steps
                .iter()
                .any(|step| step.request.as_ref().is_some_and(|(of, _)| of == id))
        };
        Some(json!({"request": one, "events": self.events(concerns)}))
    }

    fn events(&self, concerns: impl Fn(&&Item) -> bool) -> Vec<Value> {
        let items = self.seen.feed.items().iter().rev();
        items
            .filter(concerns)
            .filter_map(event)
            .take(EVENTS)
            .collect()
    }
}

/// Returns the teammate that works on a task, or has done the work.
fn worked_on_by(task: &Task) -> Option<&Name> {
    let done_by = task.submission.as_ref().map(|submission| &submission.by);
    task.owner.as_ref().or(done_by)
}

fn is_checking(task: &Task) -> bool {
    let stage = task.submission.as_ref().map(|submission| &submission.stage);
    task.status == TaskStatus::InReview && matches!(stage, Some(Stage::Checking))
}

fn shown(facts: &[(&'static str, String)]) -> Value {
    let facts = facts.iter().filter(|(_, text)| !text.is_empty());
    facts
        .map(|(label, text)| json!([label, body(text)]))
        .collect()
}

/// Returns the end of an output: there it says how it ended.
fn end(text: &str) -> String {
    let text = text.trim_end();
    let from = text
        .char_indices()
        .rev()
        .nth(TEXT - 1)
        .map_or(0, |(at, _)| at);
    let cut = if from > 0 { "… (cut)\n" } else { "" };
    format!("{cut}{}", printed(&text[from..]))
}

/// Returns an output as a terminal would leave it: without colours, and of a line that was written
/// over only the last.
fn printed(output: &str) -> String {
    let plain = anstream::adapter::strip_str(output).to_string();
    let lines: Vec<&str> = plain
        .trim_end()
        .split('\n')
        .map(|line| line.trim_end_matches('\r'))
        .map(|line| line.rsplit('\r').next().unwrap_or_default())
        .collect();
    escape::text(&lines.join("\n")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_shown_as_a_terminal_would_leave_it() {
        let output = "\u{1b}[32mok\u{1b}[0m\r\n10%\r100%\r\n\u{202e}\u{7}end\n\n";
        let shown = printed(output);
        assert!(shown.starts_with("ok\n100%\n\\u{202e}"), "{shown}");
        assert!(shown.ends_with("end"), "{shown}");
    }
}
