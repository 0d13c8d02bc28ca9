//! One member in full, for people. Pure.

use std::time::Duration;

use teamd_client::print::render::{count, exit};
use teamd_client::print::{clock, tokens};
use teamd_client::read::resources::Resources;
use teamd_shared::amount::{format_duration, format_size};
use teamd_shared::config::RosterMember;
use teamd_shared::member::{Bounds, Emptied, Exit, Gate, Localhost, SandboxMode};
use teamd_shared::terms::{DEFAULT_TURNS, Total};
use teamd_shared::transcript::Usage;

use super::MemberRow;

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

/// Shows the model that answers while its own is overloaded, and whether that is now.
fn fallback(member: &RosterMember) -> String {
    match (&member.other_models.answers, &member.fallback_model) {
        (Some(model), _) if !member.status.is_ended() => format!(
            "{model} answers now, until this piece of work ends: the service of {} was overloaded",
            member.mind()
        ),
        (_, model) => model.clone().unwrap_or_default(),
    }
}

/// Shows what one piece of work may cost.
fn budget(member: &RosterMember) -> String {
    let turns = member.limits.max_turns.unwrap_or(DEFAULT_TURNS);
    let tokens = member
        .limits
        .max_tokens
        .map(|most| format!(", {} tokens", tokens::count(most)));
    let cost = member.limits.max_cost.map(|most| format!(", {most}"));
    let tokens = tokens.unwrap_or_default();
    let cost = cost.unwrap_or_default();
    let Total {
        tokens: all_tokens,
        cost: all_cost,
    } = member.limits.total;
    let all_tokens = all_tokens.map(|most| format!("{} tokens", tokens::count(most)));
    let all_cost = all_cost.map(|most| most.to_string());
    let total: Vec<String> = all_tokens.into_iter().chain(all_cost).collect();
    let total = if total.is_empty() {
        String::new()
    } else {
        format!("; {} for all its work, from its lead", total.join(", "))
    };
    format!(
        "{}{tokens}{cost} for a piece of work{total}",
        count(turns as usize, "model call")
    )
}

/// Shows what an incarnation may use, and what enforces that.
fn bounds(member: &RosterMember) -> String {
    let Bounds {
        memory,
        cpu_time,
        max_procs,
        max_time,
        max_idle,
    } = member.bounds;
    let sum = member.cgroup.clone().unwrap_or_default();
    let of_memory = if sum.memory {
        "all together (cgroup), and each process (rlimit)"
    } else {
        "each process (rlimit)"
    };
    let of_procs = if sum.procs {
        "all together (cgroup), and each tool call (its shim)"
    } else {
        "each tool call (its shim)"
    };
    let bounds = [
        memory.map(|most| format!("memory {}, {of_memory}", format_size(most))),
        cpu_time.map(|most| {
            format!(
                "CPU time {}, each process (rlimit)",
                format_duration(Duration::from_secs(most))
            )
        }),
        max_procs.map(|most| {
            format!(
                "{most} {}, {of_procs}",
                if most == 1 { "process" } else { "processes" }
            )
        }),
        max_time.map(|most| {
            format!(
                "{} for an incarnation (the daemon)",
                format_duration(Duration::from_secs(most))
            )
        }),
        max_idle.map(|most| {
            format!(
                "{} idle (the daemon)",
                format_duration(Duration::from_secs(most))
            )
        }),
    ];
    bounds.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Shows how the daemon knew that nothing of an incarnation was left.
fn left(exit: &Exit) -> String {
    let how = match exit.emptied {
        Some(Emptied::Cgroup) => "nothing: its liveness lock is free, and its cgroup is empty",
        Some(Emptied::Tree) => "nothing: its liveness lock is free, and no orphan is left",
        None => "",
    };
    how.to_owned()
}

/// Shows how the commands of a member are confined.
fn sandbox(member: &RosterMember) -> String {
    let sandbox = &member.sandbox;
    let mode = match sandbox.mode {
        SandboxMode::WorkspaceWrite => "workspace-write",
        SandboxMode::ReadOnly => "read-only",
        SandboxMode::Off => "OFF: its commands may do whatever you may",
    };
    let mut shown = mode.to_owned();
    match if sandbox.mode != SandboxMode::Off {
        sandbox.network().0
    } else {
        None
    } {
        Some(hosts) if hosts.is_empty() => shown.push_str(", no network"),
        Some(hosts) => shown.push_str(&format!(", network: {}", hosts.join(", "))),
        None => {}
    }
    if sandbox.has_network(Gate::Open) && !sandbox.ports.is_empty() {
        let ports: Vec<_> = sandbox.ports.iter().map(u16::to_string).collect();
        shown.push_str(&format!(", ports: {}", ports.join(", ")));
    }
    if sandbox.localhost == Localhost::Own {
        shown.push_str(", a localhost of its own");
    }
    // For one that may change nothing, or anything, no list of paths is shown.
    if sandbox.mode == SandboxMode::WorkspaceWrite && !sandbox.writable.is_empty() {
        shown.push_str(&format!("; writable too: {}", sandbox.writable.join(", ")));
    }
    if !sandbox.hidden.is_empty() {
        shown.push_str(&format!("; hidden: {}", sandbox.hidden.join(", ")));
    }
    if !sandbox.visible.is_empty() {
        shown.push_str(&format!("; visible: {}", sandbox.visible.join(", ")));
    }
    shown
}

/// Shows the ports that a member serves on a localhost of its own, and how the first is opened.
fn serves(row: &MemberRow<'_>) -> String {
    let Some(first) = row.serves.first() else {
        return String::new();
    };
    let ports: Vec<_> = row.serves.iter().map(u16::to_string).collect();
    let name = &row.member.name;
    format!(
        "{} (`teamctl port {name} {first}` opens it)",
        ports.join(", ")
    )
}

/// Shows the MCP servers of a member, and what becomes of each, as far as that is known.
fn mcp(row: &MemberRow<'_>) -> String {
    let mut shown = Vec::new();
    for name in &row.member.mcp {
        let mut servers = row.mcp_servers.iter();
        let Some(server) = servers.find(|report| report.name == *name) else {
            shown.push(name.clone());
            continue;
        };
        let tools = server
            .tools
            .map(|tools| format!(", {}", count(tools as usize, "tool")));
        let error = server.last_error.as_ref();
        let error = error.map(|error| format!(", last error: {error}"));
        shown.push(format!(
            "{name} ({}{}{})",
            server.state.as_str(),
            tools.unwrap_or_default(),
            error.unwrap_or_default()
        ));
    }
    shown.join(", ")
}

/// Returns everything about one member beside its name and status, each part with its label; a part
/// that it has not is empty.
pub fn member_facts(row: &MemberRow<'_>) -> Vec<(&'static str, String)> {
    let member = row.member;
    let doing = if member.status.is_ended() {
        String::new()
    } else {
        row.standing.what.clone()
    };
    let restarts = if member.restarts > 0 {
        member.restarts.to_string()
    } else {
        String::new()
    };
    let pid = member
        .pid
        .or(member.host_pid)
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let mut all = vec![
        ("role", member.role.clone()),
        ("doing", doing),
        (
            "task",
            row.task.map(|task| task.title()).unwrap_or_default(),
        ),
        (
            "unread",
            row.unread
                .map_or_else(|| "?".to_owned(), |unread| unread.to_string()),
        ),
        ("gate", member.gate.as_str().to_owned()),
        (
            "host",
            member
                .host
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        ),
        ("pid", pid),
        ("incarnation", member.incarnation.to_string()),
        (
            "agent",
            member
                .agent
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        ),
        ("model", member.mind()),
        ("fallback", fallback(member)),
        ("tokens", spent(&member.usage)),
        (
            "cost",
            row.cost.map(|cost| cost.to_string()).unwrap_or_default(),
        ),
        ("budget", budget(member)),
        ("limits", bounds(member)),
        (
            "cgroup",
            member
                .cgroup
                .as_ref()
                .map(|cgroup| cgroup.path.clone())
                .unwrap_or_default(),
        ),
        ("workspace", member.workspace.clone()),
        ("sandbox", sandbox(member)),
        ("serves", serves(row)),
        ("mcp", mcp(row)),
        (
            "uses",
            row.resources
                .as_ref()
                .map(Resources::describe)
                .unwrap_or_default(),
        ),
        ("spawned", clock::time_of_day(member.spawned_at)),
        ("restarts", restarts),
    ];
    let ended = member.exit.as_ref().map(|ended| ("ended", ended));
    if let Some((label, it)) = ended.or(member.last_exit.as_ref().map(|last| ("last exit", last))) {
        let request = it
            .request_id
            .as_ref()
            .map(|id| format!(", by request {id}"))
            .unwrap_or_default();
        let at = clock::time_of_day(it.at);
        all.push((
            label,
            format!("{at}, {}, {} unread{request}", exit(it), it.unread),
        ));
        all.push(("note", it.note.clone().unwrap_or_default()));
        all.push(("left", left(it)));
    }
    all
}
