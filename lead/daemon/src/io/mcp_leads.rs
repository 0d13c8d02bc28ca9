//! The leads that are connected by MCP, as the kernel sees them: each is the process that runs a
//! server of `teamctl mcp`.

use std::io;

use rustix::fs::Dev;
use teamd_shared::control::ConnectedLead;
use teamd_shared::process::{Identity, Stat, is_gone};

/// The most processes above another one that are looked at.
const MOST_ABOVE: usize = 1000;

/// The major numbers of pseudo-terminals (`admin-guide/devices.txt` of Linux): 136 to 143.
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;

/// Describes the lead that runs a peer. It must be above the peer: no process makes another one a
/// lead.
///
/// # Errors
/// Why it is none.
pub(crate) fn of_peer(peer: &Identity, run_by: Identity) -> Result<ConnectedLead, String> {
    let is_above = descends(peer, &run_by).map_err(|error| error.to_string())?;
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
    })
}

/// Tells whether a process is below another one, or is that one.
///
/// # Errors
/// The system's error if that cannot be seen.
pub(crate) fn descends(process: &Identity, from: &Identity) -> io::Result<bool> {
    let mut pid = process.pid;
    for _ in 0..MOST_ABOVE {
        let stat = match Stat::of(pid) {
            Ok(stat) => stat,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        if pid == from.pid && stat.start_ticks == from.start_ticks {
            return Ok(true);
        }
        if stat.parent == 0 {
            return Ok(false);
        }
        pid = stat.parent;
    }
    Ok(false)
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
    fn a_process_descends_from_those_that_started_it_and_from_no_other() {
        let me = Identity::of_self().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let below = Identity::of(child.id()).unwrap();
        assert!(descends(&below, &me).unwrap() && descends(&me, &me).unwrap());
        assert!(!descends(&me, &below).unwrap());
        let reused = Identity {
            start_ticks: me.start_ticks + 1,
            ..me.clone()
        };
        assert!(!descends(&below, &reused).unwrap());
        let lead = of_peer(&below, me.clone()).unwrap();
        assert_eq!(lead.process, me);
        assert!(!lead.program.is_empty());
        assert!(of_peer(&me, below).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
