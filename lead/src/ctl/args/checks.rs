//! The arguments of the commands that check: `doctor`, `lint`, `schema`, `completions`.

use clap::{Args, ValueHint};
use clap_complete::Shell;
use teamd_shared::schema::Of;

use super::value::schema;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Repair what can be repaired without deleting data, and list every change
    ///
    /// While a daemon runs, its own files are left alone. Without a daemon, this also repairs a torn end of the journal and
    /// the roster, and cleans up after dead processes.
    #[arg(long)]
    pub(crate) fix: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Files to check; - reads stdin
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<String>,
    /// Kind of the files [default: by their names, else messages]
    #[arg(long = "as", value_name = "WHAT")]
    pub(crate) kind: Option<LintAs>,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LintAs {
    /// An inbox
    Messages,
    /// journal.jsonl
    Journal,
    /// config.json
    Roster,
    /// A transcript
    Transcript,
    /// team.toml
    Settings,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// File or output to describe
    #[arg(value_name = "WHAT", value_parser = schema())]
    pub(crate) of: Option<Of>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    pub(crate) shell: Shell,
}
