//! The scenarios: what a user does with a team, with the real programs, step by step.

mod agents;
mod crashes;
mod files;
mod hosts;
mod incarnations;
mod plans;
mod shutdowns;
pub(crate) mod thinking;
pub(crate) mod work;

use crate::stage::{Checked, Stage, Victim};

/// A scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The possible victims.
    pub(crate) victims: &'static [Victim],
    /// What happens.
    pub(crate) play: fn(&mut Stage) -> Checked,
}

const ALL_VICTIMS: &[Victim] = &[Victim::Daemon, Victim::Worker, Victim::Ctl];
const NO_COMMAND: &[Victim] = &[Victim::Daemon, Victim::Worker];
const NO_WORKER: &[Victim] = &[Victim::Daemon, Victim::Ctl];
const DAEMON: &[Victim] = &[Victim::Daemon];
const AGENTS: &[Victim] = &[Victim::Daemon, Victim::Worker, Victim::Agent, Victim::Shim];

/// Tells whether a scenario with a victim is left out of a sample that does not name it: a link that
/// is dialled again takes seconds, and one that may take only so many seconds has fewer of them.
pub(crate) fn is_left_out(scenario: &str, victim: Victim, is_timed: bool) -> bool {
    let has_few = match scenario {
        "hosts" => matches!(victim, Victim::Host | Victim::Link),
        "hosts-work" | "cut" => false,
        _ => true,
    };
    let has_some = match scenario {
        "hosts-work" => matches!(victim, Victim::Daemon | Victim::Link),
        "cut" => matches!(victim, Victim::Daemon | Victim::Host),
        _ => true,
    };
    !has_some || is_timed && !has_few
}

const HOSTS: &[Victim] = &[Victim::Daemon, Victim::Worker, Victim::Host, Victim::Link];

pub(crate) const ALL: [Scenario; 34] = [
    Scenario {
        name: "start",
        victims: NO_WORKER,
        play: incarnations::start,
    },
    Scenario {
        name: "spawn",
        victims: ALL_VICTIMS,
        play: incarnations::spawn,
    },
    Scenario {
        name: "send",
        victims: ALL_VICTIMS,
        play: work::send,
    },
    Scenario {
        name: "turn",
        victims: NO_COMMAND,
        play: work::turn,
    },
    Scenario {
        name: "approve",
        victims: ALL_VICTIMS,
        play: plans::approve,
    },
    Scenario {
        name: "refuse",
        victims: ALL_VICTIMS,
        play: plans::refuse,
    },
    Scenario {
        name: "replan",
        victims: ALL_VICTIMS,
        play: plans::replan,
    },
    Scenario {
        name: "shutdown",
        victims: ALL_VICTIMS,
        play: shutdowns::shutdown,
    },
    Scenario {
        name: "reject",
        victims: ALL_VICTIMS,
        play: shutdowns::reject,
    },
    Scenario {
        name: "force",
        victims: ALL_VICTIMS,
        play: shutdowns::force,
    },
    Scenario {
        name: "respawn",
        victims: ALL_VICTIMS,
        play: incarnations::respawn,
    },
    Scenario {
        name: "resume",
        victims: ALL_VICTIMS,
        play: incarnations::resume,
    },
    Scenario {
        name: "restart",
        victims: NO_COMMAND,
        play: incarnations::restart,
    },
    Scenario {
        name: "loop",
        victims: DAEMON,
        play: crashes::crash_loop,
    },
    Scenario {
        name: "hang",
        victims: DAEMON,
        play: crashes::hang,
    },
    Scenario {
        name: "orphans",
        victims: DAEMON,
        play: incarnations::orphans,
    },
    Scenario {
        name: "adopt",
        victims: NO_COMMAND,
        play: incarnations::adopt,
    },
    Scenario {
        name: "replace",
        victims: ALL_VICTIMS,
        play: incarnations::replace,
    },
    Scenario {
        name: "handover",
        victims: ALL_VICTIMS,
        play: incarnations::handover,
    },
    Scenario {
        name: "tasks",
        victims: ALL_VICTIMS,
        play: work::tasks,
    },
    Scenario {
        name: "orders",
        victims: NO_COMMAND,
        play: work::orders,
    },
    Scenario {
        name: "integrate",
        victims: NO_COMMAND,
        play: work::integrate,
    },
    Scenario {
        name: "background",
        victims: NO_COMMAND,
        play: thinking::background,
    },
    Scenario {
        name: "delegate",
        victims: NO_COMMAND,
        play: thinking::delegate,
    },
    Scenario {
        name: "remember",
        victims: ALL_VICTIMS,
        play: thinking::remember,
    },
    Scenario {
        name: "agents",
        victims: AGENTS,
        play: agents::agents,
    },
    Scenario {
        name: "hosts",
        victims: HOSTS,
        play: hosts::hosts,
    },
    Scenario {
        name: "cut",
        victims: HOSTS,
        play: hosts::cut,
    },
    Scenario {
        name: "hosts-work",
        victims: HOSTS,
        play: hosts::work,
    },
    Scenario {
        name: "broadcast",
        victims: ALL_VICTIMS,
        play: work::broadcast,
    },
    Scenario {
        name: "all",
        victims: ALL_VICTIMS,
        play: shutdowns::all,
    },
    Scenario {
        name: "forget",
        victims: ALL_VICTIMS,
        play: incarnations::forget,
    },
    Scenario {
        name: "meddle",
        victims: DAEMON,
        play: files::meddle,
    },
    Scenario {
        name: "stop",
        victims: ALL_VICTIMS,
        play: shutdowns::stop,
    },
];
