//! One member in full, for people.

use std::time::Duration;

use teamd_shared::amount::{told, told_size};
use teamd_shared::config::RosterMember;
use teamd_shared::member::{Bounds, Emptied, Exit, SandboxMode};
use teamd_shared::settings::DEFAULT_TURNS;
use teamd_shared::transcript::Usage;

use crate::ctl::output::paint;
use crate::ctl::render::{BOLD, DIM, exit, under};
use crate::ctl::resources::Resources;
use crate::ctl::{clock, tokens};

use super::{Row, pid};

/// Shows all four counters of a conversation.
fn spent(usage: &Usage) -> String {
    if usage.is_nothing() {
        return String::new();
    }
    format!(
        "{}: {} read ({} from the cache, {} put into it), {} written",
        tokens::cost(usage),
        usage.input(),
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
        usage.output_tokens
    )
}

/// Shows what one piece of work may cost.
fn budget(member: &RosterMember) -> String {
    let turns = member.limits.max_turns.unwrap_or(DEFAULT_TURNS);
    let tokens = member.limits.max_tokens.map(|most| format!(", {} tokens", tokens::count(most)));
    format!("{turns} model calls{} for a piece of work", tokens.unwrap_or_default())
}

/// Shows what an incarnation may use, and what enforces that.
fn bounds(member: &RosterMember) -> String {
    let Bounds { memory, cpu_time, max_procs, max_time } = member.bounds;
    let seconds = |most| told(Duration::from_secs(most));
    let sum = member.cgroup.clone().unwrap_or_default();
    let of_memory =
        if sum.memory { "all together (cgroup), and each process (rlimit)" } else { "each process (rlimit)" };
    let of_procs = if sum.procs {
        "all together (cgroup), and each tool call (its shim)"
    } else {
        "each tool call (its shim)"
    };
    let bounds = [
        memory.map(|most| format!("memory {}, {of_memory}", told_size(most))),
        cpu_time.map(|most| format!("CPU time {}, each process (rlimit)", seconds(most))),
        max_procs.map(|most| format!("{most} processes, {of_procs}")),
        max_time.map(|most| format!("{} for an incarnation (the daemon)", seconds(most))),
    ];
    bounds.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Shows how the daemon knew that nothing of an incarnation was left, and what had to be killed for that.
fn left(exit: &Exit) -> String {
    let how = match exit.emptied {
        Some(Emptied::Cgroup) => "its liveness lock is free, and its cgroup is empty",
        Some(Emptied::Keepers) => "its liveness lock is free, and no orphan is left",
        Some(Emptied::Lock) => "its liveness lock is free",
        None => return String::new(),
    };
    let killed = match exit.left_behind {
        None => String::new(),
        Some(0) => "; nothing had to be killed".to_owned(),
        Some(1) => "; 1 process had to be killed".to_owned(),
        Some(many) => format!("; {many} processes had to be killed"),
    };
    format!("nothing: {how}{killed}")
}

/// Shows how the commands of a member are confined.
fn sandbox(member: &RosterMember) -> String {
    let sandbox = &member.sandbox;
    let mode = match sandbox.mode {
        SandboxMode::WorkspaceWrite => "workspace-write",
        SandboxMode::ReadOnly => "read-only",
        SandboxMode::Off => "OFF: its commands may do whatever you may",
    };
    let network = if sandbox.no_network && sandbox.mode != SandboxMode::Off { ", no network" } else { "" };
    let mut shown = format!("{mode}{network}");
    // Of one that may change nothing, or anything, no path may be changed besides.
    if sandbox.mode == SandboxMode::WorkspaceWrite && !sandbox.writable.is_empty() {
        shown.push_str(&format!("; writable too: {}", sandbox.writable.join(", ")));
    }
    if !sandbox.hidden.is_empty() {
        shown.push_str(&format!("; hidden: {}", sandbox.hidden.join(", ")));
    }
    shown
}

/// Shows everything about one member.
pub(super) fn details(row: &Row<'_>) -> String {
    let member = row.member;
    let status = paint(row.status_style(), member.status.as_str());
    let mut lines =
        vec![format!("{}  {status} for {}", paint(BOLD, &member.name), clock::age(member.updated_at))];
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.push(under(&format!("  {} ", paint(DIM, format_args!("{label:<11}"))), text));
        }
    };
    line("role", &member.role);
    line("doing", &if member.status.is_ended() { String::new() } else { row.activity() });
    line("unread", &row.unread.map_or_else(|| "?".to_owned(), |unread| unread.to_string()));
    line("gate", member.gate.as_str());
    line("pid", &pid(member));
    line("incarnation", &member.incarnation.to_string());
    line("model", &member.model);
    line("tokens", &spent(&member.usage));
    line("budget", &budget(member));
    line("limits", &bounds(member));
    line("cgroup", member.cgroup.as_ref().map_or("", |cgroup| &cgroup.path));
    line("workspace", &member.workspace);
    line("sandbox", &sandbox(member));
    line("uses", &row.resources.as_ref().map(Resources::told).unwrap_or_default());
    line("spawned", &clock::time_of_day(member.spawned_at));
    line("restarts", &if member.restarts > 0 { member.restarts.to_string() } else { String::new() });
    let (label, ended) = match &member.exit {
        Some(ended) => ("ended", Some(ended)),
        None => ("last exit", member.last_exit.as_ref()),
    };
    if let Some(it) = ended {
        let seen = format!("{}, {}, {} unread", clock::time_of_day(it.at), exit(it), it.unread);
        let request = it.request_id.as_ref().map_or(String::new(), |id| format!(", by request {id}"));
        line(label, &format!("{seen}{request}"));
        line("note", it.note.as_deref().unwrap_or_default());
        line("left", &left(it));
    }
    lines.join("\n") + "\n"
}
