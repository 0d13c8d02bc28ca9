//! Whole incarnations: one real worker, and a double of the daemon at the other end of its
//! connection.

mod crashes;
mod double;
mod incarnations;
mod plans;
mod shutdowns;
