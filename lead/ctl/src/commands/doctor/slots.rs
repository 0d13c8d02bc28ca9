//! The slots of the machine: how many there are, and which commands share them.

use std::path::Path;

use teamd_shared::environment::Environment;
use teamd_shared::machine::{MachineSettings, old_make};
use teamd_shared::user_config::UserConfig;

/// Judges what the builds of a teammate share that is spawned from here.
pub(super) fn examine(of_team: &MachineSettings, environment: &Environment) -> Option<String> {
    // A mistake in the user's own configuration is told with that.
    let settings = UserConfig::machine_over(environment, *of_team);
    let Some(slots) = settings.slots() else {
        return Some("off: a setting says so".to_owned());
    };
    let all = format!("the builds of all your teams share {slots} (docs/machine.md)");
    let path = environment.path("PATH");
    // Most machines have such a make: that is no alarm.
    let without = old_make(path.as_deref().map(Path::as_os_str)).map(|make| {
        let make = make.display();
        format!(
            "; not the commands of claude, codex and agents by ACP, since {make} is older than GNU make 4.4"
        )
    });
    Some(all + &without.unwrap_or_default())
}
