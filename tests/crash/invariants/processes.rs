//! No process is left that should be gone, and nobody lives twice.

use crate::stage::{Checked, Stage, hold};
use crate::support::{Team, process};

/// The workers of a teammate that live.
pub(crate) fn workers(team: &Team, name: &str) -> Vec<i32> {
    let wanted = format!(" run --name {name} ");
    team.processes().into_iter().filter(|&pid| process::command_line(pid).contains(&wanted)).collect()
}

/// While the team runs: each member that lives has one worker, the one that the roster names; each that has ended, none.
pub(super) fn check_alive(stage: &mut Stage) -> Checked {
    let members = stage.roster()["members"].as_array().cloned().unwrap_or_default();
    for member in members {
        let name = member["name"].as_str().unwrap_or_default();
        // What was started for nobody leaves by itself, as soon as it finds that out.
        let expected: Vec<i32> =
            member["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).into_iter().collect();
        let ended = stage.has_ended(name);
        let name = name.to_owned();
        let wanted = if ended { Vec::new() } else { expected };
        stage.until(&format!("the workers of {name} to be {wanted:?}"), |stage| {
            workers(&stage.team, &name) == wanted
                || stage.member(&name)["incarnation"] != member["incarnation"]
        })?;
    }
    Ok(())
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
    let lines: Vec<String> =
        left.iter().map(|&pid| format!("{pid} {}", process::command_line(pid))).collect();
    hold(left.is_empty(), || format!("processes are left after the end: {lines:?}"))
}
