//! The commands that start, end and await teammates.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use teamd_shared::member::{MemberStatus, TermsPatch};
use teamd_shared::name::Name;

use super::value::{duration, status, teammate};

#[derive(Debug, Args)]
pub(crate) struct Spawn {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -
    #[arg(value_parser = teammate)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) terms: TermsPatch,
    /// Read the prompt from a file, or from stdin (-)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// It must submit a plan, and change nothing before the plan is approved
    #[arg(long)]
    pub(crate) plan: bool,
    /// Its commands reach no network
    #[arg(long)]
    pub(crate) no_network: bool,
    /// Who is trusted to name its model's service: platform, embedded or a FILE of certificates
    #[arg(long, value_name = "CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<String>,
    /// Go on with the conversation of its last incarnation, and read all mail that it had not read
    #[arg(long)]
    pub(crate) resume: bool,
    /// How long to wait until it is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Teammates to shut down
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) names: Vec<Name>,
    /// Shut down every teammate that runs; the lead agent stays
    #[arg(long)]
    pub(crate) all: bool,
    /// Reason, for the teammate's model to weigh
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// How long to wait [default: 120s, with --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long its model has to decide, before its runtime approves [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) decide_within: Option<Duration>,
    /// After the timeout, terminate it (SIGTERM, then SIGKILL); with `--timeout 0s` immediately
    #[arg(long)]
    pub(crate) force: bool,
    /// Return when the request is recorded
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Status to wait for (comma-separated)
    #[arg(long = "for", value_name = "STATUS", required = true, value_delimiter = ',', value_parser = status())]
    pub(crate) status: Vec<MemberStatus>,
    /// How long to wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
}
