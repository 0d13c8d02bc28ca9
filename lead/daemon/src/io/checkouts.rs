//! Where jobs work: what is found out once, and what is found out for each job.

use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::environment::Environment;
use teamd_shared::job::GitOrder;
use teamd_shared::place::follow;
use teamd_shared::sandbox::Layers;
use teamd_shared::settings::Settings;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;

use crate::core::job::JobPlaces;

/// Says where jobs work; nothing is made.
pub(crate) fn places(dir: &TeamDir, settings: &Settings, layers: Layers) -> JobPlaces {
    let state = StateDir::of_process().ok().map(StateDir::real);
    let git = state.as_ref().map(|state| state.of_git(dir));
    let otherwise = state.as_ref().map(|state| {
        let checkouts = state.root().with_file_name("teamd.checkouts");
        checkouts.join(StateDir::name_of_team(dir))
    });
    JobPlaces {
        workspace: text(dir.workspace()),
        git: text(git.unwrap_or_default()),
        checkouts: settings.checkouts.clone(),
        otherwise: text(otherwise.unwrap_or_default()),
        settings: settings.checkout.clone(),
        environment: Environment::of_self(),
        layers,
    }
}

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

/// Resolves what a job sees of the home. A path with a link that a teammate can have
/// made is left out.
pub(crate) fn resolve_visible(order: &mut GitOrder) {
    let territory = &order.territory;
    let resolved = order.visible.iter().filter_map(|path| {
        let real = follow(Path::new(path), |link| {
            if territory.iter().any(|above| link.starts_with(above)) {
                Err(io::Error::from(io::ErrorKind::PermissionDenied))
            } else {
                Ok(())
            }
        });
        real.ok()?.into_os_string().into_string().ok()
    });
    let mut visible: Vec<String> = resolved.collect();
    visible.sort();
    visible.dedup();
    order.visible = visible;
}
