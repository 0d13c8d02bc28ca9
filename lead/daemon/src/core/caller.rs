//! Who gives a command, and where its answer goes.

use teamd_shared::control::{Done, Refusal};
use teamd_shared::message::{LEAD, USER};
use teamd_shared::name::Name;

/// The answer to a command.
pub(crate) type Answer = Result<Done, Refusal>;

/// Which request of which connection: where the reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplyTo {
    pub(crate) connection: u64,
    pub(crate) tag: u32,
    /// Whether a lead asks that is no person: the lead agent, over its worker's own connection, or
    /// one that is connected by MCP.
    pub(crate) agent: bool,
}

/// Who gives a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Actor {
    /// A person.
    Person,
    /// A member, over its worker's own connection. A lead that is connected by MCP is the lead
    /// agent to the daemon: it may do the same.
    Member(Name),
    /// A command that answers for a person, from a process that this connected lead runs.
    RunByLead(String),
    /// A person who answers a request.
    PersonAnswers {
        /// The process, if a lead is connected by MCP: then a program may answer for the person.
        from: Option<String>,
        /// Whether it has given the code of the request, or none is needed.
        has_code: bool,
    },
    /// A lead that is connected by MCP, as it is shown, answers a request.
    LeadAnswers(String),
}

impl Actor {
    /// Returns the name that records contain.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Person | Self::RunByLead(_) | Self::PersonAnswers { .. } => USER,
            Self::LeadAnswers(_) => LEAD,
            Self::Member(name) => name.as_str(),
        }
    }

    /// Returns the process that answers, where that is to be shown.
    pub(crate) fn answers_from(&self) -> Option<&str> {
        match self {
            Self::PersonAnswers { from, .. } => from.as_deref(),
            Self::LeadAnswers(lead) => Some(lead),
            Self::Person | Self::Member(_) | Self::RunByLead(_) => None,
        }
    }

    /// Tells whether it is neither a person nor the lead agent.
    pub(crate) fn is_teammate(&self) -> bool {
        matches!(self, Self::Member(name) if *name != Name::lead())
    }
}
