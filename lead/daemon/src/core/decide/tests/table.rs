//! The decisions, cell by cell.

mod agent;
mod branches;
mod ends;
mod hosts;
mod imports;
mod ladder;
mod members;
mod memory;
mod offers;
mod plans;
mod reviews;
mod silence;
mod workers;
