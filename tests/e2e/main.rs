//! End-to-end tests: the three real programs, in a hermetic directory. A module a subject.

#[path = "../support/mod.rs"]
mod support;
mod adopt;
mod ctl;
mod follow;
mod force;
mod hostile;
mod lives;
mod messages;
mod plans;
mod quarantine;
mod races;
mod shutdown;
mod start;
mod tools;
mod wire;
