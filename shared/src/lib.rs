//! What both sides of teamd must agree on: names, paths, messages, records, the inbox, the control
//! socket. No policy, no event loop, no command line.
//!
//! The pure modules (`name`, `id`, `amount`, `message`, `request`, `member`, `journal`) import no
//! runtime, file system, clock or random source: times and ids come in as arguments.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "teamd runs on Linux only, for now: it needs pidfds, namespaces, Landlock and inotify"
);

pub mod amount;
pub mod background;
pub mod bundle;
pub mod caches;
pub mod cgroup;
pub mod check;
pub mod checkout;
pub mod clock;
pub mod config;
pub mod control;
pub mod delivery;
mod effects;
pub mod environment;
pub mod fingerprint;
pub mod free_text;
pub mod fs;
pub mod host;
#[cfg(test)]
mod hostile;
pub mod id;
pub mod image;
pub mod inbox;
pub mod installed;
pub mod job;
pub mod journal;
pub mod json;
pub mod link;
pub mod localhost;
pub mod locks;
pub mod logging;
pub mod machine;
pub mod mcp_tools;
pub mod member;
pub mod merged;
pub mod message;
pub mod message_text;
pub mod model_spec;
pub mod mutant;
pub mod name;
pub mod order;
pub mod place;
pub mod position;
pub mod price;
pub mod process;
pub mod register;
pub mod repository;
pub mod request;
pub mod sandbox;
pub mod schema;
pub mod settings;
pub mod spawn;
pub mod state;
pub mod suggest;
pub mod task;
pub mod team_dir;
pub mod team_file;
pub mod terms;
pub mod testing;
pub mod thread;
pub mod todo;
pub mod tool_set;
pub mod tools;
pub mod transcript;
pub mod unwritten;
pub mod usage;
pub mod user_config;
pub mod user_dirs;
pub mod variable;
pub mod visible;
pub mod watch;
pub mod work;
