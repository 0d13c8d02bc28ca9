//! What the daemon touches: one file for each owner of a resource. Nothing is decided here.

pub(crate) mod approve_codes;
pub(crate) mod cgroup;
pub(crate) mod checkouts;
pub(crate) mod connections;
pub(crate) mod copies;
pub(crate) mod effects;
pub(crate) mod hooks;
pub(crate) mod jobs;
pub(crate) mod journal;
pub(crate) mod known_leads;
pub(crate) mod lead_inbox;
pub(crate) mod links;
pub(crate) mod lock;
pub(crate) mod mail_relay;
pub(crate) mod mcp_leads;
pub(crate) mod memory_file;
pub(crate) mod orphans;
mod peer;
pub(crate) mod reaper;
pub(crate) mod resources;
pub(crate) mod roster_file;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod ssh;
pub(crate) mod task_files;
pub(crate) mod transfer;
pub(crate) mod workers;
