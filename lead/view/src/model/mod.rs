//! What the live views show: the files of a team, followed by their events, as one model. It reads,
//! decides nothing and draws nothing; `top` and the page share it.

mod account;
mod conversation;
mod entries;
mod facts;
mod feed;
mod files;
mod follow;
mod history;
mod image;
mod journal;
mod ledger;
mod lists;
mod parts;
mod past;
mod rows;
mod sequence;
mod served;
mod side;
mod steps;
mod team;
mod timeline;

pub use account::{CostAccount, CostShare};
pub(crate) use conversation::{FollowedConversation, ImagePlace, Placed, PlacedCall};
pub(crate) use entries::{EntryReader, NewEntries};
pub use facts::member_facts;
#[cfg(test)]
pub(crate) use feed::Feed;
pub(crate) use feed::Item;
pub(crate) use follow::{Activity, Follower};
pub use history::history;
pub(crate) use image::ReadImage;
pub use image::{ImageFacts, PixelSize};
pub use journal::{JournalFollower, NewLines};
pub(crate) use ledger::SpentUsage;
pub use ledger::{ServerUse, ledger};
pub(crate) use lists::{COLUMNS, by_status, matches, pending, standing, tasks_done, tasks_failed};
pub use parts::{ConversationPart, parts};
pub(crate) use parts::{PartReader, call, line, line_and_more};
pub(crate) use past::Stand;
pub use past::{Past, TaskPast};
pub use rows::{MemberRow, rows, sort};
pub use sequence::{EVENTS, LIFELINES, Sequence, SequenceEvent};
pub(crate) use side::{SLOTS, Side};
pub use steps::{FeedStep, RequestStage, Turning};
pub(crate) use team::{OUTPUTS, SeenTeam, TeamFiles};
pub(crate) use timeline::Window;
