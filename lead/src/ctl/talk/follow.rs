//! The files of a conversation, followed: the transcript, the answer in progress, the roster, and the requests in the
//! journal. It reads, and decides nothing.

use std::collections::BTreeMap;

use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, Record};
use teamd_shared::member::{Status, Waiting};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request};
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::transcript::Entry;

use super::live::LiveText;
use super::quiet::Seen;
use crate::client::is_locked;
use crate::ctl::roster;
use crate::ctl::tail::Tail;
use crate::ctl::wake::Wake;
use crate::error::CommandError;

/// What may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// The conversation.
    Conversation,
    /// The team.
    Team,
}

/// What a look at the conversation found.
#[derive(Debug)]
pub(super) struct Heard<'f> {
    /// The text of the answer in progress, as far as it is whole characters.
    pub(super) live: &'f str,
    /// The entries that are new, read after it.
    pub(super) entries: Vec<Entry>,
    /// The same, as they stand in the file.
    pub(super) lines: Vec<Vec<u8>>,
}

/// The files.
pub(super) struct Follow<'d> {
    dir: &'d TeamDir,
    name: Name,
    transcript: Tail<'d>,
    journal: Tail<'d>,
    plans: BTreeMap<RequestId, Request>,
    text: LiveText,
    answers: Wake,
    live: Wake,
    team: Wake,
}

impl<'d> Follow<'d> {
    /// Begins to follow the conversation of a member, at its last `last` entries. Must be called within the runtime.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn begin(
        dir: &'d TeamDir,
        name: &Name,
        last: usize,
        poll: bool,
    ) -> Result<Self, CommandError> {
        // Watched first, then read: what is written in between is seen.
        let wake = |at: TeamPath| Wake::new(dir.path(&at).parent().unwrap_or(dir.root()), poll);
        let (answers, live) = (wake(TeamPath::transcript(name)), wake(TeamPath::live(name)));
        let team = wake(TeamPath::config());
        let mut transcript = Tail::new(dir, TeamPath::transcript(name));
        transcript.begin(Some(last), |line| !line.trim_ascii().is_empty())?;
        let mut journal = Tail::new(dir, TeamPath::journal());
        journal.begin(None, |_| true)?;
        let plans = BTreeMap::new();
        let text = LiveText::new(TeamPath::live(name));
        Ok(Self { dir, name: name.clone(), transcript, journal, plans, text, answers, live, team })
    }

    /// Returns when something may have changed, at the latest after a second. Dropping the future loses nothing that a
    /// look would not find.
    pub(super) async fn changed(&mut self) -> Changed {
        let (transcript, live) = (TeamPath::transcript(&self.name), TeamPath::live(&self.name));
        let config = TeamPath::config();
        tokio::select! {
            () = self.answers.changed(transcript.file_name()) => Changed::Conversation,
            () = self.live.changed(live.file_name()) => Changed::Conversation,
            () = self.team.changed(config.file_name()) => Changed::Team,
        }
    }

    /// Looks at the conversation.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn conversation(&mut self) -> Result<Heard<'_>, DirError> {
        let live = self.text.look(self.dir)?;
        let mut heard = Heard { live, entries: Vec::new(), lines: Vec::new() };
        loop {
            let lines = self.transcript.read()?;
            if lines.is_empty() {
                return Ok(heard);
            }
            // An entry of a newer program says nothing here.
            heard.entries.extend(lines.iter().filter_map(|line| serde_json::from_slice::<Entry>(line).ok()));
            heard.lines.extend(lines);
        }
    }

    /// Returns the plans that have become something else since the last look, as they stand now, oldest first.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn plans(&mut self) -> Result<Vec<Request>, DirError> {
        let mut changed: Vec<Request> = Vec::new();
        loop {
            let lines = self.journal.read()?;
            if lines.is_empty() {
                return Ok(changed);
            }
            for line in lines.iter().filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
                let Record::Request(record) = line.record else { continue };
                let request = record.request;
                if request.kind == Kind::PlanApproval {
                    changed.retain(|other| other.request_id != request.request_id);
                    changed.push(request.clone());
                    self.plans.insert(request.request_id.clone(), request);
                }
            }
        }
    }

    /// Returns a plan, as far as the last look saw it.
    pub(super) fn plan(&self, id: &RequestId) -> Option<&Request> {
        self.plans.get(id)
    }

    /// Tells whether the daemon runs.
    pub(super) fn has_daemon(&self) -> bool {
        is_locked(self.dir)
    }

    /// Returns the one who is talked to, if it is on the roster, and whether it runs.
    ///
    /// # Errors
    /// If the roster cannot be read.
    pub(super) fn member(&self) -> Result<Option<(RosterMember, bool)>, CommandError> {
        let roster = roster::load(self.dir)?;
        let runs =
            |member: &RosterMember| !member.status.is_ended() && !roster::ended_unnoticed(&roster, member);
        Ok(roster.member(&self.name).map(|member| (member.clone(), runs(member))))
    }

    /// Returns everybody, and whether they have work; and the pause in the model call of the one who is talked to.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn everybody(&self) -> Result<(Vec<Seen>, Option<Waiting>), CommandError> {
        let roster = roster::load(self.dir)?;
        let everybody = roster.members.iter().map(|member| seen(self.dir, &roster, member));
        let pause = roster.member(&self.name).and_then(|member| member.waiting.clone());
        Ok((everybody.collect::<Result<_, _>>()?, pause))
    }
}

fn seen(dir: &TeamDir, roster: &Roster, member: &RosterMember) -> Result<Seen, CommandError> {
    let gone = roster::ended_unnoticed(roster, member);
    let status = if gone { Status::Crashed } else { member.status };
    let has_work = !status.is_ended() && !roster::has_settled(dir, member)?;
    Ok(Seen { name: member.name.clone(), status, has_work })
}
