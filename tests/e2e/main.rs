//! End-to-end tests: the three real programs, in a hermetic directory. A module a subject.

#[path = "../support/mod.rs"]
mod support;
mod force;
mod messages;
mod plans;
mod quarantine;
mod shutdown;
mod tools;
mod adopt;
mod hostile;
mod lives;
mod start;
