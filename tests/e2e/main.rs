//! End-to-end tests: the three real programs, in a hermetic directory. A module a subject.

#[path = "../support/mod.rs"]
mod support;
