//! What `host.jsonl` says: whom this host obeys, and what has run here. A fold, pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use teamd_shared::inbox::LinePlace;
use teamd_shared::link::{HomeIdentity, HostedEnd, StartOrder, Whose};
use teamd_shared::member::{Agent, Member};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::terms::{McpServer, Terms};

use crate::core::incarnation::Incarnation;

/// A line of `host.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HostLine {
    /// Seconds since 1970.
    pub(super) at: f64,
    #[serde(flatten)]
    pub(super) record: HostRecord,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum HostRecord {
    /// From now on it obeys this home.
    Obeys(Obeyed),
    /// Commands for a member can write there from now on: the setup of its checkout runs before it
    /// is started.
    Writes {
        /// The member.
        name: Name,
        /// The real paths.
        paths: Vec<String>,
    },
    /// A process was started. Its worker is welcomed only then.
    Spawned(Box<Spawned>),
    /// Nothing of an incarnation is left.
    Exited(Box<Exited>),
    /// The files of a member are in the archive, and home does not know it any more.
    Forgotten {
        /// The member.
        name: Name,
    },
}

/// Whom a host obeys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Obeyed {
    #[serde(flatten)]
    pub(super) home: HomeIdentity,
    /// What home calls this host.
    pub(super) host: Name,
}

/// A started process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Spawned {
    /// The member, with the paths and positions of this host, its process and its cgroup.
    pub(super) member: Member,
    /// The workspace as home named it.
    pub(super) named: String,
    /// The programs as home named them. A record of an earlier version has none.
    #[serde(default)]
    pub(super) programs: NamedPrograms,
    /// What else its commands may write. A record of an earlier version has nothing.
    #[serde(default)]
    pub(super) writable: Vec<NamedPath>,
    /// Up to where mail has come back to its senders before.
    pub(super) returned_up_to: Option<Position>,
}

/// A path that home names, and where it leads here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamedPath {
    /// As home names it.
    pub(super) named: String,
    /// The real path.
    pub(super) real: String,
}

/// The agent and the MCP servers of a teammate, as home names them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NamedPrograms {
    /// The command of its agent.
    pub(super) agent: Option<Vec<String>>,
    /// Its servers.
    pub(super) servers: Vec<McpServer>,
}

/// The end of an incarnation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Exited {
    /// The incarnation.
    pub(super) of: Whose,
    /// As home hears it.
    pub(super) end: HostedEnd,
    /// The end of its inbox here.
    pub(super) inbox: Position,
}

/// The state.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HostState {
    pub(super) obeys: Option<Obeyed>,
    pub(super) members: BTreeMap<Name, Hosted>,
    /// Where commands for members may or once could write.
    territory: BTreeSet<String>,
}

/// The last incarnation of a member at this host.
#[derive(Debug, PartialEq)]
pub(super) struct Hosted {
    pub(super) spawned: Spawned,
    /// How it ended, if it has.
    pub(super) exit: Option<Exited>,
    /// How the one before ended.
    before: Option<Exited>,
}

/// A conversation of a member, which keeps where its paths lead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversation<'a> {
    pub(super) name: &'a Name,
    /// None: it is yet to begin.
    pub(super) number: Option<u32>,
}

/// What an order to start an incarnation meets.
#[derive(Debug, PartialEq)]
pub(super) enum Standing<'a> {
    /// It can be started.
    New,
    /// It runs.
    Runs(&'a Member),
    /// It has ended.
    Ended(&'a Exited),
    /// This incarnation of the member runs.
    AnotherRuns(u32),
    /// This later incarnation has run.
    Later(u32),
}

impl<'a> Conversation<'a> {
    /// Returns that of an incarnation.
    pub(super) fn of(member: &'a Member) -> Self {
        Self {
            name: &member.name,
            number: Some(member.conversation),
        }
    }
}

impl NamedPrograms {
    /// Returns those of an order.
    pub(super) fn of(program: Option<&Agent>, servers: &[McpServer]) -> Self {
        Self {
            agent: program.map(|agent| agent.command.clone()),
            servers: servers.to_vec(),
        }
    }
}

impl HostState {
    /// Applies a record.
    pub(super) fn apply(&mut self, record: HostRecord) {
        match record {
            HostRecord::Obeys(home) => self.obeys = Some(home),
            HostRecord::Writes { paths, .. } => self.territory.extend(paths),
            HostRecord::Spawned(spawned) => {
                let terms = &spawned.member.terms;
                self.territory.insert(terms.workspace.clone());
                let writable = terms.sandbox.writable.iter();
                self.territory.extend(writable.cloned());
                let name = spawned.member.name.clone();
                let earlier = self.members.remove(&name);
                let hosted = Hosted {
                    spawned: *spawned,
                    exit: None,
                    before: earlier.and_then(|it| it.exit.or(it.before)),
                };
                self.members.insert(name, hosted);
            }
            HostRecord::Exited(exited) => {
                let hosted = self.members.get_mut(&exited.of.name);
                if let Some(hosted) = hosted
                    && hosted.spawned.member.incarnation == exited.of.incarnation
                {
                    hosted.exit = Some(*exited);
                }
            }
            HostRecord::Forgotten { name } => {
                self.members.remove(&name);
            }
        }
    }

    /// Returns the incarnations that have not ended.
    pub(super) fn unended(&self) -> impl Iterator<Item = &Spawned> {
        let unended = self.members.values().filter(|it| it.exit.is_none());
        unended.map(|it| &it.spawned)
    }

    /// Returns how the last incarnations of members have ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Exited> {
        self.members.values().filter_map(|it| it.exit.as_ref())
    }

    /// Returns the record of an incarnation that has not ended.
    pub(super) fn running(&self, incarnation: &Incarnation) -> Option<&Spawned> {
        let hosted = self.members.get(&incarnation.name)?;
        let is_it =
            hosted.exit.is_none() && hosted.spawned.member.incarnation == incarnation.number;
        is_it.then_some(&hosted.spawned)
    }

    /// Returns what an order to start this incarnation meets.
    pub(super) fn standing(&self, of: &Incarnation) -> Standing<'_> {
        let Some(hosted) = self.members.get(&of.name) else {
            return Standing::New;
        };
        let member = &hosted.spawned.member;
        match &hosted.exit {
            None if member.incarnation == of.number => Standing::Runs(member),
            None => Standing::AnotherRuns(member.incarnation),
            Some(exit) if member.incarnation == of.number => Standing::Ended(exit),
            Some(_) if member.incarnation > of.number => Standing::Later(member.incarnation),
            Some(_) => Standing::New,
        }
    }

    /// Returns where the conversation of an ordered incarnation begins, if a record says so: an
    /// incarnation of the same conversation, or the end of the one before.
    pub(super) fn beginning(&self, order: &StartOrder) -> Option<Position> {
        let hosted = self.members.get(&order.member.name)?;
        let last = &hosted.spawned.member;
        if order.member.conversation == last.conversation {
            return Some(last.begins_at);
        }
        hosted.end_at(order.begins_after)
    }

    /// Returns the place that a line of home's inbox has here, if it was the last one at an end.
    pub(super) fn end_at(&self, name: &Name, line: Option<LinePlace>) -> Option<Position> {
        self.members.get(name)?.end_at(line)
    }

    /// Returns the real workspace of a conversation, if it was named like this.
    pub(super) fn workspace(&self, of: &Conversation<'_>, named: &str) -> Option<&str> {
        let spawned = self.last_of(of)?;
        (spawned.named == named).then_some(spawned.member.terms.workspace.as_str())
    }

    /// Returns where a path leads that a conversation may write; several for the caches of tools.
    pub(super) fn writable<'s>(
        &'s self,
        of: &Conversation<'_>,
        named: &'s str,
    ) -> impl Iterator<Item = &'s NamedPath> + use<'s> {
        let known = self.last_of(of).into_iter();
        let known = known.flat_map(|spawned| &spawned.writable);
        known.filter(move |path| path.named == named)
    }

    /// Returns the last incarnation here, if it was of this conversation.
    fn last_of(&self, of: &Conversation<'_>) -> Option<&Spawned> {
        let spawned = &self.members.get(of.name)?.spawned;
        (Some(spawned.member.conversation) == of.number).then_some(spawned)
    }

    /// Returns the programs that a conversation has, if they were named like this: it keeps their
    /// versions.
    pub(super) fn programs(&self, of: &Conversation<'_>, named: &NamedPrograms) -> Option<&Terms> {
        let spawned = self.last_of(of)?;
        (spawned.programs == *named).then_some(&spawned.member.terms)
    }

    /// Returns where commands for members may or once could write: a link there can be of a tool,
    /// also of one that was forgotten.
    pub(super) fn territory(&self) -> &BTreeSet<String> {
        &self.territory
    }
}

impl Hosted {
    fn end_at(&self, line: Option<LinePlace>) -> Option<Position> {
        let exit = self.exit.as_ref().or(self.before.as_ref())?;
        (exit.end.inbox == line).then_some(exit.inbox)
    }
}

#[cfg(test)]
mod tests;
