//! Tests of the decisions: cell by cell (`table`), and in a simulated team (`sim`) that keeps what the
//! specification promises (`promises`) whoever dies and when. `mutants` tests these tests.

mod desk;
mod mutants;
mod promises;
mod sim;
mod table;
