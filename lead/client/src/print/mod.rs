//! What a person or a program reads: where it is printed, and how records, numbers, times and tables
//! become text. Only `output` prints.

pub mod clock;
pub mod escape;
pub mod grouping;
pub mod output;
pub mod render;
pub mod style;
pub mod table;
pub mod task;
pub mod tokens;
