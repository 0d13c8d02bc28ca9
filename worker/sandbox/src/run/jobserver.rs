//! The jobservers of commands. A command runs without one where the settings or the machine do not
//! allow it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use teamd_shared::environment::Environment;
use teamd_shared::machine::{Form, MachineSettings, slots_file};
use teamd_shared::team_dir::DIR_MODE;
use teamd_worker_slots::{Lease, Slots};

use super::Runner;
use crate::Policy;
use crate::caches::Keeps;

/// Makes the folder of the slots. Comes before it is found out what is hidden from commands: a
/// command that could open the slots could lock them all.
///
/// # Errors
/// The system's error.
pub(super) fn make_folder(environment: &Environment) -> io::Result<()> {
    match slots_file(environment)?.parent() {
        Some(folder) => DirBuilder::new()
            .recursive(true)
            .mode(DIR_MODE)
            .create(folder),
        None => Ok(()),
    }
}

/// Opens the slots of the user; none if the settings say so.
fn open(settings: &MachineSettings, environment: &Environment) -> io::Result<Option<Slots>> {
    let Some(slots) = settings.slots() else {
        return Ok(None);
    };
    let file = slots_file(environment)?;
    let path = environment.path("PATH");
    let path = path.as_deref().map(Path::as_os_str);
    let slots = Slots::open(&file, slots, path)?;
    Ok(Some(if settings.tells_make() {
        slots.telling_make()
    } else {
        slots
    }))
}

impl Runner {
    /// Makes the jobserver of a command with this policy, if it gets one. Must be called within the
    /// runtime.
    pub(super) fn lease(&self, policy: Option<&Policy>) -> Option<Lease> {
        let slots = self.slots()?;
        let temp = self.places.temp.path.as_path();
        let inside = policy.map_or(temp, Policy::temp_inside);
        slots
            .lease(temp, inside)
            .inspect_err(|error| tracing::warn!("a command has no jobserver: {error}"))
            .ok()
    }

    /// Makes the jobserver of an agent with this policy, if it gets one: agents hand no descriptors
    /// on to their commands. Must be called within the runtime.
    pub fn lease_of_agent(&self, policy: Option<&Policy>) -> Option<Lease> {
        let slots = self.slots()?;
        if slots.form() == Form::Descriptors {
            return None;
        }
        self.lease(policy)
    }

    fn slots(&self) -> Option<&Slots> {
        if matches!(self.config.keeps, Keeps::Nothing) {
            // Our own `git` builds nothing.
            return None;
        }
        let slots = self.slots.get_or_init(|| {
            open(&self.config.machine, &self.config.environment).unwrap_or_else(|error| {
                tracing::warn!("commands have no jobserver: {error}");
                None
            })
        });
        slots.as_ref()
    }
}
