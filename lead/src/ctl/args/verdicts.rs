//! What is decided about plans.

use std::time::Duration;

use clap::Args;
use teamd_shared::name::Name;

use super::value::duration;

#[derive(Debug, Args)]
pub(crate) struct Verdict {
    /// The plan: its id, or the beginning of it
    pub(crate) id: String,
    /// What to mind, or what to change; - reads it from stdin
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
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// What the plan shall be about; - reads it from stdin
    #[arg(default_value = "Submit a plan before you change anything else.", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// How long to wait until nothing that began before runs any more
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}
