//! GitHub, by the user's own `gh`: what is referred to, how the program is run, and how texts pass
//! between strangers and models.
//!
//! Only a person's command does this. `gh` runs as the user's child with the user's login; no
//! teammate reaches it, and nothing that a teammate can write is run in its place.

mod child;
mod program;
mod quoted;
mod reference;

pub(crate) use child::UserProgram;
pub(crate) use program::Gh;
pub(crate) use quoted::{fenced, harmless, quoted};
pub(crate) use reference::{PREFIX, Reference, Repository, source_of};
