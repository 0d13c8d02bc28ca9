//! The decisions, cell by cell.

mod ends;
mod ladder;
mod people;
mod plans;
mod workers;
