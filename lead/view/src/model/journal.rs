//! The journal, followed: its fold, and each line as it comes.

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::tail::Tail;
use teamd_shared::journal::{Line, Team};
use teamd_shared::json;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// How many snapshots back reading begins: what happened since then is the past that a view shows.
const SNAPSHOTS: usize = 2;
/// How the line of a snapshot begins after its time and position.
const SNAPSHOT: &[u8] = b"\"record\":\"snapshot\"";
/// Within so many bytes.
const BEGINNING: usize = 300;

/// A reader of the journal.
pub struct JournalFollower<'d> {
    tail: Tail<'d>,
    /// What the lines so far say.
    pub team: Team,
    /// Whether there are lines before the first one that it reads.
    pub(super) has_earlier: bool,
}

/// What is new in the journal.
#[derive(Default)]
pub struct NewLines {
    /// The lines, oldest first.
    pub lines: Vec<Line>,
    /// Whether the journal was replaced: what was read before is not part of the new one.
    pub restarted: bool,
}

impl<'d> JournalFollower<'d> {
    /// Begins at one of the last snapshots, or at the first line.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn begin(dir: &'d TeamDir) -> Result<Self, CommandError> {
        let mut tail = Tail::new(dir, TeamPath::journal());
        tail.begin(Some(SNAPSHOTS), is_snapshot)?;
        let has_earlier = tail.mark().is_some_and(|mark| mark.offset() > 0);
        Ok(Self {
            tail,
            team: Team::default(),
            has_earlier,
        })
    }

    /// Reads and folds what is new.
    ///
    /// # Errors
    /// If the journal cannot be read, or a line does not continue it: then `new` has what came
    /// before.
    pub fn read(&mut self, new: &mut NewLines) -> Result<(), CommandError> {
        loop {
            let lines = self.tail.read()?;
            if lines.is_empty() {
                return Ok(());
            }
            for text in lines.iter().filter(|text| !text.trim_ascii().is_empty()) {
                let line: Line =
                    json::read(text).map_err(|error| unreadable(&error.to_string()))?;
                if let Err(error) = self.team.apply(&line) {
                    // Another journal in its place begins with its first line. What was read of a
                    // broken one stays.
                    let mut another = Team::default();
                    another
                        .apply(&line)
                        .map_err(|_| unreadable(&error.to_string()))?;
                    self.team = another;
                    self.has_earlier = false;
                    *new = NewLines {
                        restarted: true,
                        ..NewLines::default()
                    };
                }
                new.lines.push(line);
            }
        }
    }
}

fn is_snapshot(line: &[u8]) -> bool {
    let beginning = &line[..line.len().min(BEGINNING)];
    beginning
        .windows(SNAPSHOT.len())
        .any(|window| window == SNAPSHOT)
}

fn unreadable(why: &str) -> CommandError {
    CommandError::new(
        ExitCode::Failed,
        format!("journal.jsonl cannot be followed: {why}"),
    )
    .hint("`teamctl doctor` says more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_client::testing::{asked, spawned};
    use teamd_shared::fs::replace;

    #[test]
    fn lines_are_folded_as_they_come_and_another_journal_begins_anew() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let write = |text: String| replace(&dir, &TeamPath::journal(), text.as_bytes()).unwrap();
        let mut journal = JournalFollower::begin(&dir).unwrap();
        let read = |journal: &mut JournalFollower<'_>| {
            let mut new = NewLines::default();
            let read = journal.read(&mut new);
            (
                read.is_ok(),
                new.restarted,
                new.lines.len(),
                journal.team.requests.len(),
            )
        };
        assert_eq!(read(&mut journal), (true, false, 0, 0), "not there yet");
        write(spawned(1, "alice") + &asked(2, "a1b2c3d4", "plan_approval"));
        assert_eq!(read(&mut journal), (true, false, 2, 1));
        assert_eq!(read(&mut journal), (true, false, 0, 1));
        write(spawned(1, "bob"));
        assert_eq!(read(&mut journal), (true, true, 1, 0));
        assert!(
            journal
                .team
                .members
                .keys()
                .map(ToString::to_string)
                .eq(["bob"])
        );
        write("{\n".to_owned() + &asked(7, "a1b2c3d4", "plan_approval"));
        assert!(!read(&mut journal).0);
        assert_eq!(journal.team.members.len(), 1, "what was read before stays");
    }
}
