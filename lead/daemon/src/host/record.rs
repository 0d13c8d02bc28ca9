//! `host.jsonl` as a file: loading it, and appending to it. Each record is on the disk before
//! anything follows from it.

use teamd_shared::clock;
use teamd_shared::fs::{AppendLog, AppendLogError};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::state::{HostLine, HostRecord, HostState};
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// The file with its fold.
#[derive(Debug)]
pub(super) struct HostLog {
    log: AppendLog,
    pub(super) state: HostState,
}

impl HostLog {
    /// Opens it, sets a torn last line aside, and folds the rest.
    ///
    /// # Errors
    /// [`CommandError`] if the system refuses, or there is a line that is not understood.
    pub(super) fn open(dir: &TeamDir) -> Result<Self, CommandError> {
        let opened = AppendLog::open(dir, &TeamPath::host(), &TeamPath::host_torn())?;
        if let Some(torn) = opened.torn {
            let length = torn.len();
            tracing::warn!(
                "the last line of host.jsonl was torn: {length} bytes were set aside in host.torn"
            );
        }
        let mut log = opened.log;
        let content = log
            .read_all()
            .map_err(|error| CommandError::refused("cannot read host.jsonl", &error))?;
        let mut state = HostState::default();
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let line: HostLine = serde_json::from_slice(line).map_err(|error| {
                let path = dir.path(&TeamPath::host());
                let at = index + 1;
                let message = format!("line {at} of {} is not understood: {error}", path.display());
                CommandError::new(ExitCode::Failed, message)
                    .hint("install the version of teamd that has written it, or a later one")
            })?;
            state.apply(line.record);
        }
        Ok(Self { log, state })
    }

    /// Appends a record, makes it last, and applies it.
    ///
    /// # Errors
    /// [`AppendLogError`]: then it counts for nothing.
    pub(super) fn append(&mut self, record: HostRecord) -> Result<(), AppendLogError> {
        let line = HostLine {
            at: clock::wall(),
            record,
        };
        let mut text =
            serde_json::to_vec(&line).map_err(|error| AppendLogError::Write(error.into()))?;
        text.push(b'\n');
        self.log.append(&text)?;
        self.log.sync()?;
        self.state.apply(line.record);
        Ok(())
    }
}
