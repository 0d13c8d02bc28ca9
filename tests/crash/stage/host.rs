//! A host of a run: another home directory on this machine, which a stub of `ssh` reaches.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Checked, PATIENCE, Stage, Victim, Violation, hold};
use crate::far::{Far, carriers, host_daemons};
use crate::support::{is_alive, signal};
use crate::wrapper;

/// What the host is called.
pub(crate) const BOX: &str = "box";

impl Stage {
    /// Prepares the host, before the daemon of home runs.
    pub(crate) fn bring_a_host(&mut self) {
        let folder = self.scratch.join("far");
        let real = PathBuf::from(env!("CARGO_BIN_EXE_teamd"));
        let programs = match self.victim {
            Victim::Host | Victim::Link => {
                let traced = folder.join("bin");
                std::fs::create_dir_all(&traced).unwrap();
                let itself = std::env::current_exe().unwrap();
                std::os::unix::fs::symlink(itself, traced.join(wrapper::FAR)).unwrap();
                traced
            }
            _ => real.parent().unwrap().to_owned(),
        };
        let socket = self.scratch.join(wrapper::SOCKET);
        self.team.set(wrapper::FAR_SOCKET, socket.to_str().unwrap());
        self.far = Some(Far::of(&mut self.team, folder, &programs));
    }

    /// Adds the host to the team, until its link is up.
    pub(crate) fn add_the_host(&mut self) -> Checked {
        self.achieve(
            "add the host",
            |stage, _| stage.ctl(&["host", "add", BOX]),
            |_| false,
        )
        .map(drop)
    }

    /// A teammate that will live on the host.
    pub(crate) fn lives_on_the_host(&mut self, name: &'static str) {
        self.hosted.push(name);
    }

    /// Whether a teammate lives on the host.
    pub(crate) fn is_hosted(&self, name: &str) -> bool {
        self.hosted.contains(&name)
    }

    /// The teammates that live on the host.
    pub(crate) fn hosted(&self) -> &[&'static str] {
        &self.hosted
    }

    /// A file of the team directory at the host; empty if it is not there.
    pub(crate) fn host_file(&self, relative: &str) -> String {
        let dir = self.far.as_ref().and_then(|far| far.team_dir(BOX));
        let bytes = dir.and_then(|dir| std::fs::read(dir.join(relative)).ok());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    }

    /// A file of the team directory of the machine where a teammate lives.
    pub(crate) fn text_where_it_lives(&self, name: &str, relative: &str) -> String {
        if self.is_hosted(name) {
            self.host_file(relative)
        } else {
            self.team.file(relative)
        }
    }

    /// The transcript of a teammate, where it lives.
    pub(crate) fn transcript(&self, name: &str) -> Vec<Value> {
        lines_of(&self.text_where_it_lives(name, &format!("transcript/{name}.jsonl")))
    }

    /// The host daemons that run.
    pub(crate) fn host_daemons(&self) -> Vec<i32> {
        host_daemons(&self.team)
    }

    /// Cuts the link, and lets it be dialled in vain.
    pub(crate) fn cut(&mut self) -> Checked {
        self.can_be_reached(false);
        for pid in carriers(&self.team) {
            signal(pid, Signal::SIGKILL);
        }
        self.until_link("down", |state| !["up", ""].contains(&state))
    }

    /// Lets the host be reached again.
    pub(crate) fn mend(&mut self) -> Checked {
        self.can_be_reached(true);
        self.until_reached()
    }

    fn can_be_reached(&self, is_so: bool) {
        if let Some(far) = &self.far {
            far.can_be_reached(BOX, is_so);
        }
    }

    /// Waits until the link is up.
    pub(crate) fn until_reached(&mut self) -> Checked {
        self.until_link("up", |state| state == "up")
    }

    /// Waits until `host list` says so of the link.
    fn until_link(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> Checked {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            self.ensure_daemon()?;
            self.heal(began);
            let said = self.ctl(&["--json", "host", "list"])?;
            let list: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
            let state = list[0]["link"]["state"].as_str();
            if holds(state.unwrap_or_default()) {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        Err(Violation(format!(
            "waited in vain for the link to be {what}"
        )))
    }

    /// Ends the host daemon as a shutdown of that machine would, once home has ended.
    pub(crate) fn end_the_host(&self) -> Checked {
        for pid in self.host_daemons() {
            signal(pid, Signal::SIGTERM);
            let began = Instant::now();
            while is_alive(pid) && began.elapsed() < PATIENCE {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            hold(!is_alive(pid), || "the host daemon does not end".to_owned())?;
        }
        Ok(())
    }

    /// The process of a member, on whichever machine.
    pub(crate) fn process_of(member: &Value) -> Option<i32> {
        let pid = member["pid"].as_i64().or(member["host_pid"].as_i64());
        pid.and_then(|pid| i32::try_from(pid).ok())
    }

    /// A report of the link, for a failure.
    pub(super) fn end_of_host_log(&self) -> String {
        if self.hosted.is_empty() {
            return String::new();
        }
        self.host_file("log/teamd.log")
    }
}

/// The whole lines of a text.
pub(crate) fn lines_of(text: &str) -> Vec<Value> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
