//! What people look at: the chat, the full-screen view, the page, and an editor that speaks ACP.
//!
//! All four show the same model, which follows the files of the team directory, and give the same
//! orders (`act`). None uses another one, but `acp` reaches its agent as the chat does; what the
//! first two share at a terminal is in `terminal`.

pub mod acp;
mod act;
pub mod chat;
mod codes;
mod markdown;
pub mod model;
pub mod port;
pub mod review;
mod terminal;
pub mod top;
pub mod web;
