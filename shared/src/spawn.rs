//! What the two spawners do, `teamctl spawn` and the lead agent's tool `spawn_teammate`, so that a
//! teammate is the same whichever of them spawns it: check that the user trusts `team.toml`,
//! resolve the terms and the login, use the programs that are installed, require a key and a price
//! of the model, and resolve the paths.

mod installed;
mod login;
mod on_host;
mod paths;
mod price;
mod resolve;
mod service;
mod spawn_call;
mod spawner;
mod team_files;
mod trust;

pub use installed::{installed_agent, installed_server, use_installed};
pub use login::{LoginError, resolve_login};
pub use paths::{
    RecordedPaths, can_work, folder_of_link, holds_system_programs, repository_of, resolve_paths,
};
pub use price::require_price;
pub use resolve::{SpawnRequest, model_of_key, require_key, resolve};
pub use spawn_call::SpawnCall;
pub use spawner::Spawner;
pub use team_files::{roster, state};
pub use trust::Widening;
