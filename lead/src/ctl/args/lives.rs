//! What begins, ends and awaits the lives of teammates.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use teamd_shared::member::{ApproveBy, Restart, SandboxMode, Status};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;

use super::value::{
    approve_by, duration, memory, model, restart, sandbox, seconds, status, teammate, tokens,
};

#[derive(Debug, Args)]
pub(crate) struct Spawn {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -
    #[arg(value_parser = teammate)]
    pub(crate) name: Name,
    /// What it is for, such as "reviewer"
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// What it shall do first
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file, or from stdin (-)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) prompt_file: Option<PathBuf>,
    /// The model: script, anthropic:MODEL or openai:MODEL, or the provider alone [default: by the key that is set, else script]
    #[arg(long, value_name = "MODEL", value_parser = model)]
    pub(crate) model: Option<ModelSpec>,
    /// The directory to work in [default: the one that holds the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// It must submit a plan, and change nothing before the plan is approved
    #[arg(long)]
    pub(crate) plan: bool,
    /// Who answers its plans [default: person]
    #[arg(long, value_name = "WHO", value_parser = approve_by())]
    pub(crate) approve_by: Option<ApproveBy>,
    /// What its commands may write [default: workspace-write]; off: whatever you may
    #[arg(long, value_name = "MODE", value_parser = sandbox())]
    pub(crate) sandbox: Option<SandboxMode>,
    /// Its commands reach no network
    #[arg(long)]
    pub(crate) no_network: bool,
    /// A directory or file outside the workspace that its commands may write; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) writable: Vec<PathBuf>,
    /// A directory or file that its tools may not read; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) hidden: Vec<PathBuf>,
    /// How many model calls one piece of its work may take [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How many tokens one piece of its work may cost, such as 200k or 2M [default: no limit]
    #[arg(long, value_name = "N", value_parser = tokens)]
    pub(crate) max_tokens: Option<u64>,
    /// How much memory it may use, such as 2G [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// How much CPU time it may use, such as 1h [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) cpu_time: Option<u64>,
    /// How many processes its commands may have [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_procs: Option<u32>,
    /// How long one life of it may last, such as 8h: then it is asked to leave, and ended [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) max_time: Option<u64>,
    /// Who is trusted to name its model's service: platform, embedded or a FILE of certificates
    #[arg(long, value_name = "CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// When it is started again after its worker ended [default: on-failure]
    #[arg(long, value_name = "POLICY", value_parser = restart())]
    pub(crate) restart: Option<Restart>,
    /// Go on with the conversation of its last life, and read all mail that it had not read
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
    pub(crate) status: Vec<Status>,
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
