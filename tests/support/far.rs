//! Other machines of a test: other home directories on this one, which a stub of `ssh` reaches.

use std::path::{Path, PathBuf};

use crate::support::Team;
use crate::support::process::command_line;
use crate::support::sshd::make_program;

/// Runs the words in the home of that machine, unless it cannot be reached.
const STUB: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
if [ -e "$FAR/$1.down" ]; then
    echo "ssh: connect to host $1 port 22: Connection refused" >&2
    exit 255
fi
mkdir -p "$FAR/$1"
cd "$FAR/$1" || exit 1
HOME=$FAR/$1
unset XDG_DATA_HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR TEAM_DIR TEAM_FILE
PATH=$FAR_BIN:$PATH
exec sh -c "$2"
"#;

/// The machines that a team reaches.
pub(crate) struct Far {
    folder: PathBuf,
}

impl Far {
    /// Lets everything that a team starts from now on reach machines whose homes lie in a folder.
    /// `programs`: where `teamd` is there.
    pub(crate) fn of(team: &mut Team, folder: PathBuf, programs: &Path) -> Self {
        let near = folder.join("near");
        std::fs::create_dir_all(&near).unwrap();
        make_program(&near.join("ssh"), STUB);
        let path = std::env::var("PATH").unwrap();
        team.set("FAR", folder.to_str().unwrap());
        team.set("FAR_BIN", programs.to_str().unwrap());
        team.set("PATH", &format!("{}:{path}", near.display()));
        Self { folder }
    }

    /// The home directory of a machine.
    fn home(&self, host: &str) -> PathBuf {
        self.folder.join(host)
    }

    /// The team directory at a machine, once it is there.
    pub(crate) fn team_dir(&self, host: &str) -> Option<PathBuf> {
        let homes = self.home(host).join(".local/share/teamd/hosts");
        let mut homes = std::fs::read_dir(homes).ok()?.flatten();
        Some(homes.next()?.path().join(".team"))
    }

    /// Lets a machine be reached or not. What is connected stays.
    pub(crate) fn can_be_reached(&self, host: &str, is_so: bool) {
        let down = self.folder.join(format!("{host}.down"));
        if is_so {
            std::fs::remove_file(down).unwrap();
        } else {
            std::fs::File::create(down).unwrap();
        }
    }
}

/// The host daemons that run, of all machines of a team.
pub(crate) fn host_daemons(team: &Team) -> Vec<i32> {
    with_line(team, |line| line.contains(" --host-of "))
}

/// What carries the links now: `ssh`, and what it has become.
pub(crate) fn carriers(team: &Team) -> Vec<i32> {
    with_line(team, is_carrier)
}

/// Tells whether a command line is that of `ssh`, or of what it becomes.
pub(crate) fn is_carrier(line: &str) -> bool {
    line.contains("teamd host ") || line.contains("/near/ssh ")
}

fn with_line(team: &Team, wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let mut pids = team.processes();
    pids.retain(|pid| wanted(&command_line(*pid)));
    pids
}
