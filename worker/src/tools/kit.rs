//! Which tools a member has. Pure.

use teamd_shared::name::Name;

/// The tools of a teammate.
const TEAMMATE: [&str; 8] = [
    "bash",
    "read_file",
    "write_file",
    "edit_file",
    "send_message",
    "read_inbox",
    "shutdown_response",
    "plan_approval",
];

/// The tools of the lead agent. `shutdown_response` and `plan_approval` mean something else than a teammate's.
const LEAD: [&str; 13] = [
    "spawn_teammate",
    "list_teammates",
    "send_message",
    "read_inbox",
    "broadcast",
    "shutdown_request",
    "shutdown_response",
    "request_plan",
    "plan_approval",
    "bash",
    "read_file",
    "write_file",
    "edit_file",
];

/// Those that change files of the workspace: a read-only member is not offered them.
pub(crate) const WRITE_FILES: [&str; 2] = ["write_file", "edit_file"];

/// The tools of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kit {
    /// Of a teammate.
    Teammate,
    /// Of the lead agent.
    Lead,
}

impl Kit {
    /// Returns the kit of a member.
    pub(crate) fn of(name: &Name) -> Self {
        if *name == Name::lead() { Self::Lead } else { Self::Teammate }
    }

    /// Returns the names of the tools that a model is told of.
    pub(crate) fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Teammate => &TEAMMATE,
            Self::Lead => &LEAD,
        }
    }

    /// Returns how it is told that its turn was interrupted.
    pub(crate) fn interrupted(self) -> &'static str {
        match self {
            Self::Teammate => "interrupted by the lead",
            Self::Lead => "interrupted by the user",
        }
    }

    /// Returns what a call is answered with that a crash broke off, and that is not made again.
    pub(crate) fn may_have_run(self) -> &'static str {
        match self {
            Self::Teammate => "interrupted: the worker was restarted; the command may have run",
            Self::Lead => {
                "interrupted: the worker was restarted; the call may have been carried out (list_teammates shows the team)"
            }
        }
    }

    /// Tells whether a call of this tool writes lines under ids that are chosen before it runs.
    pub(crate) fn has_ids(self, tool: &str) -> bool {
        match self {
            Self::Teammate => matches!(tool, "send_message" | "plan_approval" | "shutdown_response"),
            Self::Lead => matches!(tool, "send_message" | "broadcast" | "shutdown_response"),
        }
    }

    /// Tells whether a call of this tool, which a crash broke off, is made again: its lines have ids, or the daemon
    /// takes a second one for the first. It does not so with a shutdown: that would be the end of whoever has the
    /// name by then.
    pub(crate) fn is_repeated(self, tool: &str) -> bool {
        let joins = matches!(tool, "plan_approval" | "list_teammates");
        self.has_ids(tool) || self == Self::Lead && joins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lead_agent_has_the_tools_of_the_lead() {
        assert_eq!(Kit::of(&Name::lead()), Kit::Lead);
        assert_eq!(Kit::of(&Name::new("alice").unwrap()), Kit::Teammate);
    }

    #[test]
    fn what_a_crash_broke_off_is_made_again_only_where_that_does_no_harm() {
        for kit in [Kit::Teammate, Kit::Lead] {
            for tool in ["bash", "write_file", "edit_file", "read_inbox"] {
                assert!(!kit.is_repeated(tool), "{kit:?} {tool}");
            }
            for tool in ["spawn_teammate", "request_plan", "shutdown_request"] {
                assert!(!kit.is_repeated(tool), "{kit:?} {tool}");
            }
            for tool in ["send_message", "plan_approval", "shutdown_response"] {
                assert!(kit.is_repeated(tool), "{kit:?} {tool}");
            }
        }
    }
}
