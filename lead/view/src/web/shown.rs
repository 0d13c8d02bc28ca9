//! What the views show, as JSON: windows of the team, not all of it. Texts that others wrote are
//! escaped here, as for a terminal.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use teamd_client::print::grouping::{Group, headline};
use teamd_client::print::table::cut;
use teamd_client::print::task::blockers;
use teamd_client::print::{escape, tokens};
use teamd_client::read::money::{self, TeamCost};
use teamd_shared::clock::wall;
use teamd_shared::name::Name;
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::request::{Payload, Request};
use teamd_shared::task::TaskId;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::todo::{TODO_WRITE, TodoList};
use teamd_shared::transcript::Usage;

use super::guard::PageView;
use crate::codes::ShownCodes;
use crate::model::{
    COLUMNS, ConversationPart, CostAccount, CostShare, FeedStep, ImageFacts, Item, MemberRow,
    Placed, PlacedCall, RequestStage, SeenTeam, Sequence, SpentUsage, Stand, TaskPast, Turning,
    Window, by_status, pending, rows, sort, standing, tasks_done, tasks_failed,
};

/// How many members of a group, tasks of a column and events of the feed are shown.
pub(super) const WINDOW: usize = 60;
/// How many requests are shown, the oldest first.
const REQUESTS: usize = 20;
/// Into how many parts of time costs are divided.
const SLOTS: u32 = 48;
/// The longest text of a line, in columns.
const LINE: usize = 240;
/// The longest text of anything but a request, in characters.
pub(super) const TEXT: usize = 20_000;
/// The longest request that is shown, in characters: a longer one cannot be approved here.
const WHOLE: usize = 400_000;
/// The longest end of a conversation that is shown, in bytes.
const CONVERSATION: usize = 400_000;
/// The groups, in their order.
const GROUPS: [Group; 5] = [
    Group::NeedsYou,
    Group::Stuck,
    Group::Working,
    Group::Idle,
    Group::Ended,
];

/// The team as it is now.
pub(super) struct TeamPage<'s, 'd> {
    pub(super) dir: &'d TeamDir,
    pub(super) seen: SeenTeam<'s, 'd>,
    pub(super) prices: &'s Prices,
    pub(super) has_daemon: bool,
    pub(super) is_read_only: bool,
    pub(super) codes: &'s ShownCodes,
    /// What the teammate serves that is shown.
    pub(super) serves: Vec<u16>,
}

impl TeamPage<'_, '_> {
    /// Returns when any of it changes because time passes, in seconds since 1970.
    pub(super) fn changes_at(&self) -> Option<f64> {
        let rows = rows(
            &self.seen.roster.members,
            self.seen.running,
            self.seen.team,
            self.prices,
        );
        rows.iter()
            .filter_map(|row| row.standing.changes_at)
            .reduce(f64::min)
    }

    /// Returns what a view shows, in parts; none if that does not exist.
    pub(super) fn view(&self, view: &PageView) -> Option<Map<String, Value>> {
        let mut shown = match view {
            PageView::Metrics => return Some(object(json!({"metrics": self.metrics()}))),
            PageView::Task(id) => self.task(*id)?,
            PageView::Teammate(name) => self.teammate(name)?,
            PageView::Request(id) => self.one_request(id)?,
            PageView::Overview => json!({"requests": self.requests(), "feed": self.feed(false)}),
            PageView::OverviewOfAll => {
                json!({"requests": self.requests(), "feed": self.feed(true)})
            }
            PageView::Requests => json!({"requests": self.requests()}),
            PageView::Board(find) => {
                json!({"columns": self.board(find), "find": line(find), "tasks": self.seen.past.tasks.len(), "reading": self.seen.reading})
            }
            PageView::Conversation(_) => self.conversation()?,
            PageView::Earlier(_, before) => return self.earlier(*before).map(object),
            PageView::Sequence((last, lifelines), seconds) => {
                self.sequence(*last, *lifelines, *seconds)
            }
            PageView::Timeline(seconds, until) => {
                self.timeline(f64::from(*seconds), until.map(f64::from))
            }
            PageView::Cost => self.costs(),
        };
        if let Some(shown) = shown.as_object_mut() {
            let is_whole = matches!(view, PageView::Overview | PageView::OverviewOfAll);
            shown.extend(self.head(is_whole));
        }
        Some(object(shown))
    }

    /// What is above each view: the members in full, or only their number.
    fn head(&self, whole: bool) -> Map<String, Value> {
        let roster = self.seen.roster;
        let mut rows = rows(
            &roster.members,
            self.seen.running,
            self.seen.team,
            self.prices,
        );
        sort(&mut rows);
        let groups = GROUPS.map(|group| {
            let of_group = || rows.iter().filter(|row| row.standing.group == group);
            let shown = of_group().take(if whole { WINDOW } else { 0 }).map(member);
            json!({"title": group.title(), "count": of_group().count(), "members": shown.collect::<Vec<_>>()})
        });
        let usage = self.usage();
        let cost = TeamCost::of(roster, self.prices)
            .all()
            .filter(|cost| *cost > Dollars::default());
        let mut head = object(json!({
            "team": line(&roster.team_name),
            "daemon": self.has_daemon,
            "read_only": self.is_read_only,
            "trouble": self.seen.trouble.map(|error| line(&error.to_string())),
            "groups": groups,
            "waiting": pending(self.seen.team, "").iter().filter(|it| it.kind.is_judged()).count(),
            "progress": tasks_done(self.seen.team),
            "failed": tasks_failed(self.seen.team),
            "tokens": if usage.is_nothing() { String::new() } else { format!("{} tokens", tokens::all(&usage)) },
            "cost": cost.map(|cost| cost.to_string()),
        }));
        if !whole {
            head.insert(
                "names".to_owned(),
                rows.iter().map(|row| row.member.name.as_str()).collect(),
            );
        }
        head
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for member in &self.seen.roster.members {
            usage += member.usage;
        }
        usage
    }

    fn requests(&self) -> Value {
        let pending = pending(self.seen.team, "");
        let shown: Vec<Value> = pending
            .iter()
            .take(REQUESTS)
            .map(|it| request(it, self.codes.of(&it.request_id)))
            .collect();
        json!({"shown": shown, "count": pending.len()})
    }

    /// The last events; of all: also those that only say how the team runs.
    fn feed(&self, of_all: bool) -> Vec<Value> {
        let items = self.seen.feed.items().iter().rev();
        let shown = items.filter(|item| {
            let last = item.steps.last();
            of_all || last.is_some_and(|step| !step.is_plumbing())
        });
        shown.filter_map(event).take(WINDOW).collect()
    }

    fn board(&self, find: &str) -> Vec<Value> {
        let SeenTeam {
            roster, team, past, ..
        } = self.seen;
        COLUMNS
            .into_iter()
            .zip(by_status(team, past, find))
            .map(|(title, ids)| {
            let tasks = ids.iter().take(WINDOW).map(|id| &past.tasks[id].task).map(|task| {
                let blocked_by = blockers(team, task);
                let (how, group) = standing(task, &blocked_by, roster.sender_of(task));
                json!({"id": task.id, "subject": line(&task.subject), "how": line(&how), "group": group.title(),
                    "blocked": !blocked_by.is_empty()})
            });
            json!({"title": title, "count": ids.len(), "tasks": tasks.collect::<Vec<_>>()})
        })
            .collect()
    }

    fn conversation(&self) -> Option<Value> {
        let conversation = self.seen.conversation?;
        let (before, parts) = window(conversation.from, &conversation.parts);
        let name = conversation.name.as_str();
        let asked = self.asked_by(&conversation.name);
        Some(
            json!({"name": name, "parts": parts, "live": body(&conversation.live), "before": before,
            "requests": asked}),
        )
    }

    /// The pending requests of a member.
    pub(super) fn asked_by(&self, name: &Name) -> Vec<Value> {
        let pending = pending(self.seen.team, "");
        let of_member = pending
            .into_iter()
            .filter(|it| it.member() == name.as_str());
        of_member
            .map(|it| request(it, self.codes.of(&it.request_id)))
            .collect()
    }

    fn earlier(&self, before: u64) -> Option<Value> {
        let (from, parts) = self.seen.conversation?.earlier(before).ok()?;
        let (before, parts) = window(from, &parts);
        Some(json!({"parts": parts, "before": before}))
    }

    fn sequence(&self, last: usize, lifelines: usize, seconds: Option<u32>) -> Value {
        let mut steps: Vec<&FeedStep> = self
            .seen
            .feed
            .items()
            .iter()
            .flat_map(|item| &item.steps)
            .collect();
        let from = seconds.map_or(f64::NEG_INFINITY, |seconds| wall() - f64::from(seconds));
        steps.retain(|step| step.at >= from);
        steps.sort_by(|a, b| a.at.total_cmp(&b.at));
        let sequence = Sequence::of(steps, (last, lifelines));
        let events: Vec<Value> = sequence.events.iter().map(|event| {
            let request = event.request.map(|(number, stage)| {
                json!({"number": number, "answer": !matches!(stage, RequestStage::Asked | RequestStage::Joined)})
            });
            let turning = event.turning.map(|turning| match turning {
                Turning::Began => "began",
                Turning::Ended => "ended",
            });
            json!({"at": event.at, "from": event.from, "to": event.to, "label": cut(&event.line, Some(LINE)), "request": request,
                "turning": turning, "bad": event.is_trouble, "text": body(&event.text)})
        }).collect();
        json!({"lifelines": sequence.lifelines, "events": events, "earlier": sequence.earlier,
            "incarnations": sequence.incarnations()})
    }

    /// Says what members and tasks did when.
    fn timeline(&self, seconds: f64, until: Option<f64>) -> Value {
        let SeenTeam {
            roster,
            running,
            team,
            past,
            ledgers,
            reading,
            ..
        } = self.seen;
        let to = until.unwrap_or_else(wall);
        let window = Window {
            from: to - seconds,
            to,
        };
        let mut rows = rows(&roster.members, running, team, self.prices);
        sort(&mut rows);
        let bars = rows.iter().filter_map(|row| {
            let name = &row.member.name;
            let bars = past.bars(name, (ledgers.of(name), running.contains(name)), window)?;
            let lives: Vec<Value> = bars.lives.iter().map(|life| {
                let end = life.ended.map(|(at, how)| json!([at, how.as_str()]));
                json!([life.incarnation, life.decided, life.began, end])
            }).collect();
            Some(json!({"name": name, "group": row.standing.group.title(), "lives": lives, "working": bars.working,
                "awaiting": bars.awaiting, "leaving": bars.leaving}))
        });
        let members = bars.collect::<Vec<_>>();
        let tasks = past.tasks_in(window);
        let began = past
            .lives
            .values()
            .flatten()
            .map(|life| life.decided)
            .reduce(f64::min);
        json!({"members": members[..members.len().min(WINDOW)], "tasks": tasks.iter().take(WINDOW).map(|(id, task)| task_bar(*id, task)).collect::<Vec<_>>(),
            "counts": [members.len(), tasks.len()], "began": began, "reading": reading})
    }

    /// Says what members and tasks used, in all and over time.
    fn costs(&self) -> Value {
        let SeenTeam {
            roster,
            running,
            team,
            past,
            ledgers,
            reading,
            ..
        } = self.seen;
        let mut account = CostAccount::new(past, wall());
        for member in &roster.members {
            let ledger = ledgers.of(&member.name).into_iter();
            for conversation in ledger {
                account.member(
                    (
                        &member.name,
                        &money::model(member),
                        running.contains(&member.name),
                    ),
                    conversation,
                );
            }
        }
        let spent = || account.members.values().flat_map(|share| &share.spent);
        let times = || spent().map(|it| it.at);
        let from = times().reduce(f64::min).unwrap_or_default();
        let to = times().reduce(f64::max).unwrap_or_default();
        let over = |share: Option<&CostShare>| {
            slots(share.into_iter().flat_map(|share| &share.spent), (from, to))
        };
        let used = |usage: &Usage, cost: Option<Dollars>, share: Option<&CostShare>| {
            let [input, cached, output] = kinds(usage);
            json!({"input": input, "cached": cached, "output": output, "cost": cost.map(|cost| cost.to_string()),
                "over": over(share)})
        };
        let rows = rows(&roster.members, running, team, self.prices);
        let mut rows: Vec<&MemberRow<'_>> = rows
            .iter()
            .filter(|row| !row.member.usage.is_nothing())
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.cost, row.member.usage.billed())));
        let members = rows.iter().take(WINDOW).map(|row| {
            let member = row.member;
            let of = json!({"name": member.name, "what": line(&member.model)});
            with(
                of,
                used(&member.usage, row.cost, account.members.get(&member.name)),
            )
        });
        let mut tasks: Vec<(&TaskId, &CostShare)> = account
            .tasks
            .iter()
            .filter(|(_, share)| !share.usage().is_nothing())
            .collect();
        tasks.sort_by_key(|(_, share)| {
            std::cmp::Reverse((share.cost(self.prices), share.usage().billed()))
        });
        let shown = tasks.iter().take(WINDOW).map(|(id, share)| {
            let of = json!({"name": id, "what": line(&past.tasks[id].task.subject)});
            with(
                of,
                used(&share.usage(), share.cost(self.prices), Some(share)),
            )
        });
        json!({"members": members.collect::<Vec<_>>(), "tasks": shown.collect::<Vec<_>>(), "counts": [rows.len(), tasks.len()],
            "all": slots(spent(), (from, to)), "from": from, "to": to, "reading": reading})
    }

    /// Writes the numbers for Prometheus.
    fn metrics(&self) -> String {
        let roster = self.seen.roster;
        let team = self.seen.team;
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
            text += &format!("# HELP teamd_{name} {help}\n# TYPE teamd_{name} {kind}\n");
            for (labels, value) in values {
                text += &format!("teamd_{name}{labels} {value}\n");
            }
        };
        let mut statuses = BTreeMap::new();
        for member in &roster.members {
            *statuses.entry(member.status.as_str()).or_insert(0.0) += 1.0;
        }
        let by_status = statuses
            .into_iter()
            .map(|(status, n)| (format!("{{status=\"{status}\"}}"), n));
        metric(
            "members",
            "gauge",
            "Members by status.",
            by_status.collect(),
        );
        metric(
            "requests_pending",
            "gauge",
            "Requests without an answer.",
            one(exact(pending(team, "").len() as u64)),
        );
        let restarts = roster
            .members
            .iter()
            .map(|member| f64::from(member.restarts))
            .sum();
        metric(
            "restarts",
            "gauge",
            "Restarts of the present members.",
            one(restarts),
        );
        let usage = self.usage();
        let messages = exact(self.seen.feed.messages_added);
        let help =
            "Messages that were seen: the last ones of each inbox, and all since the page began.";
        metric("messages_total", "counter", help, one(messages));
        let mut counts = Vec::new();
        let mut seconds = Vec::new();
        for (of, (count, sum)) in self.seen.past.handshakes() {
            counts.push(kind(of.noun(), exact(count)));
            seconds.push(kind(of.noun(), sum));
        }
        metric("handshakes", "gauge", "Requests with an answer.", counts);
        metric(
            "handshake_seconds",
            "gauge",
            "How long these waited for it, in all.",
            seconds,
        );
        let used = [("input", usage.input()), ("output", usage.output_tokens)];
        let used = used
            .into_iter()
            .map(|(of, tokens)| kind(of, exact(tokens)))
            .collect();
        metric(
            "tokens",
            "gauge",
            "Tokens of the conversations of the present members.",
            used,
        );
        metric(
            "up",
            "gauge",
            "Whether the daemon runs.",
            one(f64::from(u8::from(self.has_daemon))),
        );
        text
    }
}

/// Returns the tokens of one kind each: read, and neither put into a cache nor found there; read
/// so; written.
fn kinds(usage: &Usage) -> [u64; 3] {
    let cached = usage
        .cache_read_input_tokens
        .saturating_add(usage.cache_creation_input_tokens);
    [usage.input_tokens, cached, usage.output_tokens]
}

/// Returns the tokens of equal parts of a time, oldest first: the number of the part, and one
/// number for each kind.
fn slots<'s>(spent: impl Iterator<Item = &'s SpentUsage>, (from, to): (f64, f64)) -> Vec<[u64; 4]> {
    let mut slots: BTreeMap<u64, Usage> = BTreeMap::new();
    let part = ((to - from) / f64::from(SLOTS - 1)).max(1.0);
    for spent in spent {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small number, from 0 on"
        )]
        let slot = ((spent.at - from) / part).clamp(0.0, f64::from(SLOTS - 1)) as u64;
        *slots.entry(slot).or_default() += spent.usage;
    }
    slots
        .into_iter()
        .map(|(slot, usage)| {
            let [input, cached, output] = kinds(&usage);
            [slot, input, cached, output]
        })
        .collect()
}

fn with(of: Value, more: Value) -> Value {
    let mut all = object(of);
    all.extend(object(more));
    Value::Object(all)
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn exact(count: u64) -> f64 {
    count as f64
}

/// An item of the feed, as its last step.
pub(super) fn event(item: &Item) -> Option<Value> {
    let step = item.steps.last()?;
    let request = step.request.as_ref();
    let what = [Some(step.what.as_str()), step.stage_word()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ");
    Some(
        json!({"at": step.at, "from": line(&step.from), "to": line(&step.to), "what": line(&what),
        "text": line(&headline(&step.text)), "bad": step.is_trouble, "request": request.map(|(id, _)| id)}),
    )
}

pub(super) fn member(row: &MemberRow<'_>) -> Value {
    let member = row.member;
    let standing = &row.standing;
    json!({"name": member.name, "role": line(&member.role), "word": standing.word, "what": line(row.what()),
        "since": standing.since, "tokens": (!member.usage.is_nothing()).then(|| tokens::all(&member.usage)),
        "cost": row.cost.map(|cost| cost.to_string())})
}

/// The last parts of a conversation, as many as are shown at once, and before which place the
/// others stand, if there are any.
fn window(mut from: u64, all: &[Placed]) -> (Option<u64>, Vec<Value>) {
    let mut parts = Vec::new();
    let mut size = 0;
    let mut first = from;
    for placed in all.iter().rev() {
        let part = part(placed);
        size += part.to_string().len();
        // An entry is shown whole.
        if size > CONVERSATION && !parts.is_empty() && placed.at.offset() != first {
            from = first;
            break;
        }
        first = placed.at.offset();
        parts.push(part);
    }
    parts.reverse();
    ((from > 0).then_some(from), parts)
}

fn part(placed: &Placed) -> Value {
    let Placed {
        at,
        number,
        time,
        part,
        call,
    } = placed;
    let (kind, text) = match part {
        ConversationPart::Said { text, .. } => ("said", body(text)),
        ConversationPart::Answer(text) => ("answer", body(text)),
        ConversationPart::Call(_) => ("call", line(&part.line())),
        ConversationPart::Result { content, .. } => ("result", body(content)),
        ConversationPart::Aside(text) | ConversationPart::Detail(text) => ("aside", body(text)),
        ConversationPart::Failure(text) => ("failure", body(text)),
    };
    let mut shown = json!({"at": format!("{}-{}-{number}", at.file(), at.offset()), "kind": kind, "text": text, "time": time});
    if let Some(call) = call {
        shown["call"] = json!(line(&call.id));
        shown["tool"] = json!(line(&call.tool));
        shown["input"] = input(call);
    }
    match part {
        ConversationPart::Said { from, .. } => shown["from"] = json!(line(from)),
        ConversationPart::Result {
            is_error, images, ..
        } => {
            shown["line"] = json!(line(&part.line()));
            shown["bad"] = json!(is_error);
            if !images.is_empty() {
                shown["images"] = images.iter().map(image).collect();
            }
        }
        _ => {}
    }
    shown
}

/// What is said of an image, and its size if it is shown.
fn image(facts: &ImageFacts) -> Value {
    let size = facts.size.map(|size| [size.width, size.height]);
    json!({"text": facts.text, "size": size})
}

/// What a call does to a file, the command that it runs, or the steps that it writes down; null for
/// any other.
fn input(call: &PlacedCall) -> Value {
    if call.tool == TODO_WRITE
        && let Some(list) = TodoList::of_call(&call.input)
    {
        return json!({"command": body(&format!("{}\n{list}", list.summary()))});
    }
    let field = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| call.input.get(name)?.as_str());
        found.map(body)
    };
    if let Some(command) = field(["command", "cmd"]) {
        return json!({"command": command});
    }
    let Some(path) = field(["path", "file_path"]) else {
        return Value::Null;
    };
    let before = field(["old_text", "old_string"]);
    let after = field(["new_text", "new_string"]).or(field(["content", "content"]));
    match after {
        Some(after) => json!({"path": path, "before": before, "after": after}),
        None => Value::Null,
    }
}

/// A request with its whole text: what is not shown whole cannot be approved.
pub(super) fn request(request: &Request, code: Option<&str>) -> Value {
    let text = request.payload.text();
    let is_whole = text.len() <= WHOLE;
    let shown = if is_whole {
        escape::text(text.trim_end()).into_owned()
    } else {
        body(&text)
    };
    let task = match &request.payload {
        Payload::Review(review) => Some(review.task),
        _ => None,
    };
    json!({"id": request.request_id, "kind": request.kind.noun(), "task": task, "member": line(request.member()),
        "since": request.created_at, "text": shown, "lines": text.lines().count(), "whole": is_whole,
        "judged": request.kind.is_judged(), "code": code})
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// One line, which is cut where it is long.
pub(super) fn line(text: &str) -> String {
    cut(&escape::line(start(text, LINE)), Some(LINE))
}

/// Some lines, which are cut where they are many.
pub(super) fn body(text: &str) -> String {
    let shown = start(text.trim_end(), TEXT);
    let rest = if shown.len() < text.trim_end().len() {
        "\n… (cut)"
    } else {
        ""
    };
    escape::text(shown).into_owned() + rest
}

fn start(text: &str, characters: usize) -> &str {
    text.char_indices()
        .nth(characters)
        .map_or(text, |(end, _)| &text[..end])
}

/// Shows a task as a bar: where it stood, and when.
fn task_bar(id: TaskId, task: &TaskPast) -> Value {
    let mut spans = Vec::new();
    for (stand, (from, to)) in &task.spans {
        spans.push(match stand {
            Stand::Pending => json!(["pending", from, to]),
            Stand::Held(name) => json!(["working", from, to, name]),
            Stand::Checking => json!(["checking", from, to]),
            Stand::Waiting => json!(["awaiting", from, to]),
        });
    }
    json!({"id": id, "subject": line(&task.task.subject), "marks": task.marks, "spans": spans})
}

/// Makes the values of a metric that has one.
fn one(value: f64) -> Vec<(String, f64)> {
    vec![(String::new(), value)]
}

/// Makes the value of a metric for a kind.
fn kind(kind: &str, value: f64) -> (String, f64) {
    (format!("{{kind=\"{kind}\"}}"), value)
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
