//! The link to a host, as it is reported to the core.

use teamd_shared::host::LinkState;

/// The link to one host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostLink {
    pub(crate) state: LinkState,
    /// Seconds since 1970, when that began.
    pub(crate) since: f64,
    /// The version of the program there.
    pub(crate) version: Option<String>,
}

impl HostLink {
    pub(crate) fn is_up(&self) -> bool {
        self.state == LinkState::Up
    }
}
