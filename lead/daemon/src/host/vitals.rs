//! What this machine has to give. It is measured when home asks, in a thread: the question to logind
//! takes its time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use teamd_shared::checkout::Checkout;
use teamd_shared::host::{HostVitals, MOST_CHECKOUTS};
use teamd_shared::machine::memory::{limited_cgroups, of_cgroup, of_machine, stalled};

use super::daemon::HostDaemon;
use crate::io::input::Input;

impl HostDaemon {
    /// Has the machine measured.
    pub(super) fn measure(&self) {
        let inputs = self.workers.inputs.clone();
        let git = self.jobs.git.clone();
        tokio::task::spawn_blocking(move || {
            let vitals = HostVitals {
                checkouts: checkouts(&git),
                ..vitals()
            };
            // The host daemon may have ended.
            inputs.blocking_send(Input::Measured(Box::new(vitals))).ok();
        });
    }
}

fn vitals() -> HostVitals {
    let mut amounts: Vec<_> = of_machine().into_iter().collect();
    amounts.extend(limited_cgroups(None).iter().filter_map(|it| of_cgroup(it)));
    let least = amounts.iter().map(|it| it.total).min();
    let available = amounts.iter().map(|it| it.available).min();
    let processors = std::thread::available_parallelism().map_or(1, |it| it.get());
    HostVitals {
        load: load().unwrap_or_default(),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory: least.unwrap_or_default(),
        memory_available: available.unwrap_or_default(),
        memory_stalled: stalled(),
        ends_at_logout: ends_at_logout(),
        checkouts: Vec::new(),
    }
}

/// Returns the checkouts here that are noted beside the copy of the team repository.
fn checkouts(git: &Path) -> Vec<String> {
    let noted = Checkout::noted(git).unwrap_or_else(|error| {
        tracing::warn!("cannot list {}: {error}", git.display());
        Vec::new()
    });
    let mut shown: Vec<String> = noted
        .into_iter()
        .filter_map(|root| root.into_os_string().into_string().ok())
        .collect();
    shown.truncate(MOST_CHECKOUTS);
    shown
}

fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Tells whether logind ends what has begun in a session of this user when that ends
/// (`logind.conf(5)`); none where logind does not say so. Asked once.
fn ends_at_logout() -> Option<bool> {
    static ENDS: OnceLock<Option<bool>> = OnceLock::new();
    *ENDS.get_or_init(|| {
        let manager = logind(&[
            "show-user",
            "-p",
            "KillUserProcesses",
            "-p",
            "KillExcludeUsers",
        ])?;
        let user = nix::unistd::User::from_uid(nix::unistd::getuid());
        let user = user.ok().flatten().map(|user| user.name);
        kills(&manager, &user.unwrap_or_default())
    })
}

fn logind(words: &[&str]) -> Option<String> {
    let asked = Command::new("loginctl")
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    asked
        .status
        .success()
        .then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
}

fn kills(manager: &str, user: &str) -> Option<bool> {
    let field = |name: &str| {
        let mut lines = manager.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let is_excluded = field("KillExcludeUsers")
        .is_some_and(|users| users.split_whitespace().any(|other| other == user));
    match field("KillUserProcesses")? {
        "yes" => Some(!is_excluded),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_in_a_session_ends_with_it_where_logind_says_so() {
        let yes = "KillUserProcesses=yes\nKillExcludeUsers=root admin\n";
        assert_eq!(kills(yes, "alice"), Some(true));
        assert_eq!(kills(yes, "admin"), Some(false));
        assert_eq!(kills("KillUserProcesses=no\n", "alice"), Some(false));
        assert_eq!(kills("", "alice"), None);
    }

    #[test]
    fn this_machine_has_memory_and_processors() {
        let vitals = vitals();
        assert!(vitals.processors > 0 && vitals.memory > 0, "{vitals:?}");
        assert!(vitals.memory_available <= vitals.memory, "{vitals:?}");
    }
}
