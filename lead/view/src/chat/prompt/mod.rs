//! What a person means by a line: words, commands, answers to the question about a plan.

pub(super) mod commands;
pub(super) mod complete;
pub(super) mod mention;
pub(super) mod question;
