//! Whether a process is confined, as the kernel says. What a sandbox puts on a process, that process
//! cannot take off.

use std::sync::OnceLock;
use std::{fs, io};

/// What a sandbox sets on a process and all that it starts, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxFlags {
    no_new_privs: u32,
    filters: u32,
}

impl SandboxFlags {
    /// Returns those of a process, as it is called below `/proc`.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(process: &str) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        Self::parse(&status)
            .ok_or_else(|| io::Error::other(format!("/proc/{process}/status is not understood")))
    }

    /// Returns those of this process, which are read once: only it could change them, and none of
    /// our programs does that after it has compared them.
    ///
    /// # Errors
    /// The system's error.
    pub fn of_self() -> io::Result<Self> {
        static OWN: OnceLock<SandboxFlags> = OnceLock::new();
        if let Some(own) = OWN.get() {
            return Ok(*own);
        }
        let own = Self::of("self")?;
        Ok(*OWN.get_or_init(|| own))
    }

    /// Reads `proc_pid_status(5)`. Where the filters are not counted (before Linux 5.9) there is
    /// one or none.
    fn parse(status: &str) -> Option<Self> {
        let filters = match field(status, "Seccomp_filters") {
            Some(filters) => Some(filters),
            None => field(status, "Seccomp").map(|mode| u32::from(mode > 0)),
        };
        // A kernel without them cannot confine a process with them.
        Some(Self {
            no_new_privs: field(status, "NoNewPrivs").unwrap_or(0),
            filters: filters.unwrap_or(0),
        })
    }

    /// Tells whether they confine more than others do.
    pub fn exceed(self, own: Self) -> bool {
        self.no_new_privs > own.no_new_privs || self.filters > own.filters
    }
}

fn field(status: &str, name: &str) -> Option<u32> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_sandbox_are_read_and_compared() {
        let flags = |text: &str| SandboxFlags::parse(text).unwrap();
        let free = flags("Name:\tx\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n");
        let confined = flags("NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n");
        assert!(confined.exceed(free) && !free.exceed(confined) && !free.exceed(free));
        // In a container, all are confined alike, and a tool more than that.
        let container = flags("NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        assert!(confined.exceed(container) && !container.exceed(container));
        let old = flags("NoNewPrivs:\t0\nSeccomp:\t2\n");
        assert!(old.exceed(free));
    }
}
