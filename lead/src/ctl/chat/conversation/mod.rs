//! A conversation: its files are followed, and what is new in them becomes text.

pub(super) mod answer;
pub(super) mod follow;
pub(in crate::ctl) mod markdown;
pub(super) mod view;
