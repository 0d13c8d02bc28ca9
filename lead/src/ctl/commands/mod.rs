//! The commands of `teamctl`, one file each.

pub(super) mod answer;
pub(super) mod attach;
pub(super) mod broadcast;
pub(super) mod chat;
pub(crate) mod completions;
pub(super) mod doctor;
pub(crate) mod down;
pub(super) mod events;
pub(super) mod forget;
pub(super) mod inbox;
pub(super) mod interrupt;
pub(super) mod lint;
pub(super) mod logs;
pub(super) mod plans;
pub(super) mod request_plan;
pub(super) mod requests;
pub(super) mod run;
pub(super) mod schema;
pub(super) mod send;
pub(super) mod shutdown;
pub(super) mod spawn;
pub(super) mod status;
pub(super) mod task;
pub(super) mod transcript;
pub(super) mod up;
pub(super) mod wait;
