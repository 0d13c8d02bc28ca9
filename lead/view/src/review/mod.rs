//! One review: what was to be done, its check, what it cost, and the whole of what it changes.
//! `teamctl review` shows it on the screen, `teamctl diff` and the question of `teamctl approve`
//! share its summary and its colours.

mod changes;
mod colours;
mod draw;
mod keys;
mod print;
mod read;
mod rows;
mod run;
mod screen;

pub use changes::{ChangedFile, Changes, DiffLine, FileChange, Hunk, LineKind};
pub(crate) use colours::{Sample, loading};
pub use print::{coloured, overview};
pub use read::{Commits, Reviewed};
pub use run::run;
pub(crate) use screen::{ReviewScreen, ReviewWish};
