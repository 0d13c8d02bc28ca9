//! A conversation: its files are followed, and what is new in them becomes text.

pub(super) mod view;
