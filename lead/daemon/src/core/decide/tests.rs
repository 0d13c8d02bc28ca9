//! Tests of the decisions: cell by cell (`table`), and in a simulated team (`sim`) that keeps what
//! the specification promises (`promises`) whichever process dies, and when. `mutants` tests these
//! tests.

mod harness;
mod mutants;
mod promises;
mod sim;
mod table;
