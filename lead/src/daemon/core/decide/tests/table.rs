//! The decisions, cell by cell.

mod agent;
mod ends;
mod ladder;
mod people;
mod plans;
mod silence;
mod workers;
