//! What the dispatcher asks of the owners of the resources. Those of the daemon are in `io`; the
//! simulation plays them, and kills the daemon between any two calls.

use std::collections::BTreeSet;

use teamd_shared::control::ToWorker;
use teamd_shared::environment::Environment;
use teamd_shared::journal::{Line, Team};
use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::task::{Task, TaskId};

use super::decide::{Decision, View};
use super::event::{Event, Incarnation, Now};
use super::live::Live;

/// The owners of the journal, the inboxes, the processes, the connections and the roster.
pub(crate) trait Owners {
    /// Returns the time now.
    fn now(&self) -> Now;

    /// Decides what follows from an event: [`super::decide::decide`], with the owner's source of
    /// ids.
    fn decide(&mut self, view: &View<'_>, event: &Event) -> Decision;

    /// Appends lines to the journal, with one write and one sync.
    fn append(&mut self, lines: &[Line]) -> Result<(), NotWritten>;

    /// Does the effects of new lines that a command or a worker waits for. `again`: they may have
    /// been done before, and what failed is tried again.
    fn complete(&mut self, team: &Team, again: bool) -> Result<(), Failed>;

    /// Does and syncs all effects. Returns the last line up to which they are complete.
    fn finish_effects(&mut self) -> Result<u64, Failed>;

    /// Starts a process for an incarnation. Returns [`Event::Started`].
    fn start(&mut self, member: &Member, environment: &Environment) -> Event;

    /// Sends SIGTERM, if that incarnation still runs.
    fn terminate(&mut self, incarnation: &Incarnation);

    /// Sends SIGKILL.
    fn kill(&mut self, incarnation: &Incarnation);

    /// Says something to a worker, if it is connected.
    fn say(&mut self, incarnation: &Incarnation, frame: ToWorker);

    /// Looks whether the inbox of a member holds more than it has taken in, in bytes.
    fn has_unread(&mut self, name: &Name, read: u64) -> bool;

    /// Runs the check of a submitted task, in the environment of its owner if it is known. One that
    /// runs already goes on.
    fn check(&mut self, team: &Team, task: &Task, environment: Option<&Environment>);

    /// Moves the integration branch to the merged work of a task in review ([`Event::Integrated`]).
    fn integrate(&mut self, team: &Team, task: &Task);

    /// Ends the check of a task, if it runs.
    fn end_check(&mut self, task: TaskId);

    /// Begins the branch of a task in the checkout of an idle teammate, which is then given the
    /// task ([`Event::Offered`]).
    fn offer(&mut self, team: &Team, to: (&Name, TaskId), environment: Option<&Environment>);

    /// Keeps in the team repository what a teammate has committed for a task that it holds no more;
    /// none: for the one whose branch is checked out. Nothing is kept of a teammate without a
    /// checkout.
    fn keep(&mut self, team: &Team, of: (&Name, Option<TaskId>));

    /// Writes the files of tasks as they stand now.
    fn show_tasks(&mut self, tasks: &[&Task]);

    /// Takes over into the roster how these members stand now.
    fn show(&mut self, team: &Team, live: &Live, names: &BTreeSet<Name>);

    /// Writes the roster, if there is anything new, and the files of tasks that could not be
    /// written.
    fn write_roster(&mut self, team: &Team) -> Result<(), Failed>;
}

/// Something failed, which stands in the log, and is tried again.
#[derive(Debug)]
pub(crate) struct Failed;

/// Lines could not be appended.
#[derive(Debug)]
pub(crate) struct NotWritten {
    /// Why.
    pub(crate) why: String,
    /// What the journal says: the lines before. The daemon ends if that is not known, for this
    /// reason.
    pub(crate) journal: Result<Box<Team>, String>,
}
