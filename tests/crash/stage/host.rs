//! A host of a run: another home directory on this machine, which a stub of `ssh` reaches.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Checked, PATIENCE, Stage, Victim, hold};
use crate::support::process::command_line;
use crate::support::sshd::make_program;
use crate::support::{is_alive, signal};
use crate::wrapper;

/// What the host is called.
pub(crate) const BOX: &str = "box";

/// Runs the words in the home of that machine, unless the network is down.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
if [ -e "$FAR/down" ]; then
    echo "ssh: connect to host $1 port 22: Connection refused" >&2
    exit 255
fi
cd "$FAR/$1" || exit 1
HOME=$FAR/$1
unset XDG_DATA_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR TEAM_DIR TEAM_FILE
PATH=$FAR_BIN:$PATH
exec sh -c "$2"
"#;

impl Stage {
    /// Prepares the host, before the daemon of home runs.
    pub(crate) fn bring_a_host(&mut self) {
        let far = self.far();
        std::fs::create_dir_all(far.join(BOX)).unwrap();
        std::fs::create_dir_all(far.join("near")).unwrap();
        std::fs::create_dir_all(far.join("bin")).unwrap();
        make_program(&far.join("near/ssh"), SSH);
        let real = PathBuf::from(env!("CARGO_BIN_EXE_teamd"));
        let programs = match self.victim {
            Victim::Host | Victim::Link => {
                let wrapper = far.join("bin").join(wrapper::FAR);
                std::os::unix::fs::symlink(std::env::current_exe().unwrap(), wrapper).unwrap();
                far.join("bin")
            }
            _ => real.parent().unwrap().to_owned(),
        };
        let path = std::env::var("PATH").unwrap();
        let near = far.join("near").display().to_string();
        let socket = self.scratch.join(wrapper::SOCKET);
        self.team.set("FAR", far.to_str().unwrap());
        self.team.set("FAR_BIN", programs.to_str().unwrap());
        self.team.set("PATH", &format!("{near}:{path}"));
        self.team
            .set(wrapper::FAR_SOCKET, socket.to_str().unwrap());
    }

    fn far(&self) -> PathBuf {
        self.scratch.join("far")
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

    /// The team directory at the host, once it is there.
    pub(crate) fn host_dir(&self) -> Option<PathBuf> {
        let homes = self.far().join(BOX).join(".local/share/teamd/hosts");
        let mut homes = std::fs::read_dir(homes).ok()?.flatten();
        Some(homes.next()?.path().join(".team"))
    }

    /// A file of the team directory at the host; empty if it is not there.
    pub(crate) fn host_file(&self, relative: &str) -> String {
        let bytes = self
            .host_dir()
            .and_then(|dir| std::fs::read(dir.join(relative)).ok());
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
        let mut pids = self.team.processes();
        pids.retain(|pid| command_line(*pid).contains(" --host-of "));
        pids
    }

    /// What carries the link now: `ssh`, and what it has become.
    pub(crate) fn carriers(&self) -> Vec<i32> {
        let mut pids = self.team.processes();
        pids.retain(|pid| is_carrier(&command_line(*pid)));
        pids
    }

    /// Cuts the link, and lets it be dialled in vain.
    pub(crate) fn cut(&mut self) -> Checked {
        std::fs::File::create(self.far().join("down")).unwrap();
        for pid in self.carriers() {
            signal(pid, Signal::SIGKILL);
        }
        self.until("the link to be down", |stage| {
            stage.carriers().is_empty() && stage.link_state() != "up"
        })
    }

    /// Lets the host be reached again.
    pub(crate) fn mend(&mut self) -> Checked {
        std::fs::remove_file(self.far().join("down")).unwrap();
        self.until_reached()
    }

    /// Waits until the link is up.
    pub(crate) fn until_reached(&mut self) -> Checked {
        self.until("the link to be up", |stage| stage.link_state() == "up")
    }

    /// What `host list` says of the link; empty if nothing.
    fn link_state(&self) -> String {
        let said = self.team.teamctl(["--json", "host", "list"]);
        let list: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
        let state = list[0]["link"]["state"].as_str();
        state.unwrap_or_default().to_owned()
    }

    /// Ends the host daemon as a shutdown of that machine would, once home has ended.
    pub(crate) fn end_the_host(&self) -> Checked {
        for pid in self.host_daemons() {
            signal(pid, Signal::SIGTERM);
            let began = Instant::now();
            while is_alive(pid) && began.elapsed() < PATIENCE {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            hold(!is_alive(pid), || {
                "the host daemon does not end".to_owned()
            })?;
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

/// Tells whether a command line is that of `ssh`, or of what it becomes.
pub(crate) fn is_carrier(line: &str) -> bool {
    line.contains("teamd host ") || line.contains("/near/ssh ")
}

/// The whole lines of a text.
pub(crate) fn lines_of(text: &str) -> Vec<Value> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
