//! The leads that are connected by MCP, as the kernel sees them: each is the process that runs a
//! server of `teamctl mcp`.

use rustix::fs::Dev;
use teamd_shared::control::ConnectedLead;
use teamd_shared::process::{Identity, Stat};

use crate::core::caller::ReplyTo;

/// The major numbers of pseudo-terminals (`admin-guide/devices.txt` of Linux): 136 to 143.
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;

/// Describes the lead that runs a peer. It must be above the peer: no process makes another one a
/// lead.
///
/// # Errors
/// Why it is none.
pub(crate) fn of_peer(peer: &Identity, run_by: Identity) -> Result<ConnectedLead, String> {
    let is_above = peer.descends_from(&run_by);
    let is_above = is_above.map_err(|error| error.to_string())?;
    if !is_above {
        return Err(format!(
            "process {} does not run process {}",
            run_by.pid, peer.pid
        ));
    }
    let pid = run_by.pid;
    let program = std::fs::read(format!("/proc/{pid}/comm")).map_err(|error| error.to_string())?;
    Ok(ConnectedLead {
        program: String::from_utf8_lossy(&program).trim_end().to_owned(),
        terminal: terminal(pid),
        process: run_by,
        read: None,
    })
}

/// Returns the lead that runs a process. Where that cannot be seen, it is taken to be any of them: an
/// answer of a person can be given again.
pub(crate) fn above<'l>(
    process: &Identity,
    leads: &'l [ConnectedLead],
) -> Option<&'l ConnectedLead> {
    leads
        .iter()
        .find(|lead| process.descends_from(&lead.process).unwrap_or(true))
}

/// How many of the processes that run a command are described.
const MOST_DESCRIBED: usize = 3;

/// Describes a process, and those that run it: program, pid and terminal. The program of a command
/// is always ours; what tells a person from a program is what runs it.
pub(crate) fn described(process: &Identity) -> String {
    let mut described = shown(process.pid);
    let mut pid = process.pid;
    for _ in 0..MOST_DESCRIBED {
        let above = Stat::of(pid).map_or(0, |stat| stat.parent);
        if above <= 1 {
            break;
        }
        described.push_str(&format!(", run by {}", shown(above)));
        pid = above;
    }
    described
}

fn shown(pid: u32) -> String {
    let program = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let program = String::from_utf8_lossy(&program);
    let program = program.trim_end().escape_default();
    match terminal(pid) {
        Some(terminal) => format!("{program} (pid {pid}, {terminal})"),
        None => format!("{program} (pid {pid}, no terminal)"),
    }
}

/// What this run of the daemon knows of a lead that is connected.
#[derive(Debug)]
struct LeadRecord {
    process: Identity,
    /// How far it has got the lead's inbox, as a place in it.
    read: Option<u64>,
    /// The command that waits until something comes for it.
    waiting: Option<ReplyTo>,
}

/// What this run of the daemon knows of the leads that are connected. Nothing in here is decided
/// on, and none of it is kept: a server says it again.
#[derive(Debug, Default)]
pub(crate) struct LeadRecords(Vec<LeadRecord>);

impl LeadRecords {
    fn of(&mut self, process: &Identity) -> &mut LeadRecord {
        let known = self.0.iter().position(|lead| lead.process == *process);
        let at = known.unwrap_or_else(|| {
            self.0.push(LeadRecord {
                process: process.clone(),
                read: None,
                waiting: None,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Returns how far a lead has got its inbox.
    pub(crate) fn read(&self, process: &Identity) -> Option<u64> {
        let lead = self.0.iter().find(|lead| lead.process == *process)?;
        lead.read
    }

    /// Records it. Returns whether that was not known.
    pub(crate) fn record_read(&mut self, process: &Identity, place: u64) -> bool {
        self.of(process).read.replace(place) != Some(place)
    }

    /// Lets a command wait for a lead. Returns the one that has waited until now.
    pub(crate) fn let_wait(&mut self, process: &Identity, client: ReplyTo) -> Option<ReplyTo> {
        self.of(process).waiting.replace(client)
    }

    /// Forgets the leads that are not connected any more, and what waits on a closed connection.
    /// Returns the commands that wait for a lead that is gone.
    pub(crate) fn retain(&mut self, connected: &[ConnectedLead], closed: u64) -> Vec<ReplyTo> {
        let mut left = Vec::new();
        for lead in &mut self.0 {
            lead.waiting = lead.waiting.filter(|client| client.connection != closed);
            if !connected.iter().any(|it| it.process == lead.process) {
                left.extend(lead.waiting.take());
            }
        }
        self.0
            .retain(|lead| connected.iter().any(|it| it.process == lead.process));
        left
    }
}

/// Returns the terminal of a process, if it has one.
fn terminal(pid: u32) -> Option<String> {
    let device: Dev = Stat::of(pid).ok()?.terminal.into();
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    match major {
        _ if PSEUDO_TERMINALS.contains(&major) => {
            let number = (major - PSEUDO_TERMINALS.start()) * 256 + minor;
            Some(format!("/dev/pts/{number}"))
        }
        4 => Some(format!("/dev/tty{minor}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_waits_for_a_lead_and_as_long_as_the_lead_is_connected() {
        let process = Identity::of_self().unwrap();
        let lead = of_peer(&process, process.clone()).unwrap();
        let client = |connection| ReplyTo {
            connection,
            tag: 1,
            agent: false,
        };
        let mut records = LeadRecords::default();
        assert!(records.record_read(&process, 7) && !records.record_read(&process, 7));
        assert_eq!(records.read(&process), Some(7));
        assert_eq!(records.let_wait(&process, client(1)), None);
        assert_eq!(records.let_wait(&process, client(2)), Some(client(1)));
        let connected = [lead];
        assert_eq!(records.retain(&connected, 1), []);
        assert_eq!(records.retain(&[], 3), [client(2)]);
        assert_eq!(records.read(&process), None);
        records.let_wait(&process, client(4));
        assert_eq!(records.retain(&connected, 4), []);
        assert_eq!(records.retain(&[], 5), []);
    }

    #[test]
    fn a_process_descends_from_those_that_started_it_and_from_no_other() {
        let me = Identity::of_self().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let below = Identity::of(child.id()).unwrap();
        assert!(below.descends_from(&me).unwrap() && me.descends_from(&me).unwrap());
        assert!(!me.descends_from(&below).unwrap());
        let reused = Identity {
            start_ticks: me.start_ticks + 1,
            ..me.clone()
        };
        assert!(!below.descends_from(&reused).unwrap());
        let lead = of_peer(&below, me.clone()).unwrap();
        assert_eq!(lead.process, me);
        assert!(!lead.program.is_empty());
        let text = described(&below);
        let ours = format!(", run by {}", shown(me.pid));
        assert!(
            text.starts_with("sleep (pid ") && text.contains(&ours),
            "{text}"
        );
        assert!(of_peer(&me, below).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
