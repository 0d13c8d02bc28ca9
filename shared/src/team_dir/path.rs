//! The paths under the team directory, and who writes each file.

use std::fmt;
use std::path::PathBuf;

use crate::id::TaskId;
use crate::name::Name;

/// The suffix of the older one of two logs.
pub(crate) const OLDER_LOG: &str = ".1";

/// A path inside the team directory. Only this module makes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TeamPath {
    pub(super) folder: Option<&'static str>,
    pub(super) file: String,
}

impl TeamPath {
    fn at(folder: &'static str, file: String) -> Self {
        Self {
            folder: Some(folder),
            file,
        }
    }

    pub(super) fn top(file: &str) -> Self {
        Self {
            folder: None,
            file: file.to_owned(),
        }
    }

    /// `journal.jsonl`: the truth. Written by the daemon alone.
    pub fn journal() -> Self {
        Self::top("journal.jsonl")
    }

    /// `journal.torn`: what a killed daemon left of its last journal line.
    pub fn journal_torn() -> Self {
        Self::top("journal.torn")
    }

    /// `host.jsonl`: what runs and has run at a host. Written by the host daemon alone.
    pub fn host() -> Self {
        Self::top("host.jsonl")
    }

    /// `host.torn`: what a killed host daemon left of its last line.
    pub fn host_torn() -> Self {
        Self::top("host.torn")
    }

    /// `config.json`: the roster. Written by the daemon alone, by rename.
    pub fn config() -> Self {
        Self::top("config.json")
    }

    /// `memory.md`: what the team remembers. Written by the daemon alone, by rename.
    pub fn memory() -> Self {
        Self::top("memory.md")
    }

    /// `.gitignore`.
    pub fn gitignore() -> Self {
        Self::top(".gitignore")
    }

    /// `inbox/NAME.jsonl`: any process appends.
    pub fn inbox(name: &Name) -> Self {
        Self::at("inbox", format!("{name}.jsonl"))
    }

    /// `inbox/NAME.rejected.jsonl`: written by the inbox's reader alone.
    pub fn rejected(name: &Name) -> Self {
        Self::at("inbox", format!("{name}.rejected.jsonl"))
    }

    /// `transcript/NAME.jsonl`: written by the worker alone; its lock is the liveness lock.
    pub fn transcript(name: &Name) -> Self {
        Self::at("transcript", format!("{name}.jsonl"))
    }

    /// `transcript/NAME.torn`: what a killed worker left of its last entry.
    pub fn transcript_torn(name: &Name) -> Self {
        Self::at("transcript", format!("{name}.torn"))
    }

    /// `log/NAME.log`, or `log/teamd.log`.
    pub fn log(name: &str) -> Self {
        Self::at("log", format!("{name}.log"))
    }

    /// Returns the files that a teammate has for itself, whether or not they are there. The
    /// inbox of the lead is not among them: it also belongs to the daemon.
    pub fn of_member(name: &Name) -> Vec<Self> {
        let inbox = [Self::inbox(name), Self::rejected(name)];
        let log = Self::log(name.as_str());
        let own = [
            Self::transcript(name),
            Self::transcript_torn(name),
            log.with_suffix(OLDER_LOG),
            log,
            Self::command_log(name),
        ];
        if *name == Name::lead() {
            own.into()
        } else {
            inbox.into_iter().chain(own).collect()
        }
    }

    /// `log/NAME.command.log`: the output of the last command that was not in the background, while
    /// it runs and after it.
    pub fn command_log(name: &Name) -> Self {
        Self::at("log", format!("{name}.command.log"))
    }

    /// `log/NAME.background-ID.log`: the kept output of a background command that has ended.
    pub fn background_log(name: &Name, id: &str) -> Self {
        Self::at("log", format!("{name}.background-{id}.log"))
    }

    /// `run/teamd.sock`: the control socket.
    pub fn socket() -> Self {
        Self::at("run", "teamd.sock".to_owned())
    }

    /// `run/teamd.pid`: for people; nothing here reads it.
    pub fn pid() -> Self {
        Self::at("run", "teamd.pid".to_owned())
    }

    /// `run/leads.json`: the programs that have led the team by a server of their own, as long as
    /// they run. Written by the daemon alone, by rename.
    pub fn leads() -> Self {
        Self::at("run", "leads.json".to_owned())
    }

    /// `run/NAME.live`: the text of the answer that a member's model is giving just now, as far as
    /// it has come. Its worker empties it when a model call begins; the whole answer is in the
    /// transcript. Nothing is lost with it.
    pub fn live(name: &Name) -> Self {
        Self::at("run", format!("{name}.live"))
    }

    /// `run/port-NAME.sock`: where programs of the user ask for what a member serves on a localhost
    /// of its own.
    pub fn localhost(name: &Name) -> Self {
        Self::at("run", format!("port-{name}.sock"))
    }

    /// `run/chat`: a chat at a terminal holds a shared `flock` on it.
    pub fn chat() -> Self {
        Self::at("run", "chat".to_owned())
    }

    /// `run/run`: `teamctl run` holds a `flock` on it, and writes there what it must end.
    pub fn run() -> Self {
        Self::at("run", "run".to_owned())
    }

    /// `run/checks`: a check that works in place, and each of its commands, holds a `flock` on it:
    /// one runs at a time.
    pub fn checks() -> Self {
        Self::at("run", "checks".to_owned())
    }

    /// `run/job-NAME`: a job for the checkout of a teammate, and each of its commands, holds a
    /// `flock` on it.
    pub fn job(name: &Name) -> Self {
        Self::at("run", format!("job-{name}"))
    }

    /// `run/setup-NAME`: the inputs with which the setup of a checkout has run. Without it the
    /// setup runs again.
    pub fn setup(name: &Name) -> Self {
        Self::at("run", format!("setup-{name}"))
    }

    /// `run/overload-SERVICE`: until when (seconds since the boot) the team does not use an
    /// overloaded service. A service is a provider at one address with one key
    /// (`anthropic-1a2b3c4d`).
    pub fn overload(service: &str) -> Self {
        Self::at("run", format!("overload-{service}"))
    }

    /// `tasks/ID.json`: a task as it is now. Written by the daemon alone, by rename.
    pub fn task(id: TaskId) -> Self {
        Self::at("tasks", format!("{id}.json"))
    }

    /// `log/task-ID.log`: the output of the check of a task. Written by the check alone.
    pub fn check_log(id: TaskId) -> Self {
        Self::at("log", format!("task-{id}.log"))
    }

    /// `archive/FILE`.
    pub fn archive(file: &str) -> Self {
        Self::at("archive", file.to_owned())
    }

    /// The same path with a suffix after its file name.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        Self {
            folder: self.folder,
            file: format!("{}{suffix}", self.file),
        }
    }

    /// Returns the folder that it lies in; none for what lies at the top.
    pub fn folder(&self) -> Option<&'static str> {
        self.folder
    }

    /// Returns the file's own name.
    pub fn file_name(&self) -> &str {
        &self.file
    }

    /// Returns the path below the team directory.
    pub fn relative(&self) -> PathBuf {
        self.folder
            .map(PathBuf::from)
            .unwrap_or_default()
            .join(&self.file)
    }
}

impl fmt::Display for TeamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.folder {
            Some(folder) => write!(f, "{folder}/{}", self.file),
            None => f.write_str(&self.file),
        }
    }
}
