//! The mail of a host: what comes from home, and the outboxes to those who live elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::id::RequestId;
use teamd_shared::inbox::{
    HOME, LinePlace, ReadError, last_via_between, position_at, read_line_at,
};
use teamd_shared::link::{FromHost, OwnerAt};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::frames::whose;
use super::outbound::HomeOutbound;
use crate::core::incarnation::Incarnation;
use crate::io::mail_relay::{MailIntake, OutboxReader};

/// What comes from home.
#[derive(Debug)]
pub(super) struct Mail {
    dir: Arc<TeamDir>,
    pub(super) intake: MailIntake,
    /// The last line of home's that each worker has read, with the offset that it had reported.
    reads: HashMap<Name, (u64, Option<LinePlace>)>,
}

impl Mail {
    pub(super) fn new(dir: Arc<TeamDir>) -> Self {
        Self {
            dir,
            intake: MailIntake::new(HOME),
            reads: HashMap::new(),
        }
    }

    /// Returns the last line of home's inbox that is before an offset of the inbox here. The inbox
    /// is searched only where it has more mail than that.
    pub(super) fn line_read(&mut self, name: &Name, read: u64) -> Option<LinePlace> {
        if let Some((offset, line)) = self.reads.get(name)
            && *offset == read
        {
            return *line;
        }
        let line = self.find_line(name, read).unwrap_or_else(|error| {
            tracing::warn!("cannot see what {name} has read: {error}");
            None
        });
        self.reads.insert(name.clone(), (read, line));
        line
    }

    fn find_line(&mut self, name: &Name, read: u64) -> Result<Option<LinePlace>, ReadError> {
        let inbox = self.dir.path(&TeamPath::inbox(name));
        let has_read_all = inbox.metadata().is_ok_and(|inbox| inbox.len() <= read);
        if has_read_all {
            return self.intake.taken(&self.dir, name);
        }
        // Behind what is known already: a report of each message must not search all of them.
        let known = self.reads.get(name).filter(|(offset, _)| *offset <= read);
        let (from, before) = match known {
            Some((offset, line)) => (position_at(&self.dir, name, *offset)?, *line),
            None => (Position::START, None),
        };
        match last_via_between(&self.dir, name, HOME, (from, read)) {
            Ok(line) => Ok(line.or(before)),
            Err(ReadError::NoInbox(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets an inbox that is in the archive now.
    pub(super) fn forget(&mut self, name: &Name) {
        self.intake.forget(name);
        self.reads.remove(name);
    }
}

/// The outboxes, read for one link.
#[derive(Debug)]
pub(super) struct Outboxes {
    dir: Arc<TeamDir>,
    boxes: BTreeMap<Name, OutboxReader>,
    /// Lines of the outbox to the lead that were submitted before they were sent.
    submissions: Vec<Submission>,
}

/// A line that a worker has submitted.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) of: Incarnation,
    pub(super) request_id: RequestId,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Outboxes {
    /// Opens the outboxes behind what home has taken.
    pub(super) fn open(dir: &Arc<TeamDir>, owners: &[Name], taken: &[OwnerAt]) -> Self {
        let mut outboxes = Self {
            dir: Arc::clone(dir),
            boxes: BTreeMap::new(),
            submissions: Vec::new(),
        };
        let taken: BTreeMap<&Name, Option<LinePlace>> =
            taken.iter().map(|it| (&it.owner, it.line)).collect();
        for owner in owners {
            outboxes.add(owner, taken.get(owner).copied().flatten());
        }
        outboxes
    }

    /// Reads the outboxes to these alone from now on; new ones from their beginning.
    pub(super) fn keep(&mut self, owners: &[Name]) {
        let kept: BTreeSet<&Name> = owners.iter().collect();
        self.boxes.retain(|owner, _| kept.contains(owner));
        for owner in owners {
            if !self.boxes.contains_key(owner) {
                self.add(owner, None);
            }
        }
    }

    fn add(&mut self, owner: &Name, taken: Option<LinePlace>) {
        match OutboxReader::open(&self.dir, owner, taken) {
            Ok(reader) => {
                self.boxes.insert(owner.clone(), reader);
            }
            Err(error) => tracing::error!("the outbox to {owner} cannot be read: {error}"),
        }
    }

    /// Records that an outbox has grown, or may have.
    pub(super) fn grown(&mut self, owner: &Name) {
        if let Some(outbox) = self.boxes.get_mut(owner) {
            outbox.has_more = true;
        }
    }

    /// Records that any of them may have grown.
    pub(super) fn all_grown(&mut self) {
        for outbox in self.boxes.values_mut() {
            outbox.has_more = true;
        }
    }

    /// Looks which of them have grown, also where no event has said so yet.
    pub(super) fn look(&mut self) {
        for outbox in self.boxes.values_mut() {
            outbox.look();
        }
    }

    /// Passes a submission on, once its line was sent.
    pub(super) fn submit(&mut self, submission: Submission) {
        self.grown(&Name::lead());
        self.submissions.push(submission);
    }

    /// Tells whether there may be something to send.
    pub(super) fn has_more(&self) -> bool {
        let mut boxes = self.boxes.values();
        boxes.any(OutboxReader::may_have_more)
    }

    /// Sends as much as the link takes.
    pub(super) fn send(&mut self, home: &HomeOutbound) {
        for outbox in self.boxes.values_mut() {
            send_lines(&self.dir, outbox, home);
        }
        self.send_submissions(home);
    }

    fn send_submissions(&mut self, home: &HomeOutbound) {
        let Some(to_lead) = self.boxes.get(&Name::lead()) else {
            return;
        };
        let sent = to_lead.offset();
        let is_dry = !to_lead.may_have_more();
        let (ready, waiting) = std::mem::take(&mut self.submissions)
            .into_iter()
            .partition(|it: &Submission| is_dry || it.offset.saturating_add(it.len) <= sent);
        self.submissions = waiting;
        for submission in ready {
            home.say(&FromHost::Submitted {
                of: whose(&submission.of),
                line: line_of(&self.dir, &submission),
                request_id: submission.request_id,
            });
        }
    }
}

/// Sends what is in an outbox, as much as the link takes.
fn send_lines(dir: &TeamDir, outbox: &mut OutboxReader, home: &HomeOutbound) {
    while home.has_room() {
        match outbox.next(dir, clock::wall()) {
            Ok(Some(line)) => home.say(&FromHost::Mail(line.mail)),
            Ok(None) => return,
            Err(error) => {
                // The slow tick tries again.
                outbox.has_more = false;
                tracing::warn!("an outbox cannot be read (tried again): {error}");
                return;
            }
        }
    }
}

/// Returns the place of a submitted line; none if there is no such line.
fn line_of(dir: &TeamDir, submission: &Submission) -> Option<LinePlace> {
    let Submission { offset, len, .. } = *submission;
    let read = read_line_at(dir, &Name::lead(), offset, len);
    let line = read
        .inspect_err(|error| tracing::warn!("a submitted line is not there: {error}"))
        .ok()?;
    let id = Message::parse(&line).ok()?.id;
    Some(LinePlace { offset, id })
}
