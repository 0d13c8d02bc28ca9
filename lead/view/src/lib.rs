//! What people look at: the chat, the full-screen view and the page.
//!
//! All three show the same model, which follows the files of the team directory, and give the same
//! orders (`act`). None uses another one; what the first two share at a terminal is in `terminal`.

mod act;
pub mod chat;
mod markdown;
pub mod model;
mod terminal;
pub mod top;
pub mod web;
