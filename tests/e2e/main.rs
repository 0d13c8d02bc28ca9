//! End-to-end tests: the three real programs, in a hermetic directory. A module a subject.
#![expect(clippy::unwrap_used, reason = "a helper that finds nothing fails as the test does that calls it")]

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
