//! Says which hosts a command waits for.

use std::collections::BTreeSet;

use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::host::AwaitedHost;
use teamd_shared::name::Name;

use crate::print::clock;
use crate::print::output::Output;

/// Says which host something waits for, and since when that cannot be reached.
pub fn waiting_for(host: &AwaitedHost) -> String {
    let name = &host.name;
    match host.unreachable_since {
        Some(since) => format!(
            "waiting for {name} (unreachable since {})",
            clock::time_of_day(since)
        ),
        None => format!("waiting for {name}"),
    }
}

/// Returns the host of a member, if it cannot be reached.
pub fn unreachable_host(member: &RosterMember) -> Option<AwaitedHost> {
    let since = member.unreachable_since?;
    Some(AwaitedHost {
        name: member.host.clone()?,
        unreachable_since: Some(since),
    })
}

/// Notes the hosts that a command waits for, each once.
#[derive(Debug, Default)]
pub struct UnreachableNotes {
    noted: BTreeSet<Name>,
}

impl UnreachableNotes {
    /// Notes the hosts of these members that cannot be reached.
    pub fn note<'n>(
        &mut self,
        out: &Output,
        roster: &Roster,
        names: impl IntoIterator<Item = &'n Name>,
    ) {
        for name in names {
            let host = roster.member(name).and_then(unreachable_host);
            if let Some(host) = host
                && self.noted.insert(host.name.clone())
            {
                out.note(waiting_for(&host));
            }
        }
    }
}
