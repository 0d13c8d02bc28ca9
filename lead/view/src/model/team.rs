//! A team as its files show it, kept current by their events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use teamd_client::error::CommandError;
use teamd_client::read::outputs::{OutputState, outputs};
use teamd_client::read::roster;
use teamd_client::read::tail::{Mark, Tail};
use teamd_shared::config::Roster;
use teamd_shared::journal::Team;
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::Changes;

use super::conversation::FollowedConversation;
use super::feed::Feed;
use super::files::{Changed, Files, has};
use super::journal::{JournalFollower, NewLines};
use super::ledger::Ledgers;
use super::past::Past;
use super::side::Sides;
use super::steps::FeedStep;

/// How many messages of the lead's inbox, and of each other one, the past of a view has.
const MESSAGES: (usize, usize) = (200, 20);
/// How many conversations are not read from anew when they are followed again: two pages may take
/// turns.
const FOLLOWED: usize = 8;
/// How many outputs of commands in the background are shown of a teammate, the latest first.
pub(crate) const OUTPUTS: usize = 5;
/// How long inboxes are read at a time: a key shall not wait.
const SLICE: Duration = Duration::from_millis(40);

/// A reader of all files of a team.
pub(crate) struct TeamFiles<'d> {
    /// The team directory.
    pub dir: &'d TeamDir,
    files: Files,
    /// The roster as it was read last.
    pub roster: Roster,
    running: BTreeSet<Name>,
    journal: JournalFollower<'d>,
    feed: Feed,
    past: Past,
    /// The past from the first line of the journal on, while that is read.
    whole: Option<(Tail<'d>, Past)>,
    ledgers: Ledgers,
    sides: Sides<'d>,
    /// The conversation that is followed.
    pub conversation: Option<FollowedConversation<'d>>,
    /// Those that were followed before, the latest first.
    followed: VecDeque<FollowedConversation<'d>>,
    inboxes: BTreeMap<Name, Option<Mark>>,
    /// The inboxes that are still to be read.
    unread: VecDeque<Name>,
    /// Why something could not be read, if the last attempt failed.
    pub trouble: Option<CommandError>,
    /// Why the journal cannot be followed, until it is replaced.
    broken: Option<CommandError>,
}

/// A team as it was read last.
#[derive(Clone, Copy)]
pub(crate) struct SeenTeam<'s, 'd> {
    /// The roster.
    pub roster: &'s Roster,
    /// The members that ran then.
    pub running: &'s BTreeSet<Name>,
    /// The fold of the journal.
    pub team: &'s Team,
    /// What happened.
    pub feed: &'s Feed,
    /// When it happened.
    pub past: &'s Past,
    /// When members worked, and what they used.
    pub(crate) ledgers: &'s Ledgers,
    /// How many files are still to be read.
    pub reading: usize,
    /// The conversation that is followed.
    pub conversation: Option<&'s FollowedConversation<'d>>,
    /// Why something could not be read, if the last attempt failed.
    pub trouble: Option<&'s CommandError>,
}

impl<'d> TeamFiles<'d> {
    /// Begins to follow a team: the roster and the journal are read, the inboxes wait for
    /// [`TeamFiles::want_ledgers`]. Must be called within the runtime.
    ///
    /// # Errors
    /// If the roster cannot be read.
    pub(crate) fn begin(dir: &'d TeamDir, force_poll: bool) -> Result<Self, CommandError> {
        // Watched before it is read: a change in between is seen.
        let files = Files::watch(dir, force_poll);
        let roster = roster::load(dir)?;
        let mut begun = Self {
            dir,
            files,
            running: roster::running_names(&roster),
            roster,
            journal: JournalFollower::begin(dir)?,
            feed: Feed::default(),
            past: Past::default(),
            whole: None,
            ledgers: Ledgers::default(),
            sides: Sides::new(dir),
            conversation: None,
            followed: VecDeque::new(),
            inboxes: BTreeMap::new(),
            unread: VecDeque::new(),
            trouble: None,
            broken: None,
        };
        begun.read_journal();
        begun.unread.push_back(Name::lead());
        begun.unread.extend(
            begun
                .owners()
                .into_iter()
                .filter(|owner| *owner != Name::lead()),
        );
        Ok(begun)
    }

    /// Returns what was read, and what looks at single members.
    pub(crate) fn seen(&mut self) -> (SeenTeam<'_, 'd>, &mut Sides<'d>) {
        let reading = self.reading();
        let Self {
            roster,
            running,
            journal,
            feed,
            past,
            ledgers,
            sides,
            conversation,
            trouble,
            broken,
            ..
        } = self;
        let team = &journal.team;
        let conversation = conversation.as_ref();
        let trouble = trouble.as_ref().or(broken.as_ref());
        (
            SeenTeam {
                roster,
                running,
                team,
                feed,
                past,
                ledgers,
                reading,
                conversation,
                trouble,
            },
            sides,
        )
    }

    /// Returns when a file may have changed, or what a teammate serves. Dropping the future loses
    /// nothing.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.files.changed() => {}
            () = self.sides.served.changed() => {}
        }
    }

    /// Reads what has changed. Returns whether the control socket may be another one. Without a
    /// daemon no roster tells that a process has ended, but that lets go of its transcript.
    pub(crate) fn read(&mut self, has_daemon: bool) -> bool {
        let changed = self.files.take();
        self.trouble = self.read_changed(&changed, has_daemon).err();
        has(&changed.run, &TeamPath::socket())
    }

    /// Reads the roster in any case.
    pub(crate) fn read_roster(&mut self) {
        self.trouble = self.load_roster().err();
    }

    fn load_roster(&mut self) -> Result<(), CommandError> {
        self.roster = roster::load(self.dir)?;
        self.running = roster::running_names(&self.roster);
        Ok(())
    }

    fn read_changed(&mut self, changed: &Changed, has_daemon: bool) -> Result<(), CommandError> {
        self.sides.forget(&changed.inboxes, &changed.transcripts);
        let inboxes = self.owners_of(&changed.inboxes);
        self.unread.extend(inboxes);
        let transcripts = self.owners_of(&changed.transcripts);
        let may_have_ended = !has_daemon && !transcripts.is_empty();
        self.ledgers.changed(transcripts.into_iter());
        if let Some(conversation) = &mut self.conversation {
            let name = &conversation.name;
            let transcript = TeamPath::transcript(&conversation.name);
            if has(&changed.transcripts, &transcript) || has(&changed.run, &TeamPath::live(name)) {
                conversation.read()?;
            }
        }
        if has(&changed.top, &TeamPath::journal()) {
            self.read_journal();
        }
        if may_have_ended || has(&changed.top, &TeamPath::config()) {
            self.load_roster()?;
        }
        Ok(())
    }

    /// Returns whose inboxes or transcripts have changed.
    fn owners_of(&self, changes: &Changes) -> Vec<Name> {
        match changes {
            Changes::Anything => self.owners(),
            Changes::Files(files) => files
                .iter()
                .filter_map(|file| Name::of_inbox(file.strip_suffix(".jsonl")?).ok())
                .collect(),
        }
    }

    fn read_journal(&mut self) {
        let mut new = NewLines::default();
        self.broken = self.journal.read(&mut new).err();
        if new.restarted {
            self.feed.forget_journal();
            self.past = Past::default();
            self.whole = None;
        }
        for line in &new.lines {
            self.past.line(line);
        }
        self.feed
            .add(new.lines.iter().filter_map(FeedStep::of_line));
    }

    /// Tells whether files are still to be read.
    pub(crate) fn is_behind(&self) -> bool {
        self.reading() > 0
    }

    /// Returns how many files are still to be read.
    fn reading(&self) -> usize {
        self.unread.len() + self.ledgers.unread() + usize::from(self.whole.is_some())
    }

    /// Says that something is shown that needs the whole past, and not the end of the journal
    /// alone.
    pub(crate) fn want_past(&mut self) {
        if std::mem::take(&mut self.journal.has_earlier) {
            let mut tail = Tail::new(self.dir, TeamPath::journal());
            match tail.resume(None) {
                Ok(()) => self.whole = Some((tail, Past::default())),
                Err(error) => self.trouble = Some(error.into()),
            }
        }
    }

    /// Says that something is shown that follows the output of a check.
    pub(crate) fn want_logs(&mut self) {
        self.files.want_logs(self.dir);
    }

    /// Says that something is shown that follows the output of a teammate's commands.
    pub(crate) fn want_outputs(&mut self, name: &Name) {
        self.want_logs();
        // Watched before it is read to be shown: what is printed in between is seen.
        let found = outputs(self.dir, name, OUTPUTS, 0).unwrap_or_default();
        for output in found {
            if let OutputState::Growing(place) = output.state {
                self.files.want_output(&place);
            }
        }
    }

    /// Goes on with it until a time.
    fn read_past(&mut self, until: Instant) -> Result<(), CommandError> {
        while Instant::now() < until
            && let Some((tail, past)) = &mut self.whole
        {
            let lines = tail.read()?;
            // A malformed line is reported where the journal is followed.
            for line in lines.iter().filter_map(|line| json::read(line).ok()) {
                past.line(&line);
            }
            if lines.is_empty() {
                self.past = self.whole.take().map(|(_, past)| past).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Says that something is shown that needs the ledgers.
    pub(crate) fn want_ledgers(&mut self) {
        let members = self.roster.members.iter().map(|member| member.name.clone());
        self.ledgers.want(members);
    }

    /// Reads some of the inboxes and transcripts that have changed.
    pub(crate) fn catch_up(&mut self) {
        let began = Instant::now();
        let mut steps = Vec::new();
        while began.elapsed() < SLICE {
            let Some(owner) = self.unread.pop_front() else {
                break;
            };
            let mut tail = Tail::new(self.dir, TeamPath::inbox(&owner));
            let begun = match self.inboxes.get(&owner) {
                Some(mark) => tail.resume(*mark),
                None => {
                    let count = if owner == Name::lead() {
                        MESSAGES.0
                    } else {
                        MESSAGES.1
                    };
                    tail.begin(Some(count), |line| !line.trim_ascii().is_empty())
                        .map(drop)
                }
            };
            // One odd inbox must not hide the others.
            while let Ok(lines) = begun
                .as_ref()
                .map_or_else(|_| Ok(Vec::new()), |()| tail.read())
            {
                if lines.is_empty() {
                    break;
                }
                steps.extend(
                    lines
                        .iter()
                        .filter_map(|line| FeedStep::of_message(&owner, line)),
                );
            }
            self.inboxes.insert(owner, tail.mark());
        }
        self.feed.add(steps);
        self.ledgers.read(self.dir, began + SLICE);
        if let Err(error) = self.read_past(began + SLICE) {
            self.whole = None;
            self.trouble = Some(error);
        }
    }

    /// Follows the conversation of an agent.
    pub(crate) fn follow(&mut self, name: &Name) {
        if self
            .conversation
            .as_ref()
            .is_some_and(|it| it.name == *name)
        {
            return;
        }
        if let Some(conversation) = self.conversation.take() {
            self.followed.push_front(conversation);
        }
        let mut followed = self.followed.iter();
        let place = followed.position(|conversation| conversation.name == *name);
        let begun = match place.and_then(|at| self.followed.remove(at)) {
            Some(mut conversation) => conversation.read().map(|()| conversation),
            None => FollowedConversation::begin(self.dir, name),
        };
        self.followed.truncate(FOLLOWED);
        match begun {
            Ok(conversation) => self.conversation = Some(conversation),
            Err(error) => self.trouble = Some(error.into()),
        }
    }

    fn owners(&self) -> Vec<Name> {
        let members = self.roster.members.iter().map(|member| member.name.clone());
        [Name::lead()].into_iter().chain(members).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::journal::Line;

    #[tokio::test]
    async fn conversations_that_take_turns_are_read_once() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let write = |at: &TeamPath, text: &str| {
            teamd_shared::fs::replace(&dir, at, text.as_bytes()).unwrap()
        };
        let [alice, bob] = ["alice", "bob"].map(|name| Name::new(name).unwrap());
        write(
            &TeamPath::config(),
            &json!({"version": 1, "seq": 0, "team_name": "t", "members": []}).to_string(),
        );
        let entry = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "entry": "incarnation",
            "incarnation": 1, "conversation": 1});
        let entry = format!("{entry}\n");
        write(&TeamPath::transcript(&alice), &entry.repeat(300));
        let mut files = TeamFiles::begin(&dir, true).unwrap();
        let mut parts = |name: &Name| {
            files.follow(name);
            files
                .conversation
                .as_ref()
                .map(|it| (it.name.clone(), it.parts.len()))
        };
        assert_eq!(parts(&alice), Some((alice.clone(), 200)));
        assert_eq!(parts(&bob), Some((bob, 0)));
        let path = dir.path(&TeamPath::transcript(&alice));
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, entry.repeat(5).as_bytes()).unwrap();
        assert_eq!(
            parts(&alice),
            Some((alice.clone(), 205)),
            "what is new is read, and nothing else"
        );
    }

    #[tokio::test]
    async fn what_was_completed_before_the_last_snapshots_is_there_once_it_is_wanted() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let write = |at: &TeamPath, text: &str| {
            teamd_shared::fs::replace(&dir, at, text.as_bytes()).unwrap()
        };
        write(
            &TeamPath::config(),
            &json!({"version": 1, "seq": 0, "team_name": "t", "members": []}).to_string(),
        );
        let task = |seq: u64, id: u32, (event, status): (&str, &str)| {
            let task = json!({"record": "task", "event": event, "by": "user", "id": id, "subject": "x", "description": "",
                "status": status, "owner": null, "blocked_by": [], "blocks": [], "for": null, "priority": 0, "check": null,
                "attempts": 0, "returns": 0, "reminders": 0, "idle_releases": 0, "max_attempts": 3, "result": null, "created_by": "user", "created_at": 1.0,
                "updated_at": 1.0, "seq": seq, "at": seq, "done": seq});
            serde_json::from_value::<Line>(task).unwrap()
        };
        let mut team = Team::default();
        let mut text = String::new();
        let mut add = |team: &mut Team, line: Line| {
            team.apply(&line).unwrap();
            text += &format!("{}\n", serde_json::to_string(&line).unwrap());
        };
        add(&mut team, task(1, 1, ("created", "pending")));
        add(&mut team, task(2, 1, ("completed", "completed")));
        add(&mut team, task(3, 2, ("created", "pending")));
        for seq in 4..7 {
            let record = team.snapshot().unwrap();
            add(
                &mut team,
                Line {
                    seq,
                    at: 7.0,
                    version: None,
                    done: seq,
                    lead: None,
                    record,
                },
            );
        }
        assert!(!team.tasks.contains_key(&1), "the fold leaves it out");
        write(&TeamPath::journal(), &text);
        let mut files = TeamFiles::begin(&dir, true).unwrap();
        let mut tasks = || {
            while files.is_behind() {
                files.catch_up();
            }
            let known = files.past.tasks.keys().copied().collect::<Vec<_>>();
            files.want_past();
            (known, files.is_behind())
        };
        assert_eq!(tasks(), (vec![2], true));
        assert_eq!(tasks(), (vec![1, 2], false), "it is read once");
        assert_eq!(
            files.past.tasks[&1].spans.len(),
            1,
            "with when it was to be done"
        );
    }
}
