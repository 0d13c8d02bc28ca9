//! Follows the files of a conversation: the transcript, the answer in progress, the roster, and the
//! plans in the journal. It reads, and decides nothing.

use std::time::Duration;

use teamd_client::daemon_lock::is_locked;
use teamd_client::error::CommandError;
use teamd_client::read::roster;
use teamd_client::read::wake::{TICK, Wake};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::id::RequestId;
use teamd_shared::journal::{Record, Team};
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::request::Request;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use super::{
    ConversationPart, EntryReader, JournalFollower, NewEntries, NewLines, PartReader, pending,
};

/// How many earlier entries are read at a time.
const PAGE: usize = 200;

/// A reader of the files.
pub(crate) struct Follower<'d> {
    dir: &'d TeamDir,
    name: Name,
    entries: EntryReader<'d>,
    /// How many bytes of earlier entries are not read.
    unread: u64,
    /// The file that is read.
    file: Option<u64>,
    journal: JournalFollower<'d>,
    wakes: [Wake; 3],
}

impl<'d> Follower<'d> {
    /// Begins at the last `last` entries of a member's conversation. Must be called within the
    /// runtime.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn begin(
        dir: &'d TeamDir,
        name: &Name,
        last: usize,
        poll: bool,
    ) -> Result<Self, CommandError> {
        // Watched before it is read: a line that is written in between is seen.
        let wakes = [
            TeamPath::transcript(name),
            TeamPath::live(name),
            TeamPath::config(),
        ]
        .map(|at| Wake::new(dir, &at, poll));
        let entries = EntryReader::begin(dir, name, last)?;
        let journal = JournalFollower::begin(dir)?;
        Ok(Self {
            dir,
            name: name.clone(),
            unread: entries.offset(),
            file: None,
            entries,
            journal,
            wakes,
        })
    }

    /// Returns the team directory.
    pub(crate) fn dir(&self) -> &'d TeamDir {
        self.dir
    }

    /// Returns when a file may have changed, at the latest after a second. Dropping the future
    /// loses nothing.
    pub(crate) async fn changed(&mut self) {
        self.changed_within(TICK).await;
    }

    /// Returns when a file may have changed, at the latest after this time. Dropping the future
    /// loses nothing.
    pub(crate) async fn changed_within(&mut self, most: Duration) {
        let [transcript, live, roster] = &mut self.wakes;
        tokio::select! {
            () = transcript.changed_within(most) => {}
            () = live.changed_within(most) => {}
            () = roster.changed_within(most) => {}
        }
    }

    /// Reads what is new in the conversation.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn conversation(&mut self) -> Result<NewEntries, DirError> {
        let new = self.entries.read()?;
        if let Some(at) = new.places.last() {
            let file = Some(at.file());
            if self.file.is_some() && self.file != file {
                // The agent has another conversation now, of which everything is read.
                self.unread = 0;
            }
            self.file = file;
        }
        Ok(new)
    }

    /// Reads one page of what was said before everything that was read so far.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn earlier(&mut self) -> Result<Vec<ConversationPart>, DirError> {
        let earlier = self.entries.before(self.unread, PAGE)?;
        self.unread = earlier.places.first().map_or(0, |at| at.offset());
        let mut reader = PartReader::new(&self.name);
        let parts = earlier
            .entries
            .iter()
            .flat_map(|entry| reader.of_entry(entry));
        Ok(parts
            .filter(|part| !matches!(part, ConversationPart::Detail(_)))
            .collect())
    }

    /// Returns everything that was said before the place that was read up to.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn so_far(&self) -> Result<NewEntries, DirError> {
        self.entries.before(self.entries.offset(), usize::MAX)
    }

    /// Returns the fold of the journal, as far as [`Follower::plans`] has read it.
    pub(crate) fn team(&self) -> &Team {
        &self.journal.team
    }

    /// Returns the plans and reviews that have changed since the last call, as they are now, oldest
    /// first.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub(crate) fn plans(&mut self) -> Result<Vec<Request>, CommandError> {
        let mut changed = Vec::<Request>::new();
        let mut new = NewLines::default();
        let read = self.journal.read(&mut new);
        for line in new.lines {
            let Record::Request(record) = line.record else {
                continue;
            };
            let request = record.request;
            if request.kind.is_judged() {
                changed.retain(|other| other.request_id != request.request_id);
                changed.push(request);
            }
        }
        // What was read is not read again: an error comes with the next call.
        if changed.is_empty() {
            read?;
        }
        Ok(changed)
    }

    /// Returns a plan that is pending, as far as [`Follower::plans`] has read.
    pub(crate) fn pending(&self, id: &RequestId) -> Option<&Request> {
        self.journal
            .team
            .requests
            .get(id)
            .filter(|plan| plan.is_pending())
    }

    /// Returns the plans that are pending, oldest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Request> {
        pending(&self.journal.team, "")
            .into_iter()
            .filter(|request| request.kind.is_judged())
    }

    /// Tells whether the daemon runs.
    pub(crate) fn has_daemon(&self) -> bool {
        is_locked(self.dir)
    }

    /// Returns the agent as the roster shows it, and whether it runs.
    ///
    /// # Errors
    /// If the roster cannot be read.
    pub(crate) fn member(&self) -> Result<Option<(RosterMember, bool)>, CommandError> {
        let roster = roster::load(self.dir)?;
        Ok(roster
            .member(&self.name)
            .map(|member| (member.clone(), roster::runs(&roster, member))))
    }

    /// Returns what is to be expected of the agent, and with `all` of its whole team.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn activity(&self, all: bool) -> Result<Activity, CommandError> {
        let roster = roster::load(self.dir)?;
        let concerned = roster
            .members
            .iter()
            .filter(|member| all || member.name == self.name);
        let states = concerned.map(|member| self.state(&roster, member));
        Ok(Activity::of(
            &self.name,
            &states.collect::<Result<Vec<_>, _>>()?,
        ))
    }

    fn state(
        &self,
        roster: &Roster,
        member: &RosterMember,
    ) -> Result<MemberActivity, CommandError> {
        let status = if roster::runs(roster, member) || member.status.is_ended() {
            member.status
        } else {
            MemberStatus::Crashed
        };
        let has_work = !status.is_ended() && !roster::is_at_rest(self.dir, member)?;
        Ok(MemberActivity {
            name: member.name.clone(),
            status,
            has_work,
        })
    }
}

/// What is to be expected of an agent or a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Activity {
    /// A teammate works.
    Working,
    /// No teammate works, but one has mail to read.
    MailWaits,
    /// Nothing more happens.
    Quiet,
    /// Nothing more happens until a person answers the plans of these teammates.
    PlansWait(Vec<Name>),
    /// The agent has ended.
    Ended,
}

/// A member, as far as its activity depends on it.
#[derive(Debug, Clone)]
struct MemberActivity {
    name: Name,
    status: MemberStatus,
    /// Whether it has unread mail, or its transcript says that the turn continues.
    has_work: bool,
}

impl Activity {
    fn of(agent: &Name, members: &[MemberActivity]) -> Self {
        if members
            .iter()
            .find(|member| member.name == *agent)
            .is_none_or(|member| member.status.is_ended())
        {
            return Self::Ended;
        }
        let works = members.iter().any(|member| {
            matches!(
                member.status,
                MemberStatus::Starting | MemberStatus::Working | MemberStatus::ShuttingDown
            )
        });
        if works {
            return Self::Working;
        }
        if members
            .iter()
            .any(|member| member.status == MemberStatus::Idle && member.has_work)
        {
            return Self::MailWaits;
        }
        let waiting = members
            .iter()
            .filter(|member| member.status == MemberStatus::AwaitingApproval);
        let waiting: Vec<Name> = waiting.map(|member| member.name.clone()).collect();
        if waiting.is_empty() {
            Self::Quiet
        } else {
            Self::PlansWait(waiting)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(members: &[(&str, MemberStatus, bool)]) -> Activity {
        Activity::of(
            &Name::lead(),
            &members
                .iter()
                .map(|&(name, status, has_work)| MemberActivity {
                    name: Name::of_inbox(name).unwrap(),
                    status,
                    has_work,
                })
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn a_team_is_quiet_when_no_member_has_work() {
        let idle = ("lead", MemberStatus::Idle, false);
        assert_eq!(activity(&[idle]), Activity::Quiet);
        assert_eq!(
            activity(&[("lead", MemberStatus::Idle, true)]),
            Activity::MailWaits
        );
        for status in [
            MemberStatus::Working,
            MemberStatus::Starting,
            MemberStatus::ShuttingDown,
        ] {
            assert_eq!(activity(&[("lead", status, false)]), Activity::Working);
            assert_eq!(
                activity(&[idle, ("alice", status, false)]),
                Activity::Working
            );
        }
        assert_eq!(
            activity(&[idle, ("alice", MemberStatus::Idle, true)]),
            Activity::MailWaits
        );
        assert_eq!(
            activity(&[idle, ("alice", MemberStatus::Crashed, true)]),
            Activity::Quiet
        );
    }

    #[test]
    fn a_plan_waits_for_a_person_when_all_else_is_done() {
        let plan = ("alice", MemberStatus::AwaitingApproval, true);
        let alice = Name::new("alice").unwrap();
        assert_eq!(
            activity(&[("lead", MemberStatus::Idle, false), plan]),
            Activity::PlansWait(vec![alice])
        );
        assert_eq!(
            activity(&[("lead", MemberStatus::Working, false), plan]),
            Activity::Working
        );
    }

    #[test]
    fn an_agent_that_has_ended_answers_nothing() {
        assert_eq!(
            activity(&[("lead", MemberStatus::Crashed, false)]),
            Activity::Ended
        );
        assert_eq!(
            activity(&[("alice", MemberStatus::Working, false)]),
            Activity::Ended
        );
    }
}
