//! What the views show, as JSON: windows of the team, not all of it. Texts that others wrote are escaped here, as for a terminal.

use serde_json::{Map, Value, json};
use teamd_shared::journal::Team;
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::request::Request;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::Usage;

use super::guard::View;
use crate::ctl::commands::task::blockers;
use crate::ctl::grouping::{Group, headline};
use crate::ctl::money::TeamCost;
use crate::ctl::table::cut;
use crate::ctl::top::act;
use crate::ctl::view::{
    COLUMNS, Event, Part, Row, Seen, Sequence, Stage, Step, Turning, by_status, pending, rows, sort, standing,
};
use crate::ctl::{escape, tokens};

/// How many members of a group, tasks of a column and events of the feed are shown.
const WINDOW: usize = 60;
/// How many requests are shown, the oldest first.
const REQUESTS: usize = 20;
/// The longest text of a line, in columns.
const LINE: usize = 240;
/// The longest text of anything but a request, in characters.
const TEXT: usize = 20_000;
/// The longest request that is shown, in characters: a longer one cannot be approved here.
const WHOLE: usize = 400_000;
/// The longest end of a conversation that is shown, in bytes.
const CONVERSATION: usize = 400_000;
/// The groups, in their order.
const GROUPS: [Group; 5] = [Group::NeedsYou, Group::Stuck, Group::Working, Group::Idle, Group::Ended];

/// The team as it is now.
pub(super) struct Shown<'s, 'd> {
    pub(super) dir: &'d TeamDir,
    pub(super) seen: Seen<'s, 'd>,
    pub(super) prices: &'s Prices,
    pub(super) has_daemon: bool,
    pub(super) is_read_only: bool,
}

impl Shown<'_, '_> {
    /// Returns what a view shows, in parts; none if there is no such thing.
    pub(super) fn view(&self, view: &View) -> Option<Map<String, Value>> {
        let mut shown = match view {
            View::Metrics => return Some(object(json!({"metrics": self.metrics()}))),
            View::Task(id) => {
                let team = self.seen.team;
                team.tasks.get(id)?;
                let text = anstream::adapter::strip_str(&act::task_text(self.dir, team, *id)).to_string();
                return Some(object(json!({"text": text})));
            }
            View::Overview => json!({"requests": self.requests(), "feed": self.feed()}),
            View::Requests => json!({"requests": self.requests()}),
            View::Board => json!({"columns": self.board()}),
            View::Conversation(_) => self.conversation()?,
            View::Sequence(last) => self.sequence(*last),
            View::Cost => json!({"costs": self.costs()}),
        };
        if let Some(shown) = shown.as_object_mut() {
            shown.extend(self.head(*view == View::Overview));
        }
        Some(object(shown))
    }

    /// What stands above each view; the members whole, or only how many there are.
    fn head(&self, whole: bool) -> Map<String, Value> {
        let roster = self.seen.roster;
        let mut rows = rows(&roster.members, self.seen.running, self.seen.team, self.prices);
        sort(&mut rows);
        let groups = GROUPS.map(|group| {
            let of_group = || rows.iter().filter(|row| row.standing.group == group);
            let shown = of_group().take(if whole { WINDOW } else { 0 }).map(member);
            json!({"title": group.title(), "count": of_group().count(), "members": shown.collect::<Vec<_>>()})
        });
        let usage = self.usage();
        let cost = TeamCost::of(roster, self.prices).all().filter(|cost| *cost > Dollars::default());
        let mut head = object(json!({
            "team": line(&roster.team_name),
            "daemon": self.has_daemon,
            "read_only": self.is_read_only,
            "trouble": self.seen.trouble.map(|error| line(&error.to_string())),
            "groups": groups,
            "waiting": pending(self.seen.team, "").iter().filter(|it| it.kind.is_judged()).count(),
            "tokens": if usage.is_nothing() { String::new() } else { tokens::cost(&usage) },
            "cost": cost.map(|cost| cost.to_string()),
        }));
        if !whole {
            head.insert("names".to_owned(), rows.iter().map(|row| row.member.name.as_str()).collect());
        }
        head
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.seen.roster.members.iter().for_each(|member| usage += member.usage);
        usage
    }

    fn requests(&self) -> Value {
        let pending = pending(self.seen.team, "");
        let shown: Vec<Value> = pending.iter().take(REQUESTS).map(|it| request(it)).collect();
        json!({"shown": shown, "count": pending.len()})
    }

    fn feed(&self) -> Vec<Value> {
        let items = self.seen.feed.items().iter().rev().take(WINDOW);
        let step = |step: &Step| {
            let stage = step.request.as_ref().map(|(_, stage)| stage.word());
            let what = [Some(step.what.as_str()), stage].into_iter().flatten().collect::<Vec<_>>().join(" ");
            json!({"at": step.at, "from": line(&step.from), "to": line(&step.to), "what": line(&what),
                "text": line(&headline(&step.text)), "bad": step.is_trouble})
        };
        items.filter_map(|item| item.steps.last().map(step)).collect()
    }

    fn board(&self) -> Vec<Value> {
        let team = self.seen.team;
        let column = |(title, ids): (&str, Vec<u32>)| {
            let tasks = ids.iter().take(WINDOW).filter_map(|id| team.tasks.get(id)).map(|task| {
                let blocked_by = blockers(team, task);
                let (how, group) = standing(task, &blocked_by);
                json!({"id": task.id, "subject": line(&task.subject), "how": line(&how), "group": group.title(),
                    "blocked": !blocked_by.is_empty()})
            });
            json!({"title": title, "count": ids.len(), "tasks": tasks.collect::<Vec<_>>()})
        };
        COLUMNS.into_iter().zip(by_status(team, "")).map(column).collect()
    }

    fn conversation(&self) -> Option<Value> {
        let conversation = self.seen.conversation?;
        let part = |(at, part): (usize, &Part)| match part {
            Part::Said { from, text } => {
                json!({"at": at, "kind": "said", "from": line(from), "text": body(text)})
            }
            Part::Answer(text) => json!({"at": at, "kind": "answer", "text": body(text)}),
            Part::Call(text) => json!({"at": at, "kind": "call", "text": line(text)}),
            Part::Result { line: short, content, is_error } => {
                json!({"at": at, "kind": "result", "line": line(short), "text": body(content), "bad": is_error})
            }
            Part::Aside(text) => json!({"at": at, "kind": "aside", "text": body(text)}),
            Part::Failure(text) => json!({"at": at, "kind": "failure", "text": body(text)}),
        };
        let (all, mut size) = (&conversation.parts, 0);
        let fits = |part: &Value| {
            size += part.to_string().len();
            size <= CONVERSATION
        };
        let mut parts: Vec<Value> = all.iter().enumerate().rev().map(part).take_while(fits).collect();
        parts.reverse();
        let has_earlier = conversation.has_earlier || parts.len() < all.len();
        let name = conversation.name.as_str();
        Some(json!({"name": name, "parts": parts, "live": body(&conversation.live),
            "earlier": has_earlier}))
    }

    fn sequence(&self, last: usize) -> Value {
        let mut steps: Vec<&Step> = self.seen.feed.items().iter().flat_map(|item| &item.steps).collect();
        steps.sort_by(|a, b| a.at.total_cmp(&b.at));
        let sequence = Sequence::of(steps, last);
        let event = |event: &Event| {
            let request = event.request.map(|(number, stage)| {
                json!({"number": number, "answer": !matches!(stage, Stage::Asked | Stage::Joined)})
            });
            let turning = event.turning.map(|turning| match turning {
                Turning::Began => "began",
                Turning::Ended => "ended",
            });
            json!({"at": event.at, "from": event.from, "to": event.to, "label": event.label, "request": request,
                "turning": turning, "bad": event.is_trouble, "text": body(&event.text)})
        };
        let events: Vec<Value> = sequence.events.iter().map(event).collect();
        json!({"lifelines": sequence.lifelines, "events": events, "earlier": sequence.earlier})
    }

    fn costs(&self) -> Vec<Value> {
        let rows = rows(&self.seen.roster.members, self.seen.running, self.seen.team, self.prices);
        let mut rows: Vec<&Row<'_>> = rows.iter().filter(|row| !row.member.usage.is_nothing()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.cost, row.member.usage.billed())));
        let cost = |row: &&Row<'_>| {
            let usage = &row.member.usage;
            json!({"name": row.member.name, "model": line(&row.member.model), "input": usage.input_tokens,
                "cached": usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
                "output": usage.output_tokens, "cost": row.cost.map(|cost| cost.to_string())})
        };
        rows.iter().take(5 * WINDOW).map(cost).collect()
    }

    /// Writes the numbers for Prometheus.
    fn metrics(&self) -> String {
        let (roster, team) = (self.seen.roster, self.seen.team);
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
            text += &format!("# HELP teamd_{name} {help}\n# TYPE teamd_{name} {kind}\n");
            values.into_iter().for_each(|(labels, value)| text += &format!("teamd_{name}{labels} {value}\n"));
        };
        let one = |value: f64| vec![(String::new(), value)];
        let mut statuses = std::collections::BTreeMap::new();
        roster.members.iter().for_each(|it| *statuses.entry(it.status.as_str()).or_insert(0.0) += 1.0);
        let by_status = statuses.into_iter().map(|(status, n)| (format!("{{status=\"{status}\"}}"), n));
        metric("members", "gauge", "Members by status.", by_status.collect());
        metric("requests_pending", "gauge", "Requests without an answer.", one(count(team)));
        let restarts = roster.members.iter().map(|member| f64::from(member.restarts)).sum();
        metric("restarts", "gauge", "Restarts of the present members.", one(restarts));
        let usage = self.usage();
        #[expect(clippy::cast_precision_loss, reason = "a count of tokens is exact up to 2^53")]
        let sort_of = |sort: &str, n: u64| (format!("{{kind=\"{sort}\"}}"), n as f64);
        let used = vec![sort_of("input", usage.input()), sort_of("output", usage.output_tokens)];
        metric("tokens", "gauge", "Tokens of the conversations of the present members.", used);
        metric("up", "gauge", "Whether the daemon runs.", one(f64::from(u8::from(self.has_daemon))));
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer requests than 2^53")]
fn count(team: &Team) -> f64 {
    pending(team, "").len() as f64
}

fn member(row: &Row<'_>) -> Value {
    let (member, standing) = (row.member, &row.standing);
    // The card of the request has its id.
    let without_id = row.request.and_then(|it| standing.what.strip_prefix(it.request_id.as_str()));
    let what = without_id.map_or(standing.what.as_str(), str::trim_start);
    json!({"name": member.name, "role": line(&member.role), "word": standing.word, "what": line(what),
        "since": standing.since, "tokens": (!member.usage.is_nothing()).then(|| tokens::count(member.usage.billed())),
        "cost": row.cost.map(|cost| cost.to_string())})
}

/// A request with its whole text: what is not shown whole cannot be approved.
fn request(request: &Request) -> Value {
    let text = request.payload.text();
    let is_whole = text.len() <= WHOLE;
    let shown = if is_whole { escape::text(text.trim_end()).into_owned() } else { body(&text) };
    json!({"id": request.request_id, "kind": request.kind.noun(), "member": line(request.member()),
        "since": request.created_at, "text": shown, "lines": text.lines().count(), "whole": is_whole,
        "judged": request.kind.is_judged()})
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// One line, which is cut where it is long.
fn line(text: &str) -> String {
    cut(&escape::line(start(text, LINE)), Some(LINE))
}

/// Some lines, which are cut where they are many.
fn body(text: &str) -> String {
    let shown = start(text.trim_end(), TEXT);
    let rest = if shown.len() < text.trim_end().len() { "\n… (cut)" } else { "" };
    escape::text(shown).into_owned() + rest
}

fn start(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_escaped_and_cut() {
        let hostile = "a\u{202e}b\u{1b}[2J\u{200b}\n<script>";
        assert_eq!(line(hostile), "a\\u{202e}b\\u{1b}[2J\\u{200b}\\n<script>");
        assert_eq!(body(hostile), "a\\u{202e}b\\u{1b}[2J\\u{200b}\n<script>");
        assert!(line(&"x".repeat(1 << 20)).len() < 1_000);
        let long = body(&"x\n".repeat(1 << 20));
        assert!(long.len() < 30_000 && long.ends_with("… (cut)"));
    }
}
