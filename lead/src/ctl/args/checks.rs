//! What examines the machine, the team directory and foreign files, and what a shell is told.

use clap::{Args, ValueHint};
use clap_complete::Shell;
use teamd_shared::schema::Of;

use super::value::schema;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Set right what can be set right without deleting any data, and tell each thing that was done
    ///
    /// Beside a daemon only what is not its own; without one also the journal's torn end, the roster, and what dead
    /// processes left.
    #[arg(long)]
    pub(crate) fix: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// The files; - is stdin
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<String>,
    /// What they are [default: as their names say, else messages]
    #[arg(long = "as", value_name = "WHAT")]
    pub(crate) kind: Option<LintAs>,
}

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LintAs {
    /// An inbox.
    Messages,
    /// The journal.
    Journal,
    /// config.json.
    Roster,
    /// A transcript.
    Transcript,
    /// team.toml.
    Settings,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Which one
    #[arg(value_name = "WHAT", value_parser = schema())]
    pub(crate) of: Option<Of>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}
