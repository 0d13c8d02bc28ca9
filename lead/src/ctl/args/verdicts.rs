//! The arguments of the commands about plans.

use std::time::Duration;

use clap::Args;
use teamd_shared::name::Name;

use super::value::duration;

#[derive(Debug, Args)]
pub(crate) struct Verdict {
    /// Plan: its id, or the beginning of it
    pub(crate) id: String,
    /// Feedback for the teammate; - reads it from stdin
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) feedback: String,
}

#[derive(Debug, Args)]
pub(crate) struct RequestPlan {
    /// Teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Instructions for the plan; - reads them from stdin
    #[arg(default_value = "Submit a plan before you change anything else.", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// How long to wait for running commands to finish
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}
