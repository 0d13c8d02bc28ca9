//! One review: what was to be done, its check, what it cost, and the whole of what it changes.
//! `teamctl review` shows it on the screen, `teamctl diff` and the question of `teamctl approve`
//! share its summary and its colours.

mod changes;
mod colours;
mod comments;
mod draw;
mod keys;
mod print;
mod read;
mod rows;
mod run;
mod screen;

pub(crate) use changes::shown;
pub use changes::{ChangedFile, Changes, DiffLine, FileChange, Hunk, LineKind};
pub(crate) use colours::{Colours, Sample, load_grammars, loading};
pub(crate) use comments::{LineComment, feedback};
pub use print::{coloured, overview};
pub(crate) use read::summary;
pub use read::{Commits, Reviewed};
pub use run::run;
pub(crate) use screen::{ReviewScreen, ReviewWish};
