//! End-to-end tests: the three real programs, in a hermetic directory. A module a subject.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that finds nothing fails as the test does that calls it"
)]

mod admission;
mod adopt;
mod agents;
mod approve_code;
mod at;
mod auto_start;
mod background;
mod bounded;
mod cgroups;
mod chat;
mod checkouts;
mod costs;
mod ctl;
mod ctl_acp;
mod ctl_mcp;
mod disk;
mod doctor;
mod documents;
mod drivers;
mod files;
mod follow;
mod force;
mod forms;
mod git_disk;
mod github;
mod holdups;
mod hooks;
mod hostile;
mod incarnations;
mod install;
mod integration;
mod judges;
mod known_leads;
mod lead;
mod many;
mod mcp;
mod meddling;
mod memory;
mod messages;
mod models;
mod money;
mod orders;
mod pictures;
mod plans;
mod quarantine;
mod races;
mod register;
mod replace;
mod review;
mod rotation;
mod run;
mod sandbox;
mod schemas;
mod search;
mod settings;
mod shutdown;
mod socket;
mod spawn;
mod start;
mod strangers;
mod supervision;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod texts;
mod thinking;
mod tools;
mod top;
mod trust;
mod web;
mod wire;
mod worker;
