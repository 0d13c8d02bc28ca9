//! One command on its way from the worker through shim and sandbox init to `bash`. Workspace and
//! command are on the command lines, where people see them in the list of processes. All else is in
//! a file in memory: other users can read command lines, and one argument holds at most 128 KiB.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use teamd_shared::environment::Environment;
use teamd_shared::member::{Bounds, Gate};

use crate::Policy;
use crate::localhost::entry::LocalhostEntry;
use crate::variables::Variables;

/// How a command is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShimOrder {
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// What its processes may use.
    pub bounds: Bounds,
    /// What it may do; none: all that the user may.
    pub policy: Option<Policy>,
    /// What runs the command.
    pub program: ShimProgram,
    /// The listeners of its gateway, in a network namespace of its own.
    pub listen: Option<Listen>,
    /// The descriptors of its jobserver, which the command itself inherits.
    pub jobserver: Vec<i32>,
    /// The localhost of the incarnation, if the command shares that.
    pub localhost: Option<LocalhostEntry>,
}

/// What runs a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ShimProgram {
    /// `bash`.
    #[default]
    Bash,
    /// An agent: the command says only what it is.
    Agent(AgentOrder),
    /// Our own program with these arguments, the first of which is a hidden subcommand: the command
    /// says only what it is.
    Own(Vec<String>),
}

impl ShimOrder {
    /// Returns the agent that it is, if it is one.
    pub(crate) fn agent(&self) -> Option<&AgentOrder> {
        match &self.program {
            ShimProgram::Agent(agent) => Some(agent),
            ShimProgram::Bash | ShimProgram::Own(_) => None,
        }
    }
}

/// How a whole agent is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentOrder {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its gate when it begins, where that can change while it runs: then the policy is that of an
    /// open gate.
    pub live_gate: Option<Gate>,
}

/// The listeners of a gateway: made in the network namespace of the command, and handed out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The descriptor of the socket by which they are handed out.
    pub(crate) channel: i32,
    /// Their ports.
    pub(crate) ports: Vec<u16>,
}

/// A command with all that it needs.
#[derive(Debug)]
pub struct ShimJob {
    pub(crate) order: ShimOrder,
    pub(crate) variables: Variables,
    /// Where the command begins.
    pub(crate) workspace: PathBuf,
    pub(crate) command: OsString,
    /// The order as one line of JSON, and the variables behind it.
    file: File,
    /// What the order names by number; the shim and the sandbox init inherit it.
    pub handed_on: Vec<OwnedFd>,
}

impl ShimJob {
    /// Makes a job. Its variables are those of the environment, and where its temporary directory
    /// is.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(
        order: ShimOrder,
        environment: &Environment,
        workspace: &Path,
        command: &OsStr,
    ) -> io::Result<Self> {
        let variables = Variables::of(environment.variables());
        let variables = match &order.policy {
            Some(policy) => variables.with("TMPDIR", policy.temp_inside().as_os_str()),
            None => variables,
        };
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
        let mut line = serde_json::to_vec(&order)?;
        line.push(b'\n');
        file.write_all(&[&line, variables.as_bytes()].concat())?;
        Ok(Self {
            order,
            variables,
            workspace: workspace.into(),
            command: command.into(),
            file,
            handed_on: Vec::new(),
        })
    }

    /// Takes the job that this process was started with, under a hidden subcommand.
    ///
    /// # Errors
    /// Why there is none. Fits behind "error: ".
    pub(crate) fn inherited(subcommand: &str) -> Result<Self, String> {
        let arguments: Vec<_> = std::env::args_os()
            .skip_while(|argument| argument != subcommand)
            .collect();
        Self::from_arguments(&arguments)
    }

    fn from_arguments(arguments: &[OsString]) -> Result<Self, String> {
        let [_, descriptor, workspace, command] = arguments else {
            return Err("a descriptor, a workspace and a command are wanted".to_owned());
        };
        let job = Self::read(descriptor, workspace, command);
        job.map_err(|error| format!("cannot read what is to be run: {error}"))
    }

    fn read(descriptor: &OsStr, workspace: &OsStr, command: &OsStr) -> io::Result<Self> {
        let file = File::open(Path::new("/proc/self/fd").join(descriptor))?;
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes)?;
        let end = bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(bytes.len());
        let order = serde_json::from_slice(&bytes[..end])?;
        let variables = Variables::from_bytes(bytes.get(end + 1..).unwrap_or_default());
        Ok(Self {
            order,
            variables,
            workspace: workspace.into(),
            command: command.to_owned(),
            file,
            handed_on: Vec::new(),
        })
    }

    /// Returns the descriptors that the shim and the sandbox init are handed it on with.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let channel = self.order.listen.as_ref().map(|listen| listen.channel);
        let mut descriptors = vec![self.file.as_raw_fd()];
        descriptors.extend(channel);
        descriptors.extend(&self.order.jobserver);
        descriptors
    }

    /// Returns this very program, even if another one is at its path by now, under a hidden
    /// subcommand. It runs outside of the sandbox, so nothing that a command can write or ask for
    /// changes how it begins.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn program(&self, subcommand: &str) -> io::Result<Command> {
        let mut program = Command::new("/proc/self/exe");
        // For `ps`: it is started by a path in `/proc`.
        program.arg0("team-worker");
        #[cfg(test)]
        program.args(super::tests::AS_PROGRAM);
        self.put_on(&mut program, subcommand)?;
        Ok(program)
    }

    /// Puts the job on the command line of this program, which inherits its file: until it is
    /// started, nothing else is.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn put_on(&self, program: &mut Command, subcommand: &str) -> io::Result<()> {
        let handed_on = self.handed_on.iter().map(AsFd::as_fd);
        for descriptor in [self.file.as_fd()].into_iter().chain(handed_on) {
            rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        program
            .args([subcommand, &self.file.as_raw_fd().to_string()])
            .arg(&self.workspace)
            .arg(&self.command);
        program.env_clear().current_dir("/");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Hidden;
    use crate::policy::tests::plain_policy;

    fn taken(arguments: &[&str]) -> Result<ShimJob, String> {
        ShimJob::from_arguments(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_job_is_taken_as_it_was_given() {
        let order = ShimOrder {
            timeout: Some(Duration::from_millis(250)),
            ..ShimOrder::default()
        };
        let environment = Environment {
            variables: vec![(b"A".to_vec(), b"x\ny".to_vec())],
            ..Environment::default()
        };
        let job = ShimJob::new(
            order.clone(),
            &environment,
            Path::new("/w"),
            "--log".as_ref(),
        )
        .unwrap();
        for _ in 0..2 {
            let taken = taken(&["shim", &job.file.as_raw_fd().to_string(), "/w", "--log"]).unwrap();
            assert_eq!(
                (taken.order, taken.variables),
                (order.clone(), job.variables.clone())
            );
            assert_eq!(
                (taken.workspace, taken.command),
                (job.workspace.clone(), job.command.clone())
            );
        }
    }

    #[test]
    fn a_job_may_be_longer_than_an_argument() {
        let policy = Policy {
            hidden: (0..10_000)
                .map(|number| Hidden {
                    path: format!("/home/u/private/{number}").into(),
                    is_of_team: false,
                })
                .collect(),
            ..plain_policy()
        };
        let order = ShimOrder {
            policy: Some(policy),
            ..ShimOrder::default()
        };
        let job = ShimJob::new(
            order.clone(),
            &Environment::default(),
            Path::new("/w"),
            "ls".as_ref(),
        )
        .unwrap();
        assert!(job.file.metadata().unwrap().len() > 128 << 10);
        assert_eq!(
            taken(&["init", &job.file.as_raw_fd().to_string(), "/w", "ls"])
                .unwrap()
                .order,
            order
        );
    }

    #[test]
    fn what_is_no_job_is_an_error() {
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(b"{}\n").unwrap();
        let empty = file.as_raw_fd().to_string();
        for arguments in [
            &["shim"][..],
            &["shim", "3", "/"],
            &["shim", "soon", "/", "ls"],
            &["shim", &empty, "/", "ls"],
        ] {
            assert!(taken(arguments).is_err(), "{arguments:?}");
        }
    }
}
