//! What the live views show: the files of a team, followed by their events, as one model. It reads,
//! decides nothing and draws nothing; `top` and the page share it.

mod account;
mod conversation;
mod entries;
mod feed;
mod files;
mod history;
mod journal;
mod ledger;
mod lists;
mod parts;
mod past;
mod rows;
mod sequence;
mod side;
mod steps;
mod team;
mod timeline;

pub(super) use account::{Account, Share};
pub(super) use conversation::{Conversation, Placed};
pub(super) use entries::{EntryReader, NewEntries};
#[cfg(test)]
pub(super) use feed::Feed;
pub(super) use feed::Item;
pub(super) use history::history;
pub(super) use journal::{JournalFollower, NewLines};
pub(super) use ledger::{Spent, ledger};
pub(super) use lists::{COLUMNS, by_status, matches, pending, standing, tasks_done};
pub(super) use parts::{Part, Parts, line, line_and_more, parts};
pub(super) use past::{Past, Span, Stand, TaskPast};
pub(super) use rows::{Row, rows, sort};
pub(super) use sequence::{EVENTS, Event, LIFELINES, Sequence};
pub(super) use side::{SLOTS, Side};
pub(super) use steps::{Stage, Step, Turning};
pub(super) use team::{Seen, TeamFiles};
pub(super) use timeline::Window;
