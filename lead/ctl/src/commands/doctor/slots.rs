//! The slots of the machine: how many there are, and which commands share them.

use std::ffi::OsStr;
use std::path::Path;

use teamd_shared::environment::Environment;
use teamd_shared::machine::{MachineSettings, old_make, old_ninja};
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
    let path = path.as_deref().map(Path::as_os_str);
    let mut beside = Vec::new();
    if settings.tells_make() {
        beside.push(of_make(path));
    }
    // Most machines have such a make: that is no alarm.
    if let Some(make) = old_make(path) {
        let make = make.display();
        beside.push(format!(
            "not the commands of claude, codex and agents by ACP, since {make} is older than GNU make 4.4"
        ));
    }
    beside.insert(0, all);
    Some(beside.join("; "))
}

/// Says whether `make` and `ninja` take part, as a setting wants.
fn of_make(path: Option<&OsStr>) -> String {
    if let Some(make) = old_make(path) {
        let make = make.display();
        return format!("`make = true` does nothing here: {make} is older than GNU make 4.4");
    }
    match old_ninja(path) {
        Some(ninja) => {
            let ninja = ninja.display();
            format!("make too, but not {ninja}, which is older than ninja 1.13")
        }
        None => "make and ninja too".to_owned(),
    }
}
