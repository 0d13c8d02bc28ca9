//! No process is left that should be gone, and no teammate has two workers.

use serde_json::Value;

use crate::far::is_carrier;
use crate::stage::{Checked, Stage, hold};
use crate::support::process;

/// The processes of the team that belong neither to the daemon nor to a live member. An agent
/// belongs to its member.
pub(crate) fn orphans(stage: &Stage, roster: &Value) -> Vec<String> {
    orphans_of(stage, roster, &stage.team.processes())
}

fn orphans_of(stage: &Stage, roster: &Value, there: &[i32]) -> Vec<String> {
    let members = roster["members"].as_array().cloned().unwrap_or_default();
    let mut known: Vec<i32> = members
        .iter()
        .filter_map(Stage::process_of)
        .chain([stage.daemon()])
        .chain(stage.host_daemons())
        .collect();
    let agents = members
        .iter()
        .filter(|member| !member["agent"].is_null())
        .filter_map(Stage::process_of);
    known.extend(agents.flat_map(process::descendants));
    let orphans = there.iter().filter(|pid| !known.contains(pid));
    let lines = orphans.map(|&pid| (pid, process::command_line(pid)));
    lines
        .filter(|(_, line)| !is_carrier(line))
        .map(|(pid, line)| format!("{pid} {line}"))
        .collect()
}

/// The processes of the team, and their command lines, that contain a text: those of a command that
/// has it.
pub(crate) fn of_command(stage: &Stage, text: &str) -> Vec<(i32, String)> {
    let lines = stage
        .team
        .processes()
        .into_iter()
        .map(|pid| (pid, process::command_line(pid)));
    lines.filter(|(_, line)| line.contains(text)).collect()
}

/// While the team rests: each live member has one worker, the one that the roster names; each that
/// has ended, none; and there is nothing else but the daemon. A worker that no daemon knows leaves
/// by itself, as soon as it finds that out.
pub(super) fn check_alive(stage: &Stage, roster: &Value) -> Checked {
    let all = stage.team.processes();
    for member in roster["members"].as_array().into_iter().flatten() {
        let name = member["name"].as_str().unwrap_or_default();
        let wanted: Vec<i32> = Stage::process_of(member).into_iter().collect();
        let there = workers(&all, name);
        hold(there == wanted, || {
            format!("the workers of {name} are {there:?}, and should be {wanted:?}")
        })?;
    }
    let orphans = orphans_of(stage, roster, &all);
    hold(orphans.is_empty(), || {
        format!("no record names {orphans:?}")
    })
}

/// The workers of a teammate among some processes.
fn workers(of: &[i32], name: &str) -> Vec<i32> {
    let wanted = format!(" run --name {name} ");
    of.iter()
        .copied()
        .filter(|&pid| process::command_line(pid).contains(&wanted))
        .collect()
}

/// After the team has ended, nothing of it is left.
pub(super) fn check_none(stage: &Stage) -> Checked {
    let mut left = stage.team.processes();
    let began = std::time::Instant::now();
    // The last one may still be on its way out: the daemon itself.
    while !left.is_empty() && began.elapsed() < std::time::Duration::from_secs(5) {
        std::thread::park_timeout(std::time::Duration::from_millis(5));
        left = stage.team.processes();
    }
    let lines: Vec<String> = left
        .iter()
        .map(|&pid| format!("{pid} {}", process::command_line(pid)))
        .collect();
    hold(left.is_empty(), || {
        format!("processes are left after the end: {lines:?}")
    })
}
