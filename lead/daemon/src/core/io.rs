//! What the dispatcher needs done. The daemon does it with its resources, which are in `io`. The
//! simulation has its own implementation, and kills the daemon between any two calls.

use std::collections::BTreeSet;

use teamd_shared::inbox::Unread;
use teamd_shared::journal::{Line, Team};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::task::Task;

use super::decide::{Decision, DecisionView};
use super::event::{Action, Event, Now};
use super::runtime::Runtime;

/// The journal, the inboxes, the processes, the connections and the roster.
pub(crate) trait Io {
    /// Returns the time now.
    fn now(&self) -> Now;

    /// Decides what follows from an event: [`super::decide::decide`], with its own source of ids.
    fn decide(&mut self, view: &DecisionView<'_>, event: &Event) -> Decision;

    /// Appends lines to the journal, with one write and one sync.
    fn append(&mut self, lines: &[Line]) -> Result<(), NotWritten>;

    /// Does the effects of new lines that a command or a worker waits for. `again`: they may have
    /// been done before, and what failed is tried again.
    fn complete(&mut self, team: &Team, again: bool) -> Result<(), IoFailed>;

    /// Does and syncs all effects. Returns the last line up to which they are complete.
    fn finish_effects(&mut self) -> Result<u64, IoFailed>;

    /// Does a part of a decision that concerns the world. Returns the events that follow from it
    /// immediately.
    fn perform(&mut self, team: &Team, action: &Action) -> Vec<Event>;

    /// Tells whether the inbox of a member is longer than what it has read, in bytes.
    fn has_unread(&mut self, name: &Name, read: u64) -> bool;

    /// Looks at the mail behind a position of an inbox; there is none if it cannot be read.
    fn unread_mail(&mut self, name: &Name, from: Position) -> Unread;

    /// Returns the position at an offset of an inbox, in bytes; the beginning if it cannot be read.
    fn position_at(&mut self, name: &Name, offset: u64) -> Position;

    /// Writes the files of tasks in their present state.
    fn show_tasks(&mut self, tasks: &[&Task]);

    /// Puts the present state of these members into the roster.
    fn show(&mut self, team: &Team, runtime: &Runtime, names: &BTreeSet<Name>);

    /// Writes the roster, if there is anything new, and the files of tasks that could not be
    /// written.
    fn write_roster(&mut self, team: &Team) -> Result<(), IoFailed>;
}

/// Something failed. It is in the log, and is tried again.
#[derive(Debug)]
pub(crate) struct IoFailed;

/// Lines could not be appended.
#[derive(Debug)]
pub(crate) struct NotWritten {
    /// Why.
    pub(crate) why: String,
    /// What the journal says: the lines before. The daemon ends if that is not known, for this
    /// reason.
    pub(crate) journal: Result<Box<Team>, String>,
}
