//! Asking for commands and checks whether they may begin. They begin where the settings or the
//! machine do not allow to ask.

use std::io;

use teamd_shared::machine::admission_file;
use teamd_worker_slots::{AdmissionKind, AdmissionTicket, Admissions};

use super::{Runner, RunnerConfig};

impl Runner {
    /// Asks whether a command or check may begin; none: it begins, and does not count.
    pub fn ask(&self, kind: AdmissionKind) -> Option<AdmissionTicket> {
        let admissions = self.admissions.get_or_init(|| {
            open(&self.config).unwrap_or_else(|error| {
                tracing::warn!("commands are not held back for memory: {error}");
                None
            })
        });
        admissions
            .as_ref()?
            .ask(kind)
            .inspect_err(|error| tracing::warn!("a command is not held back for memory: {error}"))
            .ok()
    }
}

/// Opens the queue of the user; none if the settings say so.
fn open(config: &RunnerConfig) -> io::Result<Option<Admissions>> {
    let Some(rules) = config.machine.admission() else {
        return Ok(None);
    };
    let file = admission_file(&config.environment, &rules)?;
    let own = config.cgroup.as_ref().map(|it| it.folder().to_owned());
    Admissions::open(&file, rules, own).map(Some)
}
