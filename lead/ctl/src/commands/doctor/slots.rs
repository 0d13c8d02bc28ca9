//! The slots of the machine: how many there are, and which commands share them.

use std::path::Path;

use teamd_shared::environment::Environment;
use teamd_shared::machine::{MachineSettings, old_make};
use teamd_shared::user_config::UserConfig;

use super::finding::DoctorCheck;

/// Judges what the builds of a teammate share that is spawned from here.
pub(super) fn examine(
    check: &mut DoctorCheck,
    of_team: &MachineSettings,
    environment: &Environment,
) -> Option<String> {
    // A mistake in the user's own configuration is told with that.
    let of_user = UserConfig::load(|name| environment.path(name).map(Into::into))
        .map(|config| config.machine)
        .unwrap_or_default();
    let Some(slots) = of_user.over(*of_team).slots() else {
        return Some("off: a setting says so".to_owned());
    };
    let path = environment.path("PATH");
    if let Some(make) = old_make(path.as_deref().map(Path::as_os_str)) {
        check.note(
            format!("{} is older than GNU make 4.4", make.display()),
            "the commands of claude, codex and agents by ACP take no slots: they build as without teamd",
            "GNU make 4.4 or newer in its place",
        );
    }
    Some(format!(
        "the builds of all your teams share {slots} (docs/machine.md)"
    ))
}
