//! What the files of the team directory and `/proc` show. Nothing here writes, but for [`text`],
//! which notes where a text of the user is cut.

pub mod agents;
pub mod journal;
pub mod lead_mail;
pub mod localhost;
pub mod mcp;
pub mod money;
pub mod outputs;
pub mod processes;
pub mod requests;
pub mod resources;
pub mod roster;
pub mod tail;
pub mod tasks;
pub mod text;
mod top_changes;
pub mod wake;
