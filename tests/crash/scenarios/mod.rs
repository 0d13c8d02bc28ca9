//! The scenarios: what a user does with a team, with the real programs, step by step.

mod crashes;
mod files;
mod lives;
mod plans;
mod shutdowns;
mod work;

use crate::stage::{Checked, Stage, Victim};

/// A scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Who can be the victim.
    pub(crate) victims: &'static [Victim],
    /// What happens.
    pub(crate) play: fn(&mut Stage) -> Checked,
}

const EVERYBODY: &[Victim] = &Victim::ALL;
const NO_COMMAND: &[Victim] = &[Victim::Daemon, Victim::Worker];
const NO_WORKER: &[Victim] = &[Victim::Daemon, Victim::Ctl];
const DAEMON: &[Victim] = &[Victim::Daemon];

pub(crate) const ALL: [Scenario; 24] = [
    Scenario { name: "start", victims: NO_WORKER, play: lives::start },
    Scenario { name: "spawn", victims: EVERYBODY, play: lives::spawn },
    Scenario { name: "send", victims: EVERYBODY, play: work::send },
    Scenario { name: "turn", victims: NO_COMMAND, play: work::turn },
    Scenario { name: "approve", victims: EVERYBODY, play: plans::approve },
    Scenario { name: "refuse", victims: EVERYBODY, play: plans::refuse },
    Scenario { name: "replan", victims: EVERYBODY, play: plans::replan },
    Scenario { name: "shutdown", victims: EVERYBODY, play: shutdowns::shutdown },
    Scenario { name: "reject", victims: EVERYBODY, play: shutdowns::reject },
    Scenario { name: "force", victims: EVERYBODY, play: shutdowns::force },
    Scenario { name: "respawn", victims: EVERYBODY, play: lives::respawn },
    Scenario { name: "resume", victims: EVERYBODY, play: lives::resume },
    Scenario { name: "restart", victims: NO_COMMAND, play: lives::restart },
    Scenario { name: "loop", victims: DAEMON, play: crashes::crash_loop },
    Scenario { name: "hang", victims: DAEMON, play: crashes::hang },
    Scenario { name: "orphans", victims: DAEMON, play: lives::orphans },
    Scenario { name: "adopt", victims: NO_COMMAND, play: lives::adopt },
    Scenario { name: "replace", victims: EVERYBODY, play: lives::replace },
    Scenario { name: "handover", victims: EVERYBODY, play: lives::handover },
    Scenario { name: "broadcast", victims: EVERYBODY, play: work::broadcast },
    Scenario { name: "everybody", victims: EVERYBODY, play: shutdowns::everybody },
    Scenario { name: "forget", victims: EVERYBODY, play: lives::forget },
    Scenario { name: "meddle", victims: DAEMON, play: files::meddle },
    Scenario { name: "stop", victims: EVERYBODY, play: shutdowns::stop },
];
