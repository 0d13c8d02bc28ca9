//! What a person types: a line, and what it means: words, commands, answers to the question about a
//! plan.

pub(crate) mod commands;
pub(super) mod complete;
pub(super) mod history;
pub(super) mod line;
pub(super) mod mention;
pub(super) mod question;
